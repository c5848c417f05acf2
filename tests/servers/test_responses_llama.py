"""The Responses protocol against llama.cpp's server, whose events have no output index: replies and whole turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest
import trio

from tests.servers.launch import LlamaServer, LlamaServers, wait_until
from tests.servers.protocols import InTurn
from turnstate import Agent, Call, Engine, MemoryStore, TextDelta, TurnFailed, tool
from turnstate.models import OpenAIChat, OpenAIResponses

PATIENCE = 60
Colour = Literal["red", "green"]


def responses(server: LlamaServer, seed: int = 1, **settings: Any) -> OpenAIResponses:
    """The adapter for one of the servers."""
    return OpenAIResponses("m", base_url=server.base_url, settings=settings, extra_body={"seed": seed})


def talker(servers: LlamaServers) -> OpenAIResponses:
    return responses(servers.words, tool_choice="none", max_tokens=20)


async def test_text(llama_server: LlamaServers) -> None:
    """A turn without tools, and one after it: what was streamed is the answer, and it is the message that is kept."""
    agent = Agent(responses(llama_server.words, max_tokens=40), instructions="Be brief.")
    with trio.fail_after(PATIENCE):
        async with Engine(agent, MemoryStore()) as engine:
            session = engine.session("s")
            async with session.turn("hello") as turn:
                text = [piece async for piece in turn.text()]
                result = await turn.result()
            following = await session.run("and then?")
            messages = await session.messages()
    assert (result.outcome, following.outcome) == ("completed", "completed")
    assert "".join(text) == result.text != ""
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant"]
    assert result.usage.output
    assert result.usage.input


async def test_one_call(llama_server: LlamaServers) -> None:
    """The model calls a tool, reads its result and goes on."""
    seen: list[str] = []

    @tool
    async def light(colour: Colour) -> str:
        """Switch a light."""
        seen.append(colour)
        return f"it is {colour}"

    caller = responses(llama_server.calls, tool_choice="required", max_tokens=600)
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(InTurn(caller, talker(llama_server)), tools=[light]), MemoryStore()) as engine:
            result = await engine.session("s").run("hello")
            messages = await engine.session("s").messages()
    assert result.outcome == "completed"
    assert [(call.tool, call.status, call.arguments) for call in result.calls] == [("light", "ok", {"colour": seen[0]})]
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[2].text == f"it is {seen[0]}"


async def test_parallel_calls(llama_server: LlamaServers) -> None:
    """Calls of one reply stay apart though no event tells their index, and each has its own result."""
    ran: list[str] = []

    @tool
    async def light(colour: Colour) -> str:
        """Switch a light."""
        ran.append(colour)
        return f"it is {colour}"

    calls: Sequence[Call] = ()
    roles: list[str] = []
    with trio.fail_after(PATIENCE):
        for seed in range(20):
            ran.clear()
            caller = responses(llama_server.many_calls, seed, tool_choice="required", max_tokens=600)
            agent = Agent(InTurn(caller, talker(llama_server)), tools=[light])
            async with Engine(agent, MemoryStore()) as engine:
                calls = (await engine.session("s").run("hello")).calls
                roles = [message.role for message in await engine.session("s").messages()]
            if len(calls) > 1:
                break
    assert len(ran) == len(calls) > 1
    assert {call.status for call in calls} == {"ok"}
    assert roles == ["user", "assistant", *["tool"] * len(calls), "assistant"]


@pytest.mark.parametrize("first", ["chat", "responses"])
async def test_protocols_take_turns_in_a_tool_loop(llama_server: LlamaServers, first: str) -> None:
    """A call that one protocol began is answered over the other, and the conversation goes on with the first."""

    @tool
    async def light(colour: Colour) -> str:
        """Switch a light."""
        return f"it is {colour}"

    def chat(server: LlamaServer, **settings: Any) -> OpenAIChat:
        return OpenAIChat("m", base_url=server.base_url, settings=settings)

    must: dict[str, Any] = {"tool_choice": "required", "max_tokens": 600}
    if first == "chat":
        both = InTurn(chat(llama_server.calls, seed=1, **must), talker(llama_server))
    else:
        both = InTurn(
            responses(llama_server.calls, **must), chat(llama_server.words, tool_choice="none", max_tokens=20)
        )
    store = MemoryStore()
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(both, tools=[light]), store) as engine:
            result = await engine.session("s").run("hello")
        async with Engine(Agent(talker(llama_server), tools=[light]), store) as engine:
            following = await engine.session("s").run("again")
    assert (result.outcome, following.outcome, len(result.calls)) == ("completed", "completed", 1)


async def test_an_error_of_the_server(llama_server: LlamaServers) -> None:
    """A request that the server refuses fails the turn with one clear line."""
    bad = OpenAIResponses("m", base_url=llama_server.words.address + "/nowhere")
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(bad), MemoryStore()) as engine:
            with pytest.raises(TurnFailed, match="404"):
                await engine.session("s").run("hello")


async def test_an_interrupt_frees_the_server(llama_server: LlamaServers) -> None:
    """An interrupted turn keeps its text so far, goes on from there, and the server is free at once."""
    server = llama_server.endless
    store = MemoryStore()
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(responses(server)), store) as engine:
            session = engine.session("s")
            async with session.turn("hello") as turn:
                async for event in turn:
                    if isinstance(event, TextDelta):
                        await session.interrupt("enough")
                        break
                result = await turn.result(check=False)
            assert await trio.to_thread.run_sync(wait_until, lambda: not server.busy(), 5)
            messages = await session.messages()
        async with Engine(Agent(responses(server, max_tokens=5)), store) as engine:
            following = await engine.session("s").run("go on")
    assert (result.outcome, result.reason) == ("interrupted", "enough")
    assert messages[-1].status == "incomplete"
    assert messages[-1].text
    assert following.outcome == "completed"
    assert following.usage.output == 5
