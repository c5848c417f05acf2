"""What lists show of a session: title, labels, whether it is archived."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.states.scene import Scene
from turnstate_states.events import SessionChanged
from turnstate_states.rules import ToolSpec
from turnstate_states.submissions import Describe


def idle() -> Scene:
    """Nobody has said anything."""
    return Scene.of()


def streaming() -> Scene:
    """The model streams."""
    return Scene.started()


def awaiting() -> Scene:
    """A call waits for a person."""
    return Scene.calling(ToolSpec("asked", approval="always"))


def closing() -> Scene:
    """Hooks run after the turn's end."""
    scene = Scene.started(turn_ended=True)
    scene.reply()
    return scene


@pytest.mark.parametrize("make", [idle, streaming, awaiting, closing])
def test_a_session_is_described_in_any_state(make: Callable[[], Scene]) -> None:
    """Title, labels and archive change at once, are told as they are now, and disturb no turn."""
    scene = make()
    turn, running = scene.core.turn and scene.turn.copy(), scene.core.activity
    scene.submit(Describe("d1", " two\nlines ", {"a": "1", "b": ""}, archived=True))
    scene.submit(Describe("d2", labels={"a": None, "c": "3"}))
    scene.crash(0)
    checkpoint = scene.core.checkpoint
    assert (checkpoint.title, checkpoint.labels, checkpoint.archived) == ("two lines", {"b": "", "c": "3"}, True)
    told = [(event.title, dict(event.labels), event.archived) for event in scene.told(SessionChanged)]
    assert told == [("two lines", {"a": "1", "b": ""}, True), ("two lines", {"b": "", "c": "3"}, True)]
    if turn is not None and turn.state != "streaming":
        assert (scene.core.turn, scene.core.activity) == (turn, running)


def test_what_stays_as_it_is_is_not_told() -> None:
    """Saying what is so already is accepted and tells nothing."""
    scene = streaming()
    scene.submit(Describe("d1", "hi", {"gone": None}, archived=False))
    scene.submit(Describe("d2"))
    assert scene.told(SessionChanged) == []
    assert "d1" in scene.receipts


def test_a_title_that_was_given_stays() -> None:
    """The first message names a session only if nobody else did."""
    scene = idle()
    scene.submit(Describe("d1", "mine"))
    scene.say("hello")
    assert scene.core.checkpoint.title == "mine"


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (Describe("d", ""), "title"),
        (Describe("d", " \n"), "title"),
        (Describe("d", labels={"": "x"}), r"labels\."),
        (Describe("d", labels={"x" * 65: "y"}), "labels.x"),
        (Describe("d", labels={"x": "y" * 1001}), "labels.x"),
        (Describe("d", labels={f"l{n}": "" for n in range(65)}), "labels: at most 64"),
        (Describe("d", "\ud800"), "describe"),
        (Describe("d", labels={"x": "\ud800"}), "describe"),
    ],
)
def test_what_makes_no_sense(said: Describe, match: str) -> None:
    """Bad input names the field, and changes nothing."""
    scene = streaming()
    scene.submit(Describe("d1", labels={"kept": "1"}))
    scene.invalid(said, match)


def test_labels_are_bounded() -> None:
    """64 labels fit; others only when some are taken away in the same breath."""
    scene = idle()
    scene.submit(Describe("d1", labels={f"l{n}": "x" for n in range(64)}))
    scene.invalid(Describe("d", labels={"more": ""}), "labels: at most 64")
    scene.submit(Describe("d2", labels={"more": "", "l0": None}))
    assert len(scene.core.checkpoint.labels) == 64
