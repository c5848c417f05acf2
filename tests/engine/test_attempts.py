"""An attempt is sent once, and a hook and a command run once, however slowly the store answers."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.depth import counted, pick
from turnstate import Agent, Engine, MemoryStore, Middleware, Refused, Session, StepContext, command
from turnstate.middleware.base import CommandContext
from turnstate.testing import ScriptedModel


class SlowStore(MemoryStore):
    """A store that answers late, so that much happens while its driver waits for it."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def receipt(self, session: str, id: str) -> bytes | None:
        await trio.sleep(self.seconds)
        return await super().receipt(session, id)

    async def commit(self, commit: Any) -> None:
        await trio.sleep(self.seconds)
        await super().commit(commit)


class Counting(Middleware[Any]):
    """Counts what it is asked to do."""

    def __init__(self) -> None:
        self.hooks: list[tuple[str, int, int]] = []
        self.commands: list[str] = []

    async def before_model(self, ctx: StepContext[Any]) -> None:
        self.hooks.append((ctx.turn_id, ctx.step, ctx.hook_pass))
        await trio.sleep(0.003)

    @command("note", active=True)
    async def note(self, ctx: CommandContext[Any], arguments: Any) -> None:
        """Take a note."""
        self.commands.append(ctx.command_id)
        await trio.sleep(0.003)


async def annotate(session: Session, over: trio.Event) -> None:
    """Submit something with an id of its own, again and again."""
    number = 0
    while not over.is_set():
        number += 1
        try:
            await session.annotate("m1", {"number": number}, id=f"note {number}")
        except Refused:
            await trio.sleep(0.001)


@pytest.mark.trio
@pytest.mark.parametrize("seconds", [0.001, 0.002, 0.004])
async def test_nothing_is_begun_twice(seconds: float, autojump_clock: trio.testing.MockClock) -> None:
    """Under constant submissions each turn has one request, each hook runs once and each command is carried out once."""
    turns = pick(10, 60)
    counting, over = Counting(), trio.Event()
    model = ScriptedModel(lambda request: "ok", delay=0.003)
    async with Engine(Agent[Any](model, middleware=[counting]), SlowStore(seconds)) as engine:
        session = engine.session("s")
        await session.run("first")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(annotate, session, over)
            for number in range(turns):
                await session.command("note", id=f"command {number}")
                await session.run(f"message {number}")
            over.set()
    assert len(model.requests) == turns + 1
    assert len(counting.hooks) == len(set(counting.hooks)) == turns + 1
    assert counting.commands == [f"command {number}" for number in range(turns)]
    counted("turns on a slow store", turns)
