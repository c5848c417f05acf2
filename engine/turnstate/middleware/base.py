"""What a middleware is and what its hooks are given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Generic

import attrs
from typing_extensions import TypeVar

from turnstate_states import checks
from turnstate_states.checkpoint import Titled
from turnstate_states.content import clean_text
from turnstate_states.errors import InvalidInput
from turnstate_states.reports import Effects, Summary
from turnstate_states.transcript import Message, Usage
from turnstate_states.turn import Call, Failure, Outcome
from turnstate_states.values import Value

from ..models.base import Model, ModelRequest, Reply, check_usage
from ..tools.context import ToolContext
from ..tools.declaring import is_async

__all__ = ["Again", "CommandContext", "Middleware", "StepContext", "Stop", "TurnContext", "command", "plain_json"]

D = TypeVar("D", default=Any)


def _said(where: str, text: object) -> str:
    """A hook's words, fit to be stored and sent."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"{where}: expected some text, got {checks.shown(text)}")
    return clean_text(text)


def _feedback(text: str) -> str:
    return _said("feedback", text)


def _reason(text: str) -> str:
    return _said("reason", text)


def plain_json(what: str, data: Any) -> Any:
    """Data as it will be read again. Raises InvalidInput if it is not plain JSON."""
    return checks.json_value(what, data)


@attrs.frozen(eq=False, repr=False)
class Again(Value):
    """Have the model reply again; ``feedback`` tells it why. At most twice in a row."""

    feedback: str = attrs.field(converter=_feedback)


@attrs.frozen(eq=False, repr=False)
class Stop(Value):
    """End the turn, with this reason."""

    reason: str = attrs.field(converter=_reason)


class _Effects:
    """Collects what a hook does; it counts once the hook is done."""

    def __init__(self) -> None:
        self._messages: list[str] = []
        self._events: list[tuple[str, Any]] = []
        self._usage: dict[str, Usage] = {}
        self._warnings: list[str] = []
        self._summary: Summary | None = None
        self._title = ""

    def tell(self, name: str, data: Any = None) -> None:
        """Tell subscribers an event of your own: :class:`~turnstate.Custom` with this name and plain data."""
        checks.text("name", name, filled=True)
        self._events.append((name, plain_json("data", data)))

    def count_usage(self, model: str, usage: Usage) -> None:
        """Count what a model of your own used."""
        checks.text("model", model)
        self._usage[model] = self._usage.get(model, Usage()) + check_usage("usage", usage)

    def warn(self, text: str) -> None:
        """Tell people something that they should know: :class:`~turnstate.Warned`."""
        self._warnings.append(_said("text", text))

    def rename(self, title: str) -> None:
        """Give the session another title, unless a person gave it one; it is cut to 200 characters."""
        self._title = _said("title", title)

    def effects(self) -> Effects:
        """What was collected. The engine takes it."""
        return Effects(
            messages=tuple(self._messages),
            events=tuple(self._events),
            usage=dict(self._usage),
            warnings=tuple(self._warnings),
            summary=self._summary,
            title=self._title,
        )


class StepContext(_Effects, Generic[D]):
    """What the hooks around a request are given.

    ``hook_pass`` counts the rounds before this attempt: above 1 a steer came while hooks ran. ``request`` is what will be
    sent, or was; ``reply`` is set in ``after_model``. ``model`` is the agent's, for questions of your own. ``overflow`` is
    how it refused this step's last request as too long, if it did, in middleware with ``makes_room``.
    """

    def __init__(
        self,
        deps: D,
        *,
        session_id: str,
        turn_id: str,
        step: int,
        attempt: int,
        hook_pass: int,
        request: ModelRequest,
        model: Model,
        overflow: Failure | None = None,
    ) -> None:
        super().__init__()
        self.deps = deps
        self.session_id = session_id
        self.turn_id = turn_id
        self.step = step
        self.attempt = attempt
        self.hook_pass = hook_pass
        self.request = request
        self.model = model
        self.overflow = overflow
        self._reply: Reply | None = None

    @property
    def replied(self) -> Reply | None:
        """The reply, or None before there is one."""
        return self._reply

    @property
    def reply(self) -> Reply:
        """The reply. Raises InvalidInput before there is one."""
        if self._reply is None:
            raise InvalidInput("reply: there is none before the model was asked; use it in after_model")
        return self._reply

    def set_reply(self, reply: Reply) -> None:
        """Show a reply to the hooks. The engine does it."""
        self._reply = reply

    def add_message(self, text: str) -> None:
        """Add a message for good: it is stored, and in this request and all that follow."""
        self._messages.append(_said("text", text))

    def compact(self, summary: str, *, keeps: str = "") -> None:
        """Have the model start from a summary, in this request and all that follow. The history stays for people.

        Args:
            summary: what the model reads, as a person's message, in the place of all before the message ``keeps``.
            keeps: the id of a person's or a model's message in ``request``, not the first; without it nothing is kept.

        Raises:
            InvalidInput: there is a reply already, or the conversation cannot be cut there.
        """
        if self._reply is not None:
            raise InvalidInput("compact: use it in before_model; now the model has replied")
        places = [message.id for message in self.request.messages[1:] if message.role in ("user", "assistant")]
        if checks.text("keeps", keeps) and keeps not in places:
            raise InvalidInput(
                f"keeps: expected the id of a user or assistant message after the first, got {checks.shown(keeps)}"
            )
        self._summary = Summary(_said("summary", summary), keeps)


class TurnContext(_Effects, Generic[D]):
    """What ``turn_ended`` is given: the turn's outcome, which is stored already.

    ``model`` is the agent's, ``title`` the session's, ``titled`` who gave it that (``hook``,
    ``person``, or empty for the words that were said first), ``turns`` how many turns there were, ``messages`` what is
    visible.
    """

    def __init__(
        self,
        deps: D,
        *,
        session_id: str,
        turn_id: str,
        outcome: Outcome,
        reason: str,
        error: Failure | None,
        usage: Usage,
        model: Model,
        title: str,
        titled: Titled,
        turns: int,
        messages: Callable[[], Sequence[Message]],
    ) -> None:
        super().__init__()
        self.deps = deps
        self.session_id = session_id
        self.turn_id = turn_id
        self.outcome: Outcome = outcome
        self.reason = reason
        self.error = error
        self.usage = usage
        self.model = model
        self.title = title
        self.titled: Titled = titled
        self.turns = turns
        self._visible = messages

    @property
    def messages(self) -> Sequence[Message]:
        """The visible messages, oldest first."""
        return self._visible()


class CommandContext(_Effects, Generic[D]):
    """What a command is given. ``command_id`` is the same each time it is carried out, also after a crash."""

    def __init__(
        self,
        deps: D,
        *,
        session_id: str,
        command_id: str,
        name: str,
        model: Model,
        messages: Callable[[], Sequence[Message]],
    ) -> None:
        super().__init__()
        self.deps = deps
        self.session_id = session_id
        self.command_id = command_id
        self.name = name
        self.model = model
        self._visible = messages

    @property
    def messages(self) -> Sequence[Message]:
        """The visible messages, oldest first."""
        return self._visible()

    def send(self, text: str) -> None:
        """Say something to the model, as a person does who steers: it joins the running turn, or starts one."""
        self._messages.append(_said("text", text))


@attrs.frozen
class CommandSpec:
    """What is declared about a command: its name, and whether it may be carried out while a turn runs."""

    name: str
    active: bool


Carry = TypeVar("Carry", bound=Callable[..., Awaitable[Any]])


def command(name: str, *, active: bool = False) -> Callable[[Carry], Carry]:
    """Make a method of a middleware the one that carries out a command.

    The method is ``async def method(self, ctx: CommandContext, arguments: Mapping[str, Any])``; what it returns (plain JSON)
    and what it did through ``ctx`` are committed together, and told with :class:`~turnstate.CommandEnded`. It runs again if
    the process dies in it.

    Args:
        name: what clients call it by; unique in an agent.
        active: whether it may be carried out while a turn runs; otherwise it is refused as busy then.

    Raises:
        InvalidInput: the name cannot be used, or the method is not async.
    """

    checks.identifier("name", name)
    checks.flag("active", active)

    def mark(method: Carry) -> Carry:
        if not is_async(method):
            raise InvalidInput(f"command {name}: expected an async method, got {checks.shown(method)}")
        setattr(method, MARK, CommandSpec(name, active))
        return method

    return mark


MARK = "_turnstate_command"


class Middleware(Generic[D]):
    """Base class: override the hooks that you need. They run in the order in which the agent lists its middleware.

    An exception in ``before_model`` or ``after_model`` fails the turn; one in ``turn_ended`` is told as a warning.
    """

    makes_room: ClassVar[bool] = False
    """Whether ``before_model`` can call ``ctx.compact`` where ``ctx.overflow`` is set. If it does so, a request that was too
    long is tried once more; if not, the turn fails."""

    async def before_model(self, ctx: StepContext[D], /) -> Stop | None:
        """Before each attempt: add to the request, add messages for good, or end the turn."""
        return None

    async def after_model(self, ctx: StepContext[D], /) -> Again | Stop | None:
        """After each reply, which is stored: let it stand, ask again, or end the turn."""
        return None

    async def around_call(self, ctx: ToolContext[D], call: Call, run: Callable[[], Awaitable[Any]], /) -> Any:
        """Around a call that has started: ``await run()`` runs it (or what the next middleware makes of it) and gives what
        the tool returned. What is returned here is the call's result; what is raised here is as if the tool had raised it.
        """
        return await run()

    async def aclose(self) -> None:
        """Close connections; an engine does it when it is left. The default has none."""

    async def turn_ended(self, ctx: TurnContext[D], /) -> None:
        """After a turn, before the next starts. It may run again if the process dies in it."""


def commands_of(middleware: Middleware[Any]) -> dict[CommandSpec, Callable[..., Awaitable[Any]]]:
    """The commands that a middleware carries out."""
    found: dict[CommandSpec, Callable[..., Awaitable[Any]]] = {}
    for attribute in dir(type(middleware)):
        spec = getattr(getattr(type(middleware), attribute), MARK, None)
        if isinstance(spec, CommandSpec):
            found[spec] = getattr(middleware, attribute)
    return found


def has_hook(middleware: Middleware[Any], name: str) -> bool:
    """Whether a middleware overrides a hook."""
    return getattr(type(middleware), name) is not getattr(Middleware, name)
