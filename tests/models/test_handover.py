"""One conversation over all four protocols, handed on in the middle of a tool loop."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.models.anthropic_rules import check as check_messages
from tests.models.gemini_rules import check as check_gemini
from turnstate import Agent, Engine, MemoryStore, Model, ModelRequest, Reply, tool
from turnstate.models import Anthropic, Gemini, OnDelta, OpenAIChat, OpenAIResponses
from turnstate.testing.byte_server import ByteServer, Step, head, serving

SECRETS = {
    "chat": "OPAQUE-CHAT",
    "responses": "OPAQUE-RESPONSES",
    "messages": "OPAQUE-MESSAGES",
    "gemini": "OPAQUE-GEMINI",
}
"""What each provider wants back and no other may see."""


def _sse(*events: dict[str, Any]) -> list[Step]:
    body = "".join(f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
    return [head(len(body), "200 OK", "Content-Type: text/event-stream") + body]


def chat(number: int, final: bool) -> list[Step]:
    """A reply in Chat Completions: some reasoning and two calls, or a text."""
    detail = {"type": "reasoning.encrypted", "data": SECRETS["chat"], "index": 0}
    call = {"index": 0, "id": f"call_{number}", "function": {"name": "look", "arguments": '{"at":"chat"}'}}
    more = {"index": 1, "id": f"call_{number}b", "function": {"name": "look", "arguments": '{"at":"chat2"}'}}
    delta: dict[str, Any] = (
        {"content": "done"} if final else {"reasoning_details": [detail], "tool_calls": [call, more]}
    )
    finish: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop" if final else "tool_calls"}
    return _sse({"choices": [{"index": 0, "delta": delta}]}, {"choices": [finish]})


def responses(number: int, final: bool) -> list[Step]:
    """The same in Responses."""
    thought: dict[str, Any] = {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [],
        "encrypted_content": SECRETS["responses"],
    }
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "look"}
    said = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
    text: dict[str, Any] = {"type": "output_text", "text": "done", "annotations": []}
    calls = [{**call, "arguments": '{"at":"responses"}'}, {**call, "id": "fc_b", "call_id": "b", "arguments": "{}"}]
    output: list[dict[str, Any]] = [{**said, "content": [text]}] if final else [thought, *calls]
    return _sse({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output}})


def messages(number: int, final: bool) -> list[Step]:
    """The same in Anthropic Messages."""
    thought: dict[str, Any] = {"type": "thinking", "thinking": "hm", "signature": SECRETS["messages"]}
    use = {"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": {"at": "messages"}}
    content = [{"type": "text", "text": "done"}] if final else [thought, use, {**use, "id": "toolu_b"}]
    blocks = [{"type": "content_block_start", "index": n, "content_block": block} for n, block in enumerate(content)]
    ends = [{"type": "content_block_stop", "index": n} for n in range(len(content))]
    start: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "usage": {},
    }
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn" if final else "tool_use"}, "usage": {}}
    pairs = itertools.chain.from_iterable(zip(blocks, ends, strict=True))
    return _sse({"type": "message_start", "message": start}, *pairs, delta, {"type": "message_stop"})


def gemini(number: int, final: bool) -> list[Step]:
    """The same in Gemini."""
    call = {"functionCall": {"name": "look", "args": {"at": "gemini"}}}
    parts = [{"text": "done"}] if final else [{**call, "thoughtSignature": SECRETS["gemini"]}, call]
    return _sse({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})


SAYS: dict[str, Callable[[int, bool], list[Step]]] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "gemini": gemini,
}


def make(protocol: str, url: str) -> Model:
    """The adapter of a protocol."""
    if protocol == "chat":
        return OpenAIChat("m", base_url=url, api_key="x")
    if protocol == "responses":
        return OpenAIResponses("m", base_url=url, api_key="x")
    if protocol == "messages":
        return Anthropic("claude-x", base_url=url, api_key="x")
    return Gemini("gemini-2.5-flash", base_url=url, api_key="x")


class Rotating(Model):
    """Asks one model after the other."""

    name = "rotating"

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = models
        self._next = iter(models)

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        return await next(self._next).respond(request, on_delta)

    async def aclose(self) -> None:
        for model in self.models:
            await model.aclose()


def check(protocol: str, body: bytes) -> None:
    """Fail where a strict provider would answer 400, or where it sees what is another's."""
    for other, secret in SECRETS.items():
        assert other == protocol or secret.encode() not in body
    if protocol == "messages":
        check_messages(body, signed=False)
    elif protocol == "gemini":
        check_gemini(body)
    elif protocol == "chat":
        check_chat(json.loads(body)["messages"])
    else:
        check_responses(json.loads(body)["input"])


def check_chat(sent: list[dict[str, Any]]) -> None:
    """Each call has exactly one result, right after it and in order."""
    open_calls: list[str] = []
    for message in sent:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
            continue
        assert not open_calls
        open_calls = [call["id"] for call in message.get("tool_calls", ())]
        assert len(set(open_calls)) == len(open_calls)
    assert not open_calls


def check_responses(sent: list[dict[str, Any]]) -> None:
    """Each call has exactly one output, after it and in order."""
    calls = [item["call_id"] for item in sent if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in sent if item.get("type") == "function_call_output"]
    assert calls == outputs
    assert len(set(calls)) == len(calls)


@tool
async def look(at: str = "") -> str:
    """Look somewhere."""
    return f"seen {at}"


@pytest.mark.parametrize("order", list(itertools.permutations(SAYS)), ids="-".join)
async def test_a_tool_loop_goes_on_with_another_provider(order: tuple[str, ...]) -> None:
    """In any order of protocols each gets a request that its provider accepts, its own signatures and nobody else's."""
    loop = (*order, order[0], order[1])
    scripts = [SAYS[name](number, number == len(loop) - 1) for number, name in enumerate(loop)]
    async with serving(*scripts) as server:
        model = Rotating([make(name, server.url) for name in loop])
        async with Engine(Agent(model, tools=[look]), MemoryStore()) as engine:
            result = await engine.session("a").run("Look around")
    assert (result.outcome, result.text, result.steps, len(result.calls)) == ("completed", "done", 6, 10)
    bodies = [body for _, body in server.requests]
    for protocol, body in zip(loop, bodies, strict=True):
        check(protocol, body)
    assert_own_comes_back(loop, server)


def assert_own_comes_back(loop: tuple[str, ...], server: ByteServer) -> None:
    """A provider that is asked again gets back what it had sent."""
    for number in (4, 5):
        assert SECRETS[loop[number]].encode() in server.requests[number][1], loop[number]
