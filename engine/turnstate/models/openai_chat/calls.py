"""Joins the fragments of tool calls in a Chat Completions answer."""

from __future__ import annotations

import json

import attrs

from turnstate_states.content import ToolCall, clean_text
from turnstate_states.errors import ModelError

from ..base import OnDelta
from ..wire.json_values import as_dict, as_list, mend, misfit

__all__ = ["CallSlots"]


MAX_READ = 64 * 1024 * 1024
"""Characters of one call that are looked at in all to see whether its arguments are whole."""


@attrs.define
class _Slot:
    number: int
    id: str = ""
    name: str = ""
    pieces: list[str] = attrs.field(factory=list[str])
    held: str = ""
    read: int = 0

    def whole(self) -> bool:
        """Whether the arguments so far are a JSON object, so that nothing can be appended to them.

        Raises:
            ModelError: it was asked so often that a server must mean to keep us busy.
        """
        text = "".join(self.pieces)
        self.pieces = [text]
        self.read += len(text)
        if self.read > MAX_READ:
            raise ModelError("the server sent the arguments of a call in a way that tells nothing", kind="protocol")
        if not text.rstrip().endswith("}"):
            return False
        try:
            return isinstance(json.loads(text), dict)
        except (ValueError, RecursionError):
            return False


@attrs.define
class _Fragment:
    index: object
    id: str
    name: str
    arguments: str


class CallSlots:
    """Joins fragments of tool calls, whatever a server leaves out.

    - A new index opens a call. A known one continues its call, unless both another id and a name come with it: then the
      server numbers all its calls alike, and a call opens.
    - Without an index a known id continues its call and a new id with a name opens one. A fragment with neither belongs
      to the last call, unless it has a name and that call is whole already.
    - The name is set once. Arguments are appended.

    Set ``wide`` when the text may hold lone surrogates.
    """

    def __init__(self, on_delta: OnDelta) -> None:
        self.wide = False
        self._on_delta = on_delta
        self._slots: list[_Slot] = []
        self._by_index: dict[object, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def feed(self, calls: object, *, whole: bool = False) -> None:
        """Take a delta's list of fragments, or (``whole``) the list of complete calls.

        Raises:
            ModelError: a field has a type that makes no sense.
        """
        for position, call in enumerate(as_list(calls, "tool_calls")):
            fragment = _fragment(call)
            if whole:
                fragment.index = position
            self._take(fragment)

    def close(self) -> tuple[ToolCall, ...]:
        """The calls in the order in which they were opened; one that was never named has an empty name."""
        for slot in self._slots:
            if slot.held:
                self._append(slot, "\ufffd")
            if not slot.name:
                self._tell(slot)
        return tuple(
            ToolCall("", slot.name, "".join(slot.pieces), provider_id=clean_text(slot.id)) for slot in self._slots
        )

    def _take(self, fragment: _Fragment) -> None:
        slot = self._find(fragment) or self._open(fragment)
        if fragment.id and not slot.id:
            slot.id = fragment.id
            self._by_id.setdefault(fragment.id, slot)
        if fragment.name and not slot.name:
            slot.name = clean_text(fragment.name)
            self._tell(slot)
        if fragment.arguments:
            self._append(slot, fragment.arguments)

    def _find(self, fragment: _Fragment) -> _Slot | None:
        if fragment.index is not None:
            slot = self._by_index.get(fragment.index)
            other = slot is not None and bool(fragment.id and slot.id) and fragment.id != slot.id
            return None if other and fragment.name else slot
        if fragment.id in self._by_id:
            return self._by_id[fragment.id]
        last = self._slots[-1] if self._slots else None
        if last is None or (fragment.id and fragment.name):
            return None
        if fragment.name and (fragment.arguments or fragment.name != last.name) and last.whole():
            return None
        return last

    def _open(self, fragment: _Fragment) -> _Slot:
        slot = _Slot(len(self._slots))
        self._slots.append(slot)
        if fragment.index is not None:
            self._by_index[fragment.index] = slot
        if fragment.id:
            slot.id = fragment.id
            self._by_id[fragment.id] = slot
        return slot

    def _append(self, slot: _Slot, text: str) -> None:
        if self.wide:
            text, slot.held = mend(slot.held + text)
        slot.pieces.append(text)
        if slot.name and text:
            self._on_delta("arguments", text, slot.number)

    def _tell(self, slot: _Slot) -> None:
        self._on_delta("call", slot.name, slot.number)
        if text := "".join(slot.pieces):
            self._on_delta("arguments", text, slot.number)


def _fragment(call: object) -> _Fragment:
    fields = as_dict(call, "a tool call")
    function = fields.get("function")
    named = as_dict({} if function is None else function, "function")
    index = fields.get("index")
    if not isinstance(index, int) or isinstance(index, bool):
        index = None
    arguments = named.get("arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    texts = (_text("id", fields.get("id")), _text("name", named.get("name")), _text("arguments", arguments))
    return _Fragment(index, *texts)


def _text(field: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise misfit(field, value)
    return value
