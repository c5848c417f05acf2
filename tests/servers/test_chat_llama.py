"""Whole turns against llama.cpp's server: real streams of a model whose words make no sense."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import pytest
import trio

from tests.servers.launch import LlamaServer, LlamaServers, wait_until
from tests.servers.protocols import InTurn
from turnstate import Agent, Call, Engine, Limits, MemoryStore, TextDelta, ToolError, TurnFailed, tool
from turnstate.models import OpenAIChat

PATIENCE = 60
Colour = Literal["red", "green"]


def chat(server: LlamaServer, **settings: Any) -> OpenAIChat:
    """The adapter for one of the servers."""
    return OpenAIChat("m", base_url=server.base_url, settings=settings)


def call_then_talk(servers: LlamaServers, caller: LlamaServer, seed: int = 1) -> InTurn:
    """One model for the first step, which must call a tool, and another for those after it, which only talks."""
    return InTurn(
        chat(caller, tool_choice="required", max_tokens=600, seed=seed),
        chat(servers.words, tool_choice="none", max_tokens=20),
    )


async def test_text(llama_server: LlamaServers) -> None:
    """A turn without tools: what was streamed is the answer, and it is the message that is kept."""
    agent = Agent(chat(llama_server.words, max_tokens=40))
    with trio.fail_after(PATIENCE):
        async with Engine(agent, MemoryStore()) as engine:
            session = engine.session("s")
            async with session.turn("hello") as turn:
                text = [piece async for piece in turn.text()]
                result = await turn.result()
            messages = await session.messages()
    assert result.outcome == "completed"
    assert "".join(text) == result.text != ""
    assert [message.role for message in messages] == ["user", "assistant"]
    assert result.usage.output


async def test_one_call(llama_server: LlamaServers) -> None:
    """The model calls a tool, reads its result and goes on."""
    seen: list[str] = []

    @tool
    async def light(colour: Colour) -> str:
        """Switch a light."""
        seen.append(colour)
        return f"it is {colour}"

    agent = Agent(call_then_talk(llama_server, llama_server.calls), tools=[light])
    with trio.fail_after(PATIENCE):
        async with Engine(agent, MemoryStore()) as engine:
            result = await engine.session("s").run("hello")
            messages = await engine.session("s").messages()
    assert result.outcome == "completed"
    assert len(seen) == 1
    assert [(call.tool, call.status, call.arguments) for call in result.calls] == [("light", "ok", {"colour": seen[0]})]
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[2].text == f"it is {seen[0]}"


async def test_parallel_calls(llama_server: LlamaServers) -> None:
    """Calls of one reply run together, and each has its own result."""
    running = most = 0

    @tool
    async def light(colour: Colour) -> str:
        """Switch a light."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(0.05)
        running -= 1
        return f"it is {colour}"

    calls: Sequence[Call] = ()
    roles: list[str] = []
    with trio.fail_after(PATIENCE):
        for seed in range(20):
            most = 0
            agent = Agent(call_then_talk(llama_server, llama_server.many_calls, seed), tools=[light])
            async with Engine(agent, MemoryStore()) as engine:
                calls = (await engine.session("s").run("hello")).calls
                roles = [message.role for message in await engine.session("s").messages()]
            if len(calls) > 1:
                break
    assert most == len(calls) > 1
    assert {call.status for call in calls} == {"ok"}
    assert len({call.id for call in calls}) == len(calls)
    assert roles == ["user", "assistant", *["tool"] * most, "assistant"]


async def test_a_tool_that_fails(llama_server: LlamaServers) -> None:
    """A tool's error is a result that the model reads, and the turn goes on."""

    @tool
    def light(colour: Colour) -> str:
        """Switch a light."""
        raise ToolError(f"no {colour} bulb is left")

    agent = Agent(call_then_talk(llama_server, llama_server.calls), tools=[light])
    with trio.fail_after(PATIENCE):
        async with Engine(agent, MemoryStore()) as engine:
            result = await engine.session("s").run("hello")
            messages = await engine.session("s").messages()
    assert (result.outcome, [call.status for call in result.calls]) == ("completed", ["error"])
    assert messages[2].text == f"no {json.loads(result.calls[0].arguments_json)['colour']} bulb is left"


async def test_an_error_of_the_server(llama_server: LlamaServers) -> None:
    """A request that the server refuses fails the turn with one clear line; the session can be used again."""
    bad = OpenAIChat("m", base_url=llama_server.words.address + "/nowhere")
    store = MemoryStore()
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(bad, limits=Limits(steps=5)), store) as engine:
            with pytest.raises(TurnFailed, match="404"):
                await engine.session("s").run("hello")
        async with Engine(Agent(chat(llama_server.words, max_tokens=10)), store) as engine:
            result = await engine.session("s").run("again")
    assert result.outcome == "completed"


async def test_an_interrupt_frees_the_server(llama_server: LlamaServers) -> None:
    """An interrupted turn keeps its text so far, and the server is free for the next request at once."""
    server = llama_server.endless
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(chat(server)), MemoryStore()) as engine:
            session = engine.session("s")
            async with session.turn("hello") as turn:
                async for event in turn:
                    if isinstance(event, TextDelta):
                        await session.interrupt("enough")
                        break
                result = await turn.result(check=False)
            assert await trio.to_thread.run_sync(wait_until, lambda: not server.busy(), 5)
            messages = await session.messages()
        with trio.fail_after(10):
            async with Engine(Agent(chat(server, max_tokens=5)), MemoryStore()) as engine:
                following = await engine.session("s").run("hello")
    assert (result.outcome, result.reason) == ("interrupted", "enough")
    assert messages[-1].status == "incomplete"
    assert messages[-1].text
    assert following.stop == "length"
