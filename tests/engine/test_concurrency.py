"""Many sessions at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.depth import pick
from tests.engine.helpers import StrictModel
from turnstate import Agent, Engine, MemoryStore, Refused, SQLiteStore, Store, TurnEnded, tool
from turnstate.testing import call

MANY = pick(60, 200)


@pytest.mark.trio
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_many_sessions(kind: str, tmp_path: Path) -> None:
    """Many sessions run at once in one engine, each with its own history."""
    store: Store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "turns.db")

    @tool
    async def echo(text: str) -> str:
        await trio.lowlevel.checkpoint()
        return text

    def reply(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return f"done {request.session}"
        return [call("echo", text=request.session), call("echo", text="x")]

    results: dict[str, str] = {}
    async with Engine(Agent(StrictModel(reply), tools=[echo]), store) as engine:

        async def one(name: str) -> None:
            for _ in range(2):
                results[name] = (await engine.session(name).run(f"I am {name}")).text

        async with trio.open_nursery() as nursery:
            for number in range(MANY):
                nursery.start_soon(one, f"s{number}")
        assert results == {f"s{n}": f"done s{n}" for n in range(MANY)}
        assert len([info async for info in engine.sessions()]) == MANY
        assert len([m for m in await engine.session("s7").messages() if m.text == "s7"]) == 2


@pytest.mark.trio
async def test_storm_in_one_session() -> None:
    """A storm of messages, steers, interrupts and resumptions in one session loses nothing: each is delivered once or
    waits, and the log is in order (case 113)."""
    model = StrictModel(lambda request: "ok")
    accepted: list[str] = []
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")

        async def sender(number: int) -> None:
            for count in range(5):
                text = f"text {number}.{count};"
                try:
                    await (session.send(text) if number % 2 else session.steer(text))
                    accepted.append(text)
                except Refused as refused:
                    if refused.code != "full":
                        raise
                if count % 3 == 2:
                    await session.interrupt()

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(sender, number)
        for _ in range(1000):
            info = await session.info()
            if not info.queued and not info.unfinished:
                break
            if info.held:
                async with session.resume() as turn:
                    await turn.result(check=False)
            else:
                async with session.events(after=0) as stream:
                    async for event in stream:
                        if isinstance(event, TurnEnded):
                            break
        said = [message.text for message in await session.messages() if message.role == "user"]
    assert sorted(said) == sorted(accepted)


@pytest.mark.trio
async def test_drivers_that_come_and_go() -> None:
    """Messages that arrive while an idle driver is about to leave are never lost."""
    async with Engine(Agent(StrictModel(lambda request: "ok")), MemoryStore()) as engine:
        engine.linger = 0.0
        session = engine.session("s")

        async def sender(delays: int) -> None:
            for _ in range(40):
                await session.run("go")
                for _ in range(delays):
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for delays in range(6):
                nursery.start_soon(sender, delays)
        assert len(await session.messages()) == 2 * 6 * 40
