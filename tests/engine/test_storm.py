"""Whole sessions under random people, tools, models, faults of the store and restarts."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from tests.depth import counted, pick
from tests.engine.helpers import strict
from tests.engine.test_faults import check_log
from turnstate import (
    Again,
    Agent,
    Client,
    Engine,
    Limits,
    MemoryStore,
    Middleware,
    ModelError,
    ModelRequest,
    Refused,
    Session,
    StepContext,
    StoreError,
    ToolContext,
    tool,
)
from turnstate.reading import load
from turnstate.testing import FaultyStore, ScriptedModel, call


class Storm:
    """One session and everything that happens to it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.ran: list[str] = []
        self.accepted: list[str] = []
        self.store = MemoryStore()
        self.tools = self.make_tools()
        hooks = [self.make_hooks()] if self.dice.random() < 0.5 else []
        model = ScriptedModel(self.reply, delay=0.3)
        self.agent = Agent[None](model, tools=self.tools, middleware=hooks, limits=Limits(steps=6))

    def make_tools(self) -> list[Any]:
        """A tool of each kind."""
        dice = self.dice

        @tool(approval=True)
        async def asked(ctx: ToolContext[None]) -> str:
            self.ran.append(ctx.call_id)
            await trio.sleep(dice.choice([0, 1, 3]))
            return "asked"

        @tool(exclusive=True, on_crash="rerun")
        async def alone() -> str:
            await trio.sleep(dice.choice([0, 1, 3]))
            return "alone"

        @tool(timeout=2)
        async def slow(ctx: ToolContext[None]) -> str:
            self.ran.append(ctx.call_id)
            with trio.CancelScope(shield=dice.random() < 0.3):
                await trio.sleep(dice.choice([0, 1, 3, 9]))
            return "slow"

        @tool(ends_on_input=True)
        async def wait() -> str:
            await trio.sleep(dice.choice([1, 30]))
            return "waited"

        async def check() -> str | None:
            await trio.sleep(dice.choice([0, 1]))
            return dice.choice([None, "found"])

        @tool(on_crash=check)
        async def checked() -> str:
            await trio.sleep(dice.choice([0, 2]))
            return "checked"

        return [asked, alone, slow, wait, checked]

    def make_hooks(self) -> Middleware[Any]:
        """Hooks that take time, fail and send replies back."""
        dice = self.dice

        class Hooks(Middleware[Any]):
            async def before_model(self, ctx: StepContext[Any]) -> None:
                await trio.sleep(dice.choice([0, 0, 1]))
                if dice.random() < 0.1:
                    raise ValueError

            async def after_model(self, ctx: StepContext[Any]) -> Again | None:
                await trio.sleep(dice.choice([0, 0, 1]))
                return Again("again") if dice.random() < 0.1 else None

            async def turn_ended(self, ctx: Any) -> None:
                await trio.sleep(dice.choice([0, 0, 1]))

        return Hooks()

    def reply(self, request: ModelRequest) -> Any:
        """Text, calls, or an error."""
        strict(request.messages)
        luck = self.dice.random()
        if luck < 0.15:
            return ModelError("busy", retryable=True)
        if luck < 0.2:
            return ModelError("bad")
        if luck < 0.6:
            return [call(self.dice.choice(self.tools).name) for _ in range(self.dice.randint(1, 4))]
        return "text"

    async def say(self, session: Session, text: str, what: str) -> None:
        """Send a message; the same again when it is in doubt whether it was taken."""
        for _ in range(3):
            try:
                await (session.send if what == "send" else session.steer)(text, id=text)
            except StoreError:
                continue
            self.accepted.append(text)
            return

    async def act(self, session: Session, text: str) -> None:
        """Do one thing that a person may do."""
        what = self.dice.choice(["send", "steer", "interrupt", "approve", "deny", "resume", "run", "client"])
        waiting = (await session.info()).waiting
        if what in ("send", "steer"):
            await self.say(session, text, what)
        elif what == "interrupt":
            await session.interrupt()
        elif what == "resume":
            async with session.resume() as turn:
                await turn.result(check=False)
        elif what == "run":
            async with session.turn(text, id=text) as turn:
                self.accepted.append(text)
                await turn.result(check=False)
        elif what == "client":
            async with Client(self.store) as client:
                await client.session("s").interrupt()
        elif waiting:
            chosen = self.dice.choice(list(waiting))
            await (session.approve(chosen) if what == "approve" else session.deny(chosen))

    async def person(self, session: Session, name: str) -> None:
        """Do some things."""
        for number in range(self.dice.randint(1, 5)):
            await trio.sleep(self.dice.choice([0, 0, 0.1, 1, 2]))
            try:
                await self.act(session, f"{name}.{number}")
            except (Refused, StoreError):
                pass

    async def helper(self, session: Session) -> None:
        """Answer what waits, and have what is held go on, so that nobody waits for ever."""
        while True:
            await trio.sleep(5)
            try:
                info = await session.info()
                if info.waiting:
                    await session.approve(*info.waiting)
                elif info.held:
                    await session.send("go on")
            except (Refused, StoreError):
                pass

    async def live(self, life: int) -> None:
        """One engine from beginning to end, perhaps with a commit that fails, perhaps left in the middle."""
        dice = self.dice
        fail_at = dice.choice([None, None, dice.randint(1, 20)])
        store = FaultyStore(self.store, fail_at, dice.choice(["before", "after"]))
        patience = dice.choice([2, 20, 3000])
        async with Engine(self.agent, store, grace=dice.choice([0, 1, 10])) as engine:
            session = engine.session("s")
            with trio.move_on_after(patience) as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.helper, session)
                    async with trio.open_nursery() as people:
                        for number in range(dice.randint(1, 4)):
                            people.start_soon(self.person, session, f"{life}.{number}")
                    nursery.cancel_scope.cancel()
            assert not (scope.cancelled_caught and patience == 3000), "somebody waits for ever"

    async def drain(self) -> None:
        """Let everything that was accepted come to its end."""
        async with Engine(self.agent, self.store) as engine:
            session = engine.session("s")
            for _ in range(300):
                info = await session.info()
                if not (info.unfinished or info.queued or info.held):
                    return
                try:
                    if info.waiting:
                        await session.approve(*info.waiting)
                    with trio.fail_after(3000):
                        async with session.resume() as turn:
                            await turn.result(check=False)
                except Refused:
                    await trio.sleep(1)
            raise AssertionError("it does not come to an end")


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(0, 120, 20))
async def test_storm(seed: int, autojump_clock: trio.testing.MockClock) -> None:
    """Whatever people do, the store loses and restarts cut off: nobody hangs, no message is lost or doubled, no call that
    may not run twice does, every start has one end, and every request is one that a strict provider takes."""
    for number in range(seed, seed + pick(3, 20)):
        counted("storms")
        storm = Storm(number)
        for life in range(4):
            await storm.live(life)
        await storm.drain()
        assert len(storm.ran) == len(set(storm.ran)), number
        async with storm.store:
            loaded = await load(storm.store, "s")
        if loaded is None:
            continue
        await check_log(storm.store)
        said = [message.text for message in loaded[1].path if message.role == "user" and message.text[0].isdigit()]
        assert len(said) == len(set(said)), number
        assert set(storm.accepted) <= set(said), number
