"""The store fails, or an interrupt comes, at each commit of a rich turn."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import trio
import trio.testing

from tests.depth import PART, counted, pick, places
from tests.engine.helpers import StrictModel, said, strict
from turnstate import (
    Agent,
    ApprovalRequested,
    Engine,
    Limits,
    MemoryStore,
    Middleware,
    ModelError,
    ModelRequest,
    Refused,
    Reply,
    Result,
    Session,
    StepContext,
    Store,
    StoreError,
    TurnContext,
    TurnEnded,
    tool,
)
from turnstate.models.base import OnDelta
from turnstate.reading import load, read_events
from turnstate.states import SETTLED
from turnstate.stores.base import StoredCommit
from turnstate.testing import FaultyStore, call


class Hooks(Middleware[Any]):
    """All three hooks, each with an effect."""

    async def before_model(self, ctx: StepContext[Any]) -> None:
        ctx.request.add("it is Monday")
        if ctx.step == 1 and ctx.attempt == 1:
            ctx.add_message("a word for good")

    async def after_model(self, ctx: StepContext[Any]) -> None:
        ctx.tell("reviewed", ctx.step)

    async def turn_ended(self, ctx: TurnContext[Any]) -> None:
        ctx.tell("closing", ctx.outcome)


class World:
    """A turn with everything in it: approval, two tools one of them exclusive, a retry, a steer, hooks."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.rerun: list[str] = []
        self.requests: list[ModelRequest] = []
        self.session: Session | None = None
        self.broke = False
        self.steered = False

        @tool(approval=True)
        async def charge(amount: int) -> str:
            self.effects.append(f"charge {amount}")
            await trio.lowlevel.checkpoint()
            return "charged"

        @tool(exclusive=True, on_crash="rerun")
        async def note() -> str:
            self.rerun.append("note")
            if not self.steered and self.session is not None:
                self.steered = True
                await self.session.send("and be quick", delivery="steer", id="steer")
            return "noted"

        self.tools: list[Any] = [charge, note]

    def asked(self) -> int:
        """How many requests its first turn made; a steer that comes after an interrupt starts another."""
        return len([request for request in self.requests if request.attempt.startswith("t1.")])

    def agent(self) -> Agent[None]:
        """An agent that behaves by what the request holds, so that it goes on where it stood."""
        world = self

        class Model(StrictModel):
            async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
                world.requests.append(request)
                return await super().respond(request, on_delta)

        def reply(request: ModelRequest) -> Any:
            if any(message.role == "tool" for message in request.messages):
                return "done"
            if not self.broke:
                self.broke = True
                return ModelError("busy", retryable=True)
            return ["I will charge", call("charge", amount=5), call("note")]

        return Agent[None](Model(reply), tools=self.tools, middleware=[Hooks()], limits=Limits(resumptions=10))

    async def drive(self, store: Store) -> Result[str]:
        """Run the turn, or go on with it, answering what it asks."""
        async with Engine(self.agent(), store) as engine:
            session = self.session = engine.session("s")
            try:
                manager = session.turn("go", id="go")
                async with manager as turn:
                    while (result := await turn.result(check=False)).outcome == "waiting":
                        for waiting in result.waiting:
                            await session.approve(waiting.id)
                    return result
            finally:
                self.session = None


async def commits_of_the_turn() -> int:
    """How many commits the whole turn has."""
    store = FaultyStore(MemoryStore())
    world = World()
    result = await world.drive(store)
    assert (result.outcome, result.text, world.effects, world.rerun) == ("completed", "done", ["charge 5"], ["note"])
    assert len(world.requests) == 3
    return store.commits


async def check_log(store: Store) -> list[Any]:
    """The log is whole: numbers without gap, each turn, attempt and call with one start and one end."""
    async with store:
        events: list[Any] = list(await read_events(store, "s", 0))
        loaded = await load(store, "s")
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    keys: list[tuple[str, str, Callable[[Any], str]]] = [
        ("TurnStarted", "TurnEnded", lambda event: event.turn),
        ("StepStarted", "StepEnded", lambda event: event.attempt),
        ("CallProposed", "CallSettled", lambda event: event.call.id),
    ]
    for begins, ends, key in keys:
        began = [key(event) for event in events if type(event).__name__ == begins]
        ended = [key(event) for event in events if type(event).__name__ == ends]
        assert began == list(dict.fromkeys(began))
        assert sorted(ended) == sorted(began)
    assert loaded is not None
    if loaded[1].visible()[-1].role != "assistant":
        strict(loaded[1].visible())
    return events


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_store_fails_at_each_commit(
    when: Literal["before", "after"], autojump_clock: trio.testing.MockClock
) -> None:
    """The store failing at any commit stops the driver; a new engine ends the turn, and effects happen at most once
    (case 83)."""
    count = await commits_of_the_turn()
    assert count >= 10
    for at in places(count):
        world, inner = World(), MemoryStore()
        with trio.fail_after(1000):
            try:
                await world.drive(FaultyStore(inner, at, when))
            except StoreError:
                pass
            result = await world.drive(inner)
        assert result.outcome == "completed", at
        assert result.text == "done", at
        assert world.effects.count("charge 5") <= 1, at
        charged = next(found for found in result.calls if found.tool == "charge")
        assert charged.status in ("ok", "unknown"), at
        assert (charged.status == "unknown") or world.effects == ["charge 5"], at
        assert world.rerun, at
        await check_log(inner)
        texts = [text for request in world.requests[-1:] for text in said(request)]
        assert texts.count("go") == 1
        assert texts.count("a word for good") == 1
        assert texts.count("and be quick") <= 1


@pytest.mark.trio
async def test_store_fails_twice(autojump_clock: trio.testing.MockClock) -> None:
    """Two failures, at any two commits, change nothing of that."""
    count = await commits_of_the_turn()
    for first, second in itertools.product(range(1, count + 1, pick(5, 2)), range(1, 8, pick(3, 1))):
        counted("crashes")
        world, inner = World(), MemoryStore()
        for at in (first, second, None):
            try:
                result = await world.drive(FaultyStore(inner, at, "after" if (first + second) % 2 else "before"))
            except StoreError:
                continue
        assert result.outcome == "completed", (first, second)
        assert len(world.effects) <= 1, (first, second)
        await check_log(inner)


class Noting(FaultyStore):
    """Does something in the middle of its n-th commit: before or after it is written."""

    def __init__(self, store: Store, at: int, when: str, then: Callable[[], Any]) -> None:
        super().__init__(store)
        self.at = at
        self.late = when == "after"
        self.then = then

    async def commit(self, commit: StoredCommit) -> None:
        due = self.commits + 1 == self.at
        if due and not self.late:
            self.then()
        await super().commit(commit)
        if due and self.late:
            self.then()


@asynccontextmanager
async def interrupted_at(
    world: World, at: int, when: str
) -> AsyncGenerator[tuple[Engine[None], Session, list[int]], None]:
    """Run the turn, with an interrupt that is sent in the middle of a commit."""
    marks: list[int] = []
    inner = MemoryStore()

    async with trio.open_nursery() as nursery:

        async def interrupt(session: Session) -> None:
            if await session.interrupt():
                marks.append(world.asked())
                marks.append(len(world.effects) + len(world.rerun))

        sessions: list[Session] = []
        store = Noting(inner, at, when, lambda: nursery.start_soon(interrupt, sessions[0]))
        async with Engine(world.agent(), store) as engine:
            session = world.session = engine.session("s")
            sessions.append(session)

            async def answer() -> None:
                async with session.events() as stream:
                    async for event in stream:
                        if isinstance(event, ApprovalRequested):
                            try:
                                await session.approve(event.call)
                            except Refused:
                                pass
                        if isinstance(event, TurnEnded):
                            return

            nursery.start_soon(answer)
            async with session.turn("go") as turn:
                while (await turn.result(check=False)).outcome == "waiting":
                    await trio.testing.wait_all_tasks_blocked()  # until it was answered
            await trio.sleep(100)
            yield engine, session, marks


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_interrupt_at_each_commit(when: str, autojump_clock: trio.testing.MockClock) -> None:
    """After an interrupt is accepted no call and no request starts, and the next message works (cases 35, 58, 67)."""
    count = await commits_of_the_turn()
    seen = 0
    for at in places(count):
        world = World()
        async with interrupted_at(world, at, when) as (engine, session, marks):
            if marks:
                seen += 1
                assert [world.asked(), len(world.effects) + len(world.rerun)] == marks, at
            info = await session.info()
            assert not info.unfinished
            assert not info.waiting
            world.broke = True
            result = await session.run("what now?", check=False)
            if result.outcome == "waiting":
                async with session.resume() as turn:
                    await session.deny(*result.waiting, reason="no")
                    result = await turn.result()
            assert result.outcome == "completed", at
            store = engine.store
        assert isinstance(store, FaultyStore)
        for event in await check_log(store.store):
            if type(event).__name__ == "CallSettled":
                assert event.call.status in SETTLED
    assert seen > count // pick(2 * PART, 2)
