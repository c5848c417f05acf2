"""What messages do in each state of a session: sections 6 and 4 of the design."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.states.scene import BROKEN, Scene, wants
from turnstate_states.codec import encode_checkpoint
from turnstate_states.content import Image, Text
from turnstate_states.errors import InvalidInput, RefusalCode, Refused
from turnstate_states.events import (
    MessageEdited,
    MessageQueued,
    MessageRemoved,
    MessageTaken,
    StepStarted,
    TurnEnded,
    TurnStarted,
)
from turnstate_states.reports import CallDone
from turnstate_states.rules import Limits, ToolSpec
from turnstate_states.submissions import (
    Answer,
    EditQueued,
    Interrupt,
    RemoveQueued,
    Resume,
    RevokeGrant,
    Send,
    Submission,
)
from turnstate_states.turn import Failure

PLAIN = ToolSpec("plain")
ASKED = ToolSpec("asked", approval="always")


def refused(scene: Scene, submission: Submission, code: RefusalCode) -> None:
    """The submission is refused with this code, and nothing changes."""
    before = encode_checkpoint(scene.core.checkpoint)
    with pytest.raises(Refused) as caught:
        scene.core.submit(submission, now=scene.now + 5)
    assert caught.value.code == code
    assert encode_checkpoint(scene.core.checkpoint) == before
    assert scene.core.commit(scene.now + 5) is None


def no_turn() -> Scene:
    """Nobody has said anything."""
    return Scene.of()


def over() -> Scene:
    """A turn has completed."""
    scene = Scene.started()
    scene.reply()
    return scene


def held() -> Scene:
    """A turn was interrupted."""
    scene = Scene.started()
    scene.interrupt()
    scene.stopped()
    return scene


def streaming() -> Scene:
    """The model streams."""
    return Scene.started()


def executing() -> Scene:
    """A tool runs."""
    return Scene.calling(PLAIN)


def backing_off() -> Scene:
    """The turn waits for the next attempt."""
    scene = Scene.started()
    scene.fail()
    return scene


def awaiting() -> Scene:
    """A call waits for a person."""
    return Scene.calling(ASKED)


IDLE = (no_turn, over, held)
ACTIVE = (streaming, executing, backing_off, awaiting)


@pytest.mark.parametrize("make", IDLE)
@pytest.mark.parametrize("delivery", ["queue", "steer"])
def test_a_message_starts_a_turn_where_none_runs(make: Callable[[], Scene], delivery: str) -> None:
    """Without a turn, any message starts one, and releases a held session."""
    scene = make()
    turns = scene.core.checkpoint.turns
    receipt = scene.say("go", "steer" if delivery == "steer" else "queue")
    assert receipt.turn == scene.turn.id == f"t{turns + 1}"
    assert scene.turn.state == "streaming"
    assert not scene.held
    assert scene.told(TurnStarted)[-1].cause == receipt.id


@pytest.mark.parametrize("make", ACTIVE)
def test_a_queued_message_waits_for_the_turn(make: Callable[[], Scene]) -> None:
    """While a turn is active a queued message waits, and nothing else changes."""
    scene = make()
    state = scene.turn.state
    receipt = scene.say("later")
    assert receipt.turn == ""
    assert scene.queued == [receipt.id]
    assert scene.turn.state == state
    assert scene.told(MessageQueued)[-1].delivery == "queue"


@pytest.mark.parametrize("make", ACTIVE)
def test_a_steer_joins_the_turn(make: Callable[[], Scene]) -> None:
    """While a turn is active a steer is kept for its next request."""
    scene = make()
    state = scene.turn.state
    receipt = scene.say("mind the gap", "steer")
    assert receipt.turn == scene.turn.id
    assert scene.steers == [receipt.id]
    assert scene.turn.state == state


def test_a_queued_message_starts_the_next_turn() -> None:
    """When the turn is complete, the oldest message that waits starts the next, with its own settings."""
    scene = Scene.started()
    scene.say("second", settings={"tone": "dry"})
    scene.say("third")
    scene.reply()
    assert scene.turn.id == "t2"
    assert scene.turn.settings == {"tone": "dry"}
    assert scene.queued == ["send3"]
    assert scene.last().text == "second"


def test_a_steer_asks_for_one_more_step() -> None:
    """A steer that came while the final answer was streamed makes one more step of the same turn (case 71)."""
    scene = Scene.started()
    receipt = scene.say("also this", "steer")
    scene.reply(Text("an answer"))
    assert scene.turn.id == "t1"
    assert (scene.turn.step, scene.turn.state) == (2, "streaming")
    assert scene.shown[-2:] == [("assistant", "an answer"), ("user", "also this")]
    assert scene.told(MessageTaken)[-1].id == receipt.id


def test_a_steer_waits_for_the_whole_batch() -> None:
    """A steer during tools stands after all results of the batch, never between call and result (cases 40 and 74)."""
    scene = Scene.calling(PLAIN, ToolSpec("other"))
    scene.say("mind the gap", "steer")
    scene.done(1)
    assert [role for role, _ in scene.shown] == ["user", "assistant", "tool", "tool"]
    scene.done(0)
    assert [role for role, _ in scene.shown] == ["user", "assistant", "tool", "tool", "user"]
    assert scene.turn.state == "streaming"


def test_steers_and_queue_go_their_own_ways() -> None:
    """Steers go into the running turn, queued messages into later ones, both in the order of acceptance (case 75)."""
    scene = Scene.started()
    for text, delivery in (("q1", "queue"), ("s1", "steer"), ("q2", "queue"), ("s2", "steer")):
        scene.say(text, "steer" if delivery == "steer" else "queue")
    scene.reply()
    assert [text for _, text in scene.shown] == ["hi", "done", "s1", "s2"]
    for _ in range(3):
        scene.reply()
    assert [text for role, text in scene.shown if role == "user"] == ["hi", "s1", "s2", "q1", "q2"]
    assert scene.told(TurnEnded)[-1].turn == "t3"


@pytest.mark.parametrize("make", [streaming, executing, backing_off])
def test_steers_of_an_interrupted_turn_go_to_the_front_of_the_queue(make: Callable[[], Scene]) -> None:
    """What an interrupted turn did not take is kept, before what was queued, and starts nothing (cases 71 and 82)."""
    scene = make()
    queued = scene.say("later")
    steer = scene.say("now", "steer")
    scene.interrupt()
    if scene.core.stopping:
        scene.stopped()
    assert scene.queued == [steer.id, queued.id]
    assert scene.held
    assert scene.turn.closed
    assert scene.told(TurnEnded)[-1].held


def test_a_new_message_releases_a_held_session_behind_what_waits() -> None:
    """In a held session a new message is queued behind, and the oldest starts."""
    scene = Scene.started()
    scene.say("older")
    scene.interrupt()
    scene.stopped()
    assert scene.say("newer").turn == ""
    assert scene.last().text == "older"
    assert scene.queued == ["send4"]


def test_resume_goes_on_with_the_turn_before_the_queue() -> None:
    """Resume first goes on with the turn that ended, without a message, then takes the queue."""
    scene = Scene.started()
    scene.say("later", settings={"a": 1})
    scene.fail(Failure("server", "it broke"))
    assert scene.turn.outcome == "failed"
    receipt = scene.submit(Resume("r1"))
    assert receipt.turn == scene.turn.id == "t2"
    assert (scene.turn.continues, scene.turn.message) == ("t1", "")
    assert scene.shown == [("user", "hi")]
    scene.reply()
    assert scene.turn.id == "t3"
    assert scene.turn.settings == {"a": 1}


@pytest.mark.parametrize("make", ACTIVE)
def test_resume_is_refused_while_a_turn_is_active(make: Callable[[], Scene]) -> None:
    """A turn that runs goes on by itself."""
    refused(make(), Resume("r1"), "busy")


@pytest.mark.parametrize("make", [no_turn, over])
def test_resume_is_refused_where_there_is_nothing_to_go_on_with(make: Callable[[], Scene]) -> None:
    """A session in which nothing waits and no turn was cut has nothing to go on with."""
    refused(make(), Resume("r1"), "stale")


@pytest.mark.parametrize("make", [*IDLE, *ACTIVE])
def test_the_capacity_is_refused_beyond(make: Callable[[], Scene]) -> None:
    """Queue and steers together have a capacity; what was accepted stays."""
    scene = make()
    scene.core.rules = scene.core._work.rules = scene.rules = Scene.of(limits=Limits(queue=2)).rules  # pyright: ignore[reportPrivateUsage]
    if scene.core.turn is None or scene.core.turn.closed:
        scene.say("go")
    scene.say("one")
    scene.say("two", "steer")
    refused(scene, Send("x1", (Text("three"),)), "full")
    refused(scene, Send("x2", (Text("three"),), "steer"), "full")


def test_a_waiting_message_can_be_changed() -> None:
    """Editing a queued or steering message that was not taken yet changes what will be said, in its place."""
    scene = Scene.started()
    first, steer = scene.say("first"), scene.say("steer", "steer")
    scene.say("second")
    scene.submit(EditQueued("e1", first.id, (Text("FIRST"),)))
    scene.submit(EditQueued("e2", steer.id, (Text("STEER"),)))
    assert [event.id for event in scene.told(MessageEdited)] == [first.id, steer.id]
    for _ in range(3):
        scene.reply()
    assert [text for role, text in scene.shown if role == "user"] == ["hi", "STEER", "FIRST", "second"]


def test_a_waiting_message_can_be_removed() -> None:
    """A removed message is told, never said, and gone for every later change."""
    scene = Scene.started()
    receipt = scene.say("never mind")
    scene.submit(RemoveQueued("r1", receipt.id))
    assert scene.told(MessageRemoved)[-1].id == receipt.id
    refused(scene, RemoveQueued("r2", receipt.id), "gone")
    refused(scene, EditQueued("e1", receipt.id, (Text("x"),)), "gone")
    scene.reply()
    assert scene.turn.id == "t1"


def test_a_message_that_was_taken_is_gone() -> None:
    """What has joined a turn, or started one, cannot be changed as if it waited."""
    scene = Scene.started()
    refused(scene, RemoveQueued("r1", "send1"), "gone")
    steer = scene.say("now", "steer")
    scene.reply()
    refused(scene, EditQueued("e1", steer.id, (Text("x"),)), "gone")


@pytest.mark.parametrize("make", IDLE)
def test_answers_and_interrupts_without_a_turn_are_stale(make: Callable[[], Scene]) -> None:
    """Where no turn runs there is nothing to answer and nothing to end."""
    scene = make()
    refused(scene, Answer("a1", ("m2.0",), "approve"), "stale")
    refused(scene, Interrupt("i1"), "stale")
    refused(scene, Interrupt("i2", "t1"), "stale")


@pytest.mark.parametrize("make", [*IDLE, *ACTIVE])
def test_revoking_a_grant_that_does_not_exist_is_refused(make: Callable[[], Scene]) -> None:
    """A grant that is not there is gone."""
    refused(make(), RevokeGrant("g", "g1"), "gone")


@pytest.mark.parametrize("parts", [(), (Text(""),), (Text(" \n"),)])
def test_an_empty_message_is_invalid(parts: tuple[Text, ...]) -> None:
    """A message needs some text or another part, also when it replaces one (case 45)."""
    scene = Scene.started()
    waiting = scene.say("later")
    before = encode_checkpoint(scene.core.checkpoint)
    for submission in (Send("x1", parts), EditQueued("x2", waiting.id, parts)):
        with pytest.raises(InvalidInput, match="empty"):
            scene.core.submit(submission, now=scene.now)
    assert encode_checkpoint(scene.core.checkpoint) == before


def test_a_picture_is_a_message() -> None:
    """A message need not hold text."""
    scene = Scene.of()
    scene.submit(Send("send1", (Image("https://example.org/a.png"),)))
    assert scene.turn.state == "streaming"


def test_the_same_submission_acts_once() -> None:
    """A submission with a known id gives the first receipt, in the same commit and after it was stored."""
    scene = Scene.started()
    send = Send("send2", (Text("again"),))
    first = scene.core.submit(send, now=scene.now)
    second = scene.core.submit(send, now=scene.now)
    assert (second.duplicate, second.id, second.turn) == (True, first.id, first.turn)
    scene.drive()
    before = encode_checkpoint(scene.core.checkpoint)
    third = scene.submit(send, known=scene.receipts["send2"])
    assert (third.duplicate, third.id, third.digest) == (True, first.id, first.digest)
    assert scene.queued == ["send2"]
    assert encode_checkpoint(scene.core.checkpoint) == before


def test_an_id_with_other_content_is_refused() -> None:
    """An id that was used for something else conflicts."""
    scene = Scene.started()
    scene.say("again")
    with pytest.raises(Refused) as caught:
        scene.submit(Send("send2", (Text("something else"),)), known=scene.receipts["send2"])
    assert caught.value.code == "conflict"


def test_a_refused_id_is_free_again() -> None:
    """A refusal leaves no receipt; the same id can be used when the session can accept it."""
    scene = Scene.started()
    refused(scene, Resume("r1"), "busy")
    scene.interrupt()
    scene.stopped()
    assert scene.submit(Resume("r1")).turn == "t2"


@pytest.mark.parametrize(
    "submission",
    [
        Send("s\ud800", (Text("hi"),)),
        Send("s", (Text("hi"),), settings={"a": "\ud800"}),
        Send("s", (Text("hi"),), settings={"a": object()}),
        Interrupt("i", reason="\ud800"),
        Answer("a", ("m1.0",), "deny", reason="\udfff"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_changes(submission: Submission) -> None:
    """Half of a surrogate pair, or a value that is not JSON, is an InvalidInput and changes nothing (cases 87, 116)."""
    scene = Scene.calling(ASKED)
    before = encode_checkpoint(scene.core.checkpoint)
    with pytest.raises(InvalidInput, match="cannot be stored"):
        scene.core.submit(submission, now=scene.now)
    assert encode_checkpoint(scene.core.checkpoint) == before


def test_a_refused_submission_is_not_the_cause_of_what_follows() -> None:
    """Events that follow from a report name their own cause, whatever was refused at the same instant."""
    scene = Scene.calling(PLAIN)
    scene.ledger.effects["m2.0"] = 1
    assert scene.core.report(CallDone(scene.key, "m2.0", "ok", "x"), now=scene.now)
    with pytest.raises(Refused):
        scene.core.submit(Resume("r1"), now=scene.now)
    scene.drive()
    assert {event.cause for event in scene.log} == {"send1"}
    assert scene.told(StepStarted)[-1].step == 2


def test_the_title_is_the_first_message_in_short() -> None:
    """The session's title is the first message on one line, at most 200 characters."""
    scene = Scene.of()
    scene.say("  clean\n up " + "x" * 300)
    assert scene.core.checkpoint.title == ("clean up " + "x" * 300)[:200]
    scene.reply()
    scene.say("another")
    assert scene.core.checkpoint.title.startswith("clean up")


@pytest.mark.parametrize("end", ["failed", "interrupted", "limit", "denied"])
def test_every_end_but_completion_holds_the_session(end: str) -> None:
    """After a failure, an interrupt, a limit or a denial the queue waits until someone says go on (case 82)."""
    scene = Scene.started(ASKED, limits=Limits(steps=1))
    scene.say("later")
    if end == "failed":
        scene.fail(Failure("server", "it broke"))
    elif end == "interrupted":
        scene.interrupt()
        scene.stopped()
    else:
        scene.reply(*wants("asked"))
        scene.answer("deny", 0, end_turn=end == "denied")
    assert scene.turn.outcome == end
    assert scene.held
    assert scene.queued == ["send2"]
    assert scene.turn.closed
    scene.submit(Resume("r1"))
    assert scene.turn.continues == "t1"


def test_a_failed_attempt_is_no_end() -> None:
    """A retry does not hold the session."""
    scene = Scene.started()
    scene.fail(BROKEN)
    assert not scene.held
