"""The output items of a Responses answer as they grow, and which of them an event is about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from turnstate_states.errors import ModelError

from ..base import OnDelta
from ..wire.redaction import foreign
from .items import Growing, PieceKind
from .parts import CALLS

__all__ = ["GrowingItems"]


MAX_ITEMS = 2000
"""Output items that an answer may have: which of them an event or the whole response means is looked for among all."""


class GrowingItems:
    """The items, in ``items`` in the order in which they were opened until another is known.

    An output index says which one is meant, and the item's id only where there is no index: some servers leave the index
    out, others give an item another id in each event.
    """

    def __init__(self, on_delta: OnDelta) -> None:
        self.items: list[Growing] = []
        self._on_delta = on_delta
        self._wide = False
        self._calls = 0
        self._by_index: dict[int, Growing] = {}
        self._by_id: dict[str, Growing] = {}

    def expect_surrogates(self) -> None:
        """From now on the texts may hold lone surrogates."""
        self._wide = True
        for item in self.items:
            item.wide = True

    def find(self, piece: PieceKind, output: int | None, item_id: str) -> Growing:
        """The item that a piece belongs to; one that was never announced opens.

        Raises:
            ModelError: the item that is meant cannot have such a piece.
        """
        item = self._by_index.get(output) if output is not None else None
        if (item is None or not item.takes(piece)) and item_id in self._by_id:
            item = self._by_id[item_id]
        if item is not None and item.done and item_id and item.item.get("id") != item_id:
            item = None
        if item is None and output is None and not item_id:
            item = next((known for known in reversed(self.items) if known.takes(piece)), None)
        if item is None:
            return self._open(Growing.kind_for(piece), output, item_id)
        if not item.takes(piece):
            text = f"the server sent a piece of {piece} for an item of type {foreign(item.kind, 40)}"
            raise ModelError(text, kind="protocol", retryable=True)
        return item

    def announce(self, item: Mapping[str, Any], output: int | None) -> None:
        """An item opens; one of which pieces came already is now known by more than them."""
        known = self._known(item, output)
        if known is None or known.done or known.described:
            known = self._open(_kind(item), output, _id(item))
        known.describe(item)

    def finish(self, item: Mapping[str, Any], output: int | None) -> None:
        """An item is whole."""
        known = self._known(item, output)
        if known is None or (known.done and known.item.get("id") != item.get("id")):
            known = self._open(_kind(item), output, _id(item))
        known.settle(item)

    def _known(self, item: Mapping[str, Any], output: int | None) -> Growing | None:
        kind = _kind(item)
        by_index = self._by_index.get(output) if output is not None else None
        if by_index is not None and by_index.kind == kind:
            return by_index
        by_id = self._by_id.get(_id(item))
        return by_id if by_id is not None and by_id.kind == kind else None

    def _open(self, kind: str, output: int | None, item_id: str) -> Growing:
        if len(self.items) >= MAX_ITEMS:
            raise ModelError(f"the server sent an answer of more than {MAX_ITEMS} items", kind="protocol")
        item = Growing(kind, output, self._calls, self._on_delta)
        item.wide = self._wide
        self._calls += kind in CALLS
        self.items.append(item)
        if output is not None:
            self._by_index[output] = item
        if item_id:
            self._by_id[item_id] = item
        return item

    def settle(self, output: list[dict[str, Any]]) -> None:
        """The items of the whole response take the place of those that grew."""
        grown, self.items = list(self.items), []
        for position, item in enumerate(output):
            known = self._same(item, position, grown)
            if known is None:
                known = self._open(_kind(item), None, "")
            else:
                grown.remove(known)
                self.items.append(known)
            known.settle(item)

    def _same(self, item: Mapping[str, Any], position: int, grown: list[Growing]) -> Growing | None:
        """The item among those that grew: by an id, by its position, or at last the first of its type."""
        kind = _kind(item)
        alike = [known for known in grown if known.kind == kind]
        for name in ("call_id", "id"):
            mark = item.get(name)
            found = next((known for known in alike if mark and known.item.get(name) == mark), None)
            if found is not None:
                return found
        at_position = self._by_index.get(position)
        if at_position is not None and at_position in alike:
            return at_position
        return next((known for known in alike if kind not in CALLS or not known.item.get("call_id")), None)

    def sort(self) -> None:
        """Put the items in the order of their output indices, as far as they have one."""
        self.items.sort(key=lambda item: math.inf if item.index is None else item.index)


def _kind(item: Mapping[str, Any]) -> str:
    kind = item.get("type")
    return kind if isinstance(kind, str) else "unknown"


def _id(item: Mapping[str, Any]) -> str:
    value = item.get("id")
    return value if isinstance(value, str) else ""
