"""A long turn that is killed again and again, and many turns in one process."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.depth import counted, pick
from tests.scenarios.common import log_of, names
from tests.scenarios.long_turn import STEPS
from turnstate import Agent, Engine, MemoryStore, SQLiteStore, tool
from turnstate.testing import ScriptedModel, call

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("TURNSTATE_KILLS") or pick(2, 20))
SEED = int(os.environ.get("TURNSTATE_SEED", "20"))
TURNS = int(os.environ.get("TURNSTATE_TURNS") or pick(60, 300))


def start(directory: Path) -> subprocess.Popen[str]:
    """The program in a process of its own."""
    command = [sys.executable, "-m", "tests.scenarios.long_turn", str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def killed_after(directory: Path, step: int, seconds: float) -> bool:
    """Kill the program some time after it began this step or a later one; False if it came to its end before."""
    with start(directory) as process:
        assert process.stdout is not None
        seen = 0
        while seen < step:
            line = process.stdout.readline()
            assert line, "the program failed"
            if line.startswith("{"):
                return False
            seen = int(line.split()[1])
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        counted("kills")
        process.wait(20)
        return process.returncode == -signal.SIGKILL


def lines(path: Path) -> Counter[str]:
    """What a file holds, line by line."""
    return Counter(path.read_text().splitlines())


def test_killed_again_and_again(tmp_path: Path) -> None:
    """A turn of 200 steps with steers and summaries, killed with SIGKILL again and again at random, ends; no effect of a tool
    that reports happens twice, each of one that may run again happens, each steer is heard once (cases 36, 71, 83)."""
    dice = random.Random(SEED)
    for step in sorted(dice.sample(range(1, STEPS - 10), KILLS)):
        assert killed_after(tmp_path, step, dice.uniform(0, 0.005))
    with start(tmp_path) as process:
        output, _ = process.communicate(timeout=60)
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    assert (result["outcome"], result["text"]) == ("completed", "done")
    assert result["steps"] > STEPS
    effects = lines(tmp_path / "effects")
    for step in range(1, STEPS + 1):
        assert effects[f"charge {step}"] <= 1
        assert effects[f"note {step}"] >= 1
        assert result["calls"][f"note {step}"] == "ok"
        status = result["calls"][f"charge {step}"]
        assert status in ("ok", "unknown")
        assert effects[f"charge {step}"] == 1 or status == "unknown"
    assert sum(status == "unknown" for status in result["calls"].values()) <= KILLS
    said: list[str] = result["said"]
    heard, sent = Counter(said), lines(tmp_path / "sent")
    assert len(sent) > STEPS // 20
    assert {text: heard[text] for text in sent} == dict.fromkeys(sent, 1)
    log = trio.run(log_of, SQLiteStore(tmp_path / "turns.db"))
    assert [event.number for event in log] == list(range(1, len(log) + 1))
    assert names(log).count("TurnEnded") == 1
    assert names(log).count("Compacted") > 5


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


async def turns(engine: Engine[None], number: int, run: Callable[[Engine[None], int], Awaitable[None]]) -> None:
    """Run some turns."""
    for at in range(number):
        await run(engine, at)


async def one_turn(engine: Engine[None], at: int) -> None:
    """A turn with a call, in a session of its own, followed by a reader, then deleted."""
    session = engine.session(f"s{at}")
    async with session.turn("go") as turn:
        async for _ in turn:
            pass
        await turn.result()
    while engine.driven(session.id) is not None:  # noqa: ASYNC110 - a driver leaves without a word
        await trio.sleep(0.05)
    await engine.store.delete(session.id)


def memory() -> int:
    """What is allocated now."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.deep
@pytest.mark.trio
async def test_memory_is_flat(autojump_clock: Any) -> None:
    """Over many turns in one process nothing piles up: a turn that is over leaves nothing behind in memory."""

    class Forgetful(ScriptedModel):
        async def respond(self, request: Any, on_delta: Any) -> Any:
            reply = await super().respond(request, on_delta)
            self.requests.clear()
            return reply

    model = Forgetful(lambda request: "done" if request.messages[-1].role == "tool" else call("noop"))
    async with Engine(Agent(model, tools=[noop]), MemoryStore()) as engine:
        engine.linger = 0.01
        await turns(engine, 30, one_turn)
        tracemalloc.start()
        try:
            await turns(engine, 30, one_turn)
            before = memory()
            await turns(engine, TURNS, one_turn)
            grown = memory() - before
        finally:
            tracemalloc.stop()
    assert grown < 50_000, f"{grown} bytes over {TURNS} turns"
