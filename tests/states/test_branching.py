"""Changes of the thread in every state: edit, regenerate, switch, delete, annotate."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.states.scene import Scene, wants
from tests.states.trees import leaves, reads
from turnstate_states.branching import WHY
from turnstate_states.content import Quote, Text
from turnstate_states.errors import Refused
from turnstate_states.events import (
    Annotated,
    Deleted,
    StepStarted,
    Switched,
    TurnEnded,
    TurnStarted,
)
from turnstate_states.reports import CallDone, Closed, Effects, Stopped
from turnstate_states.rules import ToolSpec
from turnstate_states.submissions import (
    Annotate,
    Answer,
    Delete,
    Edit,
    Provide,
    Regenerate,
    Resume,
    Send,
    Submission,
    Switch,
)
from turnstate_states.thread import begin_session, fork_thread

PLAIN = ToolSpec("plain")
ASKED = ToolSpec("asked", approval="always")
OTHERWISE = (Text("otherwise"),)

CHANGES: dict[str, Callable[[str], Submission]] = {
    "edit": lambda message: Edit("c1", message, OTHERWISE),
    "regenerate": lambda message: Regenerate("c1", message),
    "switch": lambda message: Switch("c1", message),
    "delete": lambda message: Delete("c1", message),
}


def over() -> Scene:
    """A turn has completed."""
    scene = Scene.started()
    scene.reply()
    return scene


def held() -> Scene:
    """A turn was interrupted after its first reply."""
    scene = Scene.calling(PLAIN)
    scene.interrupt()
    scene.stopped()
    return scene


def awaiting() -> Scene:
    """A call waits for a person."""
    return Scene.calling(ASKED)


def preparing() -> Scene:
    """Hooks run before a request."""
    return Scene.started(before_model=True)


def backing_off() -> Scene:
    """The turn waits for the next attempt."""
    scene = Scene.started()
    scene.fail()
    return scene


def streaming() -> Scene:
    """The model streams."""
    return Scene.started()


def reviewing() -> Scene:
    """Hooks run after a reply."""
    scene = Scene.started(after_model=True)
    scene.reply()
    return scene


def executing() -> Scene:
    """A tool runs, and another call waits for a person."""
    return Scene.calling(PLAIN, ASKED)


def ending() -> Scene:
    """The turn was told to end, and what runs of it has not stopped yet."""
    scene = Scene.calling(PLAIN, ASKED)
    scene.interrupt()
    return scene


def closing() -> Scene:
    """Hooks run after the turn's end."""
    scene = Scene.started(turn_ended=True)
    scene.reply()
    return scene


FREE = (over, held, awaiting)
BUSY = (preparing, backing_off, streaming, reviewing, executing, ending, closing)


@pytest.mark.parametrize("make", FREE)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_made_where_no_model_reads(make: Callable[[], Scene], change: str) -> None:
    """Without a turn, or while it only waits for a person, every change is made at once."""
    scene = make()
    turns = scene.core.checkpoint.turns
    receipt = scene.submit(CHANGES[change]("m1"))
    starts = change in ("edit", "regenerate")
    assert scene.core.checkpoint.turns == turns + starts
    assert receipt.turn == (f"t{turns + 1}" if starts else "")
    assert scene.turn.state == ("streaming" if starts else scene.turn.state)
    assert scene.turn.closed is not starts
    assert len(scene.told(Deleted)) == (change == "delete")
    scene.check_restored()


@pytest.mark.parametrize("make", BUSY)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_refused_while_a_turn_works(make: Callable[[], Scene], change: str) -> None:
    """While hooks, a model or tools are at work, or the turn is about to end, history stays as it is."""
    make().refuse(CHANGES[change]("m1"), "busy")


@pytest.mark.parametrize("change", CHANGES)
def test_there_is_nothing_to_change_yet(change: str) -> None:
    """In a session in which nobody said anything no message is found."""
    Scene.of().refuse(CHANGES[change]("m1"), "gone")
    Scene.of().refuse(Regenerate("c1", ""), "gone")
    Scene.of().refuse(Annotate("c1", "m1", {}), "gone")


@pytest.mark.parametrize("change", CHANGES)
def test_a_wait_ends_in_the_same_commit(change: str) -> None:
    """The turn that waits ends as superseded, its calls get results, then the change is made: one commit."""
    scene = awaiting()
    commits, told = len(scene.written), len(scene.log)
    scene.submit(CHANGES[change]("m1"))
    assert len(scene.written) == commits + 1
    kinds = [type(event).__name__ for event in scene.log[told:]]
    follows = {
        "edit": ["Switched", "TurnStarted", "StepStarted"],
        "regenerate": ["Switched", "TurnStarted", "StepStarted"],
        "switch": ["Switched"],
        "delete": ["Deleted"],
    }
    assert kinds == ["CallSettled", "TurnEnded", *follows[change]]
    (ended,) = scene.told(TurnEnded)
    assert (ended.outcome, ended.reason, ended.cause) == ("superseded", WHY[change], "c1")
    settled = scene.core.transcript["m3"].results[0]
    assert (settled.status, settled.text) == ("not-run", f"not run: {WHY[change]}")
    assert {event.cause for event in scene.log[told:]} == {"c1"}


@pytest.mark.parametrize("change", CHANGES)
def test_what_belongs_to_the_old_turn_is_stale(change: str) -> None:
    """Answers, results and reports that come for the turn that was ended change nothing."""
    scene = Scene.calling(PLAIN, ASKED)
    key, call = scene.key, scene.calls[1].id
    scene.done(0)
    scene.submit(CHANGES[change]("m1"))
    scene.refuse(Answer("a1", (call,), "approve"), "stale")
    scene.refuse(Provide("p1", call, "late"), "stale")
    scene.ignored(CallDone(key, call, "ok", "late"))
    scene.ignored(Stopped("t1"))
    scene.crash()
    scene.refuse(Answer("a1", (call,), "approve"), "stale")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("crash", [False, True])
def test_a_change_waits_for_the_hooks_after_the_turn(change: str, crash: bool) -> None:
    """The turn ends at once; the change is made when its hooks are done, also after a crash; nothing comes between."""
    scene = Scene.calling(ASKED, turn_ended=True)
    path = len(scene.core.transcript.path)
    scene.submit(CHANGES[change]("m1"))
    assert scene.turn.outcome == "superseded"
    assert (scene.told(TurnEnded), scene.told(Switched), scene.told(Deleted)) == ([], [], [])
    for other in CHANGES.values():
        scene.refuse(other("m1"), "busy")
    scene.refuse(Resume("r1"), "busy")
    scene.annotate("m2", note=1)
    assert len(scene.core.transcript.path) == path + 1
    if crash:
        scene.crash()
    pending = scene.core.checkpoint.pending
    assert pending is not None
    assert (pending.id, pending.kind, pending.target) == ("c1", change, "m1")
    scene.closed()
    assert scene.core.checkpoint.pending is None
    kinds = [type(event) for event in scene.log]
    ended = kinds.index(TurnEnded)
    assert kinds[ended + 1] in (Switched, Deleted)
    assert scene.log[ended + 1].cause == "c1"
    if change == "edit":
        assert scene.shown == [("user", "otherwise")]
    assert scene.turn.closed is (change in ("switch", "delete"))


@pytest.mark.parametrize("change", CHANGES)
def test_what_comes_with_the_end_of_the_hooks_waits_for_the_change(change: str) -> None:
    """A message in the same instant comes after the change; another change does not take its place."""
    scene = Scene.calling(ASKED, turn_ended=True)
    scene.submit(CHANGES[change]("m1"))
    assert scene.core.report(Closed(scene.key), now=scene.now)
    with pytest.raises(Refused) as caught:
        scene.core.submit(Edit("e9", "m1", (Text("no"),)), now=scene.now)
    assert caught.value.code == "busy"
    assert scene.core.submit(Send("send9", (Text("next"),)), now=scene.now).turn == ""
    scene.running = None
    scene.drive()
    assert scene.core.checkpoint.pending is None
    if change in ("edit", "regenerate"):
        assert scene.queued == ["send9"]
        scene.reply()
        scene.closed()
    assert scene.shown[-1] == ("user", "next")


# What waits


@pytest.mark.parametrize("change", ["switch", "delete"])
@pytest.mark.parametrize("hooks", [False, True])
def test_what_waits_is_held(change: str, hooks: bool) -> None:
    """Messages that wait were written below what was visible; after Switch and Delete they do not start by themselves."""
    scene = Scene.calling(ASKED, turn_ended=hooks)
    scene.say("queued")
    scene.say("steer", "steer")
    scene.submit(CHANGES[change]("m1"))
    if hooks:
        scene.closed()
    assert scene.held
    assert scene.told(TurnEnded)[0].held
    assert scene.queued == ["send3", "send2"]
    scene.crash()
    assert scene.queued == ["send3", "send2"]
    scene.submit(Resume("r1"))
    assert scene.shown[-1] == ("user", "steer")


@pytest.mark.parametrize("change", ["edit", "regenerate"])
def test_what_waits_goes_on_after_the_new_turn(change: str) -> None:
    """A new turn releases what waits: it comes after it, the steers of the ended turn first."""
    scene = Scene.calling(ASKED)
    scene.say("queued")
    scene.say("steer", "steer")
    scene.submit(CHANGES[change]("m1"))
    assert not scene.held
    for _ in range(3):
        scene.reply()
    texts = [text for role, text in scene.shown if role == "user"]
    assert texts == ["otherwise" if change == "edit" else "hi", "steer", "queued"]


def test_a_message_after_a_switch_starts() -> None:
    """Who writes while the hooks of the ended turn run wrote below what they switched to, and is not held."""
    scene = Scene.calling(ASKED, turn_ended=True)
    scene.say("before")
    scene.switch("m1")
    scene.say("after")
    scene.closed()
    assert not scene.held
    assert scene.shown[-1] == ("user", "before")
    assert scene.queued == ["send4"]


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
