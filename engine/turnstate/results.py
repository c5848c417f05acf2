"""What is left of a turn when it ended, and what a list of sessions shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Literal

import attrs
from typing_extensions import TypeVar

from turnstate_states.authorization import Authorization
from turnstate_states.content import ToolCall, ToolResult
from turnstate_states.transcript import Message, Usage
from turnstate_states.turn import Call, Failure, Stop
from turnstate_states.values import Value

__all__ = ["Result", "ResultOutcome", "SessionInfo", "SessionPage", "calls_in"]

Out = TypeVar("Out", default=str)
ResultOutcome = Literal["completed", "waiting", "interrupted", "failed", "limit", "superseded", "denied"]


@attrs.frozen(eq=False, repr=False)
class Result(Value, Generic[Out]):
    """How a turn ended, or that it waits.

    ``outcome``: ``completed``, ``waiting`` (for a person; see ``waiting``), ``interrupted``, ``failed``, ``limit``,
    ``superseded`` or ``denied``. ``stop`` is why the model stopped. ``output`` is the answer; ``text`` its text.
    ``calls`` are all tool calls of the turn in order, each with what really ran: ``proposed`` is what the model wrote,
    ``edited`` what a person made of it, ``arguments`` what the tool got; ``decision``, ``grant``, ``permissions`` and
    ``reason`` say who let it run, how far it could reach and why.
    """

    turn: str
    outcome: ResultOutcome
    output: Out
    text: str = ""
    reason: str = ""
    stop: Stop = ""
    error: Failure | None = None
    usage: Usage = attrs.field(factory=Usage)
    calls: Sequence[Call] = ()
    messages: Sequence[Message] = attrs.field(default=(), repr=False)
    steps: int = 0
    attempts: int = 0

    @property
    def waiting(self) -> Sequence[Call]:
        """The calls that wait for a person."""
        return [waiting for call in self.calls for waiting in call.waiting]


def _no_labels() -> Mapping[str, str]:
    return {}


@attrs.frozen(eq=False, repr=False)
class SessionInfo(Value):
    """A session in a list. Times are in seconds since the epoch.

    ``state`` is that of the turn (``idle`` if there was none), ``waiting`` the calls that wait for a person, ``deadline``
    when the first of them expires, ``unfinished`` whether a turn has not ended, ``held`` whether ``queued`` messages wait
    to be released. ``outcome`` is how the last turn ended, empty while it runs. ``parent`` is the session whose tool call
    this one answers, empty for a session of its own. ``last_event`` is the number of the last event: following from there
    tells what happened since. ``usage`` and ``reason`` (why the turn ended) are known to :meth:`SessionHandle.info` only.
    """

    id: str
    title: str = ""
    state: str = "idle"
    waiting: Sequence[Call] = ()
    unfinished: bool = False
    held: bool = False
    queued: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    labels: Mapping[str, str] = attrs.field(factory=_no_labels)
    usage: Usage = attrs.field(factory=Usage)
    outcome: str = ""
    reason: str = ""
    archived: bool = False
    parent: str = ""
    deadline: float | None = None
    last_event: int = 0


@attrs.frozen(eq=False, repr=False)
class SessionPage(Value):
    """Some sessions of a list. ``next`` is what to give as ``after`` for those behind them, None if there are none."""

    sessions: Sequence[SessionInfo]
    next: str | None = None


def calls_in(messages: Iterable[Message], open_calls: Mapping[str, Call]) -> list[Call]:
    """The calls of some messages in order, each as it stands or as its result says."""
    found: dict[str, Call] = {}
    for message in messages:
        for part in message.calls:
            found[part.id] = open_calls.get(part.id) or _proposed(part)
        for result in message.results:
            if result.call in found and not found[result.call].settled:
                found[result.call] = _settled(found[result.call], result, message.id)
    return list(found.values())


def _settled(call: Call, result: ToolResult, message: str) -> Call:
    known = result.authorization or Authorization()
    return attrs.evolve(call, status=result.status, result=message, **attrs.asdict(known, recurse=False))


def _proposed(part: ToolCall) -> Call:
    return Call(part.id, part.name, proposed=part.arguments)
