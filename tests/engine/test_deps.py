"""What a host gives its tools and hooks: made when a turn begins or goes on, never the model's business."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.helpers import engine_of, requests_of
from turnstate import (
    Agent,
    AsDeclared,
    Call,
    Engine,
    InvalidInput,
    MemoryStore,
    Policy,
    SessionInfo,
    ToolContext,
    TurnFailed,
    tool,
)
from turnstate.policy import PolicyContext, Verdict
from turnstate.testing import ScriptedModel, call


class Deps:
    """A factory that fails as long as it is told to."""

    def __init__(self, *, works: int = 0) -> None:
        self.works = works
        self.made = 0

    def __call__(self, info: SessionInfo) -> int:
        self.made += 1
        if self.made > self.works:
            raise OSError("secret database")
        return self.made


class Asked(Policy[Any]):
    """Decides as declared, in its own words."""

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        return ctx.declared


@tool
async def it(ctx: ToolContext[int]) -> int:
    """Give the number."""
    return ctx.deps


async def checked(ctx: ToolContext[int]) -> str | None:
    """Look whether it happened."""
    return None


def agent(model: ScriptedModel, *, policy: Policy[Any] | None = None, **options: Any) -> Agent[int]:
    """An agent with the tool."""
    made = tool(it.function, **options)
    return Agent[int](model, tools=[made], middleware=[], policy=policy)


@pytest.mark.trio
async def test_deps_that_fail_at_the_beginning() -> None:
    """Where deps fail when the turn begins, it fails with their error before anything is asked of the model."""
    model = ScriptedModel([call("it"), "ok"])
    async with Engine(agent(model), MemoryStore(), deps=Deps()) as engine:
        with pytest.raises(TurnFailed, match="deps failed: OSError; the details are in the log") as raised:
            await engine.session("s").run("go")
        assert raised.value.result.error is not None
        assert raised.value.result.error.kind == "hook"
        assert isinstance(raised.value.__cause__, Exception)
        assert isinstance(raised.value.__cause__.__cause__, OSError)
    assert model.requests == []


@pytest.mark.trio
@pytest.mark.parametrize("policy", [AsDeclared(), Asked()], ids=["declared", "policy"])
async def test_deps_that_fail_after_a_pause(policy: Policy[Any]) -> None:
    """Where deps fail when a turn goes on in another engine, the call is not run, the turn fails, and the model never
    reads why."""
    store = MemoryStore()
    async with Engine(
        agent(ScriptedModel([call("it")]), approval=True, policy=policy), store, deps=Deps(works=9)
    ) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
    model = ScriptedModel(["done"])
    async with Engine(agent(model, approval=True, policy=policy), store, deps=Deps()) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            await session.approve(asked)
            with pytest.raises(TurnFailed, match="deps failed: OSError; the details are in the log"):
                await turn.result()
        result = await turn.result(check=False)
        assert [used.status for used in result.calls] == ["not-run"]
    mended = Engine(agent(model, approval=True, policy=policy), store, deps=Deps(works=9))
    async with mended as engine, engine.session("s").resume() as turn:
        assert (await turn.result()).text == "done"
    said = "".join(text for _, text in model.shown())
    assert "not run" in said
    assert "secret" not in said
    assert "deps" not in said


@pytest.mark.trio
async def test_deps_that_give_a_coroutine() -> None:
    """deps whose result would have to be awaited fail the turn in words, instead of reaching a tool."""

    async def fetch() -> int:
        return 1

    async with Engine(agent(ScriptedModel(["x"])), MemoryStore(), deps=lambda info: fetch()) as engine:  # type: ignore[arg-type,return-value]
        with pytest.raises(TurnFailed, match="async function is not supported"):
            await engine.session("s").run("go")


async def fetch(info: SessionInfo) -> int:
    """An async factory."""
    return 1


def two(info: SessionInfo, more: int) -> int:
    """A factory of two things."""
    return more


WRONG: dict[str, Any] = {
    "an async function": fetch,
    "a mapping": {"a": 1},
    "a value": 3,
    "a text": "deps",
    "no parameter": lambda: 1,
    "two parameters": two,
}


@pytest.mark.parametrize("what", WRONG)
def test_deps_that_cannot_work(what: str) -> None:
    """deps that are no plain function of one SessionInfo are refused when the engine is made."""
    with pytest.raises(InvalidInput, match=r"^deps: "):
        Engine(agent(ScriptedModel([])), MemoryStore(), deps=WRONG[what])


def test_instructions_that_are_no_text() -> None:
    """Instructions that are a function say what to do instead."""
    wrong: Any = lambda: "Be brief."  # noqa: E731
    with pytest.raises(InvalidInput, match=r"^instructions: .*before_model"):
        Agent(ScriptedModel([]), instructions=wrong)


@pytest.mark.trio
async def test_no_deps() -> None:
    """Without deps, ctx.deps is None."""
    async with engine_of(call("it"), "done", tools=[it]) as engine:
        await engine.session("s").run("go")
        assert requests_of(engine)[1].messages[-1].text == "null"
