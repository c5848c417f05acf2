"""Recorded answers of Anthropic Messages, whole and cut, against what the provider's own SDK made of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.models.anthropic_rules import check as accepted
from tests.models.decoding import Delta, decoded
from tests.models.recordings import answers, beginnings, events_of, load, streams, ways
from turnstate.models.anthropic import PROTOCOL
from turnstate.models.anthropic.decode import MessageDecoder
from turnstate.models.anthropic.encode import MessageEncoder
from turnstate.models.anthropic.usage import read_usage
from turnstate.models.base import ModelRequest, Reply
from turnstate.models.wire.errors import response_error
from turnstate_states.content import Hosted, Reasoning, Text, ToolCall, ToolResult
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Message

FILES = answers("anthropic_messages")

pytestmark = pytest.mark.recordings

MCP = {
    "repoName": "pydantic/pydantic-ai",
    "question": "What is this repository about? What are its main features and purpose?",
}
DIFFERENT: dict[str, dict[str, Any]] = {
    # The SDK does not join the input of MCP tools.
    "ai__anthropic-mcp.1": {"calls": [{"message": "hello world"}]},
    "pydantic-ai__test_anthropic_mcp_servers_stream__0": {"calls": [MCP]},
}
"""Where ours differs on purpose from the SDK's value; None: the SDK has no value to compare with."""

KINDS = {
    "NotFoundError": {"not-found"},
    "AuthenticationError": {"authentication"},
    "BadRequestError": {"invalid-request", "context-overflow"},
}
"""The kinds that an exception of the SDK may be with us."""


def of_whole(whole: dict[str, Any]) -> dict[str, Any]:
    """The SDK's value of an answer that was not streamed, in the form that it has for streams."""
    blocks: list[dict[str, Any]] = whole["content"]
    return {
        "text": "".join(block["text"] for block in blocks if block["type"] == "text"),
        "reasoning": [block for block in blocks if str(block["type"]).endswith("thinking")],
        "tool_calls": [
            {**block, "arguments": block["input"]} for block in blocks if str(block["type"]).endswith("tool_use")
        ],
        "block_types": [block["type"] for block in blocks],
        "citations": sum(len(block.get("citations") or []) for block in blocks),
        "stop_reason": whole["stop_reason"],
        "usage": whole["usage"],
    }


@cache
def wanted(file: Path) -> dict[str, Any]:
    expected = load(file, "expected.json")
    if "nonstream" in expected:
        expected = of_whole(expected["nonstream"])
    calls: list[dict[str, Any]] = expected["tool_calls"]
    reasoning = expected["reasoning"]
    found: dict[str, Any] = {
        "text": expected["text"],
        "reasoning": "".join(item.get("thinking") or "" for item in reasoning),
        "signed": [item.get("signature") or item.get("data") for item in reasoning],
        "calls": [call["arguments"] for call in calls],
        "blocks": expected["block_types"],
        "citations": expected["citations"],
        "stop": expected["stop_reason"],
        "usage": read_usage(expected["usage"]),
    }
    found.update(DIFFERENT.get(file.stem, {}))
    return found


def decode(pieces: list[bytes]) -> tuple[Reply, list[Delta]]:
    return decoded(lambda on_delta: MessageDecoder("asked", on_delta), pieces)


def kind_of(part: Any) -> str:
    match part:
        case Text():
            return "text"
        case Reasoning():
            return str(part.provider.get(PROTOCOL, {}).get("type", "thinking"))
        case ToolCall():
            return "tool_use"
        case _:
            return str(part.kind)


def arguments(part: Any) -> Any:
    if isinstance(part, ToolCall):
        return json.loads(part.arguments or "{}")
    return part.provider[PROTOCOL]["block"]["input"]


def check(file: Path, pieces: list[bytes]) -> None:
    reply, deltas = decode(pieces)
    texts = [part for part in reply.parts if isinstance(part, Text)]
    found = {
        "text": reply.text,
        "reasoning": "".join(part.text for part in reply.parts if isinstance(part, Reasoning)),
        "signed": [
            part.provider[PROTOCOL].get("signature") or part.provider[PROTOCOL].get("data")
            for part in reply.parts
            if isinstance(part, Reasoning)
        ],
        "calls": [
            arguments(part)
            for part in reply.parts
            if isinstance(part, ToolCall) or (isinstance(part, Hosted) and part.kind.endswith("tool_use"))
        ],
        "blocks": [kind_of(part) for part in reply.parts],
        "citations": sum(len(part.citations) for part in texts),
        "stop": reply.raw_stop,
        "usage": reply.usage,
    }
    assert found == wanted(file)
    assert "".join(text for kind, text, _ in deltas if kind == "text") == reply.text
    assert "".join(text for kind, text, _ in deltas if kind == "reasoning") == found["reasoning"]
    for slot, call in enumerate(part for part in reply.parts if isinstance(part, ToolCall)):
        assert [text for kind, text, n in deltas if kind == "call" and n == slot] == [call.name]
        assert "".join(text for kind, text, n in deltas if kind == "arguments" and n == slot) == call.arguments


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_answers(file: Path) -> None:
    """Whole, in events and cut at a spread of bytes, an answer gives the SDK's value or fails as the SDK did."""
    data, about, expected = file.read_bytes(), load(file, "json"), load(file, "expected.json")
    if about["status"] != 200:
        error = response_error(about["status"], {}, data, "http://server/v1/messages")
        assert error.kind in KINDS[expected["error"]["type"]]
        assert error.status == about["status"]
        return
    for pieces in ways(data, spread=60 if len(data) < 50_000 else 10):
        check(file, pieces)


@pytest.mark.parametrize("file", streams("anthropic_messages"), ids=lambda file: file.stem)
def test_cut_answers(file: Path) -> None:
    """Case 8: an answer that is cut before ``message_stop`` is never complete, wherever the cut is."""
    events = events_of(file)
    last = next(n for n, event in enumerate(events) if b"message_stop" in event)
    step = max(1, last // 40)
    for beginning in beginnings(events, [*range(0, last, step), last]):
        with pytest.raises(ModelError) as caught:
            decode([beginning])
        assert (caught.value.kind, caught.value.retryable) == ("cut", True)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_answers_go_back(file: Path) -> None:
    """A recorded reply is accepted as history by the provider's rules, and what was not streamed goes back verbatim."""
    if load(file, "json")["status"] != 200:
        return
    reply, _ = decode([file.read_bytes()])
    calls = iter(range(100))
    parts = tuple(attrs.evolve(p, id=f"m1.{next(calls)}") if isinstance(p, ToolCall) else p for p in reply.parts)
    history = (
        Message("m0", None, "t", "user", (Text("go"),), 0.0),
        Message("m1", "m0", "t", "assistant", parts, 0.0),
        *(Message("", "", "t", "tool", (ToolResult(f"m1.{n}", "ok"),), 0.0) for n in range(next(calls))),
    )
    encoder = MessageEncoder("asked", settings={}, extra_body={})
    sent = accepted(encoder.encode(ModelRequest("s", "t.1.1", "", history)), signed=False)
    if file.suffix == ".body":
        content = json.loads(file.read_bytes())["content"]
        plain = [{name: value for name, value in block.items() if value is not None} for block in content]
        assert sent["messages"][1]["content"] == plain
