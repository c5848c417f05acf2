"""Leaving the engine."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, GatedModel, StrictModel, engine_of, requests_of, result_texts
from turnstate import (
    Agent,
    Engine,
    MemoryStore,
    Middleware,
    SQLiteStore,
    StepContext,
    StoreError,
    TurnFailed,
    tool,
)
from turnstate.stores.base import Owner, StoredCommit
from turnstate.testing import FaultyStore, ScriptedModel, call

Clock = trio.testing.MockClock


@pytest.mark.trio
async def test_grace(autojump_clock: Clock) -> None:
    """A running tool gets its grace and its result is kept; nothing starts; the next engine goes on."""
    done: list[str] = []
    gate = Gate()

    @tool
    async def slow() -> str:
        gate.reached.set()
        await trio.sleep(8)
        done.append("slow")
        return "slow"

    @tool(exclusive=True)
    async def alone() -> str:
        done.append("alone")
        return "alone"

    store = MemoryStore()
    async with engine_of([call("slow"), call("alone")], tools=[slow, alone], store=store) as engine:
        await engine.session("s").send("go")
        await gate.reached.wait()
        start = trio.current_time()
    assert trio.current_time() - start == pytest.approx(8, abs=0.1)
    assert done == ["slow"]
    async with engine_of("ok", tools=[slow, alone], store=store) as engine:
        async with engine.session("s").resume() as turn:
            assert (await turn.result()).text == "ok"
        assert result_texts(requests_of(engine)[0]) == ["slow", "alone"]
    assert done == ["slow", "alone"]


@pytest.mark.trio
async def test_past_grace(autojump_clock: Clock) -> None:
    """A tool that takes longer is cancelled after the grace, and unknown after that."""
    gate = Gate()

    @tool
    async def slow() -> None:
        await gate.wait()

    store = MemoryStore()
    async with engine_of(call("slow"), tools=[slow], store=store) as engine:
        await engine.session("s").send("go")
        await gate.reached.wait()
        start = trio.current_time()
    assert trio.current_time() - start == pytest.approx(10, abs=0.1)
    async with engine_of("ok", tools=[slow], store=store) as engine, engine.session("s").resume() as turn:
        assert (await turn.result()).calls[0].status == "unknown"


@pytest.mark.trio
async def test_shielding_tool(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """A tool that shields itself is named in a warning and waited for, since nobody can end a task."""
    gate = Gate()

    @tool
    async def stubborn() -> None:
        gate.reached.set()
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    with caplog.at_level(logging.WARNING, "turnstate"):
        async with engine_of(call("stubborn"), tools=[stubborn]) as engine:
            await engine.session("s").send("go")
            await gate.reached.wait()
            start = trio.current_time()
    assert trio.current_time() - start == pytest.approx(100, abs=0.1)
    assert "of stubborn did not end" in caplog.text


@pytest.mark.trio
async def test_open_turns_do_not_hold_up_closing(autojump_clock: Clock) -> None:
    """Requests, hooks, back-offs and waits for people are suspended at once."""
    gate = Gate()

    class Slow(Middleware[None]):
        async def before_model(self, ctx: StepContext[None]) -> None:
            await gate.wait()

    @tool(approval=True)
    async def asked() -> None:
        """Ask."""

    model = GatedModel("x")
    start = trio.current_time()
    async with Engine(Agent(model), MemoryStore()) as engine:
        await engine.session("s").send("go")
        await model.gate.reached.wait()
    async with engine_of(middleware=[Slow()]) as engine:
        await engine.session("s").send("go")
        await gate.reached.wait()
    async with engine_of(call("asked"), tools=[asked]) as engine:
        await engine.session("s").run("go", check=False)
    assert trio.current_time() - start < 1


@pytest.mark.trio
async def test_body_exception_passes() -> None:
    """What the host's own code raises passes unchanged: the same object, no group."""
    error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError) as caught:  # noqa: PT012 - the block is what is tested
        async with engine_of("x") as engine:
            await engine.session("s").run("go")
            raise error
    assert caught.value is error


@pytest.mark.trio
async def test_failure_of_a_turn_is_one_exception() -> None:
    """One failure is one exception, never a group."""
    with pytest.raises(TurnFailed):
        async with engine_of(ValueError("x")) as engine:
            await engine.session("s").run("go")


@pytest.mark.trio
async def test_cancelled_body(autojump_clock: Clock) -> None:
    """A host that is cancelled leaves at once but for the grace of running tools, and its cancellation passes."""
    gate = Gate()
    done: list[int] = []

    @tool
    async def slow() -> None:
        gate.reached.set()
        await trio.sleep(6)
        done.append(1)

    store = MemoryStore()
    with trio.move_on_after(1) as scope:
        async with engine_of(call("slow"), tools=[slow], store=store) as engine:
            await engine.session("s").run("go")
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(6, abs=0.1)
    assert done == [1]
    async with engine_of("ok", tools=[slow], store=store) as engine, engine.session("s").resume() as turn:
        assert (await turn.result()).text == "ok"


@pytest.mark.trio
async def test_cancelled_nursery_in_body() -> None:
    """Cancellation of several tasks in the block passes as cancellation, also where a tool stops the host."""

    @tool
    async def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the block is what is tested
        async with engine_of(call("stop"), tools=[stop]) as engine, trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)
            await engine.session("s").send("go")


def open_files() -> int:
    """How many files are open, where the system tells."""
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


class Tasks(trio.abc.Instrument):
    """Counts the tasks that live."""

    def __init__(self) -> None:
        self.alive = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.alive += 1

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.alive -= 1


@pytest.mark.trio
async def test_nothing_is_left(tmp_path: Path) -> None:
    """After the engine no task, thread of a tool or file is left (case 112)."""
    gate = Gate()

    @tool
    async def slow() -> None:
        await gate.wait()

    @tool
    def quick() -> None:
        """In a thread."""

    async def round_trip(name: str) -> None:
        engine = engine_of([call("slow"), call("quick")], tools=[slow, quick], store=SQLiteStore(tmp_path / name))
        engine.grace = 0
        async with engine, engine.session("s").turn("go"):
            await gate.reached.wait()

    await round_trip("warm-up.db")
    tasks = Tasks()
    trio.lowlevel.add_instrument(tasks)
    files = open_files()
    threads = {thread.name for thread in threading.enumerate()}
    await round_trip("turns.db")
    trio.lowlevel.remove_instrument(tasks)
    assert tasks.alive == 0
    assert open_files() == files
    assert not [
        name for name in {t.name for t in threading.enumerate()} - threads if "slow" in name or "turnstate" in name
    ]


@pytest.mark.trio
async def test_closed_engine_refuses() -> None:
    """A closed engine refuses to drive, and can be opened again."""
    engine = engine_of("x", "y")
    session = engine.session("s")
    with pytest.raises(StoreError, match="async with Engine"):
        await session.run("go")
    for text in ("x", "y"):
        async with engine:
            assert (await session.run("go")).text == text
        with pytest.raises(StoreError, match="async with Engine"):
            await session.run("go")


class SlowStore(FaultyStore):
    """Holds commits, or claims, at a gate."""

    def __init__(self, hold_claim: bool = False, hold_commit: int = 0) -> None:
        super().__init__(MemoryStore())
        self.gate = Gate()
        self.hold_claim = hold_claim
        self.hold_commit = hold_commit

    async def claim(self, session: str, owner: Owner, now: float) -> None:
        await super().claim(session, owner, now)
        if self.hold_claim:
            with trio.CancelScope(shield=True):
                await self.gate.wait()

    async def commit(self, commit: StoredCommit) -> None:
        if self.commits + 1 == self.hold_commit:
            with trio.CancelScope(shield=True):
                await self.gate.wait()
        await super().commit(commit)


@pytest.mark.trio
async def test_left_while_a_session_opens() -> None:
    """A session that was just being opened when the engine was left is not driven, and is free again."""
    store = SlowStore(hold_claim=True)
    errors: list[StoreError] = []

    async def run(engine: Engine[None]) -> None:
        try:
            await engine.session("s").run("go")
        except StoreError as error:
            errors.append(error)

    async with store, trio.open_nursery() as nursery:
        async with engine_of("x", store=store) as engine:
            nursery.start_soon(run, engine)
            await store.gate.reached.wait()
        store.gate.open.set()
    assert len(errors) == 1
    store.hold_claim = False
    async with engine_of("x", store=store) as engine:
        assert (await engine.session("s").run("go")).text == "x"


@pytest.mark.trio
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_left_while_a_commit_is_written(at: int) -> None:
    """A commit that is being written when the engine is left is finished; no request begins after that."""
    store = SlowStore(hold_commit=at)
    done: list[int] = []

    @tool
    async def it() -> str:
        done.append(1)
        return "done"

    async def let_go() -> None:
        await trio.testing.wait_all_tasks_blocked()
        store.gate.open.set()

    async def send(engine: Engine[None]) -> None:
        await engine.session("s").send("go")

    async with store, trio.open_nursery() as nursery:
        async with engine_of(call("it"), "ok", tools=[it], store=store) as engine:
            nursery.start_soon(send, engine)
            await store.gate.reached.wait()
            before = len(requests_of(engine))
            nursery.start_soon(let_go)
        assert len(requests_of(engine)) == before
    model = StrictModel(lambda request: call("it") if len(request.messages) == 1 else "ok")
    async with Engine(Agent(model, tools=[it]), store) as engine, engine.session("s").resume() as turn:
        assert (await turn.result()).text == "ok"
    assert done == [1]


@pytest.mark.trio
async def test_commit_fails_while_closing() -> None:
    """A commit that fails while the engine is left is no error of the host's block, and the turn can be resumed."""
    gate = Gate()

    @tool
    async def it() -> str:
        gate.reached.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        return "done"

    inner = MemoryStore()
    async with engine_of(call("it"), tools=[it], store=FaultyStore(inner, fail_at=3)) as engine:
        await engine.session("s").send("go")
        await gate.reached.wait()
    async with engine_of("ok", tools=[it], store=inner) as engine, engine.session("s").resume() as turn:
        assert (await turn.result()).calls[0].status == "unknown"


@pytest.mark.trio
async def test_senders_hear_when_a_commit_fails() -> None:
    """Everybody who waits for a receipt or a turn hears when a commit fails, and the same id can be sent again."""

    class Full(FaultyStore):
        full = True

        async def commit(self, commit: StoredCommit) -> None:
            if self.full:
                await trio.testing.wait_all_tasks_blocked()
                raise StoreError("the disk is full")
            await super().commit(commit)

    store = Full(MemoryStore())
    async with engine_of("x", store=store) as engine:
        session = engine.session("s")
        errors: list[StoreError] = []

        async def send(id: str) -> None:
            try:
                await session.send("go", id=id)
            except StoreError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(send, f"id{number}")
        assert len(errors) == 100
        store.full = False
        async with session.turn("go", id="id0") as turn:
            assert (await turn.result()).text == "x"


@pytest.mark.trio
async def test_receipts_cannot_be_read() -> None:
    """Senders hear when their receipt could not even be looked up; nobody waits for ever."""

    class Broken(FaultyStore):
        broken = True

        async def receipt(self, session: str, id: str) -> bytes | None:
            if self.broken:
                raise StoreError("the disk is gone")
            return await super().receipt(session, id)

    store = Broken(MemoryStore())
    async with Engine(Agent(ScriptedModel(["x"])), store) as engine:
        session = engine.session("s")
        errors: list[StoreError] = []

        async def send(id: str) -> None:
            try:
                await session.send("go", id=id)
            except StoreError as error:
                errors.append(error)

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(send, f"id{number}")
        assert len(errors) == 5
        store.broken = False
        assert (await session.run("go")).text == "x"
