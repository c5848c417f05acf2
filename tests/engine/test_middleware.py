"""Hooks around requests and after turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, engine_of, events_of, requests_of, said, until_event
from turnstate import (
    Again,
    Custom,
    HookError,
    InvalidInput,
    Limits,
    MemoryStore,
    MessageAdded,
    Middleware,
    ModelError,
    Policy,
    Reply,
    StepContext,
    Stop,
    TurnContext,
    TurnEnded,
    TurnFailed,
    Usage,
    Warned,
    tool,
)
from turnstate.states import Text
from turnstate.testing import call

Before = Callable[[StepContext[Any]], Awaitable[Any]]


def before(function: Before) -> Middleware[Any]:
    """A middleware with this hook before a request."""

    class Hooked(Middleware[Any]):
        async def before_model(self, ctx: StepContext[Any]) -> Stop | None:
            said: Stop | None = await function(ctx)
            return said

    return Hooked()


def after(function: Before) -> Middleware[Any]:
    """A middleware with this hook after a reply."""

    class Hooked(Middleware[Any]):
        async def after_model(self, ctx: StepContext[Any]) -> Again | Stop | None:
            said: Again | Stop | None = await function(ctx)
            return said

    return Hooked()


def ended(function: Callable[[TurnContext[Any]], Awaitable[None]]) -> Middleware[Any]:
    """A middleware with this hook after a turn."""

    class Hooked(Middleware[Any]):
        async def turn_ended(self, ctx: TurnContext[Any]) -> None:
            await function(ctx)

    return Hooked()


class Bad:
    """Something that a hook may not do."""

    def __init__(self, do: Callable[[StepContext[Any]], object]) -> None:
        self.do = do


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


@pytest.mark.trio
async def test_request_only_additions() -> None:
    """What a hook adds to one request is in each request once, and is never stored (case 92)."""

    async def remind(ctx: StepContext[Any]) -> None:
        ctx.request.add(f"reminder {ctx.step}.{ctx.attempt}.{ctx.hook_pass}")

    flaky = ModelError("try again", retryable=True, kind="server")
    async with engine_of(call("noop"), flaky, "done", tools=[noop], middleware=[before(remind)]) as engine:
        session = engine.session("s")
        await session.run("go")
        assert [r.additions for r in requests_of(engine)] == [
            ["reminder 1.1.1"],
            ["reminder 2.1.1"],
            ["reminder 2.2.1"],
        ]
        assert not [m for m in await session.messages() if "reminder" in m.text]


@pytest.mark.trio
async def test_order_and_effects() -> None:
    """Hooks run in order; messages for good, events and usage of all are stored, the messages before the request."""
    order: list[str] = []

    async def one(ctx: StepContext[Any]) -> None:
        order.append("one")
        ctx.add_message("for good")
        ctx.count_usage("other", Usage(input=7))

    async def two(ctx: StepContext[Any]) -> None:
        order.append("two")
        ctx.tell("seen", {"step": ctx.step})

    async def three(ctx: StepContext[Any]) -> None:
        order.append(f"after {ctx.reply.text}")

    async with engine_of("hi", middleware=[before(one), before(two), after(three)]) as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert order == ["one", "two", "after hi"]
        assert said(requests_of(engine)[0]) == ["go", "for good"]
        log = await events_of(session, until=lambda e: isinstance(e, TurnEnded))
        assert [e.data for e in log if isinstance(e, Custom)] == [{"step": 1}]
        assert len([e for e in log if isinstance(e, MessageAdded)]) == 1
        assert result.usage.input is not None
        assert result.usage.input >= 7


@pytest.mark.trio
async def test_again_is_bounded() -> None:
    """Again makes one more step with the feedback, twice in a row; then the reply stands and people are told."""

    async def never(ctx: StepContext[Any]) -> Again:
        return Again(f"not {ctx.reply.text}")

    async with engine_of("a", "b", "c", middleware=[after(never)]) as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert (result.text, result.steps) == ("c", 3)
        assert said(requests_of(engine)[2]) == ["go", "not a", "not b"]
        assert await until_event(session, Warned)


@pytest.mark.trio
async def test_again_with_calls() -> None:
    """Calls of a reply that is sent back do not run, and the history stays valid."""
    ran: list[int] = []

    @tool
    async def it() -> None:
        ran.append(1)

    async def no_calls(ctx: StepContext[Any]) -> Again | None:
        return Again("no tools please") if not ctx.reply.text else None

    async with engine_of(call("it"), "fine", tools=[it], middleware=[after(no_calls)]) as engine:
        result = await engine.session("s").run("go")
        assert (result.text, ran) == ("fine", [])
        assert result.calls[0].status == "not-run"


@pytest.mark.trio
@pytest.mark.parametrize("where", ["before", "after"])
async def test_stop(where: str) -> None:
    """Stop ends the turn with its reason."""

    async def stop(ctx: StepContext[Any]) -> Stop:
        return Stop("over budget")

    async with engine_of("a", middleware=[before(stop) if where == "before" else after(stop)]) as engine:
        result = await engine.session("s").run("go", check=False)
        assert (result.outcome, result.reason) == ("interrupted", "over budget")
        assert len(requests_of(engine)) == (where == "after")


@pytest.mark.trio
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError("broken"), ValueError),
        (asyncio.CancelledError("broken"), asyncio.CancelledError),
        (ExceptionGroup("g", [OSError("broken")]), OSError),
    ],
)
async def test_errors_fail_the_turn(where: str, error: BaseException, cause: type[BaseException]) -> None:
    """A hook's exception fails the turn as HookError; effects of the hooks before it are kept, its own are not."""
    make = before if where == "before" else after

    async def good(ctx: StepContext[Any]) -> None:
        ctx.add_message("kept")

    async def bad(ctx: StepContext[Any]) -> None:
        ctx.add_message("dropped")
        raise error

    async with engine_of("a", "next", middleware=[make(good), make(bad)]) as engine:
        session = engine.session("s")
        with pytest.raises(TurnFailed, match=f"failed: {cause.__name__}; the details are in the log") as caught:
            await session.run("go")
        assert isinstance(caught.value.__cause__, HookError)
        assert isinstance(caught.value.__cause__.__cause__, cause)
        assert caught.value.result.error is not None
        assert caught.value.result.error.kind == "hook"
        texts = [m.text for m in await session.messages()]
        assert "kept" in texts
        assert "dropped" not in texts


@pytest.mark.trio
@pytest.mark.parametrize(
    "bad",
    [
        Bad(lambda ctx: ctx.tell("x", object())),
        Bad(lambda ctx: ctx.tell("x", float("nan"))),
        Bad(lambda ctx: ctx.tell("\ud800")),
        Bad(lambda ctx: ctx.add_message("")),
        Bad(lambda ctx: Again(" ")),
        Bad(lambda ctx: Stop(cast(Any, 3))),
        Bad(lambda ctx: ctx.reply),
    ],
)
async def test_bad_effects(bad: Bad) -> None:
    """What could not be stored or sent is refused where the hook says it, so that the session stays usable (case 87)."""
    caught: list[InvalidInput] = []

    async def hook(ctx: StepContext[Any]) -> None:
        try:
            bad.do(ctx)
        except InvalidInput as error:
            caught.append(error)
        ctx.add_message("a\ud800b")

    async with engine_of("fine", middleware=[before(hook)]) as engine:
        assert (await engine.session("s").run("go")).text == "fine"
        assert said(requests_of(engine)[0]) == ["go", "a\ufffdb"]
        assert caught


@pytest.mark.trio
async def test_foreign_return_value() -> None:
    """A hook that returns something else fails the turn and says what was expected."""

    async def hook(ctx: StepContext[Any]) -> Any:
        return True

    for middleware in (before(hook), after(hook)):
        async with engine_of("fine", middleware=[middleware]) as engine:
            with pytest.raises(TurnFailed, match="Stop, got bool"):
                await engine.session("s").run("go")


@pytest.mark.trio
async def test_steer_during_hooks() -> None:
    """A steer while hooks run has them run again, at most three times, and is in the request."""
    passes: list[int] = []
    steer: list[Any] = []

    async def hook(ctx: StepContext[Any]) -> None:
        passes.append(ctx.hook_pass)
        ctx.add_message(f"pass {ctx.hook_pass}")
        if len(passes) < 9:
            await steer[0](f"steer {len(passes)}")

    async with engine_of("fine", middleware=[before(hook)]) as engine:
        session = engine.session("s")
        steer.append(session.steer)
        await session.run("go")
        assert passes == [1, 2, 3]
        assert said(requests_of(engine)[0]) == ["go", "pass 3", "steer 1", "steer 2", "steer 3"]


@pytest.mark.trio
async def test_interrupt_during_hooks() -> None:
    """An interrupt while hooks run ends the turn: no request is made, and what they did is dropped but for usage."""
    gate = Gate()

    async def hook(ctx: StepContext[Any]) -> None:
        ctx.add_message("dropped")
        await gate.wait()

    async with engine_of("next", middleware=[before(hook)]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await gate.reached.wait()
            await session.interrupt()
            assert (await turn.result(check=False)).outcome == "interrupted"
        assert not requests_of(engine)
        gate.open.set()
        await session.run("hi")
        assert said(requests_of(engine)[0]) == ["go", "hi", "dropped"]


@pytest.mark.trio
async def test_interrupt_during_review() -> None:
    """An interrupt while a reply is reviewed keeps the reply, which nobody let stand: the turn is interrupted."""
    gate = Gate()

    async def hook(ctx: StepContext[Any]) -> None:
        await gate.wait()

    async with engine_of("final", middleware=[after(hook)]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await gate.reached.wait()
            await session.interrupt()
            result = await turn.result(check=False)
        assert (result.outcome, result.text) == ("interrupted", "final")


@pytest.mark.trio
@pytest.mark.parametrize("outcome", ["completed", "failed", "interrupted", "limit"])
async def test_turn_ended(outcome: str) -> None:
    """turn_ended runs once for each turn with its true outcome, before TurnEnded is told and before the next turn."""
    seen: list[str] = []
    gate = Gate()

    async def hook(ctx: TurnContext[Any]) -> None:
        seen.append(ctx.outcome)
        ctx.tell("closing", ctx.outcome)
        ctx.count_usage("summary", Usage(output=3))

    @tool
    async def hang() -> None:
        await gate.wait()

    scripts: dict[str, list[Any]] = {
        "completed": ["x"],
        "failed": [ModelError("no", kind="permission")],
        "interrupted": [call("hang")],
        "limit": [call("noop")],
    }
    limits = Limits(steps=1)
    async with engine_of(*scripts[outcome], tools=[hang, noop], middleware=[ended(hook)], limits=limits) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            if outcome == "interrupted":
                await gate.reached.wait()
                await session.interrupt()
            result = await turn.result(check=False)
        assert result.outcome == outcome
        assert seen == [outcome]
        log = await events_of(session, until=lambda e: isinstance(e, TurnEnded))
        assert [type(e) for e in log][-2:] == [Custom, TurnEnded]
        assert (result.usage.output or 0) >= 3


@pytest.mark.trio
async def test_turn_ended_fails() -> None:
    """An error in turn_ended is told as a warning and hinders neither other hooks nor the next turn."""
    seen: list[str] = []

    async def bad(ctx: TurnContext[Any]) -> None:
        raise ValueError("broken")

    async def good(ctx: TurnContext[Any]) -> None:
        seen.append(ctx.turn_id)

    async with engine_of("x", "y", middleware=[ended(bad), ended(good)]) as engine:
        session = engine.session("s")
        await session.run("go")
        assert "ValueError" in (await until_event(session, Warned)).text
        assert (await session.run("go")).text == "y"
        assert seen == ["t1", "t2"]


@pytest.mark.trio
async def test_turn_ended_cause_of_a_failed_turn() -> None:
    """A failing closing hook does not hide why the turn failed."""

    async def bad(ctx: TurnContext[Any]) -> None:
        raise ValueError("in the hook")

    async with engine_of(ModelError("in the model"), middleware=[ended(bad)]) as engine:
        with pytest.raises(TurnFailed) as caught:
            await engine.session("s").run("go")
        assert isinstance(caught.value.__cause__, ModelError)


@pytest.mark.trio
async def test_turn_ended_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    """A closing hook that hangs is given up after its time, and the turn ends."""

    async def hang(ctx: TurnContext[Any]) -> None:
        await trio.sleep_forever()

    async with engine_of("x", middleware=[ended(hang)]) as engine:
        start = trio.current_time()
        assert (await engine.session("s").run("go")).outcome == "completed"
        assert trio.current_time() - start == pytest.approx(30, abs=0.1)


@pytest.mark.trio
async def test_turn_ended_after_closing() -> None:
    """A closing hook that was cut runs again in the next engine, and the turn ends once."""
    store = MemoryStore()
    gate = Gate()
    seen: list[str] = []

    async def hook(ctx: TurnContext[Any]) -> None:
        seen.append(ctx.outcome)
        try:
            await gate.wait()
        finally:
            if not gate.open.is_set():
                raise OSError("in cleanup")

    async with engine_of("x", middleware=[ended(hook)], store=store) as engine:
        await engine.session("s").send("go")
        await gate.reached.wait()
    gate.open.set()
    async with engine_of("y", middleware=[ended(hook)], store=store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            assert (await turn.result()).text == "x"
        log = await events_of(session, until=lambda e: isinstance(e, TurnEnded))
        assert not [e for e in log if isinstance(e, Warned)]
    assert seen == ["completed", "completed"]


@pytest.mark.trio
async def test_hooks_cut_by_closing_run_again() -> None:
    """Hooks before and after a request that were cut by closing the engine run again, and the reply is not asked twice."""
    store = MemoryStore()
    gate = Gate()

    async def hook(ctx: StepContext[Any]) -> None:
        try:
            await gate.wait()
        except trio.Cancelled as error:
            raise OSError("in cleanup") from error

    for middleware, requests in ((before(hook), 0), (after(hook), 1)):
        gate.open = trio.Event()
        gate.reached = trio.Event()
        store = MemoryStore()
        async with engine_of("x", middleware=[middleware], store=store) as engine:
            await engine.session("s").send("go")
            await gate.reached.wait()
            assert len(requests_of(engine)) == requests
        gate.open.set()
        async with engine_of("x", middleware=[middleware], store=store) as engine:
            async with engine.session("s").resume() as turn:
                assert (await turn.result()).text == "x"
            assert len(requests_of(engine)) == 1 - requests


@pytest.mark.trio
async def test_policy_that_fails() -> None:
    """A policy that raises, or gives something else, asks a person, and people are told."""

    class Broken(Policy[Any]):
        def __init__(self, error: BaseException | None) -> None:
            self.error = error

        async def authorize(self, call: Any, ctx: Any) -> Any:
            if self.error is not None:
                raise self.error
            return "yes"

    for error in (ValueError("no"), asyncio.CancelledError(), None):
        async with engine_of(call("noop"), "ok", tools=[noop], policy=Broken(error)) as engine:
            session = engine.session("s")
            async with session.turn("go") as turn:
                (waiting,) = (await turn.result(check=False)).waiting
                await until_event(session, Warned)
                await session.approve(waiting)
                assert (await turn.result()).text == "ok"


@pytest.mark.trio
async def test_hook_sees_stored_reply() -> None:
    """after_model sees the reply as the model gave it, its calls with our ids."""
    seen: list[Reply] = []

    async def hook(ctx: StepContext[Any]) -> None:
        seen.append(ctx.reply)

    async with engine_of(Reply((Text("x"),), "stop", "end_turn", Usage(1, 2)), middleware=[after(hook)]) as engine:
        await engine.session("s").run("go")
    assert (seen[0].text, seen[0].stop, seen[0].raw_stop, seen[0].usage) == ("x", "stop", "end_turn", Usage(1, 2))
