"""Printing for people: width, colour, wrapping, and nothing that could fool a terminal."""

from __future__ import annotations

import calendar
import json
import os
import textwrap
import time
import unicodedata
from collections.abc import Mapping
from typing import Any, TextIO

from ..states import Call

__all__ = [
    "Terminal",
    "call_text",
    "display_width",
    "moment",
    "one_line",
    "plain",
    "short",
    "shown_call",
    "since",
    "value_text",
]

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
ASCII = str.maketrans({"→": "->", "✓": "+", "✗": "x", "·": "-", "—": "-", "…": "...", "–": "-"})
HIDDEN = dict.fromkeys((*range(32), *range(127, 160), *range(8234, 8239), *range(8294, 8298)), "�")
del HIDDEN[9], HIDDEN[10]


class Terminal:
    """A stream that people read.

    Args:
        stream: where it is printed.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_tty = self.stream.isatty()
        self._colour = self.is_tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._ascii = not _can_encode("→✓", self.stream)
        self.width = max(40, min(_columns(stream) if self.is_tty else 88, 100))

    def style(self, text: str, *styles: str) -> str:
        """The text in colour, where there is colour."""
        if not self._colour or not styles or not text:
            return text
        return f"\x1b[{';'.join(STYLES[style] for style in styles)}m{text}\x1b[0m"

    def write(self, text: str) -> None:
        """Write a piece, at once."""
        self.stream.write(text.translate(ASCII) if self._ascii else text)
        self.stream.flush()

    def line(self, text: str = "", *styles: str) -> None:
        """Write a line as it is."""
        self.write(f"{self.style(text, *styles)}\n")

    def wrapped(self, text: str, *styles: str, indent: str = "", first: str | None = None) -> None:
        """Write a text, wrapped, below an indent; ``first`` stands in place of the first line's indent."""
        lead = indent if first is None else first
        for row in text.split("\n"):
            for part in textwrap.wrap(row, max(20, self.width - len(indent)), break_on_hyphens=False) or [""]:
                self.write(f"{lead}{self.style(part, *styles)}".rstrip() + "\n")
                lead = indent

    def labelled(self, label: str, text: str, *styles: str, column: int = 12) -> None:
        """Write a text beside a label."""
        head = self.style(f"  {label}", "bold") + " " * max(1, column - 2 - len(label))
        self.wrapped(text, *styles, indent=" " * column, first=head)


def _columns(stream: TextIO) -> int:
    """The width of a terminal: what $COLUMNS says, or the terminal, or a usual one."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 88
    except OSError:
        return 88


def _can_encode(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def display_width(text: str) -> int:
    """The columns that a text takes in a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def plain(text: str) -> str:
    r"""A text of a model or a tool, without characters that steer a terminal or turn the direction of writing.

    >>> plain("a\x1b[31mb")
    'a�[31mb'
    """
    return text.translate(HIDDEN)


def one_line(text: str) -> str:
    """A text on one line."""
    return plain(" ".join(text.split()))


def short(text: str, limit: int) -> str:
    """A text on one line, cut to a number of characters.

    >>> short("one  two three", 8)
    'one two…'
    """
    line = one_line(text)
    return line if len(line) <= limit else line[: max(1, limit - 1)].rstrip() + "…"


def value_text(value: Any) -> str:
    """An argument as JSON in which every character can be seen."""
    return visible(json.dumps(value, ensure_ascii=False))


def visible(text: str) -> str:
    r"""A text in which every character can be seen: those that cannot are escaped.

    >>> visible("a\u202eb")
    'a\\u202eb'
    """
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def call_text(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call as one would write it.

    >>> call_text("pay", {"to": "Ana", "euros": 3})
    'pay(to="Ana", euros=3)'
    """
    inside = ", ".join(f"{name}={value_text(value)}" for name, value in arguments.items())
    return f"{plain(tool)}({inside})"


def shown_call(call: Call) -> str:
    """A call with the arguments in force; as the model sent them where they are no JSON object."""
    arguments = call.arguments
    if not arguments and call.arguments_json.strip() not in ("", "{}"):
        return f"{plain(call.tool)}({one_line(call.arguments_json)})"
    return call_text(call.tool, arguments)


def moment(at: float, now: float | None = None) -> str:
    """A time of the past as people say it: the weekday within the last days, the date before."""
    then = time.localtime(at)
    today = time.localtime(time.time() if now is None else now)
    clock = time.strftime("%H:%M", then)
    days = (_day(today) - _day(then)) // 86400
    if days == 0:
        return f"today {clock}"
    if 0 < days < 7:
        return f"{time.strftime('%A', then)} {clock}"
    return time.strftime("%Y-%m-%d %H:%M", then)


def _day(when: time.struct_time) -> int:
    """The day as seconds, without the shifts of summer time."""
    return calendar.timegm((when.tm_year, when.tm_mon, when.tm_mday, 0, 0, 0, 0, 0, 0))


def since(at: float) -> str:
    """Since when, in words."""
    return f"since {moment(at).removeprefix('today ')}"
