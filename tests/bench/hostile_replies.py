"""Replies of servers, in each protocol, that do not know when to stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

__all__ = ["PROTOCOLS", "endless_text", "many_calls", "whole_calls"]

PROTOCOLS = ("chat", "anthropic", "responses", "gemini")
TEXT = "lorem ipsum " * 50


def _event(value: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def _together(events: Iterator[bytes], size: int = 100) -> Iterator[bytes]:
    pieces: list[bytes] = []
    for event in events:
        pieces.append(event)
        if len(pieces) == size:
            yield b"".join(pieces)
            pieces.clear()
    yield b"".join(pieces)


def many_calls(protocol: str, count: int) -> Iterator[bytes]:
    """A complete reply with so many calls."""
    return _together(_CALLS[protocol](count))


def endless_text(protocol: str) -> Iterator[bytes]:
    """A reply that never ends."""
    return _together(_TEXTS[protocol]())


def _chat(delta: Any, finish: str | None = None) -> bytes:
    return _event({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _chat_calls(count: int) -> Iterator[bytes]:
    for n in range(count):
        function = {"name": "work", "arguments": '{"n": 1}'}
        yield _chat({"tool_calls": [{"index": n, "id": f"c{n}", "function": function}]})
    yield _chat({}, "tool_calls") + b"data: [DONE]\n\n"


def _chat_text() -> Iterator[bytes]:
    while True:
        yield _chat({"content": TEXT})


def _anthropic(**fields: Any) -> bytes:
    return _event(fields, fields["type"])


def _anthropic_calls(count: int) -> Iterator[bytes]:
    yield _anthropic(type="message_start", message={"model": "m", "usage": {"input_tokens": 1}})
    for n in range(count):
        block: Any = {"type": "tool_use", "id": f"c{n}", "name": "work", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": '{"n": 1}'}
        yield _anthropic(type="content_block_start", index=n, content_block=block)
        yield _anthropic(type="content_block_delta", index=n, delta=delta)
        yield _anthropic(type="content_block_stop", index=n)
    yield _anthropic(type="message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 1})
    yield _anthropic(type="message_stop")


def _anthropic_text() -> Iterator[bytes]:
    yield _anthropic(type="message_start", message={"model": "m", "usage": {"input_tokens": 1}})
    yield _anthropic(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
    while True:
        yield _anthropic(type="content_block_delta", index=0, delta={"type": "text_delta", "text": TEXT})


def _responses_calls(count: int) -> Iterator[bytes]:
    items: list[Any] = []
    for n in range(count):
        item = {"type": "function_call", "id": f"i{n}", "call_id": f"c{n}", "name": "work", "arguments": ""}
        yield _event({"type": "response.output_item.added", "output_index": n, "item": item})
        item = {**item, "arguments": '{"n": 1}', "status": "completed"}
        yield _event({"type": "response.output_item.done", "output_index": n, "item": item})
        items.append(item)
    yield _event({"type": "response.completed", "response": {"status": "completed", "model": "m", "output": items}})


def _responses_text() -> Iterator[bytes]:
    item: Any = {"type": "message", "id": "i0", "role": "assistant", "content": []}
    yield _event({"type": "response.output_item.added", "output_index": 0, "item": item})
    while True:
        yield _event(
            {
                "type": "response.output_text.delta",
                "output_index": 0,
                "item_id": "i0",
                "content_index": 0,
                "delta": TEXT,
            }
        )


def _gemini(*parts: Any, **more: Any) -> bytes:
    return _event({"candidates": [{"content": {"parts": list(parts), "role": "model"}, **more}], "modelVersion": "m"})


def _gemini_calls(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield _gemini({"functionCall": {"name": "work", "args": {"n": 1}}})
    yield _gemini({"text": ""}, finishReason="STOP")


def _gemini_text() -> Iterator[bytes]:
    while True:
        yield _gemini({"text": TEXT})


_CALLS = {
    "chat": _chat_calls,
    "anthropic": _anthropic_calls,
    "responses": _responses_calls,
    "gemini": _gemini_calls,
}
_TEXTS = {"chat": _chat_text, "anthropic": _anthropic_text, "responses": _responses_text, "gemini": _gemini_text}


def whole_calls(protocol: str, count: int) -> list[bytes]:
    """A reply with so many calls that is not streamed."""
    arguments = {"n": 1}
    text = json.dumps(arguments)
    document: Any
    if protocol == "chat":
        calls: list[Any] = [{"id": f"c{n}", "function": {"name": "work", "arguments": text}} for n in range(count)]
        document = {"choices": [{"index": 0, "message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    elif protocol == "anthropic":
        calls = [{"type": "tool_use", "id": f"c{n}", "name": "work", "input": arguments} for n in range(count)]
        document = {"type": "message", "model": "m", "content": calls, "stop_reason": "tool_use"}
    elif protocol == "responses":
        calls = [{"type": "function_call", "call_id": f"c{n}", "name": "work", "arguments": text} for n in range(count)]
        document = {"status": "completed", "model": "m", "output": calls}
    else:
        calls = [{"functionCall": {"name": "work", "args": arguments}} for _ in range(count)]
        document = {"candidates": [{"content": {"parts": calls}, "finishReason": "STOP"}]}
    return [json.dumps(document).encode()]
