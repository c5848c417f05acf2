"""Scenarios K1 to K13: a call runs once, when its reply is whole, and never because it was read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, GatedModel, engine_of, events_of, requests_of, result_texts
from tests.scenarios.common import log_of, names, over
from tests.scenarios.threads import Desk, ids, lines, status, waiting
from turnstate import (
    Agent,
    ApprovalRequested,
    CallProgress,
    CallStarted,
    Engine,
    MemoryStore,
    ModelRequest,
    Refused,
    Reply,
    Session,
    SQLiteStore,
    Text,
    ToolContext,
    tool,
)
from turnstate.models.base import OnDelta
from turnstate.states import Hosted, ToolCall
from turnstate.testing import ScriptedModel, call


class Wavering(GatedModel):
    """A model that streams one thing and then another as the arguments of its call, and replies with the last."""

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        if not self.requests:
            on_delta("call", "look", 0)
            for piece in ('{"at": "a"}', '{"at": ', '"b"}'):
                on_delta("arguments", piece, 0)
        return await super().respond(request, on_delta)


@pytest.mark.trio
async def test_only_the_reply_says_what_runs() -> None:
    """K1, K9: whatever was streamed of a call, nothing runs before the reply is whole, and then it runs once, with the
    arguments of the reply."""
    desk = Desk()
    model = Wavering(calls=[ToolCall("", "look", '{"at": "b"}')])
    async with Engine(Agent[None](model, tools=desk.tools), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert desk.did == []
            model.gate.open.set()
            await turn.result()
    assert desk.did == ["look b"]


@pytest.mark.trio
async def test_equal_json_is_the_same() -> None:
    """K3: keys in another order and other blanks make no other arguments and no other result: a grant covers the call,
    and the same result again is accepted."""
    desk = Desk()
    ran: list[str] = []

    @tool(approval=True)
    async def send(to: str, text: str) -> None:
        ran.append(f"{to} {text}")

    def asking(arguments: str) -> Reply:
        return Reply((ToolCall("", "send", arguments),), "tool-calls")

    script = [asking('{"to": "a", "text": "b"}'), asking('{ "text":"b",\n"to":"a"}'), [call("ask"), call("ask")]]
    async with engine_of(*script, tools=[send, *desk.tools]) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        async with session.resume() as turn:
            await session.approve(*result.waiting, for_session=True)
            asked, _ = (await turn.result(check=False)).waiting
        assert ran == ["a b", "a b"]
        await session.provide(asked, {"x": 1, "y": [2]})
        before = (await session.info()).last_event
        await session.provide(asked, {"y": [2], "x": 1})
        assert (await session.info()).last_event == before


@pytest.mark.trio
async def test_what_was_loaded_runs_nothing(tmp_path: Path) -> None:
    """K4: a thread that is read, followed, gone on with, branched, forked, exported or imported runs none of the calls
    in it again."""
    desk = Desk()
    path = tmp_path / "turns.db"
    script = [[call("look", at="a"), call("pay")], "done"]
    async with engine_of(*script, tools=desk.tools, store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        async with session.resume() as turn:
            await session.approve(*result.waiting)
            await turn.result()
    did = list(desk.did)
    assert did == ["look a", "pay 1"]
    async with engine_of("more", "else", store=SQLiteStore(path), tools=desk.tools) as engine:
        session = engine.session("s")
        log = await events_of(session, until=over())
        assert names(log).count("CallStarted") == 2
        await session.thread()
        fork = await session.fork()
        await engine.import_session("copy", await session.export())
        await session.run("more?")
        await session.run("else?", edits="m1")
        await session.switch("m1")
        assert await waiting(session) == await waiting(fork) == []
    assert desk.did == did


@pytest.mark.trio
async def test_once_over_its_whole_life(tmp_path: Path) -> None:
    """K5: through streaming, two restarts while it waits, two equal approvals and a restart after it, a call runs once
    and is told at each station once."""
    desk = Desk()
    path = tmp_path / "turns.db"
    async with engine_of(["so", call("pay", amount=5)], tools=desk.tools, store=SQLiteStore(path)) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
    async with engine_of(tools=desk.tools, store=SQLiteStore(path)) as engine, engine.session("s").resume() as turn:
        await turn.result(check=False)
    async with engine_of("done", tools=desk.tools, store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with session.resume() as turn, trio.open_nursery() as nursery:
            nursery.start_soon(session.approve, asked)
            nursery.start_soon(session.approve, asked)
            await turn.result()
    async with engine_of(tools=desk.tools, store=SQLiteStore(path)) as engine:
        with pytest.raises(Refused):
            async with engine.session("s").resume():
                pass
    assert desk.did == ["pay 5"]
    log = await log_of(SQLiteStore(path))
    stations = [type(event).__name__ for event in log if getattr(getattr(event, "call", None), "id", "") == asked.id]
    assert stations == ["CallProposed", "ApprovalRequested", "CallAnswered", "CallStarted", "CallSettled"]


@pytest.mark.trio
async def test_calls_of_an_agent_below() -> None:
    """K6: what an agent that is a tool of another one asks for surfaces above, is answered there by its own id, and
    runs once; the call above has one result."""
    desk = Desk()
    below = Agent(ScriptedModel([call("pay", amount=3), "it is paid"]), tools=desk.tools)
    helper = below.as_tool("helper", "Helps.")
    async with engine_of(call("helper", task="pay three"), "done", tools=[helper]) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        (asked,) = result.waiting
        (outer,) = result.calls
        assert (asked.tool, asked.arguments, asked.id.startswith(f"{outer.id}/")) == ("pay", {"amount": 3}, True)
        view = await session.thread()
        assert status(view) == "requires-action/interrupt"
        assert [found.id for found in view.messages[-1].calls[outer.id].asks] == [asked.id]
        async with session.resume() as turn:
            await session.approve(asked)
            await session.approve(asked)
            await turn.result()
        assert result_texts(requests_of(engine)[1]) == ["it is paid"]
        assert lines(await session.thread())[2:] == ["tool: it is paid", "assistant: done"]
    assert desk.did == ["pay 3"]


@pytest.mark.trio
async def test_what_the_provider_runs_runs_nowhere_else() -> None:
    """K8: what a provider ran by itself is kept in its place and shown; no tool of that name runs for it, nobody is
    asked, and the turn does not wait."""
    desk = Desk()
    hosted = Hosted("web_search_call", "searched", provider={"x": {"type": "web_search_call", "name": "pay"}})
    async with engine_of(Reply((hosted, Text("found")), "stop"), tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert (result.text, result.steps, result.calls) == ("found", 1, [])
        assert (await session.messages())[-1].parts[0] == hosted
    assert desk.did == []
    assert "CallProposed" not in names(await log_of(engine.store))


class Trouble(Exception):
    """What a reader of events raises."""


async def trouble(session: Session) -> None:
    """Follow a session up to a request, and raise."""
    async with session.events() as events:
        async for event in events:
            if isinstance(event, ApprovalRequested):
                assert event.call.prompt is None
                raise Trouble


@pytest.mark.trio
async def test_trouble_of_who_looks_on_is_theirs() -> None:
    """K12: a reader of events that raises, a prompt that raises, and a request of a reader that is cancelled hinder
    neither the call nor other readers."""

    def ask(amount: int) -> str:
        raise Trouble(f"no words for {amount}")

    ran: list[int] = []

    @tool(approval=True, prompt=ask)
    async def pay(amount: int) -> None:
        ran.append(amount)

    async with engine_of(call("pay", amount=2), "done", tools=[pay]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            with pytest.raises(Trouble):
                await trouble(session)
            with trio.move_on_after(0):
                async with session.events() as events:
                    async for _ in events:
                        pass
            await session.approve(*await waiting(session))
            assert (await turn.result()).text == "done"
        log = await events_of(session, until=over())
        assert names(log).count("CallSettled") == 1
    assert ran == [2]


@pytest.mark.trio
@pytest.mark.parametrize("on_crash", ["report", "rerun"])
async def test_the_engine_is_started_again(on_crash: Any, tmp_path: Path) -> None:
    """K13: a call that was running when its engine was left is, in the next one, of unknown outcome, or begun again if
    its tool allows that, with the same key; never both."""
    path = tmp_path / "turns.db"
    gate, keys = Gate(), list[str]()

    @tool(on_crash=on_crash)
    async def work(ctx: ToolContext[Any]) -> str:
        keys.append(ctx.idempotency_key)
        await gate.wait()
        return "worked"

    def engine() -> Engine[None]:
        agent = Agent[None](
            ScriptedModel(lambda request: "done" if request.messages[-1].role == "tool" else call("work")), tools=[work]
        )
        return Engine(agent, SQLiteStore(path), grace=0)

    async with engine() as first, first.session("s").turn("go"):
        await gate.reached.wait()
    gate.open.set()
    async with engine() as second:
        async with second.session("s").resume() as turn:
            result = await turn.result()
        assert [found.status for found in result.calls] == ["unknown" if on_crash == "report" else "ok"]
        assert len(ids(result.messages)) == len(set(ids(result.messages)))
    assert len(keys) == (1 if on_crash == "report" else 2)
    assert len(set(keys)) == 1
    began = [event.call.began for event in await log_of(SQLiteStore(path)) if isinstance(event, CallStarted)]
    assert began == ([1] if on_crash == "report" else [1, 2])


@pytest.mark.trio
async def test_progress_is_no_result() -> None:
    """K11: what a tool yields on its way is told while it runs and settles nothing; its last value is the result,
    once."""
    gate = Gate()

    @tool
    async def count() -> Any:
        yield 1
        yield 2
        await gate.wait()
        yield 3

    async with engine_of(call("count"), "done", tools=[count]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await gate.reached.wait()
            assert [shown.running for shown in (await session.thread()).messages[-1].calls.values()] == [True]
            gate.open.set()
            told = [event.value async for event in turn if isinstance(event, CallProgress)]
        assert told == [1, 2]
        assert result_texts(requests_of(engine)[1]) == ["3"]
    assert "CallProgress" not in names(await log_of(engine.store))
