"""One output item of a Responses answer as it grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ..base import DeltaKind, OnDelta
from ..wire.json_values import mend
from .parts import CALLS, SEPARATOR, spoken

__all__ = ["Growing", "PieceKind"]

PieceKind = Literal["text", "refusal", "summary", "thought", "arguments"]

_ITEMS: Mapping[PieceKind, tuple[str, ...]] = {
    "text": ("message",),
    "refusal": ("message",),
    "summary": ("reasoning",),
    "thought": ("reasoning",),
    "arguments": tuple(CALLS),
}
_DELTAS: Mapping[str, DeltaKind] = {"message": "text", "reasoning": "reasoning"}
_BLOCKS: Mapping[PieceKind, tuple[str, str]] = {
    "text": ("output_text", "text"),
    "refusal": ("refusal", "refusal"),
    "summary": ("summary_text", "text"),
    "thought": ("reasoning_text", "text"),
}

_SPOKEN = ("content", "summary", *CALLS.values())


class Growing:
    """An item: pieces are appended to it and told, whole texts replace them, and at last the whole item does.

    What was told cannot be taken back, so of a whole text only what goes on from there is told.

    Args:
        kind: its type.
        index: its output index, if the server told one.
        number: which of the reply's calls it is, if it is one.
        on_delta: is told every piece.
    """

    def __init__(self, kind: str, index: int | None, number: int, on_delta: OnDelta) -> None:
        self.kind = kind
        self.index = index
        self.number = number
        self.item: dict[str, Any] = {"type": kind}
        self.described = False
        self.done = False
        self.wide = False
        self._on_delta = on_delta
        self._delta: DeltaKind = _DELTAS.get(kind, "arguments")
        self._texts: dict[tuple[PieceKind, int], list[str]] = {}
        self._annotations: dict[int, list[Any]] = {}
        self._told: list[str] = []
        self._named = False
        self._last: tuple[PieceKind, int] | None = None
        self._held = ""

    @classmethod
    def kind_for(cls, piece: PieceKind) -> str:
        """The type of the item that a piece of an item never announced belongs to."""
        return _ITEMS[piece][0]

    def takes(self, piece: PieceKind) -> bool:
        """Whether such a piece may belong to it."""
        return self.kind in _ITEMS[piece]

    def describe(self, item: Mapping[str, Any]) -> None:
        """Take the fields of the item as it was announced."""
        self.item = {**item, "type": self.kind}
        self.described = True
        self._name()

    def add(self, piece: PieceKind, index: int, text: str) -> None:
        """Append a piece to one of its texts, and tell it; nothing can be added to an item that is done."""
        if self.done:
            return
        key = (piece, index)
        if key != self._last:
            self._turn_to(key)
        if self.wide:
            text, self._held = mend(self._held + text)
        if text:
            self._texts[key].append(text)
            self._tell(text)

    def replace(self, piece: PieceKind, index: int, text: str) -> None:
        """The whole of one of its texts."""
        if self.done:
            return
        self._held = ""
        self._last = key = (piece, index)
        if key not in self._texts or "".join(self._texts[key]) != text:
            self._texts[key] = [text]
            self._catch_up()

    def annotate(self, index: int, annotation: Any) -> None:
        """An annotation of one of its texts."""
        self._annotations.setdefault(index, []).append(annotation)

    def settle(self, item: Mapping[str, Any]) -> None:
        """The whole item; what it leaves out stays as it was, and so does the text of one that has none."""
        before = self.whole()
        after = {**before, **{name: value for name, value in item.items() if value is not None}, "type": self.kind}
        if not spoken(after) and spoken(before):
            after |= {name: before[name] for name in _SPOKEN if name in before}
        self.item, self.done = after, True
        self._name()
        self._catch_up()

    def whole(self) -> dict[str, Any]:
        """The item as it is now, all of its texts in it."""
        if self.done:
            return self.item
        self._flush()
        # Whether it was finished is not known.
        item = {name: value for name, value in self.item.items() if name != "status"}
        if self.kind in CALLS:
            if text := "".join(text for pieces in self._texts.values() for text in pieces):
                item[CALLS[self.kind]] = text
        elif self._texts:
            item.update(self._blocks())
        return item

    def _blocks(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for piece, index in sorted(self._texts, key=lambda key: key[1]):
            kind, field = _BLOCKS[piece]
            block: dict[str, Any] = {"type": kind, field: "".join(self._texts[piece, index])}
            if piece == "text":
                block["annotations"] = self._annotations.get(index, [])
            found.setdefault("summary" if piece == "summary" else "content", []).append(block)
        return found

    def _turn_to(self, key: tuple[PieceKind, int]) -> None:
        self._flush()
        self._last = key
        if key not in self._texts:
            self._texts[key] = []
        if self.kind == "reasoning" and self._told:
            self._tell(SEPARATOR)

    def _flush(self) -> None:
        """Half of a surrogate pair whose other half never came."""
        if self._held and self._last is not None:
            self._held = ""
            self._texts[self._last].append("\ufffd")
            self._tell("\ufffd")

    def _name(self) -> None:
        name = self.item.get("name")
        if self.kind in CALLS and not self._named and isinstance(name, str) and name:
            self._named = True
            self._on_delta("call", name, self.number)
            for text in self._told:
                self._on_delta("arguments", text, self.number)

    def _tell(self, text: str) -> None:
        self._told.append(text)
        if self.kind not in CALLS:
            self._on_delta(self._delta, text, 0)
        elif self._named:
            self._on_delta("arguments", text, self.number)

    def _catch_up(self) -> None:
        text, told = spoken(self.whole()), "".join(self._told)
        if len(text) > len(told) and text.startswith(told):
            self._tell(text[len(told) :])
