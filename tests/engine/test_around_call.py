"""The hook around a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from turnstate import Agent, Call, Engine, MemoryStore, Middleware, ToolContext, ToolError, tool
from turnstate.testing import ScriptedModel, call

Run = Callable[[], Awaitable[Any]]
log: list[str] = []


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    log.append("add")
    return a + b


@tool
def halve(a: int) -> float:
    """Halve a number, in a thread."""
    return a / 2


class Named(Middleware[None]):
    """Notes when it was around a call."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def around_call(self, ctx: ToolContext[None], call: Call, run: Run, /) -> Any:
        log.append(f"{self.name} before {call.tool}{dict(call.arguments)} {ctx.call_id}")
        value = await run()
        log.append(f"{self.name} after")
        return value


class Doubled(Middleware[None]):
    """Doubles each result."""

    async def around_call(self, ctx: ToolContext[None], call: Call, run: Run, /) -> Any:
        return 2 * await run()


class Refusing(Middleware[None]):
    """Does not run the call."""

    async def around_call(self, ctx: ToolContext[None], call: Call, run: Run, /) -> Any:
        raise ToolError("not today")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()


async def results(*middleware: Middleware[None]) -> list[tuple[str, str]]:
    """The statuses and texts of an addition and a halving under some middleware."""
    model = ScriptedModel([[call("add", a=1, b=2), call("halve", a=5)], "done"])
    agent = Agent(model, tools=[add, halve], middleware=middleware)
    async with Engine(agent, MemoryStore()) as engine:
        result = await engine.session("a").run("go")
        shown = await engine.session("a").messages()
    assert result.outcome == "completed"
    return [(part.status, part.text) for message in shown for part in message.results]


async def test_middleware_is_around_each_call_in_order() -> None:
    """The first middleware is outermost, each sees the call, and the tool runs once in the middle."""
    await results(Named("first"), Named("second"))
    around_add = [line for line in log if "halve" not in line][:5]
    assert log.count("add") == 1
    assert around_add[0] == "first before add{'a': 1, 'b': 2} m2.0"
    assert sum("before" in line for line in log) == sum("after" in line for line in log) == 4


async def test_middleware_may_change_a_result() -> None:
    """What a middleware returns is the call's result, for async functions and for those in threads."""
    assert await results(Doubled()) == [("ok", "6"), ("ok", "5.0")]


async def test_middleware_may_keep_a_call_from_running() -> None:
    """A middleware that raises in place of running the call settles it as an error, and the tool does not run."""
    assert await results(Refusing()) == [("error", "not today"), ("error", "not today")]
    assert log == []
