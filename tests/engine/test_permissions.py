"""What a call may reach: what its verdict gives, over approvals for the session and restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.deciding import Probe, Says, answered
from tests.engine.helpers import Gate, StrictModel, engine_of, events_of, requests_of, result_texts
from turnstate import (
    Agent,
    Allow,
    ApprovalRequested,
    Ask,
    Call,
    Deny,
    Engine,
    MemoryStore,
    Policy,
    Refused,
    SQLiteStore,
    ToolContext,
    TurnEnded,
    tool,
)
from turnstate.policy import AllowAll, PolicyContext, Verdict
from turnstate.testing import call
from turnstate_states.turn import Permissions


@pytest.mark.trio
async def test_permissions_per_policy(tmp_path: Path) -> None:
    """A call has the network and the paths that its verdict gives, none by default, and each call its own (A3, T7)."""
    probe = Probe()
    verdicts: dict[str, Verdict] = {
        "none": Allow(),
        "net": Allow(network=True),
        "path": Allow(write=[tmp_path]),
        "asked": Ask(network=True, write=["x"]),
    }
    policy = Says(lambda call: verdicts[call.arguments["what"]])
    calls = [call("it", what=what) for what in verdicts]
    async with engine_of(calls, "ok", tools=[probe.tool()], policy=policy) as engine:
        await answered(engine.session("s"))
    assert probe.seen == {
        "none": Permissions(),
        "net": Permissions(network=True),
        "path": Permissions(write=(str(tmp_path),)),
        "asked": Permissions(network=True, write=("x",)),
    }
    for every, expected in ((AllowAll(network=True, write=["y"]), Permissions(True, ("y",))), (None, Permissions())):
        async with engine_of(call("it", what="all"), "ok", tools=[probe.tool()], policy=every) as engine:
            await engine.session("s").run("go")
        assert probe.seen["all"] == expected


@pytest.mark.trio
async def test_a_denial_beats_a_grant() -> None:
    """An approval for the session does not help against a policy that denies (W6)."""
    probe, open_hours = Probe(), [True, False]
    policy = Says(lambda call: Ask() if open_hours.pop(0) else Deny("at night"))
    again = call("it", what="a")
    async with engine_of(again, "1", again, "2", tools=[probe.tool()], policy=policy) as engine:
        session = engine.session("s")
        await answered(session, for_session=True)
        await answered(session)
        assert len(await session.grants()) == 1
        assert result_texts(requests_of(engine)[3]) == ["did a", "tool denied: at night"]


async def _asked(first: Ask, then: Ask, *, what: str = "a") -> tuple[int, dict[str, Permissions]]:
    """How often a person is asked about a call of each verdict, where all are approved for the session."""
    probe, verdicts = Probe(), [first, then]
    policy = Says(lambda call: verdicts.pop(0))
    script = [call("it", what="a"), call("it", what=what), "ok"]
    async with engine_of(*script, tools=[probe.tool()], policy=policy) as engine:
        session = engine.session("s")
        await answered(session, for_session=True)
        events = await events_of(session, until=lambda event: isinstance(event, TurnEnded))
    return sum(isinstance(event, ApprovalRequested) for event in events), probe.seen


@pytest.mark.trio
async def test_what_a_grant_covers() -> None:
    """A grant covers equal arguments, or any arguments where the verdict said so (A1)."""
    assert (await _asked(Ask(), Ask()))[0] == 1
    assert (await _asked(Ask(), Ask(), what="b"))[0] == 2
    assert (await _asked(Ask(covers="tool"), Ask(), what="b"))[0] == 1


@pytest.mark.trio
async def test_a_grant_widens_nothing() -> None:
    """A call that a grant covers has what its own verdict asks for; one that asks for more is asked about (A1, A3)."""
    wide = Ask(network=True, write=["x", "y"], covers="tool")
    assert await _asked(wide, Ask(write=["y"]), what="b") == (
        1,
        {"a": Permissions(True, ("x", "y")), "b": Permissions(write=("y",))},
    )
    assert (await _asked(wide, Ask(write=["z"]), what="b"))[0] == 2
    assert (await _asked(Ask(covers="tool"), Ask(network=True), what="b"))[0] == 2
    assert (await _asked(Ask(), Ask(network=True)))[0] == 2


@pytest.mark.trio
async def test_permissions_survive_a_restart(tmp_path: Path) -> None:
    """What a verdict gave is stored: after a restart the approved call has that, if the policy of today gives as much, and
    is asked about again, with what changed, if it gives more (A5, C4)."""
    probe = Probe()
    path = tmp_path / "turns.db"
    policy = Says(lambda call: Ask("sure?", network=True, write=["x"]))
    async with engine_of(call("it", what="a"), tools=[probe.tool()], policy=policy, store=SQLiteStore(path)) as engine:
        (waiting,) = (await engine.session("s").run("go", check=False)).waiting
        assert waiting.reason == "sure?"
    more = Says(lambda call: Allow(write=["/"]))
    async with engine_of(tools=[probe.tool()], policy=more, store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            await session.approve(waiting, by="bob")
            (again,) = (await turn.result(check=False)).waiting
        assert (again.changed, again.permissions, probe.seen) == (("permissions",), Permissions(write=("/",)), {})
        with pytest.raises(Refused, match="look at the question again"):
            await session.approve(waiting)
    async with engine_of("ok", tools=[probe.tool()], policy=more, store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            await session.approve(again, by="bob")
            await turn.result()
    assert probe.seen == {"a": Permissions(write=("/",))}
    assert more.asked == ["m2.0", "m2.0"]


@pytest.mark.trio
async def test_a_rerun_keeps_its_permissions() -> None:
    """A call that runs again after a crash has what its verdict gave, whatever the policy would say now (A5)."""
    store, gate, seen = MemoryStore(), Gate(), list[Permissions]()

    @tool(on_crash="rerun")
    async def it(ctx: ToolContext[None]) -> str:
        seen.append(ctx.permissions)
        await gate.wait()
        return "did"

    first = Agent[None](StrictModel([call("it")]), tools=[it], policy=AllowAll(network=True))
    async with Engine(first, store, grace=0) as engine, engine.session("s").turn("go"):
        await gate.reached.wait()
    gate.open.set()
    policy = Says(lambda call: Allow(write=["/"]))
    async with engine_of("ok", tools=[it], policy=policy, store=store) as engine, engine.session("s").resume() as turn:
        await turn.result()
    assert (seen, policy.asked) == ([Permissions(network=True)] * 2, [])


@pytest.mark.trio
async def test_only_the_undecided_are_asked_about_again() -> None:
    """After a restart the policy is asked about calls that have no verdict yet, and once more about those that a person
    approves now (C4)."""
    store, gate = MemoryStore(), Gate()
    probe = Probe()

    class Stuck(Policy[Any]):
        async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
            if call.arguments["what"] == "b":
                await gate.wait()
            return Ask(write=["first"])

    calls = [call("it", what="a"), call("it", what="b")]
    first = Agent[None](StrictModel([calls]), tools=[probe.tool()], policy=Stuck())
    async with Engine(first, store, grace=0) as engine:
        session = engine.session("s")
        async with session.turn("go"):
            await gate.reached.wait()
            await events_of(session, until=lambda event: isinstance(event, ApprovalRequested))
    policy = Says(lambda call: Ask(write=["second" if call.arguments["what"] == "b" else "first"]))
    async with engine_of("ok", tools=[probe.tool()], policy=policy, store=store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            assert policy.asked in ([], ["m2.1"])
            await session.approve("m2.0")
            async for event in turn:
                if isinstance(event, ApprovalRequested):
                    await session.approve(event.call)
            await turn.result()
    assert sorted(policy.asked) == ["m2.0", "m2.1"]
    assert probe.seen == {"a": Permissions(write=("first",)), "b": Permissions(write=("second",))}
