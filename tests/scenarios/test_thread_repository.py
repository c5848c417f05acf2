"""Scenarios B1 to B15: the tree of messages, as sessions show and change it."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.depth import pick
from tests.engine.helpers import GatedModel, engine_of, requests_of, said, strict
from tests.scenarios.common import log_of
from tests.scenarios.threads import Desk, ids, lines, status
from turnstate import (
    Agent,
    Deleted,
    Engine,
    Imported,
    InvalidInput,
    MemoryStore,
    ModelRequest,
    Refused,
    Session,
    Switched,
    TurnEnded,
    TurnstateError,
)
from turnstate.reading import load
from turnstate.testing import ScriptedModel, call


@pytest.mark.trio
async def test_messages_are_made_read_changed_and_taken_out() -> None:
    """B1, B4, B6: a message is added at the head, read by its id, annotated in its place and taken out; the head
    follows."""
    async with engine_of("one", "two") as engine:
        session = engine.session("s")
        await session.run("first")
        await session.run("second")
        assert ids(await session.messages()) == ["m1", "m2", "m3", "m4"]
        await session.annotate("m2", {"good": True})
        view = await session.thread()
        assert [(shown.message.id, shown.message.metadata) for shown in view.messages] == [
            ("m1", {}),
            ("m2", {"good": True}),
            ("m3", {}),
            ("m4", {}),
        ]
        assert [(shown.position, len(shown.branches)) for shown in view.messages] == [(0, 1)] * 4
        await session.delete_message("m4")
        await session.delete_message("m3")
        assert lines(await session.thread()) == ["user: first", "assistant: one"]
        for gone in ("m3", "m4"):
            with pytest.raises(Refused):
                await session.branches(gone)
    deleted = [
        (event.message.changes, event.head) for event in await log_of(engine.store) if isinstance(event, Deleted)
    ]
    assert deleted == [(("m4",), "m3"), (("m3",), "m2")]


UNKNOWN: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "branches": lambda session: session.branches("m99"),
    "edit": lambda session: session.edit("m99", "x"),
    "regenerate": lambda session: session.regenerate("m99"),
    "switch": lambda session: session.switch("m99"),
    "delete": lambda session: session.delete_message("m99"),
    "annotate": lambda session: session.annotate("m99", {"a": 1}),
    "fork": lambda session: session.fork("m99"),
    "run": lambda session: session.run("x", edits="m99"),
}


@pytest.mark.trio
@pytest.mark.parametrize("name", list(UNKNOWN))
async def test_unknown_messages(name: str) -> None:
    """B2, B9: whatever names a message that is not there is refused as gone and changes nothing."""
    async with engine_of("one") as engine:
        session = engine.session("s")
        await session.run("first")
        before = (await session.thread(), await session.info())
        with pytest.raises(Refused) as refused:
            await UNKNOWN[name](session)
        assert refused.value.code == "gone"
        assert (await session.thread(), await session.info()) == before
        assert [found.id async for found in engine.sessions()] == ["s"]


@pytest.mark.trio
async def test_what_followed_a_deleted_message() -> None:
    """B5: what followed a deleted message follows the one before it, one message or many, and is shown as before."""
    async with engine_of("one", "other one", "two", "three") as engine:
        session = engine.session("s")
        await session.run("first")
        async with session.retry() as turn:
            await turn.result()
        await session.run("second")
        await session.switch("m2")
        await session.run("third")
        assert lines(await session.thread()) == [
            "user: first",
            "assistant: one (1/2)",
            "user: third",
            "assistant: three",
        ]
        await session.delete_message("m2")
        assert lines(await session.thread()) == ["user: first", "user: third (2/2)", "assistant: three"]
        await session.switch("m3")
        assert lines(await session.thread()) == [
            "user: first",
            "assistant: other one (1/2)",
            "user: second",
            "assistant: two",
        ]
        await session.delete_message("m1")
        assert lines(await session.thread()) == ["assistant: other one (1/2)", "user: second", "assistant: two"]
        assert [message.text for message in await session.branches("m3")] == ["other one", "third"]
        live = engine.driven("s")
        assert live is not None
        stored = await load(engine.store, "s")
        assert stored is not None
        assert stored[1].all() == live.core.transcript.all()


@pytest.mark.trio
async def test_another_first_message() -> None:
    """B7: the first message too can be said otherwise: both begin the thread, and each keeps what follows it."""
    async with engine_of("one", "two") as engine:
        session = engine.session("s")
        await session.run("first")
        result = await session.run("first!", edits="m1")
        assert result.text == "two"
        assert said(requests_of(engine)[1]) == ["first!"]
        assert lines(await session.thread()) == ["user: first! (2/2)", "assistant: two"]
        assert [found.parent for found in await session.branches("m1")] == [None, None]
        await session.switch("m1")
        assert lines(await session.thread()) == ["user: first (1/2)", "assistant: one"]


@pytest.mark.trio
async def test_branches_are_remembered() -> None:
    """B8: switching shows the path through a message, down to what was shown below it last, also after a restart; every
    leaf reads as before (case 90)."""
    store = MemoryStore()
    async with engine_of(*(f"answer {at}" for at in range(5)), store=store) as engine:
        session = engine.session("s")
        await session.run("a")
        await session.run("b")
        await session.run("b!", edits="m3")
        async with session.retry() as turn:
            await turn.result()
        await session.run("a!", edits="m1")
        assert lines(await session.thread()) == ["user: a! (2/2)", "assistant: answer 4"]
    async with engine_of(store=store) as engine:
        session = engine.session("s")
        nested = ["user: a (1/2)", "assistant: answer 0", "user: b! (2/2)", "assistant: answer 3 (2/2)"]
        await session.switch("m1")
        assert lines(await session.thread()) == nested
        await session.switch("m3")
        assert lines(await session.thread()) == [*nested[:2], "user: b (1/2)", "assistant: answer 1"]
        await session.switch("m6")
        assert lines(await session.thread()) == [*nested[:3], "assistant: answer 2 (1/2)"]
        await session.switch("m8")
        await session.switch("m1")
        assert lines(await session.thread()) == [*nested[:3], "assistant: answer 2 (1/2)"]
        assert requests_of(engine) == []
    told = [event.head for event in await log_of(store) if isinstance(event, Switched) and event.why == "switch"]
    assert told == ["m7", "m4", "m6", "m9", "m6"]


def chain(length: int) -> bytes:
    """An exported thread of so many messages, each after the one before."""
    messages = [
        {
            "id": f"m{at}",
            "parent": f"m{at - 1}" if at > 1 else None,
            "turn": "",
            "role": "user" if at % 2 else "assistant",
            "parts": [{"type": "text", "text": f"word {at}"}],
            "created_at": 0.0,
        }
        for at in range(1, length + 1)
    ]
    return json.dumps({"messages": messages}).encode()


@pytest.mark.trio
async def test_a_deep_thread() -> None:
    """B10: a thread of three thousand messages is imported, branched at both ends, switched, cut, forked and exported."""
    async with engine_of("top", "end") as engine:
        session = await engine.import_session("s", chain(3_000))
        await session.run("first!", edits="m1")
        await session.switch("m3000")
        await session.run("last")
        assert len(await session.messages()) == 3_002
        await session.switch("m1")
        assert (await session.messages())[-1].text == "end"
        await session.delete_message("m1500")
        assert len(await session.messages()) == 3_001
        fork = await session.fork("m2900")
        assert len(await fork.messages()) == 2_899
        copy = await engine.import_session("copy", await session.export())
        assert await copy.messages() == await session.messages()


@pytest.mark.trio
async def test_nothing_is_pruned_and_all_can_be_deleted() -> None:
    """B11: no change of the thread prunes a branch; messages are taken out one by one, and with the last one gone the
    next message begins anew."""
    async with engine_of("one", "two", "new") as engine:
        session = engine.session("s")
        await session.run("first")
        async with session.retry("m2") as turn:
            await turn.result()
        assert [found.text for found in await session.branches("m2")] == ["one", "two"]
        for name in ("m1", "m2", "m3"):
            await session.delete_message(name)
        assert await session.messages() == []
        with pytest.raises(Refused) as refused:
            await session.regenerate()
        assert refused.value.code == "gone"
        assert (await session.run("again")).text == "new"
        assert said(requests_of(engine)[-1]) == ["again"]


@pytest.mark.trio
async def test_a_head_that_is_no_leaf() -> None:
    """B12: an import whose head has followers keeps them, shows the path up to the head, and adds below it."""
    data = json.loads(chain(4))
    data["head"] = "m2"
    async with engine_of("new") as engine:
        session = await engine.import_session("s", json.dumps(data).encode())
        assert lines(await session.thread()) == ["user: word 1", "assistant: word 2"]
        await session.run("other")
        assert lines(await session.thread())[2:] == ["user: other (2/2)", "assistant: new"]
        await session.switch("m3")
        assert lines(await session.thread())[2:] == ["user: word 3 (1/2)", "assistant: word 4"]


@pytest.mark.trio
async def test_what_streams_is_no_message_yet() -> None:
    """B13: there are no placeholders: while a reply streams the thread, an export and a fork end at the person's
    message, and when it is stored it is a message like any."""
    model = GatedModel("half ")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            assert lines(await session.thread()) == ["user: go"]
            copy = await engine.import_session("copy", await session.export())
            fork = await session.fork()
            model.gate.open.set()
            await turn.result()
        for other in (copy, fork):
            assert lines(await other.thread()) == ["user: go"]
            assert not (await other.info()).unfinished
        assert lines(await session.thread()) == ["user: go", "assistant: half "]


BROKEN: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "JSON"),
    "no thread": (b"{}", "messages"),
    "no ids": ({"messages": [{"parent": None, "role": "user", "parts": []}]}, r"messages\[0\]"),
    "an empty id": (
        {"messages": [{"id": "", "parent": None, "turn": "", "role": "user", "parts": [], "created_at": 0}]},
        r"messages\[0\]",
    ),
    "an id twice": ({"messages": [*json.loads(chain(1))["messages"] * 2]}, "m1"),
    "an unknown role": (
        {"messages": [{"id": "a", "parent": None, "turn": "", "role": "robot", "parts": [], "created_at": 0}]},
        "role",
    ),
    "a newer format": ({"format": 99, "messages": []}, "format"),
}


@pytest.mark.trio
@pytest.mark.parametrize("name", list(BROKEN))
async def test_what_is_no_thread_is_not_imported(name: str) -> None:
    """B15: an import needs ids and known fields; where one is wrong the error names it, and no session begins."""
    data, word = BROKEN[name]
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    async with engine_of() as engine:
        with pytest.raises(InvalidInput, match=word):
            await engine.import_session("s", raw)
        assert [found async for found in engine.sessions()] == []


@pytest.mark.trio
async def test_what_imported_messages_show() -> None:
    """B15, O13: of an import nothing runs and nothing waits; what was exported is imported as it was, branches, choice
    and head included, and exported again it is the same."""
    desk = Desk()
    async with engine_of(["so", call("look")], "done", "or so", "more", tools=desk.tools) as engine:
        session = engine.session("s")
        await session.run("go")
        async with session.retry() as turn:
            await turn.result()
        await session.annotate("m1", {"rating": 1})
        await session.switch("m4")
        exported = await session.export()
        copy = await engine.import_session("copy", exported)
        assert await copy.messages() == await session.messages()
        assert lines(await copy.thread()) == lines(await session.thread())
        assert status(await copy.thread()) == "complete/unknown"
        again, first = json.loads(await copy.export()), json.loads(exported)
        assert {**again, "session": ""} == {**first, "session": ""}
        await copy.switch("m5")
        assert (await copy.messages())[-1].text == "or so"
        await copy.run("and?")
        assert lines(await session.thread()) == [
            "user: go",
            "assistant: so (1/2)",
            "tool: saw",
            "assistant: done",
        ]
        async with copy.events() as events:
            assert isinstance(await events.__anext__(), Imported)
    assert desk.did == ["look"]


def reply(request: ModelRequest) -> Any:
    """A reply by how long the conversation is: text, a call that runs, one that waits, or text beside them."""
    strict(request.messages)
    if request.messages[-1].role == "tool":
        return f"after {len(request.messages)}"
    kind = len(request.messages) % 4
    number = request.attempt.split(".")[0]
    if kind == 1:
        return [f"look {number}", call("look"), call("look", at="b")]
    return [call("look"), call("pay")] if kind == 3 else f"answer {number}"


class Walk:
    """Random changes of one thread, whose results are checked after each."""

    def __init__(self, engine: Engine[None], seed: int) -> None:
        self.engine = engine
        self.session = engine.session("s")
        self.dice = random.Random(seed)
        self.refused = 0
        self.done = 0

    async def all(self) -> list[Any]:
        """All messages there are."""
        loaded = await load(self.engine.store, "s")
        return [] if loaded is None else list(loaded[1].all())

    async def step(self) -> None:
        """One change, of a random kind, of a random message."""
        session = self.session
        some = self.dice.choice(await self.all() or [None])
        name = "m1" if some is None else some.id
        changes: list[Callable[[], Awaitable[Any]]] = [
            lambda: session.run("say", check=False),
            lambda: session.edit(name, "else"),
            lambda: session.regenerate(name),
            lambda: session.regenerate(),
            lambda: session.switch(name),
            lambda: session.switch(name),
            lambda: session.delete_message(name),
            lambda: session.annotate(name, {"seen": self.done}),
            lambda: self.answer(),
        ]
        before = (await session.thread(), await session.info(), await session.export())
        try:
            await self.dice.choice(changes)()
            self.done += 1
        except TurnstateError:
            self.refused += 1
            assert (await session.thread(), await session.info(), await session.export()) == before
        await trio.testing.wait_all_tasks_blocked()

    async def answer(self) -> None:
        """Answer what waits."""
        for found in (await self.session.info()).waiting:
            await self.session.deny(found)

    async def check(self) -> None:
        """What holds after each change."""
        loaded = await load(self.engine.store, "s")
        assert loaded is not None
        checkpoint, tree = loaded
        assert checkpoint.head == tree.head
        parents: list[str | None] = [message.parent for message in tree.path]
        assert parents == [None, *ids(tree.path)][: len(parents)]
        assert tree.head == (tree.path[-1].id if tree.path else None)
        for message in tree.all():
            assert tree.branches(message.id).count(message.id) == 1
            assert message.parent is None or message.parent in tree
        for parent, child in tree.chosen.items():
            assert child in tree.followers(parent or None)
        live = self.engine.driven("s")
        if live is not None:
            assert live.core.transcript.all() == tree.all()
            assert live.core.transcript.path == tree.path
            assert dict(live.core.transcript.chosen) == dict(tree.chosen)
        for shown in (await self.session.thread()).messages:
            assert shown.branches[shown.position] == shown.message.id


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(pick(2, 6)))
async def test_any_changes_leave_a_tree(seed: int) -> None:
    """O14: after any sequence of changes the head ends a path from the root, each choice is one of the followers, what
    was refused changed nothing, the stored thread is the live one, and exported and imported it is the same."""
    desk = Desk()
    agent = Agent[None](ScriptedModel(reply), tools=desk.tools)
    store = MemoryStore()
    done = refused = 0
    for part in range(3):
        async with Engine(agent, store) as engine:
            walk = Walk(engine, seed * 10 + part)
            await walk.session.run("begin", check=False)
            for _ in range(20):
                await walk.step()
                await walk.check()
            done, refused = done + walk.done, refused + walk.refused
            session, name = walk.session, f"copy {part}"
            copy = await engine.import_session(name, await session.export())
            assert [*await copy.messages()] == [*await session.messages()]
            again, first = json.loads(await copy.export()), json.loads(await session.export())
            assert {**again, "session": ""} == {**first, "session": ""}
            for message in await walk.all():
                await copy.switch(message)
                assert message.id in ids(await copy.messages())
    ends = [event for event in await log_of(store) if isinstance(event, TurnEnded)]
    assert [(event.outcome, event.reason) for event in ends if event.outcome not in ("completed", "superseded")] == []
    assert done > 20
    assert refused > 0
