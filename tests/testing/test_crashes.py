"""turnstate.testing.crashes: one turn, killed at each of its commits."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from turnstate import (
    Agent,
    Call,
    Engine,
    InvalidInput,
    ModelError,
    SessionInfo,
    SQLiteStore,
    Store,
    StoreError,
    ToolContext,
    TurnFailed,
    tool,
)
from turnstate.testing import CrashRun, ScriptedModel, call, crashes

Clock = trio.testing.MockClock


@pytest.mark.trio
async def test_charges_once() -> None:
    """Program 11: a tool's effect happens at most once, wherever the turn dies."""
    charged: list[int] = []

    @tool
    async def charge(amount: int) -> str:
        charged.append(amount)
        return "ok"

    agent = Agent(ScriptedModel([call("charge", amount=5), "done"]), tools=[charge])
    seen: list[tuple[str, int]] = []
    async for crash in crashes(agent, "go"):
        charged.clear()
        result = await crash.finish()
        assert len(charged) <= 1, crash.at
        assert result.text == "done"
        seen.append((crash.at, len(charged)))
    assert seen == [
        ("before commit 1: TurnStarted, StepStarted", 1),
        ("after commit 1: TurnStarted, StepStarted", 1),
        ("before commit 2: StepEnded, Replied, CallProposed charge, CallStarted charge", 1),
        ("after commit 2: StepEnded, Replied, CallProposed charge, CallStarted charge", 0),
        ("before commit 3: CallSettled charge, StepStarted", 1),
        ("after commit 3: CallSettled charge, StepStarted", 1),
        ("before commit 4: StepEnded, Replied, TurnEnded", 1),
        ("after commit 4: StepEnded, Replied, TurnEnded", 1),
    ]


async def outcomes(agent: Agent[Any], **more: Any) -> list[tuple[CrashRun, str]]:
    """Each round with the text of its result."""
    return [(crash, (await crash.finish()).text) async for crash in crashes(agent, "go", **more)]


@pytest.mark.trio
async def test_an_effect_that_repeats_is_found() -> None:
    """A tool that wrongly says that it may run again is caught charging twice, since nothing hides what ran before."""
    charged: list[str] = []

    @tool(on_crash="rerun")
    async def charge() -> str:
        charged.append("charge")
        return "ok"

    counts: list[int] = []
    async for crash in crashes(Agent(ScriptedModel([call("charge"), "done"]), tools=[charge]), "go"):
        charged.clear()
        await crash.finish()
        counts.append(len(charged))
    assert max(counts) == 2


@pytest.mark.trio
async def test_a_function_in_a_thread() -> None:
    """What a plain function does in its thread belongs to its own round, though nobody can end a thread."""
    charged: list[str] = []

    @tool
    def charge() -> str:
        time.sleep(0.1)
        charged.append("charge")
        return "ok"

    counts: list[int] = []
    async for crash in crashes(Agent(ScriptedModel([call("charge"), "done"]), tools=[charge]), "go"):
        charged.clear()
        await crash.finish()
        counts.append(len(charged))
    assert max(counts) == 1


@pytest.mark.trio
async def test_unknown_is_told() -> None:
    """A call that may have begun when the process died is unknown to the model of the next one."""

    @tool
    async def pay() -> str:
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), "done"]), tools=[pay])
    read: dict[str, str] = {}
    async for crash in finished(agent):
        model = crash.agent.model
        assert isinstance(model, ScriptedModel)
        read[crash.at] = model.shown()[-1][1] if model.requests else ""
    unknown = [at for at, text in read.items() if text == "execution interrupted; result unknown: after restart"]
    assert [at.partition(":")[0] for at in unknown] == ["after commit 2", "before commit 3"]


async def finished(agent: Agent[Any], **more: Any) -> AsyncGenerator[CrashRun]:
    """Each round once it is over."""
    async for crash in crashes(agent, "go", **more):
        await crash.finish()
        yield crash


def is_payment(found: Call) -> bool:
    """An answer by what is asked."""
    return found.tool == "pay"


@pytest.mark.trio
@pytest.mark.parametrize(
    ("approve", "text"), [(True, ["paid"]), (False, ["tool denied: the user declined"]), (is_payment, ["paid"])]
)
async def test_approvals(approve: bool | Callable[[Call], bool], text: list[str]) -> None:
    """What waits for a person is answered as told, also in a round that dies while it waits or in the answer."""
    paid: list[str] = []

    @tool(approval=True)
    async def pay() -> str:
        paid.append("paid")
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), "done"]), tools=[pay])
    died: list[str] = []
    async for crash in crashes(agent, "go", approve=approve):
        paid.clear()
        assert (await crash.finish()).text == "done"
        assert len(paid) <= len([line for line in text if line == "paid"])
        model = crash.agent.model
        assert isinstance(model, ScriptedModel)
        results = [said for role, said in model.shown() if role == "tool"] if model.requests else text
        assert results in (text, ["execution interrupted; result unknown: after restart"], [])
        died.append(crash.at)
    assert any("CallAnswered pay" in at for at in died)


@pytest.mark.trio
async def test_retries_and_script(autojump_clock: Clock) -> None:
    """A list script starts anew in each round, repeats a reply that the crash lost, and never an exception."""
    agent = Agent(ScriptedModel([ModelError("busy", retryable=True), "done"]))
    found = await outcomes(agent)
    assert {text for _, text in found} == {"done"}
    assert any("Retrying" in crash.at for crash, _ in found)
    assert isinstance(agent.model, ScriptedModel)
    assert agent.model.requests == []


@pytest.mark.trio
async def test_own_store_and_deps(tmp_path: Path) -> None:
    """Stores and dependencies may be given; each round has a store of its own, and deps are made for each process."""
    stores: list[SQLiteStore] = []
    made: list[str] = []

    def store() -> SQLiteStore:
        stores.append(SQLiteStore(tmp_path / f"{len(stores)}.db"))
        return stores[-1]

    def deps(info: SessionInfo) -> int:
        made.append(info.id)
        return len(made)

    @tool
    async def look(ctx: ToolContext[int]) -> int:
        return ctx.deps

    agent = Agent[int](ScriptedModel([call("look"), "done"]), tools=[look])
    found = await outcomes(agent, store=store, deps=deps)
    assert len(stores) == len(found) == 8
    assert all(crash.died for crash, _ in found)
    assert found[0][0].store is stores[0]
    assert set(made) == {"crashes"}


@pytest.mark.trio
async def test_die_and_look() -> None:
    """A round may be stopped where it died, to look at what is stored; not finishing one is fine."""

    @tool
    async def pay() -> str:
        return "paid"

    states: list[str] = []
    words = ""
    async for crash in crashes(Agent(ScriptedModel([call("pay"), "done"]), tools=[pay]), "go"):
        assert crash.at.endswith(("1", "2", "3", "4"))
        if len(states) < 3:
            await crash.die()
        async with crash.store:
            states.append(", ".join(found.state for found in await crash.store.sessions()))
        await crash.die()
        words = repr(crash)
    assert states[:3] == ["", "streaming", "streaming"]
    assert len(states) == 8
    assert words == "<CrashRun after commit 4: StepEnded, Replied, TurnEnded>"


@pytest.mark.trio
async def test_a_failure_is_raised() -> None:
    """A turn that does not complete raises, so that a script that is used up cannot look like success."""
    agent = Agent(ScriptedModel([]))
    with pytest.raises(TurnFailed, match="the script has no reply"):
        await outcomes(agent)
    async for crash in crashes(agent, "go"):
        assert (await crash.finish(check=False)).outcome == "failed"


@pytest.mark.trio
async def test_words_are_bounded() -> None:
    """However much a commit tells, where it died stays one short line."""

    @tool
    async def note() -> str:
        return "noted"

    agent = Agent(ScriptedModel([[call("note")] * 50, "done"]), tools=[note])
    async for crash in finished(agent):
        assert len(crash.at) <= 200
        assert "\n" not in crash.at


@pytest.mark.trio
async def test_limit_and_bad_arguments() -> None:
    """Bad arguments are refused at once, a turn without end in the loop."""
    agent = Agent(ScriptedModel(lambda request: call("again")))
    rounds = crashes(agent, "go", limit=3)
    for _ in range(6):
        await (await anext(rounds)).die()
    with pytest.raises(AssertionError, match="more than 3 commits"):
        await anext(rounds)
    bad: dict[str, Any] = {"store": SQLiteStore("x"), "approve": "yes", "limit": 0}
    for name, value in bad.items():
        with pytest.raises(InvalidInput, match=name):
            crashes(agent, "go", **{name: value})
    nobody: Any = "agent"
    with pytest.raises(InvalidInput, match="agent"):
        crashes(nobody, "go")


@pytest.mark.trio
async def test_another_error_of_the_store_passes(tmp_path: Path) -> None:
    """A store that fails by itself is not taken for the crash."""
    agent = Agent(ScriptedModel(["done"]))
    crash = await anext(crashes(agent, "go", store=lambda: SQLiteStore(tmp_path / "no" / "x.db")))
    with pytest.raises(StoreError, match="does not exist"):
        await crash.finish()


@pytest.mark.trio
async def test_leaving_the_loop() -> None:
    """Breaking out of the loop leaves nothing behind, in a nursery or out of it (case 109)."""
    agent = Agent(ScriptedModel(["done"]))
    stores: list[Store] = []
    async with trio.open_nursery():
        async for crash in crashes(agent, "go"):
            await crash.finish()
            stores.append(crash.store)
            break
    async with Engine(agent, stores[0]) as engine:
        assert (await engine.session("crashes").info()).outcome == "completed"


@pytest.mark.trio
async def test_the_commits_of_an_agent_below_count_as_well() -> None:
    """A turn with an agent as a tool dies at each commit of both sessions, up to the end of the one above."""
    words: list[str] = []

    inner = Agent(ScriptedModel(lambda request: "found"))
    model = ScriptedModel([call("find", task="look"), "done"])
    async for crash in crashes(Agent(model, tools=[inner.as_tool("find", "Finds.")]), "go"):
        result = await crash.finish()
        assert result.text == "done"
        words.append(crash.at)
    assert sum("TurnEnded" in word for word in words) == 4
    assert words[-1].endswith("TurnEnded")
