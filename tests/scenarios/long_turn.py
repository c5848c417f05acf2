"""A turn of 200 steps with steers and summaries, to be killed and started again.

``python -m tests.scenarios.long_turn DIRECTORY`` prints a line for each step that begins, and the result as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import trio

from turnstate import Agent, Engine, Limits, ModelRequest, Session, SQLiteStore, StepStarted, tool
from turnstate.middleware import Compaction
from turnstate.testing import ScriptedModel, call

STEPS = 200


def note_down(path: Path, text: str) -> None:
    """Write a line that survives a kill."""
    with open(path, "a") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())


def agent_of(directory: Path) -> Agent[None]:
    """Two calls in each step: one that must not repeat, and one that may."""

    @tool
    async def charge(step: int) -> str:
        note_down(directory / "effects", f"charge {step}")
        return "charged"

    @tool(on_crash="rerun")
    def note(step: int) -> str:
        note_down(directory / "effects", f"note {step}")
        return "noted"

    def reply(request: ModelRequest) -> Any:
        step = int(request.attempt.split(".")[1])
        return "done" if step > STEPS else [f"step {step}", call("charge", step=step), call("note", step=step)]

    summaries = ScriptedModel(lambda request: "so far so good", name="summaries")
    return Agent[None](
        ScriptedModel(reply),
        tools=[charge, note],
        middleware=[Compaction(summaries, window=20_000, trigger=400, keep=100)],
        limits=Limits(steps=STEPS * 2, resumptions=100),
    )


async def steer(directory: Path, session: Session, text: str) -> None:
    """Steer, with an id of its own, so that it can be said again after a crash."""
    note_down(directory / "sent", text)
    await session.steer(text, id=text)
    note_down(directory / "accepted", text)


async def run(directory: Path) -> dict[str, Any]:
    """Begin the turn, or go on with it."""
    for name in ("sent", "accepted"):
        (directory / name).touch()
    accepted = (directory / "accepted").read_text().splitlines()
    doubtful = [text for text in (directory / "sent").read_text().splitlines() if text not in accepted]
    async with Engine(agent_of(directory), SQLiteStore(directory / "turns.db")) as engine:
        session = engine.session("s")
        async with session.turn("go", id="go") as turn:
            for text in doubtful:
                await session.steer(text, id=text)
            async for event in turn:
                if isinstance(event, StepStarted):
                    print(f"step {event.step}", flush=True)
                    if (
                        event.step % 10 == 0
                        and event.step <= STEPS
                        and f"steer {event.step}" not in accepted + doubtful
                    ):
                        await steer(directory, session, f"steer {event.step}")
            result = await turn.result(check=False)
        calls = {f"{call.tool} {call.arguments['step']}": call.status for call in result.calls}
        said = [message.text for message in await session.messages() if message.role == "user"]
        return {"outcome": result.outcome, "text": result.text, "steps": result.steps, "calls": calls, "said": said}


if __name__ == "__main__":
    print(json.dumps(trio.run(run, Path(sys.argv[1]))), flush=True)
