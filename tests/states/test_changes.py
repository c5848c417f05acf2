"""Changes of the thread in every state of its turn: when they are made, refused or wait, and what else waits then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.states.moments import ASKED, BUSY, CHANGES, FREE, PLAIN, awaiting
from tests.states.scene import Scene
from turnstate_states.branching import WHY
from turnstate_states.content import Text
from turnstate_states.errors import Refused
from turnstate_states.events import (
    Deleted,
    Switched,
    TurnEnded,
)
from turnstate_states.reports import CallDone, Closed, Stopped
from turnstate_states.submissions import (
    Annotate,
    Answer,
    Edit,
    Provide,
    Regenerate,
    Resume,
    Send,
)


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
