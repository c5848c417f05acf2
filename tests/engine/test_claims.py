"""One driver for each session, and others who speak to it through the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, GatedModel, engine_of, events_of, requests_of, result_texts, until_event
from turnstate import (
    Agent,
    ApprovalRequested,
    CallSettled,
    CallStarted,
    Client,
    Engine,
    InvalidInput,
    Limits,
    MemoryStore,
    MessageQueued,
    Refused,
    SessionInUse,
    SQLiteStore,
    StaleSession,
    Store,
    TurnEnded,
    TurnStarted,
    tool,
)
from turnstate.stores import StoredSession
from turnstate.testing import call


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file is to be."""
    return tmp_path / "turns.db"


@tool(approval=True)
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@pytest.mark.trio
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_session_in_use(kind: str, path: Path) -> None:
    """A second engine gets SessionInUse before anything changes; what it says goes to the first (case 107)."""
    stores: list[Store] = [MemoryStore()] * 2 if kind == "memory" else [SQLiteStore(path), SQLiteStore(path)]
    model = GatedModel("x")
    async with Engine(Agent(model), stores[0]) as one, engine_of(store=stores[1]) as two:
        async with one.session("s").turn("go") as turn:
            await model.gate.reached.wait()
            before = await one.session("s").info()
            with pytest.raises(SessionInUse):
                await two.session("s").run("me too")
            with pytest.raises(SessionInUse):
                async with two.session("s").resume():
                    pass
            assert await two.session("s").info() == before
            receipt = await two.session("s").steer("from two")
            assert receipt.turn == "t1"
            model.gate.open.set()
            assert (await turn.result()).steps == 2
        assert not requests_of(two)


@pytest.mark.trio
async def test_dead_owner_is_taken_over(path: Path) -> None:
    """A session whose owner's process is gone is taken over at once."""
    program = (
        "import os, trio\n"
        "from turnstate import Agent, Engine, SQLiteStore\n"
        "from turnstate.testing import ScriptedModel\n"
        "async def main():\n"
        f"    async with Engine(Agent(ScriptedModel(['x'], delay=1000)), SQLiteStore({str(path)!r})) as engine:\n"
        "        await engine.session('s').send('go')\n"
        "        os._exit(3)\n"
        "trio.run(main)\n"
    )
    done = await trio.to_thread.run_sync(lambda: subprocess.run([sys.executable, "-c", program], timeout=50))
    assert done.returncode == 3
    async with engine_of("here", store=SQLiteStore(path)) as engine, engine.session("s").resume() as turn:
        assert (await turn.result()).text == "here"


@pytest.mark.trio
async def test_stale_driver_stops(path: Path) -> None:
    """An owner that was taken over can write nothing more: its driver stops and its callers hear why."""
    model = GatedModel("x")
    first, second = SQLiteStore(path), SQLiteStore(path)
    async with Engine(Agent(model), first) as one, engine_of("two's", store=second) as two:
        async with one.session("s").turn("go") as turn:
            await model.gate.reached.wait()
            # Its lease lapses, as when the machine was asleep.
            await first.renew(attrs.evolve(one.owner, expires=0.0))
            async with two.session("s").resume() as other:
                assert (await other.result()).text == "two's"
            model.gate.open.set()
            with pytest.raises(StaleSession):
                await turn.result()
            assert one.driven("s") is None
        assert len(await two.session("s").messages()) == 2


@pytest.mark.trio
async def test_client_answers_through_another_store(path: Path) -> None:
    """A client with a store object of its own answers, and the owner applies it and says so (program 6)."""
    async with engine_of(call("delete", path="a"), "gone", tools=[delete], store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn, Client(SQLiteStore(path)) as client:
            (waiting,) = (await turn.result(check=False)).waiting
            handle = client.session("s")
            (listed,) = [info async for info in client.sessions(waiting=True)]
            assert [c.id for c in listed.waiting] == [waiting.id]
            receipt = await handle.approve(waiting.token, by="bob")
            assert receipt.turn == "t1"
            assert (await turn.result()).text == "gone"
            with pytest.raises(Refused) as refused:
                await handle.deny(waiting)
            assert refused.value.code == "stale"


@pytest.mark.trio
async def test_another_process_answers(path: Path) -> None:
    """Another process answers an approval, without an agent."""
    async with engine_of(call("delete", path="a"), "gone", tools=[delete], store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            (waiting,) = (await turn.result(check=False)).waiting
            program = (
                "import trio\n"
                "from turnstate import Client, SQLiteStore\n"
                "async def main():\n"
                f"    async with Client(SQLiteStore({str(path)!r})) as client:\n"
                f"        await client.session('s').approve({waiting.token!r}, by='bob')\n"
                "trio.run(main)\n"
            )
            run = lambda: subprocess.run([sys.executable, "-c", program], timeout=50, check=True)  # noqa: E731
            await trio.to_thread.run_sync(run)
            assert (await turn.result()).text == "gone"


@pytest.mark.trio
@pytest.mark.parametrize("restart", [False, True])
async def test_client_without_driver(restart: bool) -> None:
    """What a client says to a session that nobody drives is durable, and the next driver applies it first."""
    store = MemoryStore()
    async with engine_of(call("delete", path="a"), tools=[delete], store=store) as engine:
        (waiting,) = (await engine.session("s").run("go", check=False)).waiting
    async with Client(store) as client:
        receipt = await client.session("s").approve(waiting, id="my-answer")
        assert receipt.turn == ""
        if restart:
            await client.session("s").approve(waiting, id="my-answer")
        with pytest.raises(Refused):
            await client.session("s").approve("m99.0")
        with pytest.raises(InvalidInput):
            await client.session("s").approve()
    async with engine_of("gone", "more", tools=[delete], store=store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            assert (await turn.result()).text == "gone"
        async with Client(store) as client:
            assert (await client.session("s").approve(waiting, id="my-answer")).duplicate
            with pytest.raises(Refused) as refused:
                await client.session("s").deny(waiting, id="my-answer")
            assert refused.value.code == "conflict"
        log = await events_of(session, until=lambda e: isinstance(e, TurnEnded))
        assert len([e for e in log if isinstance(e, CallStarted)]) == 1


@pytest.mark.trio
async def test_client_interrupts() -> None:
    """A client interrupts a driven turn; on one without a driver the interrupt ends that turn, and no later one."""
    store = MemoryStore()
    gate = Gate()
    runs: list[int] = []

    @tool(on_crash="rerun")
    async def hang() -> None:
        runs.append(1)
        await gate.wait()

    async with Client(store) as client:
        handle = client.session("s")
        assert not await handle.interrupt()
        async with engine_of(call("hang"), call("hang"), tools=[hang], store=store) as engine:
            async with engine.session("s").turn("go") as turn:
                await gate.reached.wait()
                assert await handle.interrupt("from outside")
                assert (await turn.result(check=False)).reason == "from outside"
            gate.reached = trio.Event()
            await engine.session("s").send("again")
            await gate.reached.wait()
            engine.grace = 0
        assert await handle.interrupt()
        async with engine_of("next", tools=[hang], store=store) as engine:
            session = engine.session("s")
            async with session.turn("hi") as turn:
                assert (await turn.result()).turn == "t3"
            (ended,) = [
                e for e in await events_of(session, until=_third) if isinstance(e, TurnEnded) and e.turn == "t2"
            ]
            assert ended.outcome == "interrupted"
            assert len(runs) == 2
            assert result_texts(requests_of(engine)[0])[1].endswith("result unknown: interrupted")


def _third(event: Any) -> bool:
    return isinstance(event, TurnEnded) and event.turn == "t3"


@pytest.mark.trio
async def test_interrupt_of_a_stored_session() -> None:
    """Interrupting a stored turn whose runner is gone settles everything and runs nothing (case 80)."""
    runs: list[str] = []

    async def check() -> None:
        runs.append("check")

    gate = Gate()

    @tool(on_crash="rerun")
    async def again() -> None:
        runs.append("again")
        await gate.wait()

    @tool(on_crash=check)
    async def checked() -> None:
        runs.append("checked")
        await trio.sleep_forever()

    store = MemoryStore()
    tools = [again, checked, delete]
    lines = [call("again"), call("checked"), call("delete", path="a")]
    engine = engine_of(lines, tools=tools, store=store)
    engine.grace = 0
    async with engine:
        await engine.session("s").send("go")
        await gate.reached.wait()
        await trio.testing.wait_all_tasks_blocked()
    assert sorted(runs) == ["again", "checked"]
    async with engine_of("fine", tools=tools, store=store) as engine:
        session = engine.session("s")
        assert await session.interrupt("no more")
        await until_event(session, TurnEnded)
        info = await session.info()
        assert (info.unfinished, list(info.waiting), info.outcome) == (False, [], "interrupted")
        assert sorted(runs) == ["again", "checked"]
        assert not requests_of(engine)
        await session.run("hi")
        assert [text.split(":")[0] for text in result_texts(requests_of(engine)[0])] == [
            "execution interrupted; result unknown",
            "execution interrupted; result unknown",
            "not run",
        ]


@pytest.mark.trio
async def test_client_sends_while_a_message_waits() -> None:
    """A client's messages queue and steer as any; a refused id is free again."""
    store = MemoryStore()
    model = GatedModel("x")
    async with Engine(Agent(model), store) as engine, Client(store) as client:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            assert (await client.session("s").send("later", id="q")).turn == ""
            assert (await client.session("s").send("later", id="q")).duplicate
            await client.session("s").steer("now")
            queued = await until_event(session, MessageQueued)
            assert queued.id == "q"
            with pytest.raises(Refused) as refused:
                await client.session("s").edit_queued("nope", "x")
            assert refused.value.code == "gone"
            model.gate.open.set()
            await turn.result()
        log = await events_of(session, until=lambda e: isinstance(e, TurnEnded) and e.turn == "t2")
        assert [e.cause for e in log if isinstance(e, TurnStarted)][1] == "q"


@pytest.mark.trio
async def test_two_engines_race_to_resume(path: Path) -> None:
    """Two engines resume one session at once: one wins, the other is refused, and the call runs once (case 107)."""
    runs: list[int] = []

    @tool
    async def once() -> None:
        runs.append(1)

    for number in range(10):
        runs.clear()
        name = f"s{number}"
        async with engine_of(call("delete", path="a"), tools=[delete], store=SQLiteStore(path)) as engine:
            (waiting,) = (await engine.session(name).run("go", check=False)).waiting
        outcomes: list[str] = []
        stores = [SQLiteStore(path), SQLiteStore(path)]
        engines = [engine_of(call("once"), "ok", tools=[delete, once], store=store) for store in stores]
        async with engines[0], engines[1]:

            async def resume(engine: Any, name: str = name, waiting: Any = waiting, outcomes: Any = outcomes) -> None:
                try:
                    async with engine.session(name).resume() as turn:
                        await engine.session(name).approve(waiting)
                        outcomes.append((await turn.result()).outcome)
                except SessionInUse:
                    outcomes.append("in use")

            async with trio.open_nursery() as nursery:
                for engine in engines:
                    nursery.start_soon(resume, engine)
        assert sorted(outcomes) == ["completed", "in use"]
        assert runs == [1]


@pytest.mark.trio
async def test_unreadable_inbox_item() -> None:
    """Bytes in the inbox that are no submission are answered and taken out; the session goes on."""
    from turnstate.stores.base import InboxItem

    store = MemoryStore()
    model = GatedModel("x")
    async with Engine(Agent(model), store) as engine, engine.session("s").turn("go") as turn:
        await model.gate.reached.wait()
        await store.post(InboxItem("s", "bad", b"{"))
        await trio.testing.wait_all_tasks_blocked()
        assert not await store.inbox(["s"])
        model.gate.open.set()
        await turn.result()


@pytest.mark.trio
async def test_same_id_through_both_ways() -> None:
    """A submission sent directly and through the inbox with the same id acts once."""
    store = MemoryStore()
    async with engine_of(call("delete", path="a"), "ok", tools=[delete], store=store) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn, Client(store) as client:
            request = await until_event(session, ApprovalRequested)
            await session.approve(request.call, id="x")
            assert (await client.session("s").approve(request.call, id="x")).duplicate
            assert (await turn.result()).text == "ok"


@pytest.mark.trio
async def test_refused_id_is_free_again() -> None:
    """A client's submission that was refused may be sent again with its id, and is looked at anew."""
    store = MemoryStore()
    model = GatedModel("x")
    agent = Agent[None](model, limits=Limits(queue=1))
    async with Engine(agent, store) as engine, Client(store) as client:
        session, handle = engine.session("s"), client.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await handle.send("first", id="first")
            for _ in range(2):
                with pytest.raises(Refused) as refused:
                    await handle.send("second", id="second")
                assert refused.value.code == "full"
            await handle.remove_queued("first")
            await handle.send("second", id="second")
            assert (await session.info()).queued == 1
            model.gate.open.set()
            await turn.result()
        log = await events_of(session, until=lambda e: isinstance(e, TurnEnded) and e.turn == "t2")
        assert [e.cause for e in log if isinstance(e, TurnStarted)][1] == "second"


@pytest.mark.trio
async def test_reading_while_the_driver_writes_on() -> None:
    """What a client reads is one moment of the session, also where its driver commits between two reads."""
    gate = Gate()

    class Busy(MemoryStore):
        busy = False

        async def load(self, session: str) -> StoredSession | None:
            found = await super().load(session)
            if self.busy:
                self.busy = False
                gate.open.set()
                await until_event(driven, CallSettled)
            return found

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    @tool(approval=True)
    async def pay() -> str:
        return "paid"

    store = Busy()
    async with engine_of([call("slow"), call("pay")], "done", tools=[slow, pay], store=store) as engine:
        driven = engine.session("s")
        await driven.send("go")
        await until_event(driven, ApprovalRequested)
        await gate.reached.wait()
        store.busy = True
        away = Client(store).session("s")
        await away.info()
        await away.deny("m2.1")
        await until_event(driven, TurnEnded)
        results = [message.text for message in await driven.messages() if message.role == "tool"]
        assert results == ["slow", "tool denied: the user declined"]
