"""Parts of messages as parts of Gemini's contents. Nothing here does I/O."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Iterable, Mapping, Set
from typing import Any, cast
from urllib.parse import unquote_to_bytes

import msgspec

from turnstate_states.content import (
    Audio,
    File,
    Hosted,
    Image,
    Part,
    Quote,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    clean_text,
)

from ..wire.encoding import EMPTY, object_arguments
from . import PROTOCOL

__all__ = ["UNSIGNED", "model_parts", "own_fields", "result_part", "shown_parts", "wire_name"]

UNSIGNED = "skip_thought_signature_validator"
"""Google's documented word in place of the signature of a call that none of its models made."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def own_fields(part: Part) -> Mapping[str, Any] | None:
    """What this protocol left in a part; None if the part comes from elsewhere."""
    if isinstance(part, (ToolResult, Quote)):
        return None
    kept = part.provider.get(PROTOCOL)
    return cast("Mapping[str, Any]", kept) if isinstance(kept, Mapping) else None


def shown_parts(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """What a person said, as parts; there is always one."""
    found: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text.strip():
                found.append({"text": part.text})
        elif isinstance(part, (Image, File, Audio)):
            found.append(_media(part))
    return found or [{"text": EMPTY}]


def model_parts(parts: Iterable[Part], names: frozenset[str]) -> list[dict[str, Any]]:
    """What a model said, as parts: its own fields in their original part, what only another model wants left out."""
    found = [wire for part in parts if (wire := _model_part(part, names)) is not None]
    return found or [{"text": EMPTY}]


def _model_part(part: Part, names: frozenset[str]) -> dict[str, Any] | None:
    fields = own_fields(part)
    match part:
        case Text(text) | Refusal(text):
            return {"text": text, **(fields or {})} if text.strip() or fields else None
        case Reasoning(text):
            return None if fields is None else {"text": text, **fields}
        case ToolCall():
            return _call(part, fields or {}, names)
        case Hosted():
            return dict(fields) if fields else None
        case Image() | File() | Audio():
            wire = _media(part)
            for name, value in (fields or {}).items():
                wire[name] = {**wire[name], **value} if name in wire and isinstance(value, Mapping) else value
            return wire
        case _:
            return None


def _call(call: ToolCall, fields: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": wire_name(call.name, names), "args": msgspec.Raw(object_arguments(call.arguments))}
    if call.provider_id and own_fields(call) is not None:
        wire["id"] = call.provider_id
    known = fields.get("functionCall")
    more = {name: value for name, value in fields.items() if name != "functionCall"}
    return {"functionCall": {**(known if isinstance(known, Mapping) else {}), **wire}, **more}


def wire_name(name: str, names: Set[str]) -> str:
    """A call's name; one that the model made up must not make every later request invalid."""
    if name in names or _NAME.fullmatch(name):
        return name
    return re.sub("[^A-Za-z0-9_.-]|^(?![A-Za-z_])", "_", name)[:64] if name else "unnamed"


def result_part(
    result: ToolResult, name: str, id: str, *, with_images: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A call's result, and the pictures of it that go after the results of all calls."""
    text = result.text if result.text.strip() else EMPTY
    response: dict[str, Any] = {"name": name, "response": {"output" if result.status == "ok" else "error": text}}
    if id:
        response["id"] = id
    inside: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    for picture in result.images:
        wire = _media(picture)
        (inside if with_images and "inlineData" in wire else after).append(wire)
    if inside:
        response["parts"] = inside
    return {"functionResponse": response}, after


def _media(part: Image | File | Audio) -> dict[str, Any]:
    found = re.match(r"data:([^;,]*)((?:;[^,]*)?),", part.url, re.IGNORECASE)
    if found is None:
        kind = part.media_type or mimetypes.guess_type(part.url.partition("?")[0])[0] or ""
        data = {"fileUri": part.url, "mimeType": clean_text(kind)}
        return {"fileData": {name: value for name, value in data.items() if value}}
    text = part.url[found.end() :]
    if not found[2].lower().endswith(";base64"):
        text = base64.b64encode(unquote_to_bytes(text)).decode()
    kind = found[1] or part.media_type or "text/plain"
    return {"inlineData": {"mimeType": clean_text(kind), "data": text}}
