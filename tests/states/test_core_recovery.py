"""What each stored state means when the process that made it is gone: section 9 of the design, row by row."""

from __future__ import annotations

import attrs
import pytest

from tests.states.scene import Scene, rules, wants
from turnstate_states.codec import encode_checkpoint
from turnstate_states.content import Text, ToolCall
from turnstate_states.events import (
    ApprovalRequested,
    CallSettled,
    CallStarted,
    Replied,
    StepEnded,
    StepStarted,
    TurnEnded,
)
from turnstate_states.reports import Activity, AttemptReplied, CallChecked, Effects
from turnstate_states.rules import Bound, Limits, ToolSpec
from turnstate_states.submissions import Interrupt, Send
from turnstate_states.transcript import Usage

PLAIN = ToolSpec("plain")
ASKED = ToolSpec("asked", approval="always")
RERUN = ToolSpec("rerun", on_crash="rerun")
CHECK = ToolSpec("check", on_crash="check")
POLICY = ToolSpec("policy", approval="policy")

UNKNOWN = "execution interrupted; result unknown: after restart"


def never_fits(_: str) -> Bound:
    """What is wrong with any arguments."""
    return Bound("n: missing")


def unchanged(scene: Scene) -> None:
    """A crash, and going on, change nothing that is stored."""
    before, told = encode_checkpoint(scene.core.checkpoint), len(scene.log)
    scene.crash()
    assert encode_checkpoint(scene.core.checkpoint) == before
    assert len(scene.log) == told


def test_no_turn() -> None:
    """Nothing happens where there was no turn, or a final one."""
    unchanged(Scene.of())
    scene = Scene.started()
    scene.reply()
    unchanged(scene)


def test_a_held_session_stays_held() -> None:
    """Queued messages of a held session wait on."""
    scene = Scene.started()
    scene.say("later")
    scene.interrupt()
    scene.stopped()
    unchanged(scene)
    assert scene.queued == ["send2"]


def test_a_queued_message_starts_the_next_turn() -> None:
    """A message that waits behind a final turn starts, unless the session is held."""
    scene = Scene.started(turn_ended=True)
    scene.say("next", settings={"a": 1})
    scene.reply()
    scene.crash(rules=rules())
    assert (scene.turn.id, scene.turn.settings, scene.last().text) == ("t2", {"a": 1}, "next")


def test_before_model() -> None:
    """Hooks run again, from the stored context, and the pass is counted from the first."""
    scene = Scene.started(before_model=True)
    scene.say("and", "steer")
    scene.prepared(effects=Effects(messages=("void",)))
    assert scene.core.activity == Activity("prepare", "t1", 1, 1, 2)
    scene.crash()
    assert scene.core.activity == Activity("prepare", "t1", 1, 1, 1)
    scene.prepared()
    assert scene.shown == [("user", "hi"), ("user", "and")]


def test_a_back_off_goes_on() -> None:
    """The time of the next attempt is stored."""
    scene = Scene.started()
    scene.fail()
    deadline = scene.core.deadline
    scene.crash(0.1)
    assert scene.core.deadline == deadline
    scene.wait(10)
    assert scene.turn.attempt_id == "t1.1.2"


def test_streaming() -> None:
    """The attempt is closed as interrupted and the step retried; the output of the old one is void."""
    scene = Scene.started()
    scene.say("and", "steer")
    scene.crash()
    assert [(event.attempt, event.outcome) for event in scene.told(StepEnded)] == [("t1.1.1", "interrupted")]
    assert [event.attempt for event in scene.told(StepStarted)] == ["t1.1.1", "t1.1.2"]
    assert scene.told(Replied) == []
    assert scene.shown == [("user", "hi"), ("user", "and")]
    assert scene.turn.steps == 1


def test_a_reply_that_kills_the_process_cannot_loop() -> None:
    """After so many resumptions of a step the turn fails; another step starts from none."""
    scene = Scene.started(PLAIN, limits=Limits(resumptions=2))
    scene.crash()
    scene.crash()
    scene.reply(*wants("plain"))
    scene.done(0)
    for _ in range(3):
        assert scene.turn.state == "streaming"
        scene.crash()
    assert (scene.turn.outcome, scene.turn.reason) == ("failed", "the process ended in 3 attempts of this step")
    assert scene.turn.error is not None
    assert scene.turn.error.kind == "resumptions"


def test_streaming_with_a_stored_reply() -> None:
    """Only the hooks after the reply run again; no other request is made."""
    scene = Scene.started(PLAIN, after_model=True)
    scene.reply(*wants("plain"))
    scene.crash()
    assert scene.core.activity == Activity("stream", "t1", 1, 1)
    assert scene.turn.reply == "m2"
    scene.reviewed()
    assert scene.statuses == ["started"]
    assert len(scene.told(StepStarted)) == 1


def test_a_started_call_is_unknown() -> None:
    """A call that may have had its effect is never begun again; siblings' results stay (cases 36 and 83)."""
    scene = Scene.calling(PLAIN, ToolSpec("other"))
    scene.done(0)
    scene.crash()
    assert [scene.result(f"m2.{at}") for at in range(2)] == ["a result", UNKNOWN]
    assert scene.turn.state == "streaming"
    assert len(scene.told(CallStarted)) == 2


def test_an_idempotent_call_is_run_again() -> None:
    """``on_crash="rerun"``: the call is started a second time, under the same id."""
    scene = Scene.calling(RERUN)
    scene.crash()
    assert [(event.call.id, event.call.began) for event in scene.told(CallStarted)] == [("m2.0", 1), ("m2.0", 2)]
    scene.interrupt()
    scene.stopped(not_begun=("m2.0",))
    assert scene.result("m2.0") == "execution interrupted; result unknown: interrupted"


def test_a_check_finds_the_result() -> None:
    """``on_crash="check"``: a look at the world gives the result, and the call is not run again."""
    scene = Scene.calling(CHECK)
    scene.crash()
    assert scene.statuses == ["checking"]
    assert scene.turn.state == "executing-tools"
    scene.crash()
    assert scene.statuses == ["checking"]
    assert scene.core.report(CallChecked(scene.key, "m2.0", "it is there"), now=scene.now)
    scene.drive()
    assert scene.result("m2.0") == "it is there"
    assert len(scene.told(CallStarted)) == 1


def test_a_check_finds_that_nothing_happened() -> None:
    """Then the call is run; it counts as never begun before."""
    scene = Scene.calling(CHECK)
    scene.crash()
    scene.ledger.cleared.add("m2.0")
    assert scene.core.report(CallChecked(scene.key, "m2.0", None), now=scene.now)
    scene.drive()
    assert scene.statuses == ["started"]
    scene.interrupt()
    scene.stopped(not_begun=("m2.0",))
    assert scene.result("m2.0") == "not run: interrupted"


def test_a_check_that_is_interrupted_is_unknown() -> None:
    """A call that is looked after may have had its effect; also where the interrupt comes before anything is written."""
    scene = Scene.calling(CHECK)
    scene.running = None
    scene.core = scene.restored()
    scene.core.resume(scene.now)
    scene.core.submit(Interrupt("i1"), now=scene.now)
    scene.drive()
    assert scene.turn.outcome == "interrupted"
    assert scene.told(CallSettled)[0].call.status == "unknown"


def test_awaiting_approval() -> None:
    """The same calls are open and can be asked for; no event is told again; nothing runs (cases 57 and 60)."""
    scene = Scene.calling(ASKED)
    calls = scene.calls
    unchanged(scene)
    assert scene.calls == calls
    assert scene.core.activity is None
    scene.answer("approve", 0)
    assert scene.statuses == ["started"]


def test_a_decision_stands() -> None:
    """An approved call that did not start yet starts; the decided and finished ones are not asked again (case 57)."""
    scene = Scene.calling(PLAIN, ToolSpec("gate", approval="always", exclusive=True))
    scene.answer("approve", 1)
    assert scene.statuses == ["started", "allowed"]
    scene.crash()
    assert scene.statuses == ["unknown", "started"]
    assert len(scene.told(ApprovalRequested)) == 1


def test_a_request_that_expired_meanwhile_is_denied() -> None:
    """On resuming, deadlines that have passed take effect."""
    scene = Scene.calling(ToolSpec("asked", approval="always", expires=60.0))
    scene.crash(60)
    assert scene.result("m2.0") == "tool denied: the approval request expired"
    assert scene.turn.state == "streaming"


def test_a_policy_is_asked_again_only_where_it_had_not_decided() -> None:
    """A proposed call waits for its verdict; a given verdict is stored (case 57)."""
    scene = Scene.started(PLAIN, POLICY)
    scene.reply(*wants("policy", "policy"))
    scene.decide(0, "ask")
    scene.crash()
    assert scene.statuses == ["asked", "proposed"]


def test_a_verdict_may_be_tightened_never_widened() -> None:
    """What is declared now may ask for a person where it did not before; an asked call stays asked."""
    scene = Scene.calling(ToolSpec("first", exclusive=True), PLAIN, ASKED)
    assert scene.statuses == ["started", "allowed", "asked"]
    now = rules(ToolSpec("first"), attrs.evolve(PLAIN, approval="always"), attrs.evolve(ASKED, approval="never"))
    scene.crash(rules=now)
    assert scene.statuses == ["unknown", "asked", "asked"]


def test_a_turn_that_was_told_to_end() -> None:
    """Started calls are unknown, the others not run, and it ends as it was told to."""
    scene = Scene.calling(PLAIN, ToolSpec("gate", exclusive=True))
    scene.interrupt(reason="enough")
    scene.crash()
    assert scene.result("m2.0") == "execution interrupted; result unknown: enough"
    assert scene.result("m2.1") == "not run: enough"
    assert (scene.turn.outcome, scene.turn.reason) == ("interrupted", "enough")


def test_an_attempt_that_was_told_to_end() -> None:
    """A streaming turn that was told to end is not retried."""
    scene = Scene.started()
    scene.interrupt()
    scene.crash()
    assert scene.turn.outcome == "interrupted"
    assert len(scene.told(StepStarted)) == 1


def test_a_final_turn_that_is_not_closed() -> None:
    """The closing activity runs; its end is told once."""
    scene = Scene.started(turn_ended=True)
    scene.reply()
    scene.crash()
    assert scene.core.activity == Activity("closing", "t1")
    assert scene.told(TurnEnded) == []
    scene.closed()
    assert len(scene.told(TurnEnded)) == 1


def test_a_tool_that_no_longer_exists() -> None:
    """Calls of it that did not start settle as errors, started ones as unknown; the turn goes on."""
    scene = Scene.calling(ToolSpec("gone", exclusive=True), ToolSpec("also"), ToolSpec("third", approval="always"))
    scene.crash(rules=rules(PLAIN))
    assert scene.result("m2.0") == UNKNOWN
    assert scene.result("m2.1") == "unknown tool also; available: plain"
    assert scene.result("m2.2") == "unknown tool third; available: plain"
    assert scene.turn.state == "streaming"


def test_arguments_that_no_longer_fit() -> None:
    """A waiting call whose arguments do not fit any more settles as an error; the turn goes on."""
    scene = Scene.calling(ASKED)
    scene.crash(rules=rules(attrs.evolve(ASKED, bind=never_fits)))
    assert scene.result("m2.0") == "n: missing"
    assert scene.turn.state == "streaming"


def test_an_accepted_message_survives() -> None:
    """Text, settings and edits of waiting messages come back from the log (case 71)."""
    scene = Scene.started()
    scene.submit(Send("send2", (Text("\u00fcber"),), settings={"n": [1]}))
    scene.crash()
    (item,) = scene.core.checkpoint.queue
    assert (item.parts, item.settings) == ((Text("\u00fcber"),), {"n": [1]})


def test_arguments_survive_byte_for_byte() -> None:
    """A waiting call has its arguments as the model sent them."""
    sent = '{ "n":1.0,\n"m": 2, "k": "\\u00e9" }'
    scene = Scene.started(ASKED)
    scene.reply(ToolCall("", "asked", sent))
    scene.crash()
    assert scene.calls[0].proposed == sent


def test_counts_and_usage_survive() -> None:
    """A crash neither loses nor doubles what was counted (case 91)."""
    scene = Scene.calling(PLAIN)
    scene.crash()
    scene.report(AttemptReplied(scene.key, (Text("done"),), usage=Usage(1, 1), model="m"))
    ended = scene.told(TurnEnded)[0]
    assert (ended.steps, ended.attempts, ended.calls, ended.failed_calls) == (2, 2, 1, 1)
    assert ended.usage == Usage(1, 1)


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_time_never_runs_backwards(seconds: float) -> None:
    """A clock that was set back does not take events back in time."""
    scene = Scene.started(PLAIN)
    scene.crash(-seconds)
    scene.reply(*wants("plain"))
    times = [event.at for event in scene.log]
    assert times == sorted(times)
    assert scene.turn.worked >= 0
