"""Scenarios R1 to R11 and M1 to M12: what is told, and the attempts of a step."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import GatedModel, StrictModel, engine_of, events_of, requests_of, result_texts, said
from tests.scenarios.common import log_of, names, over
from turnstate import (
    Agent,
    CallStarted,
    Engine,
    Limits,
    MemoryStore,
    Model,
    ModelError,
    ModelRequest,
    Refused,
    Replied,
    Reply,
    Retrying,
    StepEnded,
    StepStarted,
    Store,
    StoreError,
    TextDelta,
    TurnEnded,
    TurnFailed,
    Usage,
    tool,
)
from turnstate.models.base import OnDelta
from turnstate.states import Text
from turnstate.stores.base import StoredCommit
from turnstate.testing import FaultyStore, ScriptedModel, call

Clock = trio.testing.MockClock


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


@dataclasses.dataclass
class Heard:
    """What a subscriber heard, and the highest number that was durable when it did."""

    events: list[Any] = dataclasses.field(default_factory=list[Any])
    durable: int = 0


class Slow(FaultyStore):
    """Takes its time to write, and says what is durable."""

    def __init__(self, heard: Heard, store: Store, at: int | None = None) -> None:
        super().__init__(store, at)
        self.heard = heard

    async def commit(self, commit: StoredCommit) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        await super().commit(commit)
        if commit.row is not None:
            self.heard.durable = commit.row.last


async def listen(engine: Engine[None], heard: Heard) -> None:
    """Hold each event that is told against what is durable."""
    async with engine.session("s").turn("go") as turn:
        async for event in turn:
            if event.number is not None:
                assert event.number <= heard.durable
            heard.events.append(event)


@pytest.mark.trio
async def test_persisted_before_delivered(autojump_clock: Clock) -> None:
    """R4: with a store that takes seconds, no event is told before the commit that holds it is written."""
    heard = Heard()
    async with engine_of(call("noop"), "done", tools=[noop], store=Slow(heard, MemoryStore())) as engine:
        await listen(engine, heard)
    assert names(heard.events)[-1] == "TurnEnded"


@pytest.mark.trio
async def test_nothing_is_delivered_of_a_failed_commit(autojump_clock: Clock) -> None:
    """R5, R7: when a commit fails nothing of it is told, and everybody who waits is told why."""
    heard, store = Heard(), MemoryStore()
    async with engine_of(call("noop"), "done", tools=[noop], store=Slow(heard, store, 2)) as engine:
        with pytest.raises(StoreError, match="commit 2"):
            await listen(engine, heard)
    stored = await log_of(store)
    assert [event for event in heard.events if event.number is not None] == stored
    assert "CallStarted" not in names(stored)


@pytest.mark.trio
async def test_a_receipt_comes_after_all_before_it(autojump_clock: Clock) -> None:
    """R6: who has a receipt knows that everything that was accepted earlier is durable as well."""
    heard, store = Heard(), MemoryStore()
    async with engine_of("one", store=Slow(heard, store)) as engine, trio.open_nursery() as nursery:
        session = engine.session("s")
        nursery.start_soon(session.send, "first")
        await trio.sleep(0.1)
        nursery.start_soon(session.send, "second")
        await trio.sleep(0.1)
        await session.send("third")
        log = await events_of(session, until=lambda event: getattr(event, "parts", None) == (Text("third"),))
        assert names(log).count("MessageQueued") == 2
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_burst_beyond_the_capacity() -> None:
    """Q8, R2, R8: a burst is accepted up to the capacity, the rest is refused as full, and nothing accepted is lost."""
    model = GatedModel("x")
    async with Engine(Agent(model, limits=Limits(queue=20)), MemoryStore()) as engine:
        session = engine.session("s")
        accepted: list[str] = []
        refused: list[str] = []

        async def send(text: str) -> None:
            try:
                await session.steer(text)
                accepted.append(text)
            except Refused as error:
                refused.append(error.code)

        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            async with trio.open_nursery() as nursery:
                for number in range(50):
                    nursery.start_soon(send, f"steer {number}")
            assert (len(accepted), refused) == (20, ["full"] * 30)
            model.gate.open.set()
            await turn.result()
        assert sorted(said(model.requests[-1])) == sorted(["go", *accepted])


class Talkative(Model):
    """Goes on talking after its reply, also into the next one."""

    name = "talkative"

    def __init__(self) -> None:
        self.earlier: list[OnDelta] = []

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        for late in self.earlier:
            late("text", "too late", 0)
        self.earlier.append(on_delta)
        on_delta("text", "said", 0)
        return Reply((Text("said"),), usage=Usage(input=3, output=4), model="the-model")


@pytest.mark.trio
async def test_text_after_the_reply_is_not_told() -> None:
    """R9: pieces of a reply that is over are told to nobody, also not as part of the next one, and break nothing."""
    model = Talkative()
    async with Engine(Agent(model), MemoryStore()) as engine:
        for _ in range(3):
            async with engine.session("s").turn("go") as turn:
                text = "".join([event.text async for event in turn if isinstance(event, TextDelta)])
                await turn.result()
            model.earlier[0]("text", "too late", 0)
            assert text == "said"


@pytest.mark.trio
async def test_a_step_is_told_in_full() -> None:
    """M1: start, reply and end of a step name the same attempt, with its usage, stop, model and times."""
    async with Engine(Agent(Talkative()), MemoryStore()) as engine:
        session = engine.session("s")
        result = await session.run("go")
        log = await events_of(session, until=over())
    started, ended = (next(event for event in log if isinstance(event, kind)) for kind in (StepStarted, StepEnded))
    replied = next(event for event in log if isinstance(event, Replied))
    assert isinstance(started, StepStarted)
    assert isinstance(ended, StepEnded)
    assert (started.attempt, started.step, ended.attempt, ended.step) == ("t1.1.1", 1, "t1.1.1", 1)
    assert (ended.outcome, ended.stop, ended.usage) == ("completed", "stop", Usage(input=3, output=4))
    assert (replied.message.model, replied.message.usage) == ("the-model", Usage(input=3, output=4))
    assert replied.message.timing is not None
    assert result.usage == Usage(input=3, output=4)


class Breaking(StrictModel):
    """Shows text and a call, then breaks, the first time."""

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        if not self.requests:
            self.requests.append(request)
            on_delta("text", "half a ", 0)
            on_delta("call", "noop", 0)
            on_delta("arguments", "{}", 0)
            raise ModelError("cut", kind="connection", retryable=True)
        return await super().respond(request, on_delta)


@pytest.mark.trio
async def test_a_broken_stream_is_a_new_attempt(autojump_clock: Clock) -> None:
    """M2, T14: a broken stream makes a new attempt of the same step with the same input; nothing of it is kept or run."""
    model = Breaking(["done"])
    async with Engine(Agent(model, tools=[noop]), MemoryStore()) as engine:
        session = engine.session("s")
        assert (await session.run("go")).text == "done"
        log = await events_of(session, until=over())
    started = [event for event in log if isinstance(event, StepStarted)]
    assert [(event.step, event.attempt) for event in started] == [(1, "t1.1.1"), (1, "t1.1.2")]
    assert model.requests[0].messages == model.requests[1].messages
    assert not [event for event in log if isinstance(event, CallStarted)]
    assert [event.outcome for event in log if isinstance(event, StepEnded)] == ["retrying", "completed"]


@pytest.mark.trio
async def test_exhaustion_names_the_error(autojump_clock: Clock) -> None:
    """M4, M6: after the last attempt the turn fails; kind, status and what the server asked for stay in the record."""
    busy = ModelError("busy", kind="overloaded", retryable=True, status=529, retry_after=2.0)
    async with engine_of(*[busy] * 3, limits=Limits(attempts=3)) as engine:
        session = engine.session("s")
        with pytest.raises(TurnFailed) as caught:
            await session.run("go")
        assert caught.value.__cause__ is busy
        log = await events_of(session, until=over())
    assert [event.outcome for event in log if isinstance(event, StepEnded)] == ["retrying", "retrying", "failed"]
    assert len([event for event in log if isinstance(event, Retrying)]) == 2
    error = log[-1].error if isinstance(log[-1], TurnEnded) else None
    assert error is not None
    assert (error.kind, error.message, error.status, error.retry_after) == ("overloaded", "busy", 529, 2.0)


@pytest.mark.trio
async def test_an_interrupted_request_has_one_end() -> None:
    """M7: an interrupted request tells exactly one end of its step, then the turn's."""
    model = GatedModel("x")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            assert await session.interrupt()
            await turn.result(check=False)
        log = await events_of(session, until=over())
    assert [event.outcome for event in log if isinstance(event, StepEnded)] == ["interrupted"]
    assert names(log)[-3:] == ["StepEnded", "Replied", "TurnEnded"]


@pytest.mark.trio
async def test_what_is_no_tool_is_neither_shown_nor_run() -> None:
    """M12: an agent without a tool neither tells the model of it nor runs it when the model calls it all the same."""
    async with engine_of(call("draw"), "done", tools=[noop]) as engine:
        await engine.session("s").run("draw me")
        requests = requests_of(engine)
    assert [definition.name for definition in requests[0].tools] == ["noop"]
    assert result_texts(requests[1]) == ["unknown tool draw; available: noop"]


@pytest.mark.trio
async def test_one_model_and_another(autojump_clock: Clock) -> None:
    """C9, M8: the model is the agent's and is not stored: another one goes on with the session, counted by its name."""
    store = MemoryStore()
    async with Engine(Agent(ScriptedModel(["one"], name="first")), store) as engine:
        await engine.session("s").run("go")
    async with Engine(Agent(ScriptedModel(["two"], name="second")), store) as engine:
        session = engine.session("s")
        assert (await session.run("on")).text == "two"
        assert [message.model for message in await session.messages() if message.role == "assistant"] == [
            "first",
            "second",
        ]
