"""Scenarios N1 to N8: when a turn goes on after a reply, and when it waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.helpers import engine_of, requests_of, result_texts
from tests.scenarios.threads import Desk, status, waiting
from turnstate import Refused, Reply, Text
from turnstate.states import ToolCall
from turnstate.testing import call


@pytest.mark.trio
async def test_a_final_reply_is_not_gone_on_with() -> None:
    """N1: once a reply was final no answer makes the turn go on: each is refused, and no request is made."""
    desk = Desk()
    async with engine_of(call("ask"), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.provide(asked, 1)
            assert (await turn.result()).text == "done"
        for again in (session.provide(asked, 2), session.deny(asked), session.approve(asked)):
            with pytest.raises(Refused) as refused:
                await again
            assert refused.value.code == "stale"
        assert len(requests_of(engine)) == 2
        assert status(await session.thread()) == "complete/stop"


@pytest.mark.trio
@pytest.mark.parametrize("stop", ["length", "content-filter", "refusal"])
async def test_a_reply_that_was_cut_is_not_gone_on_with(stop: Any) -> None:
    """N2, O2: calls of a reply that did not end for them neither run nor wait, and the turn makes no other request."""
    desk = Desk()
    calls = [ToolCall("", name, "{}") for name in ("look", "pay", "ask")]
    async with engine_of(Reply((Text("well"), *calls), stop), tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        assert (result.outcome, result.stop) == ("completed", stop)
        assert [found.status for found in result.calls] == ["not-run"] * 3
        assert desk.did == []
        assert len(requests_of(engine)) == 1
        shown = "length" if stop == "length" else "content-filter"
        assert status(await session.thread()) == f"incomplete/{shown}"


@pytest.mark.trio
async def test_it_goes_on_when_nothing_is_missing() -> None:
    """N3: with one of two results missing the turn waits, with both it goes on."""
    desk = Desk()
    async with engine_of([call("ask", question="a"), call("ask", question="b")], "done", tools=desk.tools) as engine:
        session = engine.session("s")
        first, second = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.provide(second, "B")
            assert [found.id for found in (await turn.result(check=False)).waiting] == [first.id]
            assert len(requests_of(engine)) == 1
            await session.provide(first, "A")
            assert (await turn.result()).text == "done"
        assert result_texts(requests_of(engine)[1]) == ["A", "B"]


@pytest.mark.trio
async def test_only_what_a_person_does_is_waited_for() -> None:
    """N4, H2: calls of tools that run here, or that are unknown, hold nobody up; one that a person does holds the
    turn."""
    desk = Desk()
    script = [[call("look"), call("nothing_like_this")], [call("look"), call("ask")], "done"]
    async with engine_of(*script, tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        assert [found.tool for found in result.waiting] == ["ask"]
        assert [found.status for found in result.calls] == ["ok", "error", "ok", "asked"]
        assert len(requests_of(engine)) == 2


@pytest.mark.trio
async def test_text_beside_calls_does_not_matter() -> None:
    """N5: a reply of text and a call goes on when the call is settled; one of text alone ends the turn."""
    desk = Desk()
    async with engine_of(["I will look", call("look")], "seen", tools=desk.tools) as engine:
        result = await engine.session("s").run("go")
        assert (result.text, result.steps) == ("seen", 2)


@pytest.mark.trio
async def test_a_decision_is_waited_for_and_then_its_result() -> None:
    """N6, N7: an open approval holds the turn although its sibling has its result; once approved, the call runs, and
    the turn goes on with what it gave."""
    desk = Desk()
    async with engine_of([call("look"), call("pay")], "done", tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        assert [(found.tool, found.status) for found in result.calls] == [("look", "ok"), ("pay", "asked")]
        assert status(await session.thread()) == "requires-action/interrupt"
        async with session.resume() as turn:
            await session.approve(*result.waiting)
            await turn.result()
        assert result_texts(requests_of(engine)[1]) == ["saw", "paid 1"]
        assert desk.did == ["look", "pay 1"]


@pytest.mark.trio
async def test_what_was_denied_needs_no_result() -> None:
    """N8: a call that a person does, but first must be allowed, is asked about once more if it is allowed, and needs no
    result if it is not."""
    desk = Desk()
    async with engine_of([call("sign", paper="a"), call("sign", paper="b")], "done", tools=desk.tools) as engine:
        session = engine.session("s")
        first, second = (await session.run("go", check=False)).waiting
        assert (first.wants, second.wants) == ("decision", "decision")
        async with session.resume() as turn:
            await session.approve(first)
            await session.deny(second, reason="not that one")
            (left,) = (await turn.result(check=False)).waiting
            assert (left.id, left.wants) == (first.id, "result")
            assert status(await session.thread()) == "requires-action/tool-calls"
            await session.provide(left, "signed")
            assert (await turn.result()).text == "done"
        assert result_texts(requests_of(engine)[1]) == ["signed", "tool denied: not that one"]
        assert await waiting(session) == []
