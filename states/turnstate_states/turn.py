"""The state of one turn and of its calls."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from .arguments import merged
from .asking import Prompt
from .authorization import Decision, Permissions
from .content import clean_text
from .message import Usage
from .values import Value

__all__ = [
    "SETTLED",
    "Call",
    "CallStatus",
    "Decision",
    "Ending",
    "Failure",
    "Grant",
    "Nested",
    "Outcome",
    "Permissions",
    "StateName",
    "Stop",
    "Subject",
    "TurnState",
    "Wants",
]

StateName = Literal["idle", "before-model", "streaming", "awaiting-approval", "executing-tools", "aborted", "complete"]
Outcome = Literal["completed", "interrupted", "failed", "limit", "superseded", "denied"]
Stop = Literal["", "stop", "length", "content-filter", "refusal", "tool-calls", "pause", "other"]
"""Why a model stopped; ``pause``: it wants to go on by itself."""

CallStatus = Literal[
    "proposed", "asked", "allowed", "started", "checking", "ok", "error", "denied", "not-run", "unknown"
]
Wants = Literal["decision", "result", "nested"]
SETTLED: frozenset[str] = frozenset({"ok", "error", "denied", "not-run", "unknown"})


def _finite(value: float | None) -> float | None:
    """JSON has no NaN and no infinity, and nobody can wait for them."""
    return value if value is not None and math.isfinite(value) else None


@attrs.frozen(eq=False, repr=False)
class Failure(Value):
    """An error as data: what a :class:`~turnstate.ModelError` or another cause leaves in the record."""

    kind: str
    message: str = attrs.field(converter=clean_text)
    retryable: bool = False
    status: int | None = None
    retry_after: float | None = attrs.field(default=None, converter=_finite)


@attrs.frozen(eq=False, repr=False)
class Subject(Value):
    """What a question about a call is about, apart from the call's id and its tool's name.

    ``kind`` is ``plain``, ``outside`` or ``agent``, ``crash`` what happens to the call in a crash, ``version`` what the
    tool's author says. ``schema``, ``arguments`` and ``permissions`` are digests.
    """

    kind: str = "plain"
    schema: str = ""
    crash: str = "report"
    version: str = ""
    arguments: str = ""
    permissions: str = ""


@attrs.frozen(eq=False, repr=False)
class Nested(Value):
    """A call of a session below this one that waits for a person: its id there, what is wanted, and what was answered.

    ``arguments`` is JSON text; ``provided`` is a result from outside, as the fields of a
    :class:`~turnstate.states.Provide`. ``late``: it was answered while the call around it ran, which may not have seen that.
    ``agent`` is the tool whose agent asks. ``filled``, ``permissions``, ``covers``, ``digest`` and ``changed`` are those of
    the call there.
    """

    id: str
    tool: str
    arguments: str = attrs.field(default="{}", repr=False)
    wants: Wants = "decision"
    reason: str = ""
    prompt: Prompt | None = None
    expires_at: float | None = None
    decision: Decision | None = None
    edited: str | None = None
    provided: Mapping[str, Any] | None = None
    late: bool = False
    agent: str = ""
    filled: str = ""
    permissions: Permissions | None = None
    covers: Literal["arguments", "tool"] = "arguments"
    digest: str = ""
    changed: tuple[str, ...] = ()


@attrs.frozen(eq=False, repr=False)
class Call(Value):
    """A tool call of the running turn, and the request for its approval.

    ``status`` is ``proposed``, ``asked`` (a person must answer), ``allowed``, ``started``, ``checking`` (after a crash), or
    settled: ``ok``, ``error``, ``denied``, ``not-run``, ``unknown``. What an asked one ``wants`` is a ``decision``, a
    ``result`` from outside, or answers to the calls ``nested`` in it. ``began`` counts how often a process got the right to
    run it. ``result`` names the message that holds its result. ``permissions`` are those of its verdict; ``covers`` is
    what an approval for the session would cover: equal arguments, or any of this tool.

    ``subject`` is what was asked about it and ``digest`` stands for that: an answer that carries another digest is refused.
    ``changed`` says what is different from the question before, where it is asked again. ``agent`` is the tool whose agent
    asks, for a question from below. ``definition`` stands for the tool as it was when the call was started.
    """

    id: str
    tool: str
    status: CallStatus = "proposed"
    reason: str = ""
    began: int = 0
    decision: Decision | None = None
    grant: str = ""
    edited: str | None = None
    expires_at: float | None = None
    result: str = ""
    permissions: Permissions | None = None
    covers: Literal["arguments", "tool"] = "arguments"
    wants: Wants = "decision"
    prompt: Prompt | None = None
    nested: tuple[Nested, ...] = ()
    proposed: str = attrs.field(default="", repr=False)
    filled: str = attrs.field(default="", repr=False)
    subject: Subject | None = attrs.field(default=None, repr=False)
    digest: str = attrs.field(default="", repr=False)
    changed: tuple[str, ...] = ()
    agent: str = ""
    definition: str = attrs.field(default="", repr=False)

    @property
    def settled(self) -> bool:
        """Whether it has its result."""
        return self.status in SETTLED

    @property
    def arguments_json(self) -> str:
        """The arguments in force, as text: a person's where they were edited, otherwise the model's, byte for byte."""
        return self.proposed if self.edited is None else self.edited

    @property
    def token(self) -> str:
        """The call and what was asked about it, as one text that a front end can keep and send back.

        >>> Call("m2.0", "pay", digest="5a").token
        'm2.0#5a'
        """
        return f"{self.id}#{self.digest}" if self.digest else self.id

    @property
    def waiting(self) -> tuple[Call, ...]:
        """The calls that wait for a person in it: itself, those nested in it (with ids below its own), or none."""
        if self.status != "asked":
            return ()
        if self.wants != "nested":
            return (self,)
        return tuple(self.view(nested) for nested in self.nested if nested.decision is None)

    def view(self, nested: Nested) -> Call:
        """A call nested in this one as a call of this session."""
        return Call(
            f"{self.id}/{nested.id}",
            nested.tool,
            "asked" if nested.decision is None else "allowed",
            nested.reason,
            decision=nested.decision,
            edited=nested.arguments if nested.edited is None else nested.edited,
            expires_at=nested.expires_at,
            permissions=nested.permissions,
            covers=nested.covers,
            wants=nested.wants,
            prompt=nested.prompt,
            filled=nested.filled if nested.edited is None else "",
            digest=nested.digest,
            changed=nested.changed,
            agent=nested.agent or self.tool,
        )

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments in force, as the tool gets them: defaults filled in and values converted, as plain JSON values.

        Raises:
            InvalidInput: they cannot be read. Such a call is never asked about and never runs; :attr:`arguments_json` is what
                the model wrote.

        >>> Call("m1.0", "add", proposed='{"a": 1}', filled='{"b": 2}').arguments
        {'a': 1, 'b': 2}
        """
        return merged(self.arguments_json, self.filled)


@attrs.frozen(eq=False, repr=False)
class Grant(Value):
    """An approval for the session: this tool with these arguments (JSON text, canonical), or with any if None.

    ``permissions`` are those that the approved call got: the most that a call may ask for to be covered. ``definition``
    stands for the tool as it was: an approval does not cover what it has become since.
    """

    id: str
    tool: str
    arguments_json: str | None = None
    by: str = ""
    permissions: Permissions | None = None
    definition: str = ""

    @property
    def arguments(self) -> Mapping[str, Any] | None:
        """The arguments that it covers; None for any."""
        return None if self.arguments_json is None else json.loads(self.arguments_json)


@attrs.frozen(eq=False, repr=False)
class Ending(Value):
    """The turn was told to end, and how; from then on nothing starts. ``event`` is the number of the last event before."""

    outcome: Outcome
    reason: str
    cause: str = ""
    event: int = 0


def _no_settings() -> Mapping[str, Any]:
    return {}


@attrs.define
class TurnState:
    """One turn: from ``idle`` to ``aborted`` or ``complete``.

    ``step`` is the step it is in, ``attempt`` the attempt of that step, ``hook_pass`` the round of hooks before that
    attempt; ``tries`` counts attempts of the step that failed and ``resumptions`` those that their process did not survive.
    ``reply`` names the message that the step gave, once it is stored; ``reviewed`` and ``again`` are what hooks said of it.
    ``overflow`` is how the model refused a request as too long, until hooks made room; ``overflowed`` is true for the rest
    of the step. ``worked`` is the time at work in seconds, up to ``clock``. ``closed`` is true when
    :class:`~turnstate.TurnEnded` was told, and ``head`` is then the message that it ended with.
    """

    id: str
    cause: str
    started_at: float
    state: StateName = "idle"
    message: str = ""
    continues: str = ""
    settings: Mapping[str, Any] = attrs.field(factory=_no_settings)
    step: int = 0
    attempt: int = 0
    hook_pass: int = 0
    steers_seen: int = 0
    tries: int = 0
    resumptions: int = 0
    agains: int = 0
    not_before: float = 0.0
    reply: str = ""
    reviewed: bool = False
    again: bool = False
    overflow: Failure | None = None
    overflowed: bool = False
    calls: dict[str, Call] = attrs.field(factory=dict[str, Call])
    ending: Ending | None = None
    stop: Stop = ""
    raw_stop: str = ""
    outcome: Outcome | None = None
    reason: str = ""
    error: Failure | None = None
    steps: int = 0
    attempts: int = 0
    calls_made: int = 0
    calls_failed: int = 0
    usage: Usage = attrs.field(factory=Usage)
    last_usage: Usage | None = None
    worked: float = 0.0
    clock: float | None = None
    closed: bool = False
    head: str | None = None

    @property
    def final(self) -> bool:
        """Whether its state is ``aborted`` or ``complete``."""
        return self.state == "aborted" or self.state == "complete"

    @property
    def attempt_id(self) -> str:
        """The running attempt's id: turn, step, attempt (``t3.2.1``)."""
        return f"{self.id}.{self.step}.{self.attempt}"

    def copy(self) -> TurnState:
        """An independent copy; the values in it are shared, they never change."""
        other = TurnState.__new__(TurnState)
        for name in _FIELDS:
            setattr(other, name, getattr(self, name))
        other.calls = dict(self.calls)
        return other


_FIELDS = tuple(field.name for field in attrs.fields(TurnState))
