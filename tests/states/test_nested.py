"""Calls that wait for calls nested in them: a session below this one has asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.states.scene import Scene, rules, wants
from turnstate_states.asking import Prompt
from turnstate_states.codec import encode_checkpoint
from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallSettled,
    CallStarted,
    PreliminaryResult,
    ResultRequested,
    TurnEnded,
)
from turnstate_states.reports import CallDone, CallSuspended
from turnstate_states.rules import ToolSpec
from turnstate_states.statuses import display_call
from turnstate_states.submissions import Answer, Provide, RevokeGrant
from turnstate_states.transcript import Usage
from turnstate_states.turn import Nested

SUB = ToolSpec("sub", on_crash="rerun", agent=True)
PLAIN = ToolSpec("plain")
ASKED = ToolSpec("asked", approval="always")

A = Nested("m1.0", "rm", '{"path": "a"}')
B = Nested("m1.1", "rm", '{"path": "b"}')
R = Nested("m1.2", "look", wants="result")
DEEP = Nested("m2.0/m2.1", "rm", reason="it is large", prompt=Prompt("Delete?", display="text"))


def suspended(*nested: Nested, tools: tuple[ToolSpec, ...] = (SUB,), **more: Any) -> Scene:
    """A session whose first call waits for these."""
    scene = Scene.calling(*tools, **more)
    scene.suspend(0, *nested)
    return scene


def test_a_suspended_call_waits() -> None:
    """Each nested call is told with an id below the call's own; the turn awaits approval when nothing else moves."""
    scene = suspended(A, R, DEEP)
    call = scene.calls[0]
    assert (call.status, call.wants, call.began) == ("asked", "nested", 1)
    assert [event.call.id for event in scene.told(ApprovalRequested)] == ["m2.0/m1.0", "m2.0/m2.0/m2.1"]
    assert [event.call.id for event in scene.told(ResultRequested)] == ["m2.0/m1.2"]
    assert [inner.id for inner in call.waiting] == ["m2.0/m1.0", "m2.0/m1.2", "m2.0/m2.0/m2.1"]
    shown = call.waiting[2]
    assert (shown.tool, shown.reason, shown.prompt, shown.status) == ("rm", DEEP.reason, DEEP.prompt, "asked")
    assert scene.told(ApprovalRequested)[0].call.arguments == {"path": "a"}
    assert scene.turn.state == "awaiting-approval"
    assert (display_call(call).state, display_call(call).asks) == ("approval-requested", call.waiting)


def test_siblings_go_on_meanwhile() -> None:
    """A suspended call holds nobody up but what waits behind a barrier."""
    scene = suspended(A, tools=(SUB, PLAIN, ToolSpec("alone", exclusive=True)))
    assert scene.statuses == ["asked", "started", "allowed"]
    scene.done(1)
    assert scene.turn.state == "awaiting-approval"
    scene.answer("approve", "0/m1.0")
    scene.done(0)
    assert scene.statuses == ["ok", "ok", "started"]


def test_what_was_used_is_counted() -> None:
    """The report of a suspension brings what models below used, also when the turn is told to end meanwhile."""
    scene = Scene.calling(SUB)
    scene.working = {}
    scene.ledger.effects["m2.0"] = 1
    scene.interrupt()
    assert scene.core.report(CallSuspended(scene.key, "m2.0", (A,), {"below": Usage(3)}), now=scene.now)
    scene.drive()
    scene.ignored(CallSuspended(scene.key, "m2.0", (A,)))
    scene.stopped()
    assert scene.core.checkpoint.usage["below"] == Usage(3)
    assert scene.told(ApprovalRequested) == []
    assert scene.result("m2.0") == "execution interrupted; result unknown: interrupted"


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_an_answer_has_the_call_begin_again(verdict: Any) -> None:
    """It is kept with the nested call; the call begins again with it, and that counts as a beginning."""
    scene = suspended(A)
    scene.answer(verdict, "0/m1.0", by="ann", reason="so")
    (answered,) = scene.told(CallAnswered)
    assert answered.call.id == "m2.0/m1.0"
    begun = scene.told(CallStarted)[-1].call
    assert (begun.id, begun.began) == ("m2.0", 2)
    (nested,) = begun.nested
    assert nested.decision is not None
    assert (nested.decision.verdict, nested.decision.by, nested.decision.reason) == (verdict, "ann", "so")
    assert scene.core.activity is not None
    scene.done(0)
    assert scene.told(CallSettled)[0].call.nested == ()
    assert scene.turn.state == "streaming"


def test_other_arguments() -> None:
    """A nested call may be approved with other arguments; those are what counts as the same answer."""
    scene = suspended(A)
    scene.invalid(Answer("x", ("m2.0/m1.0",), "approve", arguments="{"), "arguments")
    scene.answer("approve", "0/m1.0", arguments='{"path": "c"}')
    assert scene.calls[0].nested[0].edited == '{"path": "c"}'
    assert scene.told(CallAnswered)[0].call.arguments == {"path": "c"}
    scene.answer("approve", "0/m1.0", arguments='{"path": "c"}')
    scene.refuse(Answer("x", ("m2.0/m1.0",), "approve", arguments='{"path": "d"}'), "conflict")
    scene.refuse(Answer("x", ("m2.0/m1.0",), "deny"), "conflict")
    assert len(scene.told(CallStarted)) == 2


def test_a_result_from_outside_for_a_nested_call() -> None:
    """What is provided is kept as it was said, also a falsy one, and handed down; a preliminary one is only told."""
    scene = suspended(R)
    scene.invalid(Answer("x", ("m2.0/m1.2",), "approve"), "verdict")
    scene.provide("0/m1.2", 1, preliminary=True)
    assert [event.call.id for event in scene.told(PreliminaryResult)] == ["m2.0/m1.2"]
    assert scene.statuses == ["asked"]
    scene.provide("0/m1.2", False, text="no", artifact=[0], by="ann")
    (nested,) = scene.told(CallStarted)[-1].call.nested
    assert nested.decision is not None
    assert (nested.decision.verdict, nested.decision.by) == ("provide", "ann")
    assert nested.provided == {"result": False, "text": "no", "error": False, "artifact": [0]}
    scene.provide("0/m1.2", False, text="no", artifact=[0])
    scene.refuse(Provide("x", "m2.0/m1.2", 0, "no", artifact=[0]), "conflict")
    scene.refuse(Answer("x", ("m2.0/m1.2",), "deny"), "conflict")
    assert scene.restored().checkpoint == scene.core.checkpoint


def test_all_are_answered_at_once() -> None:
    """Several nested calls, and calls of this session, may be answered in one submission; the call begins again once."""
    scene = suspended(A, B, tools=(SUB, ASKED))
    scene.answer("approve", "0/m1.0", "0/m1.1", 1)
    assert scene.statuses == ["started", "started"]
    assert [event.call.id for event in scene.told(CallAnswered)] == ["m2.0/m1.0", "m2.0/m1.1", "m2.1"]
    assert scene.calls[0].began == 2


def test_some_are_answered() -> None:
    """The call begins again with the first answer, and suspends again with the rest, which are not told again."""
    scene = suspended(A, B)
    scene.answer("approve", "0/m1.0")
    assert scene.statuses == ["started"]
    scene.suspend(0, B)
    assert [inner.id for inner in scene.calls[0].waiting] == ["m2.0/m1.1"]
    assert [event.call.id for event in scene.told(ApprovalRequested)] == ["m2.0/m1.0", "m2.0/m1.1"]
    scene.answer("approve", "0/m1.1")
    assert scene.calls[0].began == 3
    scene.suspend(0, R)
    assert [event.call.id for event in scene.told(ResultRequested)] == ["m2.0/m1.2"]


def test_an_answer_while_the_call_runs_is_kept() -> None:
    """What was answered after the call began again is not lost: it begins once more with it when it suspends."""
    scene = suspended(A, B)
    scene.answer("approve", "0/m1.0")
    scene.answer("deny", "0/m1.1", reason="not this one")
    assert (scene.statuses, scene.calls[0].began) == (["started"], 2)
    assert scene.restored().checkpoint == scene.core.checkpoint
    scene.suspend(0, B)
    assert (scene.statuses, scene.calls[0].began) == (["started"], 3)
    (nested,) = scene.told(CallStarted)[-1].call.nested
    assert nested.decision is not None
    assert (nested.id, nested.decision.reason) == ("m1.1", "not this one")
    assert len(scene.told(ApprovalRequested)) == 2
    scene.done(0)
    assert scene.turn.state == "streaming"


def test_an_answer_that_was_no_use_is_asked_for_again() -> None:
    """Where the session below still waits for what was handed down, a person is asked again, not the call run for ever."""
    scene = suspended(A)
    scene.answer("approve", "0/m1.0")
    scene.suspend(0, A)
    assert scene.statuses == ["asked"]
    assert [event.call.id for event in scene.told(ApprovalRequested)] == ["m2.0/m1.0"] * 2
    scene.answer("deny", "0/m1.0")
    assert scene.statuses == ["started"]


def test_a_suspension_for_nothing() -> None:
    """A call that waits for nothing begins again: nobody could answer it."""
    scene = suspended()
    assert scene.statuses == ["started"]
    assert scene.calls[0].began == 2


def test_the_call_itself_has_no_answer() -> None:
    """A suspended call is answered by its nested calls; the error names them."""
    scene = suspended(A, R)
    scene.invalid(Answer("x", ("m2.0",), "approve"), r"calls: .*m2\.0/m1\.0, m2\.0/m1\.2")
    scene.invalid(Answer("x", ("m2.0",), "deny"), "calls")
    scene.invalid(Provide("x", "m2.0", 1), "call")


@pytest.mark.parametrize("name", ["m2.0/m1.9", "m2.0/", "m2.1/m1.0", "m2.9/m1.0", "/m1.0", "m2.0/m1.0/m1.0"])
def test_names_of_nothing(name: str) -> None:
    """An id of no nested call is stale."""
    scene = suspended(A, tools=(SUB, PLAIN))
    scene.refuse(Answer("x", (name,), "approve"), "stale")
    scene.refuse(Provide("x", name, 1), "stale")


def test_answers_after_the_end_are_stale() -> None:
    """When the call has its result, or the turn is over, nothing nested in it waits any more."""
    scene = suspended(A, B, tools=(SUB, PLAIN))
    scene.answer("approve", "0/m1.0")
    scene.done(0)
    scene.refuse(Answer("x", ("m2.0/m1.0",), "approve"), "stale")
    scene.refuse(Answer("x", ("m2.0/m1.1",), "approve"), "stale")
    scene = suspended(A)
    scene.interrupt()
    assert scene.told(TurnEnded)[0].outcome == "interrupted"
    assert scene.result("m2.0") == "execution interrupted; result unknown: interrupted"
    scene.refuse(Answer("x", ("m2.0/m1.0",), "approve"), "stale")


def test_a_denial_may_end_the_turn() -> None:
    """Denying a nested call and the turn with it leaves the call unknown: it had begun."""
    scene = suspended(A)
    scene.answer("deny", "0/m1.0", end_turn=True, reason="stop")
    assert (scene.turn.outcome, scene.turn.reason) == ("denied", "stop")
    assert scene.result("m2.0") == "execution interrupted; result unknown: stop"
    assert len(scene.told(CallStarted)) == 1


# Time


def test_a_nested_request_expires() -> None:
    """At the first deadline the call begins again and sees to it itself; an answer then is stale."""
    first, later = (Nested(f"m1.{at}", "rm", expires_at=1000.0 + 60 * at) for at in (1, 2))
    scene = suspended(later, first)
    assert scene.core.deadline == 1060.0
    scene.now += 60
    scene.refuse(Answer("x", ("m2.0/m1.1",), "approve"), "stale")
    scene.now -= 60
    scene.wait(60)
    assert (scene.statuses, scene.calls[0].began) == (["started"], 2)
    scene.suspend(0, later)
    assert scene.core.deadline == 1120.0
    assert len(scene.told(ApprovalRequested)) == 2


def test_an_answer_in_time_takes_the_deadline_away() -> None:
    """The call that begins again has no deadline of its own."""
    scene = suspended(Nested("m1.0", "rm", expires_at=1060.0))
    scene.answer("approve", "0/m1.0")
    assert scene.core.deadline is None


# Crashes


def test_a_crash_while_it_waits() -> None:
    """The same nested calls are open; no event is told again; their answers count."""
    scene = suspended(A, R)
    before, told = encode_checkpoint(scene.core.checkpoint), len(scene.log)
    scene.crash()
    scene.crash()
    assert encode_checkpoint(scene.core.checkpoint) == before
    assert len(scene.log) == told
    scene.answer("approve", "0/m1.0")
    assert scene.statuses == ["started"]


def test_a_crash_after_the_answer() -> None:
    """An idempotent call begins once more with its answers; another one is unknown, because it had begun."""
    scene = suspended(A)
    scene.answer("approve", "0/m1.0")
    scene.crash()
    begun = scene.told(CallStarted)[-1].call
    assert (begun.began, begun.nested[0].decision is not None) == (3, True)
    scene = suspended(A, tools=(ToolSpec("sub"),))
    scene.answer("approve", "0/m1.0")
    scene.crash()
    assert scene.told(CallSettled)[0].call.status == "unknown"


def test_a_late_answer_survives_a_crash() -> None:
    """What was answered while the call ran is handed down when it begins again."""
    scene = suspended(A, B)
    scene.answer("approve", "0/m1.0")
    scene.answer("approve", "0/m1.1")
    scene.crash()
    assert [inner.decision is not None for inner in scene.told(CallStarted)[-1].call.nested] == [True, True]
    scene.suspend(0, B)
    assert scene.statuses == ["asked"]


def test_a_tool_that_is_gone() -> None:
    """A suspended call of a tool that no longer exists is unknown: it had begun."""
    scene = suspended(A)
    scene.crash(rules=rules(PLAIN))
    assert scene.result("m2.0") == "execution interrupted; result unknown: unknown tool sub; available: plain"


def test_a_stopped_beginning() -> None:
    """A call that did not begin again before the turn ended had begun before: unknown, not "not run"."""
    scene = suspended(A)
    scene.answer("approve", "0/m1.0")
    scene.interrupt()
    scene.stopped(not_begun=("m2.0",))
    assert scene.told(CallSettled)[0].call.status == "unknown"


def test_a_revoked_approval_asks_for_nothing_again() -> None:
    """A call that began by an approval for the session goes on when its nested call is answered, whatever is revoked."""
    scene = Scene.calling(ToolSpec("asked", approval="always", on_crash="rerun"))
    scene.answer("approve", 0, for_session=True)
    scene.done(0)
    scene.reply(*wants("asked"))
    scene.suspend(0, A)
    scene.core.submit(Answer("a1", (f"{scene.calls[0].id}/m1.0",), "approve"), now=scene.now)
    scene.core.submit(RevokeGrant("r1", "g1"), now=scene.now)
    scene.drive()
    assert scene.statuses == ["started"]


def test_only_a_call_that_runs_can_suspend() -> None:
    """A report about a call that waits, or is settled, changes nothing."""
    scene = suspended(A, tools=(SUB, ASKED, PLAIN))
    for at in (0, 1):
        scene.ignored(CallSuspended(scene.key, f"m2.{at}", (B,)))
    scene.ignored(CallDone(scene.key, "m2.0", "ok", "x"))


def test_a_wait_that_input_ends() -> None:
    """A suspended call that has begun is unknown when newer input ends it as it begins again, never "not run"."""
    scene = suspended(A, tools=(ToolSpec("sub", on_crash="rerun", agent=True, ends_on_input=True),))
    scene.say("never mind", "steer")
    assert scene.statuses == ["asked"]
    scene.answer("approve", "0/m1.0")
    assert scene.told(CallSettled)[0].call.status == "unknown"
