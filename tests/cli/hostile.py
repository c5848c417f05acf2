"""Characters that could fool a terminal or its reader, and whether one of them got through."""

from __future__ import annotations

import sys
import unicodedata

__all__ = ["ALL", "EACH", "FOOLS", "ROUNDS", "got_through", "storable"]

CATEGORIES = {"Cc", "Cf", "Zl", "Zp", "Co", "Cs"}
TAGS = range(0xE0000, 0xE0080)
ALL = [
    char
    for char in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(char) in CATEGORIES or ord(char) in TAGS
]
"""Each of them."""
EACH = [
    char
    for place, char in enumerate(ALL)
    if unicodedata.category(char) not in ("Co", "Cs")
    or place % 4099 == 0
    or char in "\ud800\udfff\ue000\uf8ff\U000f0000"
]
"""Each but of the private ones and the surrogates, of which there are some."""
ROUNDS = ["".join(EACH[start : start + 48]) for start in range(0, len(EACH), 48)]
"""They in pieces, of which little is cut where a text is to fit on a line."""
FOOLS = "\x1b]52;c;eA==\x07\x1b[2J\x9b1A\r\u202e\u2066\u200b\u2028\u2029\U000e0041\ue000\x08\x7f"
"""One of each kind, in few: they would write the clipboard, clear the screen, turn, hide and overwrite text."""
UNWANTED = frozenset(ALL) - {"\t", "\n"}


def got_through(printed: str) -> set[str]:
    """The characters that came out as they are; tabs and line ends are the layout's own."""
    return set(printed) & UNWANTED


def storable(text: str) -> str:
    """A text without halves of characters, which databases and protocols do not hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
