"""Agents as tools: the children's sessions in the store: lists, workers, claims, ids and deleting."""

from __future__ import annotations

from typing import Any

import attrs
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
    stores,
)
from tests.engine.test_nested_faults import Dying, drive
from turnstate import (
    Agent,
    Client,
    Engine,
    MemoryStore,
    Refused,
    SessionInUse,
    StaleSession,
    StoreError,
    TurnEnded,
    child_session,
    tool,
)
from turnstate.beginning import claimed
from turnstate.testing import FaultyStore, call

__all__ = ["stores"]


async def names(engine: Engine[Any], **only: Any) -> list[str]:
    """The ids in a list of sessions."""
    return [info.id async for info in engine.sessions(**only)]


@pytest.mark.trio
async def test_lists(stores: Stores) -> None:
    """A child is on no list unless it is asked for; who lists what waits finds the parent."""
    async with Engine(above(above(Till().agent())), stores()) as engine, Client(stores()) as client:
        await engine.session("s").run("go", check=False)
        family = ["s", "s/m2.0", "s/m2.0/m2.0"]
        assert await names(engine) == ["s"]
        assert await names(engine, waiting=True) == ["s"]
        assert await names(engine, unfinished=True) == ["s"]
        assert await names(engine, children=True, waiting=True) == family
        assert [info.id async for info in client.sessions()] == ["s"]
        (info,) = [info async for info in client.sessions(waiting=True)]
        assert [waiting.id for waiting in info.waiting] == ["m2.0/m2.0/m2.0"]
        parents = [info.parent async for info in engine.sessions(children=True)]
        assert parents == ["", "s", "s/m2.0"]


@pytest.mark.trio
async def test_deleting(stores: Stores) -> None:
    """A parent whose child waits cannot be deleted; once it is over, its children go with it, and theirs."""
    async with Engine(above(above(Till().agent())), stores()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        with pytest.raises(Refused, match="has a turn that has not ended"):
            await engine.delete("s")
        with pytest.raises(Refused, match="has a turn that has not ended"):
            await engine.delete("s/m2.0")
        await session.interrupt()
        await engine.session("other").send("hi")
        assert await engine.delete("s")
        assert await names(engine, children=True) == ["other"]
        assert not (await engine.session("s/m2.0").info()).last_event


@pytest.mark.trio
async def test_a_worker_leaves_children_alone(autojump_clock: Clock) -> None:
    """A worker never drives a child by itself, also one that has not ended, is due, and was written to."""
    till = Till(expires=5)
    inner = till.agent()
    store = FaultyStore(MemoryStore())
    async with Engine(above(inner, HELP, "thanks"), store) as engine:
        await engine.session("s").run("go", check=False)
        store.fail_at = store.commits + 2  # the child is not ended with its parent
        await engine.session("s").interrupt()
        before = await store.load("s/m2.0")
    async with Engine(above(inner), store) as engine, trio.open_nursery() as nursery:
        await Client(store).session("s/m2.0").send("are you there?")
        nursery.start_soon(lambda: engine.serve())
        await trio.sleep(30)
        assert engine.sessions_driven == ()
        assert (await engine.session("s/m2.0").info()).unfinished
        assert await store.load("s/m2.0") == before
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_worker_goes_on(autojump_clock: Clock) -> None:
    """A worker takes up a parent whose process died, a client's answer to a child's request, and what has expired there."""
    till = Till(expires=600)
    agent, store = above(till.agent(), [HELP, HELP], "thanks"), WatchedStore()
    dying = Dying(store, 5)
    async with Engine(agent, dying) as engine:
        with pytest.raises(StoreError):
            await drive(engine.session("s"))
    assert dying.dead
    async with (
        left_clean(store),
        Engine(agent, store) as engine,
        Client(store) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lambda: engine.serve())
        with trio.fail_after(100):
            while len((await client.session("s").info()).waiting) < 2:  # noqa: ASYNC110 - it follows from afar
                await trio.sleep(1)
        handle = client.session("s")
        await handle.info()
        await handle.approve("m2.1/m2.0")
        with trio.fail_after(100):
            while len((await client.session("s").info()).waiting) > 1:  # noqa: ASYNC110
                await trio.sleep(1)
        assert till.paid == ["Ann"]
        start = trio.current_time()
        with trio.fail_after(1000):
            while (await client.session("s").info()).unfinished:  # noqa: ASYNC110
                await trio.sleep(1)
        assert 400 < trio.current_time() - start <= 600
        nursery.cancel_scope.cancel()
    assert till.paid == ["Ann"]
    assert read(agent) == ["all paid", "all paid"]


@pytest.mark.trio
async def test_long_ids() -> None:
    """Ids of children fit into 200 characters, however long that of the parent is; they stay apart and are found again."""
    till = Till()
    for length in (190, 195, 196, 200):
        top = "é" * length
        async with Engine(above(above(till.agent())), MemoryStore()) as engine:
            session = engine.session(top)
            (waiting,) = (await session.run("go", check=False)).waiting
            child = child_session(top, "m2.0")
            assert len(child) <= 200
            assert child.endswith("/m2.0")
            assert (await engine.session(child).info()).parent == top
            assert (await engine.session(child_session(child, "m2.0")).info()).parent == child
            await session.approve(waiting)
            assert (await settled(session)).outcome == "completed"
            assert await engine.delete(top)
            assert await names(engine, children=True) == []
    assert child_session("a" * 200, "m2.0") != child_session("a" * 199 + "b", "m2.0")


@pytest.mark.trio
@pytest.mark.parametrize("state", ["works", "waits"])
async def test_nobody_drives_a_child_by_hand(state: str, autojump_clock: Clock) -> None:
    """A child is driven by the call above it only: others get SessionInUse, whatever their agent, and change nothing."""
    till, gate = Till(), Gate()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    inner = till.agent([call("slow")], call("pay", to="Ann"), "done", tools=[slow])
    store = WatchedStore()
    agent = above(inner)
    async with left_clean(store), Engine(agent, store) as engine, Engine(inner, store) as other:
        session = engine.session("s")
        await session.send("go")
        await gate.reached.wait()
        if state == "waits":
            gate.open.set()
            await settled(session)
        before = await store.load("s/m2.0")
        for by in (engine, other):
            with pytest.raises(SessionInUse):
                await by.session("s/m2.0").run("do this instead")
            with pytest.raises(SessionInUse):
                async with by.session("s/m2.0").resume():
                    pass
        assert await store.load("s/m2.0") == before
        await engine.session("s/m2.0").send("hello", delivery="steer")
        gate.open.set()
        await session.approve(*(await settled(session)).waiting)
        assert (await settled(session)).outcome == "completed"
        said = [message.text for message in await engine.session("s/m2.0").messages() if message.role == "user"]
    assert said == ["pay Ann", "hello"]
    assert till.paid == ["Ann"]
    assert read(agent) == ["done"]


@pytest.mark.trio
@pytest.mark.parametrize("way", ["approve", "deny"])
async def test_answers_at_the_child(way: str) -> None:
    """What is answered at the child instead waits there until the call begins again; the first answer counts."""
    till = Till()
    both = [call("pay", to="Ann"), call("pay", to="Bob")]
    inner = till.agent(both, "done")
    async with Engine(above(inner), MemoryStore()) as engine:
        session, child = engine.session("s"), engine.session("s/m2.0")
        await session.run("go", check=False)
        await child.approve("m2.0")
        assert not till.paid
        await (session.approve if way == "approve" else session.deny)("m2.0/m2.1")
        assert (await settled(session)).outcome == "completed"
    assert sorted(till.paid) == (["Ann", "Bob"] if way == "approve" else ["Ann"])


@pytest.mark.trio
async def test_a_child_that_is_held_elsewhere(autojump_clock: Clock) -> None:
    """Where somebody still has the child, for example a process whose lease has not lapsed, the call waits for it."""
    till = Till()
    agent, store = above(till.agent()), WatchedStore()
    async with left_clean(store), Engine(agent, store) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        async with claimed(store, "s/m2.0"):
            await session.approve("m2.0/m2.0")
            await trio.sleep(50)
            assert (await session.info()).state == "executing-tools"
            assert not till.paid
        assert (await settled(session)).text == "thanks"
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_interrupt_while_it_is_held_elsewhere(autojump_clock: Clock) -> None:
    """A call that waits for its child can be interrupted; the child ends once it is let go and looked at."""
    agent, store = above(Till().agent(), HELP, "thanks"), WatchedStore()
    async with left_clean(store), Engine(agent, store) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        async with claimed(store, "s/m2.0"):
            await session.approve("m2.0/m2.0")
            await trio.sleep(5)
            await session.interrupt()
            assert (await until_event(session, TurnEnded)).outcome == "interrupted"
        assert (await engine.session("s/m2.0").info()).unfinished
        assert await engine.delete("s")
        assert await names(engine, children=True) == []


@pytest.mark.trio
async def test_a_session_that_has_the_childs_id() -> None:
    """A session of its own that has the id of a child is left alone, and the model reads why."""
    agent = above(Agent[Any](saying("never")))
    async with Engine(Agent[Any](saying("mine")), MemoryStore()) as engine:
        await engine.session("s/m2.0").run("hi")
        store = engine.store
    async with Engine(agent, store) as engine:
        assert (await engine.session("s").run("go")).text == "thanks"
        assert [message.text for message in await engine.session("s/m2.0").messages()] == ["hi", "mine"]
    (text,) = read(agent)
    assert "session s/m2.0 exists and does not belong to this call" in text


@pytest.mark.trio
async def test_two_engines(stores: Stores) -> None:
    """What one engine drives, another one answers, interrupts and reads; it cannot drive it as well."""
    till = Till()
    agent = above(till.agent(), [HELP, HELP], "thanks")
    async with Engine(agent, stores()) as one, Engine(agent, stores()) as two:
        async with one.session("s").turn("go") as turn:
            first, second = (await turn.result(check=False)).waiting
            with pytest.raises(SessionInUse):
                await two.session("s").run("me too")
            assert (await two.session("s").info()).waiting == (first, second)
            await two.session("s").deny(second)
            await two.session("s").approve(first)
            with trio.fail_after(20):
                async for _ in turn:
                    pass
            assert (await turn.result()).text == "thanks"
        assert await log(two, "s") == await log(one, "s")
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_taken_over(autojump_clock: Clock) -> None:
    """An engine that lost the parent to another one does not end the child: the other one goes on with it."""
    model = GatedModel("x", rest="here it is")
    agent, store = above(Agent[Any](model)), WatchedStore()
    async with left_clean(store), Engine(agent, store) as one, Engine(agent, store) as two:
        await one.session("s").send("go")
        await model.gate.reached.wait()
        await store.renew(attrs.evolve(one.owner, expires=0.0))  # its lease lapsed; that of the child's engine did not
        await two.session("s").rename("mine")
        await trio.sleep(1)
        assert (await two.session("s").info()).state == "executing-tools"
        with pytest.raises(StaleSession):
            await one.session("s").rename("no, mine")
        assert (await settled(two.session("s"))).text == "thanks"
    assert read(agent) == ["here it is"]


@pytest.mark.trio
async def test_forking_a_child() -> None:
    """A child can be forked into a session of its own, to go on with it by hand."""
    inner = Agent[Any](saying("done", "and this is why"))
    async with Engine(above(inner), MemoryStore()) as engine, Engine(inner, engine.store) as other:
        await engine.session("s").run("go")
        fork = await other.session("s/m2.0").fork(id="why")
        assert (await fork.run("why?")).text == "and this is why"
        assert await names(engine) == ["s", "why"]
