"""Scenarios L1 to L10: what follows a pause that nobody answered."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import GatedModel, engine_of, events_of, requests_of, said
from tests.scenarios.common import log_of, names, over
from tests.scenarios.threads import Desk, ids, lines, status, waiting
from turnstate import (
    Agent,
    Engine,
    InvalidInput,
    MemoryStore,
    Quote,
    Refused,
    Session,
    SQLiteStore,
    Store,
    StoreError,
    Text,
)
from turnstate.reading import read_messages
from turnstate.states import ToolCall
from turnstate.testing import FaultyStore, call

Later = Callable[[Session], Awaitable[Any]]
SENT: dict[str, Later] = {
    "a message in its place": lambda session: session.send("else", delivery="supersede"),
    "another version of the question": lambda session: session.edit("m1", "else"),
    "another answer": lambda session: session.regenerate(),
}
MOVED: dict[str, Later] = {
    "another branch": lambda session: session.switch("m1"),
    "a message taken out": lambda session: session.delete_message("m2"),
}


async def paused(desk: Desk, store: Store, *more: Any, calls: int = 3) -> None:
    """A session in which calls wait for approval."""
    script = [call("pay", amount=at) for at in range(calls)]
    async with engine_of(script, tools=desk.tools, store=store) as engine:
        result = await engine.session("s").run("go", check=False)
        assert len(result.waiting) == calls


@pytest.mark.trio
@pytest.mark.parametrize("name", [*SENT, *MOVED])
async def test_one_commit_closes_all_requests(name: str) -> None:
    """L1, L6, L7: whatever follows a pause ends it in one commit, also one that was loaded: all its calls are settled,
    its turn has ended as superseded, and only then anything new begins."""
    desk, store = Desk(), MemoryStore()
    await paused(desk, store)
    before = len(await log_of(store))
    counting = FaultyStore(store)
    async with engine_of("else", tools=desk.tools, store=counting) as engine:
        session = engine.session("s")
        await (SENT | MOVED)[name](session)
        assert counting.commits == 1
        assert await waiting(session) == []
        if name in SENT:
            await events_of(session, until=over("t2"))
            assert status(await session.thread()) == "complete/stop"
        log: list[Any] = [*await events_of(session, until=over("t2") if name in SENT else over("t1"))]
    told = [event for event in log[before:] if event.turn == "t1"]
    assert [found for found in names(told) if found != "MessageQueued"] == ["CallSettled"] * 3 + ["TurnEnded"]
    assert {found.call.status for found in told if hasattr(found, "call")} == {"not-run"}
    assert told[-1].outcome == "superseded"
    assert desk.did == []


@pytest.mark.trio
async def test_what_was_sent_before_the_pause() -> None:
    """L3: a message that was sent before the pause began waits behind it; the pause is answered as any."""
    desk = Desk()
    model = GatedModel("hm", calls=[ToolCall("", "pay", "{}")])
    async with Engine(Agent[None](model, tools=desk.tools), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await session.send("then")
            model.gate.open.set()
            (asked,) = (await turn.result(check=False)).waiting
            assert status(await session.thread()) == "requires-action/interrupt"
            assert (await session.info()).queued == 1
            await session.approve(asked)
            await turn.result()
        await events_of(session, until=over("t2"))
        assert lines(await session.thread()) == [
            "user: go",
            "assistant: hm",
            "tool: paid 1",
            "assistant: rest",
            "user: then",
            "assistant: rest",
        ]
    assert desk.did == ["pay 1"]


@pytest.mark.trio
@pytest.mark.parametrize("name", ["refused", "invalid", "taken back", "not stored"])
async def test_what_is_not_sent_leaves_the_pause(name: str) -> None:
    """L4, L10: a message that is refused, is no message, is taken back or cannot be stored leaves the pause as it was,
    and whoever sent it is told; the request is answered afterwards."""
    desk, store = Desk(), MemoryStore()
    await paused(desk, store, calls=1)
    faulty = FaultyStore(store, 1 if name == "not stored" else None)
    async with engine_of("done", tools=desk.tools, store=faulty) as engine:
        session = engine.session("s")
        before = await session.messages()
        if name == "refused":
            with pytest.raises(Refused):
                await session.edit("m9", "else")
        elif name == "invalid":
            with pytest.raises(InvalidInput):
                await session.send([Quote("m1", "never said"), Text("?")], delivery="supersede")
        elif name == "taken back":
            await session.send("else", id="else")
            await session.remove_queued("else")
        else:
            with pytest.raises(StoreError):
                await session.edit("m1", "else")
        assert await session.messages() == before
        assert status(await session.thread()) == "requires-action/interrupt"
    async with engine_of("done", tools=desk.tools, store=store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            await session.approve(*(await turn.result(check=False)).waiting)
            assert (await turn.result()).text == "done"
    assert desk.did == ["pay 0"]


@pytest.mark.trio
async def test_deleting_what_followed_revives_nothing() -> None:
    """L5: when what followed a pause is deleted, the pause stays ended: its calls have their results, and answering
    them is refused."""
    desk, store = Desk(), MemoryStore()
    await paused(desk, store, calls=1)
    async with engine_of("else", "again", tools=desk.tools, store=store) as engine:
        session = engine.session("s")
        (asked,) = await waiting(session)
        await session.send("else", delivery="supersede")
        await events_of(session, until=over("t2"))
        for message in reversed((await session.messages())[3:]):
            await session.delete_message(message)
        assert lines(await session.thread()) == [
            "user: go",
            "assistant: ",
            "tool: not run: superseded by a new message",
        ]
        assert (status(await session.thread()), await waiting(session)) == ("incomplete/cancelled", [])
        with pytest.raises(Refused):
            await session.approve(asked)
        with pytest.raises(Refused):
            async with session.resume():
                pass
        assert (await session.run("go on")).text == "again"
    assert desk.did == []


@pytest.mark.trio
async def test_a_message_behind_a_pause_waits_for_its_turn() -> None:
    """A plain message behind a pause waits (cases 52, 53): no request is made while the call is open, and the model
    reads it after the result; a steer does so in the same turn."""
    desk, store = Desk(), MemoryStore()
    await paused(desk, store, calls=1)
    async with engine_of("done", "then", tools=desk.tools, store=store) as engine:
        session = engine.session("s")
        await session.send("then?")
        await session.steer("quickly!")
        await trio.testing.wait_all_tasks_blocked()
        assert requests_of(engine) == []
        async with session.resume() as turn:
            await session.approve(*await waiting(session))
            await turn.result()
        await events_of(session, until=over("t2"))
        assert [said(request)[1:] for request in requests_of(engine)] == [["quickly!"], ["quickly!", "then?"]]


@pytest.mark.trio
@pytest.mark.parametrize("name", list(SENT))
async def test_each_message_is_written_once_and_behind_its_parent(name: str, tmp_path: Path) -> None:
    """L8, L9, V3, V4: a store only appends: through a pause, its end and what follows it no message is written twice,
    each stands behind the one that it follows, and what was written before is not changed."""
    desk = Desk()
    store = SQLiteStore(tmp_path / "turns.db")
    await paused(desk, store)
    async with store:
        before = list(await store.rows("s"))
    async with engine_of("else", tools=desk.tools, store=store) as engine:
        session = engine.session("s")
        await SENT[name](session)
        await events_of(session, until=over("t2"))
        visible = await session.messages()
    async with store:
        rows = list(await store.rows("s"))
        written = await read_messages(store, "s")
    assert rows[: len(before)] == before
    names_written = ids(written)
    assert len(set(names_written)) == len(names_written)
    for at, message in enumerate(written):
        assert message.parent is None or message.parent in names_written[:at]
    assert set(ids(visible)) <= set(names_written)
    raw = [item["id"] for row in rows if row.messages for item in json.loads(row.messages)]
    assert raw == names_written
