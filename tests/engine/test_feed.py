"""Telling what happens: live, late, slow and replayed."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import GatedModel, engine_of, events_of, until_event
from turnstate import Agent, Client, Engine, Event, Lagged, MemoryStore, TextDelta, ToolContext, TurnEnded, tool
from turnstate import feed as feed_module
from turnstate.testing import FaultyStore, call


def numbered(events: list[Any]) -> list[Any]:
    """Those that are stored."""
    return [event for event in events if event.number is not None]


def ended(event: Event) -> bool:
    """Whether it is the end of a turn."""
    return isinstance(event, TurnEnded)


@tool
async def noop(ctx: ToolContext[None]) -> str:
    """Do nothing."""
    ctx.progress("busy")
    return "ok"


@pytest.mark.trio
async def test_live_equals_replay() -> None:
    """A live subscriber and one that replays from any number see the same numbered events."""
    async with engine_of([call("noop"), call("noop")], "one two", "three", tools=[noop]) as engine:
        session = engine.session("s")
        found: list[list[Any]] = []

        async def watch() -> None:
            found.append(await events_of(session, until=lambda e: ended(e) and e.turn == "t2"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            nursery.start_soon(watch)
            await trio.testing.wait_all_tasks_blocked()
            await session.run("go")
            await session.run("on")
        live = numbered(found[0])
        assert numbered(found[1]) == live
        assert [event.number for event in live] == list(range(1, len(live) + 1))
        async with Client(engine.store) as client:
            for after in range(len(live)):
                for handle in (session, client.session("s")):
                    with trio.fail_after(5):
                        async with handle.events(after=after) as stream:
                            rest = [await anext(stream) for _ in range(len(live) - after)]
                    assert rest == live[after:]


@pytest.mark.trio
async def test_late_subscriber() -> None:
    """A late subscriber gets what the running attempt has so far as one, after what is stored, then the rest."""
    model = GatedModel("a ", "b ", "c")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            async with session.events() as late:
                first = [await anext(late) for _ in range(3)]
                assert [type(event).__name__ for event in first] == ["TurnStarted", "StepStarted", "TextDelta"]
                assert first[2].text == "a b c"  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]
                model.gate.open.set()
                assert type(await anext(late)).__name__ == "StepEnded"
            await turn.result()


@pytest.mark.trio
async def test_text_of_an_ended_attempt_comes_before_its_end() -> None:
    """A subscriber that came while an attempt ran and reads much later sees its text before its end."""
    model = GatedModel("a ", "b")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            async with session.events() as late:
                model.gate.open.set()
                await turn.result()
                names: list[str] = []
                async for event in late:
                    names.append(type(event).__name__)
                    if ended(event):
                        break
    assert names == ["TurnStarted", "StepStarted", "TextDelta", "StepEnded", "Replied", "TurnEnded"]


@pytest.mark.trio
async def test_slow_reader_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is too slow is told where to read on, ends with the turn, and delays nobody; memory stays bounded."""
    monkeypatch.setattr(feed_module, "CAPACITY", 100)
    model = GatedModel("x")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn, session.events() as stream:
            driver = engine.driven("s")
            assert driver is not None
            await model.gate.reached.wait()
            for i in range(10_000):
                driver.feed.delta("text", f"{i} ", 0)
            assert driver.feed.entries(0) is None
            assert len(driver.feed._entries) <= 100  # pyright: ignore[reportPrivateUsage]
            model.gate.open.set()
            await turn.result()
            slow = [event async for event in turn]
            lagged = [event for event in slow if isinstance(event, Lagged)]
            assert lagged
            assert isinstance(slow[-1], TurnEnded)
            log: list[Any] = []
            async for event in stream:
                log.append(event)
                if ended(event):
                    break
            assert [event.number for event in numbered(log)] == list(range(1, len(numbered(log)) + 1))


@pytest.mark.trio
async def test_end_that_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn's reader that lagged past the end still gets the end."""
    monkeypatch.setattr(feed_module, "CAPACITY", 4)
    async with engine_of([call("noop")] * 5, "done", tools=[noop]) as engine, engine.session("s").turn("go") as turn:
        await turn.result()
        events = [event async for event in turn]
    assert isinstance(events[-1], TurnEnded)
    assert any(isinstance(event, Lagged) for event in events)


@pytest.mark.trio
async def test_what_was_read_is_forgotten() -> None:
    """The feed keeps nothing that all have read, and nothing when nobody reads."""
    async with engine_of(*["x"] * 20) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            async for _ in turn:
                pass
            driver = engine.driven("s")
            assert driver is not None
            assert driver.feed._entries == []  # pyright: ignore[reportPrivateUsage]
        await session.run("go")
        assert driver.feed._entries == []  # pyright: ignore[reportPrivateUsage]


@pytest.mark.trio
async def test_stream_over_eviction(autojump_clock: trio.testing.MockClock) -> None:
    """Events come once and in order over drivers that leave and come again; an idle driver leaves."""
    async with engine_of(*["x"] * 4) as engine:
        session = engine.session("s")
        async with Client(engine.store) as client, client.session("s").events() as stream:
            for _ in range(4):
                await session.run("go")
                assert engine.driven("s") is not None
                await trio.sleep(5)
                assert engine.driven("s") is None
            numbers = [(await anext(stream)).number for _ in range(20)]
        assert numbers == list(range(1, 21))
        assert not engine._drivers  # pyright: ignore[reportPrivateUsage]
        assert not engine._opening  # pyright: ignore[reportPrivateUsage]


@pytest.mark.trio
async def test_stream_over_failure() -> None:
    """A failed commit ends the driver, not those who follow the session: they go on with what is stored."""
    store = FaultyStore(MemoryStore(), fail_at=2)
    async with engine_of("x", "y", store=store) as engine:
        session = engine.session("s")
        async with session.events() as stream:
            await session.send("go")
            assert type(await anext(stream)).__name__ == "TurnStarted"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(until_event, session, TurnEnded)
                await trio.testing.wait_all_tasks_blocked()
                async with session.resume() as turn:
                    await turn.result()
            names: list[str] = []
            async for event in stream:
                names.append(type(event).__name__)
                if ended(event):
                    break
    names = [name for name in names if name != "TextDelta"]
    assert names == ["StepStarted", "StepEnded", "StepStarted", "StepEnded", "Replied", "TurnEnded"]


@pytest.mark.trio
async def test_deltas_are_joined() -> None:
    """Neighbouring deltas of one kind that a reader has not taken yet come as one."""
    model = GatedModel(*"abcdef")
    async with Engine(Agent(model), MemoryStore()) as engine, engine.session("s").turn("go") as turn:
        await model.gate.reached.wait()
        model.gate.open.set()
        await turn.result()
        assert [event.text async for event in turn if isinstance(event, TextDelta)] == ["abcdef"]
