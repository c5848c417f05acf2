"""Running the command as people do: as a process, with pipes or at a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

PATIENCE = 20.0


def environment(home: Path) -> dict[str, str]:
    """An environment of its own below ``home``: no keys, no colour, files of nobody else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "XDG_"))}
    temporary = home / "tmp"
    temporary.mkdir(exist_ok=True)
    own = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "TMPDIR": str(temporary), "TERM": "dumb"}
    here = os.pathsep.join(entry for entry in sys.path if entry)
    return kept | own | {"PYTHONPATH": here, "NO_PROXY": "*", "PYTHONUTF8": "1"}


def command(*arguments: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "turnstate.cli", *arguments]


def run(home: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        command(*arguments),
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(home),
        cwd=home,
        check=False,
    )


@attrs.define
class Running:
    """A command that runs; ``text`` is what it printed so far."""

    process: trio.Process
    stdin: int
    stdout: int
    text: str = ""
    _seen: int = 0

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
            return await self.process.wait()

    async def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def at_terminal(home: Path, *arguments: str) -> AsyncGenerator[Running]:
    """Run the command at a terminal of its own."""
    ours, theirs = pty.openpty()
    try:
        async with _started(home, arguments, theirs, theirs) as process:
            os.close(theirs)
            yield Running(process, ours, ours)
    finally:
        os.close(ours)


@asynccontextmanager
async def through_pipe(home: Path, given: str, *arguments: str) -> AsyncGenerator[Running]:
    """Run the command with lines that come through a pipe."""
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    os.write(in_write, given.encode())
    os.close(in_write)
    try:
        async with _started(home, arguments, in_read, out_write) as process:
            os.close(in_read)
            os.close(out_write)
            yield Running(process, -1, out_read)
    finally:
        os.close(out_read)


@asynccontextmanager
async def _started(home: Path, arguments: Sequence[str], stdin: int, stdout: int) -> AsyncGenerator[trio.Process]:
    process = await trio.lowlevel.open_process(
        command(*arguments), stdin=stdin, stdout=stdout, stderr=stdout, env=environment(home), cwd=home
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
