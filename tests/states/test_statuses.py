"""What user interfaces show of messages and calls: section 13 of the design, and total over all that can be."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.states.explore import World
from tests.states.scene import Scene
from tests.states.scope import HOOKED, REPLIES, Scope
from tests.states.strategies import instances, of
from turnstate_states.content import ResultStatus, Text
from turnstate_states.events import TurnEnded
from turnstate_states.rules import Limits, ToolSpec
from turnstate_states.statuses import (
    CallDisplay,
    CallState,
    MessageDisplay,
    Reason,
    State,
    display_call,
    display_message,
    display_result,
)
from turnstate_states.transcript import Message
from turnstate_states.turn import (
    Call,
    CallStatus,
    Decision,
    Failure,
    Nested,
    Outcome,
    StateName,
    Stop,
    TurnState,
    Wants,
)

REPLY = Message("m2", "m1", "t1", "assistant", (Text("done"),), 0.0)
PARTIAL = Message("m2", "m1", "t1", "assistant", (Text("do"),), 0.0, status="incomplete")
BROKEN = Failure("server", "it broke")
STATES: tuple[StateName, ...] = get_args(StateName)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
STOPS: tuple[Stop, ...] = get_args(Stop)
STATUSES: tuple[CallStatus, ...] = get_args(CallStatus)

OTHERWISE: dict[Outcome, tuple[State, Reason]] = {
    "interrupted": ("incomplete", "cancelled"),
    "superseded": ("incomplete", "cancelled"),
    "denied": ("incomplete", "cancelled"),
    "limit": ("incomplete", "tool-calls"),
    "failed": ("incomplete", "error"),
}
COMPLETED: dict[Stop, tuple[State, Reason]] = {
    "": ("complete", "unknown"),
    "stop": ("complete", "stop"),
    "length": ("incomplete", "length"),
    "content-filter": ("incomplete", "content-filter"),
    "refusal": ("incomplete", "content-filter"),
    "tool-calls": ("complete", "unknown"),
    "pause": ("complete", "unknown"),
    "other": ("complete", "unknown"),
}


def ended(outcome: Outcome, stop: Stop = "stop") -> tuple[TurnState, TurnEnded]:
    """A turn that ended so, as state and as record."""
    error = BROKEN if outcome == "failed" else None
    state: StateName = "complete" if outcome == "completed" else "aborted"
    turn = TurnState("t1", "s1", 0.0, state, outcome=outcome, stop=stop, error=error)
    return turn, TurnEnded(outcome, error=error, stop=stop)


def shown(message: Message, turn: TurnState | TurnEnded | None, last: bool = True) -> tuple[State, Reason]:
    """Status and reason of a model's message."""
    found = display_message(message, turn, last=last)
    assert found is not None
    return found.status, found.reason


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("stop", STOPS)
def test_the_last_message_shows_how_its_turn_ended(outcome: Outcome, stop: Stop) -> None:
    """Every outcome with every reason of a model to stop; the record of the turn says the same as its state."""
    expected = COMPLETED[stop] if outcome == "completed" else OTHERWISE[outcome]
    for turn in ended(outcome, stop):
        assert shown(REPLY, turn) == expected
        assert shown(REPLY, turn, last=False) == ("complete", "stop")
        found = display_message(REPLY, turn, last=True)
        assert found is not None
        assert (found.error == BROKEN) is (outcome == "failed")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_what_was_left_of_a_reply_is_incomplete(outcome: Outcome) -> None:
    """A partial message is never complete, whether it is the last one or not."""
    for turn in (*ended(outcome), None):
        for last in (True, False):
            assert shown(PARTIAL, turn, last)[0] == "incomplete"
    assert shown(PARTIAL, None) == ("incomplete", "cancelled")


@pytest.mark.parametrize("state", [state for state in STATES if state not in ("aborted", "complete")])
def test_a_turn_that_goes_on(state: StateName) -> None:
    """Its last message runs, or requires action where nothing else can move; an earlier one is complete."""
    turn = TurnState("t1", "s1", 0.0, state)
    assert shown(REPLY, turn)[0] == ("requires-action" if state == "awaiting-approval" else "running")
    assert shown(REPLY, turn, last=False) == ("complete", "stop")


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([Call("m2.0", "f", "asked")], "interrupt"),
        ([Call("m2.0", "f", "asked", wants="result")], "tool-calls"),
        ([Call("m2.0", "f", "asked", wants="result"), Call("m2.1", "f", "asked")], "interrupt"),
        ([Call("m2.0", "f", "asked", wants="nested", nested=(Nested("m1.0", "g"),))], "interrupt"),
        ([Call("m2.0", "f", "asked", wants="nested", nested=(Nested("m1.0", "g", wants="result"),))], "tool-calls"),
    ],
)
def test_what_action_is_required(calls: list[Call], reason: str) -> None:
    """A decision interrupts; where only results are missing, those of calls are required; nested ones count."""
    turn = TurnState("t1", "s1", 0.0, "awaiting-approval", calls={call.id: call for call in calls})
    assert shown(REPLY, turn) == ("requires-action", reason)


def test_imported_messages() -> None:
    """Where nothing is known of the turn a message is complete for a reason that nobody knows."""
    assert shown(REPLY, None) == ("complete", "unknown")
    for role in ("user", "tool", "system"):
        assert display_message(Message("m1", None, "t1", role, (), 0.0), None, last=True) is None


RESULTS: dict[ResultStatus, CallState] = {
    "ok": "output-available",
    "error": "output-error",
    "denied": "output-denied",
    "not-run": "output-error",
    "unknown": "output-error",
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("decided", [None, Decision("approve", 0.0), Decision("deny", 0.0), Decision("provide", 0.0)])
@pytest.mark.parametrize("wants", get_args(Wants))
def test_every_call(status: CallStatus, decided: Decision | None, wants: Wants) -> None:
    """Each status of a call, with or without a decision, has one of the six states of a part."""
    call = Call("m2.0", "f", status, decision=decided, wants=wants, nested=(Nested("m1.0", "g"),))
    found = display_call(call)
    if status in RESULTS:
        assert found == CallDisplay(RESULTS[status])
        assert display_result(status) == found
        return
    if status == "asked":
        expected: CallState = "input-available" if wants == "result" else "approval-requested"
        assert (found.state, found.running, found.asks) == (expected, False, call.waiting)
        return
    assert found.state == ("input-available" if decided is None else "approval-responded")
    assert found.running is (status in ("started", "checking"))
    assert found.asks == ()


def test_a_call_without_a_result() -> None:
    """In a turn that is over a call without a result is an error: it will never have one."""
    assert display_result(None) == CallDisplay("output-error")


@examples(200)
@given(of(Message), st.none() | instances(TurnState) | instances(TurnEnded), st.booleans())
def test_every_message_and_turn(message: Message, turn: Any, last: bool) -> None:
    """Whatever is stored, there is something to show, or it is not a model's."""
    found = display_message(message, turn, last=last)
    assert (found is None) is (message.role != "assistant")
    if found is not None:
        check(found)


@examples(100)
@given(instances(Call))
def test_every_call_that_can_be_stored(call: Call) -> None:
    """Whatever is stored of a call, it is shown, and asks nobody where it does not wait."""
    found = display_call(call)
    assert found.state in get_args(CallState)
    assert bool(found.asks) <= (call.status == "asked")


def check(found: MessageDisplay) -> None:
    """A status goes with its own reasons."""
    reasons: dict[State, tuple[Reason, ...]] = {
        "running": ("",),
        "requires-action": ("interrupt", "tool-calls"),
        "complete": ("stop", "unknown"),
        "incomplete": ("cancelled", "tool-calls", "length", "content-filter", "other", "error"),
    }
    assert found.reason in reasons[found.status]


@examples(40)
@given(st.data())
def test_every_state_that_a_session_comes_to(data: st.DataObject) -> None:
    """Along any life of a session, every message and every call can be shown, and a turn that waits requires action."""
    world = World.new(Scope(HOOKED, tuple(REPLIES), hooks=("ok", "again", "stop", "error"), races=False))
    world.apply(("send", "queue"))
    for _ in range(data.draw(st.integers(0, 15))):
        world.apply(*data.draw(st.sampled_from(world.enabled())))
        turn = world.core.turn
        assert turn is not None
        mine = [message for message in world.core.transcript.path if message.turn == turn.id]
        last = next((message.id for message in reversed(mine) if message.role == "assistant"), None)
        for message in world.core.transcript.all():
            found = display_message(message, turn if message.turn == turn.id else None, last=message.id == last)
            if found is not None:
                check(found)
                waits = turn.state == "awaiting-approval" and message.id == last
                assert (found.status == "requires-action") is waits
        for call in turn.calls.values():
            display_call(call)


def test_a_turn_from_its_first_reply_to_its_end() -> None:
    """What is shown along a turn that is approved, runs and is cut off by its limit."""
    scene = Scene.calling(ToolSpec("asked", approval="always"), limits=Limits(steps=1))

    def now() -> tuple[tuple[State, Reason], CallState]:
        return shown(scene.core.transcript["m2"], scene.turn), display_call(scene.calls[0]).state

    assert now() == (("requires-action", "interrupt"), "approval-requested")
    scene.answer("approve", 0)
    assert now() == (("running", ""), "approval-responded")
    scene.done(0)
    (record,) = scene.told(TurnEnded)
    assert shown(scene.core.transcript["m2"], record) == ("incomplete", "tool-calls")
