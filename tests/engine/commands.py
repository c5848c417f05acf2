"""What the tests of the shell tool share."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from turnstate import ToolContext
from turnstate.tools import Tool
from turnstate_states.turn import Permissions

both = pytest.mark.parametrize("sandbox", [pytest.param("bubblewrap", marks=pytest.mark.bubblewrap), "none"])


async def run(made: Tool[..., Any], command: str, *, network: bool = False, write: tuple[str, ...] = ()) -> str:
    """What the model reads of a command that has these permissions."""
    context: ToolContext[None] = ToolContext(None, session_id="s", turn_id="t1", call_id="m2.0", tool=made.name)
    context.permissions = Permissions(network, write)
    found: str = await made(context, command)
    return found


def running(marker: str) -> bool:
    """Whether a process of the machine has this word in its command line."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker in (entry / "cmdline").read_bytes().decode(errors="replace").split("\0"):
                return True
        except OSError:
            continue
    return False


async def until(marker: str, wanted: bool) -> None:
    """Wait until such a process runs, or until none does."""
    with trio.fail_after(10):
        while running(marker) is not wanted:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.02)


def zombies() -> list[str]:
    """Children of this process that ended and that nobody waited for."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state == "Z" and int(parent) == os.getpid():
            found.append(entry.name)
    return found


async def fetch(made: Tool[..., Any], *, network: bool) -> str:
    """What a command reads from a server on the loopback address of the test."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.send_all(b"secret")

    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(
            functools.partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        )
        port = listeners[0].socket.getsockname()[1]
        found = await run(made, f"bash -c 'cat < /dev/tcp/127.0.0.1/{port}'", network=network)
        nursery.cancel_scope.cancel()
    return found
