"""The programs that people want to write, as they would."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from turnstate import (
    Agent,
    ApprovalRequested,
    CallProgress,
    Client,
    Engine,
    MemoryStore,
    Middleware,
    ModelError,
    Refused,
    Retrying,
    Session,
    SQLiteStore,
    StepContext,
    TextDelta,
    ToolContext,
    TurnFailed,
    TurnIncomplete,
    tool,
)
from turnstate.testing import ScriptedModel, call


@dataclass
class Deps:
    """What tools need."""

    db: dict[int, int]


@tool(approval=True, exclusive=True)
async def delete_file(path: str) -> str:
    """Delete one file."""
    await trio.Path(path).unlink()
    return f"deleted {path}"


@pytest.mark.trio
async def test_first(tmp_path: Path) -> None:
    """Program 1: the first turn in a few lines."""
    agent = Agent(ScriptedModel(["Elbe, Oder, Rhine"]))
    async with Engine(agent, SQLiteStore(tmp_path / "turns.db")) as engine:
        assert (await engine.session("alice").run("Name three rivers")).text == "Elbe, Oder, Rhine"


@pytest.mark.trio
async def test_stream() -> None:
    """Program 2: text as it comes, and the model's error from the result."""
    agent = Agent(ScriptedModel(["Once upon a time", ModelError("refused", kind="authentication")]))
    async with Engine(agent, MemoryStore()) as engine:
        session = engine.session("alice")
        async with session.turn("Tell a story") as turn:
            pieces = [piece async for piece in turn.text()]
            await turn.result()
        assert "".join(pieces) == "Once upon a time"
        async with session.turn("Another") as turn:
            async for _ in turn.text():
                pass
            with pytest.raises(TurnFailed) as caught:
                await turn.result()
        assert isinstance(caught.value.__cause__, ModelError)


@pytest.mark.trio
async def test_decide(tmp_path: Path) -> None:
    """Program 3: approve, deny and edit, with a reason, while the turn is read."""
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.touch()
    model = ScriptedModel([[call("delete_file", path=str(file)) for file in files], "cleaned up"])
    answered: list[str] = []
    async with Engine(Agent(model, tools=[delete_file]), MemoryStore()) as engine:
        session = engine.session("alice")
        async with session.turn("Clean up") as turn:
            async for event in turn:
                match event:
                    case ApprovalRequested(asked):
                        answered.append(asked.id)
                        if len(answered) == 1:
                            await session.approve(asked)
                        elif len(answered) == 2:
                            await session.deny(asked, reason="not this one")
                        else:
                            await session.approve(asked, arguments={"path": str(files[1])})
                    case TextDelta() | Retrying():
                        pass
                    case _:
                        pass
            result = await turn.result()
    assert result.text == "cleaned up"
    assert [c.status for c in result.calls] == ["ok", "denied", "ok"]
    assert [file.exists() for file in files] == [False, False, True]


@pytest.mark.trio
async def test_for_session(tmp_path: Path) -> None:
    """Program 4: approve for the session; the same call is not asked again."""
    file = tmp_path / "a"
    file.touch()
    delete = call("delete_file", path=str(file))
    async with Engine(Agent(ScriptedModel([delete, "1", delete, "2"]), tools=[delete_file]), MemoryStore()) as engine:
        session = engine.session("alice")
        (asked,) = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.approve(asked, for_session=True)
            await turn.result()
        result = await session.run("again")
        assert result.calls[0].status == "error"  # it ran: there is no file any more
        assert [grant.tool for grant in await session.grants()] == ["delete_file"]


@pytest.mark.trio
async def test_resume(tmp_path: Path) -> None:
    """Program 5: after a crash, list what is open and go on with it."""
    path = str(tmp_path / "turns.db")
    crashing = (
        "import os, trio\n"
        "from turnstate import *\n"
        "from turnstate.testing import ScriptedModel, call\n"
        "@tool\n"
        "async def charge(amount: int) -> str:\n"
        "    os._exit(9)\n"
        "@tool(approval=True)\n"
        "async def delete(path: str) -> str:\n"
        "    return 'gone'\n"
        "async def main():\n"
        "    model = ScriptedModel([call('delete', path='x'), call('charge', amount=5)])\n"
        f"    async with Engine(Agent(model, tools=[charge, delete]), SQLiteStore({path!r})) as engine:\n"
        "        await engine.session('waits').run('go', check=False)\n"
        "        await engine.session('dies').run('go')\n"
        "trio.run(main)\n"
    )
    done = await trio.to_thread.run_sync(lambda: subprocess.run([sys.executable, "-c", crashing], timeout=50))
    assert done.returncode == 9

    @tool
    async def charge(amount: int) -> str:
        raise AssertionError

    @tool(approval=True)
    async def delete(path: str) -> str:
        raise AssertionError

    found: dict[str, Any] = {}
    async with Engine(Agent(ScriptedModel(["seen"]), tools=[charge, delete]), SQLiteStore(path)) as engine:
        async for info in engine.sessions(unfinished=True):
            async with engine.session(info.id).resume() as turn:
                found[info.id] = (len(info.waiting), (await turn.result(check=False)).outcome)
    assert found == {"waits": (1, "waiting"), "dies": (0, "completed")}


@pytest.mark.trio
async def test_later_from_another_process(tmp_path: Path) -> None:
    """Program 6: an approval that comes later, through a client that has no agent; the next worker goes on."""
    path = tmp_path / "turns.db"
    file = tmp_path / "a"
    file.touch()
    model = ScriptedModel([call("delete_file", path=str(file)), "gone"])

    async def post_approval(session_id: str, token: str) -> int:
        async with Client(SQLiteStore(path)) as client:
            try:
                await client.session(session_id).approve(token, by="bob")
            except Refused:
                return 409
            return 204

    agent = Agent(model, tools=[delete_file])
    async with Engine(agent, SQLiteStore(path)) as engine:
        (asked,) = (await engine.session("alice").run("go", check=False)).waiting
    assert await post_approval("alice", "m77.0") == 409
    assert await post_approval("alice", asked.token) == 204
    async with Engine(agent, SQLiteStore(path)) as engine, engine.session("alice").resume() as turn:
        assert (await turn.result()).text == "gone"
    assert await post_approval("alice", asked.token) == 409
    assert not file.exists()


@pytest.mark.trio
async def test_steer_and_interrupt() -> None:
    """Program 7: steer and interrupt from a second task."""
    begun = trio.Event()
    steered = trio.Event()

    @tool
    async def refactor(file: str) -> str:
        begun.set()
        if file == "b":
            await trio.sleep_forever()
        await steered.wait()
        return "done"

    async def second(session: Session) -> None:
        await begun.wait()
        await session.steer("keep the public names")
        steered.set()

    model = ScriptedModel([call("refactor", file="a"), call("refactor", file="b")])
    async with Engine(Agent(model, tools=[refactor]), MemoryStore()) as engine:
        session = engine.session("alice")

        async def stop_at_b() -> None:
            async with session.events() as events:
                async for event in events:
                    if type(event).__name__ == "CallStarted" and event.call.arguments == {"file": "b"}:  # type: ignore[union-attr]  # pyright: ignore
                        await session.interrupt("enough")
                        return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(second, session)
            nursery.start_soon(stop_at_b)
            with pytest.raises(TurnIncomplete) as caught:
                await session.run("Refactor")
    assert caught.value.result.outcome == "interrupted"
    assert [m.text for m in model.requests[1].messages if m.role == "user"] == ["Refactor", "keep the public names"]


@tool(timeout=5, on_crash="rerun")
def report(ctx: ToolContext[Deps], year: int) -> int:
    """Report on a year."""
    ctx.progress(0.5)
    return ctx.deps.db[year]


@pytest.mark.trio
async def test_sync_tool_with_context() -> None:
    """Program 8: a tool with context, timeout and progress, as a sync function."""

    class Guard(Middleware[Deps]):
        async def before_model(self, ctx: StepContext[Deps]) -> None:
            ctx.request.add(f"There are {len(ctx.deps.db)} years.")

    model = ScriptedModel([[call("report", year=2024), call("report", year=1)], "7 and nothing"])
    agent = Agent[Deps](model, tools=[report], middleware=[Guard()])
    async with Engine(agent, MemoryStore(), deps=lambda info: Deps({2024: 7})) as engine:
        session = engine.session("alice")
        async with session.turn("Report") as turn:
            told = [event.value async for event in turn if isinstance(event, CallProgress)]
            result = await turn.result()
    assert told == [0.5, 0.5]
    assert [c.status for c in result.calls] == ["ok", "error"]
    assert [m.text for m in result.messages if m.role == "tool"] == [
        "7",
        "KeyError: the tool failed; the details are in the log",
    ]
    assert model.requests[0].additions == ["There are 1 years."]
