"""The part of the shell's language that every shell reads in the same way: plain words, quotes, ``;``, ``&&`` and ``|``.

It is a list of what is allowed, not of what is dangerous: a character that is not named here makes a text unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

__all__ = ["Word", "commands"]

# What may stand in quotes: printable ASCII without the quote itself and without $ ` \ !, which some shell replaces.
_PIECES = re.compile(
    r"""(?P<plain>[A-Za-z0-9_./:=,+@%-]+)"""
    r"""|'(?P<single>[ "#%&()*+,./0-9:;<=>?@A-Z\[\]^_a-z{|}~-]*)'"""
    r"""|"(?P<double>[ '#%&()*+,./0-9:;<=>?@A-Z\[\]^_a-z{|}~-]*)\""""
    r"""|(?P<space>\ +)|(?P<operator>;|&&|\|)|(?P<star>\*)"""
)

LONGEST = 32_768
"""Characters; a longer text is not read, so that no call keeps a policy busy."""


@attrs.frozen
class Word:
    """A word of a command: its text, and the positions in it where an unquoted ``*`` stands, in a pattern."""

    text: str
    stars: tuple[int, ...] = ()


def commands(text: str, *, pattern: bool = False) -> list[list[Word]] | None:
    """The simple commands of a command line, each a list of words; None if it holds anything else.

    >>> [[word.text for word in command] for command in commands("cd /srv && ls 'a b' | wc -l") or []]
    [['cd', '/srv'], ['ls', 'a b'], ['wc', '-l']]
    >>> commands("ls $HOME"), commands("ls > out"), commands("ls *"), commands("ls ;; ls"), commands("A=1 ls")
    (None, None, None, None, None)

    Args:
        text: what a shell would be given.
        pattern: whether an unquoted ``*`` may stand in it.
    """
    pieces = list(_scan(text)) if len(text) <= LONGEST else [("", text)]
    if any(kind == "" or (kind == "star" and not pattern) for kind, _ in pieces):
        return None
    found: list[list[Word]] = [[]]
    word: Word | None = None
    last = ""
    for kind, piece in pieces:
        if kind in ("space", "operator"):
            if word is not None:
                found[-1].append(word)
                word = None
            if kind == "operator":
                found.append([])
                last = piece
            continue
        before = word or Word("")
        stars = (*before.stars, len(before.text)) if kind == "star" else before.stars
        word = Word(before.text + piece, stars)
    if word is not None:
        found[-1].append(word)
    if len(found) > 1 and not found[-1] and last == ";":
        found.pop()
    # "=ls" is the path of ls in one shell, even with empty quotes before it.
    if any(word.text.startswith("=") for command in found for word in command):
        return None
    return found if all(command and _is_name(command[0]) for command in found) else None


def _scan(text: str) -> Iterator[tuple[str, str]]:
    """The pieces of a text with their kinds; the kind is empty where it cannot be read."""
    position = 0
    while position < len(text):
        match = _PIECES.match(text, position)
        if match is None:
            yield "", text[position:]
            return
        kind = match.lastgroup or ""
        yield kind, match[kind]
        position = match.end()


def _is_name(word: Word) -> bool:
    """Whether a word names a program: not an assignment, not empty, not the number of a job."""
    return re.fullmatch(r"[A-Za-z0-9_./][A-Za-z0-9_./:,+@-]*", word.text) is not None and not word.stars
