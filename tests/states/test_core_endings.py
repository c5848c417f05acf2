"""How turns are told to end, and end: section 6 of the design."""

from __future__ import annotations

import pytest

from tests.states.scene import BROKEN, Scene, wants
from turnstate_states.codec import encode_checkpoint
from turnstate_states.content import Reasoning, Text, ToolCall
from turnstate_states.errors import Refused
from turnstate_states.events import (
    ApprovalRequested,
    CallStarted,
    Replied,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStopping,
)
from turnstate_states.reports import AttemptReplied, CallDone, PolicyDecided, Stopped
from turnstate_states.rules import Limits, ToolSpec
from turnstate_states.submissions import Interrupt, Resume, Send
from turnstate_states.transcript import Usage

PLAIN = ToolSpec("plain")
ASKED = ToolSpec("asked", approval="always")
POLICY = ToolSpec("policy", approval="policy")
ALONE = ToolSpec("alone", exclusive=True)


def test_an_interrupt_is_written_before_anything_stops() -> None:
    """An accepted interrupt is a commit that writes how the turn ends; the turn ends when its activity is gone."""
    scene = Scene.started()
    scene.interrupt(reason="too slow")
    assert scene.core.stopping
    assert scene.core.activity is None
    assert scene.core.deadline is None
    assert [event.reason for event in scene.told(TurnStopping)] == ["too slow"]
    assert scene.told(TurnEnded) == []
    scene.stopped()
    (ended,) = scene.told(TurnEnded)
    assert (ended.outcome, ended.reason, ended.held) == ("interrupted", "too slow", True)


def test_the_text_that_was_seen_is_kept() -> None:
    """An interrupted attempt's text is stored as incomplete, without calls or reasoning, and its usage counts (case 69)."""
    scene = Scene.started()
    scene.interrupt()
    scene.stopped(Reasoning("hm"), Text("The rivers are"), ToolCall("", "plain", "{"), usage=Usage(7, 3))
    message = scene.last()
    assert (message.status, message.parts) == ("incomplete", (Text("The rivers are"),))
    assert scene.turn.usage == Usage(7, 3)
    scene.say("go on")
    assert scene.shown == [("user", "hi"), ("assistant", "The rivers are"), ("user", "go on")]


@pytest.mark.parametrize("text", ["", "\n\n", "  \t"])
def test_blank_text_is_not_kept(text: str) -> None:
    """An attempt that gave nothing but blanks leaves no message (cases 45 and 69)."""
    scene = Scene.started()
    scene.interrupt()
    scene.stopped(Text(text))
    assert scene.told(Replied) == []
    assert scene.shown == [("user", "hi")]


def test_a_reply_that_finished_in_the_same_instant_is_kept() -> None:
    """If it was final the turn is complete, though it was told to end."""
    scene = Scene.started()
    scene.core.report(AttemptReplied(scene.key, (Text("done"),)), now=scene.now)
    scene.core.submit(Interrupt("i1"), now=scene.now)
    scene.running = None
    scene.drive()
    assert (scene.turn.state, scene.turn.outcome, scene.held) == ("complete", "completed", False)
    assert scene.last().text == "done"


def test_a_reply_that_comes_after_the_interrupt_runs_no_call() -> None:
    """A call that the stream brings after the cancel is kept with a result that it was not run (case 67)."""
    scene = Scene.started(PLAIN)
    scene.interrupt()
    scene.reply(*wants("plain"))
    assert scene.turn.outcome == "interrupted"
    assert scene.result("m2.0") == "not run: interrupted"
    assert scene.told(CallStarted) == []
    assert len(scene.told(StepStarted)) == 1


def test_a_steer_keeps_a_reply_from_being_final() -> None:
    """With a steer waiting the turn is interrupted, the reply kept, the steer moved to the queue."""
    scene = Scene.started()
    scene.say("and", "steer")
    scene.interrupt()
    scene.reply(Text("done"))
    assert scene.turn.outcome == "interrupted"
    assert scene.last().text == "done"
    assert scene.queued == ["send2"]


def test_a_failure_after_the_interrupt_ends_the_turn() -> None:
    """An attempt that breaks while it is cancelled ends the turn as interrupted, with its text kept."""
    scene = Scene.started()
    scene.interrupt()
    scene.fail(BROKEN, Text("half"))
    assert (scene.turn.outcome, scene.last().text) == ("interrupted", "half")
    assert [event.outcome for event in scene.told(StepEnded)] == ["failed"]


def test_interrupted_calls_have_one_result_each() -> None:
    """What had begun is unknown, what never began was not run, a known result stays (cases 35 and 58)."""
    scene = Scene.calling(PLAIN, ToolSpec("other"), ToolSpec("third"), ASKED, ALONE)
    scene.done(0)
    scene.interrupt()
    scene.report(CallDone(scene.key, "m2.1", "ok", "just in time"))
    scene.stopped()
    assert [scene.result(f"m2.{at}") for at in range(5)] == [
        "a result",
        "just in time",
        "execution interrupted; result unknown: interrupted",
        "not run: interrupted",
        "not run: interrupted",
    ]


def test_a_started_call_that_never_began_was_not_run() -> None:
    """The one that had the right to begin a call may say that it did not."""
    scene = Scene.calling(PLAIN, ToolSpec("other"))
    scene.interrupt()
    scene.stopped(not_begun=("m2.1",))
    assert scene.result("m2.0") == "execution interrupted; result unknown: interrupted"
    assert scene.result("m2.1") == "not run: interrupted"


def test_a_verdict_after_the_interrupt_begins_nothing() -> None:
    """No request for approval and no call follows an accepted interrupt, whatever a policy says."""
    scene = Scene.calling(POLICY, PLAIN)
    scene.interrupt()
    before = encode_checkpoint(scene.core.checkpoint)
    for verdict in ("allow", "ask", "deny"):
        assert not scene.core.report(PolicyDecided(scene.key, "m2.0", verdict), now=scene.now)
    assert encode_checkpoint(scene.core.checkpoint) == before
    scene.done(1)
    scene.stopped()
    assert scene.told(ApprovalRequested) == []
    assert scene.result("m2.0") == "not run: interrupted"


def test_an_interrupt_during_a_back_off_ends_the_turn_at_once() -> None:
    """Where nothing runs, both happen in one commit (case 78)."""
    scene = Scene.started()
    scene.fail()
    sequence = scene.core.checkpoint.sequence
    scene.interrupt()
    assert scene.core.checkpoint.sequence == sequence + 1
    assert (scene.turn.closed, scene.core.deadline) == (True, None)
    assert len(scene.told(StepStarted)) == 1


def test_an_interrupt_of_a_turn_that_just_began() -> None:
    """Message and interrupt at one instant: the turn begins and ends, and no request is made."""
    scene = Scene.of()
    scene.core.submit(Send("send1", (Text("hi"),)), now=scene.now)
    scene.core.submit(Interrupt("i1"), now=scene.now)
    scene.drive()
    assert scene.turn.outcome == "interrupted"
    assert scene.told(StepStarted) == []


@pytest.mark.parametrize("turn", ["t0", "t2", ""])
def test_an_interrupt_of_another_turn_is_stale(turn: str) -> None:
    """An interrupt may name the turn that it means."""
    scene = Scene.started()
    before = encode_checkpoint(scene.core.checkpoint)
    with pytest.raises(Refused) as caught:
        scene.core.submit(Interrupt("i1", turn), now=scene.now + 1)
    assert caught.value.code == "stale"
    assert encode_checkpoint(scene.core.checkpoint) == before
    scene.interrupt(turn="t1")
    assert scene.core.stopping


def test_a_second_interrupt_changes_nothing() -> None:
    """It is accepted, and the first one's reason stands."""
    scene = Scene.started()
    scene.interrupt(reason="first")
    scene.interrupt(reason="second")
    assert len(scene.told(TurnStopping)) == 1
    scene.stopped()
    assert scene.turn.reason == "first"


def test_stopped_counts_once_and_only_when_told() -> None:
    """A report that an activity is gone means nothing unless the turn was told to end."""
    scene = Scene.started()
    assert not scene.core.report(Stopped("t1"), now=scene.now)
    scene.interrupt()
    assert not scene.core.report(Stopped("t0"), now=scene.now)
    scene.stopped()
    assert not scene.core.report(Stopped("t1"), now=scene.now)


def test_usage_of_hooks_that_were_cut_is_kept() -> None:
    """Of a phase that was cut only usage stays."""
    scene = Scene.started(before_model=True)
    scene.interrupt()
    scene.stopped(usage=Usage(4))
    assert scene.turn.usage == Usage(4)


def test_time_over_ends_the_turn_cleanly() -> None:
    """The time limit stops what runs, as an interrupt does, and can be resumed with fresh counts."""
    scene = Scene.calling(PLAIN, limits=Limits(seconds=5))
    scene.wait(5)
    assert scene.core.stopping
    scene.stopped()
    reason = "the turn reached its limit of 5 seconds"
    assert (scene.turn.outcome, scene.result("m2.0")) == ("limit", f"execution interrupted; result unknown: {reason}")
    scene.submit(Resume("r1"))
    assert (scene.turn.worked, scene.turn.state) == (0.0, "streaming")


def test_nothing_starts_by_itself_after_a_stop() -> None:
    """Two queued messages and a stop: no request is made, both are still there (case 82)."""
    scene = Scene.started()
    scene.say("one")
    scene.say("two")
    scene.interrupt()
    scene.stopped()
    scene.crash()
    scene.wait(1000)
    assert len(scene.told(StepStarted)) == 1
    assert scene.queued == ["send2", "send3"]
