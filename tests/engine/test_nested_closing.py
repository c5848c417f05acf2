"""Agents as tools: the engine is left while a child works or waits, and another one goes on."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import trio

from tests.engine.helpers import Gate, GatedModel, until_event
from tests.engine.test_nested import (
    HELP,
    Clock,
    Stores,
    Till,
    WatchedStore,
    above,
    left_clean,
    log,
    read,
    saying,
    settled,
    speech,
    stores,
)
from turnstate import (
    Agent,
    Call,
    CallSettled,
    CallStarted,
    Engine,
    MemoryStore,
    Middleware,
    Session,
    StoreError,
    TextDelta,
    ToolContext,
    tool,
)
from turnstate.models.base import Model
from turnstate.testing import ScriptedModel, call

__all__ = ["stores"]


async def cut_off(session: Session) -> None:
    """Wait for the result of a turn that the engine does not see to its end."""
    with pytest.raises(StoreError, match="the engine closed"):
        await session.run("go")


@pytest.mark.trio
@pytest.mark.parametrize("deep", [False, True])
async def test_while_it_streams(deep: bool, autojump_clock: Clock) -> None:
    """A request of a child does not hold up closing; the next engine asks its model again, and the turn completes."""
    model = GatedModel("x", rest="here it is")
    inner = Agent[Any](model)
    agent = above(above(inner, HELP, "he says") if deep else inner)
    store = WatchedStore()
    async with left_clean(store):
        async with trio.open_nursery() as nursery, Engine(agent, store) as engine:
            nursery.start_soon(cut_off, engine.session("s"))
            await model.gate.reached.wait()
            start = trio.current_time()
        assert trio.current_time() == start
        async with Engine(agent, store) as engine:
            assert (await settled(engine.session("s"))).text == "thanks"
            assert not (await engine.session("s/m2.0").info()).unfinished
    assert len(model.requests) == 2
    assert read(agent) == ["he says" if deep else "here it is"]


@pytest.mark.trio
@pytest.mark.parametrize("needs", [8, 100])
async def test_while_it_runs_a_tool(needs: float, autojump_clock: Clock) -> None:
    """A tool of a child has its grace: what it gives is kept, and what takes longer is unknown; it never runs again."""
    began: list[str] = []
    gate = Gate()

    @tool
    async def slow() -> str:
        began.append("slow")
        gate.reached.set()
        await trio.sleep(needs)
        return "slow"

    @tool(exclusive=True)
    async def after() -> str:
        began.append("after")
        return "after"

    inner = Agent[Any](saying([call("slow"), call("after")], "done"), tools=[slow, after])
    agent, store = above(inner), WatchedStore()
    async with left_clean(store):
        async with Engine(agent, store) as engine:
            await engine.session("s").send("go")
            await gate.reached.wait()
            start = trio.current_time()
        assert trio.current_time() - start == pytest.approx(min(needs, 10), abs=0.1)
        assert began == ["slow"]
        async with Engine(agent, store) as engine:
            assert (await settled(engine.session("s"))).text == "thanks"
            (first, _) = [event.call for event in await log(engine, "s/m2.0") if isinstance(event, CallSettled)]
    assert began == ["slow", "after"]
    assert first.status == ("ok" if needs == 8 else "unknown")
    assert read(agent) == ["done"]


@pytest.mark.trio
async def test_while_it_waits(stores: Stores) -> None:
    """A child that waits goes on in another engine, on another store object, with another agent object."""
    till = Till()
    async with Engine(above(till.agent()), stores()) as engine:
        await engine.session("s").run("go", check=False)
    async with Engine(above(till.agent()), stores()) as engine:
        session = engine.session("s")
        (waiting,) = (await settled(session)).waiting
        await session.approve(waiting)
        assert (await settled(session)).text == "thanks"
        starts = [event.call.id for event in await log(engine, "s") if isinstance(event, CallStarted)]
        assert starts == ["m2.0", "m2.0"]
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_as_the_call_begins(autojump_clock: Clock) -> None:
    """A call that comes to begin when its engine closes begins no child."""
    gate = Gate()

    class Slow(Middleware[Any]):
        async def around_call(self, ctx: ToolContext[Any], call: Call, run: Any) -> Any:
            await gate.wait()
            return await run()

    async def open_later() -> None:
        await trio.sleep(1)  # until the engine is about to be left
        gate.open.set()

    inner = Agent[Any](saying("done"))
    agent, store = above(inner, middleware=[Slow()]), WatchedStore()
    async with left_clean(store):
        async with trio.open_nursery() as nursery, Engine(agent, store) as engine:
            await engine.session("s").send("go")
            await gate.reached.wait()
            nursery.start_soon(open_later)
        assert isinstance(inner.model, ScriptedModel)
        assert not inner.model.requests
        async with Engine(agent, store) as engine:
            assert [info.id async for info in engine.sessions(children=True)] == ["s"]
            assert (await settled(engine.session("s"))).text == "thanks"


@pytest.mark.trio
async def test_functions_in_threads(caplog: pytest.LogCaptureFixture) -> None:
    """A function of a child that nobody can end is waited for when the outer engine is left, not after each call."""
    began, end = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        began.set()
        end.wait(20)
        return "slow"

    @tool
    def quick() -> str:
        return "quick"

    helper = Agent[Any](saying(call("quick"), "quick"), tools=[quick]).as_tool("helper", "Helps.")
    slower = Agent[Any](saying(call("slow"), "slow"), tools=[slow]).as_tool("slower", "Helps slowly.")
    agent = Agent[Any](saying([HELP, call("slower", task="x")], "thanks"), tools=[helper, slower])
    with caplog.at_level(logging.WARNING, "turnstate"):
        async with Engine(agent, MemoryStore()) as engine:
            session = engine.session("s")
            await session.send("go")
            assert (await until_event(session, CallSettled)).call.id == "m2.0"
            await trio.to_thread.run_sync(began.wait)
            assert engine.threads.running == ["slow (s/m2.1/m2.0)"]
            await session.interrupt()
            end.set()
        assert not engine.threads.running
    assert "still run in threads" not in caplog.text


@pytest.mark.trio
async def test_connections(autojump_clock: Clock) -> None:
    """The connections of the agents below are kept from call to call, and closed once, with the outer engine."""
    closed: list[str] = []

    class Connected(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(self.name)

    def connected(name: str, *lines: Any) -> Model:
        return Connected(speech(*lines), name=name)

    deepest = Agent[Any](connected("deepest", "done"))
    inner = Agent[Any](connected("inner", HELP, "done"), tools=[deepest.as_tool("helper", "Helps.")])
    tools = [inner.as_tool("helper", "Helps."), deepest.as_tool("other", "Helps, too.")]
    lines = [[HELP, HELP], [HELP, call("other", task="x")], "thanks"]
    async with Engine(Agent[Any](connected("top", *lines), tools=tools), MemoryStore()) as engine:
        await engine.session("s").run("go")
        assert not closed
    assert closed == ["top", "inner", "deepest"]


@pytest.mark.trio
async def test_nothing_is_held_between(autojump_clock: Clock) -> None:
    """A call that waits, or is done, holds no claim and no task below it; only the outer engine's owner is there."""
    till = Till()
    store = WatchedStore()
    async with left_clean(store), Engine(above(till.agent()), store) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        assert list(store.owners) == [engine.owner.id]
        assert await store.owner_of("s/m2.0") is None
        tasks = trio.lowlevel.current_statistics().tasks_living
        await session.approve("m2.0/m2.0")
        assert (await settled(session)).outcome == "completed"
        assert list(store.owners) == [engine.owner.id]
        assert trio.lowlevel.current_statistics().tasks_living <= tasks
        await trio.sleep(100)
        assert engine.sessions_driven == ()


@pytest.mark.trio
async def test_ctrl_c_in_a_childs_tool() -> None:
    """KeyboardInterrupt in a tool of a child ends the host, as in any tool; the child goes on another time."""
    stop = [True]

    @tool(on_crash="rerun")
    async def press() -> str:
        if stop:
            raise KeyboardInterrupt
        return "pressed"

    agent, store = above(Agent[Any](saying(call("press"), "done"), tools=[press])), WatchedStore()
    async with left_clean(store):
        with pytest.raises(KeyboardInterrupt):
            async with Engine(agent, store) as engine:
                await engine.session("s").run("go")
        stop.clear()
        async with Engine(agent, store) as engine:
            assert (await settled(engine.session("s"))).text == "thanks"


@pytest.mark.trio
async def test_the_host_is_cancelled(autojump_clock: Clock) -> None:
    """A host that is cancelled leaves the child as closing does, not interrupted: the next engine goes on."""
    model = GatedModel("x", rest="here it is")
    agent, store = above(Agent[Any](model)), WatchedStore()
    async with left_clean(store):
        with trio.CancelScope() as scope:
            async with Engine(agent, store) as engine, engine.session("s").turn("go"):
                await model.gate.reached.wait()
                scope.cancel()
                await trio.sleep_forever()
        async with Engine(agent, store) as engine:
            assert (await engine.session("s/m2.0").info()).state == "streaming"
            assert (await settled(engine.session("s"))).text == "thanks"
    assert read(agent) == ["here it is"]


@pytest.mark.trio
async def test_the_reader_leaves(autojump_clock: Clock) -> None:
    """Leaving the turn early detaches: the child works on in the engine."""
    model = GatedModel("x", rest="here it is")
    agent = above(Agent[Any](model))
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go"):
            await model.gate.reached.wait()
        model.gate.open.set()
        assert (await settled(session)).text == "thanks"
    assert read(agent) == ["x"]


@pytest.mark.trio
async def test_the_childs_text_is_its_own(autojump_clock: Clock) -> None:
    """The parent's stream has the parent's text only; who wants the child's follows the child."""
    agent = above(Agent[Any](saying("secret thoughts")))
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            told = [event.text async for event in turn if isinstance(event, TextDelta)]
    assert "".join(told) == "thanks"
