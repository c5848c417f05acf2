"""What was asked is what is answered: everything that may change between a question and its answer, and every answer."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import pytest
import trio

from tests.engine.helpers import StrictModel
from turnstate import (
    Agent,
    Ask,
    Call,
    Client,
    Deny,
    Engine,
    MemoryStore,
    Receipt,
    Refused,
    SessionHandle,
    Tool,
    ToolContext,
    tool,
)
from turnstate.policy import AsDeclared, Policy, PolicyContext, Verdict
from turnstate.stores import InboxItem
from turnstate.testing import ScriptedModel, call

Answer = Callable[[SessionHandle, Call], Awaitable[Receipt]]
ANSWERS: dict[str, Answer] = {
    "approve": lambda handle, asked: handle.approve(asked),
    "deny": lambda handle, asked: handle.deny(asked, reason="no"),
    "edit": lambda handle, asked: handle.approve(asked, arguments={"amount": 2}),
    "provide": lambda handle, asked: handle.provide(asked, "given"),
    "for session": lambda handle, asked: handle.approve(asked, for_session=True),
    "token": lambda handle, asked: handle.approve(asked.token),
}


@attrs.define
class World:
    """A store with a session that waits, and what its tools did."""

    store: MemoryStore = attrs.field(factory=MemoryStore)
    ran: list[str] = attrs.field(factory=list[str])
    session: str = "s"

    def pay(self, version: str = "", word: str = "1", **options: Any) -> Tool[..., Any]:
        """The tool, as some version of the program has it."""

        async def pay(amount: int = 1) -> str:
            self.ran.append(f"{word}: {amount}")
            return f"paid {amount}"

        return tool(pay, version=version, approval=True, **options)

    def agent(self, *tools: Tool[..., Any], policy: Policy[Any] | None = None) -> Agent[None]:
        """An agent that calls the tool once in each turn."""

        def reply(request: Any) -> Any:
            return "done" if request.messages[-1].role == "tool" else call("pay")

        return Agent[None](ScriptedModel(reply), tools=tools, policy=policy or AsDeclared())


def other_schema(world: World) -> Tool[..., Any]:
    """The same name, with another parameter."""

    async def pay(amount: int = 1, currency: str = "EUR") -> str:
        world.ran.append("2")
        return "paid"

    return tool(pay, approval=True)


def other_default(world: World) -> Tool[..., Any]:
    """The same name, with another default."""

    async def pay(amount: int = 1000) -> str:
        world.ran.append("2")
        return "paid"

    return tool(pay, approval=True)


def no_approval(world: World) -> Tool[..., Any]:
    """Another version, that asks nobody."""

    async def pay(amount: int = 1) -> str:
        world.ran.append("2")
        return "paid"

    return tool(pay, version="2")


class Says(Policy[Any]):
    """A policy that gives one verdict."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        return self.verdict


def child() -> Agent[None]:
    """An agent that is a tool by another version."""
    return Agent[None](StrictModel(["paid by an agent"]))


DEPLOYS: dict[str, tuple[Callable[[World], Agent[None]], str]] = {
    "restarted": (lambda world: world.agent(world.pay()), "same"),
    "body": (lambda world: world.agent(world.pay(word="other body")), "same"),
    "description": (lambda world: world.agent(world.pay(description="Pays.")), "same"),
    "gone": (lambda world: world.agent(), "settled"),
    "renamed": (lambda world: world.agent(world.pay(name="pay_out")), "settled"),
    "outside": (lambda world: world.agent(world.pay(outside=True)), "kind"),
    "schema": (lambda world: world.agent(other_schema(world)), "schema"),
    "default": (lambda world: world.agent(other_default(world)), "schema"),
    "crash rule": (lambda world: world.agent(world.pay(on_crash="rerun", word="2")), "crash"),
    "version": (lambda world: world.agent(world.pay("2", "2")), "version"),
    "no approval": (lambda world: world.agent(no_approval(world)), "version"),
    "agent": (lambda world: world.agent(child().as_tool("pay", "Pays.", approval=True)), "settled"),
    "policy denies": (lambda world: world.agent(world.pay(), policy=Says(Deny("not any more"))), "denied"),
    "policy reaches further": (
        lambda world: world.agent(world.pay(), policy=Says(Ask("more", network=True))),
        "permissions",
    ),
}


async def waiting(world: World, agent: Agent[None]) -> Call:
    """The call about which the first version of the program asks."""
    async with Engine(agent, world.store) as engine:
        (asked,) = (await engine.session(world.session).run("go", check=False)).waiting
    assert asked.changed == ()
    return asked


async def go_on(world: World, agent: Agent[None], asked: Call, answer: Answer | None) -> tuple[Any, str]:
    """Resume under another version of the program, and answer there; the result, and why the answer was refused."""
    refused = ""
    async with Engine(agent, world.store) as engine:
        session = engine.session(world.session)
        async with session.resume() as turn:
            if answer is not None:
                try:
                    await answer(session, asked)
                except Refused as error:
                    refused = f"{error.code}: {error}"
            return await turn.result(check=False), refused


@pytest.mark.trio
@pytest.mark.parametrize("route", ["engine", "client"])
@pytest.mark.parametrize("how", ANSWERS)
@pytest.mark.parametrize("change", DEPLOYS)
async def test_a_deploy_between_a_question_and_its_answer(change: str, how: str, route: str) -> None:
    """An answer counts for the tool that was shown. Where a deploy changed it the answer is refused, nothing runs, and the
    question that is asked again says what changed; a policy of today can deny what a person of yesterday approves."""
    world = World()
    asked = await waiting(world, world.agent(world.pay()))
    make, expected = DEPLOYS[change]
    answer: Answer | None = ANSWERS[how]
    if route == "client":  # it is given to nobody yet, and applied by the next version
        async with Client(world.store) as client:
            await ANSWERS[how](client.session(world.session), asked)
        answer = None
    result, refused = await go_on(world, make(world), asked, answer)
    denied = how == "deny"
    provided = how == "provide"
    if expected in ("same", "denied", "permissions"):
        assert refused == ""
    elif route == "engine":
        assert refused.startswith("stale: ")
    if expected == "settled":
        assert (result.outcome, world.ran) == ("completed", [])
        assert result.calls[0].status == "error"
    elif expected in ("kind", "schema", "crash", "version") or (
        expected == "permissions" and not denied and not provided and how != "edit"
    ):
        assert (result.outcome, world.ran) == ("waiting", [])
        assert expected in result.waiting[0].changed
    elif expected == "denied":
        assert world.ran == []
        assert result.calls[0].status == ("ok" if provided else "denied")
    else:
        assert result.outcome == "completed"
        word = "other body" if change == "body" else "1"
        amount = 2 if how == "edit" else 1
        assert world.ran == ([] if denied or provided else [f"{word}: {amount}"])


@pytest.mark.trio
@pytest.mark.parametrize("how", ["approve", "token", "for session"])
async def test_the_question_that_is_asked_again_can_be_answered(how: str) -> None:
    """After a deploy the new question has a digest of its own, and its answer runs the tool of today."""
    world = World()
    asked = await waiting(world, world.agent(world.pay()))
    agent = world.agent(world.pay("2", "2"))
    result, refused = await go_on(world, agent, asked, ANSWERS["approve"])
    assert "version changed" in refused
    (again,) = result.waiting
    assert (again.changed, again.digest != asked.digest) == (("version",), True)
    result, refused = await go_on(world, agent, again, ANSWERS[how])
    assert (result.outcome, refused, world.ran) == ("completed", "", ["2: 1"])


async def made_anew(world: World) -> None:
    """The session is deleted, and made again under its id."""
    async with Engine(world.agent(world.pay()), world.store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            await session.interrupt()
            await turn.result(check=False)
        assert await engine.delete("s")
        await session.run("go", check=False)


async def another(world: World) -> None:
    """The answer goes to another session, in which the same call waits."""
    world.session = "other"
    await waiting(world, world.agent(world.pay()))


async def edited(world: World) -> None:
    """The message before the call is said otherwise, and the same call waits on the new branch."""
    async with Engine(world.agent(world.pay()), world.store) as engine:
        await engine.session("s").run("go!", edits="m1", check=False)


async def forked(world: World) -> None:
    """A fork of the session goes on from before the call, to the same call."""
    async with Engine(world.agent(world.pay()), world.store) as engine:
        fork = await engine.session("s").fork("m1", id="other")
        world.session = fork.id
        await fork.run("go", check=False)


async def other_store(world: World) -> None:
    """Another store has a session with the same id and the same call."""
    world.store = MemoryStore()
    await waiting(world, world.agent(world.pay()))


LIVES = {
    "made anew": made_anew,
    "another session": another,
    "message edited": edited,
    "forked": forked,
    "another store": other_store,
}


@pytest.mark.trio
@pytest.mark.parametrize("how", ANSWERS)
@pytest.mark.parametrize("change", LIVES)
async def test_an_answer_is_not_for_another_life(change: str, how: str) -> None:
    """A question of one session, or of one branch, is never answered for what waits under the same name elsewhere."""
    world = World()
    asked = await waiting(world, world.agent(world.pay()))
    await LIVES[change](world)
    async with Client(world.store) as client:
        (open_call,) = (await client.session(world.session).info()).waiting
        with pytest.raises(Refused) as caught:
            await ANSWERS[how](client.session(world.session), asked)
    assert caught.value.code == "stale"
    result, refused = await go_on(world, world.agent(world.pay()), asked, ANSWERS[how])
    assert (result.outcome, refused[:5], world.ran) == ("waiting", "stale", [])
    assert open_call.digest != asked.digest


@pytest.mark.trio
@pytest.mark.parametrize("how", ANSWERS)
async def test_a_restored_backup_is_the_same_life(how: str) -> None:
    """A backup that is put back is the session that it was: what it asked can be answered."""
    world = World()
    asked = await waiting(world, world.agent(world.pay()))
    backup = copy.deepcopy(world.store)
    await go_on(world, world.agent(world.pay()), asked, ANSWERS["deny"])
    world.store = backup
    result, refused = await go_on(world, world.agent(world.pay()), asked, ANSWERS[how])
    assert (result.outcome, refused) == ("completed", "")
    assert world.ran == {"deny": [], "provide": [], "edit": ["1: 2"]}.get(how, ["1: 1"])


@pytest.mark.trio
async def test_a_bare_id_means_what_was_shown() -> None:
    """A handle that showed a question answers that one by its id, and refuses when something else is asked by then; a
    client that showed none refuses a bare id."""
    world = World()
    await waiting(world, world.agent(world.pay()))
    async with Client(world.store) as client:
        with pytest.raises(Refused, match="has not shown"):
            await client.session("s").approve("m2.0")
        handle = client.session("s")
        await handle.info()
        await made_anew(world)
        with pytest.raises(Refused, match="not what was answered"):
            await handle.approve("m2.0")
        async with handle.events() as events:
            async for event in events:
                if event.number == (await client.session("s").info()).last_event:
                    break
        await handle.approve("m2.0")


@pytest.mark.trio
@pytest.mark.parametrize("name", ["m2.0", "m2.0#"])
async def test_a_token_without_a_digest_is_a_bare_id(name: str) -> None:
    """A client that showed nothing refuses each way to name a call without what was asked about it, and nothing is posted."""
    world = World()
    await waiting(world, world.agent(world.pay()))
    async with Client(world.store) as client:
        for answer in (
            client.session("s").approve(name),
            client.session("s").deny(name),
            client.session("s").provide(name),
        ):
            with pytest.raises(Refused, match="has not shown"):
                await answer
        assert not await world.store.inbox(["s"])


@pytest.mark.trio
async def test_a_grant_holds_for_the_tool_that_was_approved() -> None:
    """An approval for the session given for one version of a tool does not cover the next one."""
    world = World()
    asked = await waiting(world, world.agent(world.pay()))
    await go_on(world, world.agent(world.pay()), asked, ANSWERS["for session"])
    for version, outcome in (("", "completed"), ("2", "waiting")):
        async with Engine(world.agent(world.pay(version)), world.store) as engine:
            assert (await engine.session("s").run("go", check=False)).outcome == outcome
    assert world.ran == ["1: 1", "1: 1"]


@pytest.mark.trio
async def test_a_call_that_an_agent_had_begun_is_not_run_by_a_function() -> None:
    """A call of an agent that waits for an answer below, and whose name is an ordinary function after a restart, is settled
    as unknown; its questions are closed and its child is ended."""
    world = World()
    helper = Agent[None](StrictModel([call("pay"), "paid"]), tools=[world.pay()])
    above = Agent[None](ScriptedModel([call("helper", task="pay"), "done"]), tools=[helper.as_tool("helper", "Helps.")])
    async with Engine(above, world.store) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
    assert (asked.id, asked.agent) == ("m2.0/m2.0", "helper")

    async def plain(task: str) -> str:
        world.ran.append(task)
        return "ran"

    for how in ("approve", "deny"):
        copied = World(copy.deepcopy(world.store), world.ran)
        today = Agent[None](ScriptedModel(["done"]), tools=[tool(plain, name="helper", on_crash="rerun")])
        result, refused = await go_on(copied, today, asked, ANSWERS[how])
        assert (result.outcome, result.calls[0].status, world.ran) == ("completed", "unknown", [])
        assert refused.startswith("stale: ")
        async with Client(copied.store) as client:
            info = await client.session("s/m2.0").info()
            assert (info.outcome, info.waiting) == ("interrupted", ())


@pytest.mark.trio
async def test_a_question_from_below_shows_all() -> None:
    """What a person is asked by an agent below shows who asks, how far the call would reach and what an approval for the
    session would cover; the answer is on that."""
    world = World()
    policy = Says(Ask("sure?", network=True, write=["/srv"], covers="tool"))
    helper = Agent[None](StrictModel([call("pay"), "paid"]), tools=[world.pay()], policy=policy)
    above = Agent[None](ScriptedModel([call("helper", task="pay"), "done"]), tools=[helper.as_tool("helper", "Helps.")])
    async with Engine(above, world.store) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
    assert asked.permissions is not None
    assert (asked.agent, asked.permissions.network, asked.permissions.write) == ("helper", True, ("/srv",))
    assert (asked.covers, asked.arguments, bool(asked.digest)) == ("tool", {"amount": 1}, True)
    result, _ = await go_on(world, above, asked, ANSWERS["token"])
    assert (result.outcome, world.ran) == ("completed", ["1: 1"])


@pytest.mark.trio
@pytest.mark.parametrize("version", ["", "2"])
async def test_a_call_that_had_begun_is_run_again_by_the_same_tool_only(version: str) -> None:
    """A call that may run again after a crash does so under the tool that began it; under another version it is unknown."""
    store, ran, began = MemoryStore(), list[str](), trio.Event()

    def of(version: str) -> Agent[None]:
        async def note() -> str:
            ran.append(version)
            began.set()
            if len(ran) == 1:
                await trio.sleep_forever()
            return "noted"

        made = tool(note, on_crash="rerun", version=version)
        return Agent[None](
            ScriptedModel(lambda request: "done" if len(request.messages) > 1 else call("note")), tools=[made]
        )

    async with Engine(of(""), store, grace=0) as engine, engine.session("s").turn("go"):
        await began.wait()
    async with Engine(of(version), store) as engine, engine.session("s").resume() as turn:
        result = await turn.result()
    assert ([found.status for found in result.calls], ran) == ((["unknown"], [""]) if version else (["ok"], ["", ""]))


@pytest.mark.trio
async def test_a_key_is_of_one_life() -> None:
    """A session that is made anew under its id has other idempotency keys, and so has the same session elsewhere."""
    keys: list[str] = []

    async def pay(ctx: ToolContext[None]) -> str:
        keys.append(ctx.idempotency_key)
        return "paid"

    agent = Agent[None](
        ScriptedModel(lambda request: "done" if len(request.messages) > 1 else call("pay")), tools=[pay]
    )
    same = MemoryStore()
    for store in (same, same, MemoryStore()):
        async with Engine(agent, store) as engine:
            await engine.session("s").run("go")
            assert await engine.delete("s")
    assert len(set(keys)) == len(keys) == 3


class Hidden(MemoryStore):
    """A store in which what others posted is found late."""

    until = 0.0

    async def inbox(self, sessions: Sequence[str] | None = None) -> Sequence[InboxItem]:
        return () if trio.current_time() < self.until else await super().inbox(sessions)


@pytest.mark.trio
async def test_an_answer_is_found_before_its_question_expires(autojump_clock: object) -> None:
    """A driver looks for what was posted in time before it lets a request expire, also where it had not seen it yet."""
    world, store = World(), Hidden()
    agent = world.agent(world.pay(expires=60))
    async with Engine(agent, store) as engine, engine.session("s").turn("go") as turn:
        store.until = trio.current_time() + 59.999
        (asked,) = (await turn.result(check=False)).waiting
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Client(store).session("s").approve, asked)
            with trio.fail_after(1000):
                while (result := await turn.result(check=False)).outcome == "waiting":  # noqa: ASYNC110
                    await trio.sleep(1)
            nursery.cancel_scope.cancel()
    assert (result.calls[0].status, world.ran) == ("ok", ["1: 1"])
