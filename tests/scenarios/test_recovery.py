"""Scenarios C1 to C13: going on where another process stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests.engine.helpers import GatedModel, engine_of, events_of, requests_of, result_texts, said, until_event
from tests.engine.test_faults import check_log
from tests.scenarios.common import log_of, names, over, stored
from turnstate import (
    Agent,
    CallStarted,
    CheckpointError,
    Engine,
    Limits,
    MemoryStore,
    Middleware,
    SQLiteStore,
    StaleSession,
    StepEnded,
    StepStarted,
    Store,
    TurnContext,
    TurnEnded,
    tool,
)
from turnstate.stores.base import StoredCommit, StoredSession
from turnstate.testing import ScriptedModel, call, crashes

Clock = trio.testing.MockClock


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


def acting(kind: str) -> Any:
    """A tool that never ends."""

    @tool(approval=kind == "approval")
    async def act() -> str:
        await trio.sleep_forever()
        return ""

    return act


async def left_while(store: Store, kind: str) -> None:
    """Leave a session as a crash would: while it streams, while a tool runs, or while it waits for a person."""
    if kind == "model":
        model = GatedModel("half a reply")
        async with Engine(Agent(model), store, grace=0) as engine:
            await engine.session("s").send("go")
            await model.gate.reached.wait()
        return
    async with Engine(Agent(ScriptedModel([call("act")]), tools=[acting(kind)]), store, grace=0) as engine:
        session = engine.session("s")
        await session.send("go")
        await events_of(session, until=lambda e: type(e).__name__ in ("CallStarted", "ApprovalRequested"))


@pytest.mark.trio
async def test_an_open_attempt_is_closed_first() -> None:
    """C1: the attempt that the crash cut is told as interrupted, then the same step begins anew, and the turn ends."""
    store = MemoryStore()
    await left_while(store, "model")
    async with engine_of("whole", store=store) as engine, engine.session("s").resume() as turn:
        assert (await turn.result()).text == "whole"
    log = await check_log(store)
    assert names(log)[:4] == ["TurnStarted", "StepStarted", "StepEnded", "StepStarted"]
    ends = [(event.attempt, event.outcome) for event in log if isinstance(event, StepEnded)]
    assert ends == [("t1.1.1", "interrupted"), ("t1.1.2", "completed")]


@pytest.mark.trio
async def test_an_uncertain_tool_is_told_before_what_waits() -> None:
    """C2: the model reads the call's exact result, then the turn goes on, and a message that waited starts the next."""
    store = MemoryStore()
    await left_while(store, "tool")
    async with engine_of("I see", "next", tools=[noop], store=store) as engine:
        session = engine.session("s")
        await session.send("later")
        async with session.resume() as turn:
            await turn.result()
        await events_of(session, until=over("t2"))
        assert result_texts(requests_of(engine)[0]) == ["execution interrupted; result unknown: after restart"]
        assert said(requests_of(engine)[1]) == ["go", "later"]
    ended = next(event for event in await log_of(store) if isinstance(event, TurnEnded))
    assert (ended.outcome, ended.calls, ended.failed_calls) == ("completed", 1, 1)


class Counting(Middleware[Any]):
    """Counts ends."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def turn_ended(self, ctx: TurnContext[Any]) -> None:
        self.ended.append(ctx.outcome)


@pytest.mark.trio
async def test_a_stored_completion_is_resolved() -> None:
    """C3: killed once the final answer is stored, the turn completes with it and the model is not asked again."""
    hooks = Counting()
    seen = 0
    agent = Agent[Any](ScriptedModel(["the answer"]), middleware=[hooks])
    async for crash in crashes(agent, "go"):
        hooks.ended.clear()
        await crash.die()
        async with crash.store:
            state = None if not await crash.store.load("crashes") else (await stored(crash.store, "crashes")).turn
        asked = len(crash.agent.model.requests)  # type: ignore[attr-defined]
        assert (await crash.finish()).text == "the answer"
        if state is not None and state.outcome == "completed":
            seen += 1
            assert len(crash.agent.model.requests) == asked  # type: ignore[attr-defined]
        assert set(hooks.ended) == {"completed"}, crash.at
    assert seen >= 2


@pytest.mark.trio
async def test_steps_are_counted_on() -> None:
    """C4: a resumed turn goes on with the step it was in; limits count over the restart (weakness 13, case 103)."""
    store = MemoryStore()
    agent = Agent[None](ScriptedModel([call("noop")] * 2 + [call("hang")]), tools=[noop, hang], limits=Limits(steps=4))
    async with Engine(agent, store, grace=0) as engine:
        session = engine.session("s")
        await session.send("go")
        await events_of(session, until=lambda e: isinstance(e, CallStarted) and e.call.tool == "hang")
    async with engine_of(*[call("noop")] * 9, tools=[noop, hang], store=store, limits=Limits(steps=4)) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            result = await turn.result(check=False)
        assert (result.outcome, result.steps, len(requests_of(engine))) == ("limit", 4, 1)
    started = [event.step for event in await log_of(store) if isinstance(event, StepStarted)]
    assert started == [1, 2, 3, 4]


@tool
async def hang() -> str:
    """Never end."""
    await trio.sleep_forever()
    return ""


@pytest.mark.trio
async def test_a_stale_commit_changes_nothing() -> None:
    """C6: a driver that was overtaken cannot write over the winner, nor take its number."""
    store = MemoryStore()
    async with engine_of("one", store=store) as engine:
        await engine.session("s").run("go")
        won = await store.load("s")
        assert won is not None
        late = StoredCommit(
            "s", engine.owner.id, won.sequence - 1, won.sequence + 5, b"{}", (await store.sessions())[0]
        )
        with pytest.raises(StaleSession):
            await store.commit(late)
        other = attrs.evolve(late, after=won.sequence, owner="somebody")
        with pytest.raises(StaleSession):
            await store.commit(other)
        assert await store.load("s") == won


@pytest.mark.trio
async def test_what_belongs_to_the_session_is_kept() -> None:
    """C7, C10: title, grants, usage and the open call come back as they were, whoever resumes."""
    store = MemoryStore()

    @tool(approval=True)
    async def pay(amount: int) -> str:
        return "paid"

    script = [call("pay", amount=1), "one", call("pay", amount=2)]
    async with engine_of(*script, tools=[pay], store=store) as engine:
        session = engine.session("s")
        result = await session.run("Pay the bill", check=False)
        async with session.resume() as turn:
            await session.approve(*result.waiting, for_session=True)
            await turn.result()
        await session.run("again", check=False)
        before = await session.info()
        grants = await session.grants()
    async with engine_of(tools=[pay], store=store) as engine:
        session = engine.session("s")
        assert await session.info() == before
        assert await session.grants() == grants
        assert (before.title, len(grants), len(before.waiting)) == ("Pay the bill", 1, 1)


@pytest.mark.trio
@pytest.mark.parametrize("kind", ["model", "tool", "approval"])
async def test_ending_a_stored_turn_runs_nothing(kind: str) -> None:
    """C12: an interrupt is all that happens to a stored turn: it ends once, its hooks run once, no model is asked."""
    store = MemoryStore()
    await left_while(store, kind)
    hooks = Counting()
    async with engine_of(store=store, tools=[acting(kind)], middleware=[hooks]) as engine:
        session = engine.session("s")
        assert await session.interrupt()
        await events_of(session, until=over())
        assert not requests_of(engine)
    log = await check_log(store)
    assert names(log).count("TurnEnded") == 1
    assert hooks.ended == ["interrupted"]


@pytest.mark.trio
async def test_waiting_messages_survive_the_end_of_a_stored_turn() -> None:
    """C12: 250 messages that wait behind a stored turn are still there, held, after it was interrupted and reopened."""
    store = MemoryStore()
    await left_while(store, "approval")
    async with engine_of(store=store, tools=[acting("approval")]) as engine:
        session = engine.session("s")
        for number in range(250):
            await session.send(f"message {number}")
        assert await session.interrupt()
        await events_of(session, until=over())
    async with engine_of(*["ok"] * 251, store=store) as engine:
        session = engine.session("s")
        info = await session.info()
        assert (info.queued, info.held, info.unfinished) == (250, True, False)
        async with session.resume() as turn:
            await turn.result()
        await events_of(session, until=over("t252"))
        texts = [message.text for message in await session.messages() if message.role == "user"]
    assert texts == ["go", *(f"message {number}" for number in range(250))]


Json = dict[str, Any]


def newer(data: Json) -> Json:
    """Written by a version to come."""
    return {**data, "format": 999}


def dreaming(data: Json) -> Json:
    """In a state that there is not."""
    return {**data, "turn": {**data["turn"], "state": "dreaming"}}


def nameless(data: Json) -> Json:
    """Without the session's id."""
    return {key: value for key, value in data.items() if key != "session"}


@pytest.mark.trio
@pytest.mark.parametrize(("change", "words"), [(newer, "999"), (dreaming, "state"), (nameless, "session")])
async def test_what_cannot_be_read_is_left_alone(change: Any, words: str) -> None:
    """D1: a checkpoint of a newer format, or one that is none, is refused with what is wrong; nothing is written."""
    store = MemoryStore()
    await left_while(store, "approval")
    kept = store._kept["s"]  # pyright: ignore[reportPrivateUsage]
    assert kept.stored is not None
    broken = json.dumps(change(json.loads(kept.stored.checkpoint))).encode()
    kept.stored = StoredSession("s", kept.stored.sequence, broken)
    async with engine_of(store=store) as engine:
        with pytest.raises(CheckpointError, match=words):
            await engine.session("s").send("hello?")
        with pytest.raises(CheckpointError, match=words):
            await engine.session("s").messages()
    assert kept.stored.checkpoint == broken


@pytest.mark.deep
@pytest.mark.trio
async def test_every_row_over_a_real_file(tmp_path: Path, autojump_clock: Clock) -> None:
    """C1, C2: on SQLite, killed before and after each commit of a turn with a hook, a call and a question, it ends."""

    @tool(approval=True)
    async def pay() -> str:
        return "paid"

    paths = iter(range(1000))

    def store() -> Store:
        return SQLiteStore(tmp_path / f"{next(paths)}.db")

    agent = Agent[Any](ScriptedModel([[call("pay"), call("noop")], "done"]), tools=[pay, noop], middleware=[Counting()])
    rounds = 0
    async for crash in crashes(agent, "go", store=store):
        result = await crash.finish()
        assert (result.text, result.steps) == ("done", 2), crash.at
        async with crash.store:
            log = await events_of_store(crash.store)
        assert [event.number for event in log] == list(range(1, len(log) + 1)), crash.at
        assert names(log).count("TurnEnded") == 1
        rounds += 1
    assert rounds >= 12


async def events_of_store(store: Store) -> list[Any]:
    """The log of a round."""
    return await log_of(store, "crashes")


@pytest.mark.trio
async def test_the_source_of_a_turn_is_kept() -> None:
    """C13: each event of a resumed turn names the submission that caused the turn."""
    store = MemoryStore()
    async with Engine(Agent(GatedModel("x")), store, grace=0) as engine:
        session = engine.session("s")
        await session.send("go", id="from-mail-17")
        await until_event(session, StepStarted)
    async with engine_of("done", store=store) as engine, engine.session("s").resume() as turn:
        await turn.result()
    assert {event.cause for event in await log_of(store)} == {"from-mail-17"}
