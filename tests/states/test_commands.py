"""Commands that middleware carries out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.states.scene import Scene
from turnstate_states.content import Text
from turnstate_states.events import (
    CommandAccepted,
    CommandEnded,
    Custom,
    MessageTaken,
    SessionChanged,
    TurnStarted,
    Warned,
)
from turnstate_states.reports import CommandDone, Effects
from turnstate_states.rules import Limits, ToolSpec
from turnstate_states.submissions import Command
from turnstate_states.transcript import Usage

COMMANDS = {"note": True, "compact": False}
ASKED = ToolSpec("asked", approval="always")
PLAIN = ToolSpec("plain")


def idle(**more: Any) -> Scene:
    """Nobody has said anything."""
    return Scene.of(commands=COMMANDS, **more)


def over(**more: Any) -> Scene:
    """A turn has completed."""
    scene = Scene.started(commands=COMMANDS, **more)
    scene.reply()
    return scene


def streaming(**more: Any) -> Scene:
    """The model streams."""
    return Scene.started(commands=COMMANDS, **more)


def executing(**more: Any) -> Scene:
    """A tool runs."""
    return Scene.calling(PLAIN, commands=COMMANDS, **more)


def awaiting(**more: Any) -> Scene:
    """A call waits for a person."""
    return Scene.calling(ASKED, commands=COMMANDS, **more)


def closing(**more: Any) -> Scene:
    """Hooks run after the turn's end."""
    return over(turn_ended=True, **more)


FREE = (idle, over)
BUSY = (streaming, executing, awaiting, closing)


@pytest.mark.parametrize("make", [*FREE, *BUSY])
def test_a_command_is_accepted_kept_and_carried_out(make: Callable[[], Scene]) -> None:
    """It waits in the checkpoint until its middleware reports; the turn goes on as if nothing had been."""
    scene = make()
    state, running = scene.core.turn and scene.turn.state, scene.core.activity
    receipt = scene.command("note", text="x")
    (accepted,) = scene.told(CommandAccepted)
    assert (accepted.id, accepted.name, accepted.arguments) == (receipt.id, "note", {"text": "x"})
    if running is None:
        scene.crash(0)
    assert [command.arguments for command in scene.core.commands] == [{"text": "x"}]
    scene.commanded(receipt.id, result={"n": 1})
    (ended,) = scene.told(CommandEnded)
    assert (ended.id, ended.name, ended.result, ended.error, ended.cause) == (
        receipt.id,
        "note",
        {"n": 1},
        "",
        receipt.id,
    )
    assert scene.core.commands == ()
    assert (scene.core.turn and scene.turn.state, scene.core.activity) == (state, running)


@pytest.mark.parametrize("make", FREE)
def test_a_command_between_turns(make: Callable[[], Scene]) -> None:
    """One that is not for running turns is accepted where none runs."""
    scene = make()
    scene.commanded(scene.command("compact").id)
    assert len(scene.told(CommandEnded)) == 1


@pytest.mark.parametrize("make", BUSY)
def test_a_command_that_cannot_be_carried_out_now(make: Callable[[], Scene]) -> None:
    """While a turn runs, or its hooks do, it is refused as busy."""
    make().refuse(Command("c1", "compact"), "busy")


@pytest.mark.parametrize("make", [*FREE, *BUSY])
def test_an_unknown_command(make: Callable[[], Scene]) -> None:
    """The error names those that exist."""
    make().invalid(Command("c1", "__class__"), "command __class__: unknown; there are compact, note")
    Scene.of().invalid(Command("c1", "note"), "command note: unknown; there are none")


def test_commands_are_carried_out_in_order_and_once() -> None:
    """They wait in the order they came; a second report on one changes nothing, nor one on what was never sent."""
    scene = streaming()
    first, second = scene.command("note"), scene.command("note")
    assert [command.id for command in scene.core.commands] == [first.id, second.id]
    scene.commanded(second.id)
    scene.ignored(CommandDone(second.id))
    scene.ignored(CommandDone("command9", effects=Effects(messages=("x",), usage={"m": Usage(1)})))
    assert [command.id for command in scene.core.commands] == [first.id]


def test_a_crash_keeps_a_command() -> None:
    """What was accepted is still to be done by the next process, and by one that no longer knows the command."""
    scene = over()
    receipt = scene.command("compact", deep=[1, {"a": None}])
    scene.crash(rules=Scene.of().rules)
    assert [(command.name, command.arguments) for command in scene.core.commands] == [
        ("compact", {"deep": [1, {"a": None}]})
    ]
    scene.commanded(receipt.id, error="no middleware knows it")
    assert scene.told(CommandEnded)[0].error == "no middleware knows it"


def test_the_same_command_acts_once() -> None:
    """Its id with the same content gives the first receipt, also when it was carried out."""
    scene = over()
    receipt = scene.command("note", n=1)
    scene.commanded(receipt.id)
    again = scene.submit(Command(receipt.id, "note", {"n": 1}), known=scene.receipts[receipt.id])
    assert again.duplicate
    assert scene.core.commands == ()


def test_there_is_room_for_so_many() -> None:
    """Commands that wait have the capacity of messages that do."""
    scene = streaming(limits=Limits(queue=1))
    scene.command("note")
    scene.refuse(Command("c9", "note"), "full")


# What they do


def test_what_a_command_does_to_the_session() -> None:
    """Events, warnings, a title and usage are told and counted, in a turn for that turn too."""
    scene = streaming()
    usage = scene.turn.usage
    effects = Effects(events=(("noted", 1),), warnings=("mind",), title="a\nb", usage={"below": Usage(5)})
    scene.commanded(scene.command("note").id, effects=effects)
    assert [(event.name, event.data) for event in scene.told(Custom)] == [("noted", 1)]
    assert [event.text for event in scene.told(Warned)] == ["mind"]
    assert [event.title for event in scene.told(SessionChanged)] == ["a b"]
    assert scene.core.checkpoint.usage["below"] == Usage(5)
    assert scene.turn.usage == usage + Usage(5)


def test_usage_of_a_command_counts_towards_the_limits() -> None:
    """A turn whose limit was used up meanwhile makes no other request, not even after a crash."""
    scene = streaming(limits=Limits(tokens=5))
    scene.commanded(scene.command("note").id, effects=Effects(usage={"below": Usage(5)}))
    scene.crash()
    assert (scene.turn.outcome, scene.turn.attempts) == ("limit", 1)


def test_usage_between_turns_is_the_sessions() -> None:
    """A command after a turn adds nothing to the record of that turn."""
    scene = over()
    before = scene.turn.usage
    scene.commanded(scene.command("note").id, effects=Effects(usage={"below": Usage(5)}))
    assert scene.core.checkpoint.usage["below"] == Usage(5)
    assert scene.turn.usage == before


@pytest.mark.parametrize("make", FREE)
def test_a_command_may_start_a_turn(make: Callable[[], Scene]) -> None:
    """What it says to the model is sent like anybody's message: where no turn runs it starts one."""
    scene = make()
    receipt = scene.command("note")
    scene.commanded(receipt.id, effects=Effects(messages=("look at this", "and that")))
    assert scene.told(TurnStarted)[-1].cause == f"{receipt.id}!0"
    assert scene.shown[-2:] == [("user", "look at this"), ("user", "and that")]


@pytest.mark.parametrize("make", [streaming, executing])
def test_a_command_may_steer(make: Callable[[], Scene]) -> None:
    """In a running turn what it says joins the next request, also after a crash."""
    scene = make()
    receipt = scene.command("note")
    scene.commanded(receipt.id, effects=Effects(messages=("look at this",)))
    assert scene.steers == [f"{receipt.id}!0"]
    scene.crash()
    assert [event.id for event in scene.told(MessageTaken)] == [f"{receipt.id}!0"]
    assert ("user", "look at this") in scene.shown


def test_what_cannot_be_sent_is_told() -> None:
    """A message that there is no room for, or that is blank, is a warning; the rest of the command counts."""
    scene = streaming(limits=Limits(queue=1))
    scene.commanded(scene.command("note").id, result=1, effects=Effects(messages=("one", " ", "two \ud800")))
    texts = [event.text for event in scene.told(Warned)]
    assert len(texts) == 2
    assert all(text.startswith("command note: a message was not sent") for text in texts)
    assert scene.told(CommandEnded)[0].result == 1
    (waiting,) = scene.core.checkpoint.steers
    assert waiting.parts == (Text("one"),)


def test_a_command_of_a_turn_that_is_told_to_end() -> None:
    """It is still carried out; what it says is for the next turn, as no request of this one will take it."""
    scene = executing()
    receipt = scene.command("note")
    scene.interrupt()
    scene.commanded(receipt.id, effects=Effects(messages=("later",)))
    assert scene.steers == [f"{receipt.id}!0"]
    scene.stopped()
    assert scene.told(MessageTaken) == []
    assert scene.queued == [f"{receipt.id}!0"] or scene.shown[-1] == ("user", "later")
