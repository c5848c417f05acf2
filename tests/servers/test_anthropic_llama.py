"""Whole turns in Anthropic Messages against llama.cpp's server: real streams of a model whose words make no sense."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
import trio

from tests.servers.launch import LlamaServer, LlamaServers, wait_until
from tests.servers.protocols import InTurn
from turnstate import Agent, Engine, MemoryStore, TextDelta, tool
from turnstate.models import Anthropic, Model, ModelRequest, OpenAIChat
from turnstate_states.content import Text
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Message

PATIENCE = 60
Colour = Literal["red", "green"]


def messages(server: LlamaServer, seed: int = 1, **settings: Any) -> Anthropic:
    """The adapter for one of the servers."""
    return Anthropic("m", base_url=server.base_url, settings=settings, extra_body={"seed": seed})


async def test_text(llama_server: LlamaServers) -> None:
    """A turn without tools: what was streamed is the answer; a cut by ``max_tokens`` is told; usage is counted."""
    agent = Agent(messages(llama_server.endless, max_tokens=20), instructions="Be brief.")
    with trio.fail_after(PATIENCE):
        async with Engine(agent, MemoryStore()) as engine:
            session = engine.session("s")
            async with session.turn("hello") as turn:
                text = [piece async for piece in turn.text()]
                result = await turn.result(check=False)
    assert "".join(text) == result.text != ""
    assert result.stop == "length"
    assert result.usage.output == 20
    assert result.usage.input


@pytest.mark.parametrize("way", ["messages", "from chat", "to chat"])
async def test_a_tool_loop(llama_server: LlamaServers, way: str) -> None:
    """A call is run and its result is sent back, also where another protocol takes over in the middle of the loop."""
    seen: list[str] = []

    @tool
    async def light(colour: Colour) -> str:
        """Switch a light."""
        seen.append(colour)
        return f"it is {colour}"

    def chat(server: LlamaServer, **settings: Any) -> Model:
        return OpenAIChat("m", base_url=server.base_url, settings={"seed": 1, **settings})

    call = chat if way == "from chat" else messages
    talk = chat if way == "to chat" else messages
    caller = call(llama_server.calls, tool_choice="required", max_tokens=600)
    agent = Agent(InTurn(caller, talk(llama_server.words, tool_choice="none", max_tokens=20)), tools=[light])
    with trio.fail_after(PATIENCE):
        async with Engine(agent, MemoryStore()) as engine:
            result = await engine.session("s").run("hello")
            history = await engine.session("s").messages()
            again = await engine.session("s").run("and again")
    assert (result.outcome, again.outcome) == ("completed", "completed")
    assert [(call.tool, call.status, call.arguments) for call in result.calls] == [("light", "ok", {"colour": seen[0]})]
    assert [message.role for message in history] == ["user", "assistant", "tool", "assistant"]
    assert json.loads(result.calls[0].arguments_json) == {"colour": seen[0]}


async def test_an_interrupt_frees_the_server(llama_server: LlamaServers) -> None:
    """An interrupted turn keeps its text so far, the server is free at once, and the next turn is accepted."""
    server = llama_server.endless
    store = MemoryStore()
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(messages(server, max_tokens=100_000)), store) as engine:
            session = engine.session("s")
            async with session.turn("hello") as turn:
                async for event in turn:
                    if isinstance(event, TextDelta):
                        await session.interrupt("enough")
                        break
                result = await turn.result(check=False)
            assert await trio.to_thread.run_sync(wait_until, lambda: not server.busy(), 5)
        async with Engine(Agent(messages(server, max_tokens=5)), store) as engine:
            following = await engine.session("s").run("go on")
    assert (result.outcome, following.stop) == ("interrupted", "length")


async def test_a_request_that_the_server_refuses(llama_server: LlamaServers) -> None:
    """A path that the server does not have is one clear error."""
    bad = Anthropic("m", base_url=llama_server.words.address + "/nowhere")
    with pytest.raises(ModelError) as caught:
        await bad.respond(question(), lambda kind, text, slot: None)
    await bad.aclose()
    assert (caught.value.kind, caught.value.status) == ("not-found", 404)


def question() -> ModelRequest:
    """One question."""
    return ModelRequest("s", "t1.1.1", "", (Message("m1", None, "t1", "user", (Text("hello"),), 0.0),))
