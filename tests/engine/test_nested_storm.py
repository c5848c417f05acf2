"""Agents as tools under random people, tools, models, faults of the store and restarts."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
import trio.testing

from tests.depth import counted, pick
from tests.engine.helpers import strict
from tests.engine.test_nested import WatchedStore, left_clean
from tests.engine.test_storm import Storm
from turnstate import Agent, Engine, Limits, ModelError, ModelRequest, Session, ToolContext, tool
from turnstate.reading import load, read_events
from turnstate.testing import ScriptedCall, ScriptedModel, call


class NestedStorm(Storm):
    """The same session, with agents as tools, and people who also say things to the children."""

    def make_tools(self) -> list[Any]:
        """A tool of each kind, and two agents, one of which has another one below it."""
        dice = self.dice

        @tool(approval=True, expires=dice.choice([None, 4]))
        async def pay(ctx: ToolContext[None]) -> str:
            self.ran.append(ctx.idempotency_key)
            await trio.sleep(dice.choice([0, 1, 3]))
            return "paid"

        @tool(timeout=2)
        async def look(ctx: ToolContext[None]) -> str:
            self.ran.append(ctx.idempotency_key)
            with trio.CancelScope(shield=dice.random() < 0.2):
                await trio.sleep(dice.choice([0, 1, 3, 9]))
            return "seen"

        def agent(*tools: Any) -> Agent[Any]:
            names = [item.name for item in tools]
            model = ScriptedModel(lambda request: self.say_below(request, names), delay=0.3)
            hooks = [self.make_hooks()] if dice.random() < 0.5 else []
            return Agent[Any](model, tools=tools, middleware=hooks, limits=Limits(steps=5))

        deepest = agent(pay, look).as_tool("deepest", "Helps.", timeout=dice.choice([None, 4]))
        middle = agent(pay, look, deepest).as_tool("middle", "Helps.", approval=dice.random() < 0.3)
        alone = agent(pay).as_tool("alone_with_it", "Helps alone.", exclusive=True)
        return [*super().make_tools()[1:], middle, alone]

    def say_below(self, request: ModelRequest, names: list[str]) -> Any:
        """What an agent below says: as the one above, but it comes to an end."""
        strict(request.messages)
        luck = self.dice.random()
        if luck < 0.1:
            return ModelError("busy", retryable=True)
        if luck < 0.15:
            return ModelError("bad")
        if luck < 0.6:
            return [self.call_of(self.dice.choice(names)) for _ in range(self.dice.randint(1, 2))]
        return "text"

    def call_of(self, name: str) -> Any:
        """A call with the arguments that it needs."""
        return call(name, task="x") if name in ("middle", "deepest", "alone_with_it") else call(name)

    def reply(self, request: ModelRequest) -> Any:
        """What the agent at the top says; it likes to ask those below."""
        said = super().reply(request)
        if not isinstance(said, list):
            return said
        calls = cast(list[ScriptedCall], said)
        return [self.call_of(self.dice.choice([item.tool, "middle", "alone_with_it"])) for item in calls]

    async def act(self, session: Session, text: str) -> None:
        """Do one thing that a person may do, now and then in a child."""
        engine: Engine[Any] = session._engine  # pyright: ignore[reportPrivateUsage]
        children = [info.id async for info in engine.sessions(children=True) if info.parent]
        if not children or self.dice.random() < 0.8:
            await super().act(session, text)
            return
        child = engine.session(self.dice.choice(children))
        what = self.dice.choice(["steer", "interrupt", "approve", "deny", "resume"])
        waiting = (await child.info()).waiting
        if what == "steer":
            await child.steer(text)
        elif what == "interrupt":
            await child.interrupt()
        elif what == "resume":
            async with child.resume():
                pass
        elif waiting:
            chosen = self.dice.choice(list(waiting))
            await (child.approve(chosen) if what == "approve" else child.deny(chosen))


async def check_log(store: Any, name: str) -> None:
    """A log is whole: numbers without gap, each turn, attempt and call with one start and at most one end."""
    events: list[Any] = list(await read_events(store, name, 0))
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    for begins, ends in (("TurnStarted", "TurnEnded"), ("StepStarted", "StepEnded"), ("CallProposed", "CallSettled")):
        keys = [
            [event.call.id if hasattr(event, "call") else getattr(event, "attempt", event.turn) for event in found]
            for found in ([event for event in events if type(event).__name__ == kind] for kind in (begins, ends))
        ]
        began, ended = keys
        assert len(set(began)) == len(began), name
        assert len(set(ended)) == len(ended), name
        assert set(ended) <= set(began), name


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(0, 60, 10))
async def test_storm(seed: int, autojump_clock: trio.testing.MockClock) -> None:
    """Whatever people do, the store loses and restarts cut off: nobody hangs, no message is lost or doubled, nothing in
    any child that may not run twice does, and what is over can be deleted with all its children."""
    for number in range(seed, seed + pick(2, 10)):
        counted("storms")
        storm = NestedStorm(number)
        storm.store = store = WatchedStore()
        async with left_clean(store):
            for life in range(4):
                await storm.live(life)
            await storm.drain()
        assert len(storm.ran) == len(set(storm.ran)), number
        async with Engine(storm.agent, storm.store) as engine:
            loaded = await load(storm.store, "s")
            if loaded is None:
                continue
            for name in [info.id async for info in engine.sessions(children=True)]:
                await check_log(storm.store, name)
            said = [message.text for message in loaded[1].path if message.role == "user" and message.text[0].isdigit()]
            assert len(said) == len(set(said)), number
            assert set(storm.accepted) <= set(said), number
            assert await engine.delete("s")
            assert [info.id async for info in engine.sessions(children=True)] == []
