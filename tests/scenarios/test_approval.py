"""Scenarios A1 to A16: who decides on a call, and what is counted."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import StrictModel, engine_of, events_of, requests_of, result_texts, until_event
from tests.scenarios.common import log_of, names, over, stored
from turnstate import (
    Agent,
    ApprovalRequested,
    CallAnswered,
    Engine,
    MemoryStore,
    Middleware,
    ModelError,
    Refused,
    Result,
    Session,
    SQLiteStore,
    StepContext,
    StoreError,
    ToolContext,
    TurnEnded,
    TurnFailed,
    tool,
)
from turnstate.policy import AllowAll, AsDeclared, AskAll, Policy, Reviewer
from turnstate.testing import FaultyStore, ScriptedModel, call

Clock = trio.testing.MockClock
APPROVE = '{"decision": "approve"}'


class World:
    """A tool that needs approval, one that does not, and what they did."""

    def __init__(self) -> None:
        self.did: list[str] = []

        @tool(approval=True)
        async def pay(ctx: ToolContext[Any], amount: int) -> str:
            self.did.append(f"pay {amount}{' online' if ctx.permissions.network else ''}")
            return "paid"

        @tool
        async def look() -> str:
            self.did.append("look")
            return "seen"

        self.tools: list[Any] = [pay, look]


async def finish(session: Session, result: Result[str], *, approve: bool = True) -> Result[str]:
    """Answer what waits and go on."""
    while result.outcome == "waiting":
        async with session.resume() as turn:
            for found in result.waiting:
                await (session.approve(found) if approve else session.deny(found))
            result = await turn.result(check=False)
    return result


@pytest.mark.trio
async def test_a_grant_covers_exactly_the_approved_call() -> None:
    """A1: an approval for the session covers that tool with equal arguments, and nothing else."""
    world = World()
    batches = [call("pay", amount=1), call("pay", amount=1), call("pay", amount=2), "done"]
    async with engine_of(*batches, tools=world.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        async with session.resume() as turn:
            await session.approve(*result.waiting, for_session=True)
            result = await turn.result(check=False)
        assert [found.arguments for found in result.waiting] == [{"amount": 2}]
        assert world.did == ["pay 1", "pay 1"]
        assert (await finish(session, result, approve=False)).outcome == "completed"
    assert world.did == ["pay 1", "pay 1"]


def reviewed(world: World, *answers: Any, **more: Any) -> tuple[Engine[None], ScriptedModel]:
    """An engine whose calls a second model reviews."""
    reviewer = ScriptedModel(list(answers), name="reviewer")
    policy = Reviewer(reviewer, **more)
    script = [[call("pay", amount=5), call("look")], "done"]
    return engine_of(*script, tools=world.tools, policy=policy), reviewer


@pytest.mark.trio
async def test_the_reviewer_sees_exactly_the_calls_that_need_it() -> None:
    """A2, A10: only the call that needs approval is reviewed; what the reviewer used counts in the turn under its name."""
    world = World()
    engine, reviewer = reviewed(world, APPROVE)
    async with engine:
        session = engine.session("s")
        result = await session.run("pay five")
        now = await stored(engine.store)
    assert (len(reviewer.requests), sorted(world.did)) == (1, ["look", "pay 5"])
    ((_, payload),) = reviewer.shown()
    assert '"tool": "pay"' in payload
    assert '"look"' not in payload
    assert set(now.usage) == {"scripted", "reviewer"}
    assert now.turn is not None
    assert now.turn.last_usage == next(m.usage for m in reversed(result.messages) if m.role == "assistant")
    assert result.steps == 2


@pytest.mark.trio
@pytest.mark.parametrize(
    ("policy", "asked", "paid"),
    [
        (AsDeclared(), ["pay"], "pay 5"),
        (AskAll(), ["pay", "look"], "pay 5"),
        (AllowAll(), [], "pay 5"),
        (AllowAll(network=True), [], "pay 5 online"),
    ],
)
async def test_network_as_the_policy_says(policy: Policy[Any], asked: list[str], paid: str) -> None:
    """A3, A4: each policy that ships decides as its name says; the network is there only where it was given."""
    world = World()
    async with engine_of([call("pay", amount=5), call("look")], "done", tools=world.tools, policy=policy) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        assert [found.tool for found in result.waiting] == asked
        await finish(session, result)
    assert sorted(world.did) == ["look", paid]


@pytest.mark.trio
async def test_a_verdict_is_never_widened() -> None:
    """A5: a call that a person was asked about stays asked where the next process would allow it by itself."""
    world, store = World(), MemoryStore()
    script = [[call("look"), call("pay", amount=5)], "done"]
    async with engine_of(*script, tools=world.tools, store=store) as engine:
        result = await engine.session("s").run("go", check=False)
        assert [found.tool for found in result.waiting] == ["pay"]
    async with engine_of("done", tools=world.tools, store=store, policy=AllowAll()) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            assert [found.tool for found in (await turn.result(check=False)).waiting] == ["pay"]
    assert world.did == ["look"]


DOUBTFUL: dict[str, Sequence[Any]] = {
    "asks": ('{"decision": "ask", "reason": "too much"}',),
    "invalid": ("yes, of course",),
    "more than it was asked for": ('{"decision": "approve", "calls": ["m2.0"]}',),
    "another word": ('{"decision": "allow"}',),
    "a call": (call("pay", amount=5),),
    "unavailable": (ModelError("down", status=503),),
    "too long": ('{"decision": "approve", "reason": "' + "x" * 10_000 + '"}',),
}


@pytest.mark.trio
@pytest.mark.parametrize("name", list(DOUBTFUL))
async def test_doubt_asks_a_person(name: str) -> None:
    """A6, A7, A11: whatever the reviewer gives but a clear approval asks a person, with the reason; its usage counts."""
    world = World()
    engine, _ = reviewed(world, *DOUBTFUL[name])
    async with engine:
        session = engine.session("s")
        result = await session.run("pay five", check=False)
        assert [found.tool for found in result.waiting] == ["pay"]
        assert "reviewer" in result.waiting[0].reason
        assert ("too much" in result.waiting[0].reason) == (name == "asks")
        assert world.did == ["look"]
        assert (await finish(session, result)).outcome == "completed"
        assert ("reviewer" in (await stored(engine.store)).usage) == (name != "unavailable")


@pytest.mark.trio
async def test_a_slow_reviewer_asks_a_person(autojump_clock: Clock) -> None:
    """A7: a reviewer that takes too long is not waited for."""
    world = World()
    reviewer = ScriptedModel([APPROVE], delay=1000)
    agent = Agent[None](
        StrictModel([call("pay", amount=5), "done"]), tools=world.tools, policy=Reviewer(reviewer, timeout=5)
    )
    async with Engine(agent, MemoryStore()) as engine:
        result = await engine.session("s").run("go", check=False)
    assert "within 5 s" in result.waiting[0].reason


class Whispering(Middleware[Any]):
    """Adds a note for good."""

    async def before_model(self, ctx: StepContext[Any]) -> None:
        if ctx.step == 1:
            ctx.add_message("internal note")


@pytest.mark.trio
async def test_what_the_reviewer_sees() -> None:
    """A8, A9: the newest words of the person are kept though an older one is too long; notes of middleware are left out."""
    world = World()
    reviewer = ScriptedModel([APPROVE])
    script = StrictModel(["hm", call("pay", amount=5), "done"])
    agent = Agent[None](script, tools=world.tools, policy=Reviewer(reviewer), middleware=[Whispering()])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("long " * 5000)
        await session.run("pay five, please")
    ((_, payload),) = reviewer.shown()
    assert "pay five, please" in payload
    assert "long long" not in payload
    assert "internal note" not in payload


@pytest.mark.trio
async def test_a_verdict_and_its_request_are_one_commit() -> None:
    """A12: when the commit that asks fails, no request is told or stored; after a restart the same call is asked once."""
    world, store = World(), MemoryStore()
    failed = 0
    for at in range(1, 6):
        store = MemoryStore()
        agent = Agent[None](ScriptedModel(lambda request: call("pay", amount=5)), tools=world.tools, policy=AskAll())
        async with Engine(agent, FaultyStore(store, at)) as engine:
            try:
                await engine.session("s").run("go", check=False)
            except StoreError:
                failed += 1
                asked = names(await log_of(store)).count("ApprovalRequested")
                assert asked == 0
        async with Engine(agent, store) as engine:
            async with engine.session("s").turn("go", id="again") as turn:
                await turn.result(check=False)
            log = await log_of(store)
            asked_ids = [event.call.id for event in log if isinstance(event, ApprovalRequested)]
            assert len(asked_ids) == len(set(asked_ids)) == 1
    assert failed == 3
    assert world.did == []


@pytest.mark.trio
async def test_an_interrupted_approval_ends_in_one_commit() -> None:
    """A13: when the commit of the interrupt fails all is as before and the same call waits; then it ends for good."""
    world, store = World(), MemoryStore()
    async with engine_of(call("pay", amount=5), tools=world.tools, store=store) as engine:
        await engine.session("s").run("go", check=False)
    before = await log_of(store)
    async with engine_of(tools=world.tools, store=FaultyStore(store, 1)) as engine:
        with pytest.raises(StoreError):
            await engine.session("s").interrupt()
    assert await log_of(store) == before
    async with engine_of(tools=world.tools, store=store) as engine:
        session = engine.session("s")
        (waiting,) = (await session.info()).waiting
        assert await session.interrupt()
        log = await events_of(session, until=over())
        assert names(log[len(before) :]) == ["TurnStopping", "CallSettled", "TurnEnded"]
    async with engine_of(tools=world.tools, store=store) as engine:
        session = engine.session("s")
        with pytest.raises(Refused):
            await session.approve(waiting)
        assert not (await session.info()).unfinished
    assert world.did == []


@pytest.mark.trio
async def test_a_provider_failure_is_one_failed_turn() -> None:
    """A16: a failing provider gives one failed turn, with its counts and its error, and nothing twice."""
    world = World()
    async with engine_of(
        call("look"), ModelError("no", status=401, kind="authentication"), tools=world.tools
    ) as engine:
        session = engine.session("s")
        with pytest.raises(TurnFailed):
            await session.run("go")
        log = await events_of(session, until=over())
    ends = [event for event in log if isinstance(event, TurnEnded)]
    assert [(e.outcome, e.steps, e.attempts, e.calls, e.failed_calls) for e in ends] == [("failed", 2, 2, 1, 0)]


@pytest.mark.trio
async def test_the_decision_is_kept() -> None:
    """Who decided what, when and why is told and survives a restart; a decision that did not act yet stands (case 57)."""
    world, store = World(), MemoryStore()
    async with engine_of([call("pay", amount=1), call("pay", amount=2)], tools=world.tools, store=store) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        await session.deny(result.waiting[0], reason="not this one", by="ann")
        answered = await until_event(session, CallAnswered)
        assert answered.call.decision.by == "ann"
    async with engine_of("done", tools=world.tools, store=store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            result = await turn.result(check=False)
            assert [found.arguments for found in result.waiting] == [{"amount": 2}]
            await session.approve(*result.waiting, by="bob")
            await turn.result()
        decisions = [e.call.decision for e in await log_of(store) if isinstance(e, CallAnswered)]
        assert [(d.verdict, d.by, d.reason) for d in decisions if d] == [
            ("deny", "ann", "not this one"),
            ("approve", "bob", ""),
        ]
        assert result_texts(requests_of(engine)[0]) == ["tool denied: not this one", "paid"]


@pytest.mark.trio
async def test_two_copies_of_a_session_are_apart(tmp_path: Path) -> None:
    """Two restores of one stored wait, in one process, one approved and one denied, each do as told (case 51)."""
    worlds = [World(), World()]
    async with engine_of(call("pay", amount=5), tools=worlds[0].tools, store=SQLiteStore(tmp_path / "0.db")) as engine:
        await engine.session("s").run("go", check=False)
    shutil.copy(tmp_path / "0.db", tmp_path / "1.db")
    one, two = (
        engine_of("done", tools=world.tools, store=SQLiteStore(tmp_path / f"{at}.db"))
        for at, world in enumerate(worlds)
    )
    async with one, two, one.session("s").resume() as first, two.session("s").resume() as second:
        (asked,) = (await first.result(check=False)).waiting
        assert [asked.id] == [found.id for found in (await second.result(check=False)).waiting]
        await one.session("s").approve(asked)
        await two.session("s").deny(asked)
        statuses = [(await turn.result()).calls[0].status for turn in (first, second)]
    assert statuses == ["ok", "denied"]
    assert [world.did for world in worlds] == [["pay 5"], []]
