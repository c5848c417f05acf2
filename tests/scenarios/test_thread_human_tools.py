"""Scenarios H1 to H15: calls whose result somebody outside gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, engine_of, requests_of, result_texts, until_event
from tests.scenarios.common import log_of, names, roles
from tests.scenarios.threads import Desk, lines, status, waiting
from turnstate import (
    CallSettled,
    InvalidInput,
    PreliminaryResult,
    Refused,
    Reply,
    ResultRequested,
    SQLiteStore,
    tool,
)
from turnstate.states import ToolCall
from turnstate.testing import call


@pytest.mark.trio
async def test_a_person_is_waited_for() -> None:
    """H1: a call that a person does is asked for with its arguments, and nothing moves until its result is there."""
    desk = Desk()
    async with engine_of(call("ask", question="why?"), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        assert result.outcome == "waiting"
        asked = (await until_event(session, ResultRequested)).call
        assert (asked.tool, asked.arguments, asked.wants) == ("ask", {"question": "why?"}, "result")
        view = await session.thread()
        assert status(view) == "requires-action/tool-calls"
        assert [found.id for found in view.waiting] == [asked.id]
        shown = view.messages[-1].calls[asked.id]
        assert (shown.state, [found.id for found in shown.asks]) == ("input-available", [asked.id])
        with pytest.raises(InvalidInput, match="waits for a result"):
            await session.approve(asked)


@pytest.mark.trio
async def test_a_result_makes_the_turn_go_on() -> None:
    """H3, H4: the next request has the result, and the thread holds call, result and answer in this order."""
    desk = Desk()
    async with engine_of(call("ask"), "so it is", tools=desk.tools) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.provide(asked, {"answer": 42}, by="ann")
            await turn.result()
        assert result_texts(requests_of(engine)[1]) == ['{"answer": 42}']
        assert roles(await session.messages()) == [
            ("user", "go"),
            ("assistant", ""),
            ("tool", '{"answer": 42}'),
            ("assistant", "so it is"),
        ]
        view = await session.thread()
        assert [shown.display and shown.display.status for shown in view.messages] == [
            None,
            "complete",
            None,
            "complete",
        ]
        settled = await until_event(session, CallSettled)
        assert (settled.call.decision.verdict, settled.call.decision.by) == ("provide", "ann")


@pytest.mark.trio
@pytest.mark.parametrize(
    ("value", "text"), [(False, "false"), (0, "0"), ("", ""), (None, "null"), ([], "[]"), ({}, "{}"), (0.0, "0.0")]
)
async def test_any_value_is_a_result(value: Any, text: str) -> None:
    """H5: false, 0, an empty text and null are results like any: the turn goes on."""
    desk = Desk()
    async with engine_of(call("ask"), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.provide(asked, value)
            result = await turn.result()
        assert [(found.status, found.settled) for found in result.calls] == [("ok", True)]
        assert result_texts(requests_of(engine)[1]) == [text]
        shown = (await session.thread()).messages[1]
        assert [found.state for found in shown.calls.values()] == ["output-available"]


@pytest.mark.trio
async def test_falsy_metadata_is_kept(tmp_path: Path) -> None:
    """H6: false, 0 and an empty text are kept as metadata and as settings, also over a restart; only None takes
    away."""
    async with engine_of("done", store=SQLiteStore(tmp_path / "turns.db")) as engine:
        session = engine.session("s")
        async with session.turn("go", settings={"temperature": 0, "stop": "", "think": False}) as turn:
            await turn.result()
        assert requests_of(engine)[0].settings == {"temperature": 0, "stop": "", "think": False}
        question, _ = await session.messages()
        await session.annotate(question, {"rating": 0, "seen": False, "note": "", "gone": 1})
        await session.annotate(question, {"gone": None})
    async with engine_of(store=SQLiteStore(tmp_path / "turns.db")) as engine:
        question, _ = await engine.session("s").messages()
        assert question.metadata == {"rating": 0, "seen": False, "note": ""}


@pytest.mark.trio
async def test_the_model_may_be_shown_something_else(tmp_path: Path) -> None:
    """H7: what the model reads of a result may be another text; value and artifact are kept beside it, over a
    restart."""
    desk = Desk()
    async with engine_of(call("ask"), "done", tools=desk.tools, store=SQLiteStore(tmp_path / "turns.db")) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.provide(asked, {"rows": [1, 2]}, text="two rows", artifact={"chart": "bars"})
            await turn.result()
        assert result_texts(requests_of(engine)[1]) == ["two rows"]
        assert "bars" not in repr(requests_of(engine)[1].messages[-1].text)
    async with engine_of(store=SQLiteStore(tmp_path / "turns.db")) as engine:
        (result,) = (await engine.session("s").messages())[2].results
        assert (result.text, result.value, result.artifact) == ("two rows", {"rows": [1, 2]}, {"chart": "bars"})


@pytest.mark.trio
async def test_the_first_result_stands() -> None:
    """H8: a later result is refused where it is another one, also one without the artifact, and does nothing where it
    is the same."""
    desk = Desk()
    async with engine_of([call("ask"), call("ask")], tools=desk.tools) as engine:
        session = engine.session("s")
        asked, _ = (await session.run("go", check=False)).waiting
        await session.provide(asked, 1, artifact="picture")
        before = (await session.info()).last_event
        for other in (session.provide(asked, 1), session.provide(asked, 2, artifact="picture"), session.deny(asked)):
            with pytest.raises(Refused) as refused:
                await other
            assert refused.value.code == "conflict"
        await session.provide(asked, 1, artifact="picture")
        assert (await session.info()).last_event == before
        (result,) = (await session.messages())[-1].results
        assert (result.text, result.artifact) == ("1", "picture")


@pytest.mark.trio
async def test_a_result_for_what_was_followed() -> None:
    """H9: once another message was sent in its place, the call has its result, and one from outside changes nothing."""
    desk = Desk()
    async with engine_of(call("ask"), "else it is", tools=desk.tools) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        async with session.turn("something else", id="else") as turn:
            await session.remove_queued("else")
            with pytest.raises(Refused):
                await turn.result()
        assert [found.id for found in await waiting(session)] == [asked.id]
        await session.send("something else", delivery="supersede")
        await trio.testing.wait_all_tasks_blocked()
        before = await session.messages()
        with pytest.raises(Refused) as refused:
            await session.provide(asked, 1)
        assert refused.value.code == "stale"
        assert await session.messages() == before
        assert lines(await session.thread()) == [
            "user: go",
            "assistant: ",
            "tool: execution interrupted; result unknown: superseded by a new message",
            "user: something else",
            "assistant: else it is",
        ]


@pytest.mark.trio
async def test_a_result_while_a_sibling_runs() -> None:
    """H10: a result that comes while another call still runs is stored at once; the next request has both in call
    order."""
    gate = Gate()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    desk = Desk()
    async with engine_of([call("slow"), call("ask")], "done", tools=[slow, *desk.tools]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await gate.reached.wait()
            (asked,) = await waiting(session)
            await session.provide(asked, "quick")
            assert (await session.messages())[-1].text == "quick"
            assert len(requests_of(engine)) == 1
            gate.open.set()
            await turn.result()
        assert result_texts(requests_of(engine)[1]) == ["slow", "quick"]
        assert [message.text for message in await session.messages()][2:4] == ["slow", "quick"]


@pytest.mark.trio
async def test_a_chain_of_results() -> None:
    """H11: several results from outside, one after the other, are one turn, and each request has all of them so far."""
    desk = Desk()
    async with engine_of(*[call("ask", question=str(at)) for at in range(3)], "done", tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        for at in range(3):
            async with session.resume() as turn:
                await session.provide(result.waiting[0], f"answer {at}")
                result = await turn.result(check=False)
        assert (result.outcome, result.turn, result.steps) == ("completed", "t1", 4)
        assert [len(result_texts(request)) for request in requests_of(engine)] == [0, 1, 2, 3]


@pytest.mark.trio
async def test_ids_of_the_provider_may_repeat() -> None:
    """H12, H13, P11: calls to which the provider gives the same id are calls of their own, in one reply and in later
    ones: each gets its own result, in its place."""
    desk = Desk()

    def twice(*questions: str) -> Reply:
        return Reply(
            tuple(ToolCall("", "ask", f'{{"question": "{question}"}}', "c1") for question in questions), "tool-calls"
        )

    async with engine_of(twice("a", "b"), twice("c"), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        first, second = result.waiting
        async with session.resume() as turn:
            await session.provide(second, "B")
            await session.provide(first, "A")
            (third,) = (await turn.result(check=False)).waiting
            await session.provide(third, "C")
            result = await turn.result()
        assert len({first.id, second.id, third.id}) == 3
        assert result_texts(requests_of(engine)[2]) == ["A", "B", "C"]
        answers = {part.id: part.arguments for message in result.messages for part in message.calls}
        texts = {found.call: found.text for message in result.messages for found in message.results}
        assert [(answers[name], texts[name]) for name in answers] == [
            ('{"question": "a"}', "A"),
            ('{"question": "b"}', "B"),
            ('{"question": "c"}', "C"),
        ]


@pytest.mark.trio
async def test_what_there_is_so_far_settles_nothing() -> None:
    """H15, K11: a preliminary result is told and stored as an event; the call waits on, no request is made, the model
    never reads it; the result after it settles the call."""
    desk = Desk()
    async with engine_of(call("ask"), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        for value in ("half", None):
            await session.provide(asked, value, preliminary=True)
            assert status(await session.thread()) == "requires-action/tool-calls"
            assert [found.id for found in await waiting(session)] == [asked.id]
        assert len(requests_of(engine)) == 1
        async with session.resume() as turn:
            await session.provide(asked, "whole")
            await turn.result()
            with pytest.raises(Refused):
                await session.provide(asked, "more", preliminary=True)
        assert result_texts(requests_of(engine)[1]) == ["whole"]
    log = await log_of(engine.store)
    assert [event.value for event in log if isinstance(event, PreliminaryResult)] == ["half", None]
    assert names(log).count("CallSettled") == 1
