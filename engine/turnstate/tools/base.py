"""Tools: functions that a model may call."""

from __future__ import annotations

import functools
import inspect
import logging
import re
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, ParamSpec, cast, overload

import attrs
from typing_extensions import TypeVar

from turnstate_states.asking import Prompt
from turnstate_states.errors import InvalidInput
from turnstate_states.rules import ToolSpec

from ..models.base import ToolDefinition
from .context import ToolContext

__all__ = ["Tool", "ToolContext", "tool"]

D = TypeVar("D", default=Any)
P = ParamSpec("P")
R = TypeVar("R")
OnCrashOption = Literal["report", "rerun"] | Callable[..., Awaitable[Any]]
Approval = bool | Callable[..., bool]
PromptOption = Prompt | str | Callable[..., Prompt | str | None] | None

log = logging.getLogger("turnstate")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Tool(Generic[P, R]):
    """A function with what is declared about it; calling it calls the function.

    ``parameters`` is the JSON Schema that a model is shown.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        approval: Approval = False,
        exclusive: bool = False,
        timeout: float | None = None,
        on_crash: OnCrashOption = "report",
        ends_on_input: bool = False,
        expires: float | None = None,
        output_limit: int = 40_000,
        outside: bool = False,
        prompt: PromptOption = None,
        version: str = "",
    ) -> None:
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", ""))
        if not NAME.fullmatch(self.name):
            raise InvalidInput(f"tool name {self.name!r}: use 1 to 64 letters, digits, _ or -; give one with name=")
        if timeout is not None and not timeout > 0:
            raise InvalidInput(f"tool {self.name}: timeout: expected None or seconds above 0, got {timeout!r}")
        if not callable(on_crash) and on_crash not in ("report", "rerun"):
            raise InvalidInput(
                f"tool {self.name}: on_crash: expected 'report', 'rerun' or a function, got {on_crash!r}"
            )
        self.timeout = timeout
        self.approval = approval
        self.on_crash = on_crash
        self.output_limit = output_limit
        self.prompt = prompt
        self.outside = outside
        self.is_async = inspect.iscoroutinefunction(function)
        self.yields = inspect.isasyncgenfunction(function)
        from .inputs import Inputs, split_doc  # when the first tool is made: it imports much

        self._inputs = Inputs(self.name, function)
        about, arguments = split_doc(inspect.getdoc(function) or "")
        self.description = about if description is None else description
        self.parameters = self._inputs.schema(arguments)
        self.spec = ToolSpec(
            self.name,
            approval="policy" if callable(approval) else "always" if approval else "never",
            exclusive=exclusive,
            on_crash="check" if callable(on_crash) else on_crash,
            ends_on_input=ends_on_input,
            expires=expires,
            outside=outside,
            schema=self._inputs.digest(self.parameters),
            version=version,
            prompt=self.ask,
            bind=self._inputs.hold,
        )
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    @property
    def definition(self) -> ToolDefinition:
        """What a model is told of it."""
        return ToolDefinition(self.name, self.description, self.parameters)

    def check(self, arguments: str) -> str | None:
        """What is wrong with a call's arguments, in words for the model, or None.

        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     return a + b
        >>> add.check('{"a": 1, "b": "x"}')
        'bad arguments for add: Expected `int`, got `str` - at `$.b`'
        """
        return self._inputs.hold(arguments).fault or None

    def ask(self, arguments: str) -> Prompt | None:
        """How a person is asked about a call whose arguments were checked; None for a plain question."""
        prompt = self.prompt
        if callable(prompt):
            context: ToolContext[Any] = ToolContext(None, session_id="", turn_id="", call_id="", tool=self.name)
            try:
                prompt = prompt(**self.bind_for(prompt, arguments, context))
                return prompt if prompt is None or isinstance(prompt, Prompt) else Prompt(prompt)
            except Exception:
                log.exception("the prompt of tool %s failed; a plain question is asked", self.name)
                return None
        return Prompt(prompt) if isinstance(prompt, str) else prompt

    def bind(self, arguments: str, context: ToolContext[Any]) -> dict[str, Any]:
        """The keyword arguments for a call whose arguments were checked."""
        return self._inputs.bind(self._inputs.decode(arguments), context)

    def bind_for(self, function: Callable[..., Any], arguments: str, context: ToolContext[Any]) -> dict[str, Any]:
        """The same for a companion function (a check, a predicate), which may take fewer of them."""
        from .inputs import hints_of, is_context

        values = self._inputs.bind(self._inputs.decode(arguments), context)
        parameters = inspect.signature(function).parameters
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return values
        hints = hints_of(self.name, function)
        chosen = {name: value for name, value in values.items() if name in parameters}
        return chosen | {name: context for name in parameters if is_context(hints.get(name))}


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval = False,
    exclusive: bool = False,
    timeout: float | None = None,
    on_crash: OnCrashOption = "report",
    ends_on_input: bool = False,
    expires: float | None = None,
    output_limit: int = 40_000,
    outside: bool = False,
    prompt: PromptOption = None,
) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval = False,
    exclusive: bool = False,
    timeout: float | None = None,
    on_crash: OnCrashOption = "report",
    ends_on_input: bool = False,
    expires: float | None = None,
    output_limit: int = 40_000,
    outside: bool = False,
    prompt: PromptOption = None,
    version: str = "",
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool, as a decorator (``@tool``, ``@tool(approval=True)``) or by a call
    (``tool(function, approval=True)``). The function stays callable.

    Its docstring is what the model reads (an ``Args:`` section describes the parameters), its annotations are the schema.
    ``async`` functions run on trio, others in a thread.

    Args:
        name: what the model calls it; by default the function's name.
        description: in place of the docstring.
        approval: True to ask a person each time; a predicate with some of the parameters to decide by the arguments.
        exclusive: run alone: all calls before it are settled first, those after it wait.
        timeout: seconds; then the call's outcome is unknown.
        on_crash: what happens if the process dies while it runs. ``report``: the model hears that the outcome is unknown.
            ``rerun``: it runs again, because it is idempotent. An async function with some of the parameters: it looks at
            the world and returns the result, or None if the call did not happen, which then runs.
        ends_on_input: it only waits, so a steer may end it.
        expires: seconds after which an unanswered request for approval is denied, or one for a result given up.
        output_limit: bytes of output that are kept, head and tail.
        outside: the function is never run: a person or a client provides the result of a call. Its docstring is body enough;
            annotate it ``-> None``.
        prompt: how a person is asked: a question, a :class:`~turnstate.Prompt` with options or questions, or a function
            with some of the parameters that gives one of them.
        version: what you say that the function is now, such as ``"2"``. An approval holds for a tool whose name, parameters,
            crash rule and version are the same; change it where the function does something else under the same
            parameters, and what waits for a person is asked again.

    An async generator function tells what it yields as progress; the last value is the result.

    Raises:
        InvalidInput: the name, a parameter or an option cannot be used.

    >>> @tool(approval=True)
    ... def pay(amount: int) -> str:
    ...     '''Pay an amount.'''
    ...     return f"paid {amount}"
    >>> pay(amount=3), pay.name
    ('paid 3', 'pay')
    """
    if function is not None:
        return Tool(function, **options)

    def decorate(function: Callable[..., Any]) -> Tool[..., Any]:
        return Tool(function, **options)

    return decorate


def as_tool(value: Tool[..., Any] | Callable[..., Any]) -> Tool[..., Any]:
    """A tool, or a plain function made one."""
    if isinstance(value, Tool):
        return cast(Tool[..., Any], value)
    if not callable(value):
        raise InvalidInput(f"tools: expected functions or tools, got {type(value).__name__}")
    return Tool(value)


@attrs.frozen
class ToolSet:
    """The tools of an agent by name."""

    by_name: Mapping[str, Tool[..., Any]]
    definitions: tuple[ToolDefinition, ...]

    @classmethod
    def of(cls, tools: typing.Iterable[Tool[..., Any] | Callable[..., Any]]) -> ToolSet:
        """Collect tools.

        Raises:
            InvalidInput: two have the same name.
        """
        by_name: dict[str, Tool[..., Any]] = {}
        for item in map(as_tool, tools):
            if item.name in by_name:
                raise InvalidInput(f"tools: two are called {item.name}; give one of them another name=")
            by_name[item.name] = item
        return cls(by_name, tuple(item.definition for _, item in sorted(by_name.items())))
