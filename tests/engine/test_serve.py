"""Engine.serve: a worker beside others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import attrs
import trio
import trio.testing

from turnstate import Agent, ApprovalRequested, Client, Engine, MemoryStore, ModelRequest, SQLiteStore, TurnEnded, tool
from turnstate.stores import Listing, StoredCommit
from turnstate.testing import ScriptedCall, ScriptedModel, call
from turnstate.testing.store_suite import owner_of_here
from turnstate_states.events import EventBase


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def agent() -> Agent:
    """Asks to pay for what is said, then is done."""

    def reply(request: ModelRequest) -> str | ScriptedCall:
        return "done" if request.messages[-1].role == "tool" else call("pay", amount=1)

    return Agent(ScriptedModel(reply), tools=[pay])


async def until(client: Client, session: str, kind: type[EventBase]) -> EventBase:
    """Follow a session until such an event was told."""
    with trio.fail_after(20):
        async with client.session(session).events() as events:
            async for event in events:
                if isinstance(event, kind):
                    return event
    raise AssertionError("the events ended")


async def ended(client: Client, session: str) -> str:
    """Wait until the session's turn ended, and say how."""
    event = await until(client, session, TurnEnded)
    assert isinstance(event, TurnEnded)
    return event.outcome


async def test_a_worker_takes_up_what_clients_say() -> None:
    """A worker starts the turn that a client's message asks for, and goes on when a client answers."""
    store = MemoryStore()
    async with Client(store) as client, Engine(agent(), store) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(engine.serve)
        session = client.session("a")
        await session.send("pay one")
        await until(client, "a", ApprovalRequested)
        await session.approve(*(await session.info()).waiting)
        assert await ended(client, "a") == "completed"
        assert [message.text for message in await session.messages()][-2:] == ["paid 1", "done"]
        nursery.cancel_scope.cancel()


async def test_a_worker_leaves_what_waits_for_a_person(autojump_clock: trio.testing.MockClock) -> None:
    """A session that only waits for a person is not kept by a worker, and is taken up again for the answer."""
    store = MemoryStore()
    async with Client(store) as client, Engine(agent(), store) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(engine.serve)
        await client.session("a").send("pay one")
        await until(client, "a", ApprovalRequested)
        await trio.sleep(10)
        assert engine.sessions_driven == ()
        assert await store.owner_of("a") is None
        await client.session("a").approve(*(await client.session("a").info()).waiting)
        assert await ended(client, "a") == "completed"
        nursery.cancel_scope.cancel()


@tool(approval=True, expires=60)
async def wire(amount: int) -> str:
    """Pay an amount, if somebody says so within a minute."""
    return f"wired {amount}"


def hasty() -> Agent:
    """Asks to wire for what is said, then is done."""

    def reply(request: ModelRequest) -> str | ScriptedCall:
        return "done" if request.messages[-1].role == "tool" else call("wire", amount=1)

    return Agent(ScriptedModel(reply), tools=[wire])


async def test_a_request_is_denied_at_its_deadline(autojump_clock: trio.testing.MockClock) -> None:
    """A worker denies a request that nobody answered within an interval of its deadline, also one asked by another engine."""
    store = MemoryStore()
    async with Client(store) as client:
        async with Engine(hasty(), store) as engine:
            await engine.session("a").run("pay", check=False)
            asked = engine.clock.now()
        async with Engine(hasty(), store) as engine, trio.open_nursery() as nursery:
            nursery.start_soon(engine.serve)
            deadline = (await client.session("a").info()).deadline
            assert deadline is not None
            assert 59 < deadline - asked <= 60
            while (await client.session("a").info()).unfinished:
                assert engine.clock.now() < deadline + 0.6
                assert (engine.sessions_driven == ()) == (engine.clock.now() < deadline)
                await trio.sleep(0.1)
            texts = [message.text for message in await client.session("a").messages()]
            assert texts[-2:] == ["tool denied: the approval request expired", "done"]
            nursery.cancel_scope.cancel()


async def test_a_worker_leaves_children_to_their_parents(autojump_clock: trio.testing.MockClock) -> None:
    """A session that answers a tool call is not driven by a worker: not unfinished, not expired, not written to."""
    store = MemoryStore()
    async with Client(store) as client:
        async with Engine(hasty(), store) as engine:
            for session in ("own", "child"):
                await engine.session(session).run("pay", check=False)
        adopt(store, "child", "own")
        await client.session("child").send("hello")
        async with Engine(hasty(), store) as engine, trio.open_nursery() as nursery:
            nursery.start_soon(engine.serve)
            await trio.sleep(70)
            assert await ended(client, "own") == "completed"
            assert await store.owner_of("child") is None
            assert (await client.session("child").info()).state == "awaiting-approval"
            assert [item.session for item in await store.inbox()] == ["child"]
            nursery.cancel_scope.cancel()


def adopt(store: MemoryStore, session: str, parent: str) -> None:
    """Make a stored session one that answers a call of another."""
    kept = store._kept[session]  # pyright: ignore[reportPrivateUsage]
    assert kept.listing is not None
    kept.listing = attrs.evolve(kept.listing, parent=parent)


async def test_a_worker_drives_no_more_than_it_is_told() -> None:
    """A worker drives at most the given number of sessions at once and gets to all of them."""
    most = 0

    @tool
    async def look() -> str:
        """Look how many are driven."""
        nonlocal most
        most = max(most, len(engine.sessions_driven))
        await trio.sleep(0.01)
        return "ok"

    def reply(request: ModelRequest) -> str | ScriptedCall:
        return "done" if request.messages[-1].role == "tool" else call("look")

    store = MemoryStore()
    engine = Engine(Agent(ScriptedModel(reply), tools=[look]), store)
    async with Client(store) as client, engine, trio.open_nursery() as nursery:
        engine.linger = 0.01
        for number in range(10):
            await client.session(f"s{number}").send("go")
        nursery.start_soon(lambda: engine.serve(sessions=3, interval=0.01))
        for number in range(10):
            assert await ended(client, f"s{number}") == "completed"
        nursery.cancel_scope.cancel()
    assert 1 <= most <= 3


async def spoil(store: MemoryStore, session: str) -> None:
    """Store something that is no checkpoint."""
    owner = owner_of_here("spoiler")
    await store.renew(owner)
    await store.claim(session, owner, time.time())
    stored = await store.load(session)
    assert stored is not None
    listing = Listing(session, unfinished=True)
    await store.commit(StoredCommit(session, owner.id, stored.sequence, stored.sequence + 1, b"{}", listing))
    await store.retire(owner.id)


async def test_a_broken_session_hinders_no_other() -> None:
    """A session whose checkpoint cannot be read is reported and left, and the others are driven."""
    store = MemoryStore()
    async with Client(store) as client:
        async with Engine(agent(), store) as engine:
            await engine.session("a").run("pay", check=False)
        await spoil(store, "a")
        await client.session("b").send("pay one")
        async with Engine(agent(), store) as engine, trio.open_nursery() as nursery:
            nursery.start_soon(engine.serve)
            await until(client, "b", ApprovalRequested)
            nursery.cancel_scope.cancel()


WORKER = """
import sys, trio
from turnstate import Agent, Engine, SQLiteStore, tool
from turnstate.testing import ScriptedCall, ScriptedModel, call

@tool(on_crash="rerun")
async def work(name: str) -> str:
    with open(sys.argv[2], "a") as file:
        file.write(f"{name}\\n")
    print("began", flush=True)
    if sys.argv[3] == "hang":
        await trio.sleep_forever()
    return "worked"

def reply(request):
    return "done" if request.messages[-1].role == "tool" else call("work", name=request.session)

async def main():
    agent = Agent(ScriptedModel(reply), tools=[work])
    async with Engine(agent, SQLiteStore(sys.argv[1]), grace=1) as engine:
        print("ready", flush=True)
        await engine.serve(interval=0.02)
    print("left", flush=True)

trio.run(main)
"""


def worker(folder: Path, how: str) -> subprocess.Popen[bytes]:
    """Start a worker process."""
    program = folder / "worker.py"
    program.write_text(textwrap.dedent(WORKER))
    command = [sys.executable, str(program), str(folder / "t.db"), str(folder / "effects"), how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def began(process: subprocess.Popen[bytes]) -> None:
    """Wait until a tool has begun in a worker."""
    assert process.stdout is not None
    assert process.stdout.readline() == b"began\n"


async def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    """The session of a worker that was killed in a tool is taken over by another and ends."""
    async with Client(SQLiteStore(tmp_path / "t.db")) as client:
        await client.session("a").send("go")
        first = await trio.to_thread.run_sync(worker, tmp_path, "hang")
        try:
            await trio.to_thread.run_sync(began, first)
            second = await trio.to_thread.run_sync(worker, tmp_path, "work")
        finally:
            first.send_signal(signal.SIGKILL)
            first.communicate()
        try:
            assert await ended(client, "a") == "completed"
        finally:
            second.kill()
            second.communicate()
    assert (tmp_path / "effects").read_text().splitlines() == ["a", "a"]


async def test_sigterm_ends_a_worker_with_grace(tmp_path: Path) -> None:
    """SIGTERM makes a worker leave in order, its running turn suspended and not aborted."""
    async with Client(SQLiteStore(tmp_path / "t.db")) as client:
        await client.session("a").send("go")
        process = await trio.to_thread.run_sync(worker, tmp_path, "hang")
        await trio.to_thread.run_sync(began, process)
        os.kill(process.pid, signal.SIGTERM)
        with trio.fail_after(20):
            out, _ = await trio.to_thread.run_sync(process.communicate)
        info = await client.session("a").info()
    assert (process.returncode, out) == (0, b"left\n")
    assert (info.state, info.unfinished) == ("executing-tools", True)
