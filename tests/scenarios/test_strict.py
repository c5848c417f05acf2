"""A turn over HTTP, interrupted or steered at each moment; a strict server accepts all that follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.depth import PART, pick, places
from tests.engine.test_faults import check_log
from turnstate import Agent, ApprovalRequested, Engine, Event, MemoryStore, Refused, Session, TurnEnded, tool
from turnstate.models import OpenAIChat
from turnstate.testing import StrictServer, call


@tool(approval=True)
async def pay() -> str:
    """Pay."""
    await trio.sleep(0.002)
    return "paid"


@tool(exclusive=True)
async def note() -> str:
    """Note."""
    await trio.sleep(0.002)
    return "noted"


@tool(timeout=0.005)
async def slow() -> str:
    """Take longer than it may, and return all the same."""
    try:
        await trio.sleep(1)
    finally:
        await trio.lowlevel.cancel_shielded_checkpoint()
    return "late"


def answer(body: Any) -> Any:
    """A blank text and calls, calls alone, then an empty answer's nearest: one word."""
    results = [message for message in body["messages"] if message["role"] == "tool"]
    if body["messages"][-1]["role"] == "user" and results:
        return "fine"
    steps: dict[int, Any] = {0: ["\n\n", "I look", call("pay"), call("note"), call("slow")], 3: [call("note")]}
    return steps.get(len(results), "done")


async def moment(url: str, at: int, act: Callable[[Session, list[str]], Any]) -> tuple[int, list[str], MemoryStore]:
    """Run the turn, act at its n-th event, deltas included, then say one more thing; how many events there were."""
    store, notes, count = MemoryStore(), list[str](), 0
    async with Engine(Agent(OpenAIChat("m", base_url=url), tools=[pay, note, slow]), store) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn, trio.open_nursery() as nursery:
            async for event in turn:
                count += 1
                if count == at:
                    nursery.start_soon(act, session, notes)
                if isinstance(event, ApprovalRequested):
                    nursery.start_soon(approve, session, event)
        found = await session.run("what now?", check=False)
        while found.outcome == "waiting":
            async with session.resume() as turn:
                await session.deny(*found.waiting)
                found = await turn.result(check=False)
        assert found.outcome == "completed", (at, found)
    return count, notes, store


async def approve(session: Session, event: ApprovalRequested) -> None:
    """Answer, unless it is too late."""
    try:
        await session.approve(event.call)
    except Refused:
        pass


async def interrupt(session: Session, notes: list[str]) -> None:
    """Interrupt, and note whether there was something to."""
    if await session.interrupt():
        notes.append("interrupted")


async def steer(session: Session, notes: list[str]) -> None:
    """Say a word in between."""
    await session.steer("mind the step")
    notes.append("mind the step")


def ends(events: list[Event]) -> list[str]:
    """How the turns ended."""
    return [event.outcome for event in events if isinstance(event, TurnEnded)]


@pytest.mark.trio
async def test_interrupted_at_each_moment() -> None:
    """Interrupted at any event or delta, each call has one result, and the next message is accepted (cases 35, 38, 45)."""
    async with StrictServer(answer) as server:
        count, _, store = await moment(server.url, 0, interrupt)
        assert ends(await check_log(store)) == ["completed", "completed"]
        assert count > 25
        interrupted = 0
        for at in places(count):
            _, notes, store = await moment(server.url, at, interrupt)
            interrupted += len(notes)
            assert server.refused == [], at
            # A final reply that finished in the instant of the interrupt is kept, and completes the turn.
            assert ends(await check_log(store))[0] in (("interrupted", "completed") if notes else ("completed",)), at
        assert interrupted > count // pick(2 * PART, 2)


@pytest.mark.trio
async def test_steered_at_each_moment() -> None:
    """Steered at any event or delta, the text is there once, after the results of the batch (cases 40 and 71)."""
    async with StrictServer(answer) as server:
        count, _, _ = await moment(server.url, 0, steer)
        for at in places(count):
            seen, notes, store = await moment(server.url, at, steer)
            if seen < at:
                continue  # pieces that came together are one event
            assert notes == ["mind the step"], at
            assert server.refused == [], at
            await check_log(store)
            texts = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "user"]
            assert texts.count("mind the step") == 1, at
