"""Scenarios D1 to D11, and what a turn costs: what is written, and what is not written again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.helpers import engine_of
from tests.scenarios.common import log_of, names
from turnstate import (
    Agent,
    Client,
    Engine,
    Limits,
    MemoryStore,
    Reply,
    SessionInUse,
    SQLiteStore,
    StaleSession,
    Store,
    TextDelta,
    Usage,
    tool,
)
from turnstate.reading import read_events
from turnstate.states import Text
from turnstate.stores.base import StoredCommit, StoredSession
from turnstate.testing import FaultyStore, ScriptedModel, call


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


class Measuring(FaultyStore):
    """Adds up what is written."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.sizes: list[int] = []

    async def commit(self, commit: StoredCommit) -> None:
        row = commit.row
        self.sizes.append(len(commit.checkpoint) + (0 if row is None else len(row.messages) + len(row.events)))
        await super().commit(commit)


@pytest.mark.trio
async def test_a_commit_is_as_large_as_what_is_new() -> None:
    """D10, R11: what a turn writes does not depend on how much was said before (weaknesses 19 and 22, case 86)."""
    store = Measuring(MemoryStore())
    model = ScriptedModel(lambda request: "done" if request.messages[-1].role == "tool" else call("noop"))
    sizes: list[int] = []
    async with Engine(Agent(model, tools=[noop]), store) as engine:
        session = engine.session("s")
        for _ in range(200):
            store.sizes.clear()
            await session.run("x" * 500)
            sizes.append(sum(store.sizes))
    assert max(sizes[100:]) < 1.1 * max(sizes[1:20])


@pytest.mark.trio
async def test_a_long_turn_writes_no_more_per_step() -> None:
    """D10: in a turn of many steps the commits stay as large as the first ones."""
    store = Measuring(MemoryStore())
    async with engine_of(*[call("noop")] * 120, "done", tools=[noop], store=store, limits=Limits(steps=200)) as engine:
        await engine.session("s").run("go")
    assert sum(store.sizes[-40:]) < 1.1 * sum(store.sizes[4:44])


@pytest.mark.trio
async def test_reading_while_a_turn_is_written(tmp_path: Path) -> None:
    """D2: others read a session, list it and follow it while its turn is being written."""
    path = tmp_path / "turns.db"
    engine = engine_of(*[call("noop")] * 30, "done", tools=[noop], store=SQLiteStore(path))
    async with engine, engine.session("s").turn("go") as turn, Client(SQLiteStore(path)) as client:
        seen: list[int] = []
        while not seen or (await client.session("s").info()).unfinished:
            seen.append(len(await client.session("s").messages()))
        await turn.result()
    assert seen == sorted(seen)


@pytest.mark.trio
async def test_the_log_is_read_from_any_number() -> None:
    """D5, D6: events come in pages, in order, from any number on; those of one turn can be told apart."""
    async with engine_of(*["answer"] * 120) as engine:
        session = engine.session("s")
        for _ in range(120):
            await session.run("go")
        whole = await read_events(engine.store, "s", 0)
        assert len(whole) > 400
        assert [event.number for event in whole] == list(range(1, len(whole) + 1))
        assert list(await read_events(engine.store, "s", 333)) == whole[333:]
        one = [event for event in whole if event.turn == "t60"]
        assert names(list(one)) == ["TurnStarted", "StepStarted", "StepEnded", "Replied", "TurnEnded"]


@pytest.mark.trio
async def test_pieces_are_told_and_not_kept() -> None:
    """D7, D8: pieces of a reply have no number and are not stored; the reply has its times."""
    async with engine_of("one two three") as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            found = [event async for event in turn]
        pieces = [event for event in found if isinstance(event, TextDelta)]
        assert pieces
        assert all(event.number is None for event in pieces)
        log = await log_of(engine.store)
        assert [event for event in found if event.number is not None] == log
        timing = (await session.messages())[-1].timing
        assert timing is not None
        assert timing.first is not None
        assert timing.ended is not None
        assert timing.started <= timing.first <= timing.ended


@pytest.mark.trio
async def test_a_session_that_was_deleted_and_made_anew() -> None:
    """D9, D10: a session that is driven cannot be deleted; deleted and made anew, its first driver cannot write any more."""
    store = MemoryStore()
    async with engine_of("one", store=store) as engine:
        await engine.session("s").run("go")
        with pytest.raises(SessionInUse):
            await store.delete("s")
        old = engine.owner.id
        last = await store.load("s")
    assert last is not None
    async with engine_of("two", store=store) as engine:
        assert await store.delete("s")
        await engine.session("s").run("anew")
        late = StoredCommit("s", old, last.sequence, last.sequence + 1, b"{}", (await store.sessions())[0])
        with pytest.raises(StaleSession):
            await store.commit(late)
        assert [message.text for message in await engine.session("s").messages()] == ["anew", "two"]


@pytest.mark.trio
async def test_a_list_needs_no_checkpoint() -> None:
    """D9: sessions are listed though the checkpoint of one cannot be read."""
    store = MemoryStore()
    async with engine_of("one", "two", store=store) as engine:
        await engine.session("a").run("go")
        await engine.session("b").run("go")
        kept = store._kept["a"]  # pyright: ignore[reportPrivateUsage]
        assert kept.stored is not None
        kept.stored = StoredSession("a", kept.stored.sequence, b"broken")
        assert [found.id async for found in engine.sessions()] == ["a", "b"]


@pytest.mark.trio
async def test_counts_do_not_overflow() -> None:
    """D11: counts that no server means are added up, stored and read again like any."""
    huge = Usage(input=2**62, output=2**62)
    replies = [Reply((Text("a"),), usage=huge), Reply((Text("b"),), usage=huge)]
    store = MemoryStore()
    async with engine_of(*replies, store=store) as engine:
        await engine.session("s").run("go")
        await engine.session("s").run("go")
    async with Client(store) as client:
        usage = (await client.session("s").info()).usage
    assert (usage.input, usage.output) == (2**63, 2**63)
