"""Agents as tools: the options of the tool, middleware around its calls, and what its own tools are given."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.engine.test_nested import HELP, Till, above, log, read, saying, settled
from turnstate import (
    Agent,
    Call,
    CallProgress,
    Engine,
    InvalidInput,
    MemoryStore,
    Middleware,
    ToolContext,
    tool,
)
from turnstate.testing import ScriptedModel, call


@pytest.mark.trio
async def test_the_call_itself_needs_approval() -> None:
    """An agent that needs approval is asked about first; what it asks then comes after."""
    till = Till()
    inner = till.agent()
    model = saying(HELP, "thanks")
    agent = Agent[Any](model, tools=[inner.as_tool("helper", "Helps.", approval=True)])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        (first,) = (await session.run("go", check=False)).waiting
        assert (first.id, first.tool, first.arguments) == ("m2.0", "helper", {"task": "pay Ann"})
        await session.approve(first, arguments={"task": "pay Bob"})
        (second,) = (await settled(session)).waiting
        assert second.id == "m2.0/m2.0"
        await session.approve(second)
        assert (await settled(session)).outcome == "completed"
        assert (await engine.session("s/m2.0").messages())[0].text == "pay Bob"
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_an_agent_that_is_a_barrier() -> None:
    """With ``exclusive=True`` nothing behind it starts while it waits."""
    till, ran = Till(), list[str]()

    @tool
    async def after() -> str:
        ran.append("after")
        return "after"

    helper = till.agent().as_tool("helper", "Helps.", exclusive=True)
    agent = Agent[Any](saying([HELP, call("after")], "thanks"), tools=[helper, after])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        assert not ran
        await session.approve("m2.0/m2.0")
        assert (await settled(session)).outcome == "completed"
    assert ran == ["after"]


@pytest.mark.trio
async def test_middleware_around_the_call() -> None:
    """What middleware does about exceptions of tools leaves a call that waits alone, also out of a nursery of its own."""
    seen: list[str] = []

    class Careful(Middleware[Any]):
        async def around_call(self, ctx: ToolContext[Any], call: Call, run: Any) -> Any:
            found: list[Any] = []
            try:
                async with trio.open_nursery():
                    found.append(await run())
            except Exception as error:
                seen.append(repr(error))
                return "it failed"
            return found[0]

    till = Till()
    agent = above(till.agent(), middleware=[Careful()])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.approve("m2.0/m2.0")
        assert (await settled(session)).outcome == "completed"
    assert not seen
    assert read(agent) == ["all paid"]


@pytest.mark.trio
async def test_deps_and_progress_of_inner_tools() -> None:
    """A child's tools get the deps of the agent above, also two sessions below, and after an answer."""
    seen: list[tuple[str, str]] = []

    @tool(approval=True)
    async def note(ctx: ToolContext[str]) -> str:
        seen.append((ctx.deps, ctx.session_id))
        ctx.progress("half way")
        return "noted"

    inner = Agent[str](saying(call("note"), "done"), tools=[note])
    agent = above(above(inner))
    async with Engine(agent, MemoryStore(), deps=lambda info: f"deps of {info.id}") as engine:
        session = engine.session("s")
        (waiting,) = (await session.run("go", check=False)).waiting
        await session.approve(waiting)
        assert (await settled(session)).outcome == "completed"
        assert not [event for event in await log(engine, "s/m2.0/m2.0") if isinstance(event, CallProgress)]
    assert seen == [("deps of s", "s/m2.0/m2.0")]


@pytest.mark.trio
async def test_no_task() -> None:
    """A task that is no text is an error that the model reads; no child begins."""
    agent = above(Agent[Any](saying("never")), [call("helper", task=""), call("helper", job="x")], "thanks")
    async with Engine(agent, MemoryStore()) as engine:
        assert (await engine.session("s").run("go")).text == "thanks"
        assert [info.id async for info in engine.sessions(children=True)] == ["s"]
    first, second = read(agent)
    assert "text" in first
    assert "bad arguments for helper" in second


@pytest.mark.trio
async def test_an_agent_without_an_engine() -> None:
    """The tool cannot be called by hand."""
    helper = Agent[Any](ScriptedModel([])).as_tool("helper", "Helps.")
    context: ToolContext[Any] = ToolContext(None, session_id="s", turn_id="t1", call_id="m2.0", tool="helper")
    with pytest.raises(InvalidInput, match="by an engine only"):
        await helper("x", context)
    assert helper.description == "Helps."
    assert helper.parameters["properties"].keys() == {"task"}
