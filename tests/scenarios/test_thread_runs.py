"""Scenarios U1 to U8: what a turn does to the thread while it runs, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from tests.engine.helpers import Gate, GatedModel, engine_of, requests_of, result_texts
from tests.scenarios.threads import Desk, ids, lines, status, waiting
from turnstate import (
    Agent,
    Engine,
    Limits,
    MemoryStore,
    Middleware,
    ModelError,
    ModelRequest,
    Refused,
    Reply,
    StepContext,
    TextDelta,
    TurnContext,
    TurnEnded,
    TurnFailed,
    tool,
)
from turnstate.models.base import OnDelta
from turnstate.testing import call


@pytest.mark.trio
async def test_a_message_and_its_answer() -> None:
    """U1: a turn adds the person's message and below it the model's, both complete, one turn's, with ids of their
    own."""
    async with engine_of("hello") as engine:
        session = engine.session("s")
        await session.run("hi")
        view = await session.thread()
        assert view.last_event == (await session.info()).last_event
    assert lines(view) == ["user: hi", "assistant: hello"]
    question, answer = (shown.message for shown in view.messages)
    assert (question.parent, answer.parent) == (None, question.id)
    assert question.turn == answer.turn == "t1"
    assert view.messages[0].display is None
    assert status(view) == "complete/stop"


@pytest.mark.trio
async def test_pieces_add_up_to_the_message() -> None:
    """U2: a reply is told piece by piece, and the pieces are its text."""
    model = GatedModel("one ", "two ", "three")
    model.gate.open.set()
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            pieces = [event.text async for event in turn if isinstance(event, TextDelta)]
        assert "".join(pieces) == (await session.messages())[-1].text == "one two three"


class Breaking(GatedModel):
    """A model that breaks after its pieces."""

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        self.gate.open.set()
        await super().respond(request, on_delta)
        raise ModelError("no such key", kind="authentication", status=401)


@pytest.mark.trio
async def test_a_model_that_fails() -> None:
    """U3: when the model fails, the run raises, and the message shows what there was of it and the error."""
    async with Engine(Agent(Breaking("I was ", "about")), MemoryStore()) as engine:
        session = engine.session("s")
        with pytest.raises(TurnFailed, match="no such key"):
            await session.run("go")
        view = await session.thread()
    assert lines(view) == ["user: go", "assistant: I was about"]
    display = view.messages[-1].display
    assert display is not None
    assert (display.status, display.reason) == ("incomplete", "error")
    assert display.error is not None
    assert (display.error.kind, display.error.message) == ("authentication", "no such key")


@pytest.mark.trio
async def test_the_limit_of_steps_after_a_result() -> None:
    """U4: at the limit of steps a result from outside is stored and no further request is made; gone on with, the turn
    that follows shows the model the result."""
    desk = Desk()
    async with engine_of(call("ask"), "thanks", tools=desk.tools, limits=Limits(steps=1)) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.provide(asked, "42")
            assert (await turn.result(check=False)).outcome == "limit"
        assert len(requests_of(engine)) == 1
        assert status(await session.thread()) == "incomplete/tool-calls"
        assert (await session.messages())[-1].text == "42"
        async with session.resume() as turn:
            assert (await turn.result()).text == "thanks"
        assert result_texts(requests_of(engine)[1]) == ["42"]


@pytest.mark.trio
async def test_nothing_moves_under_a_running_turn() -> None:
    """U6: while a model reads this history, switching, editing, asking again and deleting are refused and change
    nothing; the turn can still be interrupted."""
    model = GatedModel("thinking")
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            before = await session.thread()
            (question,) = await session.messages()
            changes: list[Any] = [
                session.switch(question),
                session.edit(question, "else"),
                session.regenerate(),
                session.delete_message(question),
            ]
            for change in changes:
                with pytest.raises(Refused) as refused:
                    await change
                assert refused.value.code == "busy"
            assert await session.thread() == before
            assert await session.interrupt()
            assert (await turn.result(check=False)).outcome == "interrupted"
        assert lines(await session.thread()) == ["user: go", "assistant: thinking"]
        assert status(await session.thread()) == "incomplete/cancelled"


class Stations(Middleware[Any]):
    """Stops at each hook."""

    def __init__(self) -> None:
        self.gates: list[Gate] = []

    async def stop(self) -> None:
        gate = Gate()
        self.gates.append(gate)
        await gate.wait()

    async def before_model(self, ctx: StepContext[Any]) -> None:
        await self.stop()

    async def after_model(self, ctx: StepContext[Any]) -> None:
        await self.stop()

    async def turn_ended(self, ctx: TurnContext[Any]) -> None:
        await self.stop()


@pytest.mark.trio
async def test_it_is_running_until_it_has_ended() -> None:
    """U7: wherever a turn of several steps stands it is unfinished, and running as far as a message shows; when its end
    is told it is not."""
    stations = Stations()

    @tool
    async def look() -> str:
        await stations.stop()
        return "seen"

    async with engine_of(call("look"), "done", tools=[look], middleware=[stations]) as engine:
        session = engine.session("s")
        seen: list[tuple[bool, str]] = []
        async with session.turn("go") as turn:
            for number in range(6):
                await trio.testing.wait_all_tasks_blocked()
                view = await session.thread()
                shown = [found.display.status for found in view.messages if found.display is not None]
                seen.append(((await session.info()).unfinished, shown[-1] if shown else ""))
                stations.gates[number].open.set()
            async for event in turn:
                if isinstance(event, TurnEnded):
                    assert not (await session.info()).unfinished
        places = ["", "running", "running", "running", "running", "complete"]
        assert seen == [(True, place) for place in places]


@pytest.mark.trio
async def test_what_replaces_a_pause_and_what_does_not() -> None:
    """U8: a mark on a paused message leaves it to be answered; another version of its question ends it."""
    desk = Desk()
    async with engine_of(call("pay"), call("pay"), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        question, paused = await session.messages()
        await session.annotate(paused, {"feedback": "positive"})
        assert [found.id for found in await waiting(session)] == [asked.id]
        assert (await session.messages())[-1].metadata == {"feedback": "positive"}
        result = await session.run("go on", edits=question, check=False)
        (again,) = result.waiting
        assert again.id != asked.id
        with pytest.raises(Refused):
            await session.approve(asked)
        await session.switch(question)
        assert status(await session.thread()) == "incomplete/cancelled"
        assert ids(await session.messages())[:2] == [question.id, paused.id]
        assert await waiting(session) == []
    assert desk.did == []
