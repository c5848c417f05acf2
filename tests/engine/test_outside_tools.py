"""Tools without a function, tools that tell how far they are, and results that people and models see differently."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, engine_of, events_of, requests_of, result_texts, until_event
from tests.scenarios.common import log_of, names, over
from tests.scenarios.threads import Desk, status, waiting
from turnstate import (
    CallProgress,
    CallSettled,
    Client,
    Image,
    InvalidInput,
    MemoryStore,
    Output,
    PreliminaryResult,
    Refused,
    ResultRequested,
    SQLiteStore,
    ToolContext,
    ToolError,
    tool,
)
from turnstate.testing import call, crashes

Clock = trio.testing.MockClock


class Never(Exception):
    """What a function raises that must not run."""


@tool(outside=True)
def browse(url: str, deep: bool = False) -> str:
    """Open a page in the person's browser.

    Args:
        url: Where.
        deep: Whether to follow links.
    """
    raise Never


@pytest.mark.trio
async def test_its_function_never_runs() -> None:
    """The model is shown a tool that is done outside like any; its arguments are checked, and its function never
    runs."""
    script = [[call("browse", url=3), call("browse", url="a")], "done"]
    async with engine_of(*script, tools=[browse]) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        assert [(found.status, found.wants) for found in result.calls] == [("error", "decision"), ("asked", "result")]
        (definition,) = requests_of(engine)[0].tools
        assert (definition.name, definition.description) == ("browse", "Open a page in the person's browser.")
        assert definition.parameters["properties"]["url"]["description"] == "Where."
        async with session.resume() as turn:
            await session.provide(result.waiting[0], "a page")
            await turn.result()
        bad, good = result_texts(requests_of(engine)[1])
        assert bad.startswith("bad arguments for browse")
        assert good == "a page"
        assert "CallStarted" not in names(await log_of(engine.store))


@pytest.mark.trio
@pytest.mark.parametrize(
    ("given", "text", "state"),
    [
        ({"result": {"a": [1, None]}}, '{"a": [1, null]}', "ok"),
        ({"result": "ä\n"}, "ä\n", "ok"),
        ({"result": {"a": 1}, "text": "one"}, "one", "ok"),
        ({"result": "no such page", "error": True}, "no such page", "error"),
        ({"error": True}, "null", "error"),
        ({"result": 1, "text": ""}, "", "ok"),
    ],
)
async def test_what_the_model_reads(given: dict[str, Any], text: str, state: str) -> None:
    """The model reads the text, or the result as it is or as JSON; an error is one."""
    async with engine_of(call("browse", url="a"), "done", tools=[browse]) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        async with session.resume() as turn:
            await session.provide(*result.waiting, **given)
            result = await turn.result()
        assert result_texts(requests_of(engine)[1]) == [text]
        assert [found.status for found in result.calls] == [state]


@pytest.mark.trio
async def test_a_client_in_another_process(tmp_path: Path) -> None:
    """A client in another process sees what is asked for, tells what it has so far and gives the result; the engine
    goes on."""
    path = tmp_path / "turns.db"
    program = (
        "import trio\n"
        "from turnstate import Client, ResultRequested, SQLiteStore\n"
        "async def main():\n"
        f"    async with Client(SQLiteStore({str(path)!r})) as client:\n"
        "        session = client.session('s')\n"
        "        async with session.events() as events:\n"
        "            async for event in events:\n"
        "                if isinstance(event, ResultRequested):\n"
        "                    await session.provide(event.call, 'loading', preliminary=True)\n"
        "                    url = event.call.arguments['url']\n"
        "                    receipt = await session.provide(event.call, {'page': url}, by='browser', id='mine')\n"
        "                    print(receipt.turn)\n"
        "                    return\n"
        "trio.run(main)\n"
    )
    async with engine_of(call("browse", url="a"), "done", tools=[browse], store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn, trio.open_nursery() as nursery:

            async def run() -> None:
                done = await trio.to_thread.run_sync(
                    lambda: subprocess.run([sys.executable, "-c", program], timeout=50, check=True, capture_output=True)
                )
                assert done.stdout.decode().strip() == "t1"

            nursery.start_soon(run)
            async for _ in turn:
                pass
            assert (await turn.result()).text == "done"
        assert result_texts(requests_of(engine)[1]) == ['{"page": "a"}']
        log = await events_of(session, until=over())
        assert [event.value for event in log if isinstance(event, PreliminaryResult)] == ["loading"]
        (settled,) = (event.call for event in log if isinstance(event, CallSettled))
        assert settled.decision is not None
        assert settled.decision.by == "browser"
    async with Client(SQLiteStore(path)) as client:
        assert (await client.session("s").provide(settled, {"page": "a"}, by="browser", id="mine")).duplicate


@pytest.mark.trio
async def test_where_nobody_drives() -> None:
    """A result for a session that nobody drives waits for the next driver; one that can be no result is refused at
    once."""
    store = MemoryStore()
    async with engine_of(call("browse", url="a"), tools=[browse], store=store) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
    async with Client(store) as client:
        handle = client.session("s")
        (listed,) = [info async for info in client.sessions(waiting=True)]
        assert [found.wants for found in listed.waiting] == ["result"]
        with pytest.raises(InvalidInput):
            await handle.approve(asked)
        with pytest.raises(Refused):
            await handle.provide("m9.0", 1)
        assert (await handle.provide(asked, "page", id="mine")).turn == ""
        assert status(await handle.thread()) == "requires-action/tool-calls"
    async with engine_of("done", tools=[browse], store=store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            assert (await turn.result()).text == "done"
        assert result_texts(requests_of(engine)[0]) == ["page"]


@pytest.mark.trio
@pytest.mark.parametrize("how", ["interrupted", "crashed", "denied", "expired", "tool gone"])
async def test_what_becomes_of_one_without_a_result(how: str, autojump_clock: Clock) -> None:
    """A call that was asked for outside may have had effects there: ended without a result it is of unknown outcome,
    not `not run`. A crash alone leaves it waiting; denied it is denied."""
    store = MemoryStore()
    slow = tool(outside=True, expires=60)(browse.function)
    async with engine_of(call("browse", url="a"), "done", tools=[slow], store=store) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            (asked,) = (await turn.result(check=False)).waiting
            if how == "interrupted":
                await session.interrupt()
            elif how == "denied":
                await session.deny(asked, reason="not now")
            elif how == "expired":
                await trio.sleep(61)
            if how not in ("crashed", "tool gone"):
                await turn.result(check=False)
    if how in ("crashed", "tool gone"):
        tools = [slow] if how == "crashed" else []
        async with engine_of("done", tools=tools, store=store) as engine:
            session = engine.session("s")
            async with session.resume() as turn:
                if how == "crashed":
                    assert [found.id for found in (await turn.result(check=False)).waiting] == [asked.id]
                    await session.provide(asked, "page")
                await turn.result()
    async with Client(store) as client:
        (text,) = [message.text for message in await client.session("s").messages() if message.role == "tool"]
    expected = {
        "interrupted": "execution interrupted; result unknown: interrupted",
        "crashed": "page",
        "denied": "tool denied: not now",
        "expired": "execution interrupted; result unknown: no result came in time",
        "tool gone": "execution interrupted; result unknown: unknown tool browse; available: none",
    }
    assert text == expected[how]


@pytest.mark.trio
async def test_barriers_hold_for_what_is_done_outside() -> None:
    """An exclusive tool that is done outside waits for what stands before it and holds back what stands after it."""
    desk = Desk()
    alone = tool(name="alone", outside=True, exclusive=True)(browse.function)
    script = [call("ask"), call("alone", url="a"), call("look")]
    async with engine_of(script, "done", tools=[alone, *desk.tools]) as engine:
        session = engine.session("s")
        (first,) = (await session.run("go", check=False)).waiting
        with pytest.raises(Refused):
            await session.provide("m2.1", "too early")
        async with session.resume() as turn:
            await session.provide(first, 1)
            (second,) = (await turn.result(check=False)).waiting
            assert (second.tool, desk.did) == ("alone", [])
            await session.provide(second, 2)
            await turn.result()
        assert desk.did == ["look"]
        assert result_texts(requests_of(engine)[1]) == ["1", "2", "saw"]


@pytest.mark.trio
async def test_progress_and_the_last_value() -> None:
    """An async generator tool tells all values but the last as progress, at once; the last is the result; one that
    yields nothing gives null."""
    gates = [Gate(), Gate()]

    @tool
    async def count(to: int, ctx: ToolContext[Any]) -> AsyncGenerator[object, None]:
        for at in range(to):
            yield {"at": at, "call": ctx.call_id}
            if at == 1:
                await gates[0].wait()
        if to:
            yield Output({"total": to}, text=f"counted to {to}")

    async with engine_of([call("count", to=3), call("count", to=0)], "done", tools=[count]) as engine:
        session = engine.session("s")
        told: list[object] = []
        async with session.turn("go") as turn:
            async for event in turn:
                if isinstance(event, CallProgress):
                    told.append(event.value)
                    await gates[0].reached.wait()
                    gates[0].open.set()
            result = await turn.result()
        assert told == [{"at": at, "call": "m2.0"} for at in range(3)]
        assert result_texts(requests_of(engine)[1]) == ["counted to 3", "null"]
        (first, _) = [found for message in result.messages for found in message.results]
        assert (first.value, first.text) == ({"total": 3}, "counted to 3")


@pytest.mark.trio
@pytest.mark.parametrize("how", ["interrupt", "timeout", "steer", "raise", "close"])
async def test_a_generator_that_is_ended_is_closed(how: str, autojump_clock: Clock) -> None:
    """However a generator tool ends in the middle, it is closed in its own task before the call is settled, and what it
    had yielded is no result."""
    closed: list[str] = []
    reached = trio.Event()

    @tool(timeout=60 if how == "timeout" else None, ends_on_input=how == "steer")
    async def work() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
            reached.set()
            if how == "raise":
                raise ToolError("it broke")
            await trio.sleep(1000)
            yield 3
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            closed.append("closed")

    store = MemoryStore()
    async with engine_of(call("work"), "done", tools=[work], store=store) as engine:
        engine.grace = 0
        session = engine.session("s")
        async with session.turn("go") as turn:
            await reached.wait()
            if how == "interrupt":
                await session.interrupt()
            elif how == "steer":
                await session.steer("now")
            if how != "close":
                await turn.result(check=False)
                await trio.sleep(2)
                assert closed == ["closed"]
    assert closed == ["closed"]
    settled = [event for event in await log_of(store) if isinstance(event, CallSettled)]
    expected = {
        "interrupt": "execution interrupted; result unknown: interrupted",
        "timeout": "execution interrupted; result unknown: timed out after 60 s; it may have taken effect",
        "steer": "execution interrupted; result unknown: after active input",
        "raise": "it broke",
    }
    assert [event.message.text for event in settled] == ([] if how == "close" else [expected[how]])


@pytest.mark.trio
async def test_output_for_people_and_models() -> None:
    """A tool may give the model a text and images, and people a value and an artifact; each sees its own, also
    afterwards."""
    picture = Image("data:image/png;base64,AAAA", "image/png")
    pictures: Any = [picture]

    @tool
    async def chart(kind: str) -> Output:
        return Output({"rows": [1, 2]}, text=f"a {kind} chart", images=pictures, artifact={"svg": "<svg/>"})

    @tool
    def plain() -> Output:
        return Output({"b": 1, "a": (2, 3)})

    @tool
    async def nothing() -> Output:
        return Output()

    store = MemoryStore()
    script = [[call("chart", kind="bar"), call("plain"), call("nothing")], "done"]
    async with engine_of(*script, tools=[chart, plain, nothing], store=store) as engine:
        await engine.session("s").run("go")
        assert result_texts(requests_of(engine)[1]) == ["a bar chart", '{"b":1,"a":[2,3]}', "null"]
        (shown,) = requests_of(engine)[1].messages[2].results
        assert shown.images == (picture,)
    async with Client(store) as client:
        first, second, third = (found for message in await client.session("s").messages() for found in message.results)
    assert (first.value, first.images, first.artifact) == ({"rows": [1, 2]}, (picture,), {"svg": "<svg/>"})
    assert [(found.value, found.images, found.artifact) for found in (second, third)] == [(None, (), None)] * 2


@pytest.mark.trio
@pytest.mark.parametrize("where", ["value", "artifact", "text"])
async def test_output_that_is_not_json(where: str) -> None:
    """What cannot be stored of an output is an error for the model that names the type; the turn goes on."""

    @tool
    async def odd() -> Output:
        bad: Any = asyncio.Lock()
        given: dict[str, Any] = {"value": 1, "artifact": None, "text": None} | {where: bad}
        return Output(**given)

    async with engine_of(call("odd"), "done", tools=[odd]) as engine:
        result = await engine.session("s").run("go")
        assert [found.status for found in result.calls] == ["error"]
        # A text of another type is refused when the output is made, by the tool itself.
        assert ("InvalidInput" if where == "text" else "Lock") in result_texts(requests_of(engine)[1])[0]


@pytest.mark.trio
async def test_huge_output_is_cut() -> None:
    """The limit of output holds for the text of an output and for what a generator gives."""

    @tool(output_limit=100)
    async def big() -> Output:
        return Output(text="ä" * 1000)

    @tool(output_limit=100)
    async def grow() -> AsyncGenerator[str, None]:
        yield "x" * 1000
        yield "y" * 1000

    async with engine_of([call("big"), call("grow")], "done", tools=[big, grow]) as engine:
        await engine.session("s").run("go")
        for text, letter in zip(result_texts(requests_of(engine)[1]), "äy", strict=True):
            assert len(text.encode()) < 200
            assert text.startswith(letter * 20)
            assert "characters left out" in text


@pytest.mark.trio
async def test_generators_survive_a_crash_at_each_commit() -> None:
    """Wherever the process dies, a generator tool that may run again gives its last value in the end, and one that may
    not ran at most once."""
    effects: list[str] = []

    @tool(on_crash="rerun")
    async def again() -> AsyncGenerator[str, None]:
        yield "on my way"
        effects.append("again")
        yield "done"

    @tool
    async def once() -> AsyncGenerator[str, None]:
        effects.append("once")
        yield "on my way"
        yield "done"

    agent = engine_of([call("again"), call("once")], "end", tools=[again, once]).agent
    rounds = 0
    async for crash in crashes(agent, "go"):
        effects.clear()
        result = await crash.finish()
        statuses = {found.tool: found.status for found in result.calls}
        assert (statuses["again"], effects.count("once") <= 1) == ("ok", True)
        assert statuses["once"] in ("ok", "unknown")
        assert (statuses["once"] == "ok") <= (effects.count("once") == 1)
        rounds += 1
    assert rounds > 6


@pytest.mark.trio
async def test_results_that_come_at_once() -> None:
    """Of two clients that provide a result for the same call in the same instant one is taken; the other hears it."""
    for first in range(2):
        async with engine_of(call("browse", url="a"), "done", tools=[browse]) as engine, Client(engine.store) as client:
            session = engine.session("s")
            outcomes: list[str] = []
            async with session.turn("go") as turn:
                await until_event(session, ResultRequested)
                (asked,) = await waiting(session)

                async def provide(handle: Any, value: int, asked: Any = asked, outcomes: Any = outcomes) -> None:
                    try:
                        await handle.provide(asked, value)
                        outcomes.append(str(value))
                    except Refused as error:
                        outcomes.append(error.code)

                async with trio.open_nursery() as nursery:
                    for at in (first, 1 - first):
                        nursery.start_soon(provide, (session, client.session("s"))[at], at)
                await turn.result()
            (taken,) = result_texts(requests_of(engine)[1])
            assert taken in outcomes
            assert len(set(outcomes) & {"stale", "conflict"}) == 1
