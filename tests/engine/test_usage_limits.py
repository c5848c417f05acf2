"""Limits of what the model tells of itself: tokens and cost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.helpers import engine_of, events_of
from turnstate import Agent, InvalidInput, Limits, Middleware, Reply, Session, TurnEnded, Usage, Warned
from turnstate.models import Anthropic, Fallback, Gemini, OpenAIChat
from turnstate.states import Text, ToolCall


def never() -> list[Any]:
    """Models that never tell a cost."""
    chat = OpenAIChat("any", base_url="http://localhost:1/v1", api_key="k")
    return [Anthropic("any", api_key="k"), Gemini("any", api_key="k"), Fallback(chat, Anthropic("any", api_key="k"))]


@pytest.mark.parametrize("place", range(3))
def test_a_limit_of_cost_that_cannot_hold_is_refused(place: int) -> None:
    """Limits(cost=) with a model that never tells a cost is refused, unless a middleware may count it."""
    model = never()[place]
    with pytest.raises(InvalidInput, match=r"^limits: cost .*tokens"):
        Agent(model, limits=Limits(cost=1))
    assert Agent(model, middleware=[Middleware[Any]()], limits=Limits(cost=1)).limits.cost == 1
    assert Agent(model, limits=Limits(tokens=1)).limits.tokens == 1


def test_a_limit_of_cost_that_may_hold_is_taken() -> None:
    """A model that may tell its costs is taken."""
    assert Agent(OpenAIChat("any", base_url="http://localhost:1/v1"), limits=Limits(cost=1)).limits.cost == 1


async def warnings(session: Session) -> list[str]:
    """What people were told in a session."""
    events = await events_of(session, until=lambda event: isinstance(event, TurnEnded))
    return [event.text for event in events if isinstance(event, Warned)]


@pytest.mark.trio
@pytest.mark.parametrize(
    ("usage", "unknown"),
    [
        (Usage(), ["tokens", "cost"]),
        (Usage(input=1), ["cost"]),
        (Usage(cost=0.1), ["tokens"]),
        (Usage(1, 1, cost=0.1), []),
    ],
    ids=range(4),
)
async def test_a_limit_that_holds_nothing_back_is_told(usage: Usage, unknown: list[str]) -> None:
    """Once a turn, people are told of each limit for which the model tells nothing."""

    def it() -> str:
        return ""

    replies = [Reply((ToolCall("", "it", "{}"),), "tool-calls", usage=usage), Reply((Text("done"),), usage=usage)]
    async with engine_of(*replies, tools=[it], limits=Limits(tokens=100, cost=100)) as engine:
        session = engine.session("s")
        await session.run("go")
        found = await warnings(session)
        assert [text.split()[3] for text in found] == unknown


@pytest.mark.trio
async def test_a_limit_of_tokens_is_looked_at_before_a_request() -> None:
    """The request that goes over the limit is made and counts; the turn ends before the next one."""

    def it() -> str:
        return ""

    replies = [Reply((ToolCall("", "it", "{}"),), "tool-calls", usage=Usage(900, 100)), "never said"]
    async with engine_of(*replies, tools=[it], limits=Limits(tokens=10)) as engine:
        result = await engine.session("s").run("go", check=False)
        assert (result.outcome, result.usage.total, result.steps) == ("limit", 1000, 1)
