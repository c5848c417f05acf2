"""A real process is killed with SIGKILL in each state and between states; the next one goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.depth import PART, counted, pick, until
from tests.engine.killed import Place, run
from turnstate import SQLiteStore
from turnstate.reading import read_events

ROOT = Path(__file__).parents[2]


def start(directory: Path, place: str) -> subprocess.Popen[str]:
    """The program in a process of its own."""
    command = [sys.executable, "-m", "tests.engine.killed", str(directory), place]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


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


def effects(directory: Path) -> list[str]:
    """What happened in the world."""
    return (directory / "effects").read_text().splitlines()


def check(directory: Path, result: dict[str, Any]) -> None:
    """What holds wherever the process was killed."""
    seen = effects(directory)
    assert result["outcome"] == "completed"
    assert seen.count("charge") <= 1
    assert seen.count("note") >= 1
    assert seen.count("ended completed") >= 1
    assert result["calls"]["note"] == "ok"
    assert result["steps"] == 2
    charge = result["calls"]["charge"]
    told = {"ok": "charged; noted", "unknown": "execution interrupted; result unknown: after restart; noted"}
    assert result["text"] == told[charge]
    if charge == "ok":
        assert seen.count("charge") == 1


async def log_of(directory: Path) -> list[Any]:
    """The stored events."""
    async with SQLiteStore(directory / "turns.db") as store:
        return list(await read_events(store, "s", 0))


EXPECTED = {
    "before-model": ("ok", 1),
    "streaming": ("ok", 1),
    "reviewing": ("ok", 1),
    "awaiting-approval": ("ok", 1),
    "executing-tools": ("unknown", 1),
    "rerunning": ("ok", 2),
    "closing": ("ok", 1),
}


@pytest.mark.parametrize("state", pick(list(EXPECTED)[::2], list(EXPECTED)))
def test_killed_in_a_state(state: str, tmp_path: Path) -> None:
    """Killed in a state and resumed in a new process, the turn ends: what had started is unknown or reran (case 36)."""
    assert kill_at(tmp_path, state)
    with start(tmp_path, "-") as process:
        output, _ = process.communicate(timeout=30)
    result = json.loads(output)
    check(tmp_path, result)
    charge, notes = EXPECTED[state]
    assert result["calls"]["charge"] == charge
    assert effects(tmp_path).count("note") == notes
    assert effects(tmp_path).count("charge") == 1
    assert effects(tmp_path).count("ended completed") == (2 if state == "closing" else 1)
    assert effects(tmp_path).count("request") == (3 if state == "streaming" else 2)
    log = trio.run(log_of, tmp_path)
    assert [event.number for event in log] == list(range(1, len(log) + 1))
    assert [type(event).__name__ for event in log].count("TurnEnded") == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_between_states(when: str, tmp_path: Path) -> None:
    """Killed before or after any commit, the turn ends, and the call that must not repeat ran at most once (case 83)."""
    number = 0
    for number in until(50, part=2 * PART):
        directory = tmp_path / str(number)
        directory.mkdir()
        if not kill_at(directory, f"{when}:{number}"):
            break
        check(directory, trio.run(run, Place(directory, "-")))
    assert number > 8


@pytest.mark.deep
def test_killed_again_and_again(tmp_path: Path) -> None:
    """Killed at each state one after the other, the turn still ends."""
    for state in pick(list(EXPECTED)[1::3], list(EXPECTED)):
        kill_at(tmp_path, state)
    check(tmp_path, trio.run(run, Place(tmp_path, "-")))


def test_a_reply_that_kills_is_bounded(tmp_path: Path) -> None:
    """A reply that kills its process each time fails the turn after three resumptions, instead of for ever."""
    for _ in range(4):
        assert kill_at(tmp_path, "streaming")
    result = trio.run(run, Place(tmp_path, "streaming"))
    assert result["outcome"] == "failed"
    assert effects(tmp_path).count("request") == 4
