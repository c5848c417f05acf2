"""Agents as tools: what a person is asked in a child surfaces in the session above, and is answered there."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import StrictModel, result_texts
from turnstate import (
    Agent,
    ApprovalRequested,
    CallStarted,
    Client,
    Engine,
    Event,
    InvalidInput,
    MemoryStore,
    ModelRequest,
    Refused,
    Result,
    ResultRequested,
    Session,
    SQLiteStore,
    StepEnded,
    Store,
    ToolContext,
    TurnIncomplete,
    Usage,
    child_session,
    tool,
)
from turnstate.reading import read_events
from turnstate.states import Option, Prompt, Question
from turnstate.stores.base import LIVE_OWNERS, Owner
from turnstate.testing import ScriptedModel, call

Clock = trio.testing.MockClock
Stores = Callable[[], Store]
HELP = call("helper", task="pay Ann")


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Store objects that hold the same."""
    memory = MemoryStore()
    return (lambda: memory) if request.param == "memory" else lambda: SQLiteStore(tmp_path / "turns.db")


def speech(*lines: Any) -> Callable[[ModelRequest], Any]:
    """A script that says the next line wherever it is begun, by how much was said in this conversation."""
    return lambda request: lines[sum(message.role == "assistant" for message in request.messages)]


def saying(*lines: Any) -> StrictModel:
    """A model with such a script."""
    return StrictModel(speech(*lines))


def above(inner: Agent[Any], *lines: Any, tools: Sequence[Any] = (), **more: Any) -> Agent[Any]:
    """An agent that has another one as the tool ``helper``."""
    model = saying(*(lines or (HELP, "thanks")))
    return Agent[Any](model, tools=[inner.as_tool("helper", "Helps."), *tools], **more)


def read(agent: Agent[Any]) -> list[str]:
    """What the last request of an agent's model said that its calls gave."""
    assert isinstance(agent.model, ScriptedModel)
    return result_texts(agent.model.requests[-1])


class Till:
    """A tool that asks a person, and what it did."""

    def __init__(self, **options: Any) -> None:
        self.paid: list[str] = []

        @tool(approval=True, **options)
        async def pay(to: str) -> str:
            self.paid.append(to)
            return f"paid {to}"

        self.pay = pay

    def agent(self, *lines: Any, tools: Sequence[Any] = ()) -> Agent[Any]:
        """An agent that pays Ann, or does what the lines say."""
        return Agent[Any](saying(*(lines or (call("pay", to="Ann"), "all paid"))), tools=[self.pay, *tools])


async def settled(session: Session) -> Result[str]:
    """Go on with the turn, and give its result."""
    with trio.fail_after(20):
        async with session.resume() as turn:
            return await turn.result(check=False)


async def log(engine: Engine[Any], session: str) -> list[Event]:
    """The stored events of a session."""
    return list(await read_events(engine.store, session, 0))


async def child_of(engine: Engine[Any], name: str = "s/m2.0") -> tuple[str, bool]:
    """How a child's turn ended, and whether it has not."""
    info = await engine.session(name).info()
    return info.outcome, info.unfinished


async def used(engine: Engine[Any], *names: str) -> Usage:
    """What the attempts of some sessions used, by their logs."""
    events = [event for name in names for event in await log(engine, name) if isinstance(event, StepEnded)]
    return sum((event.usage for event in events if event.usage is not None), Usage())


class WatchedStore(MemoryStore):
    """Knows who has it."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[str, None] = {}
        self.opened = False
        self.listening = 0
        self.claimed: set[str] = set()

    async def open(self) -> None:
        self.opened = True
        await super().open()

    async def aclose(self) -> None:
        self.opened = False
        await super().aclose()

    async def renew(self, owner: Owner) -> None:
        self.owners[owner.id] = None
        await super().renew(owner)

    async def retire(self, owner: str) -> None:
        self.owners.pop(owner, None)
        await super().retire(owner)

    async def claim(self, session: str, owner: Owner, now: float) -> None:
        self.claimed.add(session)
        await super().claim(session, owner, now)

    def listen(self, told: Callable[[str], None]) -> Callable[[], None]:
        self.listening += 1
        unlisten = super().listen(told)

        def end() -> None:
            self.listening -= 1
            unlisten()

        return end


@asynccontextmanager
async def left_clean(store: WatchedStore) -> AsyncGenerator[None, None]:
    """Nothing of an engine is left when it was: no task, owner or claim, and nobody who has the store open or listens."""
    live, tasks = set(LIVE_OWNERS), trio.lowlevel.current_statistics().tasks_living
    yield
    assert live == LIVE_OWNERS
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert not store.owners
    assert not store.opened
    assert not store.listening
    async with store:
        assert [name for name in store.claimed if await store.owner_of(name) is not None] == []


@pytest.mark.trio
async def test_approve(stores: Stores) -> None:
    """A child's request is the parent's, answering it lets the child go on, and the parent's model reads its answer."""
    till = Till()
    inner = till.agent()
    agent = above(inner)
    async with Engine(agent, stores()) as engine:
        session = engine.session("alice")
        result = await session.run("go", check=False)
        assert (result.outcome, till.paid) == ("waiting", [])
        (waiting,) = result.waiting
        assert (waiting.id, waiting.tool, waiting.arguments) == ("m2.0/m2.0", "pay", {"to": "Ann"})
        assert (waiting.status, waiting.wants) == ("asked", "decision")
        assert [found.id for found in (await session.info()).waiting] == ["m2.0/m2.0"]
        await session.approve(waiting, by="bob")
        assert (await settled(session)).text == "thanks"
        assert read(agent) == ["all paid"]
        child = await engine.session(child_session("alice", "m2.0")).messages()
        assert [message.text for message in child] == ["pay Ann", "", "paid Ann", "all paid"]
    assert till.paid == ["Ann"]
    assert read(inner) == ["paid Ann"]


@pytest.mark.trio
async def test_run_raises_where_it_waits() -> None:
    """``run`` says that it waits, as for a call of its own, and a turn that is held tells the same."""
    async with Engine(above(Till().agent()), MemoryStore()) as engine:
        session = engine.session("s")
        with pytest.raises(TurnIncomplete) as caught:
            await session.run("go")
        assert [found.id for found in caught.value.result.waiting] == ["m2.0/m2.0"]
        async with session.resume() as turn:
            assert (await turn.result(check=False)).outcome == "waiting"
            assert [found.id for found in turn.waiting] == ["m2.0/m2.0"]


@pytest.mark.trio
async def test_deny() -> None:
    """A denial goes down with its reason, and the child's model goes on with it."""
    till = Till()
    inner = till.agent(call("pay", to="Ann"), "they would not")
    agent = above(inner)
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.deny("m2.0/m2.0", reason="too dear")
        assert (await settled(session)).outcome == "completed"
    assert read(inner) == ["tool denied: too dear"]
    assert read(agent) == ["they would not"]
    assert not till.paid


@pytest.mark.trio
async def test_deny_and_end_the_turn() -> None:
    """A denial that ends the turn ends the parent's and the child's."""
    till = Till()
    async with Engine(above(till.agent()), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.deny("m2.0/m2.0", reason="no", end_turn=True)
        info = await session.info()
        assert (info.outcome, info.reason, info.unfinished) == ("denied", "no", False)
        child = await engine.session("s/m2.0").info()
        assert (child.outcome, len(child.waiting)) == ("interrupted", 0)
    assert not till.paid


@pytest.mark.trio
async def test_edited_arguments(stores: Stores) -> None:
    """Other arguments go down with the approval."""
    till = Till()
    async with Engine(above(till.agent()), stores()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.approve("m2.0/m2.0", arguments={"to": "Bob"})
        assert (await settled(session)).outcome == "completed"
        (made,) = [event.call for event in await log(engine, "s/m2.0") if isinstance(event, CallStarted)]
        assert (made.arguments, made.proposed) == ({"to": "Bob"}, '{"to": "Ann"}')
    assert till.paid == ["Bob"]


@pytest.mark.trio
async def test_edited_arguments_that_do_not_fit() -> None:
    """Arguments that the child's tool cannot take are not used: the person is asked again, and told why."""
    till = Till()
    async with Engine(above(till.agent()), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.approve("m2.0/m2.0", arguments={"to": 5})
        (again,) = (await settled(session)).waiting
        assert again.id == "m2.0/m2.0"
        assert again.arguments == {"to": "Ann"}
        assert "bad arguments for pay" in again.reason
        assert not till.paid
        await session.approve(again, arguments={"to": "Bob"})
        assert (await settled(session)).outcome == "completed"
        requests = [event for event in await log(engine, "s") if isinstance(event, ApprovalRequested)]
        assert len(requests) == 2
    assert till.paid == ["Bob"]


@pytest.mark.trio
async def test_provide() -> None:
    """What a child wants from outside is provided above; so is a result in the place of a decision."""
    till = Till()

    @tool(outside=True)
    async def sign(text: str) -> dict[str, Any]:
        """Have a person sign."""
        raise NotImplementedError

    inner = till.agent([call("sign", text="a contract"), call("pay", to="Ann")], "done", tools=[sign])
    async with Engine(above(inner), MemoryStore()) as engine:
        session = engine.session("s")
        first, second = (await session.run("go", check=False)).waiting
        assert (first.id, first.wants, second.wants) == ("m2.0/m2.0", "result", "decision")
        with pytest.raises(InvalidInput, match="waits for a result"):
            await session.approve(first)
        await session.provide(first, {"by": "Eve"}, artifact={"page": 3}, by="eve")
        assert [found.id for found in (await settled(session)).waiting] == ["m2.0/m2.1"]
        await session.provide(second, None, text="paid by hand")
        assert (await settled(session)).outcome == "completed"
        asked = [event.call.id for event in await log(engine, "s") if isinstance(event, ResultRequested)]
        assert asked == ["m2.0/m2.0"]
        (one, two) = [message.results[0] for message in await engine.session("s/m2.0").messages() if message.results]
        assert (one.text, one.artifact, two.text) == ('{"by": "Eve"}', {"page": 3}, "paid by hand")
    assert read(inner) == ['{"by": "Eve"}', "paid by hand"]
    assert not till.paid


@pytest.mark.trio
async def test_a_result_that_is_an_error() -> None:
    """A failure that is provided reaches the child's model as one, also a result that is false or null."""

    @tool(outside=True)
    async def look() -> bool:
        """Look."""
        raise NotImplementedError

    inner = Agent[Any](saying([call("look"), call("look"), call("look")], "done"), tools=[look])
    async with Engine(above(inner), MemoryStore()) as engine:
        session = engine.session("s")
        one, two, three = (await session.run("go", check=False)).waiting
        await session.provide(one, False)
        await session.provide(two, None)
        await session.provide(three, "nobody there", error=True)
        assert (await settled(session)).outcome == "completed"
        results = [message.results[0] for message in await engine.session("s/m2.0").messages() if message.results]
    assert [(result.status, result.text) for result in results] == [
        ("ok", "false"),
        ("ok", "null"),
        ("error", "nobody there"),
    ]


@pytest.mark.trio
async def test_options_and_typed_answers(stores: Stores) -> None:
    """A prompt surfaces whole; the option that is chosen, the text and the answers reach the child's tool."""
    seen: list[Any] = []
    where = Prompt("Where to?", (Option("home", "allow-once"), Option("work", "allow-once")), "select", freeform=True)
    form = Prompt(display="questions", questions=(Question("size", "Which?", (Option("s"), Option("m"))),))

    @tool(approval=True, prompt=where)
    async def send(ctx: ToolContext[Any]) -> str:
        seen.append(ctx.decision)
        return "sent"

    @tool(approval=True, prompt=form)
    async def order(ctx: ToolContext[Any]) -> str:
        seen.append(ctx.decision)
        return "ordered"

    inner = Agent[Any](saying([call("send"), call("order")], "done"), tools=[send, order])
    async with Engine(above(inner), stores()) as engine:
        session = engine.session("s")
        first, second = (await session.run("go", check=False)).waiting
        assert (first.prompt, second.prompt) == (where, form)
        with pytest.raises(InvalidInput, match="expected one of home, work"):
            await session.answer(first, option="moon")
        await session.answer(first, option="work", text="the back door", by="bob")
        await session.answer(second, answers={"size": {"options": ["m"]}})
        assert (await settled(session)).outcome == "completed"
    one, two = sorted(seen, key=lambda decision: decision.option, reverse=True)
    assert (one.option, one.text, one.by) == ("work", "the back door", "bob")
    assert two.answers == {"size": {"options": ["m"]}}


@pytest.mark.trio
async def test_dismissed() -> None:
    """A question that is closed without an answer is closed in the child as well."""

    @tool(approval=True, prompt=Prompt("Which?", display="text", dismissible=True))
    async def ask() -> str:
        """Ask."""
        return "asked"

    inner = Agent[Any](saying(call("ask"), "then not"), tools=[ask])
    async with Engine(above(inner), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.answer("m2.0/m2.0", verdict="dismiss")
        assert (await settled(session)).outcome == "completed"
    assert read(inner) == ["tool denied: the user dismissed the question"]


@pytest.mark.trio
async def test_for_the_session() -> None:
    """An approval for the session holds in the child: the same call there is not asked about again, another is."""
    till = Till()
    again = [call("pay", to="Ann"), call("pay", to="Bob")]
    async with Engine(above(till.agent(call("pay", to="Ann"), again, "done")), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.approve("m2.0/m2.0", for_session=True)
        (other,) = (await settled(session)).waiting
        assert other.arguments == {"to": "Bob"}
        assert till.paid == ["Ann", "Ann"]
        assert [grant.tool for grant in await engine.session("s/m2.0").grants()] == ["pay"]
        assert not await session.grants()


@pytest.mark.trio
async def test_answers_of_another_process(tmp_path: Path) -> None:
    """A client in another process finds the request in the parent and answers it; the engine here goes on."""
    till = Till()
    program = (
        "import sys, trio\n"
        "from turnstate import Client, SQLiteStore\n"
        "async def main():\n"
        "    async with Client(SQLiteStore(sys.argv[1])) as client:\n"
        "        async for info in client.sessions(waiting=True):\n"
        "            for call in info.waiting:\n"
        "                receipt = await client.session(info.id).approve(call, by='elsewhere')\n"
        "                print(info.id, call.id, call.tool, call.arguments['to'], receipt.turn)\n"
        "trio.run(main)\n"
    )
    path = tmp_path / "turns.db"
    async with Engine(above(till.agent()), SQLiteStore(path)) as engine, engine.session("s").turn("go") as turn:
        assert (await turn.result(check=False)).outcome == "waiting"
        done = await trio.run_process([sys.executable, "-c", program, str(path)], capture_stdout=True)
        assert done.stdout.decode() == "s m2.0/m2.0 pay Ann t1\n"
        with trio.fail_after(20):
            async for _ in turn:
                pass
        assert (await turn.result()).text == "thanks"
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_answers_where_nobody_drives(stores: Stores) -> None:
    """A client's answer waits in the store; the next engine hands it down."""
    till = Till()
    agent = above(till.agent())
    async with Engine(agent, stores()) as engine:
        await engine.session("s").run("go", check=False)
    async with Client(stores()) as client:
        handle = client.session("s")
        with pytest.raises(Refused, match="has not shown"):
            await handle.approve("m2.0/m2.0")
        await handle.info()
        await handle.approve("m2.0/m2.0")
    assert not till.paid
    async with Engine(agent, stores()) as engine:
        assert (await settled(engine.session("s"))).text == "thanks"
    assert till.paid == ["Ann"]
