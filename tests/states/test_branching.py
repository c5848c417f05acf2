"""Changes of the thread one by one: edit, regenerate, switch, delete, annotate, and how branches read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.states.moments import ASKED, BUSY, CHANGES, FREE, OTHERWISE, PLAIN, awaiting, over, streaming
from tests.states.scene import Scene, wants
from tests.states.trees import leaves, reads
from turnstate_states.content import Quote, Text
from turnstate_states.errors import Refused
from turnstate_states.events import (
    Annotated,
    Deleted,
    StepStarted,
    Switched,
    TurnStarted,
)
from turnstate_states.reports import Effects
from turnstate_states.submissions import (
    Annotate,
    Delete,
    Edit,
    Regenerate,
)
from turnstate_states.thread import begin_session, fork_thread

# Targets


@pytest.mark.parametrize("make", [over, awaiting])
@pytest.mark.parametrize("change", CHANGES)
def test_a_message_that_is_not_there(make: Callable[[], Scene], change: str) -> None:
    """An unknown or deleted message is gone; a turn that waits is not ended by that."""
    scene = make()
    scene.refuse(CHANGES[change]("m99"), "gone")
    scene.refuse(Annotate("c1", "m99", {}), "gone")
    scene = over()
    scene.delete("m2")
    scene.refuse(CHANGES[change]("m2"), "gone")


def test_targets_that_make_no_sense() -> None:
    """Only a person's message is edited, only what was said is answered again, results go with their calls."""
    scene = Scene.calling(PLAIN, ASKED)
    scene.done(0)
    assert [message.role for message in scene.core.transcript.path] == ["user", "assistant", "tool"]
    scene.invalid(Edit("c1", "m2", OTHERWISE), "message: m2")
    scene.invalid(Edit("c1", "m3", OTHERWISE), "message: m3")
    scene.invalid(Regenerate("c1", "m3"), "message: m3")
    scene.invalid(Delete("c1", "m3"), "message: m3")
    scene.invalid(Edit("c1", "m1", ()), "message: it is empty")
    scene.invalid(Edit("c1", "m1", (Quote("m2", "not said"),)), r"parts\[0\]")
    scene.invalid(Edit("c1", "m1", (Text("so:"), Quote("m99", "hi"))), r"parts\[1\]: there is no message m99")
    assert scene.turn.state == "awaiting-approval"


def test_an_answer_without_anything_before_it() -> None:
    """A reply at the beginning of a thread cannot be answered again."""
    scene = over()
    scene.delete("m1")
    assert [message.id for message in scene.core.transcript.path] == ["m2"]
    scene.invalid(Regenerate("c1", "m2"), "message: nothing stands before m2")


# Edit and regenerate


def test_an_edit_is_a_sibling() -> None:
    """The edited message stands beside the old one, which stays with all that followed it."""
    scene = over()
    scene.say("and then?")
    scene.reply(Text("this"))
    before = tuple(scene.core.transcript.path)
    scene.edit("m3", "and before?", settings={"tone": "dry"})
    assert scene.shown == [("user", "hi"), ("assistant", "done"), ("user", "and before?")]
    assert scene.turn.settings == {"tone": "dry"}
    assert scene.turn.message == "m5"
    (switched,) = scene.told(Switched)
    assert (switched.head, switched.why) == ("m2", "edit")
    started = scene.told(TurnStarted)[-1]
    assert started.message == scene.core.transcript["m5"]
    assert scene.core.transcript.branches("m5") == ("m3", "m5")
    assert scene.core.transcript.path_to("m4") == before


@pytest.mark.parametrize("target", ["m1", "m2", ""])
def test_an_answer_is_given_again(target: str) -> None:
    """Naming the question, its answer, or nothing asks for another answer beside the first."""
    scene = over()
    scene.regenerate(target)
    assert scene.shown == [("user", "hi")]
    assert scene.told(TurnStarted)[-1].message is None
    assert [event.head for event in scene.told(Switched)] == ["m1"]
    scene.reply(Text("another"))
    assert scene.core.transcript.branches("m2") == ("m2", "m3")
    assert scene.core.transcript.head == "m3"


def test_the_newest_answer_is_shown_again() -> None:
    """What is written next takes the place of a choice among older answers, also in what is stored."""
    scene = over()
    scene.regenerate("m2")
    scene.reply(Text("another"))
    scene.switch("m2")
    assert scene.core.checkpoint.chosen == {"m1": "m2"}
    scene.regenerate("m2")
    scene.reply(Text("a third"))
    assert scene.core.checkpoint.chosen == {}
    scene.crash()
    scene.check_restored()
    assert scene.core.transcript.branches("m4") == ("m2", "m3", "m4")


def test_an_answer_after_tools_is_given_again() -> None:
    """Regenerating the last answer of a turn keeps its calls and their results, which are not run again."""
    scene = Scene.calling(PLAIN)
    scene.done(0)
    scene.reply()
    scene.regenerate("m4")
    assert [role for role, _ in scene.shown] == ["user", "assistant", "tool"]
    scene.reply(Text("another"))
    assert scene.core.transcript.branches("m4") == ("m4", "m5")


def test_nobody_moves_where_nothing_changes() -> None:
    """A question that was never answered is answered without telling of a switch."""
    scene = streaming()
    scene.interrupt()
    scene.stopped()
    scene.regenerate("m1")
    assert scene.told(Switched) == []
    assert len(scene.told(StepStarted)) == 2


def test_the_last_that_a_person_said() -> None:
    """What middleware and the engine wrote is not what a person said."""
    scene = Scene.started(before_model=True)
    scene.prepared(effects=Effects(messages=("mind this",)))
    scene.reply()
    scene.regenerate("")
    assert scene.core.transcript.head == "m1"


# Ids, and reading


def test_ids_are_never_used_again() -> None:
    """Neither deleting the newest message nor going back makes its id free."""
    scene = over()
    scene.delete("m2")
    scene.crash()
    scene.say("again")
    assert scene.last().id == "m4"
    scene.reply(*wants("plain"))
    assert scene.last().id != "m2"
    assert scene.core.transcript.get("m2") is None


def test_a_deleted_batch() -> None:
    """A reply goes with the results of its calls, also where the turn waited in the middle of it."""
    scene = Scene.calling(PLAIN, ASKED)
    scene.done(0)
    scene.delete("m2")
    (deleted,) = scene.told(Deleted)
    assert (deleted.message.changes, deleted.head) == (("m2", "m3", "m4"), "m1")
    assert scene.shown == [("user", "hi")]


@pytest.mark.parametrize("make", [*FREE, *BUSY])
def test_metadata_is_laid_over_in_any_state(make: Callable[[], Scene]) -> None:
    """Annotating disturbs nothing; None takes a key away; it reads the same after a restart; no model sees it."""
    scene = make()
    state, running, shown = scene.turn.state, scene.core.activity, scene.shown
    scene.annotate("m1", rating=1, note="x")
    scene.annotate("m1", note=None)
    assert (scene.turn.state, scene.core.activity, scene.shown) == (state, running, shown)
    assert [dict(event.message.metadata) for event in scene.told(Annotated)] == [
        {"rating": 1, "note": "x"},
        {"note": None},
    ]
    assert scene.core.transcript["m1"].metadata == {"rating": 1}
    scene.check_restored()


def five_branches() -> Scene:
    """A tree with five leaves: answers given again, a question edited, a batch of calls, a cut turn."""
    scene = Scene.started(PLAIN)
    scene.reply(Text("first"))
    scene.regenerate("m1")
    scene.reply(Text("second"))
    scene.edit("m1", "hello")
    scene.reply(*wants("plain", "plain"))
    scene.done(1)
    scene.done(0)
    scene.reply(Text("third"))
    scene.switch("m2")
    scene.say("more")
    scene.reply(Text("fourth"))
    scene.edit("m9", "less")
    scene.interrupt()
    scene.stopped(Text("fif"))
    return scene


def test_every_branch_reads_as_before() -> None:
    """Whatever is added, switched to, or restarted, each leaf reads as it did when it was written (case 90)."""
    scene = five_branches()
    expected = {
        "m3": "hi second",
        "m8": "hello  a result a result third",
        "m10": "hi first more fourth",
        "m12": "hi first less fif",
    }

    def check() -> None:
        for leaf, text in expected.items():
            assert " ".join(said for _, said in reads(scene.core.transcript, leaf)) == text

    check()
    for leaf in (*expected, *reversed(expected)):
        scene.switch(leaf)
        assert scene.core.transcript.head == leaf
        check()
    scene.regenerate("m3")
    scene.reply(Text("sixth"))
    scene.crash()
    check()
    assert [message.id for message in leaves(scene.core.transcript)][:4] == list(expected)
    assert len(leaves(scene.core.transcript)) == 5


def test_a_fork_at_every_message() -> None:
    """A fork holds the path up to and with a message, and goes on by itself; never between call and result (case 90)."""
    scene = five_branches()
    transcript = scene.core.transcript
    for message in transcript.all():
        if not transcript.cut_at(message.id):
            assert message.id in ("m5", "m6")
            with pytest.raises(Refused, match="between a call and its result"):
                fork_thread(scene.core.checkpoint, transcript, message.id)
            continue
        commit = begin_session("b", fork_thread(scene.core.checkpoint, transcript, message.id), now=scene.now)
        fork = Scene.beginning(commit, PLAIN)
        assert reads(fork.core.transcript, fork.core.transcript.head) == reads(transcript, message.id)
        fork.say("go")
        fork.reply(Text("gone"))
        assert fork.shown[-2:] == [("user", "go"), ("assistant", "gone")]
        assert len(fork.core.transcript) == len(commit.messages) + 2
