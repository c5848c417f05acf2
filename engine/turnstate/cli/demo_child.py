"""Runs the demo's agent in a process of its own, which ends when its parent does."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import trio

from . import demo_agent


async def run(db: str, session: str, slow: str) -> None:
    """Run the agent's program until it ends, or the standard input does: then the parent is gone."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_end_with_parent, nursery.cancel_scope)
        await demo_agent.main(Path(db), session, slow)
        nursery.cancel_scope.cancel()


async def _end_with_parent(scope: trio.CancelScope) -> None:
    await trio.lowlevel.wait_readable(sys.stdin.fileno())
    scope.cancel()


if __name__ == "__main__":
    # Ctrl-C is for the parent, which decides what becomes of this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    db, session, slow = sys.argv[1:]
    trio.run(run, db, session, slow)
