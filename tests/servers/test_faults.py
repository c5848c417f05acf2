"""Whole turns in every protocol against a server that breaks: cut streams, refusals, silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.depth import rotated
from tests.servers.launch import LLMock
from tests.servers.protocols import KEY, PROTOCOLS, Protocol, each_protocol
from turnstate import Agent, Engine, Event, Limits, MemoryStore, Replied, Retrying, TurnFailed, tool
from turnstate.models import Timeouts

PATIENCE = 60
"""Seconds that a test may take by the usual clock."""
QUICK_PATIENCE = 600
"""Seconds that a test may take by the quick clock."""
ANSWER = {"type": "reply", "text": "one two three four five six", "times": None}
TRUNCATE = {"type": "stream_fault", "kind": "truncate", "after_chunks": 3}
DISCONNECT = {"type": "stream_fault", "kind": "disconnect", "after_chunks": 3}


@attrs.frozen
class Fault:
    """What the server does, and the error that it is."""

    behavior: Mapping[str, Any]
    kind: str
    timeouts: Timeouts = attrs.field(factory=Timeouts)


FAULTS: Mapping[str, Fault] = {
    "disconnect": Fault(DISCONNECT, "connection"),
    "truncate": Fault(TRUNCATE, "cut"),
    "malformed": Fault({"type": "stream_fault", "kind": "malformed", "after_chunks": 3}, "protocol"),
    "stall": Fault(
        {"type": "stream_fault", "kind": "stall", "after_chunks": 3, "stall_seconds": 20}, "timeout", Timeouts(idle=5)
    ),
    "silence": Fault({"type": "delay", "seconds": 20}, "timeout", Timeouts(first_byte=5)),
    "429": Fault({"type": "fail", "status": 429, "retry_after": 2}, "rate-limit"),
    "500": Fault({"type": "fail", "status": 500}, "server"),
    "503": Fault({"type": "fail", "status": 503, "retry_after": 3}, "overloaded"),
    "529": Fault({"type": "fail", "status": 529, "retry_after": 0.1}, "overloaded"),
}
REFUSALS = {401: "authentication", 403: "permission", 404: "not-found", 400: "invalid-request"}


@pytest.mark.parametrize(("name", "protocol"), rotated(FAULTS, PROTOCOLS))
async def test_a_fault_is_told_and_tried_again(
    llmock_server: LLMock, quick_clock: MockClock, protocol: Protocol, name: str
) -> None:
    """The turn tells what broke, asks again and completes; nothing of the broken attempt is in the answer."""
    fault = FAULTS[name]
    llmock_server.script(ANSWER, fault.behavior)
    events: list[Event] = []
    with trio.fail_after(QUICK_PATIENCE):
        agent = Agent(llmock_server.model(protocol, timeouts=fault.timeouts))
        async with Engine(agent, MemoryStore()) as engine, engine.session("s").turn("hello") as turn:
            async for event in turn:
                events.append(event)
            result = await turn.result()
    (retrying,) = [event for event in events if isinstance(event, Retrying)]
    error = retrying.error
    assert (error.kind, error.status, error.retryable) == (fault.kind, fault.behavior.get("status"), True)
    assert error.retry_after == fault.behavior.get("retry_after")
    assert retrying.delay >= (error.retry_after or 0)
    (replied,) = [event for event in events if isinstance(event, Replied)]
    assert replied.message.text == result.text == ANSWER["text"]
    assert (result.steps, result.attempts) == (1, 2)


@pytest.mark.parametrize(("status", "protocol"), rotated(REFUSALS, PROTOCOLS))
async def test_a_refusal_fails_the_turn_at_once(llmock_server: LLMock, protocol: Protocol, status: int) -> None:
    """What no other attempt would mend is one line that does not hold the key; the next turn may go on."""
    llmock_server.script(ANSWER, {"type": "fail", "status": status})
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(llmock_server.model(protocol)), MemoryStore()) as engine:
            with pytest.raises(TurnFailed, match=str(status)) as caught:
                await engine.session("s").run("hello")
            following = await engine.session("s").run("hello?")
    result = caught.value.result
    assert result.error is not None
    assert (result.attempts, result.error.kind, result.error.status) == (1, REFUSALS[status], status)
    assert KEY not in repr(caught.value)
    assert following.text == ANSWER["text"]


@pytest.mark.deep
async def test_the_server_has_nothing_to_say_against_its_clients(llmock_server: LLMock) -> None:
    """Retry-After is kept, delays grow, and a cut stream is not taken for an answer: so the server judges."""
    for protocol in PROTOCOLS:
        faults = ({"type": "fail", "status": 429, "retry_after": 1}, TRUNCATE, DISCONNECT, ANSWER)
        llmock_server.script(*({**fault, "match": {"model": protocol}} for fault in faults))

    async def ask(protocol: Protocol) -> None:
        async with Engine(Agent(llmock_server.model(protocol)), MemoryStore()) as engine:
            began = trio.current_time()
            result = await engine.session("s").run("hello")
            assert (result.text, result.attempts) == (ANSWER["text"], 4)
            assert trio.current_time() - began >= 1

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for protocol in PROTOCOLS:
                nursery.start_soon(ask, protocol)
    assert len(llmock_server.requests()) == 4 * len(PROTOCOLS)
    assert llmock_server.findings() == []


@each_protocol
async def test_attempts_have_an_end(llmock_server: LLMock, quick_clock: MockClock, protocol: Protocol) -> None:
    """A server that always breaks fails the turn; the error says how."""
    llmock_server.script(ANSWER, {**TRUNCATE, "times": None})
    agent = Agent(llmock_server.model(protocol), limits=Limits(attempts=2))
    with trio.fail_after(QUICK_PATIENCE):
        async with Engine(agent, MemoryStore()) as engine:
            with pytest.raises(TurnFailed) as caught:
                await engine.session("s").run("hello")
    result = caught.value.result
    assert (result.outcome, result.attempts) == ("failed", 2)
    assert result.error is not None
    assert result.error.kind == "cut"


@each_protocol
async def test_a_cut_stream_starts_no_call(llmock_server: LLMock, quick_clock: MockClock, protocol: Protocol) -> None:
    """A call whose reply was cut does not run; the call of the next attempt does, once."""
    amounts: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay an amount."""
        amounts.append(amount)
        return "paid"

    call = {"name": "pay", "arguments": {"amount": 5}}
    # In the middle of the call; Gemini sends a call whole and at once, so only before it.
    cut = {**TRUNCATE, "after_chunks": {"chat": 3, "responses": 4, "messages": 3, "gemini": 0}[protocol]}
    llmock_server.script({"type": "reply", "tool_calls": [call], "times": 2}, cut, ANSWER)
    with trio.fail_after(QUICK_PATIENCE):
        async with Engine(Agent(llmock_server.model(protocol), tools=[pay]), MemoryStore()) as engine:
            result = await engine.session("s").run("pay 5")
    assert amounts == [5]
    assert [(call.tool, call.status) for call in result.calls] == [("pay", "ok")]
    assert result.text == ANSWER["text"]
    assert (result.steps, result.attempts) == (2, 3)


@each_protocol
@pytest.mark.parametrize("fault", ["malformed_arguments", "unknown_tool"])
async def test_a_bad_call_is_told_to_the_model(llmock_server: LLMock, protocol: Protocol, fault: str) -> None:
    """A call that cannot run is an error that the model can act on, and the turn completes."""

    @tool
    async def pay(amount: int) -> str:
        """Pay an amount."""
        raise AssertionError("it must not run")

    llmock_server.script({"type": "tool_fault", "kind": fault})
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(llmock_server.model(protocol), tools=[pay]), MemoryStore()) as engine:
            result = await engine.session("s").run("pay 5")
            messages = await engine.session("s").messages()
    assert (result.outcome, [call.status for call in result.calls]) == ("completed", ["error"])
    # In Gemini arguments are no text that could be cut off: there they are empty.
    cut = "bad arguments for pay" if protocol == "gemini" else "cut off"
    assert {"malformed_arguments": cut, "unknown_tool": "unknown tool llmock_unknown_tool"}[fault] in messages[2].text
