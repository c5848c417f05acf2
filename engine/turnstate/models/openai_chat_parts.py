"""What a Chat Completions answer is put together from besides calls: runs of text, reasoning details, usage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from turnstate_states.content import clean_text
from turnstate_states.transcript import Usage

from .base import DeltaKind, OnDelta
from .wire import as_dict, as_list, is_dict, mend

__all__ = ["Pieces", "add_details", "read_usage"]

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


def read_usage(usage: Mapping[str, Any] | None) -> Usage:
    """Usage as a server tells it; what is missing, null or no count is unknown.

    xAI does not count reasoning as output; its total shows that.

    >>> read_usage({"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 303,
    ...             "completion_tokens_details": {"reasoning_tokens": 290}}).output
    291
    """
    if not usage:
        return Usage()
    sent, made = _inner(usage, "prompt_tokens_details"), _inner(usage, "completion_tokens_details")
    prompt, output = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    reasoning = _count(made, "reasoning_tokens", _count(usage, "reasoning_tokens"))
    total = _count(usage, "total_tokens")
    if reasoning and output is not None and total == (prompt or 0) + output + reasoning:
        output += reasoning
    cached = _count(usage, "prompt_cache_hit_tokens", _count(usage, "cached_tokens"))
    cost = usage.get("cost")
    known = isinstance(cost, (int, float)) and not isinstance(cost, bool) and math.isfinite(cost)
    return Usage(
        prompt,
        output,
        _count(sent, "cached_tokens", cached),
        _count(sent, "cache_write_tokens"),
        reasoning,
        float(cost) if known and cost is not None else None,
    )


def _inner(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = usage.get(name)
    return value if is_dict(value) else {}


def _count(fields: Mapping[str, Any], name: str, default: int | None = None) -> int | None:
    value = fields.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
