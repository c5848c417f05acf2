"""A message that ends the running turn and starts the next one, in every state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.states.scene import Scene, wants
from turnstate_states.content import Text
from turnstate_states.events import (
    CallSettled,
    CallStarted,
    MessageQueued,
    MessageTaken,
    Replied,
    StepStarted,
    TurnEnded,
    TurnStarted,
)
from turnstate_states.reports import AttemptReplied, CallDone, Closed, PolicyDecided, Prepared, Stopped
from turnstate_states.rules import Limits, ToolSpec
from turnstate_states.submissions import Edit, EditQueued, RemoveQueued, Send
from turnstate_states.turn import Failure

PLAIN = ToolSpec("plain")
ASKED = ToolSpec("asked", approval="always")
POLICY = ToolSpec("policy", approval="policy")
ALONE = ToolSpec("alone", exclusive=True)
OUTSIDE = ToolSpec("outside", outside=True)


def streaming(**more: Any) -> Scene:
    """The model streams."""
    return Scene.started(PLAIN, **more)


def preparing(**more: Any) -> Scene:
    """Hooks run before a request."""
    return Scene.started(before_model=True, **more)


def reviewing(**more: Any) -> Scene:
    """Hooks run after a reply."""
    scene = Scene.started(PLAIN, after_model=True, **more)
    scene.reply(*wants("plain"))
    return scene


def executing(**more: Any) -> Scene:
    """One tool runs, one has not begun, a policy decides on one."""
    return Scene.calling(PLAIN, POLICY, ALONE, **more)


def backing_off(**more: Any) -> Scene:
    """The turn waits for the next attempt."""
    scene = Scene.started(**more)
    scene.fail()
    return scene


def awaiting(**more: Any) -> Scene:
    """One call waits for a person, one for somebody outside."""
    return Scene.calling(ASKED, OUTSIDE, **more)


WORKING = (streaming, preparing, reviewing, executing)
RESTING = (backing_off, awaiting)


def end(scene: Scene) -> None:
    """Whatever runs of the turn stops."""
    if scene.core.stopping:
        scene.stopped()
    if scene.core.activity is not None and scene.core.activity.kind == "closing":
        scene.closed()
    if scene.core.activity is not None and scene.core.activity.kind == "prepare":
        scene.prepared()


@pytest.mark.parametrize("make", WORKING)
def test_it_ends_the_turn_when_that_is_gone(make: Callable[[], Scene]) -> None:
    """The turn is told to end; when nothing of it runs any more it has ended as superseded and the message starts."""
    scene = make()
    receipt = scene.say("rather this", "supersede")
    assert scene.core.stopping
    assert scene.core.activity is None
    assert scene.queued == [receipt.id]
    assert scene.told(MessageQueued)[-1].delivery == "supersede"
    end(scene)
    (ended,) = scene.told(TurnEnded)
    assert (ended.outcome, ended.reason, ended.held) == ("superseded", "superseded by a new message", False)
    started = scene.told(TurnStarted)[-1]
    assert (started.turn, started.cause) == ("t2", receipt.id)
    assert scene.shown[-1] == ("user", "rather this")
    assert scene.turn.state == "streaming"


@pytest.mark.parametrize("make", RESTING)
def test_it_ends_a_turn_that_rests_at_once(make: Callable[[], Scene]) -> None:
    """Where nothing runs, the end and the next start are one commit."""
    scene = make()
    commits = len(scene.written)
    scene.say("rather this", "supersede")
    assert len(scene.written) == commits + 1
    assert scene.told(TurnEnded)[0].outcome == "superseded"
    assert scene.turn.id == "t2"
    assert scene.turn.state == "streaming"


def test_it_starts_a_turn_where_none_runs() -> None:
    """Without a turn it is a message like any other."""
    scene = Scene.of()
    assert scene.say("go", "supersede").turn == "t1"
    scene.reply()
    assert scene.say("go on", "supersede").turn == "t2"
    assert scene.told(MessageQueued) == []


def test_open_calls_are_settled_as_they_began() -> None:
    """What began is unknown, what did not was not run; a result that came in time is kept."""
    scene = Scene.calling(PLAIN, ToolSpec("second"), POLICY, ASKED, ALONE, ToolSpec("third"))
    scene.done(0)
    scene.say("rather this", "supersede")
    scene.stopped()
    texts = [scene.result(f"m2.{at}") for at in range(6)]
    because = "superseded by a new message"
    assert texts == [
        "a result",
        f"execution interrupted; result unknown: {because}",
        *[f"not run: {because}"] * 4,
    ]
    assert [event.call.tool for event in scene.told(CallStarted)] == ["plain", "second"]


def test_a_call_that_never_began_was_not_run() -> None:
    """A call that the activity had not begun when it stopped was not run."""
    scene = Scene.calling(PLAIN)
    scene.say("rather this", "supersede")
    scene.stopped(not_begun=("m2.0",))
    assert scene.result("m2.0") == "not run: superseded by a new message"


def test_what_runs_outside_is_unknown() -> None:
    """A call whose result somebody outside was asked for may have happened there."""
    scene = awaiting()
    scene.say("rather this", "supersede")
    assert [event.call.status for event in scene.told(CallSettled)] == ["not-run", "unknown"]


def test_text_that_was_seen_is_kept() -> None:
    """What the model had said is an incomplete message, and the next request shows it."""
    scene = streaming()
    scene.say("rather this", "supersede")
    scene.stopped(Text("The rivers"))
    assert scene.told(Replied)[0].message.status == "incomplete"
    assert scene.shown == [("user", "hi"), ("assistant", "The rivers"), ("user", "rather this")]


def test_a_reply_that_was_final_stands() -> None:
    """A final reply of the same instant is kept and completes its turn; the message starts next."""
    scene = streaming()
    assert scene.core.report(AttemptReplied(scene.key, (Text("done"),)), now=scene.now)
    scene.running = None
    scene.say("rather this", "supersede")
    assert [event.outcome for event in scene.told(TurnEnded)] == ["completed"]
    assert scene.shown == [("user", "hi"), ("assistant", "done"), ("user", "rather this")]


# Order


@pytest.mark.parametrize("make", [*WORKING, *RESTING])
@pytest.mark.parametrize("hooks", [False, True])
def test_it_comes_before_all_that_waits(make: Callable[..., Scene], hooks: bool) -> None:
    """It starts next, before steers of the ended turn, and those before queued messages, in the order they came."""
    scene = make(turn_ended=hooks)
    first = scene.say("first")
    steer = scene.say("a steer", "steer")
    scene.say("rather this", "supersede")
    end(scene)
    assert scene.shown[-1] == ("user", "rather this")
    assert scene.queued == [steer.id, first.id]
    assert not scene.held


def test_what_is_queued_later_does_not_overtake() -> None:
    """A message queued after the superseding one waits behind those that were queued before it."""
    scene = streaming()
    first = scene.say("first")
    scene.say("rather this", "supersede")
    second = scene.say("second")
    scene.stopped()
    assert scene.shown[-1] == ("user", "rather this")
    assert scene.queued == [first.id, second.id]


@pytest.mark.parametrize("hooks", [False, True])
def test_what_steers_after_it_joins_its_turn(hooks: bool) -> None:
    """A second superseding message and a steer that come before the turn has ended belong to the first one's turn."""
    scene = streaming(turn_ended=hooks)
    scene.say("queued")
    scene.say("rather this", "supersede")
    scene.say("no, this", "supersede")
    scene.say("and quickly", "steer")
    end(scene)
    assert [text for role, text in scene.shown if role == "user"] == ["hi", "rather this", "no, this", "and quickly"]
    assert [event.turn for event in scene.told(MessageTaken)] == ["t2", "t2"]
    assert scene.queued == ["send2"]
    assert scene.turn.id == "t2"
    assert len(scene.told(StepStarted)) == 2


def test_it_comes_while_the_turn_is_being_closed() -> None:
    """Also when the turn has ended already and its hooks run, it starts next; a second one joins it."""
    scene = Scene.started(turn_ended=True)
    scene.say("queued")
    scene.reply()
    scene.say("rather this", "supersede")
    scene.say("no, this", "supersede")
    assert scene.told(TurnEnded) == []
    scene.closed()
    assert scene.told(TurnEnded)[0].outcome == "completed"
    assert [text for role, text in scene.shown if role == "user"] == ["hi", "rather this", "no, this"]
    assert scene.queued == ["send2"]


def test_it_comes_while_a_change_of_the_thread_waits() -> None:
    """The change was accepted before: its turn comes first, the message next, and what steers in that turn is its own."""
    scene = Scene.calling(ASKED, turn_ended=True)
    scene.edit("m1", "otherwise")
    scene.say("rather this", "supersede")
    scene.closed()
    assert scene.shown == [("user", "otherwise")]
    scene.say("a steer", "steer")
    scene.interrupt()
    scene.stopped()
    scene.closed()
    assert scene.queued == ["send4", "send3"]
    assert (scene.steers, scene.held) == ([], True)


def test_it_ends_a_turn_that_came_before_another_one() -> None:
    """A message that supersedes does not join one that waits behind the running turn."""
    scene = Scene.started(turn_ended=True)
    scene.reply()
    scene.say("rather this", "supersede")
    assert scene.core.report(Closed(scene.key), now=scene.now)
    scene.core.submit(Edit("e1", "m1", (Text("otherwise"),)), now=scene.now)
    scene.running = None
    scene.drive()
    assert scene.shown == [("user", "otherwise")]
    assert scene.queued == ["send2"]
    scene.say("no, this", "supersede")
    scene.stopped()
    scene.closed()
    assert scene.told(TurnEnded)[-1].outcome == "superseded"
    assert scene.shown == [("user", "otherwise"), ("user", "no, this")]


def test_it_releases_a_held_session_and_starts_first() -> None:
    """After an interrupt it starts at once, before what was held."""
    scene = streaming()
    scene.say("queued")
    scene.interrupt()
    scene.stopped()
    assert scene.held
    scene.say("rather this", "supersede")
    assert scene.shown[-1] == ("user", "rather this")
    assert scene.queued == ["send2"]
    assert not scene.held


def test_it_comes_after_an_interrupt() -> None:
    """A turn that was told to end otherwise ends so; the message starts next, as whoever wrote it wanted."""
    scene = streaming()
    scene.say("queued")
    scene.say("steer", "steer")
    scene.interrupt()
    scene.say("rather this", "supersede")
    scene.say("no, this", "supersede")
    scene.stopped()
    assert scene.told(TurnEnded)[0].outcome == "interrupted"
    assert [text for role, text in scene.shown if role == "user"] == ["hi", "rather this", "no, this"]
    assert scene.queued == ["send3", "send2"]


def test_an_interrupt_after_it_changes_nothing() -> None:
    """The turn is ending already; the message still starts."""
    scene = streaming()
    scene.say("rather this", "supersede")
    assert scene.interrupt().turn == "t1"
    scene.stopped()
    assert scene.told(TurnEnded)[0].outcome == "superseded"
    assert scene.turn.id == "t2"


def test_an_attempt_that_fails_in_the_end() -> None:
    """A failure of an attempt that was told to end does not hold the session."""
    scene = streaming()
    scene.say("rather this", "supersede")
    scene.fail(Failure("server", "it broke"), Text("half"))
    assert scene.told(TurnEnded)[0].outcome == "superseded"
    assert scene.turn.id == "t2"


def test_it_can_be_changed_and_taken_back() -> None:
    """As long as it waits it can be edited; where it is removed the turn ends all the same, and what waits goes on."""
    scene = streaming()
    scene.say("queued")
    scene.say("rather this", "supersede")
    scene.say("joins", "steer")
    scene.submit(EditQueued("e1", "send3", (Text("rather THIS"),)))
    scene.crash()
    assert scene.shown[-2:] == [("user", "rather THIS"), ("user", "joins")]
    scene = streaming()
    scene.say("queued")
    scene.say("rather this", "supersede")
    scene.submit(RemoveQueued("r1", "send3"))
    scene.stopped()
    assert scene.told(TurnEnded)[0].outcome == "superseded"
    assert scene.shown[-1] == ("user", "queued")


def test_what_joined_a_message_that_was_taken_back() -> None:
    """It goes on by itself: nothing that was accepted is lost with the message that it was to join."""
    scene = streaming(turn_ended=True)
    scene.say("rather this", "supersede")
    scene.say("and this", "steer")
    scene.stopped()
    scene.submit(RemoveQueued("r1", "send2"))
    scene.closed()
    assert scene.shown[-1] == ("user", "and this")
    assert (scene.turn.id, scene.turn.cause, scene.steers) == ("t2", "send3", [])


@pytest.mark.parametrize("make", RESTING)
def test_nobody_need_report_that_nothing_runs(make: Callable[[], Scene]) -> None:
    """Where there is no activity the core ends the turn without being told that it stopped."""
    scene = make()
    scene.core.submit(Send("send9", (Text("rather this"),), "supersede"), now=scene.now)
    assert scene.core.stopping
    scene.core.tick(scene.now + 100)
    commit = scene.core.commit(scene.now)
    assert commit is not None
    assert [event.outcome for event in commit.events if isinstance(event, TurnEnded)] == ["superseded"]
    assert scene.turn.id == "t2"


def test_the_capacity_holds() -> None:
    """A message that there is no room for is refused, and the turn goes on."""
    scene = streaming(limits=Limits(queue=1))
    scene.say("queued")
    scene.refuse(Send("x", (Text("rather this"),), "supersede"), "full")
    assert not scene.core.stopping


# Late facts, and crashes


@pytest.mark.parametrize("make", WORKING)
def test_late_reports_change_nothing(make: Callable[[], Scene]) -> None:
    """Verdicts and preparations of a turn that is to end begin nothing; of one that is over, nothing counts."""
    scene = make()
    key = scene.key
    scene.say("rather this", "supersede")
    late = PolicyDecided(key, "m2.1", "allow")
    scene.ignored(late)
    end(scene)
    for report in (late, CallDone(key, "m2.0", "ok", "late"), AttemptReplied(key, ()), Prepared(key), Stopped("t1")):
        scene.ignored(report)


@pytest.mark.parametrize("make", [*WORKING, *RESTING])
@pytest.mark.parametrize("hooks", [False, True])
def test_a_crash_at_any_point(make: Callable[..., Scene], hooks: bool) -> None:
    """Whenever the process dies after the message was accepted, it ends the turn and starts, once."""
    for crashes in (1, 2, 3):
        scene = make(turn_ended=hooks)
        scene.say("queued")
        scene.say("rather this", "supersede")
        for _ in range(crashes):
            scene.crash()
        end(scene)
        if scene.turn.id == "t1":
            scene.closed()
        end(scene)
        assert scene.turn.id == "t2"
        assert scene.told(TurnEnded)[0].outcome == "superseded"
        assert [event.cause for event in scene.told(TurnStarted)] == ["send1", "send3"]
        assert ("user", "rather this") in scene.shown
        assert scene.queued == ["send2"]
