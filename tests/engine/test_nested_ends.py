"""Agents as tools: how a child ends with the call above it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from tests.engine.helpers import Gate, GatedModel, until_event
from tests.engine.test_nested import (
    HELP,
    Clock,
    Stores,
    Till,
    above,
    child_of,
    log,
    read,
    saying,
    settled,
    stores,
    used,
)
from turnstate import (
    Agent,
    CallSettled,
    Engine,
    MemoryStore,
    Middleware,
    Reply,
    TurnContext,
    TurnEnded,
    TurnStarted,
    Usage,
    tool,
)
from turnstate.states import Text
from turnstate.testing import FaultyStore, call

__all__ = ["stores"]
UNKNOWN = "execution interrupted; result unknown: "


@pytest.mark.trio
async def test_interrupt_while_it_streams(autojump_clock: Clock) -> None:
    """The child's request is ended with the parent's turn; what it said so far is kept, and its usage counted."""
    model = GatedModel("so far ", "so good")
    agent = above(Agent[Any](model), HELP, "thanks")
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        await session.send("go")
        await model.gate.reached.wait()
        start = trio.current_time()
        assert await session.interrupt("enough")
        end = await until_event(session, TurnEnded)
        assert (end.outcome, end.reason) == ("interrupted", "enough")
        assert trio.current_time() == start
        assert await child_of(engine) == ("interrupted", False)
        messages = await engine.session("s/m2.0").messages()
        assert [(message.text, message.status) for message in messages[1:]] == [("so far so good", "incomplete")]
        (settling,) = [event for event in await log(engine, "s") if isinstance(event, CallSettled)]
        assert (settling.call.status, settling.call.reason) == ("unknown", "enough")
        assert not model.gate.open.is_set()


@pytest.mark.trio
@pytest.mark.parametrize("stubborn", [False, True])
async def test_interrupt_while_it_runs_a_tool(
    stubborn: bool, autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The child's tool is cancelled and its turn interrupted; a tool that does not end is left alone, and nothing hangs."""
    gate, cut = Gate(), list[str]()

    @tool
    async def slow() -> str:
        gate.reached.set()
        try:
            with trio.CancelScope(shield=stubborn):
                await trio.sleep(100)
        except trio.Cancelled:
            cut.append("slow")
            raise
        return "slow"

    inner = Agent[Any](saying(call("slow"), "done"), tools=[slow])
    with caplog.at_level(logging.WARNING, "turnstate"):
        async with Engine(above(inner, HELP, "thanks"), MemoryStore()) as engine:
            session = engine.session("s")
            await session.send("go")
            await gate.reached.wait()
            start = trio.current_time()
            await session.interrupt()
            await until_event(session, TurnEnded)
            assert trio.current_time() - start == pytest.approx(5 if stubborn else 0, abs=0.1)
            if not stubborn:
                assert await child_of(engine) == ("interrupted", False)
    assert cut == ([] if stubborn else ["slow"])
    async with Engine(above(inner), engine.store) as engine:
        assert await child_of(engine) == ("interrupted", False)
        (settling,) = [event for event in await log(engine, "s/m2.0") if isinstance(event, CallSettled)]
        assert settling.call.status == "unknown"


@pytest.mark.trio
async def test_interrupt_while_it_waits(stores: Stores) -> None:
    """A child that waits for a person ends with the parent's turn, and nothing can be answered any more."""
    till = Till()
    async with Engine(above(till.agent(), HELP, "thanks"), stores()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.interrupt("enough")
        assert (await session.info()).outcome == "interrupted"
        assert await child_of(engine) == ("interrupted", False)
        child = await log(engine, "s/m2.0")
        assert isinstance(child[-1], TurnEnded)
        assert child[-1].reason == "the call above it was ended"
        assert (await session.run("and now?")).text == "thanks"
    assert not till.paid


@pytest.mark.trio
async def test_interrupt_two_deep() -> None:
    """An interrupt at the top ends what waits two sessions below, and what runs there."""
    till, gate = Till(), Gate()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    waits = above(till.agent())
    works = above(Agent[Any](saying(call("slow"), "done"), tools=[slow]))
    for inner in (waits, works):
        async with Engine(above(inner), MemoryStore()) as engine:
            session = engine.session("s")
            await session.send("go")
            if inner is waits:
                await settled(session)
            else:
                await gate.reached.wait()
            await session.interrupt()
            await until_event(session, TurnEnded)
            assert await child_of(engine) == ("interrupted", False)
            assert await child_of(engine, "s/m2.0/m2.0") == ("interrupted", False)


@pytest.mark.trio
async def test_a_child_that_completes_in_the_instant(autojump_clock: Clock) -> None:
    """An answer that the child gives although it was told to end is known, and so it is kept."""

    class Stubborn(GatedModel):
        async def respond(self, request: Any, on_delta: Any) -> Reply:
            self.gate.reached.set()
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            return Reply((Text("here it is"),), usage=Usage(3, 4))

    model = Stubborn()
    async with Engine(above(Agent[Any](model)), MemoryStore()) as engine:
        session = engine.session("s")
        await session.send("go")
        await model.gate.reached.wait()
        await session.interrupt()
        end = await until_event(session, TurnEnded)
        assert end.outcome == "interrupted"
        (settling,) = [event for event in await log(engine, "s") if isinstance(event, CallSettled)]
        assert (settling.call.status, settling.message.text) == ("ok", "here it is")
        assert await child_of(engine) == ("completed", False)
        assert end.usage.output == 9


@pytest.mark.trio
@pytest.mark.parametrize("way", ["supersede", "edit", "regenerate"])
async def test_something_else_is_said(way: str, stores: Stores) -> None:
    """A new message in the place of a turn whose child waits ends both, and starts the next turn."""
    till = Till()
    agent = above(till.agent(), HELP, "something else")
    async with Engine(agent, stores()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        (first, *_) = await session.messages()
        if way == "supersede":
            await session.send("do something else", delivery="supersede")
        elif way == "edit":
            await session.edit(first, "do something else")
        else:
            await session.regenerate(first)
        assert await child_of(engine) == ("interrupted", False)
        if way == "supersede":
            end = await until_event(session, TurnEnded)
            assert end.outcome == "superseded"
            await until_event(session, TurnEnded, end.number)
            assert (await session.messages())[-1].text == "something else"
        else:  # it begins anew, with a child of its own
            (waiting,) = (await settled(session)).waiting
            assert not waiting.id.startswith("m2.")
            await session.approve(waiting)
            assert (await settled(session)).text == "something else"
            assert till.paid == ["Ann"]
        assert len([event for event in await log(engine, "s") if isinstance(event, TurnStarted)]) == 2


@pytest.mark.trio
async def test_timeout_of_the_call(autojump_clock: Clock) -> None:
    """An agent that takes too long is ended, and the parent's model reads that the outcome is unknown."""
    gate = Gate()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    inner = Agent[Any](saying(call("slow"), "done"), tools=[slow])
    agent = Agent[Any](saying(HELP, "too slow"), tools=[inner.as_tool("helper", "Helps.", timeout=30)])
    async with Engine(agent, MemoryStore()) as engine:
        start = trio.current_time()
        result = await engine.session("s").run("go")
        assert trio.current_time() - start == pytest.approx(30, abs=0.1)
        assert await child_of(engine) == ("interrupted", False)
        assert result.usage == await used(engine, "s", "s/m2.0") != await used(engine, "s")
    assert read(agent) == [f"{UNKNOWN}timed out after 30 s; it may have taken effect"]


@pytest.mark.trio
async def test_waiting_is_not_timed(autojump_clock: Clock) -> None:
    """The timeout of an agent is for its work: a person may take as long as they want."""
    till = Till()
    agent = Agent[Any](saying(HELP, "thanks"), tools=[till.agent().as_tool("helper", "Helps.", timeout=30)])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await trio.sleep(1000)
        await session.approve("m2.0/m2.0")
        assert (await settled(session)).outcome == "completed"
    assert read(agent) == ["all paid"]


@pytest.mark.trio
async def test_hooks_of_the_child() -> None:
    """The hooks of a child that ends by itself, or is interrupted at work, run; those of one that only waits do not."""
    told: list[str] = []

    class Hooks(Middleware[Any]):
        async def turn_ended(self, ctx: TurnContext[Any]) -> None:
            told.append(ctx.outcome)

    till, model = Till(), GatedModel("x")
    ends = Agent[Any](saying("done"), middleware=[Hooks()])
    works = Agent[Any](model, middleware=[Hooks()])
    waits = Agent[Any](saying(call("pay", to="Ann")), tools=[till.pay], middleware=[Hooks()])
    for inner in (ends, works, waits):
        async with Engine(above(inner), MemoryStore()) as engine:
            session = engine.session("s")
            await session.send("go")
            if inner is works:
                await model.gate.reached.wait()
            elif inner is waits:
                await settled(session)
            if inner is not ends:
                await session.interrupt()
            await until_event(session, TurnEnded)
            assert (await child_of(engine))[1] is False
    assert told == ["completed", "interrupted"]


@pytest.mark.trio
@pytest.mark.parametrize("at", [1, 2])
async def test_a_child_that_cannot_be_ended(at: int, caplog: pytest.LogCaptureFixture) -> None:
    """Where the end of a child cannot be written the parent's stands all the same; the child ends with the next look."""
    store = FaultyStore(MemoryStore())
    agent = above(Till().agent(), HELP, "thanks")
    async with Engine(agent, store) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        store.fail_at = store.commits + 2
        await session.interrupt()
        assert await child_of(engine) == ("", True)
        assert "was not ended with the call above it" in caplog.text
        if at == 1:  # whoever deletes the parent
            assert await engine.delete("s")
            assert [info.id async for info in engine.sessions(children=True)] == []
    if at == 2:  # whoever drives it next
        async with Engine(agent, store) as engine:
            await engine.session("s").run("and now?")
            assert await child_of(engine) == ("interrupted", False)
