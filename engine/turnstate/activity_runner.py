"""Running the activities of one session: one at a time, each in a task of the engine's nursery."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import attrs
import trio

from turnstate_states.content import Part
from turnstate_states.errors import HookError
from turnstate_states.reports import Activity, AttemptFailed, Closed, Prepared, Report, Reviewed

from . import activities
from .failures import bug, failure_in
from .feed import Attempt
from .middleware.base import StepContext, TurnContext
from .models.base import ModelRequest
from .records import info_of

if TYPE_CHECKING:
    from .driver import Driver

__all__ = ["ActivityRunner"]

log = logging.getLogger("turnstate")


@attrs.define(eq=False)
class Running:
    """The running prepare, attempt, review or closing."""

    key: Activity
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


class ActivityRunner:
    """Starts, cancels and reports the prepare, attempt, review and closing of a driven session."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._running: Running | None = None
        self._deps: Any = None
        self._deps_turn = ""
        self._cache: dict[Any, Any] = {}
        self._request: ModelRequest | None = None
        self._partial: tuple[Part, ...] = ()

    @property
    def active(self) -> bool:
        """Whether one runs."""
        return self._running is not None

    def cancel(self) -> None:
        """Tell the running one to end."""
        if self._running is not None:
            self._running.scope.cancel()

    def cancel_other(self) -> None:
        """Tell the running one to end if it is not what the session wants any more."""
        if self._running is not None and self._running.key != self._driver.core.activity:
            self._running.scope.cancel()

    def start_missing(self) -> None:
        """Start what the session wants, if nothing runs."""
        wanted = self._driver.core.activity
        if wanted is None or wanted.kind == "execute" or self._running is not None:
            return
        self._running = Running(wanted)
        self._driver.engine.start(self._run, self._running)

    def take_partial(self) -> tuple[Part, ...]:
        """What the attempt that was told to end gave so far."""
        parts, self._partial = self._partial, ()
        return parts

    async def _run(self, running: Running) -> None:
        """One activity in its own scope, and its report."""
        try:
            with running.scope:
                # It may have been told to stop, by what is being written, before it came to begin.
                if running.key == self._driver.core.activity:
                    await self._perform(running.key)
        except BaseException as raised:
            error = failure_in(raised)
            if not running.scope.cancel_called:
                self._fail(running.key, error)
        finally:
            self._running = None
            self._driver.wake()

    async def _perform(self, key: Activity) -> None:
        turn = self._driver.core.turn
        assert turn is not None, "an activity runs only in a turn"
        self.deps()  # before a request is paid for whose calls could not run
        if key.kind == "prepare":
            context = self._context(key)
            self._request = context.request
            self._deliver(*await activities.prepare(self._driver.agent, context, key))
        elif key.kind == "closing":
            closed = await activities.closing(self._driver.agent, self._closing_context, key)
            if self._running is not None and not (closed.error and self._running.scope.cancel_called):
                self._driver.report(closed)
        elif turn.reply:
            context = self._context(key)
            context.set_reply(activities.reply_of(self._driver.core.transcript[turn.reply], turn))
            self._deliver(*await activities.review(self._driver.agent, context, key))
        else:
            await self._attempt(key)

    def _deliver(self, report: Report, error: BaseException | None) -> bool:
        """Report what an activity did; one that broke when it was told to stop did nothing."""
        if error is not None and (self._running is None or self._running.scope.cancel_called):
            return False
        self._driver.report(report, error)
        return True

    def _fail(self, key: Activity, error: BaseException) -> None:
        """The host's deps raised, or what nobody expected: that fails the turn, or is told where the turn is over."""
        log.error("%s of session %s failed", key.kind, self._driver.session, exc_info=error)
        failure = activities.failure_of(error)
        if not isinstance(error, HookError):
            failure = attrs.evolve(failure, message=bug(f"{key.kind} of session {self._driver.session} broke", error))
        if key.kind == "prepare":
            self._driver.report(Prepared(key, error=failure), error)
        elif key.kind == "closing":
            self._driver.report(Closed(key, error=failure.message))
        elif self._driver.core.turn is not None and self._driver.core.turn.reply:
            self._driver.report(Reviewed(key, error=failure), error)
        else:
            self._driver.report(AttemptFailed(key, failure), error)

    async def _attempt(self, key: Activity) -> None:
        request = self.request(key)
        prepared, self._request = self._request, None
        if prepared is not None and prepared.attempt == request.attempt:
            # What hooks changed in it stands; what they and steers added for good is in the transcript by now.
            prepared.messages = request.messages
            request = prepared
        running = Attempt(request.attempt, key.turn)
        done = False
        try:
            done = self._deliver(
                *await activities.attempt(
                    self._driver.agent, request, key, running, self._driver.feed, self._driver.now
                )
            )
        finally:
            self._partial = () if done else running.parts()

    def request(self, key: Activity) -> ModelRequest:
        """The request for an attempt, as the transcript stands."""
        turn = self._driver.core.turn
        assert turn is not None, "an activity runs only in a turn"
        return ModelRequest(
            self._driver.session,
            turn.attempt_id,
            self._driver.agent.instructions,
            self._driver.core.transcript.conversation.messages(),
            self._driver.agent.tools.definitions,
            turn.settings,
            [],
            self._cache,
        )

    def _context(self, key: Activity) -> StepContext[Any]:
        turn = self._driver.core.turn
        return StepContext(
            self.deps(),
            session_id=self._driver.session,
            turn_id=key.turn,
            step=key.step,
            attempt=key.attempt,
            hook_pass=key.hook_pass,
            request=self.request(key),
            model=self._driver.agent.model,
            overflow=None if turn is None else turn.overflow,
        )

    def _closing_context(self) -> TurnContext[Any]:
        core = self._driver.core
        turn = core.turn
        assert turn is not None, "an activity runs only in a turn"
        assert turn.outcome is not None, "closing comes after a turn has its outcome"
        return TurnContext(
            self.deps(),
            session_id=self._driver.session,
            turn_id=turn.id,
            outcome=turn.outcome,
            reason=turn.reason,
            error=turn.error,
            usage=turn.usage,
            model=self._driver.agent.model,
            title=core.checkpoint.title,
            titled=core.checkpoint.titled,
            turns=core.checkpoint.turns,
            messages=core.transcript.visible,
        )

    def deps(self) -> Any:
        """The host's dependencies for the current turn, made when it begins or goes on.

        Raises:
            HookError: they could not be made.
        """
        turn = self._driver.core.turn
        if self._driver.engine.make_deps is None or turn is None:
            return None
        if self._deps_turn != turn.id:
            self._deps = self._driver.engine.deps_for(info_of(self._driver.core.checkpoint))
            self._deps_turn = turn.id
        return self._deps
