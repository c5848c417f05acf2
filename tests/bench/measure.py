"""Timers and the output of the benchmark."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from types import TracebackType

import attrs

__all__ = ["Clock", "Figure", "median", "repeat", "rss_mb"]


def written() -> int:
    """Bytes that this process has passed to write calls; 0 where the system does not tell."""
    try:
        with open("/proc/self/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("wchar"))
    except OSError:
        return 0


def rss_mb() -> float:
    """The most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Clock:
    """Wall and CPU seconds, and bytes written, in a block."""

    wall = cpu = 0.0
    bytes = 0

    def __enter__(self) -> Clock:
        gc.collect()
        self._start = (time.perf_counter(), time.process_time(), written())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall, cpu, written_before = self._start
        self.wall = time.perf_counter() - wall
        self.cpu = time.process_time() - cpu
        self.bytes = written() - written_before


@attrs.frozen
class Figure:
    """One figure beside its floor: the same work with no framework, in the same run."""

    name: str
    value: float
    unit: str
    floor: float | None = None

    def line(self) -> str:
        """The figure as a line of the table."""
        ratio = "" if not self.floor else f"{self.value / self.floor:8.1f} x"
        floor = "" if self.floor is None else f"{self.floor:12.3f}"
        return f"{self.name:<46}{self.value:12.3f} {self.unit:<7}{floor:>12}{ratio:>12}"


def median(clocks: list[Clock], what: Callable[[Clock], float]) -> float:
    """The median of one figure over several runs."""
    return statistics.median(what(clock) for clock in clocks)


async def repeat(work: Callable[[], Awaitable[object]], *, times: int, runs: int) -> list[Clock]:
    """Time ``times`` goes at some work, ``runs`` times, after one run that is not counted."""
    clocks: list[Clock] = []
    for run in range(runs + 1):
        with Clock() as clock:
            for _ in range(times):
                await work()
        if run:
            clocks.append(clock)
    return clocks
