"""Agents as tools: what a person is asked in a child surfaces in the session above, and is answered there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import Gate, StrictModel, result_texts, until_event
from turnstate import (
    Agent,
    ApprovalRequested,
    Call,
    CallAnswered,
    CallProgress,
    CallSettled,
    CallStarted,
    Client,
    Engine,
    Event,
    InvalidInput,
    MemoryStore,
    Middleware,
    ModelRequest,
    Refused,
    Result,
    ResultRequested,
    Session,
    SQLiteStore,
    Store,
    StoreError,
    ToolContext,
    TurnEnded,
    TurnIncomplete,
    child_session,
    tool,
)
from turnstate.reading import read_events
from turnstate.states import Option, Prompt, Question
from turnstate.testing import FaultyStore, ScriptedModel, call

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
        ...

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
        ...

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
    async with Engine(above(till.agent()), SQLiteStore(path)) as engine:
        async with engine.session("s").turn("go") as turn:
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
        await client.session("s").approve("m2.0/m2.0")
        with pytest.raises(Refused, match="not open"):
            await client.session("s").approve("m2.0/m2.7")
    assert not till.paid
    async with Engine(agent, stores()) as engine:
        assert (await settled(engine.session("s"))).text == "thanks"
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_one_of_several() -> None:
    """One of several requests can be answered: that call runs, and the turn waits for the rest."""
    till = Till()
    both = [call("pay", to="Ann"), call("pay", to="Bob")]
    async with Engine(above(till.agent(both, "done")), MemoryStore()) as engine:
        session = engine.session("s")
        assert [found.id for found in (await session.run("go", check=False)).waiting] == ["m2.0/m2.0", "m2.0/m2.1"]
        await session.approve("m2.0/m2.1")
        assert [found.id for found in (await settled(session)).waiting] == ["m2.0/m2.0"]
        assert till.paid == ["Bob"]
        await session.approve("m2.0/m2.0")
        assert (await settled(session)).outcome == "completed"
    assert till.paid == ["Bob", "Ann"]


@pytest.mark.trio
async def test_several_in_one_answer() -> None:
    """Several requests, also of two children, can be answered in one submission."""
    till = Till()
    both = [call("pay", to="Ann"), call("pay", to="Bob")]
    agent = above(till.agent(both, "done"), [HELP, HELP], "thanks")
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        await session.approve(*(await session.run("go", check=False)).waiting)
        assert (await settled(session)).outcome == "completed"
        starts = [event for event in await log(engine, "s") if isinstance(event, CallStarted)]
        assert len(starts) == 4
    assert sorted(till.paid) == ["Ann", "Ann", "Bob", "Bob"]


@pytest.mark.trio
@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_answered_while_the_child_works(verdict: str) -> None:
    """An answer that comes while the call works on an earlier one is not lost: it is handed down next."""
    till, gate = Till(), Gate()

    @tool(approval=True)
    async def slow() -> str:
        await gate.wait()
        return "slow"

    inner = till.agent([call("slow"), call("pay", to="Bob")], "done", tools=[slow])
    async with Engine(above(inner), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.approve("m2.0/m2.0")
        await gate.reached.wait()
        await (session.approve if verdict == "approve" else session.deny)("m2.0/m2.1")
        gate.open.set()
        assert (await settled(session)).outcome == "completed"
        answered = [event.call.id for event in await log(engine, "s") if isinstance(event, CallAnswered)]
        assert answered == ["m2.0/m2.0", "m2.0/m2.1"]
    assert till.paid == (["Bob"] if verdict == "approve" else [])


@pytest.mark.trio
async def test_answers_that_come_too_late() -> None:
    """The same answer again is fine, another one is refused, and so is one to what is not open; nothing changes."""
    till = Till()
    both = [call("pay", to="Ann"), call("pay", to="Bob")]
    async with Engine(above(till.agent(both, "done")), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        with pytest.raises(InvalidInput, match=r"answer the calls nested in m2\.0: m2\.0/m2\.0, m2\.0/m2\.1"):
            await session.approve("m2.0")
        with pytest.raises(InvalidInput, match="provide results to the calls nested"):
            await session.provide("m2.0", 1)
        with pytest.raises(Refused, match="not open"):
            await session.deny("m2.0/m9.0")
        await session.approve("m2.0/m2.0", id="a1")
        assert (await session.approve("m2.0/m2.0", id="a1")).duplicate
        await settled(session)
        with pytest.raises(Refused, match="not open"):
            await session.deny("m2.0/m2.0")
        await session.deny("m2.0/m2.1")
        assert (await settled(session)).outcome == "completed"
        with pytest.raises(Refused, match="the turn is over"):
            await session.approve("m2.0/m2.1")
    assert till.paid == ["Ann"]


async def log(engine: Engine[Any], session: str) -> list[Event]:
    """The stored events of a session."""
    return list(await read_events(engine.store, session, 0))


@pytest.mark.trio
async def test_events_are_told_once(stores: Stores) -> None:
    """Live and replayed the parent's events are the same; each request and answer is told once, without gaps."""
    till = Till()
    both = [call("pay", to="Ann"), call("pay", to="Bob")]
    live: list[Event] = []

    async def listen(session: Session, *, task_status: trio.TaskStatus[None]) -> None:
        async with session.events() as events:
            task_status.started()
            async for event in events:
                if event.number is not None:
                    live.append(event)
                if isinstance(event, TurnEnded):
                    return

    async with Engine(above(till.agent(both, "done")), stores()) as engine, trio.open_nursery() as nursery:
        session = engine.session("s")
        await nursery.start(listen, session)
        await session.run("go", check=False)
        for name in ("m2.0/m2.0", "m2.0/m2.1"):
            await session.approve(name)
            await settled(session)
        nested = [
            (type(event).__name__, event.call.id)
            for event in await log(engine, "s")
            if isinstance(event, (ApprovalRequested, CallAnswered, CallStarted, CallSettled))
        ]
    async with Engine(above(till.agent()), stores()) as engine:
        assert await log(engine, "s") == live
    assert [event.number for event in live] == list(range(1, len(live) + 1))
    assert nested == [
        ("CallStarted", "m2.0"),
        ("ApprovalRequested", "m2.0/m2.0"),
        ("ApprovalRequested", "m2.0/m2.1"),
        ("CallAnswered", "m2.0/m2.0"),
        ("CallStarted", "m2.0"),
        ("CallAnswered", "m2.0/m2.1"),
        ("CallStarted", "m2.0"),
        ("CallSettled", "m2.0"),
    ]


@pytest.mark.trio
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_calls_of_one_agent(order: tuple[int, int], stores: Stores) -> None:
    """Two calls of the same agent work at the same time, wait both, and are answered in either order."""
    till = Till()
    agent = above(till.agent(), [HELP, HELP], "thanks")
    async with Engine(agent, stores()) as engine:
        session = engine.session("s")
        waiting = (await session.run("go", check=False)).waiting
        assert [found.id for found in waiting] == ["m2.0/m2.0", "m2.1/m2.0"]
        await session.approve(waiting[order[0]])
        (rest,) = (await settled(session)).waiting
        assert rest == waiting[order[1]]
        assert till.paid == ["Ann"]
        await session.approve(rest)
        assert (await settled(session)).outcome == "completed"
    assert till.paid == ["Ann", "Ann"]
    assert read(agent) == ["all paid", "all paid"]


@pytest.mark.trio
async def test_two_deep(stores: Stores) -> None:
    """What is asked two sessions below surfaces at the top, and the answer goes down all the way."""
    till = Till()
    agent = above(above(till.agent(), HELP, "he did it"))
    async with Engine(agent, stores()) as engine:
        session = engine.session("s")
        (waiting,) = (await session.run("go", check=False)).waiting
        assert (waiting.id, waiting.tool) == ("m2.0/m2.0/m2.0", "pay")
        middle = await engine.session("s/m2.0").info()
        assert ([found.id for found in middle.waiting], middle.parent) == (["m2.0/m2.0"], "s")
        assert (await engine.session("s/m2.0/m2.0").info()).parent == "s/m2.0"
    async with Engine(agent, stores()) as engine:
        session = engine.session("s")
        await session.approve(waiting, arguments={"to": "Bob"})
        assert (await settled(session)).outcome == "completed"
    assert till.paid == ["Bob"]
    assert read(agent) == ["he did it"]


@pytest.mark.trio
async def test_bad_arguments_two_deep() -> None:
    """Arguments that a tool two sessions below cannot take are asked about again at the top."""
    till = Till()
    async with Engine(above(above(till.agent())), MemoryStore()) as engine:
        session = engine.session("s")
        (waiting,) = (await session.run("go", check=False)).waiting
        await session.approve(waiting, arguments={"from": "Bob"})
        (again,) = (await settled(session)).waiting
        assert again.id == waiting.id
        assert "bad arguments for pay" in again.reason
        await session.deny(again)
        assert (await settled(session)).outcome == "completed"
    assert not till.paid


@pytest.mark.trio
async def test_siblings_go_on() -> None:
    """Other tools of the reply run while a child waits; only then does the turn wait."""
    gate, till = Gate(), Till()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    agent = above(till.agent(), [HELP, call("slow")], "thanks", tools=[slow])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            asked = await until_event(session, ApprovalRequested)
            await gate.reached.wait()
            assert (await session.info()).state == "executing-tools"
            gate.open.set()
            assert (await turn.result(check=False)).waiting == [asked.call]
            await session.approve(asked.call)
            async for _ in turn:
                pass
            assert (await turn.result()).text == "thanks"
    assert read(agent) == ["all paid", "slow"]


@pytest.mark.trio
async def test_answered_while_siblings_run() -> None:
    """The child goes on with its answer at once, while another tool of the reply still runs."""
    gate, till = Gate(), Till()

    @tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    agent = above(till.agent(), [HELP, call("slow")], "thanks", tools=[slow])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await session.approve((await until_event(session, ApprovalRequested)).call)
            assert (await until_event(session, CallSettled)).call.id == "m2.0"
            gate.open.set()
            await turn.result()
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_expiry(autojump_clock: Clock) -> None:
    """A request that nobody answers expires in the child at its time, and both turns go on."""
    till = Till(expires=60)
    inner = till.agent(call("pay", to="Ann"), "nobody said yes")
    agent = above(inner)
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        start = trio.current_time()
        async with session.turn("go") as turn:
            result = await turn.result(check=False)
            (waiting,) = result.waiting
            assert waiting.expires_at is not None
            assert (await session.info()).deadline == waiting.expires_at
            async for _ in turn:
                pass
            assert (await turn.result()).text == "thanks"
        assert trio.current_time() - start == pytest.approx(60, abs=0.1)
        starts = [event for event in await log(engine, "s") if isinstance(event, CallStarted)]
        assert len(starts) == 2
    assert read(inner) == ["tool denied: the approval request expired"]
    assert not till.paid


@pytest.mark.trio
async def test_expiry_of_one_of_two(autojump_clock: Clock) -> None:
    """When one of two requests has expired the other one still waits, and is not told again."""
    till = Till(expires=60)

    @tool(approval=True)
    async def keep() -> str:
        """Keep."""
        return "kept"

    inner = till.agent([call("pay", to="Ann"), call("keep")], "done", tools=[keep])
    async with Engine(above(inner), MemoryStore()) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            assert len((await turn.result(check=False)).waiting) == 2
            await trio.sleep(61)
            (waiting,) = (await turn.result(check=False)).waiting
            assert waiting.tool == "keep"
        with pytest.raises(Refused):
            await session.approve("m2.0/m2.0")
        assert len([event for event in await log(engine, "s") if isinstance(event, ApprovalRequested)]) == 2
        await session.approve(waiting)
        assert (await settled(session)).outcome == "completed"
    assert read(inner) == ["tool denied: the approval request expired", "kept"]


@pytest.mark.trio
async def test_answered_in_time(autojump_clock: Clock) -> None:
    """An answer that came in time stands, also where the child hears of it after the request would have expired."""
    till = Till(expires=60)
    agent = above(till.agent())
    store = FaultyStore(MemoryStore())
    async with Engine(agent, store) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        store.fail_at = store.commits + 2  # the first is that of the parent
        await session.approve("m2.0/m2.0")
        with pytest.raises(StoreError, match="was made to fail"):
            await settled(session)
    assert not till.paid
    await trio.sleep(100)
    async with Engine(agent, store) as engine:
        assert (await settled(engine.session("s"))).outcome == "completed"
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_the_call_itself_needs_approval() -> None:
    """An agent that needs approval is asked about first; what it asks then comes after."""
    till = Till()
    inner = till.agent()
    model = saying(HELP, "thanks")
    agent = Agent[Any](model, tools=[inner.as_tool("helper", "Helps.", approval=True)])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        (first,) = (await session.run("go", check=False)).waiting
        assert (first.id, first.tool, first.arguments) == ("m2.0", "helper", {"task": "pay Ann"})
        await session.approve(first, arguments={"task": "pay Bob"})
        (second,) = (await settled(session)).waiting
        assert second.id == "m2.0/m2.0"
        await session.approve(second)
        assert (await settled(session)).outcome == "completed"
        assert (await engine.session("s/m2.0").messages())[0].text == "pay Bob"
    assert till.paid == ["Ann"]


@pytest.mark.trio
async def test_an_agent_that_is_a_barrier() -> None:
    """With ``exclusive=True`` nothing behind it starts while it waits."""
    till, ran = Till(), list[str]()

    @tool
    async def after() -> str:
        ran.append("after")
        return "after"

    helper = till.agent().as_tool("helper", "Helps.", exclusive=True)
    agent = Agent[Any](saying([HELP, call("after")], "thanks"), tools=[helper, after])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        assert not ran
        await session.approve("m2.0/m2.0")
        assert (await settled(session)).outcome == "completed"
    assert ran == ["after"]


@pytest.mark.trio
async def test_middleware_around_the_call() -> None:
    """What middleware does about exceptions of tools leaves a call that waits alone, also out of a nursery of its own."""
    seen: list[str] = []

    class Careful(Middleware[Any]):
        async def around_call(self, ctx: ToolContext[Any], call: Call, run: Any) -> Any:
            found: list[Any] = []
            try:
                async with trio.open_nursery():
                    found.append(await run())
            except Exception as error:
                seen.append(repr(error))
                return "it failed"
            return found[0]

    till = Till()
    agent = above(till.agent(), middleware=[Careful()])
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        await session.approve("m2.0/m2.0")
        assert (await settled(session)).outcome == "completed"
    assert not seen
    assert read(agent) == ["all paid"]


@pytest.mark.trio
async def test_deps_and_progress_of_inner_tools() -> None:
    """A child's tools get the deps of the agent above, also two sessions below, and after an answer."""
    seen: list[tuple[str, str]] = []

    @tool(approval=True)
    async def note(ctx: ToolContext[str]) -> str:
        seen.append((ctx.deps, ctx.session_id))
        ctx.progress("half way")
        return "noted"

    inner = Agent[str](saying(call("note"), "done"), tools=[note])
    agent = above(above(inner))
    async with Engine(agent, MemoryStore(), deps=lambda info: f"deps of {info.id}") as engine:
        session = engine.session("s")
        (waiting,) = (await session.run("go", check=False)).waiting
        await session.approve(waiting)
        assert (await settled(session)).outcome == "completed"
        assert not [event for event in await log(engine, "s/m2.0/m2.0") if isinstance(event, CallProgress)]
    assert seen == [("deps of s", "s/m2.0/m2.0")]
