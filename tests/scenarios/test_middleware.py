"""Scenarios W1 to W14: what hooks may do, in which order, and what is kept of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import StrictModel, engine_of, events_of, requests_of, said
from tests.scenarios.common import names, over
from turnstate import (
    Again,
    Agent,
    CallStarted,
    Custom,
    Engine,
    HookError,
    Limits,
    MemoryStore,
    Middleware,
    ModelError,
    StepContext,
    Stop,
    TurnContext,
    TurnEnded,
    TurnFailed,
    Usage,
    tool,
)
from turnstate.testing import call, crashes


class Hook(Middleware[Any]):
    """Notes what it is asked, and does what it is told."""

    def __init__(self, name: str, notes: list[str], before: Any = None, after: Any = None) -> None:
        self.name = name
        self.notes = notes
        self.before = before
        self.after = after

    async def before_model(self, ctx: StepContext[Any]) -> Stop | None:
        self.notes.append(f"{self.name} before {ctx.step}")
        said: Stop | None = self._say(self.before, ctx)
        return said

    async def after_model(self, ctx: StepContext[Any]) -> Again | Stop | None:
        self.notes.append(f"{self.name} after {ctx.step}")
        said: Again | Stop | None = self._say(self.after, ctx)
        return said

    async def turn_ended(self, ctx: TurnContext[Any]) -> None:
        self.notes.append(f"{self.name} ended {ctx.outcome}")

    def _say(self, what: Any, ctx: StepContext[Any]) -> Any:
        return what(ctx) if callable(what) else what


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


@tool
async def hang() -> str:
    """Never end."""
    await trio.sleep_forever()
    return ""


@pytest.mark.trio
async def test_hooks_run_forward() -> None:
    """W1, W5: all hooks run in the order in which the agent lists them, before, after and at the end."""
    notes: list[str] = []
    hooks = [Hook("a", notes), Hook("b", notes)]
    async with engine_of(call("noop"), "done", tools=[noop], middleware=hooks) as engine:
        await engine.session("s").run("go")
    steps = [f"{name} {when} {step}" for step in (1, 2) for when in ("before", "after") for name in "ab"]
    assert notes == [*steps, "a ended completed", "b ended completed"]


@pytest.mark.trio
async def test_hooks_that_are_done_count_when_a_later_one_fails() -> None:
    """W3: messages, events and usage of completed hooks are kept with the failure; nothing of the one that failed."""

    def good(ctx: StepContext[Any]) -> None:
        ctx.add_message("kept")
        ctx.tell("kept")
        ctx.count_usage("own", Usage(input=5))

    def bad(ctx: StepContext[Any]) -> None:
        ctx.add_message("lost")
        ctx.tell("lost")
        raise RuntimeError("broken")

    later: list[str] = []
    hooks = [Hook("good", [], good), Hook("bad", [], bad), Hook("later", later, good)]
    async with engine_of(middleware=hooks) as engine:
        session = engine.session("s")
        with pytest.raises(TurnFailed) as caught:
            await session.run("go")
        assert isinstance(caught.value.__cause__, HookError)
        log = await events_of(session, until=over())
        assert [event.name for event in log if isinstance(event, Custom)] == ["kept"]
        assert [message.text for message in await session.messages()] == ["go", "kept"]
        assert caught.value.result.usage.input == 5
    assert later == ["later ended failed"]


@pytest.mark.trio
@pytest.mark.parametrize("where", ["before", "after"])
async def test_the_first_stop_counts(where: str) -> None:
    """W6: the first hook that stops the turn gives the reason; later ones are not asked."""
    notes: list[str] = []
    hooks = [
        Hook(name, notes, **({"before": Stop(name)} if where == "before" else {"after": Stop(name)}))
        for name in ("a", "b")
    ]
    async with engine_of("x", middleware=hooks) as engine:
        result = await engine.session("s").run("go", check=False)
    assert result.reason == "a"
    assert f"b {where} 1" not in notes


@pytest.mark.trio
async def test_a_continuation_is_bounded() -> None:
    """W6: a hook may have the model go on, a bounded number of times in a row, and the last reply then stands."""
    hook = Hook("a", [], after=Again("more"))
    async with engine_of("one", "two", "three", "four", middleware=[hook]) as engine:
        result = await engine.session("s").run("go")
    assert (result.text, result.steps) == ("three", 3)


@pytest.mark.trio
@pytest.mark.parametrize("outcome", ["completed", "failed", "interrupted", "limit"])
async def test_the_end_is_told_once_with_its_outcome(outcome: str) -> None:
    """W7: the closing hook runs once for each turn, with the outcome that the turn really had, before that is told."""
    notes: list[str] = []
    lines: dict[str, Any] = {"failed": ModelError("no"), "interrupted": call("hang"), "limit": [call("noop")]}
    engine = engine_of(
        lines.get(outcome, "x"), tools=[noop, hang], middleware=[Hook("a", notes)], limits=Limits(steps=1)
    )
    async with engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            async for event in turn:
                if isinstance(event, CallStarted) and event.call.tool == "hang":
                    await session.interrupt()
                if isinstance(event, TurnEnded):
                    assert notes[-1] == f"a ended {outcome}"
            assert (await turn.result(check=False)).outcome == outcome
        assert len([note for note in notes if "ended" in note]) == 1
        assert names(await events_of(session, until=over())).count("TurnEnded") == 1


@pytest.mark.trio
async def test_a_turn_that_a_hook_refused_leaves_a_good_session() -> None:
    """W8: a hook that refuses a message ends the turn before any request; the next message works."""

    def refuse(ctx: StepContext[Any]) -> Stop | None:
        return Stop("refused") if "secret" in ctx.request.messages[-1].text else None

    async with engine_of("fine", middleware=[Hook("a", [], refuse)]) as engine:
        session = engine.session("s")
        result = await session.run("a secret", check=False)
        assert (result.reason, result.attempts, requests_of(engine)) == ("refused", 0, [])
        assert (await session.run("hello")).text == "fine"


@pytest.mark.trio
async def test_additions_to_one_request_survive_nothing() -> None:
    """W2: wherever the turn dies, each request holds the addition once and no stored message does (case 92)."""

    def add(ctx: StepContext[Any]) -> None:
        ctx.request.add(f"step {ctx.step}")

    agent = Agent[Any](StrictModel([call("noop"), "done"]), tools=[noop], middleware=[Hook("a", [], add)])
    async for crash in crashes(agent, "go"):
        result = await crash.finish()
        model = crash.agent.model
        assert isinstance(model, StrictModel)
        for request in model.requests:
            assert len(request.additions) == 1, crash.at
        assert not [message for message in result.messages if "step" in message.text], crash.at


class Guard(Middleware[Any]):
    """Stops a model that repeats one call with the same arguments."""

    async def before_model(self, ctx: StepContext[Any]) -> Stop | None:
        calls = Counter(
            (part.name, json.dumps(json.loads(part.arguments), sort_keys=True))
            for message in ctx.request.messages
            for part in message.calls
        )
        return Stop("the same call again and again") if max(calls.values(), default=0) >= 4 else None


@pytest.mark.trio
async def test_a_guard_sees_the_calls() -> None:
    """Case 104: a middleware sees the calls that were made and can stop a model that repeats itself."""
    async with engine_of(*[call("noop")] * 50, tools=[noop], middleware=[Guard()]) as engine:
        result = await engine.session("s").run("go", check=False)
    assert (len(result.calls), result.reason) == (4, "the same call again and again")


@pytest.mark.trio
async def test_a_slow_hook_stalls_nobody_else(autojump_clock: trio.testing.MockClock) -> None:
    """Weakness 15: while a hook takes its time, input is accepted at once and other sessions run."""

    async def slow(ctx: StepContext[Any]) -> None:
        await trio.sleep(1000 if ctx.session_id == "slow" else 0)

    class Slow(Middleware[Any]):
        async def before_model(self, ctx: StepContext[Any]) -> None:
            await slow(ctx)

    model = StrictModel(lambda request: "done")
    async with Engine(Agent[Any](model, middleware=[Slow()]), MemoryStore()) as engine:
        session = engine.session("slow")
        async with session.turn("go") as turn:
            start = trio.current_time()
            await session.steer("quick")
            await engine.session("other").run("go")
            assert trio.current_time() - start < 1
            assert await session.interrupt()
            await turn.result(check=False)
        assert trio.current_time() - start < 1
        assert [said(request) for request in model.requests] == [["go"]]
