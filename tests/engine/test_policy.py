"""Policies: who decides on calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import turnstate.policy
from tests.engine.deciding import Probe, Says, answered
from tests.engine.helpers import Gate, StrictModel, engine_of, events_of, requests_of, result_texts
from turnstate import (
    Agent,
    Allow,
    AsDeclared,
    Ask,
    Call,
    CallStarted,
    Deny,
    Engine,
    InvalidInput,
    MemoryStore,
    Policy,
    TurnEnded,
    Usage,
    Warned,
)
from turnstate.policy import AllowAll, AskAll, PolicyContext, Rule, Rules, Verdict
from turnstate.stores import StoredCommit
from turnstate.testing import ScriptedModel, call
from turnstate_states.codec import decode_checkpoint
from turnstate_states.turn import Permissions


def is_b(what: str) -> bool:
    """A predicate."""
    return what == "b"


def fails(what: str) -> bool:
    """A predicate that raises."""
    raise ValueError(what)


async def fate(policy: Policy[Any] | None, what: str = "a", name: str = "it", **options: Any) -> str:
    """What becomes of a call under a policy: ``waiting``, or what the model reads."""
    made = Probe().tool(name, **options)
    async with engine_of(call(name, what=what), "ok", tools=[made], policy=policy) as engine:
        result = await engine.session("s").run("go", check=False)
        return "waiting" if result.outcome == "waiting" else result_texts(requests_of(engine)[1])[0]


@pytest.mark.trio
@pytest.mark.parametrize("policy", [None, AsDeclared(), Rules()])
async def test_as_declared(policy: Policy[Any] | None) -> None:
    """Without a policy, and without a rule that fits, the tool's declaration decides (A4)."""
    assert await fate(policy) == "did a"
    assert await fate(policy, approval=True) == "waiting"
    assert await fate(policy, "a", approval=is_b) == "did a"
    assert await fate(policy, "b", approval=is_b) == "waiting"


@pytest.mark.trio
async def test_a_derived_default() -> None:
    """A policy derived from the default is asked about every call, also about those that need no approval."""

    class Careful(AsDeclared):
        async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
            return Deny("careful")

    assert await fate(Careful()) == "tool denied: careful"


@pytest.mark.trio
async def test_allow_all_and_ask_all() -> None:
    """AllowAll lets everything run, whatever is declared; AskAll asks a person about everything (A4)."""
    assert await fate(AllowAll(), approval=True) == "did a"
    assert await fate(AskAll()) == "waiting"


@pytest.mark.trio
async def test_rules() -> None:
    """The first rule that fits decides, by patterns of names and arguments; else ``otherwise``."""
    policy = Rules(
        Rule("delete_*", Deny("never")),
        Rule("read_*", Deny("secret"), {"what": "/etc/*"}),
        Rule("read_*", Allow()),
        Rule("*", Ask(), {"other": "*"}),
        order="first",
        otherwise=Deny("unknown"),
    )
    assert await fate(policy, "x", "delete_file") == "tool denied: never"
    assert await fate(policy, "/etc/passwd", "read_file", approval=True) == "tool denied: secret"
    assert await fate(policy, "/etc/a\nb", "read_file") == "tool denied: secret"
    assert await fate(policy, "/ETC/passwd", "read_file", approval=True) == "did /ETC/passwd"
    assert await fate(policy, "x", "Read_file") == "tool denied: unknown"


def test_rules_on_other_values() -> None:
    """An argument that is not text is compared as JSON, and one that is missing does not fit."""

    def fits(pattern: str, arguments: str) -> bool:
        return Rule("*", Allow(), {"n": pattern}).fits(Call("m1.0", "t", proposed=arguments)) is True

    assert fits("1*", '{"n": 100}')
    assert fits("true", '{"n": true}')
    assert fits('{"a": [[]1, 2]}', '{"n": {"a": [1,2]}}')
    assert not fits("*", "{}")
    assert not fits("*", "[1]")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rule("*", Allow),  # type: ignore[arg-type]
        lambda: Rule("*", "allow"),  # type: ignore[arg-type]
        lambda: Rule("*", Allow(), {"n": 1}),  # type: ignore[dict-item]
        lambda: Rules("read_*"),  # type: ignore[arg-type]
        lambda: Rules(otherwise=True),  # type: ignore[arg-type]
        lambda: Allow(write="/home"),
        lambda: Allow(network="yes"),  # type: ignore[arg-type]
        lambda: Ask(covers="all"),  # type: ignore[arg-type]
        lambda: Deny(None),  # type: ignore[arg-type]
        lambda: Agent(ScriptedModel([]), policy=AllowAll),  # type: ignore[call-overload]
    ],
)
def test_what_makes_no_sense(make: Callable[[], object]) -> None:
    """A rule, a verdict or a policy that cannot be used is refused where it is written (A4)."""
    with pytest.raises(InvalidInput):
        make()


def test_public_names() -> None:
    """Each public name is there, and in the reference."""
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    for name in turnstate.policy.__all__:
        assert hasattr(turnstate.policy, name)
        module = "turnstate" if hasattr(turnstate, name) else "turnstate.policy"
        assert f".. autoclass:: {module}.{name}\n" in page or name == "Verdict"


def _raise(error: BaseException) -> Any:
    raise error


NUMBER: Any = 5
SAYINGS: list[tuple[Callable[[Call], Any], str]] = [
    (
        lambda call: _raise(ValueError("broken")),
        "the policy failed for it, so a person is asked: ValueError; the details are in the log",
    ),
    (
        lambda call: _raise(ExceptionGroup("g", [KeyError("k")])),
        "the policy failed for it, .*: KeyError; the details are in the log",
    ),
    (lambda call: Deny(NUMBER), "the policy failed for it, .*: InvalidInput: Deny.reason: expected text, got 5"),
    (lambda call: True, "the policy gave bool for it, which is not a verdict, so a person is asked"),
    (lambda call: None, "the policy gave NoneType for it, .*"),
    (lambda call: Allow, "the policy gave type for it, .*"),
]


@pytest.mark.trio
@pytest.mark.parametrize(("say", "text"), SAYINGS)
async def test_a_broken_policy(say: Callable[[Call], Any], text: str) -> None:
    """A policy that raises or gives no verdict makes a person decide, who is told, and the call gets no permissions."""
    probe = Probe()
    async with engine_of(call("it", what="a"), "ok", tools=[probe.tool()], policy=Says(say)) as engine:
        session = engine.session("s")
        await answered(session)
        events = await events_of(session, until=lambda event: isinstance(event, TurnEnded))
    (warned,) = [event for event in events if isinstance(event, Warned)]
    assert re.fullmatch(text, warned.text)
    assert probe.seen == {"a": Permissions()}


@pytest.mark.trio
async def test_a_broken_predicate() -> None:
    """A predicate that raises makes a person decide, unless the policy has a verdict without it."""
    assert await fate(None, approval=fails) == "waiting"
    assert await fate(Rules(Rule("x*", Allow())), approval=fails) == "waiting"
    assert await fate(Rules(Rule("*", Deny("no"))), approval=fails) == "tool denied: no"
    assert await fate(AllowAll(), approval=fails) == "did a"


@pytest.mark.trio
async def test_no_verdict_no_run() -> None:
    """A call runs only with a verdict of its own: while one is thought about, others run and it does not (T8)."""
    probe, gate = Probe(), Gate()

    class Slow(Policy[Any]):
        async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
            if call.arguments["what"] == "slow":
                await gate.wait()
            return Allow()

    calls = [call("it", what="slow"), call("it", what="fast")]
    async with engine_of(calls, "ok", tools=[probe.tool()], policy=Slow()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await gate.reached.wait()
            await events_of(session, until=lambda event: isinstance(event, CallStarted))
            await trio.testing.wait_all_tasks_blocked()
            assert list(probe.seen) == ["fast"]
            gate.open.set()
            await turn.result()
    assert list(probe.seen) == ["fast", "slow"]


@pytest.mark.trio
async def test_what_a_policy_sees() -> None:
    """A policy sees deps, the conversation, the tool's definition and what it declares; what it uses is counted (A9)."""
    seen: list[object] = []

    class Curious(Policy[str]):
        async def authorize(self, call: Call, ctx: PolicyContext[str], /) -> Verdict:
            said = [message.text for message in ctx.messages if message.role == "user"]
            seen.append((ctx.deps, ctx.tool, ctx.definition.name, ctx.declared, said, call.arguments))
            ctx.count_usage("judge", Usage(7, 1))
            return Allow()

    agent = Agent[str](StrictModel([call("it", what="a"), "ok"]), tools=[Probe().tool(approval=True)], policy=Curious())
    async with Engine(agent, MemoryStore(), deps=lambda info: "deps") as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert seen == [("deps", "it", "it", Ask(), ["go"], {"what": "a"})]
        stored = await engine.store.load("s")
    assert stored is not None
    used = decode_checkpoint(stored.checkpoint).usage
    assert used["judge"] == Usage(7, 1)
    assert result.usage == used["scripted"] + Usage(7, 1)


@pytest.mark.trio
async def test_a_verdict_during_a_commit() -> None:
    """A verdict that comes while another is being stored is not asked for a second time."""
    storing = trio.Event()
    asked: list[str] = []

    class Slow(MemoryStore):
        async def commit(self, commit: StoredCommit) -> None:
            if asked:
                storing.set()
            await trio.testing.wait_all_tasks_blocked()
            await super().commit(commit)

    class Later(Policy[Any]):
        async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
            asked.append(call.id)
            if call.arguments["what"] == "b":
                await storing.wait()
            return Allow()

    probe = Probe()
    calls = [call("it", what="a"), call("it", what="b")]
    async with engine_of(calls, "ok", tools=[probe.tool()], policy=Later(), store=Slow()) as engine:
        await engine.session("s").run("go")
    assert sorted(asked) == ["m2.0", "m2.1"]
    assert sorted(probe.seen) == ["a", "b"]
