"""``turnstate sessions``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import trio

from ..client import Client
from ..results import SessionInfo
from ..stores.sqlite import SQLiteStore
from .places import default_db, existing_db, home_short
from .terminal import Terminal, display_width, moment, one_line, short

__all__ = ["sessions"]

HEAD = ("SESSION", "STATE", "CHANGED", "OPEN", "TITLE")


def sessions(arguments: argparse.Namespace) -> int:
    """List the sessions of a file."""
    path = existing_db(arguments.db)
    found = [] if path is None else trio.run(_read, path, arguments.waiting, arguments.unfinished)
    terminal = Terminal()
    if not found:
        which = "waits for a person" if arguments.waiting else "is unfinished" if arguments.unfinished else "is stored"
        terminal.line(f"no session {which} in {home_short(path or default_db())}")
        return 0
    _print(terminal, [_row(info) for info in found])
    return 0


async def _read(path: str, waiting: bool, unfinished: bool) -> list[SessionInfo]:
    async with Client(SQLiteStore(path)) as client:
        return [info async for info in client.sessions(waiting=waiting, unfinished=unfinished)]


def _row(info: SessionInfo) -> tuple[str, ...]:
    return info.id, info.state, moment(info.updated_at), open_text(info), one_line(info.title)


def open_text(info: SessionInfo) -> str:
    """What is open in a session, in words."""
    found: list[str] = []
    if info.waiting:
        found.append(counted(len(info.waiting), "approval"))
    if info.queued:
        found.append(counted(info.queued, "message") + (" held" if info.held else ""))
    return ", ".join(found) or "-"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "approval"), counted(2, "approval")
    ('1 approval', '2 approvals')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _print(terminal: Terminal, rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(display_width(row[place]) for row in (HEAD, *rows)) for place in range(len(HEAD) - 1)]
    left = terminal.width - sum(widths) - 2 * len(widths)
    for row in (HEAD, *rows):
        cells = [cell + " " * (width - display_width(cell)) for cell, width in zip(row[:-1], widths, strict=True)]
        # Whoever reads it through a pipe wants all of it.
        title = short(row[-1], max(12, left)) if terminal.is_tty else row[-1]
        text = "  ".join([*cells, title]).rstrip()
        terminal.line(text, *(("bold",) if row is HEAD else ()))
