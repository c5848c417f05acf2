"""Functions in threads under load: shares of sessions, time that is counted, what never began, what was left behind."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing

from turnstate import Agent, Engine, Limits, MemoryStore, ModelRequest, Reply, Result, Text, tool
from turnstate import threads as threads_module
from turnstate.states import ToolCall
from turnstate.testing import ScriptedModel
from turnstate.threads import Place, ThreadList


class Hung:
    """Functions that hang until they are let go."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.begun = 0

    def hang(self) -> str:
        """Hang."""
        self.begun += 1
        self.release.wait(20)
        return "free"


@contextmanager
def hung() -> Generator[Hung]:
    """Let them go at the end, whatever happens."""
    found = Hung()
    try:
        yield found
    finally:
        found.release.set()


def quick() -> str:
    """Be quick."""
    return "quick"


def asks_for(name: str, count: int) -> Callable[[ModelRequest], Reply]:
    """Asks for one tool, so often at once, then is done; the sessions called ``good...`` ask for ``quick`` alone."""

    def script(request: ModelRequest) -> Reply:
        if request.messages[-1].role == "tool":
            return Reply((Text("done"),))
        if request.session.startswith("good"):
            return Reply((ToolCall("", "quick", "{}"),), "tool-calls")
        return Reply(tuple(ToolCall("", name, "{}") for _ in range(count)), "tool-calls")

    return script


def engine_for(count: int, *tools: Any, name: str = "hang", limits: Limits | None = None) -> Engine:
    """An engine whose model asks for a tool so often."""
    agent = Agent(ScriptedModel(asks_for(name, count)), tools=[*tools, quick], limits=limits or Limits())
    return Engine(agent, MemoryStore(), grace=5)


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - functions in threads set no event of trio
            await trio.sleep(0.005)


@pytest.mark.trio
async def test_hung_functions_of_some_sessions_stop_no_other() -> None:
    """Sessions with 50 hung functions each take their share, however many they are; the tools of others run."""
    with hung() as functions:
        async with engine_for(50, tool(functions.hang)) as engine:
            for number in range(5):
                await engine.session(f"bad{number}").send("go")
            await until(lambda: functions.begun == threads_module.POOL + 5 * threads_module.OWN)
            with trio.fail_after(10):
                for number in range(3):
                    assert (await engine.session(f"good{number}").run("go")).calls[0].status == "ok"
            assert functions.begun == len(engine.threads.running) == threads_module.POOL + 5 * threads_module.OWN
            functions.release.set()


ENDS: dict[str, Limits] = {"interrupt": Limits(), "supersede": Limits(), "limit": Limits(seconds=0.3)}


@pytest.mark.trio
@pytest.mark.parametrize("end", ENDS)
async def test_what_never_began_was_not_run(end: str) -> None:
    """However a turn ends, a call that waited for a thread is not-run, and one whose function began is unknown."""
    with hung() as functions:
        async with engine_for(5, tool(functions.hang), limits=ENDS[end]) as engine:
            engine.threads = ThreadList(pool=0, own=2)
            session = engine.session("bad")
            async with session.turn("go") as turn:
                await until(lambda: functions.begun == 2)
                if end == "interrupt":
                    await session.interrupt()
                elif end == "supersede":
                    await session.send("other", delivery="supersede")
                result = await turn.result(check=False)
            functions.release.set()
            assert sorted(call.status for call in result.calls) == ["not-run"] * 3 + ["unknown"] * 2
            await session.interrupt()
    assert functions.begun in (2, 4)  # those of the turn that superseded it, perhaps


@pytest.mark.deep
@pytest.mark.trio
async def test_time_in_the_queue_does_not_count() -> None:
    """Five calls that run one after the other each have the whole of their tool's time."""

    @tool(timeout=2)
    def work() -> str:
        """Work for a while."""
        threading.Event().wait(0.5)
        return "ok"

    async with engine_for(5, work, name="work") as engine:
        engine.threads = ThreadList(pool=0, own=1)
        result = await engine.session("s").run("go")
    assert [call.status for call in result.calls] == ["ok"] * 5


@pytest.mark.trio
async def test_a_timeout_gives_the_place_to_the_next() -> None:
    """A function that hangs is unknown after its tool's time, and those that waited for its place begin then."""
    with hung() as functions:
        async with engine_for(3, tool(timeout=0.1)(functions.hang)) as engine:
            engine.threads = ThreadList(pool=0, own=1)
            result = await engine.session("s").run("go")
            assert [call.status for call in result.calls] == ["unknown"] * 3
            assert len(engine.threads.running) == functions.begun == 3
            functions.release.set()


@pytest.mark.trio
async def test_too_many_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose functions hang gets no further threads before some of them end; others do, and it is told why."""
    monkeypatch.setattr(threads_module, "LEFT", 3)
    with hung() as functions:
        async with engine_for(4, tool(timeout=0.05)(functions.hang)) as engine:
            engine.threads = ThreadList(pool=0, own=3)

            async def run() -> Result[str]:
                return await engine.session("s").run("go")

            assert [call.status for call in (await run()).calls] == ["unknown"] * 3 + ["unknown"]
            again = await run()
            assert [call.status for call in again.calls] == ["not-run"] * 4
            told = [result.text for message in again.messages for result in message.results]
            assert all("still run" in text for text in told)
            assert functions.begun == 4
            assert (await engine.session("good").run("go")).calls[0].status == "ok"
            functions.release.set()
            await until(lambda: not engine.threads.running)
            assert [call.status for call in (await run()).calls] == ["ok"] * 4


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(20))
async def test_places(seed: int) -> None:
    """Whatever comes, goes and gives up: nobody has more than a share, who may have a place has one, and all get one."""
    chance = random.Random(seed)
    threads = ThreadList(pool=4, own=1, most=3)
    held: list[tuple[str, Place]] = []
    waiting: list[tuple[str, trio.CancelScope]] = []

    async def enter(session: str, scope: trio.CancelScope) -> None:
        with scope:
            place = await threads.enter(session)
            assert place is not None
            held.append((session, place))
        waiting.remove((session, scope))

    async with trio.open_nursery() as nursery:
        for step in range(400):
            action = chance.random()
            if action < 0.5 and step < 300:
                name, scope = f"s{chance.randrange(6)}", trio.CancelScope()
                waiting.append((name, scope))
                nursery.start_soon(enter, name, scope)
            elif action < 0.6 and waiting:
                chance.choice(waiting)[1].cancel()
            elif held:
                _, place = held.pop(chance.randrange(len(held)))
                place.give_back()
                place.give_back()
            if chance.random() < 0.5:
                continue  # several of them in one instant
            await trio.testing.wait_all_tasks_blocked()
            counts = Counter(name for name, _ in held)
            shared = sum(count - 1 for count in counts.values() if count)
            assert shared <= 4
            assert max(counts.values(), default=0) <= 4
            for name in {name for name, _ in waiting}:
                assert counts[name] >= 1
                assert shared == 4 or counts[name] == 4
        while held:
            held.pop()[1].give_back()
            await trio.testing.wait_all_tasks_blocked()
    assert not waiting
    assert not threads._waiting  # pyright: ignore[reportPrivateUsage]
    assert not threads._taken  # pyright: ignore[reportPrivateUsage]
    assert threads._shared == 0  # pyright: ignore[reportPrivateUsage]


@pytest.mark.trio
async def test_given_up_in_the_instant_it_begins() -> None:
    """A function that is cancelled before its thread came to begin never runs, is not listed, and has not begun."""
    ran: list[str] = []
    threads = ThreadList()
    with trio.CancelScope() as scope:
        scope.cancel()
        await threads.run("s", "f", lambda: ran.append("ran"), lambda: ran.append("began"))
    assert (ran, threads.running) == ([], [])


@pytest.mark.trio
async def test_interrupted_in_the_instant_it_begins() -> None:
    """A call that has its place and whose thread did not come to begin is not-run when its turn is interrupted."""
    with hung() as functions:
        async with engine_for(1, tool(functions.hang)) as engine:
            engine.threads._unlimited = slow = trio.CapacityLimiter(1)  # pyright: ignore[reportPrivateUsage]
            await slow.acquire_on_behalf_of("another")
            session = engine.session("bad")
            async with session.turn("go") as turn:
                await until(lambda: engine.threads.running)
                await trio.testing.wait_all_tasks_blocked()
                await session.interrupt()
                result = await turn.result(check=False)
            assert [call.status for call in result.calls] == ["not-run"]
            assert (functions.begun, engine.threads.running) == (0, [])
