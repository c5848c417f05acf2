"""``turnstate sessions``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import trio

from ..client import Client
from ..reading import SessionFilter
from ..results import SessionInfo
from ..states import Call
from ..stores.sqlite import SQLiteStore
from .moments import moment
from .places import default_db, existing_db, home_short
from .streams import Console
from .terminal import Terminal, styled
from .text import display_width, one_line, short, visible

__all__ = ["counted", "open_text", "print_sessions", "sessions", "waiting_text"]

HEAD = ("SESSION", "STATE", "CHANGED", "OPEN", "TITLE")


def sessions(arguments: argparse.Namespace, console: Console) -> int:
    """List the sessions of a file."""
    path = existing_db(arguments.db)
    only: SessionFilter = {"waiting": arguments.waiting, "unfinished": arguments.unfinished}
    only["search"], only["archived"] = arguments.search, arguments.archived
    only["order"] = "recent" if arguments.recent else "id"
    found = [] if path is None else trio.run(_read, path, only)
    terminal = console.out
    if not found:
        terminal.line(f"no session {_which(arguments)} in {visible(home_short(path or default_db()))}")
        return 0
    print_sessions(terminal, found)
    return 0


def _which(arguments: argparse.Namespace) -> str:
    """What was asked for, in words."""
    asked = (
        (arguments.waiting, "waits for a person"),
        (arguments.unfinished, "is unfinished"),
        (arguments.archived, "is archived"),
        (arguments.search, f'has "{one_line(arguments.search)}" in its title'),
    )
    return " and ".join(words for given, words in asked if given) or "is stored"


async def _read(path: str, only: SessionFilter) -> list[SessionInfo]:
    async with Client(SQLiteStore(path)) as client:
        return [info async for info in client.sessions(**only)]


def _row(info: SessionInfo) -> tuple[str, ...]:
    return visible(info.id), visible(info.state), moment(info.updated_at), open_text(info), one_line(info.title)


def open_text(info: SessionInfo) -> str:
    """What is open in a session, in words."""
    found: list[str] = []
    if info.waiting:
        found.append(waiting_text(info.waiting))
    if info.queued:
        found.append(counted(info.queued, "message") + (" held" if info.held else ""))
    return ", ".join(found) or "-"


def waiting_text(calls: Sequence[Call]) -> str:
    """What people are asked, counted."""
    approvals = sum(call.wants == "decision" for call in calls)
    numbers = ((approvals, "approval"), (len(calls) - approvals, "question"))
    return ", ".join(counted(number, noun) for number, noun in numbers if number)


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "approval"), counted(2, "approval")
    ('1 approval', '2 approvals')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_sessions(terminal: Terminal, found: Sequence[SessionInfo], *, here: str = "") -> None:
    """Print a table of sessions; ``here`` is the one that the reader is in."""
    rows = [_row(info) for info in found]
    if here:
        rows = [(f"{row[0]} (here)" if row[0] == visible(here) else row[0], *row[1:]) for row in rows]
    widths = [max(display_width(row[place]) for row in (HEAD, *rows)) for place in range(len(HEAD) - 1)]
    left = terminal.width - sum(widths) - 2 * len(widths)
    for row in (HEAD, *rows):
        cells = [cell + " " * (width - display_width(cell)) for cell, width in zip(row[:-1], widths, strict=True)]
        # Whoever reads it through a pipe wants all of it.
        title = short(row[-1], max(12, left)) if terminal.is_tty else row[-1]
        text = "  ".join([*cells, title]).rstrip()
        terminal.line(styled(text, "bold") if row is HEAD else text)
