"""Carrying out commands: one after the other, each by the middleware that owns it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from turnstate_states.reports import CommandDone
from turnstate_states.submissions import Command

from .failures import describe, failure_in
from .middleware.base import CommandContext, plain_json
from .records import info_of

if TYPE_CHECKING:
    from .driver import Driver

__all__ = ["CommandRunner"]

log = logging.getLogger("turnstate")
LIMIT = 300.0
"""Seconds that a command may take."""


class CommandRunner:
    """Carries out the commands of a driven session."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._running = ""
        self._scope = trio.CancelScope()

    @property
    def active(self) -> bool:
        """Whether one is carried out now."""
        return bool(self._running)

    def cancel(self) -> None:
        """Tell the running one to end; it is carried out again by whoever drives the session next."""
        self._scope.cancel()

    def start_next(self) -> None:
        """Begin the oldest one, if none runs."""
        waiting = self._driver.core.commands
        if self._running or not waiting:
            return
        self._running = waiting[0].id
        self._scope = trio.CancelScope()
        self._driver.engine.start(self._run, waiting[0])

    async def _run(self, command: Command) -> None:
        try:
            with self._scope:
                self._driver.report(await self._carry_out(command))
        finally:
            self._running = ""
            self._driver.wake()

    async def _carry_out(self, command: Command) -> CommandDone:
        """What the middleware makes of it; an error is told, and what was done through the context is dropped."""
        driver = self._driver
        carry = driver.agent.commands.get(command.name)
        if carry is None:
            return CommandDone(command.id, error=f"no middleware carries out {command.name} any more")
        try:
            context = CommandContext(
                driver.engine.deps_for(info_of(driver.core.checkpoint)),
                session_id=driver.session,
                command_id=command.id,
                name=command.name,
                model=driver.agent.model,
                messages=driver.core.transcript.visible,
            )
            with trio.fail_after(LIMIT):
                result = plain_json("result", await carry(context, command.arguments))
            return CommandDone(command.id, result, context.effects())
        except BaseException as raised:
            error = failure_in(raised)
            log.error("command %s failed in session %s", command.name, driver.session, exc_info=error)
            return CommandDone(command.id, error=describe(error))
