"""A thread that is branched, answered from outside, marked and cut, to be killed at a commit and gone on with.

``python -m tests.scenarios.killed_thread DIRECTORY PLACE``: it prints ``there`` and waits at PLACE, ``before:N`` or
``after:N`` for the N-th commit.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import trio

from tests.engine.killed import Place, StoppingStore
from turnstate import (
    Agent,
    Call,
    CommandContext,
    CommandEnded,
    Engine,
    Middleware,
    ModelRequest,
    Option,
    Prompt,
    Session,
    ToolContext,
    Turn,
    TurnContext,
    command,
    tool,
)
from turnstate.testing import ScriptedModel, call


def agent_of(place: Place) -> Agent[None]:
    """An agent with a tool of each kind, hooks and a command."""

    @tool(approval=True, prompt=Prompt("How?", (Option("post"),)), on_crash="rerun")
    async def send(ctx: ToolContext[Any]) -> AsyncGenerator[str, None]:
        yield "on its way"
        place.effect("send")
        yield f"sent by {'' if ctx.decision is None else ctx.decision.option}"

    @tool(outside=True)
    def ask() -> None: ...

    class Hooks(Middleware[Any]):
        async def turn_ended(self, ctx: TurnContext[Any]) -> None:
            place.effect(f"ended {ctx.turn_id} {ctx.outcome}")

        @command("note")
        async def note(self, ctx: CommandContext[Any], arguments: Mapping[str, Any]) -> str:
            place.effect("note")
            ctx.rename("noted")
            return "noted"

    def reply(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return "; ".join(message.text for message in request.messages if message.role == "tool")
        if request.messages[-1].text == "first":
            return [call("send"), call("ask")]
        return call("ask") if request.messages[-1].text == "paused" else f"to {request.messages[-1].text}"

    return Agent[None](ScriptedModel(reply), tools=[send, ask], middleware=[Hooks()])


async def answer(session: Session, asked: Call) -> None:
    """Answer what waits; again after a crash, with the same id."""
    if asked.wants == "result":
        await session.provide(asked, {"answer": 42}, text="42", artifact="picture", id=f"answer {asked.id}")
    else:
        await session.answer(asked, option="post", id=f"answer {asked.id}")


async def finish(session: Session, turn: Turn[str]) -> None:
    """Bring a turn to its end."""
    while (result := await turn.result(check=False)).outcome == "waiting":
        for asked in result.waiting:
            await answer(session, asked)


async def run(place: Place) -> list[str]:
    """Make the thread, or go on with making it; the texts that are visible in the end."""
    async with Engine(agent_of(place), StoppingStore(place)) as engine:
        session = engine.session("s")
        async with session.turn("first", id="first") as turn:
            await finish(session, turn)
        async with session.turn("paused", edits="m1", id="paused") as turn:
            await turn.result(check=False)
        async with session.turn("else", edits="m1", id="else") as turn:  # ends the one that waits
            await turn.result()
        async with session.retry(id="again") as turn:
            await turn.result()
        await session.switch("m2", id="switch")
        await session.annotate("m2", {"good": True}, id="annotate")
        await session.command("note", id="note")
        async with session.events() as events:
            async for event in events:
                if isinstance(event, CommandEnded):
                    break
        await session.delete_message("m6", id="delete")  # what was paused
        return [message.text for message in await session.messages()]


if __name__ == "__main__":
    trio.run(run, Place(Path(sys.argv[1]), sys.argv[2]))
    print("done", flush=True)
