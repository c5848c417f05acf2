"""Whole turns in every protocol against npm's aimock, which plays scripted turns and reads requests in its own way."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
import trio

from tests.servers.launch import AIMock
from tests.servers.protocols import PROTOCOLS, InTurn, Protocol, each_protocol
from turnstate import Agent, Engine, Event, MemoryStore, ReasoningDelta, TextDelta, Tool, TurnFailed, tool
from turnstate.states import Reasoning, Text, ToolCall

pytestmark = pytest.mark.npm

PATIENCE = 60
Colour = Literal["red", "green"]
ANSWER = "The lamp is green now, and nobody has said a word about it."
CALL = {"id": "call_1", "name": "light", "arguments": {"colour": "green"}}
OTHER_CALL = {"id": "call_2", "name": "light", "arguments": {"colour": "red"}}


def entry(response: Any, /, match: Any = None, **more: Any) -> dict[str, Any]:
    """One entry of a script."""
    return {"match": match or {}, "response": response, **more}


def lamp(seen: list[str]) -> Tool[Any, Any]:
    """A tool that notes what it is told."""

    @tool
    async def light(colour: Colour) -> str:
        """Switch a light."""
        seen.append(colour)
        return f"it is {colour}"

    return light


def asked(server: AIMock) -> list[dict[str, Any]]:
    """The messages of the last request, as the server read them."""
    messages: list[dict[str, Any]] = server.requests()[-1]["body"]["messages"]
    return messages


def roles(server: AIMock) -> list[str]:
    """The roles of those messages."""
    return [message["role"] for message in asked(server)]


def answered(server: AIMock) -> dict[str, str]:
    """The results in the last request by the name and arguments of the call that each belongs to."""
    calls = {call["id"]: call["function"] for message in asked(server) for call in message.get("tool_calls", ())}
    named = {id: f"{call['name']} {json.loads(call['arguments'])}" for id, call in calls.items()}
    return {
        named[message["tool_call_id"]]: message["content"] for message in asked(server) if message["role"] == "tool"
    }


@each_protocol
async def test_text(aimock_server: AIMock, protocol: Protocol) -> None:
    """What is streamed is the answer, usage is counted, and the next turn sends what was said before."""
    aimock_server.script(
        entry(
            {"content": ANSWER, "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}},
            {"userMessage": "hello"},
            chunkSize=5,
        ),
        entry({"content": "Then it was over."}, {"userMessage": "and then?"}),
    )
    agent = Agent(aimock_server.model(protocol), instructions="Be brief.")
    with trio.fail_after(PATIENCE):
        async with Engine(agent, MemoryStore()) as engine:
            session = engine.session("s")
            async with session.turn("hello") as turn:
                pieces = [piece async for piece in turn.text()]
                result = await turn.result()
            following = await session.run("and then?")
    assert "".join(pieces) == result.text == ANSWER
    assert (result.outcome, result.stop, result.usage.input, result.usage.output) == ("completed", "stop", 11, 7)
    assert following.text == "Then it was over."
    assert roles(aimock_server) == ["system", "user", "assistant", "user"]
    assert [message["content"] for message in asked(aimock_server)] == ["Be brief.", "hello", ANSWER, "and then?"]


@each_protocol
async def test_a_tool_loop(aimock_server: AIMock, protocol: Protocol) -> None:
    """A call runs, the server finds its result where the protocol wants it, and answers."""
    seen: list[str] = []
    aimock_server.script(
        entry({"toolCalls": [CALL]}, {"userMessage": "hello", "hasToolResult": False}, chunkSize=4),
        entry({"content": ANSWER}, {"toolResultContains": "it is green"}),
    )
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(aimock_server.model(protocol), tools=[lamp(seen)]), MemoryStore()) as engine:
            result = await engine.session("s").run("hello")
            messages = await engine.session("s").messages()
    assert (result.outcome, result.text, result.steps, seen) == ("completed", ANSWER, 2, ["green"])
    assert [(call.tool, call.status, call.arguments) for call in result.calls] == [("light", "ok", {"colour": "green"})]
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert roles(aimock_server) == ["user", "assistant", "tool"]
    assert list(answered(aimock_server)) == ["light {'colour': 'green'}"]
    assert [tool["function"]["name"] for tool in aimock_server.requests()[0]["body"]["tools"]] == ["light"]


@each_protocol
async def test_parallel_calls(aimock_server: AIMock, protocol: Protocol) -> None:
    """Calls of one reply run at once, and the server finds each result at its own call; words and thoughts stay apart."""
    both = trio.Event()
    running: list[str] = []

    @tool
    async def light(colour: Colour) -> str:
        """Switch a light."""
        running.append(colour)
        if len(running) == 2:
            both.set()
        await both.wait()
        return f"it is {colour}"

    aimock_server.script(
        entry(
            {"content": "I look.", "reasoning": "Which one is it?", "toolCalls": [CALL, OTHER_CALL]},
            {"hasToolResult": False},
            chunkSize=4,
        ),
        entry({"content": ANSWER}, {"hasToolResult": True}),
    )
    events: list[Event] = []
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(aimock_server.model(protocol), tools=[light]), MemoryStore()) as engine:
            session = engine.session("s")
            async with session.turn("hello") as turn:
                async for event in turn:
                    events.append(event)
                result = await turn.result()
            messages = await session.messages()
    assert (result.text, [call.status for call in result.calls]) == (ANSWER, ["ok", "ok"])
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "Which one is it?"
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "I look." + ANSWER
    assert [type(part) for part in messages[1].parts] == [Reasoning, Text, ToolCall, ToolCall]
    results = answered(aimock_server)
    assert list(results) == ["light {'colour': 'green'}", "light {'colour': 'red'}"]
    assert ["it is green" in results[call] for call in results] == [True, False]
    assert ["it is red" in results[call] for call in results] == [False, True]


@each_protocol
async def test_a_call_before_words(aimock_server: AIMock, protocol: Protocol) -> None:
    """A call runs also where words follow it, and the words are kept."""
    seen: list[str] = []
    blocks = [{"type": "toolCall", **CALL}, {"type": "text", "text": "I have asked."}]
    aimock_server.script(
        entry({"blocks": blocks}, {"hasToolResult": False}, chunkSize=4),
        entry({"content": ANSWER}, {"hasToolResult": True}),
    )
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(aimock_server.model(protocol), tools=[lamp(seen)]), MemoryStore()) as engine:
            result = await engine.session("s").run("hello")
            messages = await engine.session("s").messages()
    assert (result.text, seen, messages[1].text) == (ANSWER, ["green"], "I have asked.")
    assert "I have asked." in json.dumps(asked(aimock_server))
    # Chat Completions has no place for the order; in Responses a reply begins with its encrypted thoughts.
    order = [Text, ToolCall] if protocol == "chat" else [ToolCall, Text]
    assert [type(part) for part in messages[1].parts if not isinstance(part, Reasoning)] == order


@pytest.mark.parametrize("first", PROTOCOLS)
async def test_protocols_take_turns_in_a_tool_loop(aimock_server: AIMock, first: Protocol) -> None:
    """A loop goes on though each reply comes over another protocol, and the next turn sends all of it."""
    seen: list[str] = []
    start = PROTOCOLS.index(first)
    order = PROTOCOLS[start:] + PROTOCOLS[:start]
    aimock_server.script(
        *(
            entry({"toolCalls": [{**CALL, "id": f"call_{n}"}]}, {"userMessage": "hello", "turnIndex": n})
            for n in range(4)
        ),
        entry({"content": ANSWER}, {"userMessage": "hello", "turnIndex": 4}),
        entry({"content": "It is all said."}, {"userMessage": "and then?"}),
    )
    model = InTurn(*(aimock_server.model(protocol) for protocol in order + order))
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(model, tools=[lamp(seen)]), MemoryStore()) as engine:
            result = await engine.session("s").run("hello")
            following = await engine.session("s").run("and then?")
    assert (result.text, result.steps, seen) == (ANSWER, 5, ["green"] * 4)
    assert following.text == "It is all said."
    assert roles(aimock_server) == ["user", *["assistant", "tool"] * 4, "assistant", "user"]
    paths = [request["path"].partition("?")[0].rpartition("/")[2] for request in aimock_server.requests()]
    assert len(set(paths[:4])) == 4


@pytest.mark.parametrize(
    ("protocol", "word", "stop"),
    [
        ("chat", "length", "length"),
        ("chat", "content_filter", "content-filter"),
        ("messages", "length", "length"),
        ("messages", "refusal", "refusal"),
        ("gemini", "length", "length"),
        ("gemini", "content_filter", "content-filter"),
    ],
)
async def test_a_reply_that_was_cut_off(aimock_server: AIMock, protocol: Protocol, word: str, stop: str) -> None:
    """A reply that a limit or a filter cut off is told as such, and a call in it does not run."""
    seen: list[str] = []
    aimock_server.script(entry({"toolCalls": [CALL], "finishReason": word}))
    with trio.fail_after(PATIENCE):
        agent = Agent(aimock_server.model(protocol), tools=[lamp(seen)])
        async with Engine(agent, MemoryStore()) as engine:
            result = await engine.session("s").run("hello", check=False)
    assert (result.stop, seen, [call.status for call in result.calls]) == (stop, [], ["not-run"])


@each_protocol
async def test_a_key_opens_the_server(aimock_server: AIMock, protocol: Protocol) -> None:
    """The key is where the protocol wants it; a wrong one fails the turn at once, and is not shown."""
    aimock_server.script(entry({"content": ANSWER}))
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(aimock_server.model(protocol)), MemoryStore()) as engine:
            assert (await engine.session("s").run("hello")).text == ANSWER
        wrong = aimock_server.model(protocol, api_key="sk-another-secret")
        async with Engine(Agent(wrong), MemoryStore()) as engine:
            with pytest.raises(TurnFailed, match="401") as caught:
                await engine.session("s").run("hello")
    error = caught.value.result.error
    assert error is not None
    assert (error.kind, error.status, caught.value.result.attempts) == ("authentication", 401, 1)
    assert "sk-another-secret" not in repr(caught.value)


@each_protocol
async def test_a_request_that_the_server_cannot_answer(aimock_server: AIMock, protocol: Protocol) -> None:
    """Where nothing is scripted the turn fails with one line and no further attempt, and the session goes on."""
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(aimock_server.model(protocol)), MemoryStore()) as engine:
            with pytest.raises(TurnFailed, match="404") as caught:
                await engine.session("s").run("hello")
            aimock_server.script(entry({"content": ANSWER}))
            result = await engine.session("s").run("hello")
    error = caught.value.result.error
    assert error is not None
    assert (error.kind, caught.value.result.attempts, result.text) == ("not-found", 1, ANSWER)


@each_protocol
async def test_an_interrupt_in_a_stream(aimock_server: AIMock, protocol: Protocol) -> None:
    """An interrupted turn keeps what was said so far, and the next turn goes on from there."""
    aimock_server.script(
        entry({"content": "on and on " * 500}, {"userMessage": "hello"}, chunkSize=10, latency=20),
        entry({"content": ANSWER}, {"userMessage": "go on"}),
    )
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(aimock_server.model(protocol)), MemoryStore()) as engine:
            session = engine.session("s")
            async with session.turn("hello") as turn:
                async for event in turn:
                    if isinstance(event, TextDelta):
                        await session.interrupt("enough")
                        break
                result = await turn.result(check=False)
            kept = (await session.messages())[-1]
            following = await session.run("go on")
    assert (result.outcome, result.reason, following.text) == ("interrupted", "enough", ANSWER)
    assert (kept.status, kept.text[:9]) == ("incomplete", "on and on")
    assert any(kept.text.strip() in message["content"] for message in asked(aimock_server)[1:-1])
