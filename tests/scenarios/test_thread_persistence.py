"""Scenarios V1 to V14: what of a thread is written, when, and what happens where that fails."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import engine_of, events_of, requests_of, result_texts, said
from tests.scenarios.common import log_of, names, over, roles
from tests.scenarios.threads import Desk, ids, lines, status, waiting
from turnstate import (
    CallAnswered,
    Limits,
    MemoryStore,
    Refused,
    Session,
    SQLiteStore,
    Store,
    StoreError,
    TurnEnded,
    Warned,
)
from turnstate.reading import read_messages
from turnstate.stores.base import StoredCommit
from turnstate.testing import FaultyStore, call

Change = Callable[[Session], Awaitable[Any]]
CHANGES: dict[str, Change] = {
    "run": lambda session: session.run("more"),
    "edit": lambda session: session.edit("m1", "else"),
    "regenerate": lambda session: session.regenerate(),
    "switch": lambda session: session.switch("m1"),
    "delete": lambda session: session.delete_message("m2"),
    "annotate": lambda session: session.annotate("m1", {"good": True}),
    "rename": lambda session: session.rename("a name"),
    "label": lambda session: session.label({"a": "b"}),
    "archive": lambda session: session.archive(),
}


@pytest.mark.trio
@pytest.mark.parametrize("name", list(CHANGES))
async def test_a_failed_write_is_raised_and_changes_nothing(name: str) -> None:
    """V1, V11: where the write of a change fails, with a turn or without, whoever asked for it is told; the thread is
    as before, and the same change can be made again."""
    store = MemoryStore()
    async with engine_of("one", store=store) as engine:
        await engine.session("s").run("go")
    async with engine_of("x", store=FaultyStore(store, 1)) as engine:
        session = engine.session("s")
        before = (await session.thread(), await session.info())
        with pytest.raises(StoreError, match="made to fail"):
            await CHANGES[name](session)
        assert (await session.thread(), await session.info()) == before
    async with engine_of("two", store=store) as engine:
        session = engine.session("s")
        await CHANGES[name](session)
        await trio.testing.wait_all_tasks_blocked()
        assert (await session.thread(), await session.info()) != before
        assert not (await session.info()).unfinished


@pytest.mark.trio
async def test_a_run_whose_write_failed_is_gone_on_with() -> None:
    """V1: a run whose write fails at any commit is not lost: the next engine goes on with it from what is stored, or
    takes the message again where that was not."""
    failed = 0
    for at in range(1, 20):
        desk, store = Desk(), MemoryStore()
        faulty = FaultyStore(store, at)
        async with engine_of(call("look"), "done", tools=desk.tools, store=faulty) as engine:
            try:
                async with engine.session("s").turn("go", id="go") as turn:
                    await turn.result()
            except StoreError:
                failed += 1
        script = ["done"] if desk.did else [call("look"), "done"]
        engine = engine_of(*script, tools=desk.tools, store=store)
        async with engine, engine.session("s").turn("go", id="go") as turn:
            assert (await turn.result()).text == "done"
        assert desk.did == ["look"]
        if faulty.commits < at:
            break
    assert failed == 4


@pytest.mark.trio
async def test_each_step_is_written_and_each_message_once() -> None:
    """V2: a turn of three steps writes two commits for each, and each message in exactly one of them."""
    desk = Desk()
    store = FaultyStore(MemoryStore())
    async with engine_of(call("look"), call("look"), "done", tools=desk.tools, store=store) as engine:
        await engine.session("s").run("go")
        assert store.commits == 2 * 3
        visible = await engine.session("s").messages()
        written = await read_messages(store, "s")
    assert ids(written) == ids(visible) == ["m1", "m2", "m3", "m4", "m5", "m6"]


@pytest.mark.trio
async def test_a_restored_pause_is_not_written_again(tmp_path: Path) -> None:
    """V5: a pause that was loaded and answered is there once, and its message as it was."""
    desk = Desk()
    path = tmp_path / "turns.db"
    async with engine_of(["so", call("pay")], tools=desk.tools, store=SQLiteStore(path)) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
        paused = (await engine.session("s").messages())[-1]
    async with engine_of("done", tools=desk.tools, store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            await session.approve(asked)
            await turn.result()
    async with SQLiteStore(path) as store:
        written = await read_messages(store, "s")
    assert [message for message in written if message.id == paused.id] == [paused]
    assert roles(written) == [("user", "go"), ("assistant", "so"), ("tool", "paid 1"), ("assistant", "done")]


@pytest.mark.trio
async def test_part_of_the_answers_is_written(tmp_path: Path) -> None:
    """V6: of several open calls the answers that were given are there after a restart, and only the rest is asked
    for."""
    desk = Desk()
    path = tmp_path / "turns.db"
    script = [call("pay", amount=1), call("pay", amount=2), call("ask"), call("ask")]
    async with engine_of(script, tools=desk.tools, store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        first, second, third, fourth = (await session.run("go", check=False)).waiting
        await session.deny(first, reason="no")
        await session.provide(third, "three")
    async with engine_of("done", tools=desk.tools, store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        assert [found.id for found in await waiting(session)] == [second.id, fourth.id]
        async with session.resume() as turn:
            await session.approve(second)
            await session.provide(fourth, "four")
            await turn.result()
        assert result_texts(requests_of(engine)[0]) == ["tool denied: no", "paid 2", "three", "four"]


@pytest.mark.trio
@pytest.mark.parametrize("value", [False, 0, "", None])
async def test_the_same_result_again_writes_nothing(value: Any) -> None:
    """V7: the same result again, also a falsy one, writes no message and no event."""
    desk = Desk()
    async with engine_of([call("ask"), call("ask")], tools=desk.tools) as engine:
        session = engine.session("s")
        asked, _ = (await session.run("go", check=False)).waiting
        await session.provide(asked, value)
        before = await log_of(engine.store)
        await session.provide(asked, value)
        assert await log_of(engine.store) == before
        with pytest.raises(Refused):
            await session.provide(asked, "else")


@pytest.mark.trio
async def test_a_second_pause_is_written_as_the_first(tmp_path: Path) -> None:
    """V8: a turn that pauses again is stored with its second pause, which outlives the process as the first does."""
    desk = Desk()
    path = tmp_path / "turns.db"
    lines_of = [call("pay", amount=1), call("pay", amount=2), "done"]
    asked: list[str] = []
    for at in range(3):
        async with engine_of(*lines_of[at:], tools=desk.tools, store=SQLiteStore(path)) as engine:
            session = engine.session("s")
            if at == 0:
                result = await session.run("go", check=False)
            else:
                async with session.resume() as turn:
                    await session.approve(asked[-1])
                    result = await turn.result(check=False)
            asked += [found.id for found in result.waiting]
            assert status(await session.thread()) == ("complete/stop" if at == 2 else "requires-action/interrupt")
    assert len(set(asked)) == 2
    assert desk.did == ["pay 1", "pay 2"]


@pytest.mark.trio
async def test_an_end_by_limit_is_written(tmp_path: Path) -> None:
    """V9: the end at the limit of steps is stored, and shown as such by the next process."""
    desk = Desk()
    path = tmp_path / "turns.db"
    limits = Limits(steps=1)
    async with engine_of(call("look"), tools=desk.tools, limits=limits, store=SQLiteStore(path)) as engine:
        assert (await engine.session("s").run("go", check=False)).outcome == "limit"
    async with engine_of(store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        assert status(await session.thread()) == "incomplete/tool-calls"
        (end,) = [event for event in await events_of(session, until=over()) if isinstance(event, TurnEnded)]
        assert (end.outcome, end.steps, end.calls) == ("limit", 1, 1)


class Slow(FaultyStore):
    """A store whose commits take a while."""

    async def commit(self, commit: StoredCommit) -> None:
        await trio.sleep(1)
        await super().commit(commit)


@pytest.mark.trio
async def test_answers_are_written_in_the_order_they_came(autojump_clock: trio.testing.MockClock) -> None:
    """V10: answers that come while an earlier one is being written are written after it, in the order they came."""
    desk, store = Desk(), MemoryStore()
    script = [call("ask", question=str(at)) for at in range(5)]
    async with engine_of(script, "done", tools=desk.tools, store=Slow(store)) as engine:
        session = engine.session("s")
        asked = list((await session.run("go", check=False)).waiting)
        order = [asked[at] for at in (3, 0, 4, 1, 2)]
        async with session.resume() as turn, trio.open_nursery() as nursery:
            for found in order:
                nursery.start_soon(session.provide, found, found.id)
                await trio.sleep(0.1)
            await turn.result()
    written = [message.text for message in await written_in(store) if message.role == "tool"]
    assert written == [found.id for found in order]


async def written_in(store: Store) -> list[Any]:
    """All messages of the session in the order they were written."""
    async with store:
        return await read_messages(store, "s")


@pytest.mark.trio
async def test_deleting_twice_at_once() -> None:
    """V11: of two who delete the same message at once one does, and the other is told that it is gone."""
    async with engine_of("one") as engine:
        session = engine.session("s")
        await session.run("go")
        said_back: list[str] = []

        async def delete() -> None:
            try:
                await session.delete_message("m2")
                said_back.append("deleted")
            except Refused as error:
                said_back.append(error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            nursery.start_soon(delete)
        assert sorted(said_back) == ["deleted", "gone"]
        assert lines(await session.thread()) == ["user: go"]
    assert names(await log_of(engine.store)).count("Deleted") == 1


@pytest.mark.trio
async def test_what_is_missing_is_left_out_and_told() -> None:
    """V13, B3, B14: of an import, messages whose parent is missing, those below them and those that go in a circle are
    left out and named in a warning; a head that is not there becomes the newest leaf; order does not matter."""

    def message(name: str, parent: str | None, role: str = "user") -> dict[str, Any]:
        part = {"type": "text", "text": name}
        return {"id": name, "parent": parent, "turn": "", "role": role, "parts": [part], "created_at": 0.0}

    data = {
        "head": "gone",
        "messages": [
            message("b", "a", "assistant"),
            message("lost", "nowhere"),
            message("lower", "lost"),
            message("round", "about"),
            message("about", "round"),
            message("a", None),
            message("c", "a", "assistant"),
        ],
    }
    async with engine_of("more") as engine:
        session = await engine.import_session("s", json.dumps(data).encode())
        view = await session.thread()
        assert lines(view) == ["user: a", "assistant: c (2/2)"]
        assert status(view) == "complete/unknown"
        log = await log_of(engine.store)
        warnings = "; ".join(event.text for event in log if isinstance(event, Warned))
        assert all(name in warnings for name in ("lost", "lower", "round", "about", "gone"))
        assert ids(await session.branches("b")) == ["b", "c"]
        assert (await session.run("and?")).text == "more"
        assert [found.text for found in await session.messages()] == ["a", "c", "and?", "more"]


@pytest.mark.trio
async def test_messages_that_come_while_it_loads(tmp_path: Path) -> None:
    """V14: messages that are sent at once to a session that is still being loaded follow what is stored, each once, in
    the order they were sent."""
    path = tmp_path / "turns.db"
    async with engine_of("one", store=SQLiteStore(path)) as engine:
        await engine.session("s").run("go")
    async with engine_of(*("answer" for _ in range(5)), store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with trio.open_nursery() as nursery:
            for at in range(5):
                nursery.start_soon(session.send, f"word {at}")
        await events_of(session, until=over("t6"))
        assert said(requests_of(engine)[-1])[0] == "go"
        assert sorted(said(requests_of(engine)[-1])[1:]) == [f"word {at}" for at in range(5)]
        accepted = [e.message.text for e in await log_of(engine.store) if type(e).__name__ == "TurnStarted"]
        assert accepted == said(requests_of(engine)[-1])


@pytest.mark.trio
async def test_decisions_are_told_as_they_are_written(tmp_path: Path) -> None:
    """V6: an answer is told only once it is stored: another process that reads the store finds every answer that was
    told."""
    desk = Desk()
    path = tmp_path / "turns.db"
    script = [call("pay", amount=at) for at in range(4)]
    async with engine_of(script, tools=desk.tools, store=SQLiteStore(path)) as engine, SQLiteStore(path) as other:
        session = engine.session("s")
        asked = (await session.run("go", check=False)).waiting
        async with session.events(after=(await session.info()).last_event) as events:
            for found in asked[:3]:
                await session.deny(found)
                async for event in events:
                    if isinstance(event, CallAnswered):
                        break
                texts = [message.text for message in await read_messages(other, "s") if message.role == "tool"]
                assert len(texts) == asked.index(found) + 1
