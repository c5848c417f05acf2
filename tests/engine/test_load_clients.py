"""What clients may put into sessions: how much may wait where nobody drives, and how large it may be."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.helpers import engine_of
from turnstate import (
    Client,
    Image,
    InvalidInput,
    Limits,
    MemoryStore,
    Refused,
    SessionHandle,
    SQLiteStore,
    Store,
    Text,
    tool,
)
from turnstate import sizes as sizes_module
from turnstate.inbox import RESERVED
from turnstate.testing import call
from turnstate.tools import Output
from turnstate.tools import output as output_module

QUEUE = Limits().queue
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": lambda folder: SQLiteStore(folder / "t.db", durability="normal"),
}


@tool(approval=True)
async def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(outside=True)
async def ask() -> None:
    """Ask somebody."""


async def code_of(said: Awaitable[Any]) -> str:
    """Why it was refused; empty if it was not."""
    try:
        await said
    except Refused as error:
        return error.code
    return ""


@pytest.mark.trio
@pytest.mark.parametrize("store", STORES)
async def test_messages_that_nobody_takes(tmp_path: Path, store: str) -> None:
    """So many wait as may wait in a session; more are refused as full, and whoever drives it takes all that were accepted."""
    kept = STORES[store](tmp_path)
    async with Client(kept) as client:
        session = client.session("s")
        codes = [await code_of(session.send(f"{number}")) for number in range(QUEUE + 20)]
        assert codes == [""] * QUEUE + ["full"] * 20
        assert len(await kept.inbox(["s"])) == QUEUE
        assert await code_of(client.session("other").send("hi")) == ""
        async with engine_of(*["ok"] * QUEUE, store=kept) as engine:
            await engine.drive("s")
            async with engine.session("s").events() as events:
                said = 0
                async for event in events:
                    said += type(event).__name__ == "TurnEnded"
                    if said == QUEUE:
                        break
            assert not await kept.inbox(["s"])
            assert [message.text for message in await session.messages() if message.role == "user"] == [
                f"{number}" for number in range(QUEUE)
            ]


@pytest.mark.trio
async def test_what_waits_in_the_session_counts() -> None:
    """Messages that wait in the session and those in its inbox are counted together, so that none is refused later."""
    store = MemoryStore()
    async with engine_of(call("pay"), tools=[pay], store=store) as engine:
        session = engine.session("s")
        (await session.run("go", check=False)).waiting  # noqa: B018
        for number in range(QUEUE - 5):
            await session.send(f"{number}")
    async with Client(store) as client:
        codes = [await code_of(client.session("s").send("more")) for _ in range(7)]
    assert codes == [""] * 5 + ["full"] * 2


@pytest.mark.trio
async def test_an_answer_gets_through() -> None:
    """An inbox full of messages keeps no answer and no interrupt out, and those are bounded as well."""
    store = MemoryStore()
    async with engine_of(call("pay"), tools=[pay], store=store) as engine:
        await engine.session("s").run("go", check=False)
    async with Client(store) as client:
        session = client.session("s")
        await session.info()
        while await code_of(session.send("more")) == "":
            pass
        assert await code_of(session.approve("m2.0")) == ""
        codes = [await code_of(session.rename(f"{number}")) for number in range(RESERVED + 5)]
        assert codes == [""] * (RESERVED - 1) + ["full"] * 6


@pytest.mark.trio
async def test_sent_again_when_it_is_full() -> None:
    """A message that is in the inbox already may be sent again under its id."""
    async with Client(MemoryStore()) as client:
        session = client.session("s")
        await session.send("first", id="x")
        while await code_of(session.send("more")) == "":
            pass
        assert await code_of(session.send("first", id="x")) == ""


# ---- sizes

BIG = "x" * 5000
ENTRIES: dict[str, Callable[[SessionHandle], Awaitable[Any]]] = {
    "send": lambda session: session.send(BIG),
    "send many parts": lambda session: session.send([Text("x" * 50)] * 100),
    "steer": lambda session: session.steer(BIG),
    "edit": lambda session: session.edit("m1", BIG),
    "edit queued": lambda session: session.edit_queued("q", BIG),
    "settings of an edit": lambda session: session.edit("m1", "hi", settings={"stop": [BIG]}),
    "settings": lambda session: session.regenerate("m1", settings={"stop": [BIG]}),
    "annotate": lambda session: session.annotate("m1", {"note": BIG}),
    "arguments": lambda session: session.approve("m2.0#0", arguments={"amount": BIG}),
    "reason": lambda session: session.deny("m2.0#0", reason=BIG),
    "text": lambda session: session.answer("m2.0#0", text=BIG),
    "answers": lambda session: session.answer("m2.0#0", answers={"q": {"options": [], "text": BIG}}),
    "provide": lambda session: session.provide("m2.1#0", BIG),
    "deep": lambda session: session.provide("m2.1#0", {"a": [[["x" * 10]] * 500]}),
    "preliminary": lambda session: session.provide("m2.1#0", BIG, preliminary=True),
    "artifact": lambda session: session.provide("m2.1#0", 1, artifact={"a": BIG}),
    "rename": lambda session: session.rename(BIG),
    "label": lambda session: session.label({"a": BIG}),
    "command": lambda session: session.command("x", {"a": BIG}),
    "interrupt": lambda session: session.interrupt(BIG),
}


@asynccontextmanager
async def handles(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[Store, list[SessionHandle]]]:
    """A session that waits for an answer and a result, with a message in its queue, by an engine and by a client."""
    store = MemoryStore()
    async with engine_of([call("pay"), call("ask")], tools=[pay, ask], store=store) as engine, Client(store) as client:
        await engine.session("s").run("go", check=False)
        await engine.session("s").send("later", id="q")
        monkeypatch.setattr(sizes_module, "MAX_TEXT", 4000)
        monkeypatch.setattr(sizes_module, "MAX_WITH_MEDIA", 6000)
        yield store, [engine.session("s"), client.session("s")]


@pytest.mark.trio
@pytest.mark.parametrize("entry", ENTRIES)
async def test_too_large(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is sent has a size; what is larger is refused, by engines and clients alike, and nothing is stored."""
    async with handles(monkeypatch) as (store, both):
        before = await store.load("s")
        for session in both:
            with pytest.raises(InvalidInput, match="at most") as caught:
                await ENTRIES[entry](session)
            assert "MB" in str(caught.value)
        assert await store.load("s") == before
        assert not await store.inbox()


@pytest.mark.trio
async def test_media_may_be_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a message and its media have limits of their own."""
    async with handles(monkeypatch) as (_, both):
        for session in both:
            await session.send([Text("see"), Image(f"data:image/png;base64,{BIG}")])
            with pytest.raises(InvalidInput, match="with its media"):
                await session.send([Text("see"), Image(f"data:image/png;base64,{BIG * 2}")])
            with pytest.raises(InvalidInput, match="besides media"):
                await session.send([Text(BIG), Image("http://x/y.png")])


def test_the_sizes() -> None:
    """A message may have 8 MB of text, 64 MB with media, an exported thread 512 MB."""
    assert (sizes_module.MAX_TEXT, sizes_module.MAX_WITH_MEDIA) == (8 * 2**20, 64 * 2**20)
    assert sizes_module.MAX_IMPORT == 512 * 2**20


@pytest.mark.trio
@pytest.mark.parametrize("what", ["message", "arguments", "result", "thread"])
async def test_a_thread_that_is_too_large(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imported messages have the sizes of those that are sent, and a thread one of its own; nothing is stored."""
    parts: dict[str, Any] = {
        "message": {"type": "text", "text": BIG},
        "arguments": {"type": "call", "id": "m1.0", "name": "f", "arguments": BIG},
        "result": {"type": "result", "call": "m1.0", "text": "", "images": [{"url": f"data:{BIG}{BIG}"}]},
        "thread": {"type": "text", "text": "x"},
    }
    role = {"arguments": "assistant", "result": "tool"}.get(what, "user")
    message = {"id": "m1", "parent": None, "turn": "t1", "role": role, "parts": [parts[what]], "created_at": 1.0}
    data = json.dumps({"format": 1, "session": "x", "head": "m1", "messages": [message]}).encode()
    async with handles(monkeypatch) as (store, _), engine_of("x", store=store) as engine, Client(store) as client:
        monkeypatch.setattr(sizes_module, "MAX_IMPORT", 100 if what == "thread" else 10**6)
        for importer in (engine, client):
            with pytest.raises(InvalidInput, match="thread: it has" if what == "thread" else "message m1: it has"):
                await importer.import_session("new", data)
        assert await store.load("new") is None


@pytest.mark.trio
@pytest.mark.parametrize("field", ["value", "artifact"])
async def test_a_result_that_is_too_large_to_be_kept(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept whole of a tool's result is bounded, as the text for the model is: the call is an error that says so."""
    monkeypatch.setattr(output_module, "MOST_KEPT", 4000)
    large: dict[str, Any] = {field: [BIG]}

    @tool
    async def give() -> Output:
        """Give much."""
        return Output(text="short", **large)

    async with engine_of(call("give"), "done", tools=[give]) as engine:
        result = await engine.session("s").run("go")
    assert [found.status for found in result.calls] == ["error"]
    (text,) = [found.text for message in result.messages for found in message.results]
    assert "at most 4000 are kept" in text
