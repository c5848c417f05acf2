"""Scenarios T1 to T16: running the calls of a reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import GatedModel, StrictModel, engine_of, events_of, requests_of, result_texts, until_event
from tests.scenarios.common import names, over, roles
from turnstate import (
    Agent,
    Call,
    CallProposed,
    CallSettled,
    CallStarted,
    Engine,
    InvalidInput,
    MemoryStore,
    Middleware,
    ModelRequest,
    Reply,
    ToolContext,
    Usage,
    tool,
)
from turnstate.models.base import OnDelta
from turnstate.policy import Allow, Deny, Policy, PolicyContext, Verdict
from turnstate.states import Text, ToolCall
from turnstate.testing import ScriptedModel, call

Clock = trio.testing.MockClock


class Spans:
    """Which calls ran at the same time."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.together: dict[str, set[str]] = {}
        self.order: list[str] = []

    async def run(self, name: str, seconds: float) -> str:
        """Run for some seconds."""
        self.running.add(name)
        self.order.append(name)
        for other in self.running:
            self.together.setdefault(other, set()).update(self.running - {other})
        self.together[name].update(self.running - {name})
        await trio.sleep(seconds)
        self.running.discard(name)
        return name


def spanning(spans: Spans) -> list[Any]:
    """A tool that runs beside others and one that runs alone."""

    @tool
    async def beside(name: str, seconds: float = 1) -> str:
        return await spans.run(name, seconds)

    @tool(exclusive=True)
    async def alone(name: str, seconds: float = 1) -> str:
        return await spans.run(name, seconds)

    return [beside, alone]


@pytest.mark.trio
async def test_overlap_and_barriers(autojump_clock: Clock) -> None:
    """T1, T2, T4: neighbouring calls overlap, exclusive ones run alone and one after the other, segments keep apart."""
    spans = Spans()
    batch = [
        call("beside", name="a"),
        call("beside", name="b", seconds=2),
        call("alone", name="c"),
        call("alone", name="d"),
        call("beside", name="e"),
        call("beside", name="f"),
    ]
    async with engine_of(batch, "done", tools=spanning(spans)) as engine:
        start = trio.current_time()
        await engine.session("s").run("go")
        assert trio.current_time() - start == pytest.approx(2 + 1 + 1 + 1, abs=0.01)
    alone: set[str] = set()
    assert spans.together == {"a": {"b"}, "b": {"a"}, "c": alone, "d": alone, "e": {"f"}, "f": {"e"}}
    assert spans.order[2:4] == ["c", "d"]


@pytest.mark.trio
async def test_results_in_call_order(autojump_clock: Clock) -> None:
    """T3: each result is told when it is known, and the model reads them in call order."""
    spans = Spans()
    batch = [call("beside", name=name, seconds=seconds) for name, seconds in (("a", 3), ("b", 2), ("c", 1))]
    async with engine_of(batch, "done", tools=spanning(spans)) as engine:
        session = engine.session("s")
        await session.run("go")
        assert result_texts(requests_of(engine)[1]) == ["a", "b", "c"]
        log = await events_of(session, until=over())
        assert [event.call.id for event in log if isinstance(event, CallSettled)] == ["m2.2", "m2.1", "m2.0"]
        assert [text for role, text in roles(await session.messages()) if role == "tool"] == ["a", "b", "c"]


@pytest.mark.trio
async def test_faults_keep_their_calls(autojump_clock: Clock) -> None:
    """T5, T6: results that never reached a tool stand in call order with those that did, each with its own call's id."""
    spans = Spans()

    @tool
    async def breaks() -> str:
        raise RuntimeError("broken")

    batch = [
        call("nothing"),
        call("beside", name="b"),
        call("breaks"),
        call("beside", wrong=1),
        call("beside", name="e"),
    ]
    async with engine_of(batch, "done", tools=[*spanning(spans), breaks]) as engine:
        session = engine.session("s")
        result = await session.run("go")
        texts = result_texts(requests_of(engine)[1])
        results = [message.results[0].call for message in requests_of(engine)[1].messages if message.role == "tool"]
    assert results == [f"m2.{at}" for at in range(5)]
    assert [text.split(":")[0].split(" ")[0] for text in texts] == [
        "unknown",
        "b",
        "RuntimeError",
        texts[3].split(" ")[0],
        "e",
    ]
    assert [found.status for found in result.calls] == ["error", "ok", "error", "error", "ok"]


class PerPath(Policy[Any]):
    """Each call may write below its own path; none below the root."""

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        path = str(call.arguments["path"])
        return Deny("not there") if path == "/" else Allow(write=[path], network=path == "net")


@pytest.mark.trio
async def test_each_call_has_its_own_permissions() -> None:
    """T7, T8: a call sees the permissions of its own verdict and no others; one that was denied never begins."""
    seen: dict[str, tuple[bool, tuple[str, ...]]] = {}

    @tool
    async def write(ctx: ToolContext[Any], path: str) -> str:
        seen[path] = (ctx.permissions.network, ctx.permissions.write)
        return "written"

    batch = [call("write", path=path) for path in ("a", "net", "/")]
    async with engine_of(batch, "done", tools=[write], policy=PerPath()) as engine:
        session = engine.session("s")
        result = await session.run("go")
        log = await events_of(session, until=over())
    assert seen == {"a": (False, ("a",)), "net": (True, ("net",))}
    assert [found.status for found in result.calls] == ["ok", "ok", "denied"]
    started = [event.call.id for event in log if isinstance(event, CallStarted)]
    assert sorted(started) == ["m2.0", "m2.1"]


@pytest.mark.trio
async def test_no_verdict_no_call(autojump_clock: Clock) -> None:
    """T8: while the policy thinks, the call does not begin; an interrupt then settles it as not run."""

    class Thinking(Policy[Any]):
        async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
            await trio.sleep(100)
            return Allow()

    ran: list[str] = []

    @tool
    async def act() -> str:
        ran.append("act")
        return "ok"

    async with engine_of(call("act"), "done", tools=[act], policy=Thinking()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await until_event(session, CallProposed)
            await trio.sleep(50)
            assert await session.interrupt()
            result = await turn.result(check=False)
    assert (ran, result.calls[0].status) == ([], "not-run")


@pytest.mark.trio
async def test_usage_of_a_tool_that_fails() -> None:
    """T9: what a tool's own model used is counted under its name, also when the tool then fails."""

    @tool
    async def paint(ctx: ToolContext[Any]) -> str:
        ctx.count_usage("painter", Usage(input=100, output=1))
        raise OSError("no paper")

    async with engine_of(call("paint"), "done", tools=[paint]) as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert result.usage.input is not None
        assert result.usage.input >= 100
        assert result.calls[0].status == "error"


@pytest.mark.trio
async def test_output_budget() -> None:
    """T10: output beyond the limit keeps its head and its tail and says how much was left out."""

    @tool
    async def shout() -> str:
        return "HEAD" + "x" * 200_000 + "TAIL"

    async with engine_of(call("shout"), "done", tools=[shout]) as engine:
        await engine.session("s").run("go")
        (text,) = result_texts(requests_of(engine)[1])
    assert len(text.encode()) <= 40_100
    assert text.startswith("HEAD")
    assert text.endswith("TAIL")


@pytest.mark.trio
async def test_only_willing_batches_end_for_input(autojump_clock: Clock) -> None:
    """T11: a steer ends running calls only when all of them are willing; one that is not runs to its end first."""

    @tool(ends_on_input=True)
    async def wait() -> str:
        await trio.sleep(100)
        return "waited"

    @tool
    async def work() -> str:
        await trio.sleep(10)
        return "worked"

    for batch, expected, seconds in (
        ([call("wait"), call("wait")], ["unknown", "unknown"], 0),
        ([call("wait"), call("work")], ["unknown", "ok"], 10),
    ):
        async with engine_of(batch, "done", tools=[wait, work]) as engine:
            session, start = engine.session("s"), trio.current_time()
            async with session.turn("go") as turn:
                await until_event(session, CallStarted)
                await session.steer("here I am")
                result = await turn.result()
        assert [found.status for found in result.calls] == expected
        assert trio.current_time() - start == pytest.approx(seconds, abs=0.5)


@pytest.mark.trio
async def test_an_interrupted_call_was_not_denied() -> None:
    """T12: the result of an interrupted call says that its outcome is unknown, and nothing of a denial."""

    @tool
    async def hang() -> str:
        await trio.sleep_forever()
        return ""

    async with engine_of(call("hang"), "fine", tools=[hang]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await until_event(session, CallStarted)
            await session.interrupt()
            await turn.result(check=False)
        await session.run("and now?")
        (text,) = result_texts(requests_of(engine)[1])
    assert text == "execution interrupted; result unknown: interrupted"


def test_registration() -> None:
    """T13: a tool without a usable name, two of one name, and what is no function are refused with what to do."""

    async def one() -> str:
        return "one"

    bad: list[tuple[list[Any], str]] = [([one, tool(name="one")(one)], "two are called one"), ([7], "tools")]
    for tools, words in bad:
        with pytest.raises(InvalidInput, match=words):
            Agent(ScriptedModel([]), tools=tools)
    with pytest.raises(InvalidInput, match="tool name"):
        tool(name="not a name")(one)


@pytest.mark.trio
async def test_no_call_begins_before_its_reply_is_whole() -> None:
    """T14, C5: while a reply streams, its calls do not begin; interrupted then, none of them ever does (case 67)."""
    ran: list[str] = []

    @tool
    async def act() -> str:
        ran.append("act")
        return "ok"

    class Calling(GatedModel):
        async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
            if not self.requests:
                on_delta("call", "act", 0)
                on_delta("arguments", "{}", 0)
            return await super().respond(request, on_delta)

    model = Calling("text ", calls=[ToolCall("", "act", "{}")])
    async with Engine(Agent(model, tools=[act]), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert ran == []
            assert await session.interrupt()
            model.gate.open.set()
            await turn.result(check=False)
        log = await events_of(session, until=over())
    assert ran == []
    assert "CallStarted" not in names(log)


class Noting(Middleware[Any]):
    """Adds to what a tool returned."""

    async def around_call(self, ctx: ToolContext[Any], call: Call, run: Callable[[], Awaitable[Any]], /) -> Any:
        return f"{await run()} (seen by the middleware)"


@pytest.mark.trio
async def test_what_is_added_after_a_tool_follows_only_tools_that_ran() -> None:
    """T16: a middleware around calls changes the results of those that ran, and only those."""

    @tool
    async def act(n: int) -> str:
        return str(n)

    async with engine_of(
        [call("act", n=1), call("act", n="x"), call("no")], "done", tools=[act], middleware=[Noting()]
    ) as engine:
        await engine.session("s").run("go")
        texts = result_texts(requests_of(engine)[1])
    assert texts[0] == "1 (seen by the middleware)"
    assert not any("middleware" in text for text in texts[1:])


@pytest.mark.trio
async def test_a_reply_with_text_between_calls() -> None:
    """T14: text and calls of one reply are one message, their order kept, each call once."""

    @tool
    async def act() -> str:
        return "ok"

    model = StrictModel([["first ", call("act"), "then ", call("act")], "done"])
    async with Engine(Agent(model, tools=[act]), MemoryStore()) as engine:
        await engine.session("s").run("go")
    parts = model.requests[1].messages[1].parts
    assert [type(part) for part in parts] == [Text, ToolCall, Text, ToolCall]
