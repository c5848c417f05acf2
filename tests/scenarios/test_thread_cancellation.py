"""Scenarios X1 to X10: turns that are ended, replaced or left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, GatedModel, engine_of, events_of, requests_of, result_texts, said
from tests.scenarios.common import log_of, names, over
from tests.scenarios.threads import Desk, lines, status, waiting
from turnstate import (
    Agent,
    CallSettled,
    Engine,
    MemoryStore,
    ModelRequest,
    Refused,
    Reply,
    SQLiteStore,
    TextDelta,
    ToolContext,
    TurnEnded,
    tool,
)
from turnstate.models.base import OnDelta
from turnstate.states import ToolCall
from turnstate.testing import call


class Stubborn:
    """A tool that goes on for a while after it was told to end, and then gives a result all the same."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.ended = trio.Event()

        @tool
        async def slow() -> str:
            with trio.CancelScope(shield=True):
                await self.gate.wait()
            self.ended.set()
            return "late"

        self.tool = slow


@pytest.mark.trio
async def test_a_late_result_and_the_turn_in_its_place() -> None:
    """X1, K2: what a call of a replaced turn still gives belongs to that turn; the turn in its place is not touched,
    and begins when nothing of the other runs any more."""
    slow = Stubborn()
    async with engine_of(call("slow"), "new", tools=[slow.tool]) as engine:
        session = engine.session("s")
        async with session.turn("old") as old:
            await slow.gate.reached.wait()
            await session.send("new", delivery="supersede", id="new")
            await trio.testing.wait_all_tasks_blocked()
            assert len(requests_of(engine)) == 1
            slow.gate.open.set()
            assert (await old.result(check=False)).outcome == "superseded"
        await events_of(session, until=over("t2"))
        assert lines(await session.thread()) == [
            "user: old",
            "assistant: ",
            "tool: late",
            "user: new",
            "assistant: new",
        ]
        assert names(await log_of(engine.store)).count("CallSettled") == 1
        assert status(await session.thread()) == "complete/stop"


@pytest.mark.trio
async def test_a_pause_that_is_replaced() -> None:
    """X2, K7: a message in place of an answer ends the pause as cancelled; nothing waits any more, and late answers are
    refused."""
    desk = Desk()
    async with engine_of([call("pay"), call("ask")], "else", tools=desk.tools) as engine:
        session = engine.session("s")
        asked = (await session.run("go", check=False)).waiting
        await session.send("else", delivery="supersede")
        await trio.testing.wait_all_tasks_blocked()
        view = await session.thread()
        shown = [(found.display.status, found.display.reason) for found in view.messages if found.display is not None]
        assert shown == [("incomplete", "cancelled"), ("complete", "stop")]
        assert view.waiting == []
        for found in asked:
            with pytest.raises(Refused):
                await session.deny(found)
        assert result_texts(requests_of(engine)[1]) == [
            "not run: superseded by a new message",
            "execution interrupted; result unknown: superseded by a new message",
        ]
    assert desk.did == []


class Talkative(GatedModel):
    """A model that keeps the way to tell pieces, and goes on telling after its reply."""

    def __init__(self, *pieces: str, **more: Any) -> None:
        super().__init__(*pieces, **more)
        self.tell: list[OnDelta] = []

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        self.tell.append(on_delta)
        return await super().respond(request, on_delta)


@pytest.mark.trio
async def test_pieces_that_come_too_late() -> None:
    """X3, X6: what a model tells after its reply is not heard, neither in a pause nor in the next attempt, and a pause
    stays as it is."""
    desk = Desk()
    model = Talkative("one ", calls=[ToolCall("", "pay", "{}")])
    async with Engine(Agent[None](model, tools=desk.tools), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            model.gate.open.set()
            (asked,) = (await turn.result(check=False)).waiting
            before = await session.thread()
            model.tell[0]("text", "late", 0)
            model.tell[0]("call", "look", 1)
            await trio.testing.wait_all_tasks_blocked()
            assert await session.thread() == before
            await session.approve(asked)
            pieces = [event.text async for event in turn if isinstance(event, TextDelta)]
            assert "late" not in "".join(pieces)
        assert [message.text for message in await session.messages()] == ["go", "one ", "paid 1", "rest"]


@pytest.mark.trio
async def test_a_result_after_the_interrupt() -> None:
    """X4, X8: a call that still gives its result after the interrupt keeps it, and no request follows."""
    slow = Stubborn()
    async with engine_of(call("slow"), tools=[slow.tool]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await slow.gate.reached.wait()
            assert await session.interrupt()
            slow.gate.open.set()
            result = await turn.result(check=False)
        assert (result.outcome, [found.status for found in result.calls]) == ("interrupted", ["ok"])
        assert result_texts(requests_of(engine)[0]) == []
        assert len(requests_of(engine)) == 1
        assert status(await session.thread()) == "incomplete/cancelled"


@pytest.mark.trio
@pytest.mark.parametrize("close", [False, True])
async def test_a_completed_turn_stays_so(close: bool) -> None:
    """X5, X9: an interrupt after the end changes nothing, nor does closing the engine."""
    store = MemoryStore()
    async with engine_of("done", store=store) as engine:
        session = engine.session("s")
        await session.run("go")
        before = await session.thread()
        if not close:
            assert not await session.interrupt()
            assert await session.thread() == before
    async with engine_of(store=store) as engine:
        assert await engine.session("s").thread() == before
        assert status(before) == "complete/stop"


@pytest.mark.trio
async def test_the_turn_in_the_place_of_another_can_be_ended() -> None:
    """X7: an interrupt after a replacement ends the new turn, also when the old one settled only after it was sent."""
    slow = Stubborn()
    gate = Gate()

    @tool
    async def second() -> None:
        await gate.wait()

    async with engine_of(call("slow"), call("second"), tools=[slow.tool, second]) as engine:
        session = engine.session("s")
        async with session.turn("old") as old:
            await slow.gate.reached.wait()
            await session.send("new", delivery="supersede", id="new")
            slow.gate.open.set()
            await old.result(check=False)
        await gate.reached.wait()
        assert await session.interrupt(turn="t2")
        await events_of(session, until=over("t2"))
        ends = [event.outcome for event in await log_of(engine.store) if isinstance(event, TurnEnded)]
    assert ends == ["superseded", "interrupted"]


class Unhurried(GatedModel):
    """A model that gives its whole reply although it was told to stop."""

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        given: list[Reply] = []
        with trio.CancelScope(shield=True):
            given.append(await super().respond(request, on_delta))
        return given[0]


@pytest.mark.trio
@pytest.mark.parametrize("calls", [0, 1])
async def test_a_reply_after_the_interrupt(calls: int) -> None:
    """X8: a final reply that comes all the same after the interrupt is kept, and completes the turn; the calls of one
    that is not final do not run, and the turn is interrupted."""
    desk = Desk()
    model = Unhurried("whole", calls=[ToolCall("", "look", "{}")] * calls)
    async with Engine(Agent[None](model, tools=desk.tools), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            assert await session.interrupt()
            model.gate.open.set()
            result = await turn.result(check=False)
        assert (result.outcome, result.text) == ("interrupted" if calls else "completed", "whole")
        assert [found.status for found in result.calls] == ["not-run"] * calls
    assert desk.did == []


@pytest.mark.trio
async def test_leaving_is_not_cancelling(tmp_path: Path) -> None:
    """X10, O10: whoever leaves a turn does not end it, and an engine that is closed ends nothing: text of the attempt
    that was cut is void, what waits is still there, and both go on in the next engine."""
    path = tmp_path / "turns.db"
    model = GatedModel("half an ")
    async with Engine(Agent(model), SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with session.turn("go"):
            await model.gate.reached.wait()
            await session.send("and then?", id="then")
        assert (await session.info()).unfinished
    async with engine_of("an answer", "and another", store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        assert lines(await session.thread()) == ["user: go"]
        async with session.resume() as turn:
            assert (await turn.result()).text == "an answer"
        async with session.turn("and then?", id="then") as turn:
            assert (await turn.result()).text == "and another"
        assert said(requests_of(engine)[1]) == ["go", "and then?"]


@pytest.mark.trio
async def test_what_is_cancelled_while_others_end() -> None:
    """O9: of calls that run at once an interrupt keeps what had ended, and says of the others that it is not known, or
    that they did not run."""
    gate = Gate()

    @tool
    async def quick() -> str:
        return "quick"

    @tool
    async def slow(ctx: ToolContext[Any]) -> str:
        try:
            await gate.wait()
        finally:
            assert ctx.cancelled
        return "slow"

    @tool(exclusive=True)
    async def after() -> str:
        return "after"

    script = [call("quick"), call("slow"), call("after"), call("pay")]
    async with engine_of(script, tools=[quick, slow, after, *Desk().tools]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await gate.reached.wait()
            await trio.testing.wait_all_tasks_blocked()
            await session.interrupt()
            result = await turn.result(check=False)
        assert [found.status for found in result.calls] == ["ok", "unknown", "not-run", "not-run"]
        assert [message.text for message in await session.messages() if message.role == "tool"] == [
            "quick",
            "execution interrupted; result unknown: interrupted",
            "not run: interrupted",
            "not run: interrupted",
        ]
        assert await waiting(session) == []


@pytest.mark.trio
async def test_a_caller_that_is_cancelled_before_it_begins() -> None:
    """O3: a caller that is cancelled before its message was taken leaves nothing behind, and the session is as usable
    as before."""
    async with engine_of("done") as engine:
        session = engine.session("s")
        with trio.CancelScope() as scope:
            scope.cancel()
            await session.run("never")
        assert scope.cancelled_caught
        assert await session.messages() == ()
        assert (await session.info()).state == "idle"
        assert (await session.run("go")).text == "done"
        assert lines(await session.thread()) == ["user: go", "assistant: done"]


@pytest.mark.trio
async def test_an_old_turn_writes_nothing_over_the_new_one() -> None:
    """O1: where a call's result and a message in its place come in the same instant, in either order, each turn has one
    end, each call one result, and the newer turn is the one that completes."""
    for first in ("result", "message"):
        for yields in range(4):
            desk, codes = Desk(), list[str]()
            async with engine_of(call("ask"), "answer", "answer", tools=desk.tools) as engine:
                session = engine.session("s")
                (asked,) = (await session.run("go", check=False)).waiting

                async def provide(session: Any = session, asked: Any = asked, codes: Any = codes) -> None:
                    try:
                        await session.provide(asked, 1)
                    except Refused as error:
                        codes.append(error.code)

                async def replace(session: Any = session) -> None:
                    await session.send("else", delivery="supersede", id="else")

                async with trio.open_nursery() as nursery:
                    for at, step in enumerate((provide, replace) if first == "result" else (replace, provide)):
                        if at:
                            for _ in range(yields):
                                await trio.lowlevel.checkpoint()
                        nursery.start_soon(step)
                await events_of(session, until=over("t2"))
            log = await log_of(engine.store)
            ends = {event.turn: event.outcome for event in log if isinstance(event, TurnEnded)}
            assert ends["t2"] == "completed"
            assert ends["t1"] in ("completed", "superseded")
            assert len([event for event in log if isinstance(event, TurnEnded)]) == 2
            assert len([event for event in log if isinstance(event, CallSettled)]) == 1
            assert log[-1].outcome == "completed"
            assert over("t2")(log[-1])
            assert codes in ([], ["stale"])


@pytest.mark.trio
async def test_a_reply_that_was_given_up_starts_nothing() -> None:
    """K10, L2: the calls of a reply that streams while a message in its place is sent never start, are never asked
    about, and leave no trace."""
    desk = Desk()
    model = GatedModel("I will", calls=[ToolCall("", "look", "{}"), ToolCall("", "pay", "{}")], rest="else")
    async with Engine(Agent[None](model, tools=desk.tools), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await session.send("else", delivery="supersede", id="else")
            model.gate.open.set()
            assert (await turn.result(check=False)).outcome == "superseded"
        await events_of(session, until=over("t2"))
        assert lines(await session.thread()) == ["user: go", "assistant: I will", "user: else", "assistant: else"]
        assert [shown.calls for shown in (await session.thread()).messages] == [{}] * 4
    log = names(await log_of(engine.store))
    assert not {"CallProposed", "CallStarted", "ApprovalRequested"} & set(log)
    assert desk.did == []
