"""A program with an agent as a tool that stops at a given place to be killed there, and goes on when started again.

``python -m tests.engine.nested_child DIRECTORY PLACE``; see ``tests.engine.killed``. It prints ``begun`` when the turn is
about to begin, or to go on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import trio

from tests.engine.helpers import strict
from tests.engine.killed import Place, StoppingStore
from turnstate import Agent, ApprovalRequested, Engine, Limits, ModelRequest, Refused, Reply, Session, tool
from turnstate.models.base import Model, OnDelta
from turnstate.states import Text, ToolCall


class Script(Model):
    """Says one reply after the other, by how much was said, and takes its time."""

    def __init__(self, name: str, place: Place, *replies: tuple[ToolCall, ...] | str) -> None:
        self.name = name
        self.place = place
        self.replies = replies

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        strict(request.messages)
        reply = self.replies[sum(message.role == "assistant" for message in request.messages)]
        on_delta("text", "I am ", 0)
        await self.place.here(f"{self.name}-streams")
        await trio.sleep(0.01)
        if isinstance(reply, str):
            return Reply((Text(reply),))
        return Reply(reply, "tool-calls")


def agent_of(place: Place) -> Agent[None]:
    """An agent that has another one charge a card, which a person must approve, and which may not happen twice."""

    @tool(approval=True)
    async def charge(amount: int) -> str:
        place.effect(f"charge {amount}")
        await place.here("child-runs")
        await trio.sleep(0.01)
        return f"charged {amount}"

    @tool
    async def look() -> str:
        place.effect("look")
        await trio.sleep(0.01)
        return "seen"

    calls = (ToolCall("", "charge", '{"amount": 5}'), ToolCall("", "look", "{}"))
    inner = Agent[None](
        Script("child", place, calls, "it is done"), tools=[charge, look], limits=Limits(resumptions=99)
    )
    asks = (ToolCall("", "helper", '{"task": "charge 5"}'), ToolCall("", "look", "{}"))
    model = Script("parent", place, asks, "all is done")
    return Agent[None](model, tools=[inner.as_tool("helper", "Helps."), look], limits=Limits(resumptions=99))


async def answer(session: Session, place: Place) -> None:
    """Approve what is asked, also what was asked before."""
    for waiting in (await session.info()).waiting:
        await approve(session, waiting.id)
    async with session.events() as events:
        async for event in events:
            if isinstance(event, ApprovalRequested):
                await place.here("waits")
                await approve(session, event.call.id)


async def approve(session: Session, name: str) -> None:
    """Approve a call, if it still waits."""
    try:
        await session.approve(name)
    except Refused:
        pass


async def run(place: Place) -> dict[str, Any]:
    """Begin the turn, or go on with it, and answer what it asks."""
    async with Engine(agent_of(place), StoppingStore(place)) as engine:
        session = engine.session("s")
        print("begun", flush=True)
        async with session.turn("go", id="go") as turn, trio.open_nursery() as nursery:
            nursery.start_soon(answer, session, place)
            async for _ in turn:
                pass
            nursery.cancel_scope.cancel()
        result = await turn.result(check=False)
        child = await engine.session("s/m2.0").messages()
        return {
            "outcome": result.outcome,
            "text": result.text,
            "calls": [call.status for call in result.calls],
            "child": [found.status for message in child for found in message.results],
            "said": child[-1].text,
        }


if __name__ == "__main__":
    print(json.dumps(trio.run(run, Place(Path(sys.argv[1]), sys.argv[2]))), flush=True)
