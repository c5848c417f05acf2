"""Agents as tools: how a child ends with the call above it, and what the parent reads of one that does not complete."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, GatedModel, until_event
from tests.engine.test_nested import HELP, Clock, Stores, Till, above, log, read, saying, settled, stores
from turnstate import (
    Agent,
    CallSettled,
    Engine,
    Limits,
    MemoryStore,
    Middleware,
    ModelError,
    Reply,
    StepEnded,
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


async def child_of(engine: Engine[Any], name: str = "s/m2.0") -> tuple[str, bool]:
    """How a child's turn ended, and whether it has not."""
    info = await engine.session(name).info()
    return info.outcome, info.unfinished


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
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: session.send("do something else", delivery="supersede"))
                end = await until_event(session, TurnEnded)
                assert end.outcome == "superseded"
        elif way == "edit":
            await session.edit(first, "do something else")
        else:
            await session.regenerate(first)
        assert await child_of(engine) == ("interrupted", False)
        if way == "supersede":
            await until_event(session, TurnEnded, end.number)
            assert (await session.messages())[-1].text == "something else"
        else:  # it begins anew, with a child of its own
            (waiting,) = (await settled(session)).waiting
            assert waiting.id.startswith("m") and not waiting.id.startswith("m2.")
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
        used = [event.usage for name in NAMES[:2] for event in await log(engine, name) if isinstance(event, StepEnded)]
        assert len(used) == 3
        assert result.usage == sum(used, Usage())
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
async def test_a_child_that_fails() -> None:
    """The parent's model reads how the child failed, and goes on."""
    inner = Agent[Any](saying(ModelError("no such model", kind="not-found")))
    agent = above(inner)
    async with Engine(agent, MemoryStore()) as engine:
        assert (await engine.session("s").run("go")).text == "thanks"
        assert await child_of(engine) == ("failed", False)
    assert read(agent) == ["the agent did not complete the task (failed): no such model"]


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
        for name in [found.id for found in (await session.run("go", check=False)).waiting]:
            await session.approve(name)
            result = await settled(session)
        parts = [event.usage for name in NAMES for event in await log(engine, name) if isinstance(event, StepEnded)]
        assert result.usage == sum(parts, Usage())
        assert (await session.info()).usage == result.usage
        stored = await engine.store.load("s")
        assert stored is not None
        assert all(f'"{name}":{{' in stored.checkpoint.decode() for name in ("small", "middle", "scripted"))


NAMES = ("s", "s/m2.0", "s/m2.0/m2.0")


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
