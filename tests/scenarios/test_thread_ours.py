"""Scenarios O4 to O11: what is expected here beyond what others do; the rest of O1 to O14 stands with its subject."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, engine_of, requests_of, result_texts, strict, until_event
from tests.scenarios.common import log_of, names
from tests.scenarios.threads import Desk, lines, status
from turnstate import (
    Agent,
    CallSettled,
    CallStarted,
    Client,
    Engine,
    Limits,
    MemoryStore,
    ModelRequest,
    Refused,
    Store,
    StoreError,
    TurnEnded,
    tool,
)
from turnstate.states import SETTLED
from turnstate.testing import FaultyStore, ScriptedModel, call


@pytest.mark.trio
async def test_an_answer_while_siblings_run() -> None:
    """O4: an answer that comes while other calls run is taken at once, and the call begins beside them."""
    gates = {"slow": Gate(), "pay": Gate()}

    @tool
    async def slow() -> str:
        await gates["slow"].wait()
        return "slow"

    @tool(approval=True)
    async def pay() -> str:
        await gates["pay"].wait()
        return "paid"

    async with engine_of([call("slow"), call("pay")], "done", tools=[slow, pay]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await gates["slow"].reached.wait()
            (asked,) = turn.waiting
            assert status(await session.thread()) == "running/"
            await session.approve(asked)
            await gates["pay"].reached.wait()
            for gate in gates.values():
                gate.open.set()
            await turn.result()
        assert result_texts(requests_of(engine)[1]) == ["slow", "paid"]


class World:
    """A turn with a call that runs, one that is decided, one that somebody outside does, and one that may run again."""

    def __init__(self) -> None:
        self.effects: list[str] = []

        @tool(approval=True)
        async def pay(amount: int) -> str:
            self.effects.append(f"pay {amount}")
            return "paid"

        @tool(outside=True)
        def ask() -> None: ...

        @tool(on_crash="rerun")
        async def look() -> Any:
            yield "looking"
            self.effects.append("look")
            yield "seen"

        self.tools: list[Any] = [pay, ask, look]

    def reply(self, request: ModelRequest) -> Any:
        """By what the request holds, so that it goes on where it stood."""
        strict(request.messages)
        if request.messages[-1].role == "tool":
            return "done"
        return ["so", call("pay", amount=1), call("ask"), call("look")]

    async def drive(self, store: Store) -> Any:
        """Run the turn, or go on with it, with the answers that it needs; each has an id and may be given again."""
        agent = Agent[None](ScriptedModel(self.reply), tools=self.tools, limits=Limits(resumptions=10))
        async with Engine(agent, store) as engine:
            session = engine.session("s")
            async with session.turn("go", id="go") as turn:
                while (result := await turn.result(check=False)).outcome == "waiting":
                    for found in result.waiting:
                        if found.wants == "result":
                            await session.provide(found, {"answer": 42}, id=f"answer {found.id}")
                        else:
                            await session.approve(found, arguments={"amount": 7}, id=f"answer {found.id}")
                return result


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_each_commit(when: Literal["before", "after"]) -> None:
    """O5, O7: wherever the process dies, the turn ends; each call has one result, what may not repeat ran at most once,
    with the arguments of the person who approved it, and answers from outside are neither lost nor asked for again."""
    died = 0
    for at in range(1, 30):
        store, world = MemoryStore(), World()
        faulty = FaultyStore(store, at, when)
        try:
            await world.drive(faulty)
        except StoreError:
            died += 1
        result = await world.drive(store)
        assert result.outcome == "completed"
        statuses = {found.tool: found.status for found in result.calls}
        assert world.effects.count("pay 7") <= 1
        assert "pay 1" not in world.effects
        assert (statuses["pay"] == "ok") == (world.effects.count("pay 7") == 1 and statuses["pay"] != "unknown")
        assert statuses["pay"] in ("ok", "unknown")
        assert (statuses["ask"], statuses["look"]) == ("ok", "ok")
        log = await log_of(store)
        assert [event.number for event in log] == list(range(1, len(log) + 1))
        for name in ("TurnStarted", "TurnEnded"):
            assert names(log).count(name) == 1
        settled = [event.call.id for event in log if isinstance(event, CallSettled)]
        assert len(settled) == len(set(settled)) == 3
        requested = names(log).count("ResultRequested")
        assert requested == 1
        if faulty.commits < at:
            break
    assert died >= 6


@pytest.mark.trio
async def test_arguments_of_the_person() -> None:
    """O7: approved with other arguments the call runs with those, whole, after they were checked; what the model wanted
    is kept beside them, and the message with the call is as the model wrote it."""
    desk = Desk()
    async with engine_of(call("pay", amount=1), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        for bad in ({"amount": "much"}, {"sum": 1}, {"amount": 1, "to": "me"}):
            with pytest.raises(ValueError, match="arguments"):
                await session.approve(asked, arguments=bad)
        async with session.resume() as turn:
            await session.approve(asked, arguments={"amount": 2})
            result = await turn.result()
        (found,) = result.messages[1].calls
        assert found.arguments == '{"amount": 1}'
        log = await log_of(engine.store)
        (settled,) = (event.call for event in log if isinstance(event, CallSettled))
        assert (settled.proposed, settled.edited) == ('{"amount": 1}', '{"amount": 2}')
    assert desk.did == ["pay 2"]


@pytest.mark.trio
async def test_an_unknown_tool_pauses_nothing() -> None:
    """O8: a call of a tool that is not there is an error that names those that are, and the turn goes on."""
    desk = Desk()
    async with engine_of([call("lok", at="a"), call("look", at="b")], "done", tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert [found.status for found in result.calls] == ["error", "ok"]
        unknown, seen = result_texts(requests_of(engine)[1])
        assert unknown.startswith("unknown tool lok; available: ")
        assert all(name in unknown for name in ("look", "pay", "ask", "sign"))
        assert seen == "saw b"
        states = [shown.state for shown in (await session.thread()).messages[1].calls.values()]
        assert states == ["output-error", "output-available"]


@pytest.mark.trio
async def test_leaving_and_stopping() -> None:
    """O10: a client that goes away ends nothing; one that interrupts, also from outside, ends the turn."""
    gate = Gate()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    store = MemoryStore()
    async with engine_of(call("slow"), tools=[slow], store=store) as engine, Client(store) as client:
        session, outside = engine.session("s"), client.session("s")
        await session.send("go")
        async with outside.events() as events:
            async for event in events:
                if isinstance(event, CallStarted):
                    break
        await gate.reached.wait()
        assert (await session.info()).unfinished
        assert await outside.interrupt("enough")
        ended = await until_event(session, TurnEnded)
        assert (ended.outcome, ended.reason) == ("interrupted", "enough")
        assert not await outside.interrupt()


@pytest.mark.trio
async def test_live_and_replayed_are_the_same() -> None:
    """O11: a thread that was branched, answered, marked, cut and gone on with is told to a reader who was there from
    the start exactly as to one who reads it afterwards from any number."""
    desk = Desk()
    live: list[Any] = []
    script = [[call("pay"), call("ask")], "one", "two", "three"]
    async with engine_of(*script, tools=desk.tools) as engine:
        session = engine.session("s")

        async def follow(task_status: trio.TaskStatus[None]) -> None:
            async with session.events() as events:
                task_status.started()
                async for event in events:
                    if event.number is not None:
                        live.append(event)

        await engine.drive("s")
        async with trio.open_nursery() as nursery:
            await nursery.start(follow)
            paid, asked = (await session.run("go", check=False)).waiting
            async with session.resume() as turn:
                await session.provide(asked, "half", preliminary=True)
                await session.provide(asked, "whole")
                await session.approve(paid, for_session=True)
                await turn.result()
            await session.annotate("m1", {"good": True})
            async with session.retry() as turn:
                await turn.result()
            await session.switch("m2")
            await session.rename("A thread")
            await session.run("go!", edits="m1")
            await session.delete_message("m2")
            with pytest.raises(Refused):
                await session.switch("m2")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert live == await log_of(engine.store)
        for after in (0, 1, len(live) // 2, len(live) - 1):
            again: list[Any] = []
            async with session.events(after=after) as events:
                while len(again) < len(live) - after:
                    again.append(await events.__anext__())
            assert again == live[after:]
        assert lines(await session.thread()) == ["user: go! (2/2)", "assistant: three"]
    assert {event.call.status for event in live if isinstance(event, CallSettled)} <= SETTLED
