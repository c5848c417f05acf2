"""Output items of the Responses API as parts. Nothing here does I/O.

A part's ``provider`` holds what is needed to give its item back as it came: ``item`` (for a message ``part``, and ``item``
with its first part), without the text, which the part itself has; and ``origin``, the server that it came from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from turnstate_states.content import Citation, Hosted, Part, Reasoning, Refusal, Text, ToolCall

from ..wire.json_values import as_dict, as_list, is_dict, read_text
from . import PROTOCOL

__all__ = ["CALLS", "SEPARATOR", "call_text", "parts_of", "spoken", "text_field"]

CALLS: Mapping[str, str] = {"function_call": "arguments", "custom_tool_call": "input"}
"""Types of items that are calls of our tools, and the field that holds their arguments."""

SEPARATOR = "\n\n"
"""Between the parts of a summary, each of which is a paragraph."""

_TEXTS: Mapping[str, str] = {"output_text": "text", "text": "text", "refusal": "refusal"}
_READABLE = ("query", "queries", "code", "command", "output", "name")


def text_field(block: Mapping[str, Any]) -> str:
    """The field that holds the text of a message's content part; empty if it holds none."""
    kind = block.get("type")
    return _TEXTS.get(kind, "") if isinstance(kind, str) else ""


def spoken(item: Mapping[str, Any]) -> str:
    """What of an item is told piece by piece: a message's text, a thought, the arguments of a call."""
    kind = item.get("type")
    if kind == "message":
        return "".join(read_text(block, text_field(block)) for block in _content(item) if text_field(block))
    if kind == "reasoning":
        return SEPARATOR.join(filter(None, _thoughts(item)))
    return call_text(item) if kind in CALLS else ""


def call_text(item: Mapping[str, Any]) -> str:
    """The arguments of a call as text."""
    field = CALLS[item["type"]]
    value = item.get(field)
    if is_dict(value):
        return json.dumps(value, ensure_ascii=False)
    return read_text(item, field)


def parts_of(item: Mapping[str, Any], origin: str) -> Iterator[Part]:
    """The parts that a complete item is.

    Raises:
        ModelError: a field has a type that makes no sense.
    """
    kind: Any = item.get("type")
    kept = {"origin": origin}
    if kind == "message":
        yield from _message(item, kept)
    elif kind == "reasoning":
        yield Reasoning(spoken(item), provider={PROTOCOL: {**kept, "item": dict(item)}})
    elif kind in CALLS:
        rest = {name: value for name, value in item.items() if name != CALLS[kind]}
        wire_id = read_text(item, "call_id") or read_text(item, "id")
        provider = {PROTOCOL: {**kept, "item": rest}}
        yield ToolCall("", read_text(item, "name"), call_text(item), provider_id=wire_id, provider=provider)
    else:
        word = kind if isinstance(kind, str) and kind else "unknown"
        yield Hosted(word, _readable(item), provider={PROTOCOL: {**kept, "item": dict(item)}})


def _message(item: Mapping[str, Any], kept: Mapping[str, Any]) -> Iterator[Part]:
    head = {"item": {name: value for name, value in item.items() if name != "content"}}
    for block in _content(item):
        field = text_field(block)
        text = read_text(block, field) if field else ""
        if field and not text:
            continue
        rest = {name: value for name, value in block.items() if name != field}
        provider = {PROTOCOL: {**kept, **head, "part": rest}}
        head = {}
        if field == "text":
            yield Text(text, citations=tuple(_citations(block)), provider=provider)
        elif field == "refusal":
            yield Refusal(text, provider=provider)
        else:
            yield Hosted(str(block.get("type")), provider=provider)


def _content(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    content = item.get("content")
    if isinstance(content, str):
        yield {"type": "output_text", "text": content}
        return
    for block in as_list([] if content is None else content, "content"):
        yield as_dict(block, "a part of the content")


def _thoughts(item: Mapping[str, Any]) -> Iterator[str]:
    for name in ("summary", "content"):
        blocks = item.get(name)
        if isinstance(blocks, str):
            yield blocks
            continue
        for block in as_list([] if blocks is None else blocks, name):
            yield read_text(as_dict(block, f"a part of the {name}"), "text")


def _citations(block: Mapping[str, Any]) -> Iterator[Citation]:
    annotations = block.get("annotations")
    for annotation in as_list([] if annotations is None else annotations, "annotations"):
        # Chat Completions and some servers here put the fields into an object of their own.
        inner = is_dict(annotation) and annotation.get("url_citation")
        fields = inner if is_dict(inner) else annotation
        if not is_dict(fields):
            continue
        texts = {name: value for name, value in fields.items() if isinstance(value, str)}
        source = texts.get("url") or texts.get("filename") or texts.get("file_id")
        if source:
            yield Citation(source, texts.get("title", ""), texts.get("quote", ""))


def _readable(item: Mapping[str, Any]) -> str:
    """The first thing in a hosted item that tells a person what it is about."""
    action = item.get("action")
    for fields in (action if is_dict(action) else {}, item):
        for name in _READABLE:
            value: object = fields.get(name)
            if isinstance(value, str) and value:
                return value
            if isinstance(value, list) and value and all(isinstance(one, str) for one in value):  # pyright: ignore[reportUnknownVariableType]
                return "\n".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
    return ""
