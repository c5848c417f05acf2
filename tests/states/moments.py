"""Sessions in every state, each with a message to change: what changes of the thread are tried on."""

from __future__ import annotations

from collections.abc import Callable

from tests.states.scene import Scene
from turnstate_states.content import Text
from turnstate_states.rules import ToolSpec
from turnstate_states.submissions import Delete, Edit, Regenerate, Submission, Switch

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
