"""The parts of one message as blocks of Anthropic Messages, encoded once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, cast

import attrs
import msgspec

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
from turnstate_states.errors import InvalidInput

from ..wire.encoding import EMPTY, object_arguments, sound_name
from ..wire.json_values import to_json
from . import PROTOCOL
from .media import media_block
from .parts import checksum

__all__ = ["Sent", "assistant_blocks", "result_block", "text_block", "user_blocks"]

_LONGEST_NAME = 128
_OURS = ("family", "sum")
_json = msgspec.json.Encoder()


@attrs.frozen
class Sent:
    """A block as it is sent.

    ``use`` is the id of a tool's use that the provider runs itself, ``answer`` that of the use which the block answers;
    ``thinking`` and ``hosted`` tell what kind of block it is.
    """

    data: bytes
    use: str = ""
    answer: str = ""
    thinking: bool = False
    hosted: bool = False


def text_block(text: str) -> Sent:
    """A block of text, which is never blank."""
    return Sent(_json.encode({"type": "text", "text": clean_text(text) if text.strip() else EMPTY}))


def user_blocks(parts: Iterable[Part]) -> tuple[Sent, ...]:
    """What a person said; blank text is left out."""
    blocks = [
        text_block(part.text) if isinstance(part, Text) else Sent(_json.encode(media_block(part)))
        for part in parts
        if isinstance(part, (Image, File, Audio)) or (isinstance(part, Text) and part.text.strip())
    ]
    return tuple(blocks) or (text_block(""),)


def result_block(result: ToolResult, id: str) -> bytes:
    """A tool's result."""
    content: Any = result.text if result.text.strip() else EMPTY
    if result.images:
        said = [{"type": "text", "text": result.text}] if result.text.strip() else []
        content = [*said, *(media_block(image) for image in result.images)]
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": id, "content": content}
    if result.status != "ok":
        block["is_error"] = True
    return _json.encode(block)


def assistant_blocks(parts: Iterable[Part], ids: Mapping[str, str], names: Set[str], family: str) -> tuple[Sent, ...]:
    """What the model said, in its order, each block as it came if a model of this family can read it.

    Args:
        parts: those of the message.
        ids: for each call's own id the one that is sent.
        names: those of the tools of the request.
        family: see :func:`~turnstate.models.anthropic.parts.family_of`.
    """
    blocks: list[Sent] = []
    for part in parts:
        match part:
            case Text() | Refusal() if part.text.strip():
                kept = _kept(part.provider, family) if isinstance(part, Text) else {}
                blocks.append(_odd({**kept, "type": "text", "text": part.text}) or text_block(part.text))
            case Reasoning():
                if (thought := _thought(part, family)) is not None:
                    blocks.append(Sent(thought.data, thinking=True))
            case ToolCall():
                blocks.append(_use(part, ids[part.id], names, family))
            case Hosted():
                if (hosted := _hosted(part, family)) is not None:
                    blocks.append(hosted)
            case _:
                pass
    return tuple(blocks)


def _kept(provider: Mapping[str, Any], family: str) -> dict[str, Any]:
    """What a part keeps for this protocol; nothing if another family's model made it."""
    found = provider.get(PROTOCOL)
    if not isinstance(found, Mapping):
        return {}
    fields = cast("Mapping[str, Any]", found)
    if fields.get("family", family) != family:
        return {}
    return {name: value for name, value in fields.items() if name not in _OURS}


def _odd(fields: Mapping[str, Any]) -> Sent | None:
    """A block with fields that a server sent, or None if they cannot be written."""
    try:
        return Sent(to_json(fields, "a block"))
    except InvalidInput:
        return None


def _thought(part: Reasoning, family: str) -> Sent | None:
    fields = _kept(part.provider, family)
    known = cast("Mapping[str, Any]", part.provider[PROTOCOL]).get("sum") if fields else None
    if known is not None and known != checksum(part.text):
        # A signature is worth nothing without the very text that it is for.
        return None
    if fields.get("type") == "redacted_thinking":
        return _odd(fields) if fields.get("data") else None
    signature = fields.get("signature")
    return _odd({**fields, "type": "thinking", "thinking": part.text}) if signature else None


def _use(call: ToolCall, id: str, names: Set[str], family: str) -> Sent:
    name = sound_name(call.name, names, _LONGEST_NAME)
    head = {**_kept(call.provider, family), "type": "tool_use", "id": id, "name": name}
    written = _odd(head) or Sent(_json.encode({"type": "tool_use", "id": id, "name": name}))
    return Sent(written.data[:-1] + b',"input":' + object_arguments(call.arguments) + b"}")


def _hosted(part: Hosted, family: str) -> Sent | None:
    block = _kept(part.provider, family).get("block")
    if not isinstance(block, Mapping):
        return None
    fields = cast("Mapping[str, Any]", block)
    written = _odd(fields)
    if written is None or not isinstance(kind := fields.get("type"), str):
        return None
    use, answer = (value if isinstance(value := fields.get(name), str) else "" for name in ("id", "tool_use_id"))
    return Sent(written.data, use if kind.endswith("tool_use") else "", answer, hosted=True)
