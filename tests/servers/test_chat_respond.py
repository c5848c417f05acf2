"""The adapter of Chat Completions alone, against a server that nobody here wrote."""

from __future__ import annotations

import trio

from tests.servers.launch import LlamaServers, wait_until
from turnstate.models import ModelRequest, OpenAIChat, Reply, ToolDefinition
from turnstate_states.content import Text, ToolCall
from turnstate_states.transcript import Message

LIGHT = ToolDefinition(
    "light",
    "Switch a light.",
    {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["red", "green"]}},
        "required": ["colour"],
        "additionalProperties": False,
    },
)
PATIENCE = 60


async def respond(model: OpenAIChat, *tools: ToolDefinition) -> tuple[Reply, list[tuple[str, str, int]]]:
    """The reply to one question, and the pieces that came."""
    pieces: list[tuple[str, str, int]] = []
    question = Message("m1", None, "t1", "user", (Text("hello"),), 0.0)
    request = ModelRequest("s", "t1.1.1", "Be brief.", (question,), tools=tools)
    try:
        with trio.fail_after(PATIENCE):
            reply = await model.respond(request, lambda kind, text, slot: pieces.append((kind, text, slot)))
    finally:
        with trio.CancelScope(shield=True):
            await model.aclose()
    return reply, pieces


async def test_text_arrives_in_pieces(llama_server: LlamaServers) -> None:
    """The pieces of a streamed reply are its text."""
    model = OpenAIChat("m", base_url=llama_server.words.base_url, settings={"max_tokens": 40, "seed": 3})
    reply, pieces = await respond(model)
    assert reply.text
    assert "".join(text for kind, text, _ in pieces if kind == "text") == reply.text
    assert reply.stop in ("stop", "length")
    assert reply.usage.output is not None
    assert 0 < reply.usage.output <= 40


async def test_a_call_arrives_whole(llama_server: LlamaServers) -> None:
    """A call that the server sends in fragments has its name once and arguments that are JSON."""
    model = OpenAIChat("m", base_url=llama_server.calls.base_url, settings={"tool_choice": "required", "seed": 3})
    reply, pieces = await respond(model, LIGHT)
    (call,) = [part for part in reply.parts if isinstance(part, ToolCall)]
    assert call.name == "light"
    assert "".join(text for kind, text, _ in pieces if kind == "arguments") == call.arguments
    assert call.arguments.replace(" ", "") in ('{"colour":"red"}', '{"colour":"green"}')
    assert reply.stop == "tool-calls"


async def test_hanging_up_frees_the_server(llama_server: LlamaServers) -> None:
    """A cancelled request is over on the server too, at once."""
    server = llama_server.endless
    async with trio.open_nursery() as nursery:
        nursery.start_soon(respond, OpenAIChat("m", base_url=server.base_url))
        assert await trio.to_thread.run_sync(wait_until, server.busy, 10)
        nursery.cancel_scope.cancel()
    assert await trio.to_thread.run_sync(wait_until, lambda: not server.busy(), 10)
