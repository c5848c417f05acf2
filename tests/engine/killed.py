"""A program that stops at a given place to be killed there, and goes on when it is started again.

``python -m tests.engine.killed DIRECTORY PLACE``: it prints ``there`` and waits at PLACE: a state of the turn, or
``before:N``/``after:N`` for the N-th commit. With ``-`` it stops nowhere and prints the result as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import trio

from turnstate import (
    Agent,
    ApprovalRequested,
    Engine,
    Middleware,
    ModelRequest,
    Refused,
    Reply,
    SQLiteStore,
    StepContext,
    TurnContext,
    tool,
)
from turnstate.models.base import Model, OnDelta
from turnstate.states import Text, ToolCall
from turnstate.stores.base import StoredCommit
from turnstate.testing import FaultyStore


class Place:
    """Where the program stops."""

    def __init__(self, directory: Path, place: str) -> None:
        self.directory = directory
        self.place = place

    async def here(self, place: str) -> None:
        """Stop here, if this is the place."""
        if place == self.place:
            print("there", flush=True)
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()

    def effect(self, text: str) -> None:
        """Have an effect in the world that survives a kill."""
        with open(self.directory / "effects", "a") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())


class StoppingStore(FaultyStore):
    """Stops before or after a commit."""

    def __init__(self, place: Place) -> None:
        super().__init__(SQLiteStore(place.directory / "turns.db"))
        self.place = place

    async def commit(self, commit: StoredCommit) -> None:
        number = self.commits + 1
        await self.place.here(f"before:{number}")
        await super().commit(commit)
        await self.place.here(f"after:{number}")


def agent_of(place: Place) -> Agent[None]:
    """The agent: a call that needs approval and has an effect, and one that may run again."""

    @tool(approval=True)
    async def charge(amount: int) -> str:
        place.effect("charge")
        await place.here("executing-tools")
        return "charged"

    @tool(exclusive=True, on_crash="rerun")
    async def note() -> str:
        place.effect("note")
        await place.here("rerunning")
        return "noted"

    class Script(Model):
        name = "script"

        async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
            place.effect("request")
            on_delta("text", "I am ", 0)
            await place.here("streaming")
            if request.messages[-1].role == "tool":
                return Reply((Text("; ".join(m.text for m in request.messages if m.role == "tool")),))
            return Reply((ToolCall("", "charge", '{"amount": 5}'), ToolCall("", "note", "{}")), "tool-calls")

    class Hooks(Middleware[Any]):
        async def before_model(self, ctx: StepContext[Any]) -> None:
            await place.here("before-model")

        async def after_model(self, ctx: StepContext[Any]) -> None:
            await place.here("reviewing")

        async def turn_ended(self, ctx: TurnContext[Any]) -> None:
            place.effect(f"ended {ctx.outcome}")
            await place.here("closing")

    return Agent[None](Script(), tools=[charge, note], middleware=[Hooks()])


async def run(place: Place) -> dict[str, Any]:
    """Begin the turn, or go on with it, and answer what it asks."""
    async with Engine(agent_of(place), StoppingStore(place)) as engine:
        session = engine.session("s")
        async with session.turn("go", id="go") as turn:
            async with trio.open_nursery() as nursery:

                async def answer() -> None:
                    async with session.events() as events:
                        async for event in events:
                            if isinstance(event, ApprovalRequested):
                                await place.here("awaiting-approval")
                                try:
                                    await session.approve(event.call)
                                except Refused:
                                    pass

                nursery.start_soon(answer)
                async for _ in turn:
                    pass
                nursery.cancel_scope.cancel()
            result = await turn.result(check=False)
            calls = {call.tool: call.status for call in result.calls}
            return {"outcome": result.outcome, "text": result.text, "calls": calls, "steps": result.steps}


if __name__ == "__main__":
    print(json.dumps(trio.run(run, Place(Path(sys.argv[1]), sys.argv[2]))), flush=True)
