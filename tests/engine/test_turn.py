"""Whole turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

from tests.engine.helpers import (
    Gate,
    GatedModel,
    StrictModel,
    engine_of,
    requests_of,
    result_texts,
    said,
    until_event,
)
from turnstate import (
    Agent,
    ApprovalRequested,
    Engine,
    InvalidInput,
    Limits,
    MemoryStore,
    Middleware,
    ModelError,
    Refused,
    Reply,
    Session,
    SQLiteStore,
    Store,
    Text,
    TextDelta,
    ToolContext,
    TurnContext,
    TurnEnded,
    TurnFailed,
    TurnIncomplete,
    TurnStarted,
    tool,
)
from turnstate.states import ToolCall
from turnstate.testing import ScriptedModel, call


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each test that takes it runs on both stores."""
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "turns.db")


class Doing:
    """Something that is done with a session."""

    def __init__(self, it: Callable[[Session], Awaitable[object]]) -> None:
        self.it = it


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Deletions:
    """A tool that needs approval, and what it did."""

    def __init__(self, **options: Any) -> None:
        self.done: list[str] = []

        async def delete(path: str) -> str:
            """Delete a file."""
            self.done.append(path)
            return f"deleted {path}"

        self.tool = tool(approval=True, **options)(delete)


@pytest.mark.trio
async def test_text(store: Store) -> None:
    """A turn of text alone completes with the text, and the session remembers it."""
    async with engine_of("Elbe", "Oder", store=store) as engine:
        session = engine.session("s")
        result = await session.run("A river?")
        assert (result.outcome, result.text, result.stop, result.steps) == ("completed", "Elbe", "stop", 1)
        assert (await session.run("Another?")).text == "Oder"
        assert [m.text for m in await session.messages()] == ["A river?", "Elbe", "Another?", "Oder"]
        assert said(requests_of(engine)[1]) == ["A river?", "Another?"]
        info = await session.info()
        assert (info.title, info.state, info.unfinished) == ("A river?", "complete", False)


@pytest.mark.trio
async def test_calls(store: Store) -> None:
    """Parallel calls give one result each, in call order, and the model reads them."""
    async with engine_of(["so", call("add", a=1, b=2), call("add", a=3, b=4)], "done", tools=[add], store=store) as e:
        result = await e.session("s").run("add")
        assert result.text == "done"
        assert result_texts(requests_of(e)[1]) == ["3", "7"]
        assert [c.status for c in result.calls] == ["ok", "ok"]


@pytest.mark.trio
async def test_call_faults(store: Store) -> None:
    """Unknown tools, bad arguments and raising tools give error results; a good sibling runs once (cases 46, 47)."""
    ran: list[int] = []

    @tool
    async def good() -> str:
        ran.append(1)
        return "fine"

    @tool
    async def bad() -> None:
        raise ValueError

    calls = [call("nope"), call("add", a="x", b=1), call("good"), call("bad")]
    async with engine_of(calls, "ok", tools=[add, good, bad], store=store) as engine:
        await engine.session("s").run("go")
        texts = result_texts(requests_of(engine)[1])
        assert texts[0] == "unknown tool nope; available: add, bad, good"
        assert texts[1].startswith("bad arguments for add")
        assert texts[2:] == ["fine", "ValueError: the tool failed; the details are in the log"]
        assert ran == [1]


@pytest.mark.trio
async def test_model_error(store: Store) -> None:
    """A model error that cannot be retried fails the turn with it as the cause, and resume goes on."""
    async with engine_of(ModelError("no such model", kind="not-found"), "here", store=store) as engine:
        session = engine.session("s")
        with pytest.raises(TurnFailed, match="no such model") as caught:
            await session.run("hi")
        assert isinstance(caught.value.__cause__, ModelError)
        assert caught.value.result.error is not None
        assert caught.value.result.error.kind == "not-found"
        async with session.resume() as turn:
            assert (await turn.result()).text == "here"
            assert turn.id == "t2"


@pytest.mark.trio
async def test_approve(store: Store) -> None:
    """run() does not hang on a person; an approval lets exactly the stored call run (cases 49, 62)."""
    files = Deletions()
    async with engine_of(call("delete", path="a"), "gone", tools=[files.tool], store=store) as engine:
        session = engine.session("s")
        with pytest.raises(TurnIncomplete) as caught:
            await session.run("go")
        (waiting,) = caught.value.result.waiting
        assert caught.value.result.outcome == "waiting"
        assert not files.done
        async with session.resume() as turn:
            assert [c.id for c in turn.waiting] == [waiting.id]
            await session.approve(waiting, by="bob")
            assert (await turn.result()).text == "gone"
        assert files.done == ["a"]
        with pytest.raises(Refused) as refused:
            await session.approve(waiting)
        assert refused.value.code == "stale"


@pytest.mark.trio
async def test_deny(store: Store) -> None:
    """A denial is a result that tells the model the reason (case 63)."""
    files = Deletions()
    async with engine_of(call("delete", path="a"), "sorry", tools=[files.tool], store=store) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            request = await until_event(session, ApprovalRequested)
            await session.deny(request.call, reason="not this one")
            assert (await turn.result()).text == "sorry"
        assert result_texts(requests_of(engine)[1]) == ["tool denied: not this one"]
        assert not files.done


@pytest.mark.trio
async def test_deny_and_end() -> None:
    """A denial may end the turn: no request follows."""
    files = Deletions()
    async with engine_of(call("delete", path="a"), tools=[files.tool]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            request = await until_event(session, ApprovalRequested)
            await session.deny(request.call, reason="stop it", end_turn=True)
            result = await turn.result(check=False)
        assert (result.outcome, result.reason) == ("denied", "stop it")
        assert len(requests_of(engine)) == 1


@pytest.mark.trio
async def test_approve_edited() -> None:
    """A person may approve with other arguments; those are checked, and what the model sent is kept."""
    files = Deletions()
    async with engine_of(call("delete", path="a"), "ok", tools=[files.tool]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            request = await until_event(session, ApprovalRequested)
            with pytest.raises(InvalidInput, match="path"):
                await session.approve(request.call, arguments={"path": 3})
            await session.approve(request.call, arguments={"path": "b"})
            await turn.result()
        assert files.done == ["b"]
        assert (await session.messages())[1].calls[0].arguments == '{"path": "a"}'


@pytest.mark.trio
async def test_approve_for_session() -> None:
    """An approval for the session covers equal arguments until it is revoked, and no others."""
    files = Deletions()
    lines = [[call("delete", path="a"), call("delete", path="a")], "1", call("delete", path="a"), "2"]
    async with engine_of(*lines, call("delete", path="b"), "3", tools=[files.tool]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            request = await until_event(session, ApprovalRequested)
            await session.approve(request.call, for_session=True)
            await turn.result()
        await session.run("again")
        assert files.done == ["a", "a", "a"]
        (grant,) = await session.grants()
        assert grant.arguments == {"path": "a"}
        assert (await session.run("other", check=False)).outcome == "waiting"
        await session.revoke(grant)
        assert not await session.grants()


@pytest.mark.trio
async def test_parallel_same_tool() -> None:
    """Answers go to the call that they name, whatever their order (case 56)."""
    files = Deletions()
    async with engine_of([call("delete", path="a"), call("delete", path="b")], "ok", tools=[files.tool]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            waiting = (await turn.result(check=False)).waiting
            await session.approve(waiting[1])
            await session.approve(waiting[1])
            with pytest.raises(Refused) as refused:
                await session.deny(waiting[1], reason="late")
            assert refused.value.code == "conflict"
            await session.deny(waiting[0])
            await turn.result()
        assert files.done == ["b"]
        assert result_texts(requests_of(engine)[1]) == ["tool denied: the user declined", "deleted b"]


@pytest.mark.trio
async def test_message_while_waiting() -> None:
    """A message to a session that waits for a person is queued; no request is made meanwhile (cases 52, 53)."""
    files = Deletions()
    async with engine_of(call("delete", path="a"), "first", "second", tools=[files.tool]) as engine:
        session = engine.session("s")
        first = await session.run("one", check=False)
        second = await session.run("two", check=False)
        assert (second.turn, second.outcome) == ("", "waiting")
        assert [c.id for c in second.waiting] == [c.id for c in first.waiting]
        assert len(requests_of(engine)) == 1
        async with session.turn("three") as third:
            await session.deny(first.waiting[0])
            result = await third.result(check=False)
        assert result.turn == "t3"
        assert said(requests_of(engine)[1]) == ["one"]


@pytest.mark.trio
async def test_steer_while_tools_run() -> None:
    """A steer joins after the results of the batch, before what is queued (cases 40, 75)."""
    gate = Gate()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    async with engine_of([call("slow"), call("add", a=1, b=1)], "one", "two", "three", tools=[slow, add]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await gate.reached.wait()
            await session.send("q1")
            await session.steer("s1")
            await session.send("q2")
            await session.steer("s2")
            gate.open.set()
            assert (await turn.result()).turn == "t1"
        async with session.events() as stream:
            ends = 0
            async for event in stream:
                ends += isinstance(event, TurnEnded)
                if ends == 3:
                    break
        assert [said(r) for r in requests_of(engine)] == [
            ["go"],
            ["go", "s1", "s2"],
            ["go", "s1", "s2", "q1"],
            ["go", "s1", "s2", "q1", "q2"],
        ]


@pytest.mark.trio
async def test_steer_while_final_answer_streams() -> None:
    """A steer that comes with the last reply makes one more step (case 71)."""
    model = GatedModel("the ", "end", rest="no, this")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await session.steer("more")
            model.gate.open.set()
            result = await turn.result()
        assert (result.text, result.steps) == ("no, this", 2)
        assert said(model.requests[1]) == ["go", "more"]


@pytest.mark.trio
@pytest.mark.parametrize("pieces", [(), ("\n\n",), ("a ", "b")])
async def test_interrupt_while_streaming(pieces: tuple[str, ...], store: Store) -> None:
    """What was seen of a reply is kept if it is not blank, and the next message works (cases 45, 67, 69)."""
    late = [ToolCall("", "add", '{"a":1,"b":1}')]
    model = GatedModel(*pieces, calls=late)
    async with Engine(Agent(model, tools=[add]), store) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            assert await session.interrupt("enough")
            result = await turn.result(check=False)
        assert (result.outcome, result.reason, result.calls) == ("interrupted", "enough", [])
        assert result.text == "".join(pieces).strip(" ") if "".join(pieces).strip() else not result.text
        assert len(model.requests) == 1
        assert not await session.interrupt()
        assert (await session.run("go on")).text == "rest"


@pytest.mark.trio
async def test_interrupt_while_tools_run(store: Store) -> None:
    """An interrupt ends the running call as unknown, keeps what was done, and the next message works (case 35)."""
    gate = Gate()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    later: list[int] = []

    @tool(exclusive=True)
    async def alone() -> None:
        later.append(1)

    lines = [[call("add", a=1, b=1), call("slow"), call("alone")], "on"]
    async with engine_of(*lines, tools=[add, slow, alone], store=store) as e:
        session = e.session("s")
        async with session.turn("go") as turn:
            await gate.reached.wait()
            assert await session.interrupt()
            result = await turn.result(check=False)
        assert [c.status for c in result.calls] == ["ok", "unknown", "not-run"]
        assert not later
        assert (await session.run("next")).text == "on"
        assert result_texts(requests_of(e)[1])[1:] == [
            "execution interrupted; result unknown: interrupted",
            "not run: interrupted",
        ]


@pytest.mark.trio
async def test_interrupt_while_waiting() -> None:
    """An interrupt settles what waits for a person; a late approval is refused and runs nothing (case 58)."""
    files = Deletions()
    async with engine_of(call("delete", path="a"), "next", tools=[files.tool]) as engine:
        session = engine.session("s")
        (waiting,) = (await session.run("go", check=False)).waiting
        assert await session.interrupt()
        with pytest.raises(Refused):
            await session.approve(waiting)
        assert (await session.run("hi")).text == "next"
        assert not files.done


@pytest.mark.trio
async def test_interrupt_and_approve_race() -> None:
    """Whichever of an approval and an interrupt comes first, the outcome is one of two and the history is valid (case 58)."""
    for _ in range(40):
        files = Deletions()
        async with engine_of(call("delete", path="a"), "one", "two", tools=[files.tool]) as engine:
            session = engine.session("s")
            (waiting,) = (await session.run("go", check=False)).waiting
            refused: list[Refused] = []

            async def approve(session: Any = session, waiting: Any = waiting, refused: Any = refused) -> None:
                try:
                    await session.approve(waiting)
                except Refused as error:
                    refused.append(error)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(approve)
                nursery.start_soon(session.interrupt)
            if refused:
                assert not files.done
            await session.run("hi", check=False)


@pytest.mark.trio
async def test_interrupt_with_queue() -> None:
    """An interrupt holds the queue: nothing starts by itself until resume or a message (case 82)."""
    model = GatedModel("x", rest="r")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await session.send("q1")
            receipt = await session.send("q2")
            await session.interrupt()
            await turn.result(check=False)
        held = await session.info()
        assert (held.held, held.queued, len(model.requests)) == (True, 2, 1)
        await session.edit_queued(receipt.id, "q2 changed")
        await session.remove_queued(receipt.id)
        assert (await session.info()).queued == 1
        async with session.turn("q3") as third:
            assert (await third.result()).turn == "t3"
        assert said(model.requests[-1])[1:] == ["q1", "q3"]


@pytest.mark.trio
async def test_message_right_after_interrupt() -> None:
    """A message that is sent while the interrupted turn still ends starts the next turn: it is newer than the interrupt."""
    gate = Gate()

    @tool
    async def slow_to_end() -> None:
        try:
            await gate.wait()
        finally:
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()

    async with engine_of(call("slow_to_end"), "next", tools=[slow_to_end]) as engine:
        session = engine.session("s")
        await session.send("go")
        await gate.reached.wait()
        await session.interrupt()
        assert (await session.run("next")).text == "next"


@pytest.mark.trio
async def test_held_message_does_not_hang() -> None:
    """A message that is queued behind a turn that ends held gives 'waiting', not a hang."""
    model = GatedModel("x")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as first:
            await model.gate.reached.wait()
            async with session.turn("queued") as second:
                assert second.id == ""
                await session.interrupt()
                await first.result(check=False)
                result = await second.result(check=False)
                assert (result.outcome, result.turn) == ("waiting", "")
                async with session.resume() as resumed:
                    await resumed.result()
                assert (await second.result()).text == "rest"
                assert second.id == "t3"


@pytest.mark.trio
async def test_removed_message_ends_its_turn() -> None:
    """Whoever waits for a turn whose message is taken back hears so."""
    model = GatedModel("x")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go"):
            await model.gate.reached.wait()
            async with session.turn("queued", id="q") as second:
                await session.remove_queued("q")
                with pytest.raises(Refused, match="taken back"):
                    await second.result()
            model.gate.open.set()


@pytest.mark.trio
async def test_turn_that_waits_its_turn() -> None:
    """A turn that has to wait tells its own events only, and its own result."""
    model = GatedModel("first")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("one"):
            await model.gate.reached.wait()
            async with session.turn("two") as second:
                model.gate.open.set()
                events = [event async for event in second]
                assert isinstance(events[0], TurnStarted)
                assert isinstance(events[-1], TurnEnded)
                assert {event.turn for event in events} == {"t2"}
                assert (await second.result()).text == "rest"


@pytest.mark.trio
async def test_text_and_events() -> None:
    """A turn's text comes as it streams, and its events end with TurnEnded."""
    async with engine_of("one two three", "four") as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            assert "".join([piece async for piece in turn.text()]) == "one two three"
            assert (await turn.result()).text == "one two three"
            assert [event async for event in turn] == []
        async with session.turn("go") as turn:
            kinds = [type(event).__name__ async for event in turn]
        assert kinds[0] == "TurnStarted"
        assert kinds[-1] == "TurnEnded"
        assert "TextDelta" in kinds


@pytest.mark.trio
@pytest.mark.parametrize("leave", ["break", "raise", "cancel"])
async def test_leaving_detaches(leave: str) -> None:
    """Breaking out, raising or being cancelled in the block detaches, and the turn goes on (case 109)."""
    model = GatedModel("a", "b")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        with trio.CancelScope() as scope:
            try:
                async with session.turn("go") as turn:
                    async for event in turn:
                        if isinstance(event, TextDelta):
                            if leave == "raise":
                                raise ZeroDivisionError
                            if leave == "break":
                                break
                            scope.cancel()
            except ZeroDivisionError:
                pass
        model.gate.open.set()
        end = await until_event(session, TurnEnded)
        assert end.outcome == "completed"


@pytest.mark.trio
async def test_resume_finished() -> None:
    """There is nothing to resume after a completed turn, nor in a session that nobody used."""
    async with engine_of("x") as engine:
        session = engine.session("s")
        for _ in range(2):
            with pytest.raises(Refused) as refused:
                async with session.resume():
                    pass
            assert refused.value.code == "stale"
            if not requests_of(engine):
                await session.run("go")


@pytest.mark.trio
async def test_resume_queued_after_closing() -> None:
    """A message that was still queued when the engine closed is the next turn, and resume holds it."""
    store = MemoryStore()
    gate = Gate()

    class Slow(Middleware[None]):
        async def turn_ended(self, ctx: TurnContext[None]) -> None:
            with trio.CancelScope(shield=True):
                await gate.wait()

    async def let_go() -> None:
        await trio.testing.wait_all_tasks_blocked()
        gate.open.set()

    async with trio.open_nursery() as nursery, engine_of("one", store=store, middleware=[Slow()]) as engine:
        await engine.session("s").send("go")
        await gate.reached.wait()
        await engine.session("s").send("next")
        nursery.start_soon(let_go)
    async with engine_of("two", store=store) as engine, engine.session("s").resume() as turn:
        assert (await turn.result()).text == "two"
        assert turn.id == "t2"


@pytest.mark.trio
@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_step_limit(steps: int) -> None:
    """Exactly n requests, outcome 'limit', no call open, and resume goes on with fresh counts (case 103)."""
    model = StrictModel(lambda request: call("add", a=1, b=1))
    async with Engine(Agent(model, tools=[add], limits=Limits(steps=steps)), MemoryStore()) as engine:
        session = engine.session("s")
        with pytest.raises(TurnIncomplete) as caught:
            await session.run("go")
        assert not isinstance(caught.value, TurnFailed)
        assert caught.value.result.outcome == "limit"
        assert len(model.requests) == steps
        async with session.resume() as turn:
            assert (await turn.result(check=False)).outcome == "limit"
        assert len(model.requests) == 2 * steps


@pytest.mark.trio
async def test_time_limit(autojump_clock: trio.testing.MockClock) -> None:
    """The time limit ends a turn in the middle of a tool, and waiting for a person does not count."""
    files = Deletions()

    @tool
    async def slow() -> None:
        await trio.sleep(100)

    agent = Agent[None](
        StrictModel([call("delete", path="a"), call("slow"), "x"]), tools=[files.tool, slow], limits=Limits(seconds=10)
    )
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            (waiting,) = (await turn.result(check=False)).waiting
            await trio.sleep(1000)
            await session.approve(waiting)
            start = trio.current_time()
            result = await turn.result(check=False)
            assert trio.current_time() - start == pytest.approx(10, abs=0.1)
        assert (result.outcome, result.calls[-1].status) == ("limit", "unknown")


@pytest.mark.deep
@pytest.mark.trio
async def test_request_waits(autojump_clock: trio.testing.MockClock) -> None:
    """A request without a deadline still waits after a week (case 64)."""
    files = Deletions()
    async with engine_of(call("delete", path="a"), "ok", tools=[files.tool]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            (waiting,) = (await turn.result(check=False)).waiting
            await trio.sleep(7 * 86400)
            await session.approve(waiting)
            assert (await turn.result()).text == "ok"


@pytest.mark.trio
async def test_request_expires(autojump_clock: trio.testing.MockClock) -> None:
    """A request with a deadline is denied then, and nothing runs (case 64)."""
    files = Deletions(expires=60)
    async with engine_of(call("delete", path="a"), "ok", tools=[files.tool]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            start = trio.current_time()
            end = [event async for event in turn][-1]
        assert isinstance(end, TurnEnded)
        assert trio.current_time() - start == pytest.approx(60, abs=0.1)
        assert result_texts(requests_of(engine)[1]) == ["tool denied: the approval request expired"]
        assert not files.done


@pytest.mark.trio
@pytest.mark.parametrize("stop", ["length", "content-filter", "refusal"])
async def test_cut_reply(stop: Any) -> None:
    """A reply that was cut or filtered runs none of its calls, and the turn says why it stopped (cases 27, 94)."""
    reply = Reply((Text("so"), ToolCall("", "add", '{"a":1,"b":1}')), stop)
    async with engine_of(reply, "next", tools=[add]) as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert (result.outcome, result.stop) == ("completed", stop)
        assert [c.status for c in result.calls] == ["not-run"]
        assert len(requests_of(engine)) == 1
        assert (await session.run("on")).text == "next"


@pytest.mark.trio
async def test_empty_answers() -> None:
    """Empty answers and answers of calls alone are no blank text in what follows (cases 45, 70)."""
    async with engine_of(Reply(()), Reply((Text("\n"),)), call("add", a=1, b=1), "ok", tools=[add]) as engine:
        session = engine.session("s")
        assert (await session.run("one")).text == ""
        await session.run("two")
        assert (await session.run("three")).text == "ok"


@pytest.mark.trio
async def test_same_id_acts_once() -> None:
    """A submission sent twice acts once and gives the first turn's result, also when that is long over."""
    store = MemoryStore()
    async with engine_of("one", "two", store=store) as engine:
        session = engine.session("s")
        async with session.turn("go", id="a") as turn:
            first = await turn.result()
        await session.run("more")
        for _ in range(2):
            async with session.turn("go", id="a") as turn:
                assert await turn.result() == first
                assert [type(event) async for event in turn] == [TurnEnded]
        with pytest.raises(Refused) as refused:
            await session.send("other", id="a")
        assert refused.value.code == "conflict"
        assert (await session.send("go", id="a")).duplicate
    async with engine_of(store=store) as engine:
        async with engine.session("s").turn("go", id="a") as turn:
            assert (await turn.result()).text == "one"
            assert turn.id == "t1"
        assert not requests_of(engine)


@pytest.mark.trio
async def test_same_id_while_queued_or_running() -> None:
    """A submission sent again while its turn waits or runs waits for that turn."""
    model = GatedModel("one")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        results: list[str] = []

        async def again(text: str, id: str) -> None:
            async with session.turn(text, id=id) as turn:
                results.append((await turn.result()).text)

        async with trio.open_nursery() as nursery:
            for text in ("a", "b"):
                for _ in range(2):
                    nursery.start_soon(again, text, text)
                await trio.testing.wait_all_tasks_blocked()
            await model.gate.reached.wait()
            model.gate.open.set()
        assert sorted(results) == ["one", "one", "rest", "rest"]
        assert len(model.requests) == 2
        async with session.turn("b", id="b") as turn:
            assert (await turn.result()).text == "rest"


@pytest.mark.trio
@pytest.mark.parametrize(
    ("do", "field"),
    [
        (Doing(lambda s: s.run("")), "message"),
        (Doing(lambda s: s.run("a\ud800")), "surrogate"),
        (Doing(lambda s: s.send("x", delivery=cast(Any, "later"))), "delivery"),
        (Doing(lambda s: s.approve()), "calls"),
        (Doing(lambda s: s.approve("m1.0", arguments={"a": float("nan")})), "arguments"),
        (Doing(lambda s: s.interrupt("\ud800")), "reason"),
        (Doing(lambda s: s.send("x", id="\ud800")), "id"),
    ],
)
async def test_bad_input(do: Doing, field: str) -> None:
    """Bad input names the field and changes nothing."""
    files = Deletions()
    async with engine_of(call("delete", path="a"), "fine", tools=[files.tool]) as engine:
        session = engine.session("s")
        (waiting,) = (await session.run("go", check=False)).waiting
        before = await session.info()
        with pytest.raises((InvalidInput, Refused), match=field):
            await do.it(session)
        assert await session.info() == before
        async with session.resume() as turn:
            await session.deny(waiting)
            assert (await turn.result()).text == "fine"


@pytest.mark.trio
async def test_settings_and_deps() -> None:
    """Settings reach the request of their turn only; deps are made once for each turn and reach the tools."""
    made: list[str] = []

    @tool
    async def who(ctx: ToolContext[str]) -> str:
        return f"{ctx.deps} {ctx.idempotency_key}"

    def deps(info: Any) -> str:
        made.append(info.id)
        return f"deps of {info.id}"

    model = StrictModel([[call("who"), call("who")], "a", "b"])
    async with Engine(Agent[str](model, tools=[who], middleware=[]), MemoryStore(), deps=deps) as engine:
        session = engine.session("s")
        async with session.turn("go", settings={"temperature": 0}) as turn:
            await turn.result()
        await session.run("b")
        first, second = (text.split("/") for text in result_texts(model.requests[1]))
        assert (first[0], first[1], second[1]) == (second[0], "m2.0", "m2.1")
        assert first[0].startswith("deps of s ")
        assert [dict(r.settings) for r in model.requests] == [{"temperature": 0}, {"temperature": 0}, {}]
        assert made == ["s", "s"]


@pytest.mark.trio
async def test_events_of_a_tool_turn() -> None:
    """The log of a turn with a call tells each thing once and in order."""
    async with engine_of(call("add", a=1, b=2), "3", tools=[add]) as engine:
        session = engine.session("s")
        await session.run("go")
        names = [type(e).__name__ for e in await _log(session)]
    assert names == [
        "TurnStarted",
        "StepStarted",
        "StepEnded",
        "Replied",
        "CallProposed",
        "CallStarted",
        "CallSettled",
        "StepStarted",
        "StepEnded",
        "Replied",
        "TurnEnded",
    ]


async def _log(session: Any) -> list[Any]:
    found: list[Any] = []
    async with session.events() as stream:
        async for event in stream:
            found.append(event)
            if isinstance(event, TurnEnded):
                break
    return found


@pytest.mark.trio
async def test_foreign_models() -> None:
    """A model that raises anything fails the turn with that as the cause."""

    class Broken(ScriptedModel):
        async def respond(self, request: Any, on_delta: Any) -> Reply:
            import asyncio

            raise asyncio.CancelledError

    async with Engine(Agent(Broken([])), MemoryStore()) as engine:
        with pytest.raises(TurnFailed, match="CancelledError"):
            await engine.session("s").run("go")
