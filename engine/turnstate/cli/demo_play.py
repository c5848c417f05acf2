"""The demo's processes: started, killed at the right instant, and started again."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from turnstate_states.errors import TurnstateError
from turnstate_states.events import CallStarted, TurnEnded

from ..reading import read_events
from ..states import Call
from ..stores.base import Store
from .demo_story import Story
from .listing import counted
from .moments import moment

__all__ = ["Play"]

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds after which something is wrong with the demo itself."""
STEERS = {
    "charge_card": "The receipt goes to billing@example.org instead, please.",
    "send_receipt": "And how much was charged in the end?",
}
WORLD = {"charge_card": ".ledger", "send_receipt": ".outbox"}


class ProcessEnded(TurnstateError):
    """The agent's process is gone, and nobody killed it."""


@attrs.frozen
class Play:
    """What happens in the demo.

    Args:
        story: tells it.
        store: the file as this process opened it.
        db: its path.
        session: the session's id.
    """

    story: Story
    store: Store
    db: Path
    session: str

    async def whole(self) -> None:
        """A turn from its start over the kill to its end."""
        if await self._begin("charge_card"):
            self.story.part(
                "A new process takes the same file and goes on",
                "charge_card has a check: a function that looks at the world. It finds the charge in the ledger, so the card "
                "is not charged again. Without a check the model would be told that the outcome is unknown.",
            )
            await self._to_the_end()
        self._sum_up()

    async def crash(self) -> bool:
        """A turn from its start to the kill; whether it came to that."""
        killed = await self._begin("send_receipt")
        if not killed:
            self._sum_up()
        return killed

    async def go_on(self) -> None:
        """The rest of a turn whose process was killed in an earlier run."""
        story = self.story
        info = await story.session.info()
        for event in await read_events(self.store, self.session, 0):
            story.skip(event)
        states = " → ".join(story.path.drawn())
        story.part(
            f"A killed turn was found, from {moment(info.updated_at)}",
            "Nobody saved anything on the way out: the file is what SIGKILL left.",
        )
        story.say("path so far", states, "blue")
        story.part(
            "A new process takes the file and goes on",
            "send_receipt has no check. It had started, so it may have taken effect: it does not run again, and the model is "
            "told just that.",
        )
        await self._to_the_end()
        self._sum_up()

    async def _begin(self, victim: str) -> bool:
        """Run the turn until the tool ``victim`` is in the middle of its work, then kill the process.

        Returns:
            Whether that happened: a person may say no before.
        """
        story = self.story
        story.part(
            "A process starts a turn, and asks before it acts",
            "Each state below is in the file before anything follows from it. You answer from this process, as a web server "
            "would, through Client(store); the agent's process could be down meanwhile.",
        )
        async with self._process(victim) as process:
            call = await self._follow(process, victim)
            if call is None:
                story.say("no kill", f"{victim} did not run, so there is nothing to kill; say yes the next time", "dim")
                return False
            effect = await self._effect(victim)
            story.part(
                f"The process is killed in the middle of {victim}",
                "The tool has done its work but not said so: after the effect, before its result is stored. Just before, "
                "someone steers: accepted means stored.",
            )
            story.say("world", f"{WORLD[victim][1:]}: {effect}")
            await story.session.steer(STEERS[victim])
            for event in await read_events(self.store, self.session, story.last):
                await story.tell(event)
            process.kill()
            await process.wait()
            story.say("killed", f"SIGKILL, process {process.pid}", "red")
        return True

    async def _to_the_end(self) -> None:
        async with self._process() as process:
            await self._follow(process)
            with trio.fail_after(PATIENCE):
                await process.wait()

    @asynccontextmanager
    async def _process(self, slow: str = "") -> AsyncGenerator[trio.Process]:
        """The agent's process. It ends when its standard input does, whatever becomes of this one."""
        command = [sys.executable, "-P", "-m", "turnstate.cli.demo_child", str(self.db), self.session, slow]
        with tempfile.TemporaryFile() as errors:
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
            )
            self.story.say("process", f"{process.pid} starts", "dim")
            try:
                yield process
            except ProcessEnded as error:
                errors.seek(0)
                lines = errors.read().decode(errors="replace").strip().splitlines()
                raise TurnstateError(f"{error}: {lines[-1]}" if lines else str(error)) from None
            finally:
                if process.returncode is None:
                    process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()

    async def _follow(self, process: trio.Process, victim: str = "") -> Call | None:
        """Tell events until the tool ``victim`` starts, which is returned, or the turn ends."""

        async def follow() -> Call | None:
            async with self.story.session.events(after=self.story.last) as events:
                async for event in events:
                    await self.story.tell(event)
                    if isinstance(event, CallStarted) and event.call.tool == victim:
                        return event.call
                    if isinstance(event, TurnEnded):
                        return None
            return None

        return await _while_alive(process, follow)

    async def _effect(self, tool: str) -> str:
        """Wait until the tool's effect is in the world."""
        with trio.fail_after(PATIENCE):
            while not (lines := self._world(WORLD[tool])):  # noqa: ASYNC110 - another process writes it
                await trio.sleep(0.01)
        return lines[-1]

    def _world(self, end: str) -> list[str]:
        """What the tools of this session did, whole lines."""
        path = self.db.with_suffix(end)
        text = path.read_text() if path.exists() else ""
        return [
            line.rstrip()
            for line in text.splitlines(keepends=True)
            if f"[{self.session}, key " in line and "\n" in line
        ]

    def _sum_up(self) -> None:
        story = self.story
        story.part(
            "What is in the world now",
            "turnstate demo --source prints the program; turnstate demo --crash stops after the kill.",
        )
        for name, end in (("ledger", ".ledger"), ("outbox", ".outbox")):
            story.say(name, "\n".join(self._world(end)) or "nothing")
        ended = story.ended
        if ended is not None:
            story.say(
                "turn", f"{ended.outcome}, {counted(ended.steps, 'step')}, {counted(ended.calls, 'call')}", "green"
            )
        story.terminal.line()


async def _while_alive(process: trio.Process, follow: Callable[[], Awaitable[T]]) -> T:
    """Follow, unless the process ends and what it said last does not come either."""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            if await process.wait() == 0:
                await trio.sleep(PATIENCE)
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        result = await follow()
        nursery.cancel_scope.cancel()
        return result
    raise ProcessEnded("the demo's process ended before its turn did")
