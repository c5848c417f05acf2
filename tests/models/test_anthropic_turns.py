"""Whole turns in Anthropic Messages against scripted bytes: every request keeps the provider's rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.models.anthropic_rules import check, sign
from turnstate import Agent, Engine, MemoryStore, TurnFailed, tool
from turnstate.models import Anthropic
from turnstate.testing.byte_server import ByteServer, Step, head, serving

OVERLOADED = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}).encode()
OPEN = head(None, "200 OK", "Content-Type: text/event-stream")


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n"


def answer(*blocks: dict[str, Any], reason: str = "end_turn", end: bytes = b"") -> list[Step]:
    """A stream with these blocks; ``end`` comes in place of its end."""
    stream = event("message_start", message={"model": "claude-x", "usage": {"input_tokens": 3}})
    for index, block in enumerate(blocks):
        stream += event("content_block_start", index=index, content_block=block)
        stream += event("content_block_stop", index=index)
    stop = event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 2}) + event("message_stop")
    return [OPEN, stream + (end or stop)]


def thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": sign(text)}


def use(id: str, **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "write", "input": input}


DONE = {"type": "text", "text": "done"}
WRITTEN: list[str] = []


@tool
async def write(path: str) -> str:
    """Write a file."""
    WRITTEN.append(path)
    return f"wrote {path}"


def agent(server: ByteServer, **settings: Any) -> Agent:
    WRITTEN.clear()
    return Agent(Anthropic("claude-x", base_url=server.url, settings=settings), tools=[write])


def bodies(server: ByteServer) -> list[dict[str, Any]]:
    return [check(body) for _, body in server.requests]


async def test_two_rounds_with_thinking_and_a_restart() -> None:
    """Case 29: what was thought goes back with its signature in each round, and in the next turn after a restart."""
    first = [thinking("1"), use("a", path="x"), use("b", path="y")]
    second = [{"type": "redacted_thinking", "data": "r"}, thinking(""), use("c", path="z")]
    scripts = answer(*first, reason="tool_use"), answer(*second, reason="tool_use"), answer(thinking("3"), DONE)
    store = MemoryStore()
    async with serving(*scripts) as server:
        async with Engine(agent(server, thinking_budget=2000), store) as engine:
            assert (await engine.session("s").run("go")).text == "done"
        assert sorted(WRITTEN) == ["x", "y", "z"]
        async with Engine(agent(server, thinking_budget=2000, cache=True), store) as engine:
            result = await engine.session("s").run("again")
    sent = bodies(server)
    said = [turn["content"] for turn in sent[-1]["messages"] if turn["role"] == "assistant"]
    assert said == [first, second, [thinking("3"), DONE]]
    assert all("thinking" in body for body in sent)
    assert (result.usage.input, result.usage.output) == (3, 2)


async def test_a_pause_goes_on() -> None:
    """A paused reply is sent back unchanged, and the turn goes on by itself."""
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    found: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    async with (
        serving(answer(search, reason="pause_turn"), answer(found, DONE)) as server,
        Engine(agent(server), MemoryStore()) as engine,
    ):
        result = await engine.session("s").run("go")
        await engine.session("s").run("on")
    assert (result.outcome, result.text) == ("completed", "done")
    sent = bodies(server)
    assert sent[1]["messages"][-1] == {"role": "assistant", "content": [search]}
    assert sent[2]["messages"][1]["content"] == [search, found, DONE]


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
async def test_no_call_of_a_reply_that_broke_off_runs(reason: str) -> None:
    """Case 94: a call of a reply that ended by length or refusal does not run, though its input parses."""
    async with (
        serving(answer(use("a", path="x"), reason=reason), answer(DONE)) as server,
        Engine(agent(server), MemoryStore()) as engine,
    ):
        with trio.fail_after(5):
            async with engine.session("s").turn("go") as turn:
                await turn.result(check=False)
            await engine.session("s").run("on")
    assert WRITTEN == []
    bodies(server)


@pytest.mark.parametrize("before", [[], [DONE], [use("a", path="x")]])
@pytest.mark.parametrize("end", [b"event: error\ndata: " + OVERLOADED + b"\n\n", b": cut\n\n"])
async def test_a_broken_attempt_leaves_nothing(
    quick_clock: MockClock, before: list[dict[str, Any]], end: bytes
) -> None:
    """Cases 5, 8 and 101: after an error in the stream or a cut the step is tried again; no call of it ran."""
    async with (
        serving(answer(*before, end=end), answer({"type": "text", "text": "fine"})) as server,
        Engine(agent(server), MemoryStore()) as engine,
    ):
        with trio.fail_after(100):
            result = await engine.session("s").run("go")
    assert (result.text, result.attempts, WRITTEN) == ("fine", 2, [])
    sent = bodies(server)
    assert sent[0] == sent[1]


async def test_a_status_that_will_not_change_fails_the_turn() -> None:
    """Case 98: a context that is too long is not tried again, and the error says so."""
    text = "prompt is too long: 210000 tokens > 200000 maximum"
    body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": text}}).encode()
    async with (
        serving([head(len(body), "400 Bad Request"), body]) as server,
        Engine(agent(server), MemoryStore()) as engine,
    ):
        with pytest.raises(TurnFailed, match="too long") as caught:
            await engine.session("s").run("go")
    error = caught.value.result.error
    assert error is not None
    assert (error.kind, len(server.requests)) == ("context-overflow", 1)
