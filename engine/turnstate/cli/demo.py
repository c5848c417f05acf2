"""``turnstate demo``: where its files are, and what is told in which order."""

from __future__ import annotations

import argparse
import inspect
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from turnstate_states.errors import TurnstateError

from ..client import Client
from ..stores.sqlite import SQLiteStore
from . import demo_agent
from .demo_play import Play
from .demo_story import Story
from .lines import LineReader
from .places import home_short, make_state_dir, state_dir
from .streams import Console
from .terminal import Terminal, styled
from .text import visible

__all__ = ["demo"]

NAME = "demo"
WHAT = "What follows is real: processes, a SQLite file, SIGKILL. Only the model follows a script."


@attrs.frozen
class Place:
    """The demo's file, with the tools' files beside it, and its session. ``found``: a killed demo is in it."""

    db: Path
    session: str = NAME
    found: bool = False

    @property
    def files(self) -> list[Path]:
        """Everything that the demo makes."""
        beside = [self.db.with_name(f"{self.db.name}{end}") for end in ("-wal", "-shm", "-journal")]
        return [self.db, *beside, self.db.with_suffix(".ledger"), self.db.with_suffix(".outbox")]

    def remove(self) -> None:
        """Remove everything that the demo made."""
        for path in self.files:
            path.unlink(missing_ok=True)


def demo(arguments: argparse.Namespace, console: Console) -> int:
    """Run the demo, or print its program."""
    if arguments.source:
        console.out.write(f"{inspect.getsource(demo_agent).strip()}\n")
        return 0
    terminal = console.out
    lines = LineReader(console.stdin.fileno()) if terminal.is_tty and console.stdin.isatty() else None
    with _place(arguments) as place:
        killed = trio.run(_run, place, arguments.crash, None if arguments.yes else lines, terminal)
        if killed:
            db = f" --db {arguments.db}" if arguments.db else ""
            raise TurnstateError(
                f"killed in the middle of send_receipt, as asked; go on with: turnstate demo --yes{db}"
            )
        if arguments.crash and not arguments.db:
            place.remove()
        if arguments.db or arguments.keep:
            kept = ", ".join(visible(home_short(str(path))) for path in place.files if path.exists())
            terminal.line(styled(f"kept: {kept}", "dim"))
    return 0


@contextmanager
def _place(arguments: argparse.Namespace) -> Generator[Place]:
    """Where to run: the file that was named, a killed demo that waits to go on, or a folder that is removed."""
    left_over = state_dir() / "demo.db"
    if arguments.db:
        db = Path(arguments.db)
        yield trio.run(_named, db, arguments.crash) if db.exists() else Place(db)
    elif arguments.crash:
        make_state_dir()
        place = Place(left_over)
        place.remove()
        yield place
    elif left_over.exists() and trio.run(_is_unfinished, left_over, NAME):
        place = Place(left_over, found=True)
        yield place
        if not arguments.keep:
            place.remove()
    else:
        folder = Path(tempfile.mkdtemp(prefix="turnstate-demo-"))
        try:
            yield Place(folder / "demo.db")
        finally:
            if not arguments.keep:
                shutil.rmtree(folder, ignore_errors=True)


async def _named(db: Path, crash: bool) -> Place:
    """The place in a file that exists: its killed demo, or a session that is not in it yet."""
    number = 1
    name = NAME
    async with Client(SQLiteStore(db)) as client:
        known = {info.id: info.unfinished async for info in client.sessions()}
    while name in known:
        if known[name] and not crash:
            return Place(db, name, found=True)
        number += 1
        name = f"{NAME}-{number}"
    return Place(db, name)


async def _is_unfinished(db: Path, session: str) -> bool:
    async with Client(SQLiteStore(db)) as client:
        return (await client.session(session).info()).unfinished


async def _run(place: Place, crash: bool, lines: LineReader | None, terminal: Terminal) -> bool:
    """Play it; whether it stopped after the kill."""
    store = SQLiteStore(place.db)
    async with Client(store) as client:
        play = Play(Story(terminal, client.session(place.session), lines), store, place.db, place.session)
        terminal.line(styled("turnstate demo: an agent charges a card, and its process is killed meanwhile.", "bold"))
        terminal.wrapped(WHAT, "dim")
        if place.found:
            await play.go_on()
        elif crash:
            return await play.crash()
        else:
            await play.whole()
    return False
