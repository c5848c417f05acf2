"""Whole turns over the Responses protocol against scripted servers: what a tool loop sends, and what never runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from tests.models.keep_alive_server import END, HEAD, KeepAliveServer, part, plain, serving
from turnstate import Agent, Engine, MemoryStore, tool
from turnstate.models import OpenAIResponses
from turnstate.models.fallback import Fallback

THOUGHT: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "gAAAA",
}
SAID: dict[str, Any] = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "final_answer",
    "content": [{"type": "output_text", "text": "done", "annotations": [], "logprobs": []}],
}
CACHED: dict[str, Any] = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2}


def call(n: int, arguments: str = '{"path": "x"}') -> dict[str, Any]:
    fields = {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": "write", "arguments": arguments}
    return {**fields, "status": "completed"}


def answer(*output: dict[str, Any], status: str = "completed", **more: Any) -> list[Any]:
    """A stream that brings items one by one and then the whole response."""
    items = [{"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(output)]
    response = {"id": "r", "model": "m-1", "status": status, "output": output, "usage": CACHED, **more}
    events = [*items, {"type": f"response.{status}", "response": response}]
    return [HEAD, part(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)), END]


def sent(server: KeepAliveServer, n: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(server.requests[n][1])["input"]
    return found


async def test_a_tool_loop_gives_everything_back() -> None:
    """Case 29: reasoning, calls and their results go back verbatim and in order, also after a restart between two turns."""

    @tool
    async def write(path: str) -> str:
        """Write a file."""
        return f"wrote {path}"

    output = [THOUGHT, call(1), call(2, '{"path" : "y"}')]
    async with serving(answer(*output), answer({**THOUGHT, "id": "rs_2"}, SAID), answer(SAID)) as server:
        store = MemoryStore()
        with trio.fail_after(10):
            async with Engine(Agent(OpenAIResponses("m", base_url=server.url), tools=[write]), store) as engine:
                first = await engine.session("s").run("go")
            async with Engine(Agent(OpenAIResponses("m", base_url=server.url), tools=[write]), store) as engine:
                second = await engine.session("s").run("again")
    assert (first.outcome, second.outcome, first.text) == ("completed", "completed", "done")
    assert (first.usage.input, first.usage.cached) == (18, 8)
    results = [
        {"type": "function_call_output", "call_id": f"call_{n}", "output": f"wrote {path}"}
        for n, path in ((1, "x"), (2, "y"))
    ]
    history = [{"role": "user", "content": "go"}, *output, *results]
    assert sent(server, 1) == history
    assert sent(server, 2) == [*history, {**THOUGHT, "id": "rs_2"}, SAID, {"role": "user", "content": "again"}]


@pytest.mark.parametrize("arguments", ['{"path":"x"', '{"path":"x"}'])
@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
async def test_no_call_of_an_incomplete_response_runs(arguments: str, reason: str) -> None:
    """Cases 32 and 94: a call in a response that was cut never runs, even if its JSON parses; the usage counts."""
    runs = 0

    @tool
    async def write(path: str) -> str:
        """Write a file."""
        nonlocal runs
        runs += 1
        return path

    cut = answer(call(1, arguments), status="incomplete", incomplete_details={"reason": reason})
    async with serving(cut, answer(SAID)) as server:
        with trio.fail_after(10):
            async with Engine(Agent(OpenAIResponses("m", base_url=server.url), tools=[write]), MemoryStore()) as engine:
                result = await engine.session("s").run("go", check=False)
    assert runs == 0
    assert not [call for call in result.calls if call.status == "ok"]
    assert result.usage.input


async def test_a_turn_goes_to_the_next_model() -> None:
    """A model that is overloaded is passed over, and the turn's message names the one that answered."""
    async with serving(plain("529 Overloaded", b"")) as busy, serving(answer(SAID)) as free:
        both = Fallback(OpenAIResponses("a", base_url=busy.url), OpenAIResponses("b", base_url=free.url))
        with trio.fail_after(10):
            async with Engine(Agent(both), MemoryStore()) as engine:
                result = await engine.session("s").run("go")
                messages = await engine.session("s").messages()
    assert (result.text, messages[-1].model) == ("done", "m-1")
    assert (len(busy.requests), len(free.requests)) == (1, 1)
