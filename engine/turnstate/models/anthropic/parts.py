"""The blocks of an Anthropic Messages answer: how their pieces are joined, and the parts that they become.

A part's ``provider`` holds, under the protocol's key, the fields of its block that the part itself does not, so that the
block can go back as it came. ``family`` tells whose models can read them, ``sum`` the text that a signature is for.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import attrs

from turnstate_states.content import Citation, Hosted, Part, Reasoning, Text, ToolCall, clean_text
from turnstate_states.errors import ModelError

from ..wire.json_values import is_dict, is_list, read_json, read_text
from . import PROTOCOL

__all__ = ["BULK", "Block", "as_text", "checksum", "family_of", "part_of"]

BULK = {"text": "text", "thinking": "thinking", "tool_use": "input"}
"""The field of a block that comes in pieces."""

_LONGEST = 2000
_READABLE = ("text", "title", "url", "stdout", "stderr", "error_code", "query", "content")


@attrs.define
class Block:
    """A block that is being put together; ``slot`` numbers the calls, ``pieces`` are those of its bulk field."""

    kind: str
    fields: dict[str, Any]
    slot: int = 0
    pieces: dict[str, list[str]] = attrs.field(factory=dict[str, list[str]])
    held: str = ""
    closed: bool = False

    def text(self, bulk: str) -> str:
        """What came of a field so far."""
        return "".join(self.pieces.get(bulk, ()))


def family_of(model: str) -> str:
    """Whose signatures and encrypted items a model can read: all of Claude's each other's, any other only its own."""
    return "claude" if "claude" in model.lower() else model


def as_text(value: Mapping[str, Any]) -> str:
    """An input that came as an object, as text.

    Raises:
        ModelError: it is nested too deep.
    """
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise ModelError("the server sent an object that is nested too deep", kind="protocol") from None


def checksum(text: str) -> int:
    """Tells whether a text is still the one that was signed."""
    return zlib.crc32(text.encode())


def part_of(block: Block, family: str) -> Part:
    """The finished block as a part."""
    fields = block.fields
    match block.kind:
        case "text":
            kept = _kept(fields, "text")
            provider = {PROTOCOL: {**kept, "family": family}} if kept else {}
            return Text(block.text("text"), citations=_citations(fields.get("citations")), provider=provider)
        case "thinking":
            thought = block.text("thinking")
            kept = {**_kept(fields, "thinking"), "type": "thinking", "family": family, "sum": checksum(thought)}
            return Reasoning(thought, provider={PROTOCOL: kept} if fields.get("signature") else {})
        case "redacted_thinking":
            return Reasoning("", provider={PROTOCOL: {**fields, "family": family, "sum": checksum("")}})
        case "tool_use":
            kept = _kept(fields, "input", "id", "name")
            name, id = (clean_text(read_text(fields, field)) for field in ("name", "id"))
            provider = {PROTOCOL: {**kept, "family": family}} if kept else {}
            return ToolCall("", name, block.text("input"), provider_id=id, provider=provider)
        case kind:
            _join(block)
            return Hosted(kind, _readable(fields), provider={PROTOCOL: {"block": fields, "family": family}})


def _kept(fields: Mapping[str, Any], *but: str) -> dict[str, Any]:
    skipped = ("type", *but)
    return {name: value for name, value in fields.items() if name not in skipped and value not in (None, "", [])}


def _join(block: Block) -> None:
    """Put what came in pieces into the fields of a block that goes back verbatim."""
    for bulk, pieces in block.pieces.items():
        text = "".join(pieces)
        if bulk != "input":
            before = block.fields.get(bulk)
            block.fields[bulk] = (before if isinstance(before, str) else "") + text
        elif text.strip():
            value = read_json(text)
            block.fields["input"] = value if is_dict(value) else {"_raw": text}
    block.pieces = {}


def _citations(found: object) -> tuple[Citation, ...]:
    if not is_list(found):
        return ()
    return tuple(_citation(item) for item in found if is_dict(item))


def _citation(item: Mapping[str, Any]) -> Citation:
    title = _first(item, "title", "document_title")
    source = _first(item, "url", "source", "document_title", "title")
    number = item.get("document_index")
    if not source and isinstance(number, int):
        source = f"document {number}"
    return Citation(source, title, _first(item, "cited_text"))


def _first(item: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := item.get(name), str) and value), "")


def _readable(fields: Mapping[str, Any]) -> str:
    """What a person may read of something that the provider did."""
    if is_dict(given := fields.get("input")):
        return f"{_first(fields, 'name')} {as_text(given)}"[:_LONGEST].strip()
    return "\n".join(_lines(fields.get("content", fields), 0))[:_LONGEST]


def _lines(value: object, depth: int) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    if depth > 3:
        return []
    if is_list(value):
        return [line for item in value for line in _lines(item, depth + 1)]
    if is_dict(value):
        return [line for name in _READABLE if name in value for line in _lines(value[name], depth + 1)]
    return []
