"""Agents as tools: what the parent reads of a child that does not complete, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.engine.helpers import GatedModel
from tests.engine.test_nested import (
    Clock,
    Stores,
    Till,
    above,
    child_of,
    read,
    saying,
    settled,
    stores,
    used,
)
from turnstate import (
    Agent,
    Engine,
    Limits,
    MemoryStore,
    ModelError,
    tool,
)
from turnstate.testing import call

__all__ = ["stores"]


@pytest.mark.trio
async def test_a_child_that_fails() -> None:
    """The parent's model reads what kind of failure the child had, not a server's words, and goes on."""
    inner = Agent[Any](saying(ModelError("no such model", kind="not-found")))
    agent = above(inner)
    async with Engine(agent, MemoryStore()) as engine:
        assert (await engine.session("s").run("go")).text == "thanks"
        assert await child_of(engine) == ("failed", False)
    assert read(agent) == ["the agent did not complete the task (failed): not-found"]


@pytest.mark.trio
async def test_a_child_that_reaches_a_limit() -> None:
    """The parent's model reads which limit the child reached; the parent's own limits count on."""

    @tool
    async def more() -> str:
        """More."""
        return "more"

    inner = Agent[Any](saying(*[call("more")] * 9), tools=[more], limits=Limits(steps=2))
    agent = above(inner)
    async with Engine(agent, MemoryStore()) as engine:
        result = await engine.session("s").run("go")
        assert (result.text, result.steps) == ("thanks", 2)
    assert read(agent) == [
        "the agent did not complete the task (limit): the turn reached its limit of 2 steps",
    ]


@pytest.mark.trio
async def test_a_child_that_is_interrupted(autojump_clock: Clock) -> None:
    """A child can be interrupted alone, through its session: the parent's model reads that, and goes on."""
    model = GatedModel("x")
    agent = above(Agent[Any](model))
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            assert await engine.session("s/m2.0").interrupt("not that")
            assert (await turn.result()).text == "thanks"
    assert read(agent) == ["the agent did not complete the task (interrupted): not that"]


@pytest.mark.trio
async def test_a_child_is_steered(autojump_clock: Clock) -> None:
    """A child can be steered through its session while it works."""
    model = GatedModel("x", rest="as you say")
    agent = above(Agent[Any](model))
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await engine.session("s/m2.0").steer("the other one")
            model.gate.open.set()
            await turn.result()
        assert [message.text for message in model.requests[1].messages] == ["pay Ann", "x", "the other one"]
    assert read(agent) == ["as you say"]


@pytest.mark.trio
async def test_a_message_behind_the_task(autojump_clock: Clock) -> None:
    """A message that waits in the child starts nothing any more once the call has its answer: nothing is left running."""
    model = GatedModel("x", rest="never read")
    agent = above(Agent[Any](model))
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await engine.session("s/m2.0").send("and then?")
            model.gate.open.set()
            await turn.result()
        assert not (await engine.session("s/m2.0").info()).unfinished
        assert await engine.delete("s")
    assert read(agent) == ["x"]


@pytest.mark.trio
async def test_usage_is_counted_once(stores: Stores) -> None:
    """What a child used is in the parent's turn once, by model, however often the call was begun."""
    till = Till()
    inner = till.agent([call("pay", to="Ann"), call("pay", to="Bob")], "done")
    inner.model.name = "small"
    deepest = above(inner)
    deepest.model.name = "middle"
    agent = above(deepest)
    async with Engine(agent, stores()) as engine:
        session = engine.session("s")
        first, second = (await session.run("go", check=False)).waiting
        await session.approve(first)
        await settled(session)
        await session.approve(second)
        result = await settled(session)
        assert result.usage == await used(engine, "s", "s/m2.0", "s/m2.0/m2.0")
        assert (await session.info()).usage == result.usage
        stored = await engine.store.load("s")
        assert stored is not None
        assert all(f'"{name}":{{' in stored.checkpoint.decode() for name in ("small", "middle", "scripted"))


@pytest.mark.trio
async def test_the_parents_time_limit(autojump_clock: Clock) -> None:
    """The time that a child works counts for the parent's limit; the time that it waits does not."""
    till = Till()

    @tool
    async def slow() -> str:
        await trio.sleep(20)
        return "slow"

    inner = till.agent(call("pay", to="Ann"), call("slow"), "done", tools=[slow])
    async with Engine(above(inner, limits=Limits(seconds=10)), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await trio.sleep(100)
        start = trio.current_time()
        await session.approve("m2.0/m2.0")
        assert (await settled(session)).outcome == "limit"
        assert trio.current_time() - start == pytest.approx(10, abs=0.1)
        assert await child_of(engine) == ("interrupted", False)


@pytest.mark.trio
async def test_the_parents_token_limit() -> None:
    """What a child used counts for the parent's limit once its call has its result."""
    agent = above(Agent[Any](saying("word " * 100)), limits=Limits(tokens=100))
    async with Engine(agent, MemoryStore()) as engine:
        result = await engine.session("s").run("go", check=False)
        assert (result.outcome, result.steps) == ("limit", 1)
        assert [made.status for made in result.calls] == ["ok"]
