"""Agents as tools: a death, a fault of the store, an interrupt or a closing at each commit of all sessions."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import trio

from tests.depth import counted, pick, until
from tests.engine.helpers import StrictModel, strict
from tests.engine.test_faults import Noting
from tests.engine.test_nested import Clock, Till, WatchedStore, above, left_clean, speech
from turnstate import (
    Agent,
    Engine,
    Middleware,
    ModelRequest,
    Refused,
    Reply,
    Result,
    Session,
    StepContext,
    Store,
    StoreError,
    TurnContext,
    tool,
)
from turnstate.models.base import OnDelta
from turnstate.reading import load, read_events
from turnstate.stores.base import StoredCommit
from turnstate.testing import FaultyStore, ScriptedModel, call, crashes

NAMES = ("s", "s/m2.0", "s/m2.1", "s/m2.0/m2.0", "s/m2.1/m2.0")
When = Literal["before", "after"]


class Hooks(Middleware[Any]):
    """A hook before and one after."""

    async def before_model(self, ctx: StepContext[Any]) -> None:
        ctx.request.add("it is Monday")

    async def turn_ended(self, ctx: TurnContext[Any]) -> None:
        ctx.tell("closing", ctx.outcome)


class Family:
    """Two calls of an agent in one reply; it has tools, one of which asks, and another agent below it, which asks too."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.models: list[ScriptedModel] = []
        self.requests = 0

    def agent(self) -> Agent[Any]:
        """The same agent anew, as another process has it."""

        @tool(approval=True)
        async def pay(to: str) -> str:
            self.paid.append(to)
            await trio.lowlevel.checkpoint()
            return f"paid {to}"

        @tool(on_crash="rerun")
        async def note() -> str:
            return "noted"

        deepest = Agent[Any](self.model(call("pay", to="Ann"), "Ann is paid"), tools=[pay], middleware=[Hooks()])
        helper = deepest.as_tool("helper", "Helps.")
        lines = [call("helper", task="pay Ann"), call("pay", to="Bob"), call("note")], "done"
        middle = Agent[Any](self.model(*lines), tools=[helper, pay, note], middleware=[Hooks()])
        both = [call("helper", task="1"), call("helper", task="2"), call("note")]
        return Agent[Any](self.model(both, "thanks"), tools=[middle.as_tool("helper", "Helps."), note])

    def model(self, *lines: Any) -> ScriptedModel:
        """A model whose requests are looked at."""
        family = self

        class Counted(StrictModel):
            async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
                await trio.lowlevel.checkpoint()  # as one that has to connect first
                family.requests += 1
                return await super().respond(request, on_delta)

        self.models.append(Counted(speech(*lines)))
        return self.models[-1]

    async def check(self, store: Store) -> None:
        """What holds of the effects, the requests and all sessions, whatever happened."""
        assert self.paid.count("Ann") <= 2
        assert self.paid.count("Bob") <= 2
        for request in (request for model in self.models for request in model.requests):
            strict(request.messages)
        for name in NAMES:
            await check_session(store, name)


async def check_session(store: Store, name: str) -> None:
    """A child's session, if there is one, is over, and its log whole."""
    async with store:
        loaded = await load(store, name)
        events: list[Any] = list(await read_events(store, name, 0))
    if loaded is None:
        return
    assert loaded[0].turn is not None
    assert loaded[0].turn.closed, name
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    for begins, ends in (("TurnStarted", "TurnEnded"), ("StepStarted", "StepEnded"), ("CallProposed", "CallSettled")):
        began, ended = ([key_of(event) for event in events if type(event).__name__ == kind] for kind in (begins, ends))
        assert began == list(dict.fromkeys(began)), name
        assert sorted(began) == sorted(ended), name


def key_of(event: Any) -> str:
    """What an event begins or ends."""
    return str(event.call.id if hasattr(event, "call") else getattr(event, "attempt", event.turn))


async def drive(session: Session) -> Result[str]:
    """Begin the turn, or go on with it, and approve what it asks."""
    with trio.fail_after(100):
        async with session.turn("go", id="go") as turn:
            while (result := await turn.result(check=False)).outcome == "waiting":
                for asked in result.waiting:
                    try:
                        await session.approve(asked)
                    except Refused:
                        await trio.lowlevel.checkpoint()
            return result


def check_result(result: Result[str]) -> None:
    """A turn whose calls may all run again completes, whatever happened."""
    assert (result.outcome, result.text) == ("completed", "thanks")
    assert [made.status for made in result.calls] == ["ok", "ok", "ok"]


class Dying(FaultyStore):
    """Dies at a commit: that one fails, and so does every later one."""

    dead = False

    async def commit(self, commit: StoredCommit) -> None:
        if self.dead:
            raise StoreError("the process is dead")
        self.dead = self.commits + 1 == self.fail_at
        await super().commit(commit)


@pytest.mark.trio
async def test_crashes(autojump_clock: Clock) -> None:
    """What users test their agents with sees the commits of children as well."""
    till = Till()
    died: list[str] = []
    async for crash in crashes(above(till.agent()), "go"):
        till.paid.clear()
        assert (await crash.finish()).text == "thanks", crash.at
        assert len(till.paid) <= 1, crash.at
        died.append(crash.at)
    assert "after commit 8: CallStarted pay" in died


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_process_dies_at_each_commit(when: When, autojump_clock: Clock) -> None:
    """Killed at any commit, of the parent or of any child, the turn completes; what reports ran at most once."""
    for number in until(200):
        counted("crashes")
        family, store = Family(), WatchedStore()
        dying = Dying(store, number, when)
        async with left_clean(store):
            async with Engine(family.agent(), dying, grace=0) as engine:
                try:
                    await drive(engine.session("s"))
                except StoreError:
                    assert dying.dead
            async with Engine(family.agent(), store) as engine:
                check_result(await drive(engine.session("s")))
        await family.check(store)
        if not dying.dead:
            assert number > 30
            assert store.claimed == set(NAMES)
            break


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_one_commit_fails(when: When, autojump_clock: Clock) -> None:
    """A commit fails and the engine stays: whoever waits is told, and resuming goes on, in a child as in the parent."""
    for number in until(200):
        counted("crashes")
        family, store = Family(), WatchedStore()
        faulty = FaultyStore(store, number, when)
        told = 0
        async with left_clean(store), Engine(family.agent(), faulty) as engine:
            while True:
                try:
                    check_result(await drive(engine.session("s")))
                except StoreError:
                    told += 1
                else:
                    break
        await family.check(store)
        assert told <= 1
        if faulty.commits < number:
            assert number > 30
            break


async def interrupted_at(number: int, when: When) -> str:
    """How the turn ended that was interrupted at this commit."""
    family, store = Family(), WatchedStore()
    async with left_clean(store), trio.open_nursery() as nursery:

        async def interrupt(session: Session) -> None:
            if await session.interrupt():
                marks = family.requests, len(family.paid)
                await trio.sleep(100)
                assert marks == (family.requests, len(family.paid))

        noting = Noting(store, number, when, lambda: nursery.start_soon(interrupt, session))
        async with Engine(family.agent(), noting) as engine:
            session: Session = engine.session("s")
            outcome = (await drive(session)).outcome
            await trio.sleep(200)
    await family.check(store)
    return outcome


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_interrupt_at_each_commit(when: When, autojump_clock: Clock) -> None:
    """Interrupted at any commit of any session, all of them end, and nothing starts any more."""
    seen: list[str] = []
    for number in until(200):
        if seen[-2:] == ["completed", "completed"]:
            break
        counted("crashes")
        seen.append(await interrupted_at(number, when))
    assert seen.count("interrupted") > pick(4, 30)
    assert seen[-1] == "completed"


@pytest.mark.trio
@pytest.mark.parametrize("grace", [0, 10])
async def test_the_engine_closes_at_each_commit(grace: float, autojump_clock: Clock) -> None:
    """Left at any commit of any session the engine starts nothing more, and the next one completes the turn."""
    for number in until(200):
        counted("crashes")
        family, store = Family(), WatchedStore()
        left = trio.Event()
        noting = Noting(store, number, "after", left.set)
        async with left_clean(store):
            async with Engine(family.agent(), noting, grace=grace) as engine, trio.open_nursery() as nursery:
                nursery.start_soon(drive, engine.session("s"))
                with trio.move_on_after(50) as over:
                    await left.wait()
                nursery.cancel_scope.cancel()
            async with Engine(family.agent(), store) as engine:
                check_result(await drive(engine.session("s")))
        await family.check(store)
        if over.cancelled_caught:
            assert number > 30
            break
