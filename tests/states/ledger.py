"""What must hold of the log of a session, checked event by event as a client would see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallProposed,
    CallSettled,
    CallStarted,
    Compacted,
    MessageAdded,
    MessageQueued,
    MessageRemoved,
    MessageTaken,
    NumberedEvent,
    Replied,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
    TurnStopping,
)
from turnstate_states.rules import ToolSpec
from turnstate_states.transcript import Message
from turnstate_states.turn import SETTLED, Call

STARTS = (StepStarted, CallStarted, ApprovalRequested)


@attrs.define
class Ledger:
    """Who has begun and not ended, as the events say; every event is held against it.

    ``effects`` and ``cleared`` are the world's: how often a call's effect happened, and the calls of which a look at the
    world said that they did not happen.
    """

    tools: Mapping[str, ToolSpec]
    last: int = 0
    turn: str = ""
    stopped: str = ""
    attempt: str = ""
    attempts: set[str] = attrs.field(factory=set[str])
    open_calls: dict[str, int] = attrs.field(factory=dict[str, int])
    due: set[str] = attrs.field(factory=set[str])
    asked: set[str] = attrs.field(factory=set[str])
    seen_calls: set[str] = attrs.field(factory=set[str])
    waiting: dict[str, None] = attrs.field(factory=dict[str, None])
    consumed: set[str] = attrs.field(factory=set[str])
    effects: dict[str, int] = attrs.field(factory=dict[str, int])
    cleared: set[str] = attrs.field(factory=set[str])

    def copy(self) -> Ledger:
        """An independent copy."""
        other = attrs.evolve(self)
        for name in (
            "attempts",
            "open_calls",
            "due",
            "asked",
            "seen_calls",
            "waiting",
            "consumed",
            "effects",
            "cleared",
        ):
            setattr(other, name, getattr(self, name).copy())
        return other

    def check(self, event: NumberedEvent) -> None:
        """Hold the next event against what came before."""
        assert event.number == self.last + 1, f"event {event.number} after {self.last}"
        self.last += 1
        assert event.turn == self.turn or isinstance(event, TurnStarted), f"{event} outside of its turn"
        assert not (event.turn == self.stopped != "" and isinstance(event, STARTS)), (
            f"{event} after the turn was stopped"
        )
        match event:
            case TurnStarted():
                self._turn_started(event)
            case TurnStopping():
                assert self.stopped != event.turn, "told to stop twice"
                self.stopped = event.turn
            case TurnEnded():
                assert not self.attempt, f"the turn ended inside attempt {self.attempt}"
                assert not self.open_calls, f"the turn ended with open calls {self.open_calls}"
                assert not self.due, f"the turn ended and calls have no result: {self.due}"
                self.turn = ""
            case StepStarted():
                assert not self.attempt
                assert event.attempt not in self.attempts
                self.attempt = event.attempt
                self.attempts.add(event.attempt)
            case StepEnded():
                assert event.attempt == self.attempt
                self.attempt = ""
            case Replied():
                self.due |= {call.id for call in event.message.calls}
            case MessageQueued() | MessageTaken() | MessageRemoved():
                self._message(event)
            case CallProposed() | ApprovalRequested() | CallAnswered() | CallStarted() | CallSettled():
                self._call(event, event.call)
            case _:
                pass

    def _turn_started(self, event: TurnStarted) -> None:
        assert not self.turn, f"{event.turn} began while {self.turn} runs"
        self.turn = event.turn
        if event.message is not None:
            self._consume(event.cause)

    def _consume(self, submission: str) -> None:
        self.waiting.pop(submission, None)
        assert submission not in self.consumed, f"{submission} was consumed twice"
        self.consumed.add(submission)

    def _message(self, event: MessageQueued | MessageTaken | MessageRemoved) -> None:
        if isinstance(event, MessageQueued):
            assert event.id not in self.waiting
            assert event.id not in self.consumed
            self.waiting[event.id] = None
        else:
            assert event.id in self.waiting
            self._consume(event.id)

    def _call(
        self, event: CallProposed | ApprovalRequested | CallAnswered | CallStarted | CallSettled, call: Call
    ) -> None:
        if isinstance(event, CallProposed):
            assert call.id not in self.seen_calls
            self.seen_calls.add(call.id)
            self.open_calls[call.id] = 0
            return
        assert call.id in self.open_calls, f"{event} of a call that is not open"
        if isinstance(event, ApprovalRequested):
            assert call.id not in self.asked, "asked twice"
            self.asked.add(call.id)
        elif isinstance(event, CallAnswered):
            self.asked.discard(call.id)  # if what allowed it is revoked, it may be asked for again
        elif isinstance(event, CallStarted):
            self._begin(call)
        else:
            self._settle(call, event.message)

    def _begin(self, call: Call) -> None:
        if self.open_calls[call.id]:
            on_crash = self.tools[call.tool].on_crash
            cleared = on_crash == "check" and call.id in self.cleared
            assert on_crash == "rerun" or cleared, f"{call.tool} ({on_crash}) begins again"
            self.cleared.discard(call.id)
        self.open_calls[call.id] += 1

    def _settle(self, call: Call, message: Message) -> None:
        began = self.open_calls.pop(call.id)
        self.due.discard(call.id)
        (result,) = message.results
        assert call.status in SETTLED
        assert (result.call, result.status) == (call.id, call.status)
        assert result.text
        if call.status in ("not-run", "denied"):
            assert not self.effects.get(call.id), f"{call.status}, but it had its effect"
        if call.status == "unknown":
            assert began, "unknown, but it never had the right to begin"


def messages_told(events: Iterable[NumberedEvent]) -> list[Message]:
    """The messages that events tell."""
    told: list[Message] = []
    for event in events:
        if (
            isinstance(event, (TurnStarted, MessageTaken, MessageAdded, Compacted, Replied, CallSettled))
            and event.message
        ):
            told.append(event.message)
    return told


def check_pairs(conversation: Iterable[Message]) -> None:
    """Every call has exactly one result, right after it, in call order; there is no other result."""
    due: list[str] = []
    for message in conversation:
        if message.role == "tool":
            assert due, f"a result without a call: {message}"
            assert len(message.parts) == 1
            (result,) = message.results
            assert result.call == due.pop(0)
            assert result.text
            continue
        assert not due, f"calls without results: {due}"
        assert not message.results
        due = [call.id for call in message.calls]
        assert not due or message.role == "assistant"
    assert not due, f"calls without results: {due}"
