"""The time for the record: seconds since the epoch."""

from __future__ import annotations

import time

import trio

__all__ = ["Clock"]


class Clock:
    """Wall-clock time; under a clock of trio's that does not follow the real one, that clock's time on top of a start.

    So timestamps are right after a suspend of the machine, and a test that steers trio's clock steers this one as well.
    """

    def __init__(self) -> None:
        clock = trio.lowlevel.current_clock()
        self._real = type(clock).__name__ == "SystemClock"
        self._offset = time.time() - trio.current_time()

    def now(self) -> float:
        """The time in seconds since the epoch."""
        return time.time() if self._real else trio.current_time() + self._offset
