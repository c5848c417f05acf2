"""What a Chat Completions answer is put together from besides calls: runs of text and reasoning details."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnstate_states.content import clean_text

from ..base import DeltaKind, OnDelta
from ..wire.json_values import as_dict, as_list, mend

__all__ = ["Pieces", "add_details"]

_DELTAS: dict[str, DeltaKind] = {"text": "text", "refusal": "text", "reasoning": "reasoning"}
_MERGED = frozenset({"text", "summary"})


class Pieces:
    """Text, reasoning and refusal in the order in which they came; neighbours of one kind are one run.

    Set ``wide`` when the text may hold lone surrogates.
    """

    def __init__(self, on_delta: OnDelta) -> None:
        self.wide = False
        self._on_delta = on_delta
        self._kind = ""
        self._held = ""
        self._pieces: list[str] = []
        self._runs: list[tuple[str, list[str]]] = []

    def add(self, kind: str, text: str) -> None:
        """Take the next piece and tell it."""
        if kind != self._kind:
            self._open(kind)
        if self.wide:
            text, self._held = mend(self._held + text)
            if not text:
                return
        self._pieces.append(text)
        self._on_delta(_DELTAS[kind], text, 0)

    def _open(self, kind: str) -> None:
        self._flush()
        self._kind = kind
        self._pieces = []
        self._runs.append((kind, self._pieces))

    def _flush(self) -> None:
        if self._held:
            text, self._held = clean_text(self._held), ""
            self._pieces.append(text)
            self._on_delta(_DELTAS[self._kind], text, 0)

    def runs(self) -> Iterator[tuple[str, str]]:
        """The kind and the text of each run."""
        self._flush()
        for kind, pieces in self._runs:
            if text := "".join(pieces):
                yield kind, text


def add_details(known: list[dict[str, Any]], details: object) -> str:
    """Append reasoning details as they must be given back; gives the text that is in the new ones.

    Pieces of one text (same type and index, one after the other) are joined. Everything else is kept as it came.
    """
    told = ""
    for detail in as_list(details, "reasoning_details"):
        fields = as_dict(detail, "a reasoning detail")
        piece = fields.get("text") or fields.get("summary")
        told += piece if isinstance(piece, str) else ""
        if known and _continues(known[-1], fields):
            _merge(known[-1], fields)
        else:
            known.append(dict(fields))
    return told


def _continues(last: Mapping[str, Any], detail: Mapping[str, Any]) -> bool:
    kind = detail.get("type")
    same = detail.get("index") is not None and all(last.get(name) == detail.get(name) for name in ("type", "index"))
    return same and kind in ("reasoning.text", "reasoning.summary")


def _merge(last: dict[str, Any], detail: Mapping[str, Any]) -> None:
    for name, value in detail.items():
        if name in _MERGED and isinstance(value, str) and isinstance(last.get(name), str):
            last[name] += value
        elif value is not None:
            last[name] = value
