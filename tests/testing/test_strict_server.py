"""turnstate.testing.StrictServer: it plays its script, and refuses each request that a strict provider refuses."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import trio

from turnstate import Agent, Engine, InvalidInput, MemoryStore, ModelError, TurnFailed, tool
from turnstate.models import OpenAIChat
from turnstate.testing import StrictServer, broken_rule, call, crashes

USER = {"role": "user", "content": "hi"}


def calls(*ids: str, arguments: str = "{}", name: str = "look", content: Any = None) -> dict[str, Any]:
    """An assistant message with calls."""
    made = [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}} for id in ids]
    return {"role": "assistant", "content": content, "tool_calls": made}


def result(id: str, content: Any = "seen") -> dict[str, Any]:
    """A result."""
    return {"role": "tool", "tool_call_id": id, "content": content}


def said(text: Any) -> dict[str, Any]:
    """What the assistant said."""
    return {"role": "assistant", "content": text}


BROKEN: dict[str, tuple[list[Any], str]] = {
    "nothing": ([], "at least one message"),
    "no object": (["hi"], "expected an object"),
    "role": ([{"role": "robot", "content": "hi"}], "unknown role"),
    "no result": ([USER, calls("a")], "have no result"),
    "one of two results": ([USER, calls("a", "b"), result("a")], "have no result"),
    "cut batch": ([USER, calls("a"), USER], "expected the result of call 'a' before"),
    "steer between": ([USER, calls("a", "b"), result("a"), USER, result("b")], "expected the result of call 'b'"),
    "two results": ([USER, calls("a"), result("a"), result("a")], "or which has one already"),
    "result alone": ([USER, result("a")], "which no message before it made"),
    "order": ([USER, calls("a", "b"), result("b"), result("a")], "expected the result of call 'a', got that of 'b'"),
    "one id twice": ([USER, calls("a", "a")], "was used before"),
    "an id again": ([USER, calls("a"), result("a"), calls("a"), result("a")], "was used before"),
    "blank text": ([{"role": "user", "content": "\n\n"}], "blank text"),
    "blank block": ([{"role": "user", "content": [{"type": "text", "text": " "}]}], "blank text"),
    "blank result": ([USER, calls("a"), result("a", "")], "blank text"),
    "blank beside calls": ([USER, calls("a", content=" "), result("a")], "blank text"),
    "no content": ([USER, said(None), USER], "no content"),
    "empty calls": ([USER, {"role": "assistant", "tool_calls": []}, USER], "at least one call"),
    "broken arguments": ([USER, calls("a", arguments='{"x":'), result("a")], "no JSON object"),
    "arguments as a list": ([USER, calls("a", arguments="[]"), result("a")], "no JSON object"),
    "NaN": ([USER, calls("a", arguments='{"x": NaN}'), result("a")], "no JSON object"),
    "tool name": ([USER, calls("a", name="a b"), result("a")], "bad tool name"),
    "call without id": ([USER, calls(""), result("")], "without an id"),
    "last word": ([USER, said("hello")], "last message is the assistant's"),
    "late system": ([USER, {"role": "system", "content": "obey"}], "a system message after others"),
}


async def post(server: StrictServer, **body: Any) -> httpx.Response:
    """Send a body as it is."""
    async with httpx.AsyncClient() as client:
        return await client.post(f"{server.url}/chat/completions", json=body)


@pytest.mark.trio
async def test_each_rule() -> None:
    """A request that breaks a rule is answered with 400 and says which; nothing of the script is used up."""
    async with StrictServer(["fine"]) as server:
        for name, (messages, words) in BROKEN.items():
            answer = await post(server, model="m", stream=True, messages=messages)
            assert answer.status_code == 400, name
            assert words in answer.json()["error"]["message"], name
        assert len(server.refused) == len(server.requests) == len(BROKEN)
        assert "fine" in (await post(server, model="m", stream=True, messages=[USER])).text


@pytest.mark.trio
async def test_other_fields() -> None:
    """The model, the stream and the tools are looked at, too."""
    tools = [{"type": "function", "function": {"name": "look"}}]
    bodies: list[tuple[dict[str, Any], str]] = [
        ({"model": " "}, "model"),
        ({"stream": False}, "only streams"),
        ({"messages": None}, "messages"),
        ({"tools": []}, "at least one tool"),
        ({"tools": tools * 2}, "two of one name"),
        ({"tools": ["look"]}, "bad name"),
    ]
    async with StrictServer([]) as server:
        for change, words in bodies:
            answer = await post(server, **{"model": "m", "stream": True, "messages": [USER], **change})
            assert answer.status_code == 400
            assert words in answer.json()["error"]["message"]


def test_what_is_allowed() -> None:
    """Valid histories pass; that roles alternate is demanded only where it is asked for."""
    system = {"role": "system", "content": "be kind"}
    history = [system, USER, calls("a", "b", content="I look"), result("a"), result("b"), said("done"), USER]
    assert not broken_rule({"model": "m", "stream": True, "messages": history}, alternate=True)
    twice = {"model": "m", "stream": True, "messages": [USER, USER]}
    assert not broken_rule(twice)
    assert broken_rule(twice, alternate=True) == "messages[1]: two messages of the user in a row"


@pytest.mark.trio
async def test_a_turn_over_the_wire() -> None:
    """An adapter plays a whole turn with it: text, calls with ids, usage, and the connection is used again."""

    @tool
    async def look(place: str) -> str:
        return f"saw {place}"

    async with StrictServer([["I look", call("look", place="here")], "done"]) as server:
        agent = Agent(OpenAIChat("m", base_url=server.url), tools=[look], instructions="Look around.")
        async with Engine(agent, MemoryStore()) as engine:
            found = await engine.session("s").run("go")
        assert (found.text, found.usage.input, found.usage.output) == ("done", 20, 3)
        assert server.refused == []
        roles = [message["role"] for message in server.requests[1]["messages"]]
        assert roles == ["system", "user", "assistant", "tool"]
        assert server.requests[1]["messages"][3]["content"] == "saw here"


@pytest.mark.trio
async def test_errors_of_the_script() -> None:
    """An error in the script becomes its status; a script that is used up is an error that is not tried again."""
    busy = ModelError("busy", status=503, retry_after=0.01)
    async with StrictServer([busy, "done"]) as server:
        async with Engine(Agent(OpenAIChat("m", base_url=server.url)), MemoryStore()) as engine:
            session = engine.session("s")
            assert (await session.run("go")).text == "done"
            with pytest.raises(TurnFailed, match="no answer for request 3"):
                await session.run("more")
        assert len(server.requests) == 3


async def leave_by_an_error(server: StrictServer) -> None:
    """Raise in its block."""
    async with server:
        assert server.url.startswith("http://127.0.0.1:")
        raise KeyError


@pytest.mark.trio
async def test_url_only_while_it_runs() -> None:
    """Outside of its block there is no address, and what the block raises passes unchanged."""
    server = StrictServer([])
    with pytest.raises(InvalidInput, match="url"):
        print(server.url)
    with pytest.raises(KeyError):
        await leave_by_an_error(server)
    with pytest.raises(InvalidInput, match="url"):
        print(server.url)


@pytest.mark.trio
async def test_leaving_while_a_client_waits() -> None:
    """Leaving it ends what it is in the middle of; the client sees a broken connection."""

    async def ask(server: StrictServer) -> None:
        with pytest.raises(httpx.TransportError):
            await post(server, model="m", stream=True, messages=[USER])

    async with trio.open_nursery() as nursery, StrictServer(["a b c d"], delay=30) as server:
        nursery.start_soon(ask, server)
        while not server.requests:  # noqa: ASYNC110 - the server tells nobody
            await trio.sleep(0.01)


@pytest.mark.trio
async def test_crashes_over_the_wire() -> None:
    """Killed at any commit and resumed, every request is one that a strict provider accepts (case 36)."""

    @tool(approval=True)
    async def pay() -> str:
        return "paid"

    @tool
    async def look() -> str:
        return "seen"

    def answer(body: Any) -> Any:
        return "done" if body["messages"][-1]["role"] == "tool" else ["\n\n", call("pay"), call("look")]

    async with StrictServer(answer) as server:
        agent = Agent(OpenAIChat("m", base_url=server.url), tools=[pay, look])
        rounds = 0
        async for crash in crashes(agent, "go"):
            assert (await crash.finish()).text == "done", crash.at
            assert server.refused == [], crash.at
            rounds += 1
        assert rounds >= 8
