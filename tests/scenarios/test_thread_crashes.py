"""Threads whose process ends: between a turn and its hooks, at each commit, by SIGKILL."""

from __future__ import annotations

import copy
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.depth import PART, counted, until
from tests.engine.helpers import Gate, engine_of
from tests.engine.killed import Place
from tests.scenarios.common import log_of, names
from tests.scenarios.killed_thread import run
from tests.scenarios.threads import Desk, ids, lines, status, waiting
from turnstate import (
    Agent,
    CallSettled,
    Client,
    Engine,
    MemoryStore,
    Middleware,
    Refused,
    SessionHandle,
    SQLiteStore,
    Store,
    StoreError,
    Switched,
    TurnContext,
    TurnEnded,
)
from turnstate.testing import FaultyStore, ScriptedModel, call, crashes

ROOT = Path(__file__).parents[2]


class Closing(Middleware[Any]):
    """Stops when a turn has ended."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.seen: list[str] = []

    async def turn_ended(self, ctx: TurnContext[Any]) -> None:
        self.seen.append(f"{ctx.turn_id} {ctx.outcome}")
        if len(self.seen) == 1:
            await self.gate.wait()


Change = Callable[[SessionHandle], Awaitable[Any]]
PENDING: dict[str, tuple[Change, list[str]]] = {
    "edit": (lambda handle: handle.edit("m1", "else", id="mine"), ["user: else (2/2)", "assistant: two"]),
    "regenerate": (lambda handle: handle.regenerate(id="mine"), ["user: go", "assistant: two (2/2)"]),
    "switch": (
        lambda handle: handle.switch("m1", id="mine"),
        ["user: go", "assistant: ", "tool: not run: superseded by a switch to another branch"],
    ),
    "delete": (lambda handle: handle.delete_message("m2", id="mine"), ["user: go"]),
}


@pytest.mark.trio
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("name", list(PENDING))
async def test_a_change_waits_for_the_hooks_of_the_turn_it_ends(name: str, crash: bool) -> None:
    """A change that ends a waiting turn is accepted with that end, and made when the hooks after it are done, once,
    also where the process died in between; meanwhile another change is refused."""
    desk, store, hooks = Desk(), MemoryStore(), Closing()
    change, expected = PENDING[name]
    async with engine_of(call("pay"), "two", tools=desk.tools, store=store, middleware=[hooks]) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        receipt = await change(session)
        assert (receipt.turn, receipt.duplicate) == ("", False)
        await hooks.gate.reached.wait()
        assert await waiting(session) == []
        assert status(await session.thread()) == "incomplete/cancelled"
        assert (await change(session)).duplicate
        with pytest.raises(Refused) as refused:
            await session.switch("m1")
        assert refused.value.code == "busy"
        if not crash:
            hooks.gate.open.set()
            await trio.testing.wait_all_tasks_blocked()
    async with engine_of("two", store=store, tools=desk.tools, middleware=[hooks]) as engine:
        session = engine.session("s")
        await engine.drive("s")
        await trio.testing.wait_all_tasks_blocked()
        assert (await change(session)).duplicate
        assert lines(await session.thread()) == expected
    assert hooks.seen[0] == "t1 superseded"
    turns = [event for event in await log_of(store) if isinstance(event, TurnEnded)]
    assert [event.turn for event in turns] == (["t1", "t2"] if name in ("edit", "regenerate") else ["t1"])


@pytest.mark.trio
async def test_a_held_turn_that_edits_waits_for_the_hooks() -> None:
    """Whoever holds the turn of an edit that ends a waiting turn gets its result, though it begins only after hooks."""
    desk, hooks = Desk(), Closing()
    async with engine_of(call("pay"), "two", tools=desk.tools, middleware=[hooks]) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        async with session.turn("else", edits="m1", id="mine") as turn:
            await hooks.gate.reached.wait()
            assert turn.id == ""
            async with session.turn("else", edits="m1", id="mine") as same:
                hooks.gate.open.set()
                assert (await turn.result()).text == (await same.result()).text == "two"
            assert turn.id == same.id == "t2"


@pytest.mark.trio
async def test_an_engine_that_was_closed_and_opened(tmp_path: Path) -> None:
    """A thread with branches, marks, a pause and a name is after each restart what it was, and goes on from there."""
    desk = Desk()
    path = tmp_path / "turns.db"
    script = ["one", "two", [call("pay"), call("ask")]]
    async with engine_of(*script, tools=desk.tools, store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        await session.run("first")
        await session.run("first!", edits="m1")
        await session.annotate("m1", {"left": True})
        await session.rename("A thread")
        await session.run("more", check=False)
        before = (await session.thread(), await session.info(), await session.export())
    for _ in range(2):
        async with engine_of(tools=desk.tools, store=SQLiteStore(path)) as engine:
            session = engine.session("s")
            assert (await session.thread(), await session.info(), await session.export()) == before
            async with session.resume() as turn:
                await turn.result(check=False)
            assert (await session.thread(), await session.export()) == (before[0], before[2])
    async with engine_of("done", tools=desk.tools, store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        paid, asked = await waiting(session)
        async with session.resume() as turn:
            await session.approve(paid)
            await session.provide(asked, 1)
            await turn.result()
        await session.switch("m2")
        assert lines(await session.thread()) == ["user: first (1/2)", "assistant: one"]
        assert (await session.thread()).messages[0].message.metadata == {"left": True}


def reply(request: Any) -> Any:
    """A reply by what the request holds."""
    return "done" if request.messages[-1].role == "tool" else ["so", call("pay"), call("look")]


@pytest.mark.trio
async def test_a_turn_in_a_branched_thread_survives_a_crash_at_each_commit() -> None:
    """Wherever a turn in a thread with branches is cut off, it ends, the branches are as before, and the stored log is
    what the thread shows."""
    seeded = MemoryStore()
    async with engine_of("one", "two", "three", store=seeded) as engine:
        session = engine.session("crashes")
        await session.run("first")
        await session.run("first!", edits="m1")
        async with session.retry() as turn:
            await turn.result()
        await session.switch("m4")
    desk = Desk()
    agent = Agent[None](ScriptedModel(reply), tools=desk.tools)
    rounds = 0
    async for crash in crashes(agent, "go", store=lambda: copy.deepcopy(seeded)):
        desk.did.clear()
        result = await crash.finish()
        assert result.outcome == "completed"
        assert desk.did.count("pay 1") <= 1
        async with Client(crash.store) as client:
            handle = client.session("crashes")
            view = await handle.thread()
            assert lines(view)[:3] == ["user: first! (2/2)", "assistant: two (1/2)", "user: go"]
            assert status(view) == "complete/stop"
            assert [found.text for found in await handle.branches("m4")] == ["two", "three"]
            events = await log_of(crash.store, "crashes")
            assert [event.number for event in events] == list(range(1, view.last_event + 1))
        rounds += 1
    assert rounds > 8


async def change_all(store: Store) -> None:
    """Make a thread and change it in each way; each change has an id and may be made again."""
    model = ScriptedModel(lambda request: f"to {request.messages[-1].text}")
    async with Engine(Agent(model), store) as engine:
        session = engine.session("s")
        async with session.turn("first", id="first") as turn:
            await turn.result()
        async with session.turn("first!", edits="m1", id="edit") as turn:
            await turn.result()
        async with session.retry("m4", id="regenerate") as turn:
            await turn.result()
        await session.switch("m2", id="switch")
        await session.annotate("m2", {"good": True}, id="annotate")
        await session.delete_message("m3", id="delete")


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_changes_survive_a_crash_at_each_commit(when: Any) -> None:
    """Whichever commit fails, written or not, the changes that are sent again with their ids are made once, and the
    thread is in the end the same."""
    failed = 0
    for at in range(1, 40):
        store = MemoryStore()
        faulty = FaultyStore(store, at, when)
        try:
            await change_all(faulty)
        except StoreError:
            failed += 1
        await change_all(store)
        async with Client(store) as client:
            handle = client.session("s")
            assert lines(await handle.thread()) == ["user: first (1/3)", "assistant: to first"]
            assert [found.text for found in await handle.branches("m1")] == ["first", "to first!", "to first!"]
            assert (await handle.messages())[-1].metadata == {"good": True}
        log = await log_of(store)
        assert [event.outcome for event in log if isinstance(event, TurnEnded)] == ["completed"] * 3
        assert [event.number for event in log] == list(range(1, len(log) + 1))
        if faulty.commits < at:
            break
    assert failed == 9


@pytest.mark.trio
async def test_the_ids_of_a_thread_are_never_used_again() -> None:
    """Ids of messages that were deleted, and of marks, are not given again, also after a restart."""
    store = MemoryStore()
    seen: list[str] = []
    for _ in range(3):
        async with engine_of("one", store=store) as engine:
            session = engine.session("s")
            await session.run("go")
            seen += ids((await session.messages())[-2:])
            await session.annotate(seen[-1], {"a": 1})
            for name in seen[-2:]:
                await session.delete_message(name)
    assert len(set(seen)) == 6
    assert seen == sorted(seen, key=lambda name: int(name[1:]))


def kill_at(directory: Path, place: str) -> bool:
    """Run the program up to a commit and kill it there; False if it came to its end before."""
    command = [sys.executable, "-m", "tests.scenarios.killed_thread", str(directory), place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        counted("kills")
        assert line in ("there\n", "done\n"), "the program failed"
        return line == "there\n"


def test_a_thread_that_is_killed_at_each_commit(tmp_path: Path) -> None:
    """A thread that is branched, answered from outside, marked, named by a command and cut: killed with SIGKILL before
    or after each commit in turn and made on, it is in the end the same thread, and every change was made once (cases
    36, 83, 90)."""
    number = 0
    for number in until(60, step=2, part=PART + 1):
        directory = tmp_path / str(number)
        directory.mkdir()
        killed = kill_at(directory, f"{'before' if number % 4 == 1 else 'after'}:{number}")
        assert trio.run(run, Place(directory, "-")) == ["first", "", "sent by post", "42", "sent by post; 42"]
        log = trio.run(log_of, SQLiteStore(directory / "turns.db"))
        check_log(log)
        effects = (directory / "effects").read_text().splitlines()
        for effect in ("send", "note", *(f"ended t{at} {how}" for at, how in enumerate(OUTCOMES, 1))):
            assert effects.count(effect) in ((1, 2) if killed else (1,)), effect
        if not killed:
            break
    assert number > 15


def check_log(log: list[Any]) -> None:
    """What the log of the whole thread says, wherever it was cut off."""
    assert [event.number for event in log] == list(range(1, len(log) + 1))
    assert [event.outcome for event in log if isinstance(event, TurnEnded)] == OUTCOMES
    told = names(log)
    once = ("Deleted", "Annotated", "CommandAccepted", "CommandEnded", "SessionChanged")
    assert {name: told.count(name) for name in once} == dict.fromkeys(once, 1)
    assert [event.why for event in log if isinstance(event, Switched)] == ["edit", "edit", "regenerate", "switch"]
    settled = [event.call for event in log if isinstance(event, CallSettled)]
    assert sorted((call.tool, call.status) for call in settled) == [("ask", "ok"), ("ask", "unknown"), ("send", "ok")]


OUTCOMES = ["completed", "superseded", "completed", "completed"]
