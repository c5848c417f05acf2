"""Taking secrets out of texts: what a server says of a request may repeat the key that came with it.

:func:`redacting` says what is secret while a request is under way. Everything that a server says passes through
:func:`foreign`, which takes secrets out *before* it cuts: a piece that was cut off would no longer be recognised.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from urllib.parse import quote, quote_plus

from turnstate_states.content import clean_text

__all__ = ["Redactor", "foreign", "redact", "redacting"]

PIECE = 8
"""Characters of a secret that are taken out wherever they stand, also when the rest of it does not follow."""

SHORTEST = 4
"""Shorter secrets are dummies such as ``x``, which would be found in ordinary words."""

HIDDEN = "***"
_LONGEST_FORM = 4096
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class Redactor:
    """Replaces secrets in texts by ``***``.

    Of a secret of 8 characters or more, every piece of that length is replaced, in upper and lower case; a shorter one
    only as a word of its own. The ways in which servers write it are known: percent-encoded, as in JSON, as in HTML.

    Args:
        words: the secrets.
        phrases: texts of several words, such as the value of a header, that are secret as a whole only.

    >>> Redactor(["sk-0123456789"]).clean("bad key 'SK-0123456789', or 0123456789?")
    "bad key '***', or ***?"
    """

    def __init__(self, words: Iterable[str], phrases: Iterable[str] = ()) -> None:
        self._whole: set[str] = set()
        self._pieces: set[str] = set()
        for word in words:
            for form in _forms(word):
                if len(form) >= PIECE:
                    self._pieces.update(form[at : at + PIECE] for at in range(len(form) - PIECE + 1))
                elif len(form) >= SHORTEST:
                    self._whole.add(form)
        self._phrases = {form for phrase in phrases for form in _forms(phrase) if len(form) >= PIECE}

    def clean(self, text: str, limit: int | None = None) -> str:
        """The text without secrets; with ``limit``, the first so many characters of it, cut after it was cleaned."""
        end = len(text) if limit is None else min(len(text), limit)
        # A secret that starts before the cut is recognised by what comes after it.
        window = text[: end + _LONGEST_FORM].translate(_LOWER)
        marked = self._marked(window)
        if not marked:
            return text[:end]
        parts: list[str] = []
        at = 0
        for start, stop in _runs(marked):
            if start >= end:
                break
            parts += text[at:start], HIDDEN
            at = stop
        return "".join(parts) + text[at:end]

    def _marked(self, window: str) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        if self._pieces:
            found += [
                (at, at + PIECE) for at in range(len(window) - PIECE + 1) if window[at : at + PIECE] in self._pieces
            ]
        for phrase in self._phrases:
            found += _places(window, phrase)
        for word in self._whole:
            found += [place for place in _places(window, word) if _stands_alone(window, *place)]
        return sorted(found)


def _forms(secret: str) -> set[str]:
    """The ways in which a secret may be written, in lower case."""
    written = {
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        html.escape(secret),
        repr(secret)[1:-1],
    }
    return {form[:_LONGEST_FORM].translate(_LOWER) for form in written}


def _places(text: str, word: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at = text.find(word)
    while at >= 0:
        found.append((at, at + len(word)))
        at = text.find(word, at + 1)
    return found


def _stands_alone(text: str, start: int, stop: int) -> bool:
    return not (text[max(start - 1, 0) : start].isalnum() or text[stop : stop + 1].isalnum())


def _runs(marked: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping places, which are sorted, as one."""
    runs: list[tuple[int, int]] = []
    for start, stop in marked:
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(stop, runs[-1][1]))
        else:
            runs.append((start, stop))
    return runs


_current: ContextVar[Callable[[], Redactor] | None] = ContextVar("turnstate_redactor", default=None)


@contextmanager
def redacting(make: Callable[[], Redactor]) -> Generator[None]:
    """Within it, what a server says is cleaned of secrets, and so is every exception that leaves it.

    ``make`` gives the redactor when the first text comes to be cleaned: most requests have none.
    """
    make = cache(make)
    token = _current.set(make)
    try:
        yield
    except Exception as error:
        redact(error, make())
        raise
    finally:
        _current.reset(token)


def foreign(text: str, limit: int) -> str:
    """What a server said, fit to be shown: without secrets, cut to ``limit`` characters, and such that it can be encoded.

    >>> foreign("busy, come back later", 4)
    'busy'
    """
    make = _current.get()
    return clean_text(text[:limit] if make is None else make().clean(text, limit))


def redact(error: BaseException, redactor: Redactor) -> None:
    """Take secrets out of an exception, of its notes, and of everything that led to it."""
    for one in chain_of(error):
        one.args = tuple(redactor.clean(part) if isinstance(part, str) else part for part in one.args)
        if notes := getattr(one, "__notes__", None):
            one.__notes__ = [redactor.clean(note) for note in notes]
        # httpx keeps the request, with all of its headers, in its exceptions.
        if getattr(one, "_request", None) is not None:
            one._request = None  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def chain_of(error: BaseException) -> list[BaseException]:
    """An exception and everything that led to it, members of groups included."""
    waiting: list[BaseException | None] = [error]
    seen: dict[int, BaseException] = {}
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen[id(current)] = current
        waiting += [current.__cause__, current.__context__, *getattr(current, "exceptions", ())]
    return list(seen.values())
