"""What must hold of the log of a session, checked event by event as a client would see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from turnstate_states.events import (
    Annotated,
    ApprovalRequested,
    CallAnswered,
    CallProposed,
    CallSettled,
    CallStarted,
    CommandAccepted,
    CommandEnded,
    Compacted,
    Deleted,
    MessageAdded,
    MessageQueued,
    MessageRemoved,
    MessageTaken,
    NumberedEvent,
    PreliminaryResult,
    Replied,
    ResultRequested,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
    TurnStopping,
)
from turnstate_states.rules import ToolSpec
from turnstate_states.transcript import Message
from turnstate_states.turn import SETTLED, Call

STARTS = (StepStarted, CallStarted, ApprovalRequested, ResultRequested)
CallEvent = CallProposed | ApprovalRequested | ResultRequested | CallAnswered | CallStarted | CallSettled


@attrs.define
class Ledger:
    """Who has begun and not ended, as the events say; every event is held against it.

    ``effects``, ``cleared`` and ``suspended`` are the world's: how often a call's effect happened, the calls of which a look
    at the world said that they did not happen, and those that wait for calls nested in them.
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
    outside: set[str] = attrs.field(factory=set[str])
    suspended: set[str] = attrs.field(factory=set[str])
    commands: dict[str, None] = attrs.field(factory=dict[str, None])
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
            "outside",
            "suspended",
            "commands",
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
            case PreliminaryResult():
                assert event.call.id.partition("/")[0] in self.open_calls
            case (
                CallProposed()
                | ApprovalRequested()
                | ResultRequested()
                | CallAnswered()
                | CallStarted()
                | CallSettled()
            ):
                self._call(event, event.call)
            case CommandAccepted():
                assert event.id not in self.commands
                self.commands[event.id] = None
            case CommandEnded():
                del self.commands[event.id]
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

    def _call(self, event: CallEvent, call: Call) -> None:
        if isinstance(event, CallProposed):
            assert call.id not in self.seen_calls
            self.seen_calls.add(call.id)
            self.open_calls[call.id] = 0
            return
        outer, _, inner = call.id.partition("/")
        assert outer in self.open_calls, f"{event} of a call that is not open"
        assert not inner or not isinstance(event, (CallStarted, CallSettled)), f"{event} of a call elsewhere"
        if isinstance(event, (ApprovalRequested, ResultRequested)):
            self._ask(event, call, bool(inner))
        elif isinstance(event, CallAnswered):
            self.asked.discard(call.id)  # if what allowed it is revoked, it may be asked for again
        elif isinstance(event, CallStarted):
            self._begin(call)
        else:
            self._settle(call, event.message)

    def _ask(self, event: ApprovalRequested | ResultRequested, call: Call, nested: bool) -> None:
        if isinstance(event, ResultRequested) and not nested:
            assert self.tools[call.tool].outside
            assert not self.open_calls[call.id], "a result was asked for twice"
            self.open_calls[call.id] = 1
            self.outside.add(call.id)
            self.asked.discard(call.id)
        assert call.status == "asked"
        assert call.wants == ("decision" if isinstance(event, ApprovalRequested) else "result")
        assert call.id not in self.asked, "asked twice"
        self.asked.add(call.id)

    def _begin(self, call: Call) -> None:
        assert not self.tools[call.tool].outside
        if self.open_calls[call.id] and call.id not in self.suspended:
            on_crash = self.tools[call.tool].on_crash
            cleared = on_crash == "check" and call.id in self.cleared
            assert on_crash == "rerun" or cleared, f"{call.tool} ({on_crash}) begins again"
            self.cleared.discard(call.id)
        self.suspended.discard(call.id)
        self.open_calls[call.id] += 1

    def _settle(self, call: Call, message: Message) -> None:
        began = self.open_calls.pop(call.id)
        self.due.discard(call.id)
        self.suspended.discard(call.id)
        self.asked = {name for name in self.asked if name.partition("/")[0] != call.id}
        (result,) = message.results
        assert call.status in SETTLED
        assert (result.call, result.status) == (call.id, call.status)
        assert result.text or result.status in ("ok", "error")
        if call.status in ("not-run", "denied"):
            assert not self.effects.get(call.id), f"{call.status}, but it had its effect"
        if call.id in self.outside:
            assert call.status != "not-run", "not run, but somebody outside may have begun it"
        if call.status == "unknown":
            assert began, "unknown, but it never had the right to begin"


TELLING = (TurnStarted, MessageTaken, MessageAdded, Compacted, Replied, CallSettled, Deleted, Annotated)


def messages_told(events: Iterable[NumberedEvent]) -> list[Message]:
    """The messages that events tell, records of changes included."""
    told: list[Message] = []
    for event in events:
        if isinstance(event, TELLING) and event.message:
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
            assert result.text or result.status in ("ok", "error")
            continue
        assert not due, f"calls without results: {due}"
        assert not message.results
        due = [call.id for call in message.calls]
        assert not due or message.role == "assistant"
    assert not due, f"calls without results: {due}"
