"""Tools without a function: somebody outside says what their calls give."""

from __future__ import annotations

import datetime
import json
from typing import Any

import attrs
import pytest

from tests.states.scene import Scene, rules, wants
from turnstate_states.codec import decode_checkpoint, encode_checkpoint, with_proposed
from turnstate_states.content import ToolCall
from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallSettled,
    CallStarted,
    PreliminaryResult,
    ResultRequested,
    StepStarted,
    TurnEnded,
)
from turnstate_states.reports import CallDone
from turnstate_states.rules import Bound, ToolSpec
from turnstate_states.statuses import display_call
from turnstate_states.submissions import Answer, Provide
from turnstate_states.turn import Call

OUTSIDE = ToolSpec("outside", outside=True)
OTHER = ToolSpec("other", outside=True)
PLAIN = ToolSpec("plain")
ASKED = ToolSpec("asked", approval="always")
GATED = ToolSpec("gated", outside=True, approval="always")
ALONE = ToolSpec("alone", outside=True, exclusive=True)

UNKNOWN = "execution interrupted; result unknown: "
FALSY: list[Any] = [False, 0, 0.0, "", None, [], {}]


# Asking, and giving


def test_a_result_is_asked_for() -> None:
    """The call waits, in awaiting-approval, for its result; it has begun as far as anybody knows, and nothing runs here."""
    scene = Scene.calling(OUTSIDE)
    (event,) = scene.told(ResultRequested)
    call = scene.calls[0]
    assert (call.status, call.wants, call.began) == ("asked", "result", 1)
    assert event.call == call
    assert call.waiting == (call,)
    assert scene.turn.state == "awaiting-approval"
    assert scene.core.activity is None
    assert (scene.told(CallStarted), scene.told(ApprovalRequested)) == ([], [])


def test_a_result_from_outside() -> None:
    """What was provided settles the call, with who gave it, and the turn goes on by itself."""
    scene = Scene.calling(OUTSIDE)
    receipt = scene.provide(0, {"at": [1, 2]}, by="ann", artifact={"picture": "p.png"})
    assert receipt.turn == "t1"
    (settled,) = scene.told(CallSettled)
    decision = settled.call.decision
    assert decision is not None
    assert (settled.call.status, decision.verdict, decision.by, decision.at) == ("ok", "provide", "ann", scene.now)
    (result,) = settled.message.results
    assert (json.loads(result.text), result.value, result.artifact) == ({"at": [1, 2]}, None, {"picture": "p.png"})
    assert scene.shown[-1] == ("tool", result.text)
    assert len(scene.told(StepStarted)) == 2


@pytest.mark.parametrize("value", FALSY)
def test_any_value_is_a_result(value: Any) -> None:
    """False, 0, an empty text and null settle the call like any other value."""
    scene = Scene.calling(OUTSIDE)
    scene.provide(0, value)
    assert scene.told(CallSettled)[0].call.status == "ok"
    assert scene.result("m2.0") == (value if isinstance(value, str) else json.dumps(value))
    assert scene.turn.state == "streaming"


@pytest.mark.parametrize("value", FALSY)
def test_a_text_for_the_model(value: Any) -> None:
    """Where a text is given the model reads that, and the value is kept for others, also after a restart."""
    scene = Scene.calling(OUTSIDE)
    scene.provide(0, value, text="nothing there", artifact=value)
    assert scene.shown[-1] == ("tool", "nothing there")
    scene.check_restored()
    (result,) = scene.restored().transcript["m3"].results
    assert json.dumps([result.value, result.artifact]) == json.dumps([value, value])


def test_an_error_from_outside() -> None:
    """It settles as an error that the model reads."""
    scene = Scene.calling(OUTSIDE)
    scene.provide(0, "no such place", error=True)
    assert scene.told(CallSettled)[0].call.status == "error"
    assert scene.result("m2.0") == "no such place"
    assert scene.turn.calls_failed == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ((1, (2,)), "[1, [2]]"),
        (float("nan"), "null"),
        ("\u00fcber", "\u00fcber"),
        (["\u00fc"], '["\u00fc"]'),
    ],
)
def test_a_value_is_what_it_is_as_json(value: Any, text: str) -> None:
    """A value reads as it would in another process: nothing is in the state that cannot be stored (case 87)."""
    scene = Scene.calling(OUTSIDE)
    scene.provide(0, value, artifact=value)
    assert scene.result("m2.0") == text
    scene.check_restored()


@pytest.mark.parametrize("value", ["\ud800", object(), {1: 2}])
def test_what_cannot_be_stored_is_invalid(value: Any) -> None:
    """Half of a surrogate pair, or an object, is refused before anything changes."""
    scene = Scene.calling(OUTSIDE)
    scene.invalid(Provide("p", "m2.0", value), "provide")
    scene.invalid(Provide("p", "m2.0", artifact=value), "provide")


# In any order, while others run


def test_results_come_in_any_order_while_siblings_run() -> None:
    """The model reads the results in call order; the batch is over with the last of them."""
    scene = Scene.calling(OUTSIDE, PLAIN, OTHER)
    assert scene.statuses == ["asked", "started", "asked"]
    scene.provide(2, "three")
    scene.done(1, "two")
    assert scene.core.activity is None
    scene.provide(0, "one")
    assert [text for role, text in scene.shown if role == "tool"] == ["one", "two", "three"]
    assert scene.turn.state == "streaming"


def test_a_preliminary_result_settles_nothing() -> None:
    """It is told with its call; the call waits on, and the final result is the only one in the history."""
    scene = Scene.calling(OUTSIDE)
    before = scene.calls
    for value in (1, None):
        scene.provide(0, value, preliminary=True)
    assert [(event.call.id, event.value) for event in scene.told(PreliminaryResult)] == [("m2.0", 1), ("m2.0", None)]
    assert scene.calls == before
    assert scene.turn.state == "awaiting-approval"
    scene.provide(0, 1)
    assert scene.result("m2.0") == "1"
    scene.refuse(Provide("p", "m2.0", 2, preliminary=True), "stale")
    assert len(scene.told(CallSettled)) == 1


def test_an_exclusive_call_outside_is_a_barrier() -> None:
    """It is asked for when all before it is settled, and nothing after it starts before it has its result."""
    scene = Scene.calling(PLAIN, ALONE, OTHER)
    assert scene.statuses == ["started", "allowed", "allowed"]
    scene.done(0)
    assert scene.statuses == ["ok", "asked", "allowed"]
    scene.provide(1, "done")
    assert scene.statuses == ["ok", "ok", "asked"]


def test_a_person_allows_it_first() -> None:
    """A gated call is decided on, then its result is asked for; the changed arguments are what outside sees."""
    scene = Scene.started(GATED)
    scene.reply(*wants("gated", arguments='{"n": 1}'))
    assert [event.call.wants for event in scene.told(ApprovalRequested)] == ["decision"]
    assert scene.told(ResultRequested) == []
    scene.answer("approve", 0, arguments='{"n": 2}', by="ann")
    (answered,) = scene.told(CallAnswered)
    assert answered.call.decision is not None
    assert (answered.call.decision.by, answered.call.status) == ("ann", "allowed")
    (event,) = scene.told(ResultRequested)
    assert (event.call.arguments, event.call.began) == ({"n": 2}, 1)
    scene.provide(0, "ok")
    assert scene.result("m2.0") == 'ok\n(a person changed the arguments of this call to {"n": 2})'


# Twice, otherwise, or in another way


def test_the_same_result_again_is_fine() -> None:
    """Also by someone else and with the keys in another order; what says something else conflicts."""
    scene = Scene.calling(OUTSIDE, ASKED)
    scene.provide(0, {"a": 1, "b": [True]}, text="t", artifact=0)
    before = encode_checkpoint(scene.core.checkpoint)
    scene.provide(0, {"b": [True], "a": 1}, text="t", artifact=0, by="bob")
    assert len(scene.told(CallSettled)) == 1
    assert scene.calls == decoded_calls(before, scene)
    for other in (
        Provide("x", "m2.0", {"a": 1, "b": [1]}, "t", artifact=0),
        Provide("x", "m2.0", {"a": 1, "b": [True]}, "t", artifact=False),
        Provide("x", "m2.0", {"a": 1, "b": [True]}, "u", artifact=0),
        Provide("x", "m2.0", {"a": 1, "b": [True]}, "t", artifact=0, error=True),
        Answer("x", ("m2.0",), "deny"),
        Answer("x", ("m2.0",), "approve"),
    ):
        scene.refuse(other, "conflict")


def decoded_calls(stored: bytes, scene: Scene) -> list[Call]:
    """The calls as they were stored."""
    turn = decode_checkpoint(stored).turn
    assert turn is not None
    return [with_proposed(call, scene.messages.get) for call in turn.calls.values()]


def test_it_cannot_be_approved() -> None:
    """A call that waits for a result cannot be approved without one."""
    scene = Scene.calling(OUTSIDE)
    scene.invalid(Answer("x", ("m2.0",), "approve"), "verdict: call m2.0 waits for a result")


def test_it_can_be_denied() -> None:
    """Who should give the result may decline."""
    scene = Scene.calling(OUTSIDE)
    scene.answer("deny", 0, reason="I am busy")
    assert scene.result("m2.0") == "tool denied: I am busy"
    assert scene.turn.state == "streaming"


def test_it_can_be_denied_and_the_turn_ended() -> None:
    """The turn ends as denied; what else was asked for outside is unknown."""
    scene = Scene.calling(OUTSIDE, OTHER)
    scene.answer("deny", 0, end_turn=True)
    assert [event.call.status for event in scene.told(CallSettled)] == ["denied", "unknown"]
    assert scene.told(TurnEnded)[0].outcome == "denied"


def test_a_result_in_the_place_of_a_decision() -> None:
    """A call that waits for a decision may be given its result instead: nothing is run."""
    scene = Scene.calling(ASKED, PLAIN)
    scene.provide(0, "I did it by hand", by="ann")
    assert scene.statuses == ["ok", "started"]
    assert scene.calls[0].began == 0
    assert [event.call.id for event in scene.told(CallStarted)] == ["m2.1"]
    scene.refuse(Answer("x", ("m2.0",), "approve"), "conflict")


@pytest.mark.parametrize("call", ["m2.1", "m2.9", "m0.0", "", "m2.0/m1.0", "/"])
def test_calls_that_wait_for_nothing(call: str) -> None:
    """A call that runs, or does not exist, cannot be given a result from outside."""
    scene = Scene.calling(OUTSIDE, PLAIN)
    scene.refuse(Provide("p", call, "x"), "stale")


def test_a_decided_call_cannot_be_given_another_result() -> None:
    """What a person approved runs; a result from outside comes too late for it."""
    scene = Scene.calling(ASKED, PLAIN)
    scene.answer("approve", 0)
    scene.refuse(Provide("p", "m2.0", "x"), "conflict")


def test_a_report_from_inside_does_not_count() -> None:
    """No activity runs a call outside, so none can report on it."""
    scene = Scene.calling(OUTSIDE, PLAIN)
    scene.ignored(CallDone(scene.key, "m2.0", "ok", "x"))


# Time, ends and crashes


def test_a_request_expires() -> None:
    """When nobody gave a result in time the outcome is unknown: somebody may have begun."""
    scene = Scene.calling(attrs.evolve(OUTSIDE, expires=60.0))
    assert scene.core.deadline == scene.now + 60
    scene.wait(60)
    assert scene.result("m2.0") == UNKNOWN + "no result came in time"
    assert scene.turn.state == "streaming"


def test_a_result_at_the_deadline_is_stale() -> None:
    """At the deadline the request has expired, even before the call was settled."""
    scene = Scene.calling(attrs.evolve(OUTSIDE, expires=60.0))
    scene.now += 60
    scene.refuse(Provide("p", "m2.0", "x"), "stale")


def test_an_expired_decision_is_denied_not_unknown() -> None:
    """A gated call that nobody decided on never began; once allowed it has the same time again for its result."""
    gated = attrs.evolve(GATED, expires=60.0)
    scene = Scene.calling(gated)
    scene.wait(60)
    assert scene.told(CallSettled)[0].call.status == "denied"
    scene = Scene.calling(gated)
    scene.wait(30)
    scene.answer("approve", 0)
    assert scene.core.deadline == scene.now + 60


def test_an_interrupt_leaves_it_unknown() -> None:
    """The turn ends at once; what was asked for outside may have happened; a result after that is stale."""
    scene = Scene.calling(OUTSIDE)
    scene.interrupt()
    assert scene.result("m2.0") == UNKNOWN + "interrupted"
    scene.refuse(Provide("p", "m2.0", "late"), "stale")


def test_a_crash_keeps_it_open() -> None:
    """After a restart the call waits on, no event is told again, and the result counts."""
    scene = Scene.calling(OUTSIDE, ASKED)
    before, told = encode_checkpoint(scene.core.checkpoint), len(scene.log)
    for _ in range(3):
        scene.crash()
    assert encode_checkpoint(scene.core.checkpoint) == before
    assert len(scene.log) == told
    scene.provide(0, "x")
    assert scene.calls[0].status == "ok"


def test_input_does_not_end_it() -> None:
    """A steer ends what runs here and is willing; what somebody outside was asked for is theirs to give."""
    wait, asked = ToolSpec("wait", ends_on_input=True), ToolSpec("outside", outside=True, ends_on_input=True)
    scene = Scene.calling(wait, asked)
    scene.say("wake up", "steer")
    assert scene.statuses == ["unknown", "asked"]
    scene.provide(1, "x")
    assert scene.shown[-1] == ("user", "wake up")


def test_a_tool_that_is_gone_leaves_it_unknown() -> None:
    """After a restart without the tool, or with other arguments, a call that may have begun outside is unknown."""
    scene = Scene.started(OUTSIDE, ALONE)
    scene.reply(*wants("outside", "alone"))
    scene.crash(rules=rules())
    assert scene.result("m2.0") == UNKNOWN + "unknown tool outside; available: none"
    assert scene.result("m2.1") == "unknown tool alone; available: none"
    assert [event.call.status for event in scene.told(CallSettled)] == ["unknown", "error"]


def test_arguments_are_checked_before_anybody_is_asked() -> None:
    """Bad arguments are the model's to mend."""
    scene = Scene.started(ToolSpec("outside", outside=True, bind=lambda _: Bound("n: missing")))
    scene.reply(ToolCall("", "outside", "{}"))
    assert scene.told(ResultRequested) == []
    assert scene.result("m2.0") == "n: missing"


def test_how_it_is_shown() -> None:
    """A call that waits for a result is an available input with somebody to answer it."""
    scene = Scene.calling(OUTSIDE)
    shown = display_call(scene.calls[0])
    assert (shown.state, shown.running, shown.asks) == ("input-available", False, (scene.calls[0],))


def test_an_approval_for_the_session_leaves_what_waits_for_a_result_alone() -> None:
    """A call whose result is awaited is not asked for again because a like call is approved for the session."""
    scene = Scene.started(GATED)
    scene.reply(*wants("gated", "gated", arguments='{"n": 1}'))
    scene.answer("approve", 0)
    assert [call.wants for call in scene.calls] == ["result", "decision"]
    scene.answer("approve", 1, for_session=True)
    assert [call.began for call in scene.calls] == [1, 1]
    assert len(scene.told(ResultRequested)) == 2
