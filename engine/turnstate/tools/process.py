"""A child process whose output is read as it comes, and which is gone when nobody waits for it any more."""

from __future__ import annotations

import codecs
import contextlib
import functools
import json
import logging
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import trio

__all__ = ["Child", "HeadAndTail", "run_child"]

log = logging.getLogger("turnstate")
CHUNK = 64 * 1024
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL; below the grace that a tool has to end when it is cancelled."""
DRAIN = 1.0
"""Seconds in which the rest of the output is read after the process ended; something else may hold the pipe open."""
REAP = 5.0
"""Seconds in which a killed process is waited for."""


class HeadAndTail:
    """The first and the last bytes of a stream, in memory that does not grow with it.

    >>> kept = HeadAndTail(8)
    >>> for piece in (b"abc", b"defgh", b"ijklmn"):
    ...     kept.add(piece)
    >>> kept.text()
    'abcd\\n…6 bytes left out…\\nklmn'
    """

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes | bytearray) -> None:
        """Take the next piece."""
        self._total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._half :]
            if len(self._tail) > 2 * self._half:
                del self._tail[: -self._half]

    def text(self) -> str:
        """What was kept as text, cut between characters; what is no UTF-8 becomes U+FFFD."""
        tail = self._tail[-self._half :]
        if self._total == len(self._head) + len(tail):
            return (self._head + tail).decode(errors="replace")
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        start = next((at for at, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        left_out = self._total - len(self._head) - len(tail)
        return f"{head}\n…{left_out:,} bytes left out…\n{tail[start:].decode(errors='replace')}"


class Child:
    """A process that leads a group of its own, with one pipe for what it says and, if asked for, one for its status.

    It is started in the calling thread, not in a helper: Linux ends a process that is bound to its parent when the
    *thread* that started it ends.
    """

    def __init__(self, popen: subprocess.Popen[bytes], output: int, status: int | None) -> None:
        self._popen = popen
        self._output: trio.lowlevel.FdStream | None = trio.lowlevel.FdStream(output)
        self._status = status
        self._told = b""
        self.exited = trio.Event()

    @classmethod
    def start(cls, command: Sequence[str], env: Mapping[str, str], cwd: str | None, status_option: str) -> Child:
        """Start a command; ``status_option`` names the option that takes the number of the status pipe, if it has one."""
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            output, sink = _pipe(ours, theirs)
            status: int | None = None
            told: tuple[int, ...] = ()
            words = list(command)
            if status_option:
                status, number = _pipe(ours, theirs)
                os.set_blocking(status, False)
                words[1:1] = [status_option, str(number)]
                told = (number,)
            popen = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=env,
                cwd=cwd,
                start_new_session=True,
                pass_fds=told,
            )
            ours.pop_all()
        return cls(popen, output, status)

    def status(self) -> dict[str, Any]:
        """What the status pipe told so far: JSON objects, merged."""
        while self._status is not None:
            try:
                piece = os.read(self._status, CHUNK)
            except BlockingIOError:
                break
            if not piece:
                break
            self._told += piece
        found: dict[str, Any] = {}
        for line in self._told.splitlines(keepends=True):
            if line.endswith(b"\n"):
                found |= json.loads(line)
        return found

    async def read_into(self, kept: HeadAndTail) -> None:
        """Read the output to its end."""
        assert self._output is not None, "output is read once the process was started"
        while piece := await self._output.receive_some(CHUNK):
            kept.add(piece)

    async def watch(self, scope: trio.CancelScope) -> None:
        """Set ``exited`` when the process has ended. Its number stays taken until :meth:`end`."""
        with scope:
            try:
                handle = os.pidfd_open(self._popen.pid)
            except (AttributeError, OSError):  # another system, or an old kernel
                wait = functools.partial(os.waitid, os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
                await trio.to_thread.run_sync(wait, abandon_on_cancel=True)
            else:
                try:
                    await trio.lowlevel.wait_readable(handle)
                finally:
                    os.close(handle)
            self.exited.set()

    def signal(self, number: int) -> None:
        """Send a signal to the group, and to the group inside of the sandbox if it told its number."""
        inner = self.status().get("child-pid")
        if inner is not None and not self.exited.is_set():
            _signal_group(inner, number)
        if inner is None or number == signal.SIGKILL:
            _signal_group(self._popen.pid, number)

    async def end(self) -> None:
        """End what still runs, in two steps, and take the process off the system's list."""
        if not self.exited.is_set():
            self.signal(signal.SIGTERM)
            with trio.move_on_after(GRACE):
                await self.exited.wait()
        self.signal(signal.SIGKILL)
        with trio.move_on_after(REAP):
            await self.exited.wait()
        if self.exited.is_set():
            self._popen.wait()
        else:
            log.warning("process %d did not end when it was killed; it is left alone", self._popen.pid)

    async def close(self) -> None:
        """Close the pipes."""
        if self._output is not None:
            stream, self._output = self._output, None
            await trio.aclose_forcefully(stream)
        if self._status is not None:
            os.close(self._status)
            self._status = None

    @property
    def code(self) -> int:
        """The exit code, or minus the signal that ended it."""
        return self._popen.returncode


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe from the child: our end is closed if starting fails, the child's in any case."""
    read, write = os.pipe()
    ours.callback(os.close, read)
    theirs.callback(os.close, write)
    return read, write


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or (on macOS) only the dead are left


async def run_child(
    command: Sequence[str], *, limit: int, env: Mapping[str, str], cwd: str | None = None, status_option: str = ""
) -> tuple[int, HeadAndTail, dict[str, Any]]:
    """Run a command to its end: its exit code, its output, and what it told on its status pipe.

    On every way out, also if this is cancelled, its whole group is gone and its pipes are closed.
    """
    child = Child.start(command, env, cwd, status_option)
    kept = HeadAndTail(limit)
    try:
        async with trio.open_nursery() as nursery:
            watching = trio.CancelScope(shield=True)
            nursery.start_soon(child.watch, watching)
            try:
                with trio.CancelScope() as reading:
                    async with trio.open_nursery() as readers:
                        readers.start_soon(child.read_into, kept)
                        await child.exited.wait()
                        child.signal(signal.SIGKILL)  # what it left behind
                        reading.deadline = trio.current_time() + DRAIN
            finally:
                with trio.CancelScope(shield=True):
                    await child.end()
                watching.cancel()
        return child.code, kept, child.status()
    finally:
        with trio.CancelScope(shield=True):
            await child.close()
