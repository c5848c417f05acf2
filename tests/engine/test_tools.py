"""Running tools."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import logging
import threading
from typing import Any, cast

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, engine_of, events_of, requests_of, result_texts, until_event
from turnstate import (
    Agent,
    CallProgress,
    CallSettled,
    CallStarted,
    Engine,
    InvalidInput,
    MemoryStore,
    StoreError,
    ToolContext,
    ToolError,
    TurnEnded,
    Usage,
    tool,
)
from turnstate.testing import ScriptedModel, call
from turnstate.threads import ThreadList

Clock = trio.testing.MockClock


async def result_of(function: Any, **options: Any) -> str:
    """What the model reads of one call of a function."""
    made = tool(name="it", **options)(function)
    async with engine_of(call("it"), "done", tools=[made]) as engine:
        assert (await engine.session("s").run("go")).text == "done"
        (text,) = result_texts(requests_of(engine)[1])
        return text


class Cyclic:
    """Not JSON."""


def _cycle() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.trio
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        ("", ""),
        (None, "null"),
        (False, "false"),
        (0, "0"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ({1: "a"}, '{"1":"a"}'),
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), '"2026-01-02T00:00:00Z"'),
        ("a\ud800b", "a\ufffdb"),
        ({"a": "\udfff"}, '{"a":"\ufffd"}'),
        ("\ud83d\ude00", "\U0001f600"),
    ],
)
@pytest.mark.parametrize("sync", [False, True])
async def test_values(value: object, text: str, sync: bool) -> None:
    """What a tool returns is told as text or JSON, lone surrogates replaced (case 87)."""

    async def give() -> object:
        return value

    assert await result_of((lambda: value) if sync else give) == text


@pytest.mark.trio
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (float("nan"), "float"),
        ({"score": float("-inf")}, "dict"),
        (Cyclic(), "Cyclic"),
        (_cycle(), "list"),
        ({"a": Cyclic()}, "dict"),
    ],
)
async def test_values_that_are_not_json(value: object, kind: str) -> None:
    """A value that is not JSON is an error result that names its type (cases 34, 87)."""

    async def give() -> object:
        return value

    assert f"the tool returned {kind}, which is not JSON" in await result_of(give)


@pytest.mark.trio
async def test_huge_result() -> None:
    """Eleven megabytes of CJK are cut on character boundaries to the limit, and the next turn works (case 97)."""

    async def much() -> str:
        return "漢" * (11 * 2**20 // 3)

    text = await result_of(much)
    assert len(text.encode()) < 40_100
    assert text.startswith("漢")
    assert text.endswith("漢")
    assert "characters left out" in text


class Unprintable(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.trio
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("too big"), "ValueError: the tool failed; the details are in the log"),
        (ValueError(), "ValueError: the tool failed; the details are in the log"),
        (ToolError("exactly this"), "exactly this"),
        (ToolError("  "), "ToolError"),
        (ExceptionGroup("g", [ValueError("one")]), "ValueError: the tool failed; the details are in the log"),
        (ExceptionGroup("g", [ToolError("one")]), "one"),
        (
            ExceptionGroup("g", [ValueError("a"), KeyError("b")]),
            "ExceptionGroup: the tool failed; the details are in the log",
        ),
        (asyncio.CancelledError(), "CancelledError: the tool failed; the details are in the log"),
        (StopIteration(), "RuntimeError: the tool failed; the details are in the log"),
        (StoreError("no route to db1"), "StoreError: the tool failed; the details are in the log"),
        (Unprintable(), "Unprintable: the tool failed; the details are in the log"),
    ],
    ids=itertools.count(),  # not from the values: a lone surrogate in an id cannot be reported
)
async def test_raising(error: BaseException, text: str) -> None:
    """What a tool raises is an error result: its type, or exactly the text of a ToolError (case 46)."""

    async def fail() -> None:
        raise error

    assert await result_of(fail) == text


@pytest.mark.trio
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("too big"), "ValueError: too big"),
        (ValueError(), "ValueError"),
        (ToolError("exactly this"), "exactly this"),
        (ExceptionGroup("g", [ValueError("one")]), "ValueError: one"),
        (ExceptionGroup("g", [ValueError("a"), KeyError("b")]), "ExceptionGroup: g (2 sub-exceptions)"),
        (StopIteration(), "RuntimeError: coroutine raised StopIteration"),
        (ValueError("\ud800"), "ValueError: \ufffd"),
        (Unprintable(), "Unprintable: (it has no text, because its __str__ failed)"),
    ],
    ids=itertools.count(),  # not from the values: a lone surrogate in an id cannot be reported
)
async def test_raising_in_words(error: BaseException, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that says so lets the model read the text of what it raises."""
    # A line of the log with a lone surrogate cannot be reported by pytest-xdist.
    monkeypatch.setattr(logging.getLogger("turnstate"), "disabled", True)

    async def fail() -> None:
        raise error

    assert await result_of(fail, errors="text") == text


def test_how_errors_are_told_is_checked() -> None:
    """What says how errors are told is one of two words."""
    with pytest.raises(InvalidInput, match="tool it: errors: expected 'type' or 'text', got 'all'"):
        tool(name="it", errors=cast(Any, "all"))(len)


@pytest.mark.trio
async def test_huge_error() -> None:
    """An error's text is cut like any output, and what the checkpoint keeps of it is short."""

    async def fail() -> None:
        raise ValueError("x" * 1_000_000)

    made = tool(name="it", errors="text")(fail)
    async with engine_of(call("it"), "done", tools=[made]) as engine:
        session = engine.session("s")
        await session.run("go")
        settled = await until_event(session, CallSettled)
        assert len(settled.message.text) < 41_000
        assert len(settled.call.reason) < 600


@pytest.mark.trio
async def test_times_out(autojump_clock: Clock) -> None:
    """A tool that hangs past its timeout is cancelled, and its outcome is unknown."""

    async def hang() -> None:
        await trio.sleep_forever()

    text = await result_of(hang, timeout=5)
    assert text == "execution interrupted; result unknown: timed out after 5 s; it may have taken effect"


@pytest.mark.trio
async def test_raises_in_cleanup(autojump_clock: Clock) -> None:
    """A tool that fails while it is cancelled has one result: unknown (case 38)."""

    async def hang() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("in cleanup")

    assert "timed out" in await result_of(hang, timeout=5)


@pytest.mark.trio
async def test_group_with_cancelled(autojump_clock: Clock) -> None:
    """A tool with tasks of its own, one of which fails while it is cancelled, is unknown and harms nobody."""

    async def fail_late() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("in cleanup")

    async def hang() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_late)
            nursery.start_soon(trio.sleep_forever)

    assert "timed out" in await result_of(hang, timeout=5)


@pytest.mark.trio
async def test_result_in_time_of_cleanup(autojump_clock: Clock) -> None:
    """A tool that still returns when it is told to end has its result kept: a known result stays known."""

    async def shielding() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(6)
        return "finished all the same"

    assert await result_of(shielding, timeout=5) == "finished all the same"


@pytest.mark.trio
async def test_shields_past_its_grace(autojump_clock: Clock) -> None:
    """A tool that shields itself past its grace is unknown, is left alone, and a later exclusive tool waits for it."""
    gate = Gate()
    order: list[str] = []

    @tool(timeout=5)
    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            await gate.wait()
        order.append("stubborn")
        return "too late"

    @tool(exclusive=True)
    async def alone() -> None:
        order.append("alone")

    async with engine_of(call("stubborn"), "one", call("alone"), "two", tools=[stubborn, alone]) as engine:
        session = engine.session("s")
        start = trio.current_time()
        await session.run("go")
        assert trio.current_time() - start == pytest.approx(10, abs=0.1)
        assert "timed out" in result_texts(requests_of(engine)[1])[0]
        await trio.sleep(100)
        async with session.turn("go") as turn:
            await until_event(session, CallStarted, after=(await session.info()).queued)
            await trio.sleep(100)
            assert order == []
            gate.open.set()
            await turn.result()
        assert order == ["stubborn", "alone"]
        results = await events_of(session, until=lambda e: isinstance(e, TurnEnded) and e.turn == "t2")
        assert len([e for e in results if isinstance(e, CallSettled) and e.call.tool == "stubborn"]) == 1


@pytest.mark.trio
async def test_shields_when_interrupted(autojump_clock: Clock) -> None:
    """An interrupt waits the grace of a tool that shields itself, and no longer."""

    @tool
    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)

    async with engine_of(call("stubborn"), "next", tools=[stubborn]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await until_event(session, CallStarted)
            start = trio.current_time()
            await session.interrupt()
            result = await turn.result(check=False)
            assert trio.current_time() - start == pytest.approx(5, abs=0.2)
        assert result.calls[0].status == "unknown"
        assert (await session.run("hi")).text == "next"


@pytest.mark.trio
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("how", ["alone", "group", "thread"])
async def test_keyboard_interrupt(kind: type[BaseException], how: str) -> None:
    """KeyboardInterrupt and SystemExit are no result: they reach the host as one exception."""

    async def stop() -> None:
        raise kind

    async def both() -> None:
        raise BaseExceptionGroup("g", [ValueError(), kind()])

    def sync() -> None:
        raise kind

    made = tool(name="it")({"alone": stop, "group": both, "thread": sync}[how])
    store = MemoryStore()
    with pytest.raises(kind):
        async with engine_of(call("it"), tools=[made], store=store) as engine:
            await engine.session("s").run("go")
    async with engine_of("after", store=store, tools=[made]) as engine, engine.session("s").resume() as turn:
        assert (await turn.result()).calls[0].status == "unknown"


@pytest.mark.trio
async def test_sync_progress() -> None:
    """A sync function tells its progress from its thread, and knows where it runs."""
    threads: list[int] = []

    @tool
    def work(ctx: ToolContext[None], n: int) -> int:
        threads.append(threading.get_ident())
        for i in range(n):
            ctx.progress(i)
        return n

    async with engine_of(call("work", n=3), "done", tools=[work]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            told = [event.value async for event in turn if isinstance(event, CallProgress)]
            assert told == [0, 1, 2]
        assert threads != [threading.get_ident()]
        assert "ctx" not in work.parameters["properties"]


@pytest.mark.trio
async def test_sync_timeout_abandons() -> None:
    """A thread past its timeout is abandoned at once, listed, told by ctx.cancelled, and waited for at close."""
    release = threading.Event()
    cancelled: list[bool] = []

    @tool(timeout=0.05)
    def hang(ctx: ToolContext[None]) -> None:
        release.wait(20)
        cancelled.append(ctx.cancelled)
        ctx.progress("late")

    async with engine_of(call("hang"), "done", tools=[hang]) as engine:
        session = engine.session("s")
        assert (await session.run("go")).calls[0].status == "unknown"
        assert engine.threads.running == ["hang (s/m2.0)"]
        release.set()
    assert cancelled == [True]
    assert not engine.threads.running


@pytest.mark.trio
async def test_thread_that_never_ends(caplog: pytest.LogCaptureFixture) -> None:
    """A thread that does not end within the grace of closing is named in a warning."""
    release = threading.Event()

    @tool(timeout=0.01)
    def hang(ctx: ToolContext[None]) -> None:
        release.wait(20)
        ctx.progress("nobody listens")

    engine = engine_of(call("hang"), "done", tools=[hang])
    engine.grace = 0.05
    with caplog.at_level(logging.WARNING, "turnstate"):
        async with engine:
            await engine.session("s").run("go")
    assert "hang (s/m2.0)" in caplog.text
    release.set()
    while engine.threads.running:  # noqa: ASYNC110 - a thread cannot set an event
        await trio.sleep(0.001)


@pytest.mark.trio
async def test_interrupt_abandons_thread() -> None:
    """An interrupt does not wait for a thread."""
    started, release = threading.Event(), threading.Event()

    @tool
    def hang() -> None:
        started.set()
        release.wait(20)

    async with engine_of(call("hang"), tools=[hang]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await trio.to_thread.run_sync(started.wait)
            await session.interrupt()
            assert (await turn.result(check=False)).calls[0].status == "unknown"
        release.set()


@pytest.mark.trio
async def test_barriers() -> None:
    """Calls before an exclusive one overlap and end before it; those after it begin when it has ended."""
    running: set[str] = set()
    log: list[tuple[str, frozenset[str]]] = []
    both = trio.Event()

    async def body(name: str) -> str:
        running.add(name)
        log.append((name, frozenset(running)))
        if {"a", "b"} <= running:
            both.set()
        if name in "ab":
            await both.wait()
        await trio.testing.wait_all_tasks_blocked()
        running.discard(name)
        return name

    @tool
    async def par(name: str) -> str:
        return await body(name)

    @tool(exclusive=True)
    async def alone(name: str) -> str:
        return await body(name)

    calls = [call("par", name="a"), call("par", name="b"), call("alone", name="x"), call("alone", name="y")]
    async with engine_of([*calls, call("par", name="c")], "done", tools=[par, alone]) as engine:
        await engine.session("s").run("go")
        assert result_texts(requests_of(engine)[1]) == ["a", "b", "x", "y", "c"]
    assert [name for name, _ in log][2:] == ["x", "y", "c"]
    assert [seen for name, seen in log if name in "xyc"] == [frozenset("x"), frozenset("y"), frozenset("c")]
    assert {name for name, _ in log[:2]} == {"a", "b"}


@pytest.mark.trio
async def test_undecided_exclusive_holds_back_what_follows() -> None:
    """An exclusive call that waits for a person holds back what follows it, and not what stands before it."""
    done: list[str] = []

    @tool
    async def par(name: str) -> None:
        done.append(name)

    @tool(exclusive=True, approval=True)
    async def alone() -> None:
        done.append("alone")

    calls = [call("par", name="a"), call("alone"), call("par", name="b")]
    async with engine_of(calls, "ok", tools=[par, alone]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            (waiting,) = (await turn.result(check=False)).waiting
            assert done == ["a"]
            await session.approve(waiting)
            await turn.result()
        assert done == ["a", "alone", "b"]


@pytest.mark.trio
async def test_ends_on_input() -> None:
    """A call that only waits ends when a steer comes, and the model reads both."""
    gate = Gate()

    @tool(ends_on_input=True)
    async def wait() -> None:
        await gate.wait()

    async with engine_of(call("wait"), "ok", tools=[wait]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await gate.reached.wait()
            await session.steer("now")
            await turn.result()
        assert "after active input" in result_texts(requests_of(engine)[1])[0]
        assert requests_of(engine)[1].messages[-1].text == "now"


async def crash_in(made: Any, store: MemoryStore) -> None:
    """Leave a session in the middle of a call that hangs, as a crash would."""
    engine = engine_of(call("it"), tools=[made], store=store)
    engine.grace = 0
    async with engine, engine.session("s").turn("go"):
        await until_event(engine.session("s"), CallStarted)
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.trio
@pytest.mark.parametrize(
    ("on_crash", "status", "runs"),
    [
        ("report", "unknown", 1),
        ("rerun", "ok", 2),
        ("found", "ok", 1),
        ("empty", "ok", 1),
        ("nothing", "ok", 2),
        ("fails", "unknown", 1),
        ("cancelled", "unknown", 1),
    ],
)
async def test_on_crash(on_crash: str, status: str, runs: int) -> None:
    """After a crash a started call is unknown, runs again with the same key, or is looked for, as its tool declares."""
    keys: list[str] = []

    async def check(ctx: ToolContext[None]) -> str | None:
        assert ctx.call_id == "m2.0"
        if on_crash == "fails":
            raise ValueError
        if on_crash == "cancelled":
            raise asyncio.CancelledError
        return {"found": "it was done", "empty": ""}.get(on_crash)

    async def it(ctx: ToolContext[None]) -> str:
        keys.append(ctx.idempotency_key)
        if len(keys) == 1:
            await trio.sleep_forever()
        return "done again"

    made = tool(on_crash=check if on_crash not in ("report", "rerun") else on_crash)(it)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    store = MemoryStore()
    await crash_in(made, store)
    async with engine_of("on", tools=[made], store=store) as engine, engine.session("s").resume() as turn:
        result = await turn.result()
        assert result.calls[0].status == status
        expected = {"found": "it was done", "empty": "", "rerun": "done again", "nothing": "done again"}
        if on_crash in expected:
            assert result_texts(requests_of(engine)[0]) == [expected[on_crash]]
    assert len(keys) == runs
    assert len(set(keys)) == 1
    assert keys[0].endswith("/m2.0")


@pytest.mark.trio
async def test_check_that_hangs(autojump_clock: Clock) -> None:
    """A check that hangs past the tool's timeout leaves the outcome unknown; one without is ended by an interrupt."""

    async def check() -> None:
        await trio.sleep_forever()

    async def it() -> None:
        await trio.sleep_forever()

    store = MemoryStore()
    slow = tool(on_crash=check)(it)
    await crash_in(slow, store)
    async with engine_of("on", tools=[slow], store=store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            await trio.sleep(100)
            await session.interrupt()
            assert (await turn.result(check=False)).calls[0].status == "unknown"
    store = MemoryStore()
    limited = tool(on_crash=check, timeout=1000)(it)
    await crash_in(limited, store)
    async with engine_of("on", tools=[limited], store=store) as engine, engine.session("s").resume() as turn:
        assert (await turn.result(check=False)).calls[0].status == "unknown"


@pytest.mark.trio
async def test_predicate_and_failing_predicate() -> None:
    """approval may be a predicate of the arguments; one that fails asks a person."""
    done: list[int] = []

    def large(amount: int) -> bool:
        return 10 // amount < 5

    @tool(approval=large)
    async def pay(amount: int) -> None:
        done.append(amount)

    async with engine_of([call("pay", amount=1), call("pay", amount=9), call("pay", amount=0)], "ok", tools=[pay]) as e:
        result = await e.session("s").run("go", check=False)
        assert done == [1]
        assert [c.status for c in result.calls] == ["ok", "asked", "asked"]
        assert "ZeroDivisionError" in result.calls[2].reason


@pytest.mark.trio
async def test_cancelled_before_a_thread_was_free() -> None:
    """A function that waits for a free thread when its turn is interrupted never runs, and is not listed."""
    started, release = threading.Event(), threading.Event()
    ran: list[str] = []

    @tool
    def work(name: str) -> None:
        ran.append(name)
        started.set()
        release.wait(20)

    async with engine_of([call("work", name="a"), call("work", name="b")], tools=[work]) as engine:
        engine.threads = ThreadList(pool=0, own=1)
        session = engine.session("s")
        async with session.turn("go") as turn:
            await trio.to_thread.run_sync(started.wait)
            await trio.testing.wait_all_tasks_blocked()
            assert len(engine.threads.running) == 1
            await session.interrupt()
            result = await turn.result(check=False)
            assert sorted(call.status for call in result.calls) == ["not-run", "unknown"]
        assert len(engine.threads.running) == 1
        release.set()
    assert len(ran) == 1


@pytest.mark.trio
async def test_second_interrupt_of_the_host_while_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C while the engine waits for its tools ends the wait: they are cancelled, and it passes as it is."""
    gate = Gate()
    ended: list[bool] = []

    @tool
    async def slow() -> None:
        try:
            await gate.wait()
        finally:
            ended.append(True)

    engine = engine_of(call("slow"), tools=[slow])

    async def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "_all_gone", interrupted)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the block is what is tested
        async with engine:
            await engine.session("s").send("go")
            await gate.reached.wait()
    assert ended == [True]


async def test_what_a_stopped_tool_used_counts() -> None:
    """Case 91: what a tool counted for a model of its own is kept when its call is interrupted, and told once."""
    began = trio.Event()

    @tool
    async def ask_another(ctx: ToolContext) -> str:
        """Ask another model."""
        ctx.count_usage("another", Usage(input=7, output=2))
        began.set()
        await trio.sleep_forever()

    agent = Agent(ScriptedModel([call("ask_another")]), tools=[ask_another])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("a")
        async with session.turn("go") as turn:
            await began.wait()
            await session.interrupt()
            result = await turn.result(check=False)
        info = await session.info()
    assert result.outcome == "interrupted"
    assert info.usage.input is not None
    assert result.usage.input is not None
    assert (result.usage.input >= 7, info.usage) == (True, result.usage)


@pytest.mark.trio
async def test_a_result_says_whether_it_is_json() -> None:
    """What a tool gave as a value is marked as JSON; text that looks like it, and what was cut, is not."""
    values: dict[str, Any] = {"value": {"a": 1}, "number": 1, "text": '{"a": 1}', "long": ["x"] * 40}

    @tool(output_limit=100)
    async def give(what: str) -> Any:
        return values[what]

    calls = [call("give", what=name) for name in values]
    async with engine_of(calls, "done", tools=[give]) as engine:
        result = await engine.session("s").run("go")
    marked = [part.json for message in result.messages for part in message.results]
    assert marked == [True, True, False, False]
