"""Agents as tools: a real process is killed with SIGKILL while a child works; the next one goes on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.depth import PART, counted, pick, until
from tests.engine.killed import Place
from tests.engine.nested_child import run
from turnstate import SQLiteStore
from turnstate.reading import load

ROOT = Path(__file__).parents[2]


def start(directory: Path, place: str) -> subprocess.Popen[str]:
    """The program in a process of its own, once its turn is about to begin."""
    command = [sys.executable, "-m", "tests.engine.nested_child", str(directory), place]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n", "the program failed"
    return process


def kill_at(directory: Path, place: str) -> bool:
    """Run the program up to a place and kill it there; False if it came to its end before."""
    with start(directory, place) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        counted("kills")
        assert line, "the program failed"
        return line == "there\n"


def go_on(directory: Path) -> dict[str, Any]:
    """Let the turn come to its end in this process, and check what holds wherever it was killed before."""
    result = trio.run(run, Place(directory, "-"))
    effects = (directory / "effects").read_text().splitlines()
    assert (result["outcome"], result["text"], result["said"]) == ("completed", "all is done", "it is done")
    charged, looked = result["child"]
    assert charged in ("ok", "unknown")
    assert effects.count("charge 5") == 1 or (charged == "unknown" and not effects.count("charge 5"))
    assert effects.count("look") <= 2
    assert result["calls"][0] == "ok"
    trio.run(check_store, directory)
    result["effects"] = effects
    assert looked in ("ok", "unknown")
    return result


async def check_store(directory: Path) -> None:
    """Both sessions are over, and nobody has a claim."""
    async with SQLiteStore(directory / "turns.db") as store:
        for name in ("s", "s/m2.0"):
            loaded = await load(store, name)
            assert loaded is not None
            assert loaded[0].turn is not None
            assert loaded[0].turn.closed
            assert await store.owner_of(name) is None


PLACES = {
    "parent-streams": "ok",
    "child-streams": "ok",
    "waits": "ok",
    "child-runs": "unknown",
}


@pytest.mark.parametrize("place", pick(list(PLACES)[2:], list(PLACES)))
def test_killed_at_a_place(place: str, tmp_path: Path) -> None:
    """Killed where the parent or the child streams, waits or runs a tool, the turn completes in the next process."""
    assert kill_at(tmp_path, place)
    assert go_on(tmp_path)["child"][0] == PLACES[place]


def test_killed_at_each_place_in_turn(tmp_path: Path) -> None:
    """Killed at one place after the other the turn still completes, with the charge made once."""
    for place in pick(list(PLACES)[::2], list(PLACES)):
        assert kill_at(tmp_path, place)
    assert go_on(tmp_path)["effects"].count("charge 5") == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_each_commit(when: str, tmp_path: Path) -> None:
    """Killed before or after each commit, of the parent or the child, the turn completes and charges at most once."""
    number = 0
    for number in until(60, part=3 * PART):
        directory = tmp_path / str(number)
        directory.mkdir()
        if not kill_at(directory, f"{when}:{number}"):
            break
        go_on(directory)
    assert 10 < number < 59


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(pick(1, 4)))
def test_killed_at_random(seed: int, tmp_path: Path) -> None:
    """Killed at random instants, again and again, the turn completes and charges at most once."""
    dice = random.Random(seed)
    for _ in range(pick(3, 6)):
        counted("kills")
        with start(tmp_path, "-") as process:
            time.sleep(dice.random() * 0.12)
            process.send_signal(signal.SIGKILL)
            process.wait(20)
    go_on(tmp_path)
