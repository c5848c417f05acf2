"""Whole turns against a server that breaks: cut streams, refusals, silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from tests.servers.launch import LLMock
from turnstate import Agent, Engine, Event, Limits, MemoryStore, Replied, Retrying, TurnFailed, tool
from turnstate.models import OpenAIChat
from turnstate.models.http import Timeouts

PATIENCE = 60
ANSWER = {"type": "reply", "text": "one two three four five six", "times": None}
DISCONNECT = {"type": "stream_fault", "kind": "disconnect", "after_chunks": 3}
TRUNCATE = {"type": "stream_fault", "kind": "truncate", "after_chunks": 3}
MALFORMED = {"type": "stream_fault", "kind": "malformed", "after_chunks": 3}
STALL = {"type": "stream_fault", "kind": "stall", "after_chunks": 3, "stall_seconds": 20}
RATE_LIMIT = {"type": "fail", "status": 429, "retry_after": 1}
OVERLOADED = {"type": "fail", "status": 529, "retry_after": 0.1}


def chat(server: LLMock) -> OpenAIChat:
    """The adapter for the server, with little patience."""
    return OpenAIChat("m", base_url=server.base_url, api_key="sk-a-secret", timeouts=Timeouts(idle=0.5))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (DISCONNECT, "connection"),
        (TRUNCATE, "cut"),
        (MALFORMED, "protocol"),
        (STALL, "timeout"),
        (RATE_LIMIT, "rate-limit"),
        (OVERLOADED, "overloaded"),
    ],
    ids=["disconnect", "truncate", "malformed", "stall", "429", "529"],
)
async def test_a_fault_is_told_and_tried_again(llmock_server: LLMock, fault: Mapping[str, Any], kind: str) -> None:
    """The turn tells what broke, asks again and completes; nothing of the broken attempt is in the answer."""
    llmock_server.script(ANSWER, fault)
    events: list[Event] = []
    with trio.fail_after(PATIENCE):
        agent = Agent(chat(llmock_server))
        async with Engine(agent, MemoryStore()) as engine, engine.session("s").turn("hello") as turn:
            async for event in turn:
                events.append(event)
            result = await turn.result()
    (retrying,) = [event for event in events if isinstance(event, Retrying)]
    assert retrying.error.kind == kind
    (replied,) = [event for event in events if isinstance(event, Replied)]
    assert replied.message.text == result.text == ANSWER["text"]
    assert (result.steps, result.attempts) == (1, 2)


async def test_retry_after_is_kept(llmock_server: LLMock) -> None:
    """The next attempt does not come before the time that the server asked for."""
    llmock_server.script(ANSWER, RATE_LIMIT)
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(chat(llmock_server)), MemoryStore()) as engine:
            began = trio.current_time()
            await engine.session("s").run("hello")
            took = trio.current_time() - began
    assert took >= 1


async def test_attempts_have_an_end(llmock_server: LLMock) -> None:
    """A server that always breaks fails the turn; the error says how."""
    llmock_server.script(ANSWER, {**TRUNCATE, "times": None})
    agent = Agent(chat(llmock_server), limits=Limits(attempts=2))
    with trio.fail_after(PATIENCE):
        async with Engine(agent, MemoryStore()) as engine:
            with pytest.raises(TurnFailed) as caught:
                await engine.session("s").run("hello")
    result = caught.value.result
    assert (result.outcome, result.attempts) == ("failed", 2)
    assert result.error is not None
    assert result.error.kind == "cut"


async def test_a_cut_stream_starts_no_call(llmock_server: LLMock) -> None:
    """A call whose reply was cut does not run; the call of the next attempt does, once."""
    amounts: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay an amount."""
        amounts.append(amount)
        return "paid"

    call = {"name": "pay", "arguments": {"amount": 5}}
    llmock_server.script({"type": "reply", "tool_calls": [call], "times": 2}, TRUNCATE, ANSWER)
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(chat(llmock_server), tools=[pay]), MemoryStore()) as engine:
            result = await engine.session("s").run("pay 5")
    assert amounts == [5]
    assert [(call.tool, call.status) for call in result.calls] == [("pay", "ok")]
    assert result.text == ANSWER["text"]


@pytest.mark.parametrize(
    ("fault", "text"),
    [("malformed_arguments", "cut off"), ("unknown_tool", "unknown tool llmock_unknown_tool")],
)
async def test_a_bad_call_is_told_to_the_model(llmock_server: LLMock, fault: str, text: str) -> None:
    """A call that cannot run is an error that the model can act on, and the turn completes."""

    @tool
    async def pay(amount: int) -> str:
        """Pay an amount."""
        raise AssertionError("it must not run")

    llmock_server.script({"type": "tool_fault", "kind": fault})
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(chat(llmock_server), tools=[pay]), MemoryStore()) as engine:
            result = await engine.session("s").run("pay 5")
            messages = await engine.session("s").messages()
    assert (result.outcome, [call.status for call in result.calls]) == ("completed", ["error"])
    assert text in messages[2].text


async def test_a_key_that_is_refused(llmock_server: LLMock) -> None:
    """The turn fails at once, with one line that does not hold the key."""
    llmock_server.script({"type": "fail", "status": 401})
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(chat(llmock_server)), MemoryStore()) as engine:
            with pytest.raises(TurnFailed, match="401") as caught:
                await engine.session("s").run("hello")
    assert caught.value.result.attempts == 1
    assert "sk-a-secret" not in repr(caught.value)
