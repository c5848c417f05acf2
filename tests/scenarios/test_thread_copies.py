"""Threads that are forked, exported and imported (D9, case 90)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from tests.engine.helpers import GatedModel, engine_of, events_of, requests_of, said
from tests.scenarios.common import over
from tests.scenarios.threads import Desk, ids, lines, waiting
from turnstate import (
    Agent,
    Client,
    Engine,
    Imported,
    InvalidInput,
    MemoryStore,
    ModelError,
    Refused,
    SessionHandle,
    StoreError,
)
from turnstate.testing import FaultyStore, ScriptedModel, call


async def imported(session: SessionHandle) -> Imported:
    """The event with which a session began."""
    async with session.events() as events:
        event = await events.__anext__()
    assert isinstance(event, Imported)
    return event


@pytest.mark.trio
async def test_a_fork_at_each_message() -> None:
    """D9, a fork ends with the message that is named, itself included, wherever that is but between a call and its
    results, which is refused (case 90); what it was forked from is not changed, and both go on apart."""
    desk = Desk()
    script = ["one", [call("look", at="a"), call("look", at="b")], "two", ModelError("no", kind="permission"), "three"]
    async with engine_of(*script, *["four"] * 10, tools=desk.tools) as engine:
        session = engine.session("s")
        await session.run("first")
        await session.run("second")
        await session.run("third", check=False)
        await session.run("second!", edits="m3")
        tree = {message.id: message for message in json_messages(await session.export())}
        before = (await session.thread(), await session.export())
        refused: list[tuple[str, str]] = []
        for name in tree:
            try:
                fork = await session.fork(name)
            except Refused as error:
                refused.append((name, error.code))
                continue
            path = ids(await fork.messages())
            assert sorted(path) == sorted(path_to(tree, name))
            if tree[name].role == "user":
                async with fork.retry() as turn:
                    await turn.result()
            else:
                await fork.run("and?")
            assert ids(await fork.messages())[: len(path)] == path
            assert len(set(ids(await fork.messages()))) == len(path) + (1 if tree[name].role == "user" else 2)
        assert refused == [("m4", "stale"), ("m5", "stale")]
        assert (await session.thread(), await session.export()) == before
    assert sorted(desk.did) == ["look a", "look b"]


class Row:
    """What an export says of a message."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.id: str = data["id"]
        self.parent: str | None = data.get("parent")
        self.role: str = data["role"]


def json_messages(data: bytes) -> list[Row]:
    """The messages of an export."""
    return [Row(item) for item in json.loads(data)["messages"]]


def path_to(tree: dict[str, Row], name: str | None) -> list[str]:
    """The ids of a message and of those before it."""
    found: list[str] = []
    while name is not None:
        found.append(name)
        name = tree[name].parent
    return found


@pytest.mark.trio
@pytest.mark.parametrize("who", ["the engine", "a client"])
async def test_what_a_fork_takes_along(who: str) -> None:
    """D9: a fork has the messages and the title, and says where it came from; requests, approvals for the session,
    labels, the queue and what runs stay where they were."""
    desk = Desk()
    async with engine_of(call("pay"), call("pay", amount=2), "four", tools=desk.tools) as engine:
        session = engine.session("s")
        async with Client(engine.store) as client:
            first = (await session.run("about money", check=False)).waiting
            async with session.resume() as turn:
                await session.approve(*first, for_session=True)
                await turn.result(check=False)
            await session.label({"a": "b"})
            await session.send("later")
            handle: SessionHandle = session if who == "the engine" else client.session("s")
            fork = await handle.fork(id="copy")
            info = await fork.info()
            assert (info.id, info.title, info.labels, info.queued) == ("copy", "about money", {}, 0)
            assert (info.unfinished, info.held, info.state) == (False, False, "idle")
            assert await fork.grants() == ()
            assert await waiting(fork) == []
            event = await imported(fork)
            assert (event.source, event.messages, event.head) == ("s", 3, "m3")
            assert lines(await fork.thread()) == ["user: about money", "assistant: ", "tool: paid 1"]
            assert len(await waiting(session)) == 1
            with pytest.raises(Refused) as refused:
                await handle.fork(id="copy")
            assert refused.value.code == "conflict"
            with pytest.raises(Refused):
                await handle.fork(id="s")
            for bad in ("", "\n", "x" * 201):
                with pytest.raises(InvalidInput):
                    await handle.fork(id=bad)
            other = await handle.fork()
            assert other.id.startswith("s-")
            assert sorted([found.id async for found in client.sessions()]) == sorted(["copy", "s", other.id])
        assert (await engine.session("copy").run("go on")).text == "four"
        assert said(requests_of(engine)[-1]) == ["about money", "go on"]


@pytest.mark.trio
async def test_a_fork_while_a_turn_runs() -> None:
    """D9: a session whose turn runs is forked from what is stored, and the turn is not disturbed; without a message it
    ends at the last place where a conversation may be cut."""
    desk = Desk()
    model = GatedModel("half ", rest="whole")
    async with Engine(Agent[None](model, tools=desk.tools), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            fork = await session.fork()
            assert (await fork.run("else", edits="m1")).text == "whole"
            model.gate.open.set()
            assert (await turn.result()).text == "half "
    async with engine_of([call("look"), call("pay")], tools=desk.tools) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        assert lines(await (await session.fork()).thread()) == ["user: go"]
        with pytest.raises(Refused) as refused:
            await session.fork("m3")
        assert refused.value.code == "stale"


@pytest.mark.trio
async def test_a_fork_of_nothing() -> None:
    """D9: a session in which nothing was said gives an empty fork, which is as usable as it is."""
    async with engine_of("one") as engine:
        fork = await engine.session("new").fork(id="copy")
        assert await fork.messages() == []
        assert (await fork.run("go")).text == "one"
        assert [found.id async for found in engine.sessions()] == ["copy"]


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_copy_whose_write_fails(when: Any) -> None:
    """A fork or an import whose write fails raises, and is there whole or not at all; nobody holds a claim on it."""
    store = MemoryStore()
    async with engine_of("one", store=store) as engine:
        await engine.session("s").run("go")
        exported = await engine.session("s").export()
    faulty = FaultyStore(store, 1, when)
    async with Client(faulty) as client:
        with pytest.raises(StoreError):
            await client.session("s").fork(id="copy")
    async with engine_of("two", "three", store=store) as engine:
        copy = engine.session("copy")
        if when == "before":
            assert await copy.messages() == ()
            copy = await engine.import_session("copy", exported)
        assert lines(await copy.thread()) == ["user: go", "assistant: one"]
        assert (await copy.run("and")).text == "two"


@pytest.mark.trio
async def test_two_at_once_make_one_copy() -> None:
    """Of two who import to the same id at once one makes the session, and the other is told that it exists."""
    async with engine_of() as engine, Client(engine.store) as client:
        outcomes: list[str] = []

        async def copy(importer: Any, word: str) -> None:
            message = {"id": "a", "parent": None, "turn": "", "role": "user", "created_at": 0.0}
            data = {"messages": [{**message, "parts": [{"type": "text", "text": word}]}]}
            try:
                await importer.import_session("copy", json.dumps(data).encode())
                outcomes.append(word)
            except Refused as error:
                outcomes.append(error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy, engine, "one")
            nursery.start_soon(copy, client, "two")
        assert sorted(outcomes)[0] == "conflict"
        (message,) = await engine.session("copy").messages()
        assert [message.text, "conflict"] == sorted(outcomes, reverse=True)


@pytest.mark.trio
async def test_an_import_is_gone_on_with() -> None:
    """D9: ids and turns are counted on behind those of an import, so that none is given twice, whatever it holds."""

    def message(name: str, parent: str | None, role: str, turn: str) -> dict[str, Any]:
        part = {"type": "text", "text": name}
        return {"id": name, "parent": parent, "turn": turn, "role": role, "parts": [part], "created_at": 0.0}

    rows = [message("m7", None, "user", "t3"), message("x", "m7", "assistant", "t3"), message("m2", "x", "user", "t9")]
    model = ScriptedModel(lambda request: "answer")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = await engine.import_session("s", json.dumps({"messages": rows, "title": "Old"}).encode())
        assert (await session.info()).title == "Old"
        async with session.retry() as turn:
            assert turn.id == "t10"
            await turn.result()
        await session.run("more")
        assert ids(await session.messages()) == ["m7", "x", "m2", "m8", "m9", "m10"]
        await session.switch("x")
        await session.run("more!", edits="m2")
        assert lines(await session.thread()) == [
            "user: m7",
            "assistant: x",
            "user: more! (2/2)",
            "assistant: answer",
        ]


@pytest.mark.trio
async def test_an_archive_of_a_branched_thread() -> None:
    """Every branch of an exported thread reads in its copy as it did, in another store and after a restart (case
    90)."""
    async with engine_of(*(f"answer {at}" for at in range(6))) as engine:
        session = engine.session("s")
        await session.run("a")
        await session.run("b")
        await session.run("b!", edits="m3")
        async with session.retry("m2") as turn:
            await turn.result()
        await session.run("c")
        leaves: dict[str, list[str]] = {}
        rows = json_messages(await session.export())
        for row in rows:
            if row.id not in {other.parent for other in rows}:
                await session.switch(row.id)
                leaves[row.id] = lines(await session.thread())
        assert len(leaves) == 3
        await session.switch("m4")
        exported = await session.export()
        await events_of(session, until=over())
    store = MemoryStore()
    async with Client(store) as client:
        await client.import_session("t", exported)
    async with engine_of("more", store=store) as engine:
        copy = engine.session("t")
        assert lines(await copy.thread())[-1] == "assistant: answer 1"
        for name, expected in leaves.items():
            await copy.switch(name)
            assert lines(await copy.thread()) == expected
