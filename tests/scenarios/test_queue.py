"""Scenarios Q1 to Q17: what is said while a turn runs."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, GatedModel, engine_of, events_of, requests_of, said, until_event
from tests.scenarios.common import log_of, names, over, stored
from turnstate import (
    Agent,
    Client,
    Engine,
    InvalidInput,
    MemoryStore,
    MessageEdited,
    MessageQueued,
    MessageRemoved,
    Middleware,
    ModelError,
    Refused,
    Session,
    StepContext,
    StoreError,
    TurnEnded,
    tool,
)
from turnstate.states import Text
from turnstate.testing import FaultyStore, ScriptedModel, call


class Gated(Middleware[Any]):
    """Stops before the first request, or after the first reply."""

    def __init__(self, *, after: bool = False) -> None:
        self.gate = Gate()
        self.after = after

    async def before_model(self, ctx: StepContext[Any]) -> None:
        if not self.after:
            await self.gate.wait()

    async def after_model(self, ctx: StepContext[Any]) -> None:
        if self.after:
            await self.gate.wait()


@pytest.mark.trio
async def test_steer_is_durable_while_the_model_streams() -> None:
    """Q1: a steer is stored with its id and text while the attempt is open, before anything else happens."""
    model = GatedModel("one ", "two")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await session.steer("and quick", id="steer")
            now = await stored(engine.store)
            assert now.turn is not None
            assert (now.turn.state, now.turn.attempt_id) == ("streaming", "t1.1.1")
            assert [item.id for item in now.steers] == ["steer"]
            queued = (await events_of(session, until=lambda e: isinstance(e, MessageQueued)))[-1]
            assert isinstance(queued, MessageQueued)
            assert (queued.id, queued.parts, queued.delivery) == ("steer", (Text("and quick"),), "steer")
            model.gate.open.set()
            assert (await turn.result()).steps == 2


@pytest.mark.trio
async def test_steer_is_durable_while_hooks_run() -> None:
    """Q2: while a hook blocks, a steer is stored and told; when the hook is done it is in the request."""
    hook = Gated()
    async with engine_of("done", middleware=[hook]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await hook.gate.reached.wait()
            await session.steer("and quick", id="steer")
            assert [item.id for item in (await stored(engine.store)).steers] == ["steer"]
            await until_event(session, MessageQueued)
            hook.gate.open.set()
            await turn.result()
        assert said(requests_of(engine)[0]) == ["go", "and quick"]


@pytest.mark.trio
async def test_changes_are_told_in_the_order_they_were_made() -> None:
    """Q3, Q4, Q5: changes of waiting messages act and are told at once, in order; live and replayed are equal."""
    model = GatedModel("x")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            async with session.events() as live:
                await session.send("first", id="one")
                await session.send("second", id="two")
                await session.edit_queued("one", "first, mended")
                await session.remove_queued("two")
                seen: list[Any] = []
                while not isinstance(seen[-1] if seen else None, MessageRemoved):
                    seen.append(await anext(live))
            seen = [event for event in seen if event.number is not None]
            assert names(seen)[-4:] == ["MessageQueued", "MessageQueued", "MessageEdited", "MessageRemoved"]
            assert [event.number for event in seen] == list(range(1, len(seen) + 1))
            assert await events_of(session, until=lambda e: isinstance(e, MessageRemoved)) == seen
            assert len(model.requests) == 1
            model.gate.open.set()
            await turn.result()
        await events_of(session, until=over("t2"))
        assert said(model.requests[1]) == ["go", "first, mended"]


@pytest.mark.trio
async def test_what_cannot_be_done_now_is_refused_at_once() -> None:
    """Q6, Q7, Q9: what the session cannot accept is refused at once with its code, and leaves the stored state as it is."""
    model = GatedModel("x")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go", id="go"):
            await model.gate.reached.wait()
            await session.send("later", id="later")
            before = await engine.store.load("s")
            refused: list[tuple[Any, str]] = [
                (lambda: session.edit_queued("nobody", "x"), "gone"),
                (lambda: session.remove_queued("go"), "gone"),
                (lambda: session.approve("m9.9"), "stale"),
                (lambda: session.revoke("g1"), "gone"),
                (lambda: session.send("otherwise", id="later"), "conflict"),
            ]
            for act, code in refused:
                with pytest.raises(Refused) as caught:
                    await act()
                assert caught.value.code == code
            with pytest.raises(InvalidInput):
                await session.edit_queued("later", " ")
            assert not await session.interrupt(turn="t9")
            assert (await session.send("later", id="later")).duplicate
            assert await engine.store.load("s") == before
            model.gate.open.set()


@pytest.mark.trio
async def test_edit_and_remove_of_steers() -> None:
    """Q8: any steer that was not taken can be changed or taken back by its id, its place kept; a taken one cannot."""
    model = GatedModel("x")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            for word in ("one", "two", "three"):
                await session.steer(word, id=word)
            await session.edit_queued("one", "first")
            await session.remove_queued("two")
            model.gate.open.set()
            await turn.result()
        assert said(model.requests[1]) == ["go", "first", "three"]
        with pytest.raises(Refused, match="does not wait"):
            await session.edit_queued("three", "too late")
        edited = [event for event in await events_of(session, until=over()) if isinstance(event, MessageEdited)]
        assert [event.id for event in edited] == ["one"]


@pytest.mark.trio
async def test_a_queued_message_starts_once() -> None:
    """Q10: a message that waited starts one turn when the running one is over."""
    model = GatedModel("x")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await session.send("next")
            model.gate.open.set()
            await turn.result()
        log = await events_of(session, until=over("t2"))
    assert [event.turn for event in log if isinstance(event, TurnEnded)] == ["t1", "t2"]
    assert [said(request) for request in model.requests] == [["go"], ["go", "next"]]


@pytest.mark.trio
async def test_steer_during_review_makes_one_more_step() -> None:
    """Q12: a steer that comes while a final reply is reviewed is stored behind it and makes one more step."""
    hook = Gated(after=True)
    async with engine_of("answer", "better", middleware=[hook]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await hook.gate.reached.wait()
            await session.steer("shorter")
            hook.gate.open.set()
            assert (await turn.result()).text == "better"
        assert requests_of(engine)[1].messages[-1].text == "shorter"
        log = names(await events_of(session, until=over()))
        assert log.index("Replied") < log.index("MessageQueued") < log.index("MessageTaken")


async def bother(session: Session, tries: list[int]) -> None:
    """Send without end what is refused."""
    while True:
        try:
            await session.edit_queued("nobody", "x")
        except (Refused, StoreError):
            tries.append(1)


@pytest.mark.trio
async def test_a_flood_of_refused_input_starves_nothing() -> None:
    """Q13: under an endless flood of submissions that are refused, replies and tools are still recorded."""

    @tool
    async def noop() -> str:
        return "ok"

    tries: list[int] = []
    async with engine_of(*[call("noop")] * 20, "done", tools=[noop]) as engine, trio.open_nursery() as nursery:
        session = engine.session("s")
        for _ in range(100):
            nursery.start_soon(bother, session, tries)
        with trio.fail_after(20):
            assert (await session.run("go")).steps == 21
        assert len(tries) > 200
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_flood_of_steers_makes_few_steps() -> None:
    """Q14: steers that are ready together join together; those beyond the cut-off make one more step, not one each."""
    model = GatedModel("x")
    async with Engine(Agent(model), MemoryStore()) as engine, trio.open_nursery() as nursery:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            for number in range(200):
                nursery.start_soon(session.steer, f"steer {number}")
            model.gate.open.set()
            result = await turn.result()
        assert result.steps <= 6
        texts = said(model.requests[-1])
        assert len(texts) == len(set(texts)) == 201


@pytest.mark.trio
async def test_a_failed_turn_keeps_the_queue() -> None:
    """Q15: a message behind a turn that failed stays queued and held until the turn was gone on with."""
    hook = Gated()
    async with engine_of(ModelError("broken"), "one", "two", middleware=[hook]) as engine:
        session = engine.session("s")
        gate = hook.gate
        async with session.turn("go") as turn:
            await gate.reached.wait()
            await session.send("queued")
            gate.open.set()
            hook.gate = Gate()
            assert (await turn.result(check=False)).outcome == "failed"
        hook.gate.open.set()
        now = await stored(engine.store)
        assert (now.held, len(now.queue)) == (True, 1)
        async with session.resume() as turn:
            assert (await turn.result()).text == "one"
        await events_of(session, until=over("t3"))
        assert said(requests_of(engine)[-1]) == ["go", "queued"]


@pytest.mark.trio
async def test_steers_of_a_turn_that_fails_while_it_streams() -> None:
    """Q15: a steer that came while the last attempt streamed is not lost when that fails: it starts the next turn."""

    class Failing(GatedModel):
        async def respond(self, request: Any, on_delta: Any) -> Any:
            reply = await super().respond(request, on_delta)
            if len(self.requests) == 1:
                raise ModelError("broken")
            return reply

    model = Failing("x")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await session.steer("wait", id="wait")
            await session.edit_queued("wait", "wait a moment")
            model.gate.open.set()
            assert (await turn.result(check=False)).outcome == "failed"
        now = await stored(engine.store)
        assert [item.id for item in now.queue] == ["wait"]
        async with session.resume() as turn:
            await turn.result()
        await events_of(session, until=over("t3"))
        assert said(model.requests[-1])[-1] == "wait a moment"


@pytest.mark.trio
async def test_another_session_says_something() -> None:
    """Q16: whoever speaks through a client, an idle session starts a turn and a running one is steered."""
    model = GatedModel("x")
    async with Engine(Agent(model), MemoryStore()) as engine, Client(engine.store) as client:
        peer = client.session("s")
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            assert (await peer.steer("from elsewhere")).turn == "t1"
            model.gate.open.set()
            assert (await turn.result()).steps == 2
            assert (await peer.send("again")).turn == "t2"
        log = await events_of(session, until=over("t2"))
        assert said(model.requests[-1]) == ["go", "from elsewhere", "again"]
        assert await events_of(session, until=over("t2")) == log


@pytest.mark.trio
async def test_admission_outlives_the_process() -> None:
    """Q17: after a restart the same id gives the first receipt and runs nothing; a refused id can be used again."""
    store = MemoryStore()
    async with engine_of("one", store=store) as engine:
        session = engine.session("s")
        await session.send("go", id="go")
        await events_of(session, until=over())
        with pytest.raises(Refused):
            await session.approve("m1.0", id="free")
    async with engine_of("two", store=store) as engine:
        session = engine.session("s")
        receipt = await session.send("go", id="go")
        assert (receipt.duplicate, receipt.turn) == (True, "t1")
        assert not requests_of(engine)
        assert not (await session.send("and", id="free")).duplicate


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failed_start_keeps_the_queue(when: Any, autojump_clock: trio.testing.MockClock) -> None:
    """Q17: whichever commit fails while turns start from the queue, each accepted message is said exactly once."""
    for at in range(1, 9):
        store = MemoryStore()
        model = ScriptedModel(lambda request: request.messages[-1].text.upper())
        accepted: list[str] = []
        async with Engine(Agent(model), FaultyStore(store, at, when)) as engine:
            for word in ("one", "two", "three"):
                try:
                    await engine.session("s").send(word, id=word)
                except StoreError:
                    continue
                accepted.append(word)
            await trio.sleep(5)
        async with Engine(Agent(model), store) as engine:
            session = engine.session("s")
            for word in ("one", "two", "three"):
                await session.send(word, id=word)
            await trio.sleep(5)
            texts = [message.text for message in await session.messages() if message.role == "user"]
        assert sorted(texts) == ["one", "three", "two"], at
        assert len(accepted) >= 2
        assert [event.outcome for event in await log_of(store) if isinstance(event, TurnEnded)] == ["completed"] * 3
