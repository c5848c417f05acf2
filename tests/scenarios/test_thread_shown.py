"""What user interfaces are shown of a thread, and of sessions in a list (C8)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, engine_of, events_of
from tests.scenarios.common import over
from tests.scenarios.threads import Desk
from turnstate import (
    Agent,
    Client,
    Engine,
    InvalidInput,
    Limits,
    MemoryStore,
    ModelError,
    Quote,
    Reply,
    Text,
    tool,
)
from turnstate.testing import ScriptedModel, call

ENDED: dict[str, tuple[list[Any], str, str]] = {
    "completed": (["done"], "complete/stop", ""),
    "length": ([Reply((Text("do"),), "length")], "incomplete/length", ""),
    "filter": ([Reply((Text("do"),), "content-filter")], "incomplete/content-filter", ""),
    "refusal": ([Reply((Text("do"),), "refusal")], "incomplete/content-filter", ""),
    "another stop": ([Reply((Text("do"),), "other")], "complete/unknown", ""),
    "failed": ([call("look"), ModelError("no", kind="permission")], "incomplete/error", "output-available"),
    "limit": ([call("look"), call("look")], "incomplete/tool-calls", "output-available"),
    "denied": ([call("pay")], "incomplete/cancelled", "output-denied"),
    "interrupted": ([call("pay")], "incomplete/cancelled", "output-error"),
    "superseded": ([call("pay"), "else"], "incomplete/cancelled", "output-error"),
}


@pytest.mark.trio
@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("name", list(ENDED))
async def test_what_is_shown_of_each_end(name: str, reopen: bool) -> None:
    """However a turn ended, its last message and that one's call show it, also to the next process and on a branch that
    was left."""
    script, shown, state = ENDED[name]
    desk, store = Desk(), MemoryStore()
    async with engine_of(*script, tools=desk.tools, store=store, limits=Limits(steps=2)) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        if name == "denied":
            await session.deny(*result.waiting, end_turn=True)
        elif name == "interrupted":
            await session.interrupt()
        elif name == "superseded":
            await session.edit("m1", "else")
            await events_of(session, until=over("t2"))
            await session.switch("m1")
        await trio.testing.wait_all_tasks_blocked()
        here = await session.thread()
    if reopen:
        async with Client(store) as client:
            assert await client.session("s").thread() == here
    turn = [found for found in here.messages if found.message.role == "assistant"]
    display = turn[-1].display
    assert display is not None
    assert f"{display.status}/{display.reason}" == shown
    assert (display.error is not None) == (name == "failed")
    assert [found.state for found in turn[-1].calls.values()] == ([state] if turn[-1].calls else [])
    assert here.waiting == []


@pytest.mark.trio
async def test_what_is_shown_of_a_running_call() -> None:
    """A call is shown as input that is there, as asked for, as answered, as running and as done."""
    gates = [Gate(), Gate()]

    @tool(exclusive=True)
    async def first() -> None:
        await gates[0].wait()

    @tool(approval=True)
    async def then() -> None:
        await gates[1].wait()

    script = [call("first"), call("then"), call("then")]
    async with engine_of(script, "done", tools=[first, then]) as engine:
        session = engine.session("s")

        async def seen() -> list[tuple[str, bool]]:
            shown = (await session.thread()).messages[1]
            return [(found.state, found.running) for found in shown.calls.values()]

        async with session.turn("go") as turn:
            await gates[0].reached.wait()
            one, other = turn.waiting
            running, asked = ("input-available", True), ("approval-requested", False)
            assert await seen() == [running, asked, asked]
            await session.approve(one)
            assert await seen() == [running, ("approval-responded", False), asked]
            gates[0].open.set()
            await gates[1].reached.wait()
            done = ("output-available", False)
            assert await seen() == [done, ("approval-responded", True), asked]
            await session.deny(other)
            gates[1].open.set()
            await turn.result()
            assert await seen() == [done, done, ("output-denied", False)]


@pytest.mark.trio
async def test_quotes() -> None:
    """Words of an earlier message that a person refers to reach the model as a quotation, whoever sends them and
    however; they must stand in that message."""
    model = ScriptedModel(lambda request: "the second one\nis better")
    async with Engine(Agent(model), MemoryStore()) as engine, Client(engine.store) as client:
        session = engine.session("s")
        await session.run("which?")
        quote = Quote("m2", "second one\nis")
        await session.run([quote, Text("why?")])
        assert model.shown()[-1] == ("user", "> second one\n> is\n\nwhy?")
        assert (await session.messages())[2].parts == (quote, Text("why?"))
        await session.run([quote, Text("really?")], edits="m3")
        assert model.shown()[-1] == ("user", "> second one\n> is\n\nreally?")
        for bad in (Quote("m2", "third"), Quote("m99", "second"), Quote("m2", " ")):
            for handle in (session, client.session("s")):
                with pytest.raises(InvalidInput, match=r"parts\[0\]"):
                    await handle.send([bad, Text("?")])
        async with session.events():
            await client.session("s").send([quote])
            await events_of(session, until=over("t4"))
        assert model.shown()[-1] == ("user", "> second one\n> is\n\n")


@pytest.mark.trio
async def test_sessions_are_found_by_what_they_are_called() -> None:
    """Renamed, labelled and archived sessions are listed as such, here and through a client (C8); what is wrong is
    refused."""
    async with engine_of("one", "two") as engine, Client(engine.store) as client:
        one, two = engine.session("1"), engine.session("2")
        await one.run("about rivers")
        await two.run("about hills")
        await one.rename("  Rivers  of\nthe north ")
        await one.label({"topic": "water", "for": "ann"})
        await two.label({"topic": "stone"})
        await two.label({"topic": "rock", "gone": None})
        await two.archive()
        for lister in (engine, client):
            assert [(i.id, i.title) async for i in lister.sessions()] == [("1", "Rivers of the north")]
            assert [i.id async for i in lister.sessions(archived=True)] == ["2"]
            assert [i.id async for i in lister.sessions(archived=None, labels={"topic": "rock"})] == ["2"]
            assert [i.id async for i in lister.sessions(search="north")] == ["1"]
        await two.archive(False)
        await one.label({"for": None})
        assert (await one.info()).labels == {"topic": "water"}
        assert not (await two.info()).archived
        before = (await one.info()).last_event
        await one.label({"topic": "water"})
        assert (await one.info()).last_event == before
        for change in (
            one.rename("  "),
            one.label({"x" * 65: "y"}),
            one.label({"x": "y" * 1001}),
            one.label({"": "y"}),
        ):
            with pytest.raises(InvalidInput):
                await change
        assert (await one.info()).title == "Rivers of the north"
