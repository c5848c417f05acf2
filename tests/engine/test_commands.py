"""Commands that middleware carries out."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, GatedModel, engine_of, events_of, requests_of, said, until_event
from tests.scenarios.common import log_of, names, over
from tests.scenarios.threads import Desk, lines, waiting
from turnstate import (
    Agent,
    Client,
    CommandAccepted,
    CommandContext,
    CommandEnded,
    Custom,
    Engine,
    Event,
    InvalidInput,
    Limits,
    MemoryStore,
    MessageTaken,
    Middleware,
    Refused,
    Session,
    SessionInfo,
    SQLiteStore,
    Store,
    StoreError,
    TurnStarted,
    Usage,
    Warned,
    command,
)
from turnstate.testing import FaultyStore, ScriptedModel, call

Arguments = Mapping[str, Any]


class Notes(Middleware[Any]):
    """Commands of each kind."""

    def __init__(self) -> None:
        self.carried: list[str] = []
        self.gate = Gate()

    @command("note")
    async def note(self, ctx: CommandContext[Any], arguments: Arguments) -> Any:
        """Only between turns."""
        self.carried.append(f"note {arguments.get('text')} {ctx.command_id}")
        ctx.tell("noted", arguments.get("text"))
        return {"messages": len(ctx.messages), "text": arguments.get("text")}

    @command("hint", active=True)
    async def hint(self, ctx: CommandContext[Any], arguments: Arguments) -> None:
        """Says something to the model, at any time."""
        for text in arguments["texts"]:
            ctx.send(text)

    @command("slow", active=True)
    async def slow(self, ctx: CommandContext[Any], arguments: Arguments) -> str:
        """Stops at a gate."""
        self.carried.append("slow")
        ctx.count_usage("helper", Usage(input=3, output=4))
        ctx.rename("named by a command")
        await self.gate.wait()
        return "done"

    @command("fail", active=True)
    async def fail(self, ctx: CommandContext[Any], arguments: Arguments) -> Any:
        """Does something and fails."""
        self.carried.append("fail")
        ctx.send("never said")
        ctx.tell("never told")
        ctx.rename("never named")
        if arguments:
            return asyncio.Lock()
        raise KeyError("no such note")


def ended(id: str) -> Any:
    """Whether an event is the end of this command."""

    def ends(event: Event) -> bool:
        return isinstance(event, CommandEnded) and event.id == id

    return ends


async def carried_out(session: Session, id: str) -> CommandEnded:
    """Wait for the end of a command."""
    event = (await events_of(session, until=ended(id)))[-1]
    assert isinstance(event, CommandEnded)
    return event


@pytest.mark.trio
async def test_a_command_in_an_idle_session() -> None:
    """A command is accepted, carried out and told with what it gave, also in a session in which nothing was said; the
    events of its middleware are told before its end, and no turn begins."""
    notes = Notes()
    async with engine_of(middleware=[notes]) as engine:
        session = engine.session("s")
        receipt = await session.command("note", {"text": "milk"}, id="n1")
        assert (receipt.id, receipt.turn, receipt.refused) == ("n1", "", False)
        end = await carried_out(session, "n1")
        assert (end.name, end.result, end.error) == ("note", {"messages": 0, "text": "milk"}, "")
        log = await events_of(session, until=ended("n1"))
        assert names(log) == ["CommandAccepted", "Custom", "CommandEnded"]
        assert {event.cause for event in log} == {"n1"}
        accepted, custom = log[:2]
        assert isinstance(accepted, CommandAccepted)
        assert isinstance(custom, Custom)
        assert (accepted.arguments, custom.name, custom.data) == ({"text": "milk"}, "noted", "milk")
        assert requests_of(engine) == []
        assert not (await session.info()).unfinished
    assert notes.carried == ["note milk n1"]


@pytest.mark.trio
async def test_a_command_while_a_turn_runs() -> None:
    """While a turn runs, a command that may be carried out is, beside it; another one is refused as busy, also through
    a client, and accepted when the turn has ended."""
    notes = Notes()
    model = GatedModel("x")
    async with Engine(Agent[None](model, middleware=[notes]), MemoryStore()) as engine, Client(engine.store) as client:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            for handle in (session, client.session("s")):
                with pytest.raises(Refused) as refused:
                    await handle.command("note", id="n1")
                assert refused.value.code == "busy"
            await session.command("slow", id="s1")
            await notes.gate.reached.wait()
            model.gate.open.set()
            await turn.result()
        await session.command("note", {"text": "now"}, id="n1")
        notes.gate.open.set()
        await carried_out(session, "n1")
        info = await session.info()
        assert (info.title, info.usage.total) == ("named by a command", 7)
    assert notes.carried == ["slow", "note now n1"]


@pytest.mark.trio
async def test_a_command_while_a_call_waits() -> None:
    """A turn that waits for a person runs: the same rules hold, and the pause is as before."""
    desk, notes = Desk(), Notes()
    async with engine_of(call("pay"), tools=desk.tools, middleware=[notes]) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        with pytest.raises(Refused) as refused:
            await session.command("note")
        assert refused.value.code == "busy"
        notes.gate.open.set()
        await session.command("slow", id="s1")
        assert (await carried_out(session, "s1")).result == "done"
        assert [found.id for found in await waiting(session)] == [asked.id]


@pytest.mark.trio
async def test_unknown_commands() -> None:
    """A command that no middleware owns is invalid, and the error names those that there are; so is one whose arguments
    cannot be stored."""
    notes = Notes()
    async with engine_of(middleware=[notes]) as engine, engine_of() as plain, Client(engine.store) as client:
        session = engine.session("s")
        with pytest.raises(InvalidInput, match="nope: unknown; there are fail, hint, note, slow"):
            await session.command("nope")
        with pytest.raises(InvalidInput, match="there are none"):
            await plain.session("s").command("note")
        await engine.drive("s")
        with pytest.raises(InvalidInput, match="there are fail"):
            await client.session("s").command("nope")
        for bad in ({"a": object()}, {"a": "\ud800"}):
            with pytest.raises(InvalidInput):
                await session.command("note", bad)
        assert await log_of(engine.store) == []
    assert notes.carried == []


@pytest.mark.trio
@pytest.mark.parametrize("odd", [False, True])
async def test_a_command_that_fails(odd: bool) -> None:
    """The error of a command, or a result that cannot be stored, is told as its end; what it did through its context is
    dropped, the session goes on, and the next command is carried out."""
    notes = Notes()
    async with engine_of("one", middleware=[notes]) as engine:
        session = engine.session("s")
        await session.command("fail", {"odd": 1} if odd else None, id="f1")
        await session.command("note", {"text": "then"}, id="n1")
        end = await carried_out(session, "f1")
        assert end.result is None
        assert ("is not plain JSON" if odd else "KeyError; the details are in the log") in end.error
        await carried_out(session, "n1")
        assert (await session.run("go")).text == "one"
        assert (await session.info()).title == "go"
    log = await log_of(engine.store)
    assert [event.name for event in log if isinstance(event, Custom)] == ["noted"]
    assert notes.carried == ["fail", "note then n1"]


def test_a_command_has_one_owner() -> None:
    """Two middleware that own the same command cannot be in one agent; the error names it."""
    with pytest.raises(InvalidInput, match="two carry out the command"):
        Agent[None](ScriptedModel([]), middleware=[Notes(), Notes()])


@pytest.mark.trio
async def test_commands_are_carried_out_in_order() -> None:
    """Commands are carried out one after the other, in the order they were accepted; those that wait are limited in
    number."""
    notes = Notes()
    async with engine_of(middleware=[notes], limits=Limits(queue=3)) as engine:
        session = engine.session("s")
        await session.command("slow", id="s1")
        await notes.gate.reached.wait()
        for at in range(2):
            await session.command("note", {"text": at}, id=f"n{at}")
        with pytest.raises(Refused) as refused:
            await session.command("note")
        assert refused.value.code == "full"
        assert (await session.info()).unfinished
        notes.gate.open.set()
        await carried_out(session, "n1")
        ends = [event.id for event in await events_of(session, until=ended("n1")) if isinstance(event, CommandEnded)]
        assert ends == ["s1", "n0", "n1"]
    assert notes.carried == ["slow", "note 0 n0", "note 1 n1"]


@pytest.mark.trio
async def test_a_command_acts_once() -> None:
    """The same command with the same id is carried out once, also after a restart; with other arguments the id is
    refused."""
    notes, store = Notes(), MemoryStore()
    for _ in range(2):
        async with engine_of(middleware=[notes], store=store) as engine, Client(store) as client:
            session = engine.session("s")
            await session.command("note", {"text": "milk"}, id="n1")
            await carried_out(session, "n1")
            assert (await session.command("note", {"text": "milk"}, id="n1")).duplicate
            assert (await client.session("s").command("note", {"text": "milk"}, id="n1")).duplicate
            with pytest.raises(Refused) as refused:
                await session.command("note", {"text": "bread"}, id="n1")
            assert refused.value.code == "conflict"
    assert notes.carried == ["note milk n1"]


@pytest.mark.trio
async def test_what_a_command_says_starts_a_turn() -> None:
    """What a command says to the model starts a turn where none runs; what it says beyond that joins it."""
    notes = Notes()
    async with engine_of("one", "two", middleware=[notes]) as engine:
        session = engine.session("s")
        await session.command("hint", {"texts": ["be brief"]}, id="h1")
        await events_of(session, until=over("t1"))
        assert said(requests_of(engine)[0]) == ["be brief"]
        started = await until_event(session, TurnStarted)
        assert started.message.text == "be brief"
        await session.command("hint", {"texts": ["a", "b", "c"]}, id="h2")
        await events_of(session, until=over("t2"))
        assert said(requests_of(engine)[1]) == ["be brief", "a", "b", "c"]


@pytest.mark.trio
async def test_what_a_command_says_steers() -> None:
    """While a turn runs, what a command says joins it at its next request, as a steer does."""
    notes = Notes()
    model = GatedModel("x")
    async with Engine(Agent[None](model, middleware=[notes]), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await session.command("hint", {"texts": ["be brief"]}, id="h1")
            await carried_out(session, "h1")
            model.gate.open.set()
            assert (await turn.result()).steps == 2
        assert said(model.requests[1]) == ["go", "be brief"]
        taken = await until_event(session, MessageTaken)
        assert taken.message.text == "be brief"
        assert lines(await session.thread()) == ["user: go", "assistant: x", "user: be brief", "assistant: rest"]


@pytest.mark.trio
async def test_what_a_command_says_where_there_is_no_room() -> None:
    """Where no message can wait any more, what a command says is not lost in silence: people are warned, and the
    command has its end."""
    notes = Notes()
    model = GatedModel("x")
    agent = Agent[None](model, middleware=[notes], limits=Limits(queue=1))
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await session.command("hint", {"texts": ["a", "b"]}, id="h1")
            await carried_out(session, "h1")
            model.gate.open.set()
            await turn.result()
        warned = await until_event(session, Warned)
        assert "a message was not sent" in warned.text
        assert said(model.requests[1]) == ["go", "a"]


@pytest.mark.trio
@pytest.mark.parametrize("where", ["accepted", "carried out"])
async def test_a_command_whose_process_ends_is_carried_out_again(where: str) -> None:
    """A command whose engine is left before its end is committed is carried out by the next one, with the same id, and
    has one end."""
    notes, store = Notes(), MemoryStore()
    faulty = FaultyStore(store, 2 if where == "carried out" else None)
    async with engine_of(middleware=[notes], store=faulty) as engine:
        session = engine.session("s")
        await session.command("slow", id="s1")
        await notes.gate.reached.wait()
        if where == "carried out":
            notes.gate.open.set()
            await trio.testing.wait_all_tasks_blocked()
            assert engine.driven("s") is None
    assert "CommandEnded" not in names(await log_of(store))
    async with Client(store) as client:
        assert (await client.session("s").info()).unfinished
        assert [info.id async for info in client.sessions(unfinished=True)] == ["s"]
    notes.gate.open.set()
    async with engine_of(middleware=[notes], store=store) as engine:
        session = engine.session("s")
        await engine.drive("s")
        assert (await carried_out(session, "s1")).result == "done"
        info = await session.info()
        assert (info.unfinished, info.usage.total, info.title) == (False, 7, "named by a command")
    assert notes.carried == ["slow", "slow"]
    assert names(await log_of(store)).count("CommandEnded") == 1


@pytest.mark.trio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_command_survives_a_crash_at_each_commit(when: Any) -> None:
    """Wherever the process dies, a command that is sent again with its id has one end in the log, and what it said to
    the model is said once."""
    failed = 0

    async def drive(store: Store) -> None:
        model = ScriptedModel(lambda request: f"to {request.messages[-1].text}")
        async with Engine(Agent[None](model, middleware=[Notes()]), store) as engine:
            session = engine.session("s")
            await session.command("hint", {"texts": ["be brief"]}, id="h1")
            await trio.testing.wait_all_tasks_blocked()
            driver = engine.driven("s")
            if driver is None:
                raise StoreError("the driver is gone")

    for at in range(1, 20):
        store = MemoryStore()
        faulty = FaultyStore(store, at, when)
        try:
            await drive(faulty)
        except StoreError:
            failed += 1
        await drive(store)
        log = await log_of(store)
        for name in ("CommandAccepted", "CommandEnded", "TurnStarted", "TurnEnded"):
            assert names(log).count(name) == 1, (at, name)
        async with Client(store) as client:
            assert lines(await client.session("s").thread()) == ["user: be brief", "assistant: to be brief"]
        if faulty.commits < at:
            break
    assert failed == 3


@pytest.mark.trio
async def test_a_command_whose_middleware_is_gone() -> None:
    """A command that waits, and that nothing carries out in the next engine, ends with an error that says so."""
    notes, store = Notes(), MemoryStore()
    async with engine_of(middleware=[notes], store=store) as engine:
        await engine.session("s").command("slow", id="s1")
        await notes.gate.reached.wait()
    async with engine_of("one", store=store) as engine:
        session = engine.session("s")
        assert (await session.run("go")).text == "one"
        assert (await carried_out(session, "s1")).error == "no middleware carries out slow any more"


@pytest.mark.trio
async def test_commands_of_clients(tmp_path: Path) -> None:
    """A client's command is carried out by the driving engine, whose end the client follows, also from another process;
    where nobody drives it waits, and a worker takes it up; one that nothing carries out is answered when it is
    applied."""
    path = tmp_path / "turns.db"
    program = (
        "import trio\n"
        "from turnstate import Client, CommandEnded, SQLiteStore\n"
        "async def main():\n"
        f"    async with Client(SQLiteStore({str(path)!r})) as client:\n"
        "        session = client.session('s')\n"
        "        await session.command('note', {'text': 'from outside'}, id='n1')\n"
        "        async with session.events() as events:\n"
        "            async for event in events:\n"
        "                if isinstance(event, CommandEnded) and event.id == 'n1':\n"
        "                    print(event.result['text'])\n"
        "                    return\n"
        "trio.run(main)\n"
    )
    notes = Notes()
    async with Client(SQLiteStore(path)) as client:
        handle = client.session("s")
        assert (await handle.command("note", {"text": "first"}, id="n0")).turn == ""
        await handle.command("nope", id="n2")
        assert notes.carried == []
        async with engine_of(middleware=[notes], store=SQLiteStore(path)) as engine, trio.open_nursery() as nursery:
            nursery.start_soon(engine.serve)
            async with handle.events() as events:
                async for event in events:
                    if ended("n0")(event):
                        break
            with pytest.raises(InvalidInput, match="nope: unknown"):
                await handle.command("nope", id="n2")
            done = await trio.to_thread.run_sync(
                lambda: subprocess.run([sys.executable, "-c", program], timeout=50, check=True, capture_output=True)
            )
            nursery.cancel_scope.cancel()
    assert done.stdout.decode().strip() == "from outside"
    assert notes.carried == ["note first n0", "note from outside n1"]


@pytest.mark.trio
async def test_what_a_command_is_given() -> None:
    """A command sees the host's deps, the model, the visible messages, its own id and its name."""
    seen: list[Any] = []

    class Looks(Middleware[str]):
        @command("look")
        async def look(self, ctx: CommandContext[str], arguments: Arguments) -> None:
            texts = [message.text for message in ctx.messages]
            seen.append((ctx.deps, ctx.session_id, ctx.command_id, ctx.name, ctx.model.name, texts))

    def deps(info: SessionInfo) -> str:
        return f"deps of {info.id}"

    agent = Agent[str](ScriptedModel(["one"]), middleware=[Looks()])
    async with Engine(agent, MemoryStore(), deps=deps) as engine:
        session = engine.session("s")
        await session.run("go")
        await session.command("look", id="l1")
        await carried_out(session, "l1")
    assert seen == [("deps of s", "s", "l1", "look", "scripted", ["go", "one"])]


@pytest.mark.trio
async def test_a_command_that_takes_too_long(autojump_clock: trio.testing.MockClock) -> None:
    """A command that does not end is given up after five minutes, and told as failed; the next one is carried out."""
    notes = Notes()
    async with engine_of(middleware=[notes]) as engine:
        session = engine.session("s")
        await session.command("slow", id="s1")
        began = trio.current_time()
        await session.command("note", id="n1")
        await events_of(session, until=lambda event: isinstance(event, CommandAccepted) and event.id == "n1")
        await trio.sleep(301)
        assert "TooSlow" in (await carried_out(session, "s1")).error
        await carried_out(session, "n1")
        assert 300 < trio.current_time() - began < 320


@pytest.mark.trio
async def test_an_interrupt_does_not_end_a_command() -> None:
    """A command is no part of the turn that runs beside it: an interrupt ends the turn, and the command goes on."""
    notes = Notes()
    model = GatedModel("x")
    async with Engine(Agent[None](model, middleware=[notes]), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await model.gate.reached.wait()
            await session.command("slow", id="s1")
            await notes.gate.reached.wait()
            await session.interrupt()
            assert (await turn.result(check=False)).outcome == "interrupted"
        notes.gate.open.set()
        assert (await carried_out(session, "s1")).result == "done"


@pytest.mark.trio
async def test_no_turn_runs_beside_a_command_that_forbids_it() -> None:
    """A command that may not be carried out while a turn runs is not: a message that comes meanwhile starts its turn
    after it."""
    gate = Gate()

    class Tidies(Middleware[Any]):
        @command("tidy")
        async def tidy(self, ctx: CommandContext[Any], arguments: Arguments) -> None:
            await gate.wait()

    async with engine_of("one", middleware=[Tidies()]) as engine:
        session = engine.session("s")
        await session.command("tidy", id="t1")
        await gate.reached.wait()
        await session.send("go")
        await trio.testing.wait_all_tasks_blocked()
        beside = len(requests_of(engine))
        gate.open.set()
        await carried_out(session, "t1")
        await events_of(session, until=over("t1"))
        assert (beside, len(requests_of(engine))) == (0, 1)
