"""Running the command as a process of its own: for what only a process has, such as signals and its death."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from tests.cli.command import PATIENCE, Running, environment


def command(*arguments: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "turnstate.cli", *arguments]


def run_process(home: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
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
class Process(Running):
    """A process at a terminal."""

    process: trio.Process = attrs.field(kw_only=True)

    async def wait(self) -> int:
        return await self.process.wait()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.kill(self.process.pid, 2)

    async def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def process_at_terminal(home: Path, *arguments: str) -> AsyncGenerator[Process]:
    """Start it at a terminal of its own; it is killed if it has not ended."""
    ours, theirs = pty.openpty()
    process = await trio.lowlevel.open_process(
        command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=environment(home), cwd=home
    )
    os.close(theirs)
    try:
        yield Process(ours, ours, process=process)
    finally:
        os.close(ours)
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
