"""Messages as input items of the Responses API. Nothing here does I/O.

What came from the same server goes back as it came, in order. Of everything else only what any server takes is sent: no
reasoning and no hosted items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from turnstate_states.content import (
    Audio,
    File,
    Hosted,
    Image,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    clean_text,
)

from ..wire.encoding import EMPTY, object_arguments, own_id, sound_name
from . import PROTOCOL
from .parts import CALLS

__all__ = ["AssistantItems", "CallIds", "plain", "result_item", "user_content"]

CallIds = Mapping[str, tuple[str, str]]
"""For each call's own id the type of its item and the id that is sent."""

_AUDIO = re.compile(r"data:audio/(?:x-|vnd\.)?(\w+)[^,]*;base64,(.*)", re.DOTALL | re.IGNORECASE)
_FORMATS = {"wave": "wav", "mpeg": "mp3"}


def plain(role: str, text: str) -> dict[str, Any]:
    """A message of text alone."""
    return {"role": role, "content": clean_text(text) if text.strip() else EMPTY}


def user_content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    """Text alone as a string, otherwise a list of blocks."""
    shown = [
        part
        for part in parts
        if isinstance(part, (Image, File, Audio)) or (isinstance(part, Text) and part.text.strip())
    ]
    texts = [part.text for part in shown if isinstance(part, Text)]
    if len(texts) == len(shown):
        return "\n".join(texts) or EMPTY
    return [_block(part) for part in shown]


def _block(part: Text | Image | File | Audio) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image(url):
            return {"type": "input_image", "image_url": url, **part.provider.get(PROTOCOL, {})}
        case File(url, name):
            if url.startswith("data:"):
                return {"type": "input_file", "filename": name or "file", "file_data": url}
            return {"type": "input_file", "file_url": url}
        case Audio(url):
            if found := _AUDIO.fullmatch(url):
                form = found[1].lower()
                return {"type": "input_audio", "input_audio": {"data": found[2], "format": _FORMATS.get(form, form)}}
            return {"type": "input_text", "text": "(audio that could not be sent)"}


def result_item(result: ToolResult, ids: CallIds) -> dict[str, Any]:
    """The output of a call."""
    kind, wire_id = ids.get(result.call, ("function_call", own_id(result.call)))
    text = result.text if result.text.strip() else EMPTY
    output: str | list[dict[str, Any]] = text
    if result.images:
        output = [{"type": "input_text", "text": text}, *(_block(image) for image in result.images)]
    return {"type": f"{kind}_output", "call_id": wire_id, "output": output}


class AssistantItems:
    """The items of one reply.

    Args:
        parts: the message's parts.
        names: the tools' names.
        origin: items that came from there go back as they came.
        stored: whether the server keeps what it made, so that an item's id alone says what is in it.
        with_ids: whether items go back with their ids.
    """

    def __init__(
        self, parts: Iterable[Part], names: frozenset[str], origin: str, *, stored: bool, with_ids: bool
    ) -> None:
        self._names = names
        self._origin = origin
        self._stored = stored
        self._items: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._open_is_kept = False
        self._blocks: list[dict[str, Any]] = []
        self._with_ids = with_ids
        self._lost = False
        self._parts = tuple(parts)
        self.ids = self._ids()

    def items(self) -> list[dict[str, Any]]:
        """The items, in order; never none."""
        for part in self._parts:
            self._add(part)
        while self._items and self._items[-1].get("type") == "reasoning":
            # A thought without what it led to is refused.
            self._items.pop()
        # An item that is known by its id is refused without the reasoning that led to it.
        if self._lost or not self._with_ids:
            for item in self._items:
                item.pop("id", None)
        return self._items or [plain("assistant", "")]

    def _ids(self) -> CallIds:
        found: dict[str, tuple[str, str]] = {}
        taken: set[str] = set()
        for part in self._parts:
            if isinstance(part, ToolCall):
                kept = self._kept(part).get("item")
                kind = kept["type"] if kept else "function_call"
                # Ids are one space for the whole request, so those that other providers gave may clash.
                own = kept is None or not part.provider_id or part.provider_id in taken
                wire_id = own_id(part.id) if own else part.provider_id
                taken.add(wire_id)
                found[part.id] = (kind, wire_id)
        return found

    def _kept(self, part: Part) -> Mapping[str, Any]:
        """What this server needs back of the part; empty if it came from elsewhere."""
        if isinstance(part, (Text, Refusal, Reasoning, Hosted, ToolCall)):
            kept = part.provider.get(PROTOCOL)
            if isinstance(kept, Mapping):
                fields = cast("Mapping[str, Any]", kept)
                return fields if fields.get("origin") == self._origin else {}
        return {}

    def _add(self, part: Part) -> None:
        kept = self._kept(part)
        if isinstance(part, (Text, Refusal)):
            if "item" in kept:
                self._open = None
            if part.text.strip():
                self._say(part, kept)
        elif isinstance(part, ToolCall):
            self._call(part, kept.get("item"))
        elif "part" in kept:
            self._content(kept, dict(kept["part"]))
        elif kept:
            self._give_back(kept["item"])

    def _say(self, part: Text | Refusal, kept: Mapping[str, Any]) -> None:
        if "part" in kept:
            field = "refusal" if isinstance(part, Refusal) else "text"
            self._content(kept, {**kept["part"], field: part.text})
            return
        if self._open is None or self._open_is_kept:
            self._start({}, kept=False)
        self._blocks.append({"type": "output_text", "text": part.text})

    def _content(self, kept: Mapping[str, Any], block: dict[str, Any]) -> None:
        if "item" in kept or not (self._open and self._open_is_kept):
            self._start(kept.get("item", {}), kept=True)
        self._blocks.append(block)

    def _start(self, item: Mapping[str, Any], *, kept: bool) -> None:
        self._blocks = list[dict[str, Any]]()
        self._open = {"type": "message", "role": "assistant", **_without_null(item), "content": self._blocks}
        self._open_is_kept = kept
        self._items.append(self._open)

    def _call(self, part: ToolCall, item: Mapping[str, Any] | None) -> None:
        self._open = None
        kind, wire_id = self.ids[part.id]
        call = {"type": kind, **_without_null(item or {}), "call_id": wire_id}
        if kind == "custom_tool_call":
            self._items.append({**call, "name": part.name, CALLS[kind]: part.arguments})
            return
        name = sound_name(part.name, self._names)
        self._items.append({**call, "name": name, CALLS[kind]: object_arguments(part.arguments).decode()})

    def _give_back(self, item: Mapping[str, Any]) -> None:
        self._open = None
        if item.get("type") == "reasoning":
            if not (self._stored or item.get("encrypted_content") or item.get("content")):
                self._lost = True
                return
        elif item.get("call_id") and not self._paired(item):
            return
        self._items.append(_without_null(item))

    def _paired(self, item: Mapping[str, Any]) -> bool:
        """Whether a hosted call has its output beside it; one that waits for ours would be refused for ever."""
        kinds = [
            str(other["type"]).endswith("_output")
            for part in self._parts
            if isinstance(part, Hosted)
            and (other := self._kept(part).get("item"))
            and other.get("call_id") == item["call_id"]
        ]
        return kinds.count(True) == kinds.count(False) == 1


def _without_null(item: Mapping[str, Any]) -> dict[str, Any]:
    """Servers send null for fields that they refuse as null."""
    return {name: value for name, value in item.items() if value is not None}
