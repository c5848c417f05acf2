"""What the activities of a turn report back: facts, which the core records whatever is decided next.

Each carries the key of its activity; a report with another key than the running one changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import attrs

from .asking import Prompt
from .content import Image, Part, Reasoning, ResultStatus, Text, ToolCall, clean_text
from .message import Timing, Usage
from .rules import Limits
from .turn import Failure, Nested, Permissions, Stop
from .values import Value

__all__ = [
    "OVER_LIMIT",
    "Activity",
    "AttemptFailed",
    "AttemptReplied",
    "CallChecked",
    "CallDone",
    "CallSuspended",
    "CallsBroken",
    "Closed",
    "CommandDone",
    "Effects",
    "PolicyDecided",
    "Prepared",
    "Report",
    "Reviewed",
    "Stopped",
    "Summary",
    "measure",
    "over_limit",
]

OVER_LIMIT = "limit"
"""The kind of the failure of an attempt that was given up because its reply went beyond a limit: that ends the turn."""


class Activity(NamedTuple):
    """The key of an activity: what is to be done for the state that the turn is in."""

    kind: Literal["prepare", "stream", "execute", "closing"]
    turn: str
    step: int = 0
    attempt: int = 0
    hook_pass: int = 0


def _no_usage() -> Mapping[str, Usage]:
    return {}


@attrs.frozen(eq=False, repr=False)
class Summary(Value):
    """What a model is shown from now on in the place of all before the message ``keeps``; empty for all there is."""

    text: str
    keeps: str = ""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Effects(Value):
    """What hooks did: messages for good, events of their own (name, data), usage by model, warnings for people.

    A ``summary`` counts before a request only. ``title`` renames the session.
    """

    messages: tuple[str, ...] = ()
    events: tuple[tuple[str, Any], ...] = ()
    usage: Mapping[str, Usage] = attrs.field(factory=_no_usage)
    warnings: tuple[str, ...] = ()
    summary: Summary | None = None
    title: str = ""


@attrs.frozen(eq=False, repr=False)
class Prepared(Value):
    """The hooks before a request are done. ``stop`` ends the turn, ``error`` fails it."""

    key: Activity
    effects: Effects = attrs.field(factory=Effects)
    stop: str | None = None
    error: Failure | None = None


@attrs.frozen(eq=False, repr=False)
class AttemptReplied(Value):
    """The model gave a complete reply."""

    key: Activity
    parts: tuple[Part, ...]
    stop: Stop = "stop"
    raw_stop: str = ""
    usage: Usage = attrs.field(factory=Usage)
    model: str = ""
    timing: Timing | None = None
    metadata: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(eq=False, repr=False)
class AttemptFailed(Value):
    """The attempt broke; ``parts`` is what it gave so far."""

    key: Activity
    failure: Failure
    parts: tuple[Part, ...] = ()
    usage: Usage = attrs.field(factory=Usage)
    model: str = ""


def over_limit(limits: Limits, calls: int, characters: int) -> Failure | None:
    """How a reply with so many calls and characters, at least, goes beyond the limits; None if it does not.

    >>> over_limit(Limits(calls=2), 3, 0).message
    'the reply has more than 2 calls, the limit (Limits.calls)'
    """
    if calls > limits.calls:
        return Failure(OVER_LIMIT, f"the reply has more than {limits.calls} calls, the limit (Limits.calls)")
    if characters > limits.characters:
        text = f"the reply has more than {limits.characters} characters, the limit (Limits.characters)"
        return Failure(OVER_LIMIT, text)
    return None


def measure(parts: tuple[Part, ...]) -> tuple[int, int]:
    """How many calls and how many characters of text, reasoning and arguments a reply has."""
    calls = characters = 0
    for part in parts:
        if isinstance(part, ToolCall):
            calls += 1
            characters += len(part.arguments)
        elif isinstance(part, (Text, Reasoning)):
            characters += len(part.text)
    return calls, characters


@attrs.frozen(eq=False, repr=False)
class Reviewed(Value):
    """The hooks after a reply are done. ``again`` is feedback for one more step, ``stop`` ends the turn."""

    key: Activity
    effects: Effects = attrs.field(factory=Effects)
    again: str | None = None
    stop: str | None = None
    error: Failure | None = None


@attrs.frozen(eq=False, repr=False)
class PolicyDecided(Value):
    """Something outside of the machine decided on a call. ``warning`` is told to people.

    ``permissions`` are what the call gets, at once or when a person approves it; ``covers`` what an approval for the
    session would cover; ``usage`` what deciding used, by model. ``failed``: there was no verdict, so a person is asked.
    """

    key: Activity
    call: str
    verdict: Literal["allow", "deny", "ask"]
    reason: str = attrs.field(default="", converter=clean_text)
    warning: str = attrs.field(default="", converter=clean_text)
    permissions: Permissions | None = None
    covers: Literal["arguments", "tool"] = "arguments"
    prompt: Prompt | None = None
    usage: Mapping[str, Usage] = attrs.field(factory=_no_usage)
    failed: bool = False


@attrs.frozen(eq=False, repr=False)
class CallDone(Value):
    """A call's task ended; ``text`` is what the model reads, ``usage`` what models of the tool's own used.

    ``images``, ``value``, ``artifact`` and ``json`` are those of its :class:`~turnstate.states.ToolResult`.
    """

    key: Activity
    call: str
    status: ResultStatus
    text: str = attrs.field(converter=clean_text)
    reason: str = attrs.field(default="", converter=clean_text)
    usage: Mapping[str, Usage] = attrs.field(factory=_no_usage)
    images: tuple[Image, ...] = ()
    value: Any = None
    artifact: Any = None
    json: bool = False


@attrs.frozen(eq=False, repr=False)
class CallSuspended(Value):
    """A call cannot go on before somebody answers the calls nested in it; it begins again when one of them is answered."""

    key: Activity
    call: str
    nested: tuple[Nested, ...]
    usage: Mapping[str, Usage] = attrs.field(factory=_no_usage)


@attrs.frozen(eq=False, repr=False)
class CallChecked(Value):
    """A look at the world after a crash: ``result`` is what the call gave, or None: it did not happen, run it."""

    key: Activity
    call: str
    result: str | None


@attrs.frozen(eq=False, repr=False)
class CallsBroken(Value):
    """What no call of the turn can do without could not be made: the turn ends as failed, and no model hears why."""

    key: Activity
    failure: Failure


@attrs.frozen(eq=False, repr=False)
class Stopped(Value):
    """The activity of a turn that was told to end is gone.

    ``parts`` is what a running attempt gave so far; ``not_begun`` are calls marked as started that never began;
    ``used`` is what models of the stopped calls' own used.
    """

    turn: str
    parts: tuple[Part, ...] = ()
    not_begun: tuple[str, ...] = ()
    usage: Usage = attrs.field(factory=Usage)
    model: str = ""
    used: Mapping[str, Usage] = attrs.field(factory=_no_usage)


@attrs.frozen(eq=False, repr=False)
class Closed(Value):
    """The hooks after a turn's end are done; ``error`` is told as a warning."""

    key: Activity
    effects: Effects = attrs.field(factory=Effects)
    error: str = ""


@attrs.frozen(eq=False, repr=False)
class CommandDone(Value):
    """The middleware that owns a command carried it out, or failed with ``error``."""

    command: str
    result: Any = None
    effects: Effects = attrs.field(factory=Effects)
    error: str = ""


Report = (
    Prepared
    | AttemptReplied
    | AttemptFailed
    | Reviewed
    | PolicyDecided
    | CallDone
    | CallSuspended
    | CallChecked
    | CallsBroken
    | Stopped
    | Closed
    | CommandDone
)
