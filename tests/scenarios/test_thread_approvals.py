"""Scenarios P1 to P15: calls that a person must allow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import GatedModel, engine_of, requests_of, result_texts
from tests.scenarios.common import log_of, names, roles
from tests.scenarios.threads import Desk, status, waiting
from turnstate import (
    Agent,
    CallAnswered,
    CallSettled,
    Engine,
    InvalidInput,
    MemoryStore,
    Option,
    Prompt,
    Question,
    Refused,
    SQLiteStore,
    Tool,
    tool,
)
from turnstate.states import Decision, ToolCall
from turnstate.testing import call

Clock = trio.testing.MockClock


@pytest.mark.trio
async def test_whatever_needs_approval_pauses() -> None:
    """P1, P2: a tool that needs approval pauses the turn though it runs here; approved, it runs and the turn goes
    on."""
    desk = Desk()
    async with engine_of(call("pay", amount=5), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        assert (result.outcome, desk.did, status(await session.thread())) == (
            "waiting",
            [],
            "requires-action/interrupt",
        )
        async with session.resume() as turn:
            await session.approve(*result.waiting)
            assert (await turn.result()).text == "done"
    assert desk.did == ["pay 5"]


@pytest.mark.trio
async def test_what_was_answered_is_kept(tmp_path: Path) -> None:
    """P3: the option that was chosen, what was written and the answers to questions are told and kept over a
    restart."""
    choose = Prompt("how?", (Option("card", "allow-once"),), freeform=True)
    ask = Prompt("and?", display="questions", questions=(Question("why", "why?", freeform=True),))

    @tool(approval=True, prompt=choose)
    async def pay() -> str:
        return "paid"

    @tool(approval=True, prompt=ask)
    async def plan() -> str:
        return "planned"

    store = SQLiteStore(tmp_path / "turns.db")
    async with engine_of([call("pay"), call("plan"), call("plan")], tools=[pay, plan], store=store) as engine:
        session = engine.session("s")
        first, second, _ = (await session.run("go", check=False)).waiting
        await session.answer(first, option="card", text="quickly", by="ann")
        await session.answer(second, answers={"why": {"text": "because"}})
    found = {
        event.call.tool: event.call.decision
        for event in await log_of(SQLiteStore(tmp_path / "turns.db"))
        if isinstance(event, CallAnswered)
    }
    assert found["pay"] is not None
    assert found["plan"] is not None
    assert (found["pay"].option, found["pay"].text, found["pay"].by) == ("card", "quickly", "ann")
    assert found["plan"].answers == {"why": {"text": "because"}}


@pytest.mark.trio
@pytest.mark.parametrize("reason", ["", "too much"])
async def test_a_denial_is_a_result(reason: str) -> None:
    """P4: a denial is the call's result, an error for the model, with the reason given or a plain one, and nothing
    ran."""
    desk = Desk()
    async with engine_of(call("pay"), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        async with session.resume() as turn:
            await session.deny(*result.waiting, reason=reason)
            result = await turn.result()
        assert [found.status for found in result.calls] == ["denied"]
        assert result_texts(requests_of(engine)[1]) == [f"tool denied: {reason or 'the user declined'}"]
        assert [found.state for found in (await session.thread()).messages[1].calls.values()] == ["output-denied"]
    assert desk.did == []


@pytest.mark.trio
async def test_all_must_be_decided() -> None:
    """P5: of three requests two decisions are not enough: what was approved runs, but no request is made before the
    last."""
    desk = Desk()
    script = [[call("pay", amount=at) for at in range(3)], "done"]
    async with engine_of(*script, tools=desk.tools) as engine:
        session = engine.session("s")
        first, second, third = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.approve(third)
            await session.deny(first)
            assert [found.id for found in (await turn.result(check=False)).waiting] == [second.id]
            assert (desk.did, len(requests_of(engine))) == (["pay 2"], 1)
            await session.approve(second)
            await turn.result()
        assert result_texts(requests_of(engine)[1]) == ["tool denied: the user declined", "paid 1", "paid 2"]


@pytest.mark.trio
async def test_a_decision_is_made_once() -> None:
    """P6, O6: the same decision again is fine and does nothing; another one is refused, while the batch is open and
    after."""
    desk = Desk()
    async with engine_of([call("pay", amount=1), call("pay", amount=2)], "done", tools=desk.tools) as engine:
        session = engine.session("s")
        first, second = (await session.run("go", check=False)).waiting
        await session.approve(first)
        await trio.testing.wait_all_tasks_blocked()
        before = (await session.info()).last_event
        await session.approve(first)
        for other in (
            session.deny(first),
            session.approve(first, arguments={"amount": 7}),
            session.approve(first, for_session=True),
            session.provide(first, "done already"),
        ):
            with pytest.raises(Refused) as refused:
                await other
            assert refused.value.code == "conflict"
        assert (await session.info()).last_event == before
        async with session.resume() as turn:
            await session.deny(second)
            await turn.result()
        with pytest.raises(Refused) as refused:
            await session.approve(first)
        assert refused.value.code == "stale"
    assert desk.did == ["pay 1"]


@pytest.mark.trio
async def test_a_request_that_expires(autojump_clock: Clock) -> None:
    """P7: at its deadline a request is closed, the turn goes on, and an answer that comes then is refused."""

    @tool(approval=True, expires=60)
    async def pay() -> str:
        return "paid"

    @tool(outside=True, expires=90)
    def ask() -> None: ...

    async with engine_of([call("pay"), call("ask")], "done", tools=[pay, ask]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            first, second = (await turn.result(check=False)).waiting
            await trio.sleep(61)
            assert [found.id for found in await waiting(session)] == [second.id]
            with pytest.raises(Refused):
                await session.approve(first)
            await trio.sleep(30)
            with pytest.raises(Refused):
                await session.provide(second, 1)
            assert (await turn.result()).text == "done"
        assert result_texts(requests_of(engine)[1]) == [
            "tool denied: the approval request expired",
            "execution interrupted; result unknown: no result came in time",
        ]


@pytest.mark.trio
async def test_a_result_in_place_of_a_decision() -> None:
    """P8: a call that waits for a decision may be given its result instead: it does not run, and the turn goes on."""
    desk = Desk()
    async with engine_of(call("pay"), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        async with session.resume() as turn:
            await session.provide(result.waiting[0], "paid in cash")
            result = await turn.result()
        assert result_texts(requests_of(engine)[1]) == ["paid in cash"]
        assert [(found.status, found.began) for found in result.calls] == [("ok", 0)]
    assert desk.did == []


@pytest.mark.trio
async def test_several_steps_after_an_answer() -> None:
    """P9: after an answer the turn makes as many steps as it needs, and may pause again."""
    desk = Desk()
    script = [call("pay", amount=1), call("look", at="a"), call("pay", amount=2), "done"]
    async with engine_of(*script, tools=desk.tools) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        while result.outcome == "waiting":
            async with session.resume() as turn:
                await session.approve(*result.waiting)
                result = await turn.result(check=False)
        assert (result.turn, result.steps, result.text) == ("t1", 4, "done")
    assert desk.did == ["pay 1", "look a", "pay 2"]
    assert names(await log_of(engine.store)).count("TurnStarted") == 1


@pytest.mark.trio
@pytest.mark.parametrize("restart", [False, True])
async def test_it_is_settled_in_its_place(restart: bool, tmp_path: Path) -> None:
    """P10: the message with the call stays as it was written; its name, arguments and decision stay with the call, and
    the result follows it."""
    desk = Desk()
    path = tmp_path / "turns.db"
    engine = engine_of(call("pay", amount=5), "done", tools=desk.tools, store=SQLiteStore(path))
    async with engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        before = await session.messages()
        if not restart:
            async with session.resume() as turn:
                await session.approve(asked, by="ann")
                await turn.result()
    if restart:
        engine = engine_of("done", tools=desk.tools, store=SQLiteStore(path))
        async with engine, engine.session("s").resume() as turn:
            await engine.session("s").approve(asked, by="ann")
            await turn.result()
    async with engine_of(store=SQLiteStore(path)) as engine:
        after = await engine.session("s").messages()
    assert after[:2] == before
    assert roles(after[2:]) == [("tool", "paid 5"), ("assistant", "done")]
    (settled,) = (event.call for event in await log_of(SQLiteStore(path)) if isinstance(event, CallSettled))
    assert (settled.id, settled.tool, settled.arguments) == (asked.id, "pay", {"amount": 5})
    assert settled.decision is not None
    assert (settled.decision.verdict, settled.decision.by) == ("approve", "ann")


@pytest.mark.trio
async def test_answers_that_nobody_waits_for() -> None:
    """P12: an answer while the model streams, to a call that is not known, or to one that runs, is refused and changes
    nothing."""
    started = trio.Event()

    @tool
    async def slow() -> None:
        started.set()
        await trio.sleep_forever()

    model = GatedModel("hm", calls=[ToolCall("", "slow", "{}")])
    async with Engine(Agent[None](model, tools=[slow]), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            for name in ("m2.0", "m99.0", "", "m2.0/m3.0", "__proto__"):
                with pytest.raises(Refused) as refused:
                    await session.approve(name)
                assert refused.value.code == "stale"
            model.gate.open.set()
            await started.wait()
            for answer in (session.approve("m2.0"), session.deny("m2.0"), session.provide("m2.0", 1)):
                with pytest.raises(Refused) as refused:
                    await answer
                assert refused.value.code == "stale"
            await session.interrupt()
            await turn.result(check=False)
    assert "CallAnswered" not in names(await log_of(engine.store))


@pytest.mark.trio
async def test_each_decision_is_told_once() -> None:
    """P13: each decision is one event that holds the call, its tool, its message and what was decided, before its
    result."""
    desk = Desk()
    async with engine_of([call("pay", amount=1), call("pay", amount=2)], "done", tools=desk.tools) as engine:
        session = engine.session("s")
        first, second = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.approve(first)
            await session.approve(first)
            await session.deny(second)
            await turn.result()
        reply = (await session.messages())[1]
    log = await log_of(engine.store)
    told = [
        (e.call.id, e.call.tool, e.call.decision.verdict)
        for e in log
        if isinstance(e, CallAnswered) and e.call.decision
    ]
    assert told == [(first.id, "pay", "approve"), (second.id, "pay", "deny")]
    assert {name.partition(".")[0] for name, _, _ in told} == {reply.id}
    for asked in (first, second):
        moves = [type(e).__name__ for e in log if getattr(getattr(e, "call", None), "id", "") == asked.id]
        assert moves.index("CallAnswered") < moves.index("CallSettled")


@pytest.mark.trio
async def test_a_stored_pause_is_gone_on_with(tmp_path: Path) -> None:
    """P14: a pause that was stored and loaded, again and again, is answered by the same id, and the call runs once."""
    desk = Desk()
    path = tmp_path / "turns.db"
    async with engine_of(call("pay"), tools=desk.tools, store=SQLiteStore(path)) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
    for _ in range(3):
        async with engine_of(tools=desk.tools, store=SQLiteStore(path)) as engine:
            async with engine.session("s").resume() as turn:
                assert [found.id for found in (await turn.result(check=False)).waiting] == [asked.id]
            assert status(await engine.session("s").thread()) == "requires-action/interrupt"
    async with engine_of("done", tools=desk.tools, store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            await session.approve(asked.id)
            assert (await turn.result()).text == "done"
    assert desk.did == ["pay 1"]


@pytest.mark.trio
async def test_an_imported_pause_is_closed() -> None:
    """P14, K4: what is imported runs nothing and waits for nobody: the model hears that the open call was not run."""
    desk = Desk()
    async with engine_of(call("pay"), "so be it", tools=desk.tools) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
        copy = await engine.import_session("copy", await engine.session("s").export())
        assert await waiting(copy) == []
        with pytest.raises(Refused):
            await copy.approve(asked)
        assert [found.state for found in (await copy.thread()).messages[1].calls.values()] == ["output-error"]
        await copy.run("and now?")
        assert result_texts(requests_of(engine)[1]) == ["not run: no result was recorded"]
        assert [found.id for found in await waiting(engine.session("s"))] == [asked.id]
    assert desk.did == []


@pytest.mark.trio
async def test_what_a_pause_is_for() -> None:
    """P15: a pause says `interrupt` as long as a decision is wanted and `tool-calls` when only results are."""
    desk = Desk()
    async with engine_of([call("ask"), call("pay")], "done", tools=desk.tools) as engine:
        session = engine.session("s")
        asked, paid = (await session.run("go", check=False)).waiting
        assert status(await session.thread()) == "requires-action/interrupt"
        await session.deny(paid)
        await trio.testing.wait_all_tasks_blocked()
        assert status(await session.thread()) == "requires-action/tool-calls"
        await session.provide(asked, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert status(await session.thread()) == "complete/stop"


OPTIONS = (
    Option("once", "allow-once"),
    Option("always", "allow-always"),
    Option("no", "reject-once"),
    Option("never", "reject-always"),
    Option("__proto__", "allow-once"),
    Option("later", "_later"),
)
DECIDE = Prompt("may I?", OPTIONS)
CHOOSE = Prompt("which?", OPTIONS, display="select")
WRITE = Prompt("what?", display="text", dismissible=True)
FREE = Prompt("may I?", OPTIONS, freeform=True)
COLOURS = (Option("red"), Option("blue"))
FORM = Prompt(
    display="questions",
    questions=(
        Question("colour", "which?", COLOURS),
        Question("some", "which?", COLOURS, multiple=True),
        Question("why", "why?", freeform=True),
    ),
    dismissible=True,
)
FULL: dict[str, Any] = {"colour": {"options": ["red"]}, "some": {"options": ["red", "blue"]}, "why": {"text": "so"}}
GOOD: dict[str, tuple[Prompt | None, dict[str, Any], str]] = {
    "approve": (None, {"verdict": "approve"}, "approve"),
    "deny": (None, {"verdict": "deny"}, "deny"),
    "an option that allows": (DECIDE, {"option": "once"}, "approve"),
    "an option that allows for good": (DECIDE, {"option": "always"}, "approve"),
    "an option that rejects": (DECIDE, {"option": "no"}, "deny"),
    "an option that rejects for good": (DECIDE, {"option": "never"}, "deny"),
    "an option named like a built-in": (DECIDE, {"option": "__proto__"}, "approve"),
    "an option and what it means": (DECIDE, {"option": "no", "verdict": "deny"}, "deny"),
    "a kind of the host's, approved": (DECIDE, {"option": "later", "verdict": "approve"}, "approve"),
    "a kind of the host's, denied": (DECIDE, {"option": "later", "verdict": "deny"}, "deny"),
    "a choice": (CHOOSE, {"option": "once"}, "approve"),
    "a text": (WRITE, {"text": "so"}, "approve"),
    "a text beside a decision": (FREE, {"verdict": "deny", "text": "so"}, "deny"),
    "a dismissal": (WRITE, {"verdict": "dismiss"}, "deny"),
    "answers": (FORM, {"answers": FULL}, "approve"),
    "no answers": (FORM, {"verdict": "deny"}, "deny"),
}
BAD: dict[str, tuple[Prompt | None, dict[str, Any], str]] = {
    "nothing": (DECIDE, {}, "verdict:"),
    "an unknown option": (DECIDE, {"option": "constructor"}, "option:"),
    "an option where there are none": (None, {"option": "toString"}, "option:"),
    "a kind of the host's alone": (DECIDE, {"option": "later"}, "verdict:"),
    "an option and its contrary": (DECIDE, {"option": "no", "verdict": "approve"}, "verdict:"),
    "a text that was not asked for": (DECIDE, {"text": "yes"}, "text: no text was asked for"),
    "a text beside a decision that was not asked for": (DECIDE, {"verdict": "approve", "text": "yes"}, "text:"),
    "a text that is to decide": (FREE, {"text": "yes"}, "verdict:"),
    "a dismissal that was not offered": (DECIDE, {"verdict": "dismiss"}, "verdict:"),
    "a dismissal with an answer": (WRITE, {"verdict": "dismiss", "text": "so"}, "verdict:"),
    "answers where nothing was asked": (DECIDE, {"answers": FULL}, "answers:"),
    "approval without the answers": (FORM, {"verdict": "approve"}, "answers:"),
    "a question left out": (FORM, {"answers": {"colour": {"options": ["red"]}}}, "answers.some:"),
    "a question that is not there": (
        FORM,
        {"answers": {**FULL, "__proto__": {"text": "x"}}},
        "answers: there is no question '__proto__'",
    ),
    "two options of one": (FORM, {"answers": {**FULL, "colour": {"options": ["red", "blue"]}}}, "answers.colour:"),
    "an option twice": (FORM, {"answers": {**FULL, "some": {"options": ["red", "red"]}}}, "answers.some:"),
    "an option that is not there": (FORM, {"answers": {**FULL, "colour": {"options": ["valueOf"]}}}, "answers.colour:"),
    "a text to a choice": (FORM, {"answers": {**FULL, "colour": {"text": "red"}}}, "answers.colour:"),
    "an empty answer": (FORM, {"answers": {**FULL, "why": {}}}, "answers.why:"),
}


def deciding(prompt: Prompt | None, seen: list[Decision | None]) -> Tool[..., Any]:
    """A tool with a prompt."""

    @tool(approval=True, prompt=prompt)
    async def act() -> str:
        seen.append(None)
        return "done"

    return act


@pytest.mark.trio
@pytest.mark.parametrize("name", list(GOOD))
async def test_what_an_answer_means(name: str) -> None:
    """P16: an answer that fits what was asked approves or denies as it says, and the call runs, or not, accordingly."""
    prompt, answer, verdict = GOOD[name]
    ran: list[Decision | None] = []
    async with engine_of(call("act"), "done", tools=[deciding(prompt, ran)]) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        assert asked.prompt == prompt
        async with session.resume() as turn:
            await session.answer(asked, **answer)
            result = await turn.result()
        assert [found.status for found in result.calls] == ["ok" if verdict == "approve" else "denied"]
        assert len(ran) == (verdict == "approve")
        assert len(await session.grants()) == (answer.get("option") == "always")


@pytest.mark.trio
@pytest.mark.parametrize("name", list(BAD))
async def test_what_no_answer_is(name: str) -> None:
    """P16: an answer that does not fit what was asked is invalid, names what is wrong, and the call waits on."""
    prompt, answer, word = BAD[name]
    ran: list[Decision | None] = []
    async with engine_of(call("act"), tools=[deciding(prompt, ran)]) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        before = await session.info()
        with pytest.raises(InvalidInput, match=f"^{re.escape(word)}"):
            await session.answer(asked, **answer)
        assert await session.info() == before
        assert [found.id for found in await waiting(session)] == [asked.id]
    assert ran == []
