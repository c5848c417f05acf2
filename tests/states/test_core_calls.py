"""The life of a call: section 5 of the design."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.states.scene import Scene, wants
from turnstate_states.arguments import read_arguments
from turnstate_states.codec import encode_checkpoint
from turnstate_states.content import ToolCall
from turnstate_states.errors import InvalidInput, RefusalCode, Refused
from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallProposed,
    CallSettled,
    CallStarted,
    GrantAdded,
    GrantRevoked,
    MessageTaken,
    StepStarted,
    Warned,
)
from turnstate_states.reports import Activity, CallChecked, CallDone, PolicyDecided
from turnstate_states.rules import Bound, Limits, ToolSpec
from turnstate_states.submissions import Answer, RevokeGrant

PLAIN = ToolSpec("plain")
OTHER = ToolSpec("other")
ASKED = ToolSpec("asked", approval="always")
ALSO = ToolSpec("also", approval="always")
POLICY = ToolSpec("policy", approval="policy")
ALONE = ToolSpec("alone", exclusive=True)
WAIT = ToolSpec("wait", ends_on_input=True)


def only_n(arguments: str) -> Bound:
    """Arguments must be an object with a number ``n``."""
    try:
        value = read_arguments(arguments)
    except InvalidInput:
        return Bound("arguments: expected JSON")
    return Bound() if isinstance(value.get("n"), int) else Bound("n: expected a number")


STRICT = ToolSpec("strict", approval="always", bind=only_n)


def refused(scene: Scene, answer: Answer, code: RefusalCode) -> None:
    """The answer is refused with this code and changes nothing."""
    before = encode_checkpoint(scene.core.checkpoint)
    with pytest.raises(Refused) as caught:
        scene.core.submit(answer, now=scene.now)
    assert caught.value.code == code
    assert encode_checkpoint(scene.core.checkpoint) == before


# Starting


def test_calls_run_together() -> None:
    """Calls of plain tools are all started in the commit that stores the reply."""
    scene = Scene.calling(PLAIN, OTHER)
    assert scene.statuses == ["started", "started"]
    assert [event.call.id for event in scene.told(CallStarted)] == ["m2.0", "m2.1"]
    assert [call.began for call in scene.calls] == [1, 1]


def test_an_exclusive_call_is_a_barrier() -> None:
    """What stands before an exclusive call has settled before it starts; what stands after it waits for it."""
    scene = Scene.calling(PLAIN, ALONE, OTHER)
    assert scene.statuses == ["started", "allowed", "allowed"]
    scene.done(0)
    assert scene.statuses == ["ok", "started", "allowed"]
    scene.done(1)
    assert scene.statuses == ["ok", "ok", "started"]


def test_two_exclusive_calls_run_one_after_the_other() -> None:
    """Exclusive calls run in the order of the reply."""
    scene = Scene.started(ALONE)
    scene.reply(*wants("alone", "alone"))
    assert scene.statuses == ["started", "allowed"]
    scene.done(0)
    assert scene.statuses == ["ok", "started"]


def test_an_undecided_exclusive_call_holds_back_what_follows() -> None:
    """A barrier that waits for a person holds back later calls, not earlier ones."""
    scene = Scene.calling(PLAIN, ToolSpec("gate", approval="always", exclusive=True), OTHER)
    assert scene.statuses == ["started", "asked", "allowed"]
    scene.done(0)
    assert scene.turn.state == "awaiting-approval"
    scene.answer("approve", 1)
    assert scene.statuses == ["ok", "started", "allowed"]


def test_an_undecided_call_does_not_hold_back_others() -> None:
    """Allowed calls do not wait for a call that someone must decide on."""
    scene = Scene.calling(ASKED, PLAIN)
    assert scene.statuses == ["asked", "started"]
    assert scene.turn.state == "executing-tools"


def test_results_are_shown_in_call_order() -> None:
    """Whatever order results come in, the next request holds them after their calls, in call order."""
    scene = Scene.calling(PLAIN, OTHER, WAIT)
    for at in (2, 0, 1):
        scene.done(at, f"result {at}")
    assert [text for role, text in scene.shown if role == "tool"] == ["result 0", "result 1", "result 2"]


def test_a_failing_call_does_not_touch_its_siblings() -> None:
    """Each call has its own result with its own id, whatever becomes of the others (case 46)."""
    scene = Scene.calling(PLAIN, OTHER, WAIT)
    scene.report(CallDone(scene.key, "m2.1", "error", "ValueError: no"))
    assert scene.statuses == ["started", "error", "started"]
    scene.done(0)
    scene.report(CallDone(scene.key, "m2.2", "error", "Cancelled: by itself"))
    assert [scene.result(f"m2.{at}") for at in range(3)] == ["a result", "ValueError: no", "Cancelled: by itself"]
    assert (scene.turn.calls_made, scene.turn.calls_failed) == (3, 2)


def test_a_late_result_changes_nothing() -> None:
    """The first result of a call counts; a second one does not (case 38)."""
    scene = Scene.calling(PLAIN, OTHER)
    scene.report(CallDone(scene.key, "m2.0", "unknown", "execution interrupted; result unknown: timed out"))
    before = encode_checkpoint(scene.core.checkpoint)
    assert not scene.core.report(CallDone(scene.key, "m2.0", "ok", "late"), now=scene.now)
    assert encode_checkpoint(scene.core.checkpoint) == before
    assert len(scene.told(CallSettled)) == 1


@pytest.mark.parametrize("status", ["ok", "allowed", "asked", "started"])
def test_a_report_that_does_not_fit_the_call_changes_nothing(status: str) -> None:
    """A look at the world counts only for a call that is looked after, a verdict only for a proposed one."""
    scene = Scene.calling(PLAIN, ASKED, ALONE, OTHER)
    scene.ledger.effects["m2.0"] = 1
    call = {"ok": "m2.0", "asked": "m2.1", "allowed": "m2.3", "started": "m2.0"}[status]
    if status == "ok":
        scene.done(0)
    key = Activity("execute", "t1", 1)
    before = encode_checkpoint(scene.core.checkpoint)
    assert not scene.core.report(CallChecked(key, call, None), now=scene.now)
    assert not scene.core.report(PolicyDecided(key, call, "allow"), now=scene.now)
    if status != "started":
        assert not scene.core.report(CallDone(key, call, "ok", "x"), now=scene.now)
    assert not scene.core.report(CallDone(Activity("execute", "t9", 1), "m2.0", "ok", "x"), now=scene.now)
    assert encode_checkpoint(scene.core.checkpoint) == before


# What is wrong with a call


def test_an_unknown_tool_is_an_error_for_the_model() -> None:
    """An unknown name gives an error that lists what exists, and the good call runs (case 47)."""
    scene = Scene.started(PLAIN, OTHER)
    scene.reply(*wants("plian", "plain", ""))
    assert scene.statuses == ["error", "started", "error"]
    assert scene.result("m2.0") == "unknown tool plian; available: other, plain"
    scene.done(1)
    assert scene.turn.state == "streaming"


def test_an_unknown_tool_where_there_are_none() -> None:
    """Without any tools the text says so."""
    scene = Scene.started()
    scene.reply(*wants("f"))
    assert scene.result("m2.0") == "unknown tool f; available: none"


@pytest.mark.parametrize("arguments", ["{", '{"n": "x"}', "[]x"])
def test_bad_arguments_are_never_asked_for(arguments: str) -> None:
    """Arguments are checked before anyone is asked; they are kept byte for byte."""
    scene = Scene.started(STRICT)
    scene.reply(*wants("strict", arguments=arguments))
    assert scene.told(ApprovalRequested) == []
    assert scene.told(CallSettled)[0].call.status == "error"
    assert scene.told(CallProposed)[0].call.proposed == arguments
    assert scene.turn.state == "streaming"


# Policy


def test_a_policy_decides() -> None:
    """A call under a policy stays proposed, and cannot run, until the verdict."""
    scene = Scene.calling(POLICY, PLAIN)
    assert scene.statuses == ["proposed", "started"]
    scene.decide(0, "allow")
    assert scene.statuses == ["started", "started"]


def test_a_policy_denies() -> None:
    """A policy's denial is a result that names its reason."""
    scene = Scene.calling(POLICY)
    scene.decide(0, "deny", "not on a Monday")
    assert scene.result("m2.0") == "tool denied: not on a Monday"
    assert scene.turn.state == "streaming"


def test_a_policy_asks() -> None:
    """A policy may leave it to a person; the request says why, and a warning is told."""
    scene = Scene.calling(POLICY)
    scene.report(PolicyDecided(scene.key, "m2.0", "ask", "large sum", "the reviewer was slow"))
    assert scene.turn.state == "awaiting-approval"
    assert scene.told(ApprovalRequested)[0].call.reason == "large sum"
    assert scene.told(Warned)[0].text == "the reviewer was slow"


# Answers


def test_a_call_that_needs_a_person_is_told_while_others_run() -> None:
    """The request is told in the commit of the reply; awaiting-approval begins when nothing else can move."""
    scene = Scene.calling(ASKED, PLAIN)
    assert [event.call.id for event in scene.told(ApprovalRequested)] == ["m2.0"]
    scene.done(1)
    assert scene.turn.state == "awaiting-approval"
    assert scene.core.activity is None


def test_an_approved_call_runs_with_the_stored_arguments() -> None:
    """After approval exactly the stored call runs, without another request to the model (case 49)."""
    scene = Scene.started(ASKED)
    scene.reply(*wants("asked", arguments='{"message": "reviewed"}'))
    scene.crash()
    scene.answer("approve", 0, by="ann", reason="fine")
    call = scene.told(CallStarted)[0].call
    assert call.arguments_json == '{"message": "reviewed"}'
    assert len(scene.told(StepStarted)) == 1
    decision = call.decision
    assert decision is not None
    assert (decision.verdict, decision.by, decision.reason, decision.at) == ("approve", "ann", "fine", scene.now)


def test_approval_with_other_arguments() -> None:
    """A person may change the arguments; both are kept, the changed ones run."""
    scene = Scene.started(STRICT)
    scene.reply(*wants("strict", arguments='{"n": 1}'))
    scene.answer("approve", 0, arguments='{"n": 2}')
    call = scene.told(CallStarted)[0].call
    assert (call.proposed, call.edited, call.arguments) == ('{"n": 1}', '{"n": 2}', {"n": 2})


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"arguments": "{"}, "arguments"),
        ({"arguments": "[1]"}, "arguments"),
        ({"arguments": '{"n": NaN}'}, "arguments"),
        ({"arguments": '{"n": "x"}'}, "arguments: n"),
        ({"arguments": '{"n": 2}', "verdict": "deny"}, "arguments"),
        ({"end_turn": True}, "end_turn"),
        ({"for_session": True, "verdict": "deny"}, "for_session"),
    ],
)
def test_an_answer_that_makes_no_sense_is_invalid(more: dict[str, Any], field: str) -> None:
    """Bad input names the field and changes nothing; other arguments are checked like the model's."""
    scene = Scene.started(STRICT)
    scene.reply(*wants("strict", arguments='{"n": 1}'))
    answer: dict[str, Any] = {"verdict": "approve"} | more
    before = encode_checkpoint(scene.core.checkpoint)
    with pytest.raises(InvalidInput, match=f"^{field}"):
        scene.core.submit(Answer("a1", ("m2.0",), **answer), now=scene.now)
    with pytest.raises(InvalidInput, match=r"^calls"):
        scene.core.submit(Answer("a2", (), "approve"), now=scene.now)
    assert encode_checkpoint(scene.core.checkpoint) == before


def test_other_arguments_are_for_one_call() -> None:
    """Arguments cannot replace those of several calls at once."""
    scene = Scene.calling(ASKED, ALSO)
    with pytest.raises(InvalidInput, match=r"^arguments"):
        scene.answer("approve", 0, 1, arguments="{}")


@pytest.mark.parametrize("reason", ["", "too risky"])
def test_a_denied_call_has_a_result(reason: str) -> None:
    """A denial tells the model that the call did not run; the same call is not asked again (case 63)."""
    scene = Scene.calling(ASKED)
    scene.answer("deny", 0, reason=reason)
    assert scene.result("m2.0") == f"tool denied: {reason or 'the user declined'}"
    assert scene.told(CallStarted) == []
    assert len(scene.told(ApprovalRequested)) == 1
    assert scene.turn.state == "streaming"


def test_a_denial_may_end_the_turn() -> None:
    """Deny and end: the turn ends as denied, its other open calls were not run."""
    scene = Scene.calling(ASKED, ALSO)
    scene.answer("deny", 0, reason="stop it", end_turn=True)
    assert (scene.turn.state, scene.turn.outcome, scene.turn.reason) == ("aborted", "denied", "stop it")
    assert scene.result("m2.1") == "not run: stop it"
    assert scene.held


def test_a_denial_that_ends_the_turn_stops_what_runs() -> None:
    """While another call runs, the turn ends when that is gone; a known result is kept, nothing starts."""
    scene = Scene.calling(ASKED, PLAIN, ALONE)
    scene.answer("deny", 0, end_turn=True)
    assert scene.core.stopping
    scene.done(1)
    assert scene.statuses == ["denied", "ok", "allowed"]
    scene.stopped()
    assert scene.turn.outcome == "denied"
    assert scene.result("m2.2") == "not run: denied"


def test_several_calls_are_answered_at_once() -> None:
    """One answer may name several calls; if one of them cannot be answered, none is."""
    scene = Scene.calling(ASKED, ALSO)
    refused(scene, Answer("a1", ("m2.0", "m2.7"), "approve"), "stale")
    scene.answer("approve", 0, 1)
    assert scene.statuses == ["started", "started"]
    assert [event.call.id for event in scene.told(CallAnswered)] == ["m2.0", "m2.1"]


def test_answers_belong_to_their_calls() -> None:
    """Parallel calls of one tool are answered each by its own id, in any order (case 56)."""
    scene = Scene.started(ASKED)
    scene.reply(
        ToolCall("", "asked", '{"n": 1}', provider_id="same"), ToolCall("", "asked", '{"n": 2}', provider_id="same")
    )
    scene.answer("deny", 1, reason="not this one")
    scene.answer("approve", 0)
    assert scene.statuses == ["started", "denied"]
    assert scene.result("m2.1") == "tool denied: not this one"


def test_the_first_answer_counts() -> None:
    """The same answer again, by anyone, is fine; another one is refused; both change nothing (cases 56 and 57)."""
    scene = Scene.calling(ASKED, PLAIN)
    scene.answer("approve", 0, by="ann")
    state = scene.calls
    scene.answer("approve", 0, by="bob")
    assert scene.calls == state
    refused(scene, Answer("x1", ("m2.0",), "deny"), "conflict")
    refused(scene, Answer("x2", ("m2.0",), "approve", arguments="{}"), "conflict")
    refused(scene, Answer("x3", ("m2.0",), "approve", for_session=True), "conflict")
    assert len(scene.told(CallAnswered)) == 1


def test_the_same_answer_stands_until_the_batch_is_over() -> None:
    """While the batch is open a settled call's answer may come again; afterwards it is stale."""
    scene = Scene.calling(ASKED, PLAIN)
    scene.answer("approve", 0)
    scene.done(0)
    scene.answer("approve", 0)
    scene.done(1)
    refused(scene, Answer("x", ("m2.0",), "approve"), "stale")


def test_the_same_answer_for_the_session_to_several_calls_is_fine_again() -> None:
    """Also where one of the calls was allowed by the grant that the other one's answer made."""
    scene = Scene.started(ASKED, PLAIN)
    scene.reply(*wants("asked", "asked", "plain"))
    scene.answer("approve", 0, 1, for_session=True)
    scene.answer("approve", 0, 1, for_session=True)
    assert all(call.decision is not None for call in scene.calls[:2])
    assert len(scene.told(CallAnswered)) == 2


@pytest.mark.parametrize("call", ["m2.1", "m2.9", "m0.0", ""])
def test_an_answer_to_a_call_that_does_not_wait_is_stale(call: str) -> None:
    """A call that runs, or does not exist, cannot be answered."""
    scene = Scene.calling(ASKED, PLAIN)
    refused(scene, Answer("x", (call,), "approve"), "stale")


def test_an_approval_after_the_end_is_refused() -> None:
    """Once the turn was told to end, and after it, no answer counts and nothing runs (case 58)."""
    scene = Scene.calling(ASKED, PLAIN)
    scene.interrupt()
    refused(scene, Answer("x1", ("m2.0",), "approve"), "stale")
    scene.stopped()
    refused(scene, Answer("x2", ("m2.0",), "approve"), "stale")
    scene.crash()
    refused(scene, Answer("x3", ("m2.0",), "approve"), "stale")
    assert [event.call.tool for event in scene.told(CallStarted)] == ["plain"]


def test_an_interrupt_ends_a_wait_at_once() -> None:
    """In awaiting-approval an interrupt ends the turn in its own commit (case 58)."""
    scene = Scene.calling(ASKED)
    scene.interrupt()
    assert (scene.turn.outcome, scene.turn.closed) == ("interrupted", True)
    assert scene.result("m2.0") == "not run: interrupted"


def test_a_message_while_a_call_waits() -> None:
    """A message in place of an answer waits; no request is made until the call is answered (cases 52 and 53)."""
    scene = Scene.calling(ASKED)
    scene.say("what about lunch?", "steer")
    scene.say("and dinner?")
    assert len(scene.told(StepStarted)) == 1
    assert scene.turn.state == "awaiting-approval"
    scene.answer("deny", 0)
    assert [role for role, _ in scene.shown] == ["user", "assistant", "tool", "user"]
    assert scene.shown[-1] == ("user", "what about lunch?")


# Approvals for the session


def approve_for_session(*tools: ToolSpec, arguments: str = '{"b": 1, "a": [2]}', **more: Any) -> Scene:
    """A session in which the first tool's call was approved for the session, and the next reply is awaited."""
    scene = Scene.started(*tools, **more)
    scene.reply(*wants("asked", arguments=arguments))
    scene.answer("approve", 0, for_session=True, by="ann")
    scene.done(0)
    return scene


def test_an_approval_for_the_session_covers_equal_arguments() -> None:
    """The same tool with equal arguments is not asked again, however they are written; others are."""
    scene = approve_for_session(ASKED)
    (added,) = scene.told(GrantAdded)
    assert (added.grant.tool, added.grant.by, added.grant.arguments) == ("asked", "ann", {"a": [2], "b": 1})
    scene.reply(
        *wants("asked", arguments=' {"a":[2], "b":1}'), *wants("asked", arguments='{"a": [2], "b": 2}'), *wants("asked")
    )
    assert scene.statuses == ["started", "asked", "asked"]
    assert scene.calls[0].grant == added.grant.id


def test_an_approval_for_the_session_allows_other_open_calls() -> None:
    """A grant also allows the calls that wait already and that it covers."""
    scene = Scene.started(ASKED)
    scene.reply(*wants("asked", "asked"), *wants("asked", arguments='{"x": 1}'))
    scene.answer("approve", 0, for_session=True)
    assert scene.statuses == ["started", "started", "asked"]
    assert len(scene.told(CallAnswered)) == 2


def test_a_grant_can_be_revoked() -> None:
    """A revoked grant covers nothing any more."""
    scene = approve_for_session(ASKED)
    scene.submit(RevokeGrant("g", "g1"))
    assert [event.grant.id for event in scene.told(GrantRevoked)] == ["g1"]
    scene.reply(*wants("asked", arguments='{"b": 1, "a": [2]}'))
    assert scene.statuses == ["asked"]


def test_grants_are_bounded() -> None:
    """Beyond the limit the oldest grant goes out, and that is told."""
    scene = approve_for_session(ASKED, limits=Limits(grants=1))
    scene.reply(*wants("asked", arguments='{"other": 1}'))
    scene.answer("approve", 0, for_session=True)
    assert [grant.id for grant in scene.core.checkpoint.grants] == ["g2"]
    assert [event.grant.id for event in scene.told(GrantRevoked)] == ["g1"]


def test_grants_outlive_turns_and_processes() -> None:
    """A grant is kept in the checkpoint."""
    scene = approve_for_session(ASKED)
    scene.reply()
    scene.crash()
    scene.say("again")
    scene.reply(*wants("asked", arguments='{"b": 1, "a": [2]}'))
    assert scene.statuses == ["started"]


@pytest.mark.parametrize(
    "arguments",
    [
        "no JSON",
        '{"n": NaN}',
        '{"n": 1e999}',
        '{"n": 1, "n": 2}',
        '{"n": "\\ud800"}',
        '{"n": %s}' % ("1" * 4301),
        '{"n": %s}' % ("[" * 9992 + "]" * 9992),
        "[1]",
    ],
    ids=itertools.count(),
)
def test_arguments_that_cannot_be_read_are_never_asked_about(arguments: str) -> None:
    """What two readers could read in two ways is an error for the model, before a person or a policy sees it."""
    scene = Scene.started(ASKED)
    scene.reply(*wants("asked", arguments=arguments))
    assert scene.told(ApprovalRequested) == []
    (settled,) = scene.told(CallSettled)
    assert settled.call.status == "error"
    with pytest.raises(InvalidInput):
        _ = settled.call.arguments


# Deadlines


def test_a_wait_has_no_end_of_its_own() -> None:
    """Without an expiry a call waits for ever: only a person or an interrupt settles it (case 64)."""
    scene = Scene.calling(ASKED)
    assert scene.core.deadline is None
    scene.wait(7 * 86400)
    assert scene.statuses == ["asked"]


def test_an_expired_request_is_denied() -> None:
    """At its deadline a request is denied, and the model is told why (case 64)."""
    scene = Scene.calling(ToolSpec("asked", approval="always", expires=60.0))
    assert scene.core.deadline == scene.now + 60
    scene.wait(59)
    assert scene.statuses == ["asked"]
    scene.wait(1)
    assert scene.result("m2.0") == "tool denied: the approval request expired"
    assert scene.told(CallStarted) == []
    assert scene.turn.state == "streaming"


def test_an_answer_after_the_deadline_is_stale() -> None:
    """An answer that comes at the deadline or later does not count, even before the request was denied."""
    scene = Scene.calling(ToolSpec("asked", approval="always", expires=60.0))
    scene.now += 60
    refused(scene, Answer("x", ("m2.0",), "approve"), "stale")


# Ended by input


def test_a_steer_ends_a_wait() -> None:
    """When all that runs is willing to be ended by input, a steer ends it: started calls are unknown."""
    scene = Scene.calling(WAIT, ToolSpec("sleep", ends_on_input=True))
    scene.say("wake up", "steer")
    assert [text for role, text in scene.shown if role == "tool"] == [
        "execution interrupted; result unknown: after active input"
    ] * 2
    assert scene.told(MessageTaken)[0].message.text == "wake up"
    assert scene.turn.state == "streaming"


def test_a_steer_does_not_end_other_tools() -> None:
    """One running call that is not willing keeps the whole batch (case 74)."""
    scene = Scene.calling(WAIT, PLAIN)
    scene.say("wake up", "steer")
    assert scene.statuses == ["started", "started"]
    scene.done(1)
    assert scene.told(CallSettled)[-1].call.status == "unknown"


def test_a_wait_does_not_start_while_a_steer_waits() -> None:
    """A willing call that would start under a waiting steer is not run; committing again changes nothing more."""
    scene = Scene.started(WAIT)
    scene.say("hello?", "steer")
    scene.reply(*wants("wait"))
    assert scene.result("m2.0") == "not run: newer input came"
    assert scene.told(CallStarted) == []
    assert scene.turn.state == "streaming"


def test_queued_input_ends_nothing() -> None:
    """Only a steer ends a wait."""
    scene = Scene.calling(WAIT)
    scene.say("later")
    assert scene.statuses == ["started"]
