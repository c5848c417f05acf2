"""Requests and messages as the tests of encoders need them."""

from __future__ import annotations

import json
from typing import Any

from turnstate.models.base import ModelRequest, ToolDefinition
from turnstate_states.content import Part, Text, ToolCall, ToolResult
from turnstate_states.transcript import Message, Role

COUNTER = iter(range(1_000_000))
TOOL = ToolDefinition("f", "does it", {"type": "object", "properties": {}})


def message(role: Role, *parts: Part | str, id: str = "", **more: Any) -> Message:
    """A message; texts are parts, and without an id it gets one of its own."""
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message(id or f"m{next(COUNTER)}", None, "t1", role, made, 0.0, **more)


def request(*messages: Message, instructions: str = "", **more: Any) -> ModelRequest:
    """A request with these messages."""
    return ModelRequest("s", "t1.1.1", instructions, messages, **more)


def call(id: str, arguments: str = "{}", provider_id: str = "", name: str = "f") -> ToolCall:
    """A call of :data:`TOOL`."""
    return ToolCall(id, name, arguments, provider_id=provider_id)


def result(call: str, text: str = "ok", **more: Any) -> Message:
    """The message with the result of a call."""
    return message("tool", ToolResult(call, text, **more))


def blank_history() -> list[Message]:
    """Case 45: blank and empty replies and a blank result between what a person said."""
    return [
        message("user", "a"),
        message("assistant", "\n\n", status="incomplete"),
        message("user", "b"),
        message("assistant"),
        message("user", "c"),
        message("assistant", "\n", call("m1.0")),
        result("m1.0", " "),
    ]


def strict_json(data: bytes) -> Any:
    """The value of a body, which holds neither NaN nor infinity."""

    def no(name: str) -> Any:
        raise AssertionError(name)

    return json.loads(data.decode(), parse_constant=no)
