"""Whole turns in every protocol against npm's aimock as it fails: errors, chaos, streams that break or dawdle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.servers.launch import AIMock
from tests.servers.protocols import Protocol, each_protocol
from turnstate import Agent, CallDelta, Engine, Event, Limits, MemoryStore, Replied, Retrying, TurnFailed, tool
from turnstate.models import Timeouts

pytestmark = pytest.mark.npm

PATIENCE = 60
"""Seconds that a test may take by the usual clock."""
QUICK_PATIENCE = 600
"""Seconds that a test may take by the quick clock."""
ANSWER = "one two three four five six seven eight nine ten"
GOOD: Mapping[str, Any] = {"match": {}, "response": {"content": ANSWER}, "chunkSize": 5}
"""An entry of a script that answers whatever is asked."""


@attrs.frozen
class Fault:
    """What is put into the entry that the first request meets, and the error that it is."""

    entry: Mapping[str, Any]
    kind: str
    status: int | None = None
    retry_after: float | None = None
    timeouts: Timeouts = attrs.field(factory=Timeouts)


def error(status: int, **more: Any) -> dict[str, Any]:
    """An answer with a status other than 200."""
    return {"response": {"error": {"message": "not today", "type": "some_error"}, "status": status, **more}}


FAULTS: Mapping[str, Fault] = {
    "429": Fault(error(429, retryAfter=2), "rate-limit", 429, retry_after=2),
    "500": Fault(error(500), "server", 500),
    "503": Fault(error(503), "overloaded", 503),
    "529": Fault(error(529), "overloaded", 529),
    "chaos-429": Fault({"chaos": {"rateLimitRate": 1}}, "rate-limit", 429, retry_after=1),
    "chaos-500": Fault({"chaos": {"dropRate": 1}}, "server", 500),
    "chaos-nonsense": Fault({"chaos": {"malformedRate": 1}}, "cut"),
    "chaos-hangup": Fault({"chaos": {"disconnectRate": 1}}, "connection"),
    "chaos-latency": Fault({"chaos": {"latencyMs": 20_000}}, "timeout", timeouts=Timeouts(first_byte=5)),
    "broken-after-chunks": Fault({"truncateAfterChunks": 4}, "connection"),
    "broken-after-ms": Fault({"disconnectAfterMs": 50, "latency": 20}, "connection"),
    "stalled": Fault({"streamingProfile": {"ttft": 0, "tps": 0.05}}, "timeout", timeouts=Timeouts(idle=5)),
}


def once(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry that only the first request meets."""
    return {**GOOD, **entry, "match": {"sequenceIndex": 0}}


@each_protocol
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_told_and_tried_again(
    aimock_server: AIMock, quick_clock: MockClock, protocol: Protocol, name: str
) -> None:
    """The turn tells what broke, asks again and completes; nothing of the broken attempt is in the answer."""
    fault = FAULTS[name]
    aimock_server.script(once(fault.entry), GOOD)
    events: list[Event] = []
    with trio.fail_after(QUICK_PATIENCE):
        agent = Agent(aimock_server.model(protocol, timeouts=fault.timeouts))
        async with Engine(agent, MemoryStore()) as engine, engine.session("s").turn("hello") as turn:
            async for event in turn:
                events.append(event)
            result = await turn.result()
    (retrying,) = [event for event in events if isinstance(event, Retrying)]
    assert (retrying.error.kind, retrying.error.status, retrying.error.retryable) == (fault.kind, fault.status, True)
    assert retrying.error.retry_after == fault.retry_after
    assert retrying.delay >= (fault.retry_after or 0.1)
    (replied,) = [event for event in events if isinstance(event, Replied)]
    assert replied.message.text == result.text == ANSWER
    assert (result.steps, result.attempts) == (1, 2)


@each_protocol
async def test_a_long_retry_after_fails_the_turn(aimock_server: AIMock, protocol: Protocol) -> None:
    """A server that wants to be left alone for minutes is; the error tells for how long."""
    aimock_server.script(once(error(429, retryAfter=300)), GOOD)
    with trio.fail_after(PATIENCE):
        async with Engine(Agent(aimock_server.model(protocol)), MemoryStore()) as engine:
            with pytest.raises(TurnFailed) as caught:
                await engine.session("s").run("hello")
    result = caught.value.result
    assert result.error is not None
    assert (result.error.kind, result.error.retry_after, result.attempts) == ("rate-limit", 300, 1)


@each_protocol
async def test_attempts_have_an_end(aimock_server: AIMock, quick_clock: MockClock, protocol: Protocol) -> None:
    """A server that always breaks fails the turn after as many attempts as allowed; the next turn works."""
    hangups = ({**GOOD, "match": {"sequenceIndex": number}, "chaos": {"disconnectRate": 1}} for number in range(3))
    aimock_server.script(*hangups, GOOD)
    agent = Agent(aimock_server.model(protocol), limits=Limits(attempts=3))
    with trio.fail_after(QUICK_PATIENCE):
        async with Engine(agent, MemoryStore()) as engine:
            with pytest.raises(TurnFailed) as caught:
                await engine.session("s").run("hello")
            asked = len(aimock_server.requests())
            following = await engine.session("s").run("are you there?")
    result = caught.value.result
    assert result.error is not None
    assert (result.outcome, result.error.kind, result.attempts, asked) == ("failed", "connection", 3, 3)
    assert following.text == ANSWER


@each_protocol
async def test_a_broken_stream_starts_no_call(
    aimock_server: AIMock, quick_clock: MockClock, protocol: Protocol
) -> None:
    """A call whose reply broke does not run; the call of the next attempt does, once."""
    amounts: list[int] = []

    @tool
    async def pay(amount: int, to: str) -> str:
        """Pay an amount."""
        amounts.append(amount)
        return "paid"

    call = {"name": "pay", "arguments": {"amount": 5, "to": "somebody with a long name"}}
    said = {"match": {"hasToolResult": False}, "response": {"content": "I pay.", "toolCalls": [call]}, "chunkSize": 5}
    # In the middle of the arguments, and in Gemini, which sends a call whole, before them.
    chunks = {"chat": 10, "responses": 18, "messages": 12, "gemini": 2}[protocol]
    once_said = {**said, "match": {"hasToolResult": False, "sequenceIndex": 0}}
    broken = {**once_said, "truncateAfterChunks": chunks, "latency": 10}
    aimock_server.script(broken, said, GOOD)
    events: list[Event] = []
    with trio.fail_after(QUICK_PATIENCE):
        agent = Agent(aimock_server.model(protocol), tools=[pay])
        async with Engine(agent, MemoryStore()) as engine, engine.session("s").turn("pay 5") as turn:
            async for event in turn:
                events.append(event)
            result = await turn.result()
    retried = next(place for place, event in enumerate(events) if isinstance(event, Retrying))
    told = "".join(event.arguments for event in events[:retried] if isinstance(event, CallDelta))
    whole = '{"amount":5,"to":"somebody with a long name"}'
    assert protocol == "gemini" or (whole.startswith(told) and "" != told != whole)
    assert amounts == [5]
    assert [(call.tool, call.status) for call in result.calls] == [("pay", "ok")]
    assert (result.text, result.steps, result.attempts) == (ANSWER, 2, 3)


@each_protocol
async def test_a_fault_in_the_middle_of_a_loop(
    aimock_server: AIMock, quick_clock: MockClock, protocol: Protocol
) -> None:
    """Where the request with a tool's result meets a fault, only the request is made again, not the call."""
    amounts: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay an amount."""
        amounts.append(amount)
        return "paid"

    calls = {"toolCalls": [{"name": "pay", "arguments": {"amount": 5}}]}
    aimock_server.script(
        {"match": {"hasToolResult": False}, "response": calls},
        {**GOOD, "match": {"hasToolResult": True, "sequenceIndex": 0}, "truncateAfterChunks": 3},
        {"match": {"hasToolResult": True, "sequenceIndex": 1}, **error(503)},
        GOOD,
    )
    with trio.fail_after(QUICK_PATIENCE):
        async with Engine(Agent(aimock_server.model(protocol), tools=[pay]), MemoryStore()) as engine:
            result = await engine.session("s").run("pay 5")
    assert (amounts, result.text, result.steps, result.attempts) == ([5], ANSWER, 2, 4)


@each_protocol
async def test_a_slow_stream_is_not_a_silent_one(aimock_server: AIMock, protocol: Protocol) -> None:
    """A reply may take longer than the limit for silence if something of it keeps coming, and what comes is told at once."""
    aimock_server.script({**GOOD, "streamingProfile": {"ttft": 0, "tps": 20}})
    pieces: list[str] = []
    with trio.fail_after(PATIENCE):
        agent = Agent(aimock_server.model(protocol, timeouts=Timeouts(idle=0.4)))
        async with Engine(agent, MemoryStore()) as engine, engine.session("s").turn("hello") as turn:
            began = trio.current_time()
            pieces = [piece async for piece in turn.text()]
            took = trio.current_time() - began
            result = await turn.result()
    assert "".join(pieces) == result.text == ANSWER
    assert result.attempts == 1
    assert len(pieces) > 1
    assert took > 0.4
