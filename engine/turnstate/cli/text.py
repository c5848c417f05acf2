"""Texts of others made fit to be read: nothing in them steers a terminal, hides, or turns the direction of writing."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import Any

from turnstate_states.errors import InvalidInput

from ..states import Call

__all__ = [
    "call_text",
    "display_width",
    "hides",
    "one_line",
    "plain",
    "short",
    "shown_call",
    "value_text",
    "visible",
]

UNSEEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Categories of Unicode of which nothing reaches a terminal: controls, formats, surrogates, private ones, separators."""
TAGS = range(0xE0000, 0xE1000)
"""A copy of ASCII that nothing shows, selectors of variants, and what is not assigned yet but will be as invisible."""
JOINERS = (0x200C, 0x200D)
"""Parts of words in some scripts, and of emoji. What is left without them can be read."""
BLANK = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2420, 0x2800, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10)}
"""Letters and marks that look like nothing, and the sign that stands for a space where one would not be seen."""


def hides(char: str) -> bool:
    """Whether a character could fool the reader of a terminal. Tabs and line ends are said to, too.

    >>> hides("a"), hides("\\x1b"), hides("\\u202e")
    (False, True, True)
    """
    return unicodedata.category(char) in UNSEEN or ord(char) in TAGS


class _Plain(dict[int, str | None]):
    """What stands for a character in a text to be read, found when it is first met."""

    def __missing__(self, code: int) -> str | None:
        found: str | None = chr(code)
        if code in JOINERS:
            found = None
        elif hides(chr(code)):
            found = "\ufffd"
        if code < 0x10000 or found != chr(code):
            self[code] = found
        return found


PLAIN = _Plain({9: "\t", 10: "\n"})


def plain(text: str) -> str:
    r"""A text of a model or a tool, without what could fool the reader of a terminal; tabs and line ends are kept.

    >>> plain("a\x1b[31mb")
    'a�[31mb'
    """
    return text if text.isascii() and text.isprintable() else text.replace("\r\n", "\n").translate(PLAIN)


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


def visible(text: str) -> str:
    r"""A text in which every character can be seen: those that cannot are escaped as in JSON.

    For values, names, ids and paths: other than in prose, two that differ must not look the same.

    >>> visible("a\u202eb")
    'a\\u202eb'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_seen(char) for char in text)


def _seen(char: str) -> str:
    if char.isprintable() and not hides(char) and ord(char) not in BLANK:
        return char
    escaped = json.dumps(char)[1:-1]
    return escaped if escaped != char else f"\\u{ord(char):04x}"


def value_text(value: Any) -> str:
    """An argument as JSON in which every character can be seen."""
    return visible(json.dumps(value, ensure_ascii=False))


def call_text(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call as one would write it.

    >>> call_text("pay", {"to": "Ana", "euros": 3})
    'pay(to="Ana", euros=3)'
    """
    inside = ", ".join(f"{visible(key)}={value_text(value)}" for key, value in arguments.items())
    return f"{visible(tool)}({inside})"


def shown_call(call: Call) -> str:
    """A call with the arguments in force; as the model sent them where they are no JSON object."""
    try:
        return call_text(call.tool, call.arguments)
    except InvalidInput:
        return f"{visible(call.tool)}({visible(call.arguments_json)})"


def display_width(text: str) -> int:
    """The columns that a text takes in a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
