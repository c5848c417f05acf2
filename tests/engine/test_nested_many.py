"""Agents as tools: several requests, children and levels at once, and requests that expire."""

from __future__ import annotations

import pytest
import trio

from tests.engine.helpers import Gate, until_event
from tests.engine.test_nested import HELP, Clock, Stores, Till, above, log, read, settled, stores
from turnstate import (
    ApprovalRequested,
    CallAnswered,
    CallSettled,
    CallStarted,
    Engine,
    Event,
    InvalidInput,
    MemoryStore,
    Refused,
    Session,
    StoreError,
    TurnEnded,
    tool,
)
from turnstate.testing import FaultyStore, call

__all__ = ["stores"]


@pytest.mark.trio
async def test_one_of_several() -> None:
    """One of several requests can be answered: that call runs, and the turn waits for the rest."""
    till = Till()
    both = [call("pay", to="Ann"), call("pay", to="Bob")]
    async with Engine(above(till.agent(both, "done")), MemoryStore()) as engine:
        session = engine.session("s")
        assert [found.id for found in (await session.run("go", check=False)).waiting] == ["m2.0/m2.0", "m2.0/m2.1"]
        await session.approve("m2.0/m2.1")
        assert [found.id for found in (await settled(session)).waiting] == ["m2.0/m2.0"]
        assert till.paid == ["Bob"]
        await session.approve("m2.0/m2.0")
        assert (await settled(session)).outcome == "completed"
    assert till.paid == ["Bob", "Ann"]


@pytest.mark.trio
async def test_several_in_one_answer() -> None:
    """Several requests, also of two children, can be answered in one submission."""
    till = Till()
    both = [call("pay", to="Ann"), call("pay", to="Bob")]
    agent = above(till.agent(both, "done"), [HELP, HELP], "thanks")
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        await session.approve(*(await session.run("go", check=False)).waiting)
        assert (await settled(session)).outcome == "completed"
        starts = [event for event in await log(engine, "s") if isinstance(event, CallStarted)]
        assert len(starts) == 4
    assert sorted(till.paid) == ["Ann", "Ann", "Bob", "Bob"]


@pytest.mark.trio
@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_answered_while_the_child_works(verdict: str) -> None:
    """An answer that comes while the call works on an earlier one reaches the child at once."""
    till, gate = Till(), Gate()

    @tool(approval=True)
    async def slow() -> str:
        await gate.wait()
        return "slow"

    inner = till.agent([call("slow"), call("pay", to="Bob")], "done", tools=[slow])
    async with Engine(above(inner), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.approve("m2.0/m2.0")
        await gate.reached.wait()
        await (session.approve if verdict == "approve" else session.deny)("m2.0/m2.1")
        await until_event(engine.session("s/m2.0"), CallSettled)
        assert till.paid == (["Bob"] if verdict == "approve" else [])
        gate.open.set()
        assert (await settled(session)).outcome == "completed"
        answered = [event.call.id for event in await log(engine, "s") if isinstance(event, CallAnswered)]
        assert answered == ["m2.0/m2.0", "m2.0/m2.1"]
    assert till.paid == (["Bob"] if verdict == "approve" else [])


@pytest.mark.trio
async def test_other_arguments_while_the_child_works() -> None:
    """Arguments that come while the child works and do not fit are asked about again; those that fit are used."""
    till, gate = Till(), Gate()

    @tool(approval=True)
    async def slow() -> str:
        await gate.wait()
        return "slow"

    inner = till.agent([call("slow"), call("pay", to="Ann"), call("pay", to="Bob")], "done", tools=[slow])
    async with Engine(above(inner), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.approve("m2.0/m2.0")
        await gate.reached.wait()
        await session.approve("m2.0/m2.1", arguments={"to": 5})
        await session.approve("m2.0/m2.2", arguments={"to": "Eve"})
        gate.open.set()
        (again,) = (await settled(session)).waiting
        assert again.id == "m2.0/m2.1"
        assert "bad arguments for pay" in again.reason
        assert till.paid == ["Eve"]
        await session.approve(again)
        assert (await settled(session)).outcome == "completed"
    assert till.paid == ["Eve", "Ann"]


@pytest.mark.trio
async def test_answered_while_a_child_two_deep_works(autojump_clock: Clock) -> None:
    """An answer in time reaches a child two sessions below at once, and so its request does not expire."""
    till = Till(expires=60)

    @tool(approval=True)
    async def slow() -> str:
        await trio.sleep(100)
        return "slow"

    inner = till.agent([call("slow"), call("pay", to="Ann"), call("pay", to="Bob")], "done", tools=[slow])
    async with Engine(above(above(inner)), MemoryStore()) as engine:
        session = engine.session("s")
        first, second, _ = (await session.run("go", check=False)).waiting
        await session.approve(first)
        await trio.sleep(50)
        await session.approve(second)
        await trio.sleep(45)
        assert (await settled(session)).outcome == "completed"
    assert till.paid == ["Ann"]
    assert read(inner) == ["slow", "paid Ann", "tool denied: the approval request expired"]


@pytest.mark.trio
async def test_answers_that_come_too_late() -> None:
    """The same answer again is fine, another one is refused, and so is one to what is not open; nothing changes."""
    till = Till()
    both = [call("pay", to="Ann"), call("pay", to="Bob")]
    async with Engine(above(till.agent(both, "done")), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        with pytest.raises(InvalidInput, match=r"answer the calls nested in m2\.0: m2\.0/m2\.0, m2\.0/m2\.1"):
            await session.approve("m2.0")
        with pytest.raises(InvalidInput, match="provide results to the calls nested"):
            await session.provide("m2.0", 1)
        with pytest.raises(Refused, match="not open"):
            await session.deny("m2.0/m9.0")
        await session.approve("m2.0/m2.0", id="a1")
        assert (await session.approve("m2.0/m2.0", id="a1")).duplicate
        await settled(session)
        with pytest.raises(Refused, match="not open"):
            await session.deny("m2.0/m2.0")
        await session.deny("m2.0/m2.1")
        assert (await settled(session)).outcome == "completed"
        with pytest.raises(Refused, match="the turn is over"):
            await session.approve("m2.0/m2.1")
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_events_are_told_once(stores: Stores) -> None:
    """Live and replayed the parent's events are the same; each request and answer is told once, without gaps."""
    till = Till()
    both = [call("pay", to="Ann"), call("pay", to="Bob")]
    live: list[Event] = []

    async def listen(session: Session, *, task_status: trio.TaskStatus[None]) -> None:
        async with session.events() as events:
            task_status.started()
            async for event in events:
                if event.number is not None:
                    live.append(event)
                if isinstance(event, TurnEnded):
                    return

    async with Engine(above(till.agent(both, "done")), stores()) as engine, trio.open_nursery() as nursery:
        session = engine.session("s")
        await nursery.start(listen, session)
        await session.run("go", check=False)
        for name in ("m2.0/m2.0", "m2.0/m2.1"):
            await session.approve(name)
            await settled(session)
        nested = [
            (type(event).__name__, event.call.id)
            for event in await log(engine, "s")
            if isinstance(event, (ApprovalRequested, CallAnswered, CallStarted, CallSettled))
        ]
    async with Engine(above(till.agent()), stores()) as engine:
        assert await log(engine, "s") == live
    assert [event.number for event in live] == list(range(1, len(live) + 1))
    assert nested == [
        ("CallStarted", "m2.0"),
        ("ApprovalRequested", "m2.0/m2.0"),
        ("ApprovalRequested", "m2.0/m2.1"),
        ("CallAnswered", "m2.0/m2.0"),
        ("CallStarted", "m2.0"),
        ("CallAnswered", "m2.0/m2.1"),
        ("CallStarted", "m2.0"),
        ("CallSettled", "m2.0"),
    ]


@pytest.mark.trio
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_calls_of_one_agent(order: tuple[int, int], stores: Stores) -> None:
    """Two calls of the same agent work at the same time, wait both, and are answered in either order."""
    till = Till()
    agent = above(till.agent(), [HELP, HELP], "thanks")
    async with Engine(agent, stores()) as engine:
        session = engine.session("s")
        waiting = (await session.run("go", check=False)).waiting
        assert [found.id for found in waiting] == ["m2.0/m2.0", "m2.1/m2.0"]
        await session.approve(waiting[order[0]])
        (rest,) = (await settled(session)).waiting
        assert rest == waiting[order[1]]
        assert till.paid == ["Ann"]
        await session.approve(rest)
        assert (await settled(session)).outcome == "completed"
    assert till.paid == ["Ann", "Ann"]
    assert read(agent) == ["all paid", "all paid"]


@pytest.mark.trio
async def test_two_deep(stores: Stores) -> None:
    """What is asked two sessions below surfaces at the top, and the answer goes down all the way."""
    till = Till()
    agent = above(above(till.agent(), HELP, "he did it"))
    async with Engine(agent, stores()) as engine:
        session = engine.session("s")
        (waiting,) = (await session.run("go", check=False)).waiting
        assert (waiting.id, waiting.tool) == ("m2.0/m2.0/m2.0", "pay")
        middle = await engine.session("s/m2.0").info()
        assert ([found.id for found in middle.waiting], middle.parent) == (["m2.0/m2.0"], "s")
        assert (await engine.session("s/m2.0/m2.0").info()).parent == "s/m2.0"
    async with Engine(agent, stores()) as engine:
        session = engine.session("s")
        await session.approve(waiting, arguments={"to": "Bob"})
        assert (await settled(session)).outcome == "completed"
    assert till.paid == ["Bob"]
    assert read(agent) == ["he did it"]


@pytest.mark.trio
async def test_bad_arguments_two_deep() -> None:
    """Arguments that a tool two sessions below cannot take are asked about again at the top."""
    till = Till()
    async with Engine(above(above(till.agent())), MemoryStore()) as engine:
        session = engine.session("s")
        (waiting,) = (await session.run("go", check=False)).waiting
        await session.approve(waiting, arguments={"from": "Bob"})
        (again,) = (await settled(session)).waiting
        assert again.id == waiting.id
        assert "bad arguments for pay" in again.reason
        await session.deny(again)
        assert (await settled(session)).outcome == "completed"
    assert not till.paid


@pytest.mark.trio
async def test_siblings_go_on() -> None:
    """Other tools of the reply run while a child waits; only then does the turn wait."""
    gate, till = Gate(), Till()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    agent = above(till.agent(), [HELP, call("slow")], "thanks", tools=[slow])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            asked = await until_event(session, ApprovalRequested)
            await gate.reached.wait()
            assert (await session.info()).state == "executing-tools"
            gate.open.set()
            assert (await turn.result(check=False)).waiting == [asked.call]
            await session.approve(asked.call)
            async for _ in turn:
                pass
            assert (await turn.result()).text == "thanks"
    assert read(agent) == ["all paid", "slow"]


@pytest.mark.trio
async def test_answered_while_siblings_run() -> None:
    """The child goes on with its answer at once, while another tool of the reply still runs."""
    gate, till = Gate(), Till()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    agent = above(till.agent(), [HELP, call("slow")], "thanks", tools=[slow])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await session.approve((await until_event(session, ApprovalRequested)).call)
            assert (await until_event(session, CallSettled)).call.id == "m2.0"
            gate.open.set()
            await turn.result()
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_expiry(autojump_clock: Clock) -> None:
    """A request that nobody answers expires in the child at its time, and both turns go on."""
    till = Till(expires=60)
    inner = till.agent(call("pay", to="Ann"), "nobody said yes")
    agent = above(inner)
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        start = trio.current_time()
        async with session.turn("go") as turn:
            result = await turn.result(check=False)
            (waiting,) = result.waiting
            assert waiting.expires_at is not None
            assert (await session.info()).deadline == waiting.expires_at
            async for _ in turn:
                pass
            assert (await turn.result()).text == "thanks"
        assert trio.current_time() - start == pytest.approx(60, abs=0.1)
        starts = [event for event in await log(engine, "s") if isinstance(event, CallStarted)]
        assert len(starts) == 2
    assert read(inner) == ["tool denied: the approval request expired"]
    assert not till.paid


@pytest.mark.trio
async def test_expiry_of_one_of_two(autojump_clock: Clock) -> None:
    """When one of two requests has expired the other one still waits, and is not told again."""
    till = Till(expires=60)

    @tool(approval=True)
    async def keep() -> str:
        """Keep."""
        return "kept"

    inner = till.agent([call("pay", to="Ann"), call("keep")], "done", tools=[keep])
    async with Engine(above(inner), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            assert len((await turn.result(check=False)).waiting) == 2
            await trio.sleep(61)
            (waiting,) = (await turn.result(check=False)).waiting
            assert waiting.tool == "keep"
        with pytest.raises(Refused):
            await session.approve("m2.0/m2.0")
        assert len([event for event in await log(engine, "s") if isinstance(event, ApprovalRequested)]) == 2
        await session.approve(waiting)
        assert (await settled(session)).outcome == "completed"
    assert read(inner) == ["tool denied: the approval request expired", "kept"]


@pytest.mark.trio
async def test_answered_in_time(autojump_clock: Clock) -> None:
    """An answer that came in time stands, also where the child hears of it after the request would have expired."""
    till = Till(expires=60)
    agent = above(till.agent())
    store = FaultyStore(MemoryStore())
    async with Engine(agent, store) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        store.fail_at = store.commits + 2  # the first is that of the parent
        await session.approve("m2.0/m2.0")
        with pytest.raises(StoreError, match="was made to fail"):
            await settled(session)
    assert not till.paid
    await trio.sleep(100)
    async with Engine(agent, store) as engine:
        assert (await settled(engine.session("s"))).outcome == "completed"
    assert till.paid == ["Ann"]
