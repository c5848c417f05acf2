"""Running the command: in this process with streams of its own, or as a process where that is what is tested.

In this process it runs as it does in its own: ``main`` with real files, pipes and terminals, an event loop of its own in
a thread. What only a process has, such as signals and its death, is in ``processes.py``.
"""

from __future__ import annotations

import io
import os
import pty
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TextIO

import attrs
import trio

from turnstate.cli import Streams, main

PATIENCE = 60.0 * float(os.environ.get("TURNSTATE_PATIENCE", "1"))
"""Seconds until a test that waits in vain fails. $TURNSTATE_PATIENCE multiplies it, for machines under load."""


def environment(home: Path) -> dict[str, str]:
    """An environment of its own below ``home``: no keys, no colour, files of nobody else."""
    dropped = ("OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "XDG_", "COLUMNS", "NO_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    temporary = home / "tmp"
    temporary.mkdir(exist_ok=True)
    own = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "TMPDIR": str(temporary), "TERM": "dumb"}
    here = os.pathsep.join(entry for entry in sys.path if entry)
    return kept | own | {"PYTHONPATH": here, "NO_PROXY": "*", "PYTHONUTF8": "1"}


# ---- a command that runs to its end


@attrs.frozen
class Done:
    """What a command that has ended gave."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str, given: str = "") -> Done:
    """Run the command to its end, with nobody at a terminal."""
    read, write = os.pipe()
    os.write(write, given.encode())
    os.close(write)
    out, err = _buffer(), _buffer()
    with open(read, encoding="utf-8") as stdin:
        thread = _Thread(lambda: main(arguments, streams=Streams(stdin, out, err)))
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"it does not end: {arguments}"
    return Done(thread.result(), _written(out), _written(err))


def _buffer() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()


class _Thread(threading.Thread):
    """A call in a thread, its result or its error kept."""

    def __init__(self, call: Callable[[], int], ended: Callable[[], None] = lambda: None) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._ended = ended
        self._code: int | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._code = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._ended()

    def result(self) -> int:
        """The exit code.

        Raises:
            BaseException: what the command did not handle.
        """
        if self._error is not None:
            raise self._error
        assert self._code is not None
        return self._code


# ---- a command that one talks to


@attrs.define
class Running(ABC):
    """A command that runs; ``text`` is what it printed so far."""

    stdin: int
    stdout: int
    text: str = ""
    _seen: int = 0

    @abstractmethod
    async def wait(self) -> int:
        """Wait for its end; the exit code."""

    async def until(self, expected: str) -> str:
        """Wait until a text was printed that was not waited for yet; what came with it."""
        with trio.fail_after(PATIENCE):
            while expected not in self.text[self._seen :]:
                if not await self._read():
                    raise AssertionError(f"it ended without {expected!r}:\n{self.text[self._seen :]}")
        end = self.text.index(expected, self._seen) + len(expected)
        part, self._seen = self.text[self._seen : end], end
        return part

    async def _read(self) -> bool:
        await trio.lowlevel.wait_readable(self.stdout)
        try:
            data = os.read(self.stdout, 65536)
        except OSError:
            data = b""
        self.text += re.sub(r"\x1b\[[\d;]*m", "", data.decode(errors="replace")).replace("\r\n", "\n")
        return bool(data)

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self.stdin, f"{line}\n".encode())

    async def end(self) -> int:
        """Wait for its end; the exit code."""
        with trio.fail_after(PATIENCE):
            while await self._read():
                pass
            return await self.wait()


@attrs.define
class InThread(Running):
    """A command that runs in a thread of this process."""

    thread: _Thread = attrs.field(kw_only=True)
    ended: trio.Event = attrs.field(kw_only=True)

    async def wait(self) -> int:
        await self.ended.wait()
        return self.thread.result()


@asynccontextmanager
async def at_terminal(*arguments: str) -> AsyncGenerator[Running]:
    """Run the command at a terminal of its own. Who leaves closes the terminal, which it must survive."""
    ours, theirs = pty.openpty()
    running = _start(arguments, ours, ours, theirs, theirs)
    try:
        yield running
    finally:
        os.close(ours)
        await _left(running)
    running.thread.result()


@asynccontextmanager
async def through_pipe(given: str, *arguments: str) -> AsyncGenerator[Running]:
    """Run the command with lines that come through a pipe."""
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    os.write(in_write, given.encode())
    os.close(in_write)
    running = _start(arguments, -1, out_read, in_read, out_write)
    try:
        yield running
    finally:
        os.close(out_read)
        await _left(running)
    running.thread.result()


def _start(arguments: Sequence[str], ours_in: int, ours_out: int, stdin: int, stdout: int) -> InThread:
    """Start it with these descriptors, which are closed at its end. What goes wrong is printed to ``stdout`` too."""
    ended, token = trio.Event(), trio.lowlevel.current_trio_token()

    def call() -> int:
        given = open(stdin, encoding="utf-8", closefd=stdin != stdout)  # noqa: SIM115 - closed below
        printed = open(stdout, "w", encoding="utf-8")  # noqa: SIM115
        try:
            return main(arguments, streams=Streams(given, printed, printed))
        finally:
            _close(given)
            _close(printed)

    def tell() -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(ended.set)

    thread = _Thread(call, tell)
    thread.start()
    return InThread(ours_in, ours_out, thread=thread, ended=ended)


def _close(stream: TextIO) -> None:
    """Close it, also where what is at its other end is gone."""
    with suppress(OSError):
        stream.close()


async def _left(running: InThread) -> None:
    """Whoever sat there has gone: it ends by itself."""
    with trio.CancelScope(shield=True), trio.move_on_after(PATIENCE):
        await running.ended.wait()
    assert running.ended.is_set(), "it goes on after its terminal or pipe was closed"
