"""The path of a turn through its states, found again from the events that are told."""

from __future__ import annotations

from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallProposed,
    CallSettled,
    CallStarted,
    Event,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
)

from ..states import Call, EventName, Facts, StateName, next_state

__all__ = ["StatePath"]


class StatePath:
    """Follows a turn on the machine's own table. One call a reply, as in the demo, is what it understands.

    ``trail`` is what was not drawn yet: the states since the last time, the first being the one it was in then.
    """

    def __init__(self) -> None:
        self.state: StateName = "idle"
        self.trail: list[StateName] = ["idle"]
        self.step = 0
        self._calls: dict[str, Call] = {}

    def see(self, event: Event) -> None:
        """Take an event of the turn."""
        match event:
            case TurnStarted():
                self._go("start")
            case StepStarted():
                self.step = event.step
                self._go("request")
            case StepEnded(outcome="retrying" | "interrupted"):
                self._go("retry")
            case CallProposed(call) | ApprovalRequested(call) | CallStarted(call):
                self._calls[call.id] = call
                if self.state == "streaming":
                    self._go("reply")
                if isinstance(event, ApprovalRequested):
                    self._go("ask")
            case CallAnswered(call) if call.settled:
                pass  # a denial; its result comes with the next event
            case CallAnswered(call) | CallSettled(call):
                self._calls[call.id] = call
                if self.state == "awaiting-approval" and call.status != "asked":
                    self._go("answer")
                if self._facts().all_settled:
                    self._go("settle")
                    self._calls = {}
            case TurnEnded():
                self._go("reply" if event.outcome == "completed" else "abort")
            case _:
                pass

    def _facts(self) -> Facts:
        calls = self._calls.values()
        settled = all(call.settled for call in calls)
        waits = any(call.status == "asked" for call in calls)
        return Facts(has_calls=bool(calls), can_move=settled or not waits, all_settled=settled)

    def _go(self, event: EventName) -> None:
        self.state = next_state(self.state, event, self._facts())
        self.trail.append(self.state)

    def drawn(self) -> list[StateName]:
        """What is to be drawn now; empty if it did not move."""
        found = self.trail if len(self.trail) > 1 else []
        self.trail = [self.state]
        return found
