"""Where a run of the command reads and prints."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

import attrs
import trio

from .terminal import Cleaned, Terminal

__all__ = ["Console", "Streams", "interrupts"]


@attrs.frozen
class Streams:
    """What the command reads and prints; by default the streams of the process.

    Args:
        stdin: must have a file descriptor (a file, a pipe or a terminal), because the chat waits for it.
        stdout: what was asked for.
        stderr: what went wrong.
    """

    stdin: TextIO = attrs.field(factory=lambda: sys.stdin)
    stdout: TextIO = attrs.field(factory=lambda: sys.stdout)
    stderr: TextIO = attrs.field(factory=lambda: sys.stderr)


@attrs.frozen
class Console:
    """The streams as the commands have them: what they print goes through a terminal, which cleans it."""

    stdin: TextIO
    out: Terminal
    err: Terminal

    @classmethod
    def of(cls, streams: Streams) -> Console:
        """The console on these streams."""
        return cls(streams.stdin, Terminal(streams.stdout), Terminal(streams.stderr))

    @contextmanager
    def takes_all(self) -> Generator[None]:
        """Have all that anything writes to this process's streams go through here: warnings, logs, tracebacks."""
        with redirect_stdout(Cleaned(self.out)), redirect_stderr(Cleaned(self.err)):
            yield


@contextmanager
def interrupts() -> Generator[AsyncIterator[int]]:
    """Each Ctrl-C. Signals reach the main thread only: in any other thread none comes."""
    if threading.current_thread() is threading.main_thread():
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            yield signals
    else:
        yield _Never()


class _Never:
    """Signals that never come."""

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        await trio.sleep_forever()
