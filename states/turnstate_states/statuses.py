"""What user interfaces show of a message and of a call: pure, total functions of what is stored.

The words are those that chat front ends know: a message is ``running``, ``requires-action``, ``complete`` or
``incomplete``, with a reason; a call goes from ``input-available`` over ``approval-requested`` and
``approval-responded`` to ``output-available``, ``output-error`` or ``output-denied``.
"""

from __future__ import annotations

from typing import Literal

import attrs

from .content import ResultStatus
from .events import TurnEnded
from .message import Message
from .turn import Call, Failure, TurnState
from .values import Value

__all__ = ["CallDisplay", "MessageDisplay", "display_call", "display_message", "display_result"]

State = Literal["running", "requires-action", "complete", "incomplete"]
Reason = Literal[
    "", "tool-calls", "interrupt", "stop", "unknown", "cancelled", "length", "content-filter", "other", "error"
]
CallState = Literal[
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
]


@attrs.frozen(eq=False, repr=False)
class MessageDisplay(Value):
    """What is shown of a model's message. ``error`` is what failed, where something did."""

    status: State
    reason: Reason = ""
    error: Failure | None = None


@attrs.frozen(eq=False, repr=False)
class CallDisplay(Value):
    """What is shown of a call. ``running``: it runs now. ``asks``: the calls in it that a person must answer."""

    state: CallState
    running: bool = False
    asks: tuple[Call, ...] = ()


def display_message(message: Message, turn: TurnState | TurnEnded | None, *, last: bool) -> MessageDisplay | None:
    """What is shown of a message; None for what is not a model's.

    Args:
        message: the message.
        turn: the turn that made it, while it is the session's last one, or how it ended; None if neither is known, as of
            imported messages.
        last: whether the turn made no later one.
    """
    if message.role != "assistant":
        return None
    if message.status != "complete":
        return _ended(message, turn) if _outcome(turn) else MessageDisplay("incomplete", "cancelled")
    if not last:
        return MessageDisplay("complete", "stop")
    if isinstance(turn, TurnState) and not turn.final:
        return _active(turn)
    return _ended(message, turn)


def _active(turn: TurnState) -> MessageDisplay:
    if turn.state != "awaiting-approval":
        return MessageDisplay("running")
    asks = [call for holder in turn.calls.values() for call in holder.waiting]
    decides = any(call.wants == "decision" for call in asks)
    return MessageDisplay("requires-action", "interrupt" if decides else "tool-calls")


def _outcome(turn: TurnState | TurnEnded | None) -> str:
    return "" if turn is None else turn.outcome or ""


def _ended(message: Message, turn: TurnState | TurnEnded | None) -> MessageDisplay:
    outcome = _outcome(turn)
    if turn is None or not outcome:
        return MessageDisplay("complete", "unknown")
    if outcome == "failed":
        return MessageDisplay("incomplete", "error", turn.error)
    if outcome == "limit":
        return MessageDisplay("incomplete", "tool-calls")
    if outcome != "completed":
        return MessageDisplay("incomplete", "cancelled")
    if message.status != "complete":
        return MessageDisplay("incomplete", "other")
    if turn.stop == "length":
        return MessageDisplay("incomplete", "length")
    if turn.stop in ("content-filter", "refusal"):
        return MessageDisplay("incomplete", "content-filter")
    return MessageDisplay("complete", "stop" if turn.stop == "stop" else "unknown")


RESULTS: dict[ResultStatus, CallState] = {
    "ok": "output-available",
    "error": "output-error",
    "denied": "output-denied",
    "not-run": "output-error",
    "unknown": "output-error",
}


def display_result(status: ResultStatus | None) -> CallDisplay:
    """What is shown of a call of a turn that is over, by the status of its result; None where there is none."""
    return CallDisplay("output-error" if status is None else RESULTS[status])


def display_call(call: Call) -> CallDisplay:
    """What is shown of a call of the session's last turn."""
    status = call.status
    if status == "ok" or status == "error" or status == "denied" or status == "not-run" or status == "unknown":
        return CallDisplay(RESULTS[status])
    running = status in ("started", "checking")
    if status == "asked":
        asks = call.waiting
        decides = any(asked.wants == "decision" for asked in asks)
        return CallDisplay("approval-requested" if decides else "input-available", running, asks)
    return CallDisplay("input-available" if call.decision is None else "approval-responded", running)
