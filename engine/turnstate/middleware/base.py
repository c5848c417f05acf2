"""What a middleware is and what its hooks are given."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Generic

import attrs
from typing_extensions import TypeVar

from turnstate_states import codec
from turnstate_states.content import clean_text
from turnstate_states.errors import InvalidInput
from turnstate_states.reports import Effects, Summary
from turnstate_states.transcript import Usage
from turnstate_states.turn import Call, Failure, Outcome
from turnstate_states.values import Value

from ..models.base import Model, ModelRequest, Reply
from ..tools.context import ToolContext

__all__ = ["Again", "Middleware", "StepContext", "Stop", "TurnContext"]

D = TypeVar("D", default=Any)


def _said(text: object) -> str:
    """A hook's words, fit to be stored and sent."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"expected some text, got {text!r}")
    return clean_text(text)


@attrs.frozen(eq=False, repr=False)
class Again(Value):
    """Have the model reply again; ``feedback`` tells it why. At most twice in a row."""

    feedback: str = attrs.field(converter=_said)


@attrs.frozen(eq=False, repr=False)
class Stop(Value):
    """End the turn, with this reason."""

    reason: str = attrs.field(converter=_said)


class _Effects:
    """Collects what a hook does; it counts once the hook is done."""

    def __init__(self) -> None:
        self._messages: list[str] = []
        self._events: list[tuple[str, Any]] = []
        self._usage: dict[str, Usage] = {}
        self._warnings: list[str] = []
        self._summary: Summary | None = None

    def tell(self, name: str, data: Any = None) -> None:
        """Tell subscribers an event of your own: :class:`~turnstate.Custom` with this name and plain data."""
        try:
            plain = json.loads(json.dumps(data, allow_nan=False))
            codec.json_bytes([name, plain])
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"event {name!r}: expected plain JSON data: {error}") from None
        self._events.append((name, plain))

    def count_usage(self, model: str, usage: Usage) -> None:
        """Count what a model of your own used."""
        self._usage[model] = self._usage.get(model, Usage()) + usage

    def warn(self, text: str) -> None:
        """Tell people something that they should know: :class:`~turnstate.Warned`."""
        self._warnings.append(_said(text))

    def effects(self) -> Effects:
        """What was collected. The engine takes it."""
        return Effects(
            messages=tuple(self._messages),
            events=tuple(self._events),
            usage=dict(self._usage),
            warnings=tuple(self._warnings),
            summary=self._summary,
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
        self._messages.append(_said(text))

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
        if keeps and keeps not in places:
            raise InvalidInput(f"keeps: expected the id of a user or assistant message after the first, got {keeps!r}")
        self._summary = Summary(_said(summary), keeps)


class TurnContext(_Effects, Generic[D]):
    """What ``turn_ended`` is given: the turn's outcome, which is stored already."""

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
    ) -> None:
        super().__init__()
        self.deps = deps
        self.session_id = session_id
        self.turn_id = turn_id
        self.outcome: Outcome = outcome
        self.reason = reason
        self.error = error
        self.usage = usage


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


def has_hook(middleware: Middleware[Any], name: str) -> bool:
    """Whether a middleware overrides a hook."""
    return getattr(type(middleware), name) is not getattr(Middleware, name)
