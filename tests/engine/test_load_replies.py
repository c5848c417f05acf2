"""Replies without measure: given up at the limit, in every protocol and from any model, while other sessions go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.bench.hostile_replies import PROTOCOLS, many_calls, whole_calls
from tests.engine.helpers import engine_of
from turnstate import (
    Agent,
    CallProposed,
    Engine,
    Limits,
    MemoryStore,
    Model,
    ModelError,
    ModelRequest,
    Reply,
    Result,
    tool,
)
from turnstate.models import Anthropic, Fallback, Gemini, OnDelta, OpenAIChat, OpenAIResponses
from turnstate.states import Part, Text, ToolCall, Usage
from turnstate.testing.byte_server import head, serving

MODELS: dict[str, Callable[..., Model]] = dict(
    zip(PROTOCOLS, (OpenAIChat, Anthropic, OpenAIResponses, Gemini), strict=True)
)
REASON = "the reply has more than 128 calls, the limit (Limits.calls)"


@tool
async def work(n: int = 0) -> str:
    """Do some work."""
    raise AssertionError("a call of a reply beyond the limit ran")


class Talks(Model):
    """Tells pieces as fast as it can, and counts them; it may go on whatever it is told."""

    name = "talks"

    def __init__(self, kind: Any, text: str, *, deaf: bool = False, pause: bool = True) -> None:
        self.kind, self.text, self.deaf, self.pause = kind, text, deaf, pause
        self.told = 0

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        for number in range(10_000):
            try:
                on_delta(self.kind, self.text, number)
                self.told += 1
            except ModelError:
                if not self.deaf:
                    raise RuntimeError("the adapter makes something else of it") from None
            if self.pause:
                await trio.lowlevel.checkpoint()
        return Reply((Text("done"),), usage=Usage(1, 2))


class Returns(Model):
    """Gives a whole reply of which it told nothing."""

    name = "returns"

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        return self.reply


def as_it_is(model: Model) -> Model:
    """The model itself."""
    return model


DEFAULT = Limits()


async def ended(model: Model, limits: Limits = DEFAULT) -> tuple[Result[str], list[Part]]:
    """How a turn ended, and the parts that are stored of its replies; another session's turn ran meanwhile."""
    async with Engine(Agent(model, tools=[work], limits=limits), MemoryStore()) as engine:
        session = engine.session("s")
        with trio.fail_after(30):
            result = await session.run("go", check=False)
        proposed = 0
        async with session.events() as events:
            while type(event := await anext(events)).__name__ != "TurnEnded":
                proposed += isinstance(event, CallProposed)
        assert proposed == len(result.calls)
        return result, [part for message in result.messages if message.role != "user" for part in message.parts]


@pytest.mark.trio
@pytest.mark.parametrize("reply", [many_calls, whole_calls], ids=["streamed", "whole"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_ten_thousand_calls_over_http(protocol: str, reply: Callable[..., Any]) -> None:
    """A reply of 10,000 calls ends the turn at the limit; none of them is stored."""
    async with serving([head(), *reply(protocol, 10_000)]) as server:
        result, parts = await ended(MODELS[protocol]("m", base_url=server.url, api_key="k"))
    assert (result.outcome, result.reason, parts) == ("limit", REASON, [])


@pytest.mark.trio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_so_many_calls_as_the_limit_says(protocol: str) -> None:
    """A reply with just so many calls is taken, in every protocol."""
    async with serving([head(), *many_calls(protocol, 3)]) as server:
        model = MODELS[protocol]("m", base_url=server.url, api_key="k")
        result, parts = await ended(model, Limits(calls=3, steps=1))
    assert len([part for part in parts if isinstance(part, ToolCall)]) == 3
    assert result.reason == "the turn reached its limit of 1 steps"


@pytest.mark.trio
@pytest.mark.parametrize("count", [129, 10_000])
async def test_ten_thousand_calls_in_process(count: int) -> None:
    """A model that returns them without having told any is held to the limit as well; its text is kept, its usage counted."""
    reply = Reply((Text("I will"), *[ToolCall("", "work", "{}")] * count), "tool-calls", usage=Usage(3, 4))
    result, parts = await ended(Returns(reply))
    assert (result.outcome, result.reason, parts) == ("limit", REASON, [Text("I will")])
    assert result.usage == Usage(3, 4)


@pytest.mark.trio
@pytest.mark.parametrize("wrap", [as_it_is, Fallback])
@pytest.mark.parametrize("deaf", [False, True])
async def test_an_attempt_ends_at_the_limit(deaf: bool, wrap: Callable[[Model], Model]) -> None:
    """No piece beyond the limit is told, whatever the adapter makes of the error, and the turn ends by the limit."""
    model = Talks("call", "work", deaf=deaf)
    result, _ = await ended(wrap(model))
    assert (result.outcome, result.reason, model.told) == ("limit", REASON, 128)
    model = Talks("text", "12345", deaf=deaf)
    result, parts = await ended(wrap(model), Limits(characters=17))
    assert (result.outcome, model.told) == ("limit", 3)
    assert result.reason == "the reply has more than 17 characters, the limit (Limits.characters)"
    assert parts == [Text("123451234512345")]


@pytest.mark.trio
async def test_a_turn_that_ended_at_the_limit_can_go_on() -> None:
    """It is resumed like any that reached a limit; what was dropped is in no request."""
    async with engine_of(
        Reply(tuple([ToolCall("", "work", "{}")] * 200), "tool-calls"), "done", tools=[work]
    ) as engine:
        session = engine.session("s")
        assert (await session.run("go", check=False)).outcome == "limit"
        async with session.resume() as turn:
            assert (await turn.result()).text == "done"
