"""Attempts that break, and what follows."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import StrictModel, engine_of, events_of, requests_of, said, until_event
from turnstate import (
    Agent,
    Engine,
    Limits,
    MemoryStore,
    ModelError,
    ModelRequest,
    Reply,
    Retrying,
    StepEnded,
    Text,
    TextDelta,
    TurnEnded,
    TurnFailed,
    Usage,
)
from turnstate.models.base import OnDelta
from turnstate.testing import ScriptedModel

Clock = trio.testing.MockClock


def broken(retry_after: float | None = None, retryable: bool = True) -> ModelError:
    """An error of a server that may be better soon."""
    return ModelError("busy", kind="overloaded", retryable=retryable, status=503, retry_after=retry_after)


class TimedModel(StrictModel):
    """Notes when it was asked, and gives a piece of text before it breaks."""

    def __init__(self, *lines: Any) -> None:
        super().__init__(list(lines))
        self.times: list[float] = []

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        self.times.append(trio.current_time())
        on_delta("text", f"attempt {len(self.times)}", 0)
        return await super().respond(request, on_delta)


def engine_with(model: TimedModel, **more: Any) -> Engine[None]:
    """An engine on a memory store."""
    return Engine(Agent[None](model, **more), MemoryStore())


@pytest.mark.trio
async def test_backs_off(autojump_clock: Clock) -> None:
    """A retryable error is retried after a delay that doubles, with its own attempt id; its output is void."""
    model = TimedModel(broken(), broken(), broken(), "done")
    async with engine_with(model) as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert (result.text, result.steps, result.attempts) == ("done", 1, 4)
        gaps = [b - a for a, b in zip(model.times, model.times[1:], strict=False)]
        for gap, delay in zip(gaps, (0.5, 1, 2), strict=True):
            assert delay * 0.75 - 0.01 <= gap <= delay + 0.01
        assert [r.attempt for r in model.requests] == ["t1.1.1", "t1.1.2", "t1.1.3", "t1.1.4"]
        assert [m.text for m in await session.messages()] == ["go", "done"]
        log = await events_of(session, until=lambda e: isinstance(e, TurnEnded))
        assert [e.attempt for e in log if isinstance(e, Retrying)] == ["t1.1.1", "t1.1.2", "t1.1.3"]
        assert [e.outcome for e in log if isinstance(e, StepEnded)] == ["retrying"] * 3 + ["completed"]


@pytest.mark.trio
async def test_waits_as_long_as_the_server_says(autojump_clock: Clock) -> None:
    """The delay is never less than the server's Retry-After (case 100)."""
    model = TimedModel(broken(30), "done")
    async with engine_with(model) as engine:
        await engine.session("s").run("go")
    assert model.times[1] - model.times[0] == pytest.approx(30, abs=0.01)


@pytest.mark.trio
async def test_too_long_a_wait_fails(autojump_clock: Clock) -> None:
    """A Retry-After above the cap fails the turn at once, with the time in the error (case 100)."""
    model = TimedModel(broken(86400))
    async with engine_with(model) as engine:
        start = trio.current_time()
        with pytest.raises(TurnFailed, match="86400 s"):
            await engine.session("s").run("go")
        assert trio.current_time() - start < 1


@pytest.mark.trio
async def test_attempts_exhausted(autojump_clock: Clock) -> None:
    """When the attempts are used up the turn fails with the last error as its cause, and the last text is kept."""
    errors = [broken() for _ in range(3)]
    model = TimedModel(*errors)
    async with engine_with(model, limits=Limits(attempts=3)) as engine:
        session = engine.session("s")
        with pytest.raises(TurnFailed) as caught:
            await session.run("go")
        assert caught.value.__cause__ is errors[-1]
        assert caught.value.result.attempts == 3
        last = (await session.messages())[-1]
        assert (last.status, last.text) == ("incomplete", "attempt 3")


@pytest.mark.trio
async def test_not_retryable(autojump_clock: Clock) -> None:
    """An error that is not retryable is not retried."""
    model = TimedModel(broken(retryable=False))
    async with engine_with(model) as engine:
        with pytest.raises(TurnFailed):
            await engine.session("s").run("go")
    assert len(model.times) == 1


@pytest.mark.trio
async def test_interrupt_in_back_off(autojump_clock: Clock) -> None:
    """An interrupt during back-off ends the turn at once, and no request follows (case 78)."""
    model = TimedModel(broken(50), "next")
    async with engine_with(model) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await until_event(session, Retrying)
            start = trio.current_time()
            await session.interrupt()
            assert (await turn.result(check=False)).outcome == "interrupted"
            assert trio.current_time() - start < 1
        await trio.sleep(100)
        assert len(model.times) == 1
        assert (await session.run("hi")).text == "next"


@pytest.mark.trio
async def test_steer_in_back_off(autojump_clock: Clock) -> None:
    """A steer during back-off is in the retried request, which still waits its time."""
    model = TimedModel(broken(20), "done")
    async with engine_with(model) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await until_event(session, Retrying)
            await session.steer("more")
            await turn.result()
    assert said(model.requests[1]) == ["go", "more"]
    assert model.times[1] - model.times[0] == pytest.approx(20, abs=0.01)


@pytest.mark.trio
async def test_closing_in_back_off(autojump_clock: Clock) -> None:
    """Closing does not wait for a back-off; the next engine keeps to it and goes on counting."""
    store = MemoryStore()
    model = TimedModel(broken(40))
    async with Engine(Agent[None](model), store) as engine:
        await engine.session("s").send("go")
        await until_event(engine.session("s"), Retrying)
        start = trio.current_time()
    assert trio.current_time() - start < 1
    async with engine_of("done", store=store) as engine:
        async with engine.session("s").resume() as turn:
            result = await turn.result()
        assert requests_of(engine)[0].attempt == "t1.1.2"
        assert (result.steps, result.attempts) == (1, 2)


@pytest.mark.trio
async def test_deltas_name_their_attempt(autojump_clock: Clock) -> None:
    """Each delta names its attempt, so that a reader can drop what a broken one gave."""
    model = TimedModel(broken(), "done")
    told: dict[str, str] = {}
    async with engine_with(model) as engine, engine.session("s").turn("go") as turn:
        async for event in turn:
            if isinstance(event, TextDelta):
                told[event.attempt] = told.get(event.attempt, "") + event.text
    assert told == {"t1.1.1": "attempt 1", "t1.1.2": "attempt 2done"}


async def test_usage_of_a_broken_attempt_counts(autojump_clock: trio.testing.MockClock) -> None:
    """Case 91: what the server counted for an attempt that broke is in the turn's usage, beside that of the good one."""
    broken = ModelError("overloaded", kind="overloaded", retryable=True, usage=Usage(input=11, output=3))
    model = ScriptedModel([broken, Reply((Text("done"),), usage=Usage(input=20, output=4))])
    async with Engine(Agent(model), MemoryStore()) as engine:
        result = await engine.session("a").run("go")
    assert (result.usage, result.attempts) == (Usage(input=31, output=7), 2)
