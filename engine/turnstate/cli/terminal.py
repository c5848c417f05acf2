"""The one door to a terminal: whatever is printed goes through it, and nothing that could fool a terminal does."""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

import attrs

from .text import display_width, plain

__all__ = ["Cleaned", "Piece", "Styled", "Terminal", "styled"]

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
ASCII = str.maketrans({"→": "->", "✓": "+", "✗": "x", "·": "-", "—": "-", "…": "...", "–": "-", "↪": ">", "␠": "_"})
BREAKS = str.maketrans("\n\t", "  ")


@attrs.frozen
class Styled:
    """A text with styles. Only the terminal makes codes of these, so that no text can bring codes of its own."""

    text: str
    styles: tuple[str, ...] = ()


Piece = str | Styled


def styled(text: str, *styles: str) -> Styled:
    """A text in these styles."""
    return Styled(text, styles)


class Terminal:
    """A stream that people read. All text is cleaned on its way, see `plain`, whoever cleaned it before.

    Args:
        stream: where it is printed. Nobody else is to write to it meanwhile.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_tty = stream.isatty()
        self._colour = self.is_tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._encoding = stream.encoding or "utf-8"
        self._ascii = not _can_encode("→✓", self._encoding)
        self.width = max(40, min(_columns(stream) if self.is_tty else 88, 100))

    def write(self, *pieces: Piece) -> None:
        """Write texts, at once. Tabs and line ends in them are kept."""
        self._stream.write("".join(map(self._code, pieces)))
        self._stream.flush()

    def line(self, *pieces: Piece) -> None:
        """Write one line; what would break it is a space in it."""
        self.write(*map(_unbroken, pieces), "\n")

    def wrapped(self, text: str, *styles: str, indent: str = "", first: Sequence[Piece] | None = None) -> None:
        """Write a text, wrapped, below an indent; ``first`` stands in place of the first line's indent."""
        lead: Sequence[Piece] = (indent,) if first is None else first
        for row in plain(text).split("\n"):
            for part in _wrapped(row, max(20, self.width - len(indent))):
                self.line(*lead, styled(part, *styles)) if part else self.line(*_stripped(lead))
                lead = (indent,)

    def labelled(self, label: str, text: str, *styles: str, column: int = 12) -> None:
        """Write a text beside a label."""
        gap = " " * max(1, column - 2 - display_width(label))
        self.wrapped(text, *styles, indent=" " * column, first=(styled(f"  {label}", "bold"), gap))

    def rows(self, text: str, indent: int) -> list[str]:
        """A text as it stands in rows below an indent, with every character: what a person is to approve.

        Nothing is left out where a row ends: a row that goes on begins with an arrow, and spaces at an end are shown.
        """
        return exact_rows(text, max(20, self.width - indent))

    def _code(self, piece: Piece) -> str:
        text, styles = (piece, ()) if isinstance(piece, str) else (piece.text, piece.styles)
        text = plain(text)
        if self._ascii:
            text = text.translate(ASCII)
        text = text.encode(self._encoding, "backslashreplace").decode(self._encoding)
        if not self._colour or not styles or not text:
            return text
        return f"\x1b[{';'.join(STYLES[style] for style in styles)}m{text}\x1b[0m"


def _wrapped(row: str, width: int) -> list[str]:
    """A row in several. A break takes the place of one space; where there are more they are shown."""
    *parts, last = textwrap.wrap(row, width, break_on_hyphens=False, drop_whitespace=False) or [""]
    found: list[str] = []
    for part in (*parts, last.rstrip()):
        if found and part[:1] == " " and part[:2] != "  ":
            part = part[1:]
        found.append(_ends_seen(part) if part.endswith("  ") else part.rstrip())
    return found


def exact_rows(text: str, width: int) -> list[str]:
    """Rows that together hold every character of a text.

    >>> exact_rows("one  two three ", 8)
    ['one  two', '↪␠three␠']
    """
    found: list[str] = []
    row, room = "", width
    for char in text:
        wide = display_width(char)
        if wide > room:
            found.append(_ends_seen(row))
            row, room = "↪", width - 1
        row, room = row + char, room - wide
    return [*found, _ends_seen(row)]


def _ends_seen(row: str) -> str:
    """The row with the spaces at its ends shown."""
    start = "↪" if row.startswith("↪") else ""
    inside = row[len(start) :]
    text = inside.rstrip(" ")
    if start:
        text = "␠" * (len(text) - len(text.lstrip(" "))) + text.lstrip(" ")
    return start + text + "␠" * (len(inside) - len(inside.rstrip(" ")))


class Cleaned(io.TextIOBase):
    """A stream that writes through a terminal: for what others write to the streams of this process, such as warnings."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def write(self, text: str) -> int:
        self._terminal.write(text)
        return len(text)

    def writable(self) -> bool:
        return True


def _unbroken(piece: Piece) -> Piece:
    if isinstance(piece, str):
        return piece.translate(BREAKS)
    return Styled(piece.text.translate(BREAKS), piece.styles)


def _stripped(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces without blanks at the end."""
    found = list(pieces)
    while found and isinstance(found[-1], str):
        found[-1] = found[-1].rstrip()
        if found[-1]:
            break
        found.pop()
    return found


def _columns(stream: TextIO) -> int:
    """The width of a terminal: what $COLUMNS says, or the terminal, or a usual one."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 88
    except OSError:
        return 88


def _can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
