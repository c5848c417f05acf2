"""The list of sessions: what it shows, what can be asked for, page by page, and deleting what is on it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from tests.engine.helpers import Gate, GatedModel, engine_of, events_of
from turnstate import (
    Agent,
    Client,
    Engine,
    InvalidInput,
    MemoryStore,
    Refused,
    SessionInUse,
    SQLiteStore,
    StaleSession,
    Store,
    TurnEnded,
    tool,
)
from turnstate.records import stored_commit
from turnstate.stores.base import StoredCommit, StoredSession
from turnstate.testing import call
from turnstate.testing.store_suite import owner_of_here
from turnstate_states.checkpoint import Checkpoint, Commit


@tool(approval=True, expires=60)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An open store."""
    async with MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "t.db") as store:
        yield store


async def keep(store: Store, session: str, **fields: Any) -> None:
    """Store a session in which nothing runs."""
    owner = owner_of_here("keeper")
    await store.renew(owner)
    await store.claim(session, owner, time.time())
    commit = Commit(0, Checkpoint(session, 1.0, sequence=1, **fields), [], [], [], [], [], [])
    await store.commit(stored_commit(commit, owner.id))
    await store.release(session, owner.id)


async def listed(engine: Engine, **only: Any) -> list[str]:
    """The ids that a list shows."""
    return [info.id async for info in engine.sessions(**only)]


async def test_a_list_shows_what_info_shows(store: Store) -> None:
    """A session in the list is what its handle tells of it, its calls included, but for usage and reason."""
    async with engine_of("hi", call("pay", amount=3), tools=[pay], store=store) as engine:
        await engine.session("ended").run("go")
        await engine.session("waits").run("Pay three", check=False)
        await keep(store, "kept", archived=True, labels={"a": "b"}, title="T", updated_at=5.0)
        ended, kept, waits = [info async for info in engine.sessions(archived=None)]
        for info in (ended, kept, waits):
            whole = await engine.session(info.id).info()
            assert info == attrs.evolve(whole, usage=info.usage, reason="")
        assert (ended.outcome, ended.deadline, waits.outcome) == ("completed", None, "")
        assert (kept.archived, kept.labels, kept.title) == (True, {"a": "b"}, "T")
        assert [(c.tool, c.arguments) for c in waits.waiting] == [("pay", {"amount": 3})]
        assert waits.deadline == waits.waiting[0].expires_at is not None


async def test_following_from_where_the_list_was_read(store: Store) -> None:
    """The events after a listed session's last one are exactly those that came since."""
    async with engine_of("one", "two", store=store) as engine:
        session = engine.session("s")
        await session.run("first")
        (info,) = [info async for info in engine.sessions()]
        await session.run("second")
        found = await events_of(session, info.last_event, until=lambda event: isinstance(event, TurnEnded))
        assert [event.number for event in found if event.number] == [
            info.last_event + n for n in range(1, len(found) + 1)
        ]
        assert {event.turn for event in found} == {"t2"}


async def test_a_deadline_is_one_only_while_all_waits() -> None:
    """As long as a call runs beside the one that is asked for, and once that is answered, there is no deadline."""
    gate = Gate()

    @tool
    async def work() -> str:
        """Work."""
        await gate.wait()
        return "worked"

    lines = [(call("pay", amount=1), call("work")), "done"]
    async with engine_of(*lines, tools=[pay, work]) as engine, engine.session("s").turn("go") as turn:
        await gate.reached.wait()
        info = await engine.session("s").info()
        assert (len(info.waiting), info.deadline) == (1, None)
        gate.open.set()
        assert (await turn.result(check=False)).outcome == "waiting"
        info = await engine.session("s").info()
        assert info.deadline == info.waiting[0].expires_at is not None
        await engine.session("s").approve(*info.waiting)
        await turn.result()
        assert (await engine.session("s").info()).deadline is None


ASKED: list[tuple[dict[str, Any], str]] = [
    ({}, "a b"),
    ({"archived": True}, "c"),
    ({"archived": None}, "a b c"),
    ({"children": True}, "a b d"),
    ({"search": "TRIP"}, "a"),
    ({"search": "k\u00d6ln"}, "a"),
    ({"search": "0%"}, "b"),
    ({"labels": {"p": "x"}}, "a b"),
    ({"labels": {"p": "x", "q": "y"}}, "a"),
    ({"order": "recent"}, "b a"),
    ({"order": "recent", "archived": None, "children": True}, "d b a c"),
    ({"waiting": True}, ""),
    ({"unfinished": True}, ""),
]
"""What is asked for, and the sessions that are listed."""


async def test_what_can_be_asked_for(store: Store) -> None:
    """Archived sessions and children are left out unless they are asked for; title and labels are searched."""
    await keep(store, "a", title="Trip to K\u00f6ln", labels={"p": "x", "q": "y"}, updated_at=20.0)
    await keep(store, "b", title="50% off", labels={"p": "x"}, updated_at=30.0)
    await keep(store, "c", title="50 trips", archived=True, updated_at=10.0)
    await keep(store, "d", title="child trip", parent="a", updated_at=40.0)
    async with engine_of(store=store) as engine, Client(store) as client:
        for only, expected in ASKED:
            assert " ".join(await listed(engine, **only)) == expected
            assert " ".join([info.id async for info in client.sessions(**only)]) == expected
            assert " ".join([info.id for info in (await client.session_page(**only)).sessions]) == expected


@pytest.mark.parametrize("order", ["id", "recent"])
async def test_pages(store: Store, order: Any) -> None:
    """The pages together are the list, whatever their size, and the last one says that it is."""
    for number in range(6):
        await keep(store, f"s{number}", updated_at=1000.0 * (number % 4))
    async with Client(store) as client:
        whole = [info.id async for info in client.sessions(order=order)]
        assert len(whole) == 6
        for limit in (1, 2, 3, 4, 6, 7):
            found: list[str] = []
            after: str | None = None
            while True:
                page = await client.session_page(order=order, limit=limit, after=after)
                assert len(page.sessions) <= limit
                found += [info.id for info in page.sessions]
                after = page.next
                if after is None:
                    break
            assert found == whole


async def test_a_page_goes_on_where_its_session_was(store: Store) -> None:
    """When the session that a page ended with is deleted or changes, the next page goes on from its old place."""
    for number in range(4):
        await keep(store, f"s{number}", updated_at=100.0 - number)
    async with engine_of("hi", store=store) as engine:
        page = await engine.session_page(order="recent", limit=2)
        assert await engine.delete("s1")
        await engine.session("s0").run("go")
        rest = await engine.session_page(order="recent", limit=2, after=page.next)
        assert [info.id for info in (*page.sessions, *rest.sessions)] == ["s0", "s1", "s2", "s3"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", 0),
        ("limit", -1),
        ("limit", 1001),
        ("limit", "5"),
        ("order", "newest"),
        ("order", []),
        ("after", "s1"),
        ("after", ""),
        ("after", 5),
        ("after", "WyJpZCIsIDUsIDAuMF0"),
        ("after", "WyJpZCIsICJcdWQ4MDAiLCAwLjBd"),
        ("after", "WyJyZWNlbnQiLCAicyIsIDAuMF0"),
        ("after", "WyJpZCIsICJzIiwgMWU5OTld"),
        ("search", 5),
        ("search", "\ud800"),
        ("labels", {"a": 1}),
        ("labels", "a"),
        ("archived", "no"),
        ("waiting", 1),
    ],
)
async def test_bad_input_is_named(field: str, value: Any) -> None:
    """What cannot be asked for is refused with the name of the argument."""
    async with Client(MemoryStore()) as client:
        with pytest.raises(InvalidInput, match=f"^{field}: "):
            await client.session_page(**{field: value})


async def test_a_broken_session_is_listed(caplog: pytest.LogCaptureFixture) -> None:
    """A session that waits and whose checkpoint cannot be read is listed without its calls, and the others with theirs."""
    store = MemoryStore()
    async with engine_of(*[call("pay", amount=1)] * 2, tools=[pay], store=store) as engine:
        for id in ("a", "b"):
            await engine.session(id).run("go", check=False)
        kept = store._kept["a"]  # pyright: ignore[reportPrivateUsage]
        kept.stored = StoredSession("a", 1, b"broken")
        infos = [info async for info in engine.sessions(waiting=True)]
    assert [(info.id, len(info.waiting)) for info in infos] == [("a", 0), ("b", 1)]
    assert "session a " in caplog.text


async def test_deleting(store: Store) -> None:
    """A session is deleted with those that answer its calls; deleting it again finds none."""
    async with engine_of("one", "anew", store=store) as engine:
        await engine.session("s").run("go")
        await keep(store, "child", parent="s")
        await keep(store, "grandchild", parent="child")
        await keep(store, "other")
        with trio.fail_after(0.5):
            assert await engine.delete("s")
            assert engine.sessions_driven == ()
            assert await listed(engine, children=True) == ["other"]
            assert not await engine.delete("s")
            assert (await engine.session("s").run("again")).text == "anew"
        assert len(await engine.session("s").messages()) == 2


async def test_deleting_what_is_followed(store: Store) -> None:
    """Whoever follows a session does not keep it from being deleted, and is told what happens under its id later."""
    async with engine_of("one", "two", "three", store=store) as engine, engine.session("s").events() as events:
        await engine.session("s").run("go")
        last = (await engine.session("s").info()).last_event
        with trio.fail_after(0.5):
            assert await engine.delete("s")
        assert engine.sessions_driven == ()
        for text in ("again", "and again"):
            await engine.session("s").run(text)
        with trio.fail_after(5):
            async for event in events:
                if event.number == last + 1:
                    break


async def test_what_has_a_turn_is_not_deleted(store: Store) -> None:
    """A session with a turn that has not ended, or with such a child, is busy; interrupted it can be deleted."""
    model = GatedModel("x")
    async with Engine(Agent(model), store) as engine, Client(store) as client:
        async with engine.session("s").turn("go") as turn:
            await model.gate.reached.wait()
            with pytest.raises(Refused, match="'s'") as refused:
                await engine.delete("s")
            assert refused.value.code == "busy"
            with pytest.raises(SessionInUse):
                await client.delete("s")
            await engine.session("s").interrupt()
            assert (await turn.result(check=False)).outcome == "interrupted"
        assert await engine.delete("s")
    async with engine_of(call("pay", amount=1), tools=[pay], store=store) as engine:
        await engine.session("waits").run("go", check=False)
    async with Client(store) as client:
        with pytest.raises(Refused):
            await client.delete("waits")
        assert (await client.session("waits").info()).unfinished


async def test_what_another_engine_drives_is_not_deleted(store: Store) -> None:
    """Only the engine that drives a session can delete it; once it is left, a client can as well."""
    async with engine_of("one", store=store) as one, engine_of(store=store) as two, Client(store) as client:
        await one.session("s").run("go")
        for other in (two, client):
            with pytest.raises(SessionInUse):
                await other.delete("s")
        assert one.sessions_driven == ("s",)
    async with Client(store) as client:
        assert await client.delete("s")
        assert not await client.delete("s")
        with pytest.raises(InvalidInput, match="session id"):
            await client.delete("")


async def test_what_is_sent_to_a_session_that_is_being_deleted() -> None:
    """A message that arrives while its session is deleted either begins it anew or is refused; none is lost in silence."""

    class Slow(MemoryStore):
        async def commit(self, commit: StoredCommit) -> None:
            await trio.sleep(0.001)
            await super().commit(commit)

    outcomes: list[str] = []
    async with engine_of(*["text"] * 40, store=Slow()) as engine:
        session = engine.session("s")

        async def send() -> None:
            try:
                outcomes.append((await session.run("go")).outcome)
            except StaleSession:
                outcomes.append("stale")

        async def delete() -> None:
            try:
                await engine.delete("s")
            except Refused:
                outcomes.append("busy")

        for _ in range(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                nursery.start_soon(delete)
        assert "completed" in outcomes
        assert (await engine.session("s").run("last")).outcome == "completed"
