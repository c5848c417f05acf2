"""Tools: functions that a model may call."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, Literal, ParamSpec, cast, get_args, overload

import attrs
from typing_extensions import TypeVar

from turnstate_states import checks
from turnstate_states.asking import Prompt
from turnstate_states.errors import InvalidInput
from turnstate_states.rules import Bound, ToolSpec

from ..failures import describe, failure_in
from ..models.base import ToolDefinition
from ..options import check_options
from .context import ToolContext
from .declaring import check_companion, check_decider, check_function, check_name, check_on_crash, is_async, yields

__all__ = ["Tool", "ToolContext", "tool"]

D = TypeVar("D", default=Any)
P = ParamSpec("P")
R = TypeVar("R")
OnCrashOption = Literal["report", "rerun"] | Callable[..., Awaitable[Any]]
Approval = bool | Callable[..., bool]
Errors = Literal["type", "text"]
PromptOption = Prompt | str | Callable[..., Prompt | str | None] | None

log = logging.getLogger("turnstate")


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
        errors: Errors = "type",
    ) -> None:
        self.function = function
        self.name: str = check_name(name, function)
        check_function(self.name, function)
        where = f"tool {self.name}:"
        check_decider(f"{where} approval", approval, bool, "True, False")
        check_decider(f"{where} prompt", prompt, (Prompt, str, type(None)), "a question, a Prompt")
        check_on_crash(f"{where} on_crash", on_crash)
        checks.optional(checks.text, f"{where} description", description)
        checks.flag(f"{where} exclusive", exclusive)
        checks.flag(f"{where} ends_on_input", ends_on_input)
        checks.flag(f"{where} outside", outside)
        checks.optional(checks.number, f"{where} timeout", timeout, above=0, expected="None or seconds")
        checks.optional(checks.finite, f"{where} expires", expires, above=0, expected="None or seconds")
        checks.integer(f"{where} output_limit", output_limit, least=1, expected="a number of bytes")
        checks.choice(f"{where} errors", errors, choices=get_args(Errors))
        checks.text(f"{where} version", version)
        self.errors = errors
        self.timeout = timeout
        self.approval = approval
        self.on_crash = on_crash
        self.output_limit = output_limit
        self.prompt = prompt
        self.outside = outside
        self.is_async = is_async(function)
        self.yields = yields(function)
        from .inputs import Inputs, split_doc  # when the first tool is made: it imports much

        self._inputs = Inputs(self.name, function)
        self._check_companions()
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
            bind=self.hold,
        )
        functools.update_wrapper(self, function, updated=())

    def _check_companions(self) -> None:
        """Refuse functions beside the tool's own that could not be called."""
        from .inputs import hints_of, is_context

        companions: dict[str, Any] = {"approval": self.approval, "prompt": self.prompt, "on_crash": self.on_crash}
        for option, value in companions.items():
            if callable(value):
                hints = hints_of(self.name, value)
                contexts = [name for name, hint in hints.items() if is_context(hint)]
                check_companion(f"tool {self.name}: {option}", value, self._inputs.names, contexts)

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
        return self.hold(arguments).fault or None

    def hold(self, arguments: str) -> Bound:
        """A call's arguments held against the parameters: what is wrong with them, or what is filled in."""
        try:
            return self._inputs.hold(arguments)
        except BaseException as raised:  # a type of the host's may raise anything when it is made
            error = failure_in(raised)
            log.error("the arguments of tool %s could not be checked", self.name, exc_info=error)
            return Bound(f"bad arguments for {self.name}: {describe(error)}")

    def ask(self, arguments: str) -> Prompt | None:
        """How a person is asked about a call whose arguments were checked; None for a plain question."""
        prompt = self.prompt
        if callable(prompt):
            context: ToolContext[Any] = ToolContext(None, session_id="", turn_id="", call_id="", tool=self.name)
            try:
                prompt = prompt(**self.bind_for(prompt, arguments, context))
                return prompt if prompt is None or isinstance(prompt, Prompt) else Prompt(prompt)
            except BaseException as raised:
                error = failure_in(raised)
                log.error("the prompt of tool %s failed; a plain question is asked", self.name, exc_info=error)
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
    version: str = "",
    errors: Errors = "type",
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
    errors: Errors = "type",
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
        errors: what the model, and with it whoever runs it, reads of an exception. ``type``: its type, and the log has the
            rest. ``text``: its text as well. The text of a :class:`~turnstate.ToolError` is always read.

    An async generator function tells what it yields as progress; the last value is the result.

    A parameter may be annotated ``Annotated[int, "How many."]``: the text describes it to the model, and comes before what
    the docstring says. The constraints of ``msgspec.Meta`` and of the package annotated-types (``Gt``, ``Len``, ...) are in
    the schema, and arguments are held to them. Metadata of other libraries is left alone.

    What a function returns is given to the model as text if it is a ``str``, and otherwise as JSON, as msgspec writes it:
    dataclasses and attrs objects as objects, dates and UUIDs as text, sets as arrays, other keys as text. Bytes, NaN and
    what msgspec does not know are an error result; a function that says that it returns bytes is refused. Return
    :class:`~turnstate.Output` to show the model something else than people.

    A method is no tool, but a bound one is: ``tools=[toolbox.search, tool(toolbox.delete, approval=True)]``.

    Raises:
        InvalidInput: the function, the name, a parameter or an option cannot be used.
        TypeError: there is no such option; the text names the nearest one.

    >>> @tool(approval=True)
    ... def pay(amount: int) -> str:
    ...     '''Pay an amount.'''
    ...     return f"paid {amount}"
    >>> pay(amount=3), pay.name
    ('paid 3', 'pay')
    """
    check_options("tool", options, cast(Any, Tool))
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
        raise InvalidInput(f"tools: expected functions or tools, got {checks.shown(value)}")
    return Tool(value)


@attrs.frozen
class ToolSet:
    """The tools of an agent by name."""

    by_name: Mapping[str, Tool[..., Any]]
    definitions: tuple[ToolDefinition, ...]

    @classmethod
    def of(cls, tools: Iterable[Tool[..., Any] | Callable[..., Any]]) -> ToolSet:
        """Collect tools.

        Raises:
            InvalidInput: two have the same name, or it is no list of tools.
        """
        given = checks.items("tools", tools, "a list of functions or tools")
        by_name: dict[str, Tool[..., Any]] = {}
        for item in map(as_tool, given):
            if item.name in by_name:
                raise InvalidInput(f"tools: two are called {item.name}; give one of them another name=")
            by_name[item.name] = item
        return cls(by_name, tuple(item.definition for _, item in sorted(by_name.items())))
