"""Tools: functions that a model may call."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import re
import threading
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, ParamSpec, cast, overload

import attrs
import msgspec
from typing_extensions import TypeVar

from turnstate_states.content import clean_text
from turnstate_states.errors import InvalidInput
from turnstate_states.rules import ToolSpec
from turnstate_states.transcript import Usage
from turnstate_states.turn import Permissions

from .models.base import ToolDefinition

__all__ = ["Tool", "ToolContext", "tool"]

D = TypeVar("D", default=Any)
P = ParamSpec("P")
R = TypeVar("R")
OnCrashOption = Literal["report", "rerun"] | Callable[..., Awaitable[Any]]
Approval = bool | Callable[..., bool]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
CUT_OFF = "the arguments were cut off, so the tool was not run"


class ToolContext(Generic[D]):
    """What a running tool knows; a parameter annotated with it is filled in and the model does not see it.

    ``permissions`` are what the policy's verdict gives this call: a tool that reaches further must look at them.
    ``idempotency_key`` is the same each time this call is begun, also after a crash. ``cancelled`` becomes true when the
    turn ends or the call times out: a function in a thread should look at it, since nobody can end a thread.
    """

    def __init__(
        self,
        deps: D,
        *,
        session_id: str,
        turn_id: str,
        call_id: str,
        tool: str,
        progress: Callable[[object], None] = lambda value: None,
    ) -> None:
        self.deps = deps
        self.session_id = session_id
        self.turn_id = turn_id
        self.call_id = call_id
        self.tool = tool
        self.permissions = Permissions()
        self.usage: dict[str, Usage] = {}
        self._progress = progress
        self._cancelled = threading.Event()

    @property
    def idempotency_key(self) -> str:
        """Session id and call id: unique, and equal each time this call is begun."""
        return f"{self.session_id}/{self.call_id}"

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Say that nobody waits any more. The engine does it."""
        self._cancelled.set()

    def count_usage(self, model: str, usage: Usage) -> None:
        """Count what a model of the tool's own used; it is in the turn's and the session's usage, under that name."""
        self.usage[model] = self.usage.get(model, Usage()) + usage

    def progress(self, value: object) -> None:
        """Tell subscribers how far it is; from any thread. ``value`` is anything that they can use; it is not stored."""
        self._progress(value)


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
        self.is_async = inspect.iscoroutinefunction(function)
        self._inputs = _Inputs(self.name, function)
        about, arguments = _split_doc(inspect.getdoc(function) or "")
        self.description = about if description is None else description
        self.parameters = self._inputs.schema(arguments)
        self.spec = ToolSpec(
            self.name,
            approval="policy" if callable(approval) else "always" if approval else "never",
            exclusive=exclusive,
            on_crash="check" if callable(on_crash) else on_crash,
            ends_on_input=ends_on_input,
            expires=expires,
            check=self.check,
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
        try:
            self._inputs.decode(arguments)
        except msgspec.ValidationError as error:
            return f"bad arguments for {self.name}: {error}"
        except (msgspec.DecodeError, RecursionError) as error:
            if "truncated" in str(error):
                return CUT_OFF
            return f"bad arguments for {self.name}: not JSON: {error}"
        return None

    def bind(self, arguments: str, context: ToolContext[Any]) -> dict[str, Any]:
        """The keyword arguments for a call whose arguments were checked."""
        return self._inputs.bind(self._inputs.decode(arguments), context)

    def bind_for(self, function: Callable[..., Any], arguments: str, context: ToolContext[Any]) -> dict[str, Any]:
        """The same for a companion function (a check, a predicate), which may take fewer of them."""
        values = self._inputs.bind(self._inputs.decode(arguments), context)
        parameters = inspect.signature(function).parameters
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return values
        hints = _hints(self.name, function)
        chosen = {name: value for name, value in values.items() if name in parameters}
        return chosen | {name: context for name in parameters if _is_context(hints.get(name))}


class _Inputs:
    """The parameters of a function as a schema, a decoder and a way to call it."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        hints = _hints(name, function)
        self._context = ""
        self._names: list[str] = []
        fields: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            if _is_context(hints.get(parameter.name)):
                self._context = parameter.name
                continue
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise InvalidInput(
                    f"tool {name}: parameter {parameter.name}: only parameters with a name can be filled in"
                )
            self._names.append(parameter.name)
            kind = hints.get(parameter.name, Any)
            required = parameter.default is parameter.empty
            fields.append((parameter.name, kind) if required else (parameter.name, kind, _default(parameter.default)))
        try:
            self._struct = msgspec.defstruct(name.replace("-", "_"), fields, kw_only=True, forbid_unknown_fields=True)
            self._decoder = msgspec.json.Decoder(self._struct)
        except TypeError as error:
            raise InvalidInput(f"tool {name}: a parameter has a type that JSON cannot give: {error}") from None

    def decode(self, arguments: str) -> Any:
        return self._decoder.decode(arguments if arguments.strip() else "{}")

    def bind(self, values: Any, context: ToolContext[Any]) -> dict[str, Any]:
        bound = {name: getattr(values, name) for name in self._names}
        if self._context:
            bound[self._context] = context
        return bound

    def schema(self, about: Mapping[str, str]) -> dict[str, Any]:
        try:
            (_,), components = msgspec.json.schema_components([self._struct], ref_template="#/$defs/{name}")
        except TypeError as error:
            raise InvalidInput(f"tool {self._name}: a parameter has no JSON Schema: {error}") from None
        schema: dict[str, Any] = components.pop(self._struct.__name__)
        schema.pop("title", None)
        for name, text in about.items():
            if name in schema["properties"]:
                schema["properties"][name].setdefault("description", text)
        return schema | ({"$defs": components} if components else {})


def _default(value: Any) -> Any:
    if isinstance(value, (list, dict, set)):
        return msgspec.field(default_factory=functools.partial(copy.copy, cast(Any, value)))
    return value


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    target: Any = inspect.unwrap(function)
    names = getattr(getattr(target, "__code__", None), "co_freevars", ())
    cells = getattr(target, "__closure__", None) or ()
    local: dict[str, Any] = {
        free: cell.cell_contents for free, cell in zip(names, cells, strict=False) if _filled(cell)
    }
    try:
        return typing.get_type_hints(target, localns=local, include_extras=True)
    except NameError as error:
        raise InvalidInput(
            f"tool {name}: an annotation cannot be resolved ({error}); define its type at module level"
        ) from None


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _is_context(hint: Any) -> bool:
    return hint is ToolContext or typing.get_origin(hint) is ToolContext


def _split_doc(doc: str) -> tuple[str, dict[str, str]]:
    """A docstring's text, and what its ``Args:`` section says of each parameter."""
    text, _, rest = doc.partition("\nArgs:\n")
    about: dict[str, str] = {}
    name = ""
    for line in rest.split("\n"):
        found = re.match(r"    (\w+)(?: \([^)]*\))?: (.*)", line)
        if found:
            name, about[found[1]] = found[1], found[2].strip()
        elif line.startswith("      ") and name:
            about[name] += " " + line.strip()
        elif line.strip():
            break
    return text.strip(), about


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
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
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool. The function stays callable.

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
        expires: seconds after which an unanswered request for approval is denied.
        output_limit: bytes of output that are kept, head and tail.

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
        return Tool(function)

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


def result_text(value: object, limit: int) -> str:
    """What a tool returned, as the model reads it: text as it is, other values as JSON, cut to ``limit`` bytes.

    Raises:
        TypeError: it is not JSON; the text names the type.
    """
    if isinstance(value, str):
        return shorten(clean_text(value), limit)
    try:
        data = msgspec.to_builtins(value, str_keys=True)
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise TypeError(f"the tool returned {type(value).__name__}, which is not JSON ({error})") from None
    return shorten(clean_text(text), limit)


def shorten(text: str, limit: int) -> str:
    """Text of at most about ``limit`` bytes, its head and tail kept.

    >>> shorten("a" * 50 + "z" * 50, 20)
    'aaaaaaaaaa…80 characters left out…zzzzzzzzzz'
    """
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    half = limit // 2
    head = data[:half].decode(errors="ignore")
    tail = data[-half:].decode(errors="ignore")
    return f"{head}…{len(text) - len(head) - len(tail)} characters left out…{tail}"


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
