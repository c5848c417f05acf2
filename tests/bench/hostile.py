"""``python -m tests.bench hostile [NAME ...]``: what one session, model or client can make all others pay.

Each case runs in a process of its own, which is given up after :data:`PATIENCE` seconds. Told are the CPU that it took, the
longest time for which the loop answered nobody, the memory that it took on top, and what became of it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from .hostile_cases import CASES
from .measure import rss_mb

__all__ = ["child", "hostile"]

PATIENCE = 60.0
"""Seconds after which a case is given up."""


@attrs.define
class Loop:
    """The longest time, in seconds, between two looks at the clock by a task that wants one every millisecond."""

    longest: float = 0.0

    async def watch(self) -> None:
        """Look at the clock, until this is cancelled."""
        last = time.perf_counter()
        while True:
            await trio.sleep(0.001)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last)
            last = now


@asynccontextmanager
async def watched() -> AsyncGenerator[Loop]:
    """A block in which the loop is watched."""
    loop = Loop()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loop.watch)
        yield loop
        nursery.cancel_scope.cancel()


async def child(name: str) -> None:
    """One case, in this process."""
    base, cpu = rss_mb(), time.process_time()
    async with watched() as loop:
        outcome = await CASES[name]()
    print(time.process_time() - cpu, loop.longest, rss_mb() - base, outcome, sep="\t")


def hostile(names: Sequence[str]) -> None:
    """Run the cases and print a table."""
    print(f"{'case':<22}{'CPU s':>9}{'stall s':>9}{'MB':>8}  outcome")
    for name in names or list(CASES):
        print(_line(name), flush=True)


def _line(name: str) -> str:
    command = [sys.executable, "-m", "tests.bench", "--hostile", name]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"{name:<22}{'':>26}  did not end within {PATIENCE:g} s"
    except subprocess.CalledProcessError as error:
        return f"{name:<22}{'':>26}  broke: {error.stderr.strip().splitlines()[-1:] or error.returncode}"
    cpu, stall, size, outcome = run.stdout.rstrip("\n").split("\t")
    return f"{name:<22}{float(cpu):>9.2f}{float(stall):>9.2f}{float(size):>8.1f}  {outcome[:110]}"
