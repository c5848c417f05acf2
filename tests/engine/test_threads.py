"""The thread through sessions and clients: changing it, going on with it, what is shown of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import GatedModel, engine_of, events_of, requests_of, result_texts, said
from tests.scenarios.common import log_of, over
from tests.scenarios.threads import Desk, lines, waiting
from turnstate import (
    Agent,
    Annotated,
    Client,
    Deleted,
    Engine,
    InvalidInput,
    MemoryStore,
    ModelError,
    Refused,
    Reply,
    Session,
    SessionChanged,
    SessionHandle,
    SessionInUse,
    SQLiteStore,
    Switched,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnStarted,
)
from turnstate.states import ToolCall
from turnstate.testing import ScriptedModel, call


@asynccontextmanager
async def held(who: str, *script: Any, **more: Any) -> AsyncGenerator[tuple[Session, SessionHandle]]:
    """A session that an engine drives, and the handle of who speaks to it: that engine, a client, another engine."""
    store = MemoryStore()
    async with (
        engine_of(*script, store=store, **more) as engine,
        Client(store) as client,
        engine_of(store=store) as two,
    ):
        session = engine.session("s")
        await engine.drive("s")
        async with session.events():
            handles: dict[str, SessionHandle] = {
                "the engine": session,
                "a client": client.session("s"),
                "another engine": two.session("s"),
            }
            yield session, handles[who]


EVERYBODY = ("the engine", "a client", "another engine")
everybody = pytest.mark.parametrize("who", EVERYBODY)


@pytest.mark.trio
@everybody
async def test_everybody_can_change_the_thread(who: str) -> None:
    """Whoever asks for it, the driving engine branches the thread, switches, marks and cuts it, and names the session;
    the receipt says which turn it began."""
    async with held(who, "one", "two", "three") as (session, handle):
        await session.run("first")
        assert (await handle.edit("m1", "first!")).turn == "t2"
        await events_of(session, until=over("t2"))
        assert lines(await handle.thread()) == ["user: first! (2/2)", "assistant: two"]
        assert (await handle.regenerate("m4", settings={"seed": 7})).turn == "t3"
        await events_of(session, until=over("t3"))
        assert lines(await handle.thread()) == ["user: first! (2/2)", "assistant: three (2/2)"]
        assert [found.text for found in await handle.branches("m4")] == ["two", "three"]
        assert (await handle.switch("m1")).turn == ""
        assert lines(await handle.thread()) == ["user: first (1/2)", "assistant: one"]
        await handle.annotate("m2", {"good": True})
        assert (await handle.messages())[-1].metadata == {"good": True}
        await handle.delete_message("m2")
        assert lines(await handle.thread()) == ["user: first (1/2)"]
        await handle.rename("Firsts")
        await handle.label({"topic": "order"})
        await handle.archive()
        info = await handle.info()
        assert (info.title, info.labels, info.archived) == ("Firsts", {"topic": "order"}, True)
        log = await events_of(session, until=lambda event: isinstance(event, SessionChanged) and event.archived)
        kinds = (Switched, Annotated, Deleted)
        assert [type(event) for event in log if isinstance(event, kinds)] == [*[Switched] * 3, Annotated, Deleted]
        assert [event.why for event in log if isinstance(event, Switched)] == ["edit", "regenerate", "switch"]
        assert requests_of(engine_holding(session))[2].settings == {"seed": 7}


def engine_holding(session: Session) -> Engine[Any]:
    """The engine of a session."""
    engine: Engine[Any] = session._engine  # pyright: ignore[reportPrivateUsage]
    return engine


Change = Callable[[SessionHandle, str], Awaitable[Any]]
CHANGES: dict[str, Change] = {
    "edit": lambda handle, id: handle.edit("m1", "else", id=id),
    "regenerate": lambda handle, id: handle.regenerate(id=id),
    "switch": lambda handle, id: handle.switch("m1", id=id),
    "delete": lambda handle, id: handle.delete_message("m2", id=id),
    "annotate": lambda handle, id: handle.annotate("m1", {"good": 1}, id=id),
}


@pytest.mark.trio
@everybody
@pytest.mark.parametrize("name", list(CHANGES))
async def test_a_change_acts_once(name: str, who: str) -> None:
    """The same change with the same id acts once, and gives the first receipt; with other content the id is refused."""
    async with held(who, "one", "two") as (session, handle):
        await session.run("first")
        receipt = await CHANGES[name](handle, "mine")
        await trio.testing.wait_all_tasks_blocked()
        before = (await session.thread(), await session.info())
        again = await CHANGES[name](handle, "mine")
        assert (again.duplicate, again.turn, again.id) == (True, receipt.turn, "mine")
        other = "switch" if name != "switch" else "edit"
        with pytest.raises(Refused) as refused:
            await CHANGES[other](handle, "mine")
        assert refused.value.code == "conflict"
        assert (await session.thread(), await session.info()) == before


@pytest.mark.trio
@pytest.mark.parametrize("name", list(CHANGES))
async def test_a_change_acts_once_over_a_restart(name: str, tmp_path: Path) -> None:
    """A change that was accepted is not made again by the next process, whoever sends it again."""
    path = tmp_path / "turns.db"
    async with engine_of("one", "two", store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        await session.run("first")
        receipt = await CHANGES[name](session, "mine")
        if receipt.turn:
            await events_of(session, until=over("t2"))
        before = await session.thread()
    async with engine_of(store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        again = await CHANGES[name](session, "mine")
        assert (again.duplicate, again.turn) == (True, receipt.turn)
        assert await session.thread() == before
    async with Client(SQLiteStore(path)) as client:
        assert (await CHANGES[name](client.session("s"), "mine")).duplicate


@pytest.mark.trio
@pytest.mark.parametrize("name", list(CHANGES))
async def test_a_change_where_nobody_drives(name: str) -> None:
    """A client's change of a session that nobody drives is durable, and the first thing that the next driver does."""
    store = MemoryStore()
    async with engine_of("one", store=store) as engine:
        await engine.session("s").run("first")
    async with Client(store) as client:
        handle = client.session("s")
        before = await handle.thread()
        receipt = await CHANGES[name](handle, "mine")
        assert (receipt.turn, receipt.duplicate) == ("", False)
        assert await handle.thread() == before
        with pytest.raises(Refused):
            await handle.switch("m99")
        async with engine_of("two", store=store) as engine:
            await engine.drive("s")
            await trio.testing.wait_all_tasks_blocked()
            assert await handle.thread() != before
            assert (await CHANGES[name](handle, "mine")).duplicate
        assert not (await handle.info()).unfinished


@pytest.mark.trio
async def test_a_worker_makes_the_changes_of_clients() -> None:
    """A worker takes up what a client asked for while nobody was there: an edit, then another answer."""
    store = MemoryStore()
    async with engine_of("one", store=store) as engine:
        await engine.session("s").run("first")
    async with (
        Client(store) as client,
        engine_of("two", "three", store=store) as engine,
        trio.open_nursery() as nursery,
    ):
        handle = client.session("s")
        await handle.edit("m1", "first!")
        nursery.start_soon(engine.serve)
        async with handle.events() as events:
            async for event in events:
                if over("t2")(event):
                    break
        await handle.regenerate()
        async with handle.events() as events:
            async for event in events:
                if over("t3")(event):
                    break
        assert lines(await handle.thread()) == ["user: first! (2/2)", "assistant: three (2/2)"]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_another_process_edits(tmp_path: Path) -> None:
    """Another process, without an agent, edits a message of a session that is driven here, and hears which turn it
    began."""
    path = tmp_path / "turns.db"
    program = (
        "import trio\n"
        "from turnstate import Client, SQLiteStore\n"
        "async def main():\n"
        f"    async with Client(SQLiteStore({str(path)!r})) as client:\n"
        "        session = client.session('s')\n"
        "        print((await session.edit('m1', 'from outside', id='mine')).turn)\n"
        "trio.run(main)\n"
    )
    async with engine_of("one", "two", store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        await session.run("first")
        async with session.events():
            done = await trio.to_thread.run_sync(
                lambda: subprocess.run([sys.executable, "-c", program], timeout=50, check=True, capture_output=True)
            )
            await events_of(session, until=over("t2"))
        assert done.stdout.decode().strip() == "t2"
        assert lines(await session.thread()) == ["user: from outside (2/2)", "assistant: two"]


@pytest.mark.trio
async def test_only_the_driver_holds_a_turn() -> None:
    """Where another engine drives the session, holding a turn that edits or asks again is refused before anything
    changes; the plain change goes to that engine."""
    store = MemoryStore()
    async with engine_of("one", "two", store=store) as one, engine_of(store=store) as two:
        session, other = one.session("s"), two.session("s")
        await session.run("first")
        async with session.events():
            before = await session.thread()
            for turn in (other.turn("x", edits="m1"), other.retry()):
                with pytest.raises(SessionInUse):
                    async with turn:
                        pass
            with pytest.raises(SessionInUse):
                await other.run("x", edits="m1")
            assert await session.thread() == before
            assert (await other.edit("m1", "else")).turn == "t2"
            await events_of(session, until=over("t2"))
        assert requests_of(two) == []


@pytest.mark.trio
async def test_turns_that_edit_and_ask_again() -> None:
    """A turn that edits, or answers again, is held live as any: its events, its text, its result, the same with the
    same id."""
    async with engine_of("one", "two two", "three", "four") as engine:
        session = engine.session("s")
        await session.run("first")
        async with session.turn("first!", edits="m1", id="edit") as turn:
            events = [event async for event in turn]
            result = await turn.result()
        assert (turn.id, result.text) == ("t2", "two two")
        assert [event.message and event.message.text for event in events if isinstance(event, TurnStarted)] == [
            "first!"
        ]
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "two two"
        assert isinstance(events[-1], TurnEnded)
        async with session.turn("first!", edits="m1", id="edit") as turn:
            assert await turn.result() == result
        async with session.retry(settings={"seed": 1}, id="retry") as turn:
            assert [text async for text in turn.text()] == ["three"]
            again = await turn.result()
        assert [message.role for message in again.messages] == ["assistant"]
        async with session.retry(settings={"seed": 1}, id="retry") as turn:
            assert await turn.result() == again
        question = (await session.branches("m1"))[0]
        assert (await session.run("first?", edits=question)).text == "four"
        assert [found.text for found in await session.branches(question)] == ["first", "first!", "first?"]
        assert [said(request) for request in requests_of(engine)] == [["first"], ["first!"], ["first!"], ["first?"]]


@pytest.mark.trio
async def test_what_cannot_be_edited_or_answered_again() -> None:
    """A model's message is not edited, a result neither deleted nor answered again; the error says what can be done."""
    desk = Desk()
    async with engine_of(call("look"), "done", tools=desk.tools) as engine:
        session = engine.session("s")
        await session.run("go")
        before = await session.thread()
        for change, word in (
            (session.edit("m2", "x"), "regenerate"),
            (session.edit("m3", "x"), "regenerate"),
            (session.regenerate("m3"), "name a person's"),
            (session.delete_message("m3"), "delete the message that holds the call"),
            (session.edit("m1", "  "), "empty"),
        ):
            with pytest.raises(InvalidInput, match=word):
                await change
        assert await session.thread() == before
        async with session.retry("m4") as turn:
            with pytest.raises(TurnFailed):
                await turn.result()
        assert result_texts(requests_of(engine)[2]) == ["saw"]


@pytest.mark.trio
@everybody
async def test_values_of_the_wrong_type(who: str) -> None:
    """A value of another type than expected is refused by its name before anything is stored, and the session goes on:
    it could not be read again otherwise."""
    desk = Desk()
    async with held(who, [call("pay"), call("ask")], "done", tools=desk.tools) as (session, handle):
        paid, asked = (await session.run("go", check=False)).waiting
        wrong: Any = 3
        cases: dict[str, Awaitable[Any]] = {
            "title": handle.rename(wrong),
            "labels": handle.label({"a": wrong}),
            "keys": handle.label({wrong: "a"}),
            "archived": handle.archive(wrong),
            "text": handle.provide(asked, 1, text=wrong),
            "artifact": handle.provide(asked, 1, artifact=object()),
            "result": handle.provide(asked, {1, 2}),
            "error": handle.provide(asked, 1, error=wrong),
            "preliminary": handle.provide(asked, 1, preliminary=wrong),
            "by": handle.deny(paid, by=wrong),
            "reason": handle.deny(paid, reason=wrong),
            "calls": handle.approve(wrong),
            "arguments": handle.approve(paid, arguments=wrong),
            "verdict": handle.answer(paid, verdict=wrong),
            "option": handle.answer(paid, option=wrong),
            "answers": handle.answer(paid, answers=wrong),
            "message": handle.switch(wrong),
            "metadata": handle.annotate("m1", wrong),
            r"metadata\.a": handle.annotate("m1", {"a": object()}),
            "settings": handle.edit("m1", "x", settings=wrong),
            "id": handle.regenerate(id=wrong),
            "name": handle.command(wrong),
            "reason ": handle.interrupt(wrong),
        }
        before = (await session.thread(), await session.info())
        for word, change in cases.items():
            with pytest.raises(InvalidInput, match=word.strip()):
                await change
        assert (await session.thread(), await session.info()) == before
        await session.deny(paid)
        async with session.resume() as turn:
            await session.provide(asked, 1)
            assert (await turn.result()).text == "done"


@pytest.mark.trio
async def test_settings_hold_for_the_turn() -> None:
    """Settings of a turn are in each of its requests, before and after a pause, a restart and a crash, also of one that
    edits or answers again; the next turn has its own."""
    desk, store = Desk(), MemoryStore()
    async with engine_of(call("look"), call("pay"), tools=desk.tools, store=store) as engine:
        async with engine.session("s").turn("go", settings={"seed": 1}) as turn:
            await turn.result(check=False)
        assert [request.settings for request in requests_of(engine)] == [{"seed": 1}] * 2
    model = GatedModel("x")
    async with Engine(Agent[None](model, tools=desk.tools), store, grace=0) as engine:
        session = engine.session("s")
        async with session.resume():
            await session.approve(*await waiting(session))
            await model.gate.reached.wait()
        assert [request.settings for request in model.requests] == [{"seed": 1}]
    script = [ModelError("busy", retryable=True), "done", "two", "three", call("look"), "four"]
    async with engine_of(*script, tools=desk.tools, store=store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            assert (await turn.result()).text == "done"
        await session.run("next")
        async with session.retry(settings={"seed": 2}) as turn:
            await turn.result()
        async with session.turn("go!", edits="m1", settings={"seed": 3}) as turn:
            await turn.result()
        found = [request.settings for request in requests_of(engine)]
        assert found == [{"seed": 1}, {"seed": 1}, {}, {"seed": 2}, {"seed": 3}, {"seed": 3}]


@pytest.mark.trio
async def test_waiting_messages_and_another_branch() -> None:
    """What waited behind a turn that a switch ended is held: it was written for another branch. A new message releases
    it; the end of the turn says that it is held."""
    desk = Desk()
    async with engine_of("one", call("pay"), "two", "three", tools=desk.tools) as engine:
        session = engine.session("s")
        await session.run("go")
        await session.run("go!", edits="m1", check=False)
        await session.send("then")
        await session.switch("m1")
        info = await session.info()
        assert (info.held, info.queued, info.unfinished) == (True, 1, False)
        end = [event for event in await events_of(session, until=over("t2")) if isinstance(event, TurnEnded)][-1]
        assert (end.outcome, end.held) == ("superseded", True)
        await session.send("and")
        await events_of(session, until=over("t4"))
        assert lines(await session.thread()) == [
            "user: go (1/2)",
            "assistant: one",
            "user: then",
            "assistant: two",
            "user: and",
            "assistant: three",
        ]


@pytest.mark.trio
async def test_a_change_in_the_instant_of_the_end() -> None:
    """An edit that comes while a turn ends is refused or begins the next turn, and never disturbs the one that ends."""
    accepted = 0
    for yields in range(12):
        async with engine_of("one", "two") as engine:
            session = engine.session("s")
            await session.send("go")
            for _ in range(yields):
                await trio.lowlevel.checkpoint()
            receipt, code = None, ""
            try:
                receipt = await session.edit("m1", "go!")
            except Refused as error:
                code = error.code
            if receipt is None:
                assert code == "busy"
                await events_of(session, until=over("t1"))
                assert lines(await session.thread()) == ["user: go", "assistant: one"]
                continue
            accepted += 1
            assert receipt.turn == "t2"
            await events_of(session, until=over("t2"))
            assert lines(await session.thread()) == ["user: go! (2/2)", "assistant: two"]
        ends = [event.outcome for event in await log_of(engine.store) if isinstance(event, TurnEnded)]
        assert ends == ["completed", "completed"]
    assert 0 < accepted < 12


@pytest.mark.trio
async def test_an_answer_that_is_made_again_from_the_middle() -> None:
    """Another reply can be asked for beside any of a turn's: what stood before it stands, with its calls and results,
    and what came after it stays on its own branch."""
    desk = Desk()
    model = ScriptedModel(
        [call("look", at="a"), call("look", at="b"), "done", "done otherwise", call("look", at="c"), "all new"]
    )
    async with Engine(Agent[None](model, tools=desk.tools), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go")
        async with session.retry("m4") as turn:
            await turn.result()
        assert lines(await session.thread()) == [
            "user: go",
            "assistant: ",
            "tool: saw a",
            "assistant: done otherwise (2/2)",
        ]
        async with session.retry("m2") as turn:
            await turn.result()
        assert lines(await session.thread()) == [
            "user: go",
            "assistant:  (2/2)",
            "tool: saw c",
            "assistant: all new",
        ]
        await session.switch("m4")
        assert lines(await session.thread())[-2:] == ["tool: saw b", "assistant: done"]
    assert desk.did == ["look a", "look b", "look c"]


@pytest.mark.trio
async def test_resuming_after_all_was_deleted() -> None:
    """With everything deleted there is nothing to go on with, and no empty request is made."""
    async with engine_of(ModelError("no", kind="permission"), "rest") as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.delete_message("m1")
        with pytest.raises(Refused):
            async with session.resume():
                pass
        assert len(requests_of(engine)) == 1


@pytest.mark.trio
async def test_resuming_on_another_branch() -> None:
    """A failed turn of another branch is not gone on with on the branch that is shown, which was complete."""
    async with engine_of("one", ModelError("no", kind="permission"), "rest", "rest") as engine:
        session = engine.session("s")
        await session.run("go")
        await session.run("go!", edits="m1", check=False)
        await session.switch("m1")
        before = lines(await session.thread())
        with pytest.raises(Refused):
            async with session.resume():
                pass
        assert lines(await session.thread()) == before
        await session.switch("m3")
        async with session.resume() as turn:
            assert (await turn.result()).text == "rest"


@pytest.mark.trio
async def test_calls_that_the_model_reuses_over_branches() -> None:
    """Calls of branches never share an id, so that an answer to one of a branch that was left reaches no other."""
    desk = Desk()
    reply = Reply((ToolCall("", "pay", "{}", "call_1"),), "tool-calls")
    async with engine_of(reply, reply, "done", tools=desk.tools) as engine:
        session = engine.session("s")
        (left,) = (await session.run("go", check=False)).waiting
        (asked,) = (await session.run("go!", edits="m1", check=False)).waiting
        assert left.id != asked.id
        with pytest.raises(Refused):
            await session.approve(left)
        async with session.resume() as turn:
            await session.approve(asked)
            await turn.result()
    assert desk.did == ["pay 1"]
