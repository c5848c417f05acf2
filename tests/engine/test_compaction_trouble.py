"""Compaction beside steers, approvals and interrupts; summaries that fail, requests that are too long, crashes."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import trio
import trio.testing

from tests.depth import places
from tests.engine.compacting import (
    PAGE,
    Reader,
    Summariser,
    compaction,
    engine_with,
    last_page,
    log_of,
    of,
    starts,
    too_long,
)
from tests.engine.helpers import Gate, StrictModel, said, until_event
from turnstate import (
    ApprovalRequested,
    Compacted,
    HookError,
    InvalidInput,
    MemoryStore,
    Middleware,
    ModelError,
    ModelRequest,
    Reply,
    Result,
    Retrying,
    StepContext,
    Stop,
    Store,
    StoreError,
    TurnEnded,
    TurnFailed,
    Usage,
    Warned,
    tool,
)
from turnstate.middleware import Compaction
from turnstate.middleware.measuring import estimate
from turnstate.reading import load, read_events
from turnstate.states import Text, ToolCall
from turnstate.testing import FaultyStore, call

# Beside other things


@pytest.mark.trio
async def test_steer_and_approval() -> None:
    """A steer that comes while a summary is made is in the request; calls that wait for a person are not touched."""
    gate = Gate()

    class Slow(Summariser):
        async def respond(self, request: ModelRequest, on_delta: Any) -> Reply:
            await gate.wait()
            return await super().respond(request, on_delta)

    @tool(approval=True)
    async def page(n: int) -> str:
        return f"page {n}: " + "x" * PAGE

    model = Reader(5)
    async with engine_with(model, compaction(Slow()), tools=[page]) as engine:
        session = engine.session("s")
        async with trio.open_nursery() as nursery:

            async def answer() -> None:
                async with session.events() as stream:
                    async for event in stream:
                        if isinstance(event, ApprovalRequested):
                            await session.approve(event.call)
                        elif isinstance(event, TurnEnded):
                            return

            nursery.start_soon(answer)
            async with session.turn("go") as turn:
                await gate.reached.wait()
                await session.steer("be quick")
                gate.open.set()
                while (result := await turn.result(check=False)).outcome == "waiting":
                    await trio.testing.wait_all_tasks_blocked()
        assert result.outcome == "completed"
        first = next(request for request in model.requests if starts(request).startswith("summary"))
        assert (starts(first), said(first)[-1]) == ("summary 2", "be quick")
        assert [found.status for found in result.calls] == ["ok"] * 5


@pytest.mark.trio
async def test_interrupt_while_it_summarises() -> None:
    """An interrupt ends the turn with the history as it was; the next turn summarises."""
    gate = Gate()

    class Slow(Summariser):
        async def respond(self, request: ModelRequest, on_delta: Any) -> Reply:
            await gate.wait()
            return await super().respond(request, on_delta)

    model = Reader(4)
    async with engine_with(model, compaction(Slow())) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await gate.reached.wait()
            await session.interrupt()
            assert (await turn.result(check=False)).outcome == "interrupted"
        assert of(Compacted, await log_of(session)) == []
        gate.open.set()
        assert (await session.run("go on")).outcome == "completed"
        assert starts(model.requests[-1]) == "summary 1"


@pytest.mark.trio
@pytest.mark.parametrize("first", [True, False])
async def test_a_hook_that_stops_the_turn(first: bool) -> None:
    """A hook before it that stops the turn leaves the history alone; after one behind it the summary stands (W10)."""

    class Stopping(Middleware[Any]):
        async def before_model(self, ctx: StepContext[Any]) -> Stop | None:
            return Stop("enough") if last_page(ctx.request) == 4 else None

    order: list[Middleware[Any]] = [compaction(Summariser())]
    order.insert(0 if first else 1, Stopping())
    async with engine_with(Reader(4), *order) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        assert (result.outcome, result.reason) == ("interrupted", "enough")
        assert len(of(Compacted, await log_of(session))) == (not first)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("keeps", "message"), [("m3", "keeps"), ("m1", "keeps"), ("m9", "keeps"), ("", ""), ("m2", "")]
)
async def test_own_middleware_compacts(keeps: str, message: str) -> None:
    """Middleware of one's own may summarise too; a place that would part a call from its result is refused (case 43)."""

    class Own(Middleware[Any]):
        async def before_model(self, ctx: StepContext[Any]) -> None:
            if last_page(ctx.request) == 1:
                ctx.compact("in short", keeps=keeps)

        async def after_model(self, ctx: StepContext[Any]) -> None:
            with pytest.raises(InvalidInput, match="before_model"):
                ctx.compact("in short")

    model = StrictModel([call("page", n=1), "done"])
    async with engine_with(model, Own()) as engine:
        session = engine.session("s")
        if message:
            with pytest.raises(TurnFailed, match=message) as caught:
                await session.run("go")
            assert isinstance(caught.value.__cause__, HookError)
        else:
            assert (await session.run("go")).text == "done"
            assert [m.text for m in model.requests[1].messages][:1] == ["in short"]
            assert len(model.requests[1].messages) == (3 if keeps else 1)


# When it fails


@pytest.mark.trio
@pytest.mark.parametrize(
    "bad",
    [
        ModelError("no key", kind="authentication"),
        ValueError("a bug"),
        Reply((), usage=Usage(input=1)),
        Reply((Text("  "),), usage=Usage(input=1)),
        Reply((Text("I will not"),), "refusal", usage=Usage(input=1)),
        Reply((ToolCall("", "page", "{}"),), "tool-calls", usage=Usage(input=1)),
    ],
)
async def test_a_summary_that_fails_or_is_empty(bad: Any) -> None:
    """The old history stands, people are told, the turn goes on, and the next step tries again (case 43)."""
    summariser = Summariser(bad)
    model = Reader(5)
    async with engine_with(model, compaction(summariser)) as engine:
        session = engine.session("s")
        assert (await session.run("go")).text == "done after 5"
        (warned,) = of(Warned, await log_of(session))
        assert "not summarised" in warned.text
        assert [starts(request) for request in model.requests[-2:]] == ["go", "summary 2"]
        loaded = await load(engine.store, "s")
        assert loaded is not None
        assert loaded[0].usage["sum"].input == (101 if isinstance(bad, Reply) else 100)


@pytest.mark.trio
async def test_a_summary_is_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    """An error that may be better soon is waited out, up to three tries."""
    busy = ModelError("busy", kind="overloaded", retryable=True)
    for count in (2, 3):
        summariser = Summariser(*[busy] * count)
        async with engine_with(Reader(4), compaction(summariser)) as engine:
            session = engine.session("s")
            await session.run("go")
            assert len(of(Warned, await log_of(session))) == (count == 3)
        assert len(summariser.requests) == 3


# Too long for the provider


@pytest.mark.trio
async def test_overflow_compacts_once_and_tries_again() -> None:
    """A request that the provider refuses as too long is sent once more with a summary, at once, in the same step."""
    summariser = Summariser()
    model = Reader(4, trouble=[too_long()])
    async with engine_with(model, compaction(summariser, trigger=9999)) as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert (result.text, result.steps, result.attempts) == ("done after 4", 5, 6)
        (retrying,) = of(Retrying, await log_of(session))
        assert (retrying.error.kind, retrying.delay) == ("context-overflow", 0)
    assert [starts(request) for request in model.requests[-2:]] == ["go", "summary 1"]


@pytest.mark.trio
async def test_overflow_twice_fails_cleanly() -> None:
    """Too long even so: the turn fails with the provider's error, resumable, its history complete."""
    error = too_long()
    model = Reader(4, trouble=[too_long(), error])
    async with engine_with(model, compaction(Summariser(), trigger=9999)) as engine:
        session = engine.session("s")
        with pytest.raises(TurnFailed, match="too long") as caught:
            await session.run("go")
        assert caught.value.__cause__ is error
        kept = caught.value.result.error
        assert kept is not None
        assert (kept.kind, kept.status) == ("context-overflow", 400)
        assert len([m for m in await session.messages() if m.role == "tool"]) == 4
        async with session.resume() as turn:
            assert (await turn.result()).text == "done after 4"


@pytest.mark.trio
async def test_overflow_without_a_summary_fails() -> None:
    """Where the summary fails too, the turn fails with the provider's error, and people are told why (case 43)."""
    summariser, error = Summariser(ModelError("down", kind="server")), too_long()
    model = Reader(4, trouble=[error])
    async with engine_with(model, compaction(summariser, trigger=9999)) as engine:
        session = engine.session("s")
        with pytest.raises(TurnFailed) as caught:
            await session.run("go")
        assert caught.value.__cause__ is error
        assert "down" in of(Warned, await log_of(session))[0].text
    assert len(model.requests) == 5


@pytest.mark.trio
async def test_overflow_of_a_single_message() -> None:
    """What a person wrote last is not cut: if it alone is too long, the turn fails, and nobody is asked."""
    summariser = Summariser()
    model = Reader(0, trouble=[too_long()])
    async with engine_with(model, compaction(summariser)) as engine:
        session = engine.session("s")
        with pytest.raises(TurnFailed, match="too long"):
            await session.run("x" * 5000)
        assert "nothing that could be summarised" in (await until_event(session, Warned)).text
    assert summariser.requests == []


@pytest.mark.trio
async def test_overflow_of_a_single_batch() -> None:
    """Results that fill the window by themselves are summarised with the rest, and the model goes on from that alone."""

    @tool
    async def big() -> str:
        return "y" * 30_000

    summariser = Summariser()
    model = StrictModel([[call("big")] * 4, too_long(), "done"])
    middleware = Compaction(summariser, window=50_000, keep=1000)
    async with engine_with(model, middleware, tools=[big]) as engine:
        session = engine.session("s")
        assert (await session.run("go")).text == "done"
        assert len([m for m in await session.messages() if m.role == "tool"]) == 4
    assert [starts(request) for request in model.requests] == ["go", "go", "summary 1"]
    assert len(model.requests[-1].messages) == 1
    assert len(summariser.prompt(0)) < 10_000


@pytest.mark.trio
async def test_other_errors_are_no_overflow() -> None:
    """An error of another kind is not answered with a summary (case 98)."""
    summariser = Summariser()
    model = Reader(4, trouble=[ModelError("no such model", kind="not-found")])
    async with engine_with(model, compaction(summariser, trigger=9999)) as engine:
        with pytest.raises(TurnFailed, match="no such model"):
            await engine.session("s").run("go")
    assert summariser.requests == []


# Crashes


async def survive(store: Store, trigger: int) -> tuple[Result[str], Reader]:
    """Run the turn, or go on with it, with a model that refuses requests of more than 460 tokens."""

    class Small(Reader):
        async def respond(self, request: ModelRequest, on_delta: Any) -> Reply:
            if estimate(request.messages) > 460:
                raise ModelError("the prompt is too long", kind="context-overflow")
            return await super().respond(request, on_delta)

    model = Small(9)
    middleware = compaction(Summariser(), trigger=trigger)
    async with engine_with(model, middleware, store=store) as engine, engine.session("s").turn("go", id="go") as turn:
        return await turn.result(), model


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("trigger", [400, 9999])
async def test_a_crash_at_each_commit(trigger: int, when: Literal["before", "after"]) -> None:
    """Whenever the store fails, nothing is half done: each summary is whole, at its place, and the turn ends, whether
    it was time to summarise or the provider said so (case 83)."""
    whole = FaultyStore(MemoryStore())
    await survive(whole, trigger)
    assert whole.commits > 20
    for at in places(whole.commits):
        store = MemoryStore()
        with pytest.raises(StoreError):
            await survive(FaultyStore(store, at, when), trigger)
        result, model = await survive(store, trigger)
        assert result.text == "done after 9", at
        async with store:
            events = await read_events(store, "s", 0)
            loaded = await load(store, "s")
        assert loaded is not None
        told = of(Compacted, events)
        assert loaded[0].epoch == len(told) >= 2, at
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert loaded[0].usage["sum"] == Usage(input=100 * len(told), output=10 * len(told)), at
        for request in model.requests[-1:]:
            assert told[-1].message.text.endswith(starts(request))
            assert len(request.messages) <= 9


@pytest.mark.trio
async def test_closing_while_it_summarises() -> None:
    """A summary that was cut by leaving the engine is made again in the next one, and stands once."""
    gate, store = Gate(), MemoryStore()

    class Slow(Summariser):
        async def respond(self, request: ModelRequest, on_delta: Any) -> Reply:
            await gate.wait()
            return await super().respond(request, on_delta)

    async with engine_with(Reader(4), compaction(Slow()), store=store) as engine:
        await engine.session("s").send("go")
        await gate.reached.wait()
    model = Reader(4)
    async with engine_with(model, compaction(Summariser()), store=store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            assert (await turn.result()).outcome == "completed"
        assert len(of(Compacted, await log_of(session))) == 1
    assert starts(model.requests[0]) == "summary 1"


@pytest.mark.trio
async def test_a_long_turn() -> None:
    """In a turn of 200 steps requests stay short, summaries follow each other, and all of it is still there."""
    summariser, steered = Summariser(), [40, 80, 120]
    model = Reader(200)
    async with engine_with(model, compaction(summariser, trigger=1500, keep=500)) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            async for event in turn:
                if steered and getattr(event, "step", 0) == steered[0]:
                    await session.steer(f"steer {steered.pop(0)}")
            result = await turn.result()
        assert (result.text, result.steps) == ("done after 200", 201)
        assert len(of(Compacted, await log_of(session))) == len(summariser.requests) > 15
        shown = await session.messages()
        assert len([m for m in shown if m.role == "tool"]) == 200
        assert [m.text for m in shown if m.role == "user"] == ["go", "steer 40", "steer 80", "steer 120"]
    assert max(len(request.messages) for request in model.requests) < 40
    assert max(estimate(request.messages) for request in model.requests) < 1700
    assert max(len(summariser.prompt(at)) for at in range(len(summariser.requests))) < 20_000
