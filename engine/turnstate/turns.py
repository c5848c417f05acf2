"""A turn as a user holds it, live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, cast

import attrs
from typing_extensions import TypeVar

from turnstate_states import checks
from turnstate_states.errors import ModelError, Refused
from turnstate_states.events import Event, Lagged, TextDelta, TurnEnded
from turnstate_states.submissions import Resume, Submission
from turnstate_states.turn import Call

from .errors import TurnFailed, TurnIncomplete
from .feed import Subscription
from .records import waiting_calls
from .results import Result
from .shown import Shown
from .watching import Watcher

if TYPE_CHECKING:
    from .driver import Driver
    from .engine import Engine
    from .outputs import OutputType

__all__ = ["Turn", "TurnManager"]

Out = TypeVar("Out", default=str)


class Turn(Generic[Out]):
    """A turn that runs in the engine: iterate over its events, or wait for its result.

    Iterating ends with :class:`~turnstate.TurnEnded`. Events are told from the moment the turn was entered; read slowly and
    you are told :class:`~turnstate.Lagged` instead of delaying anybody.
    """

    def __init__(
        self,
        driver: Driver,
        watcher: Watcher,
        subscription: Subscription,
        output: OutputType[Out] | None,
        shown: Shown,
    ) -> None:
        self._output = output
        self._shown = shown
        self._driver = driver
        self._watcher = watcher
        self._events = subscription
        self._over = False

    @property
    def id(self) -> str:
        """Its id (``t3``); empty while its message still waits for another turn to end."""
        return self._watcher.turn

    @property
    def waiting(self) -> list[Call]:
        """The calls that wait for a person now."""
        calls = waiting_calls(self._driver.stored) if self.id and self._driver.runs(self.id) else []
        self._shown.note(calls)
        return calls

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._over:
            end = self._watcher.last
            if self._watcher.missed and end is not None:
                self._over = True
                return end
            event = await self._events.__anext__()
            if isinstance(event, Lagged):
                self._watcher.missed = True
                return event
            if event.turn and event.turn == self.id:
                self._over = isinstance(event, TurnEnded)
                self._shown.note_event(event)
                return event
        raise StopAsyncIteration

    async def text(self) -> AsyncIterator[str]:
        """The reply's text as it comes. What a broken attempt gave is in it too; see :class:`~turnstate.Retrying`."""
        async for event in self:
            if isinstance(event, TextDelta):
                yield event.text

    async def result(self, *, check: bool = True) -> Result[Out]:
        """Wait until the turn ends, or only a person can make it go on (outcome ``waiting``).

        Raises:
            TurnIncomplete: it did not complete, or waits for a person; TurnFailed if something broke, with the cause where
                it is known, or if the answer is not of the type that was asked for. With ``check=False`` the result is
                returned whatever the outcome; ``output`` is None where there is no answer of that type.
            StoreError: the turn cannot go on here, because a commit failed.
        """
        checks.flag("check", check)
        watcher = self._watcher
        while (result := watcher.ended or self._driver.waiting_result(watcher)) is None:
            if watcher.error is not None:
                raise watcher.error
            await watcher.changed.wait()
        self._shown.note(result.waiting)
        if check and result.outcome != "completed":
            kind = TurnFailed if result.outcome == "failed" else TurnIncomplete
            raise kind(result) from watcher.failed
        return self._with_output(result, check=check)

    def _with_output(self, result: Result[str], *, check: bool) -> Result[Out]:
        if self._output is None:
            return cast("Result[Out]", result)
        try:
            value = self._output.parse(result.text) if result.outcome == "completed" else None
        except ModelError as error:
            if check:
                raise TurnFailed(attrs.evolve(result, reason=str(error))) from error
            value = None
        return cast("Result[Out]", attrs.evolve(result, output=cast(Any, value)))

    def detach(self) -> None:
        """Stop watching; the turn goes on."""
        self._events.close()
        if self._watcher in self._driver.watchers:
            self._driver.watchers.remove(self._watcher)
        self._driver.wake()


class TurnManager(AbstractAsyncContextManager[Turn[Out]], Generic[Out]):
    """Starts or resumes a turn when it is entered, and detaches when it is left."""

    def __init__(
        self,
        engine: Engine[Any],
        session: str,
        submission: Submission,
        *,
        explicit: bool,
        output: OutputType[Out] | None = None,
        shown: Shown | None = None,
    ) -> None:
        self._output = output
        self._shown = shown or Shown()
        self._engine = engine
        self._session = session
        self._submission = submission
        self._explicit = explicit
        self._turn: Turn[Out] | None = None

    async def __aenter__(self) -> Turn[Out]:
        driver = await self._engine.drive(self._session)
        watcher = Watcher(self._submission.id, next=isinstance(self._submission, Resume))
        turn = self._turn = Turn(driver, watcher, driver.feed.subscribe(), self._output, self._shown)
        driver.watchers.append(watcher)
        try:
            await self._begin(driver, watcher)
        except BaseException:
            turn.detach()
            raise
        return turn

    async def _begin(self, driver: Driver, watcher: Watcher) -> None:
        current = driver.core.turn
        if isinstance(self._submission, Resume) and current is not None and not current.closed:
            watcher.turn = current.id
            driver.wake()
            return
        try:
            receipt = await driver.submit(self._submission, explicit=self._explicit).wait()
        except Refused as refused:
            current = driver.core.turn
            if isinstance(self._submission, Resume) and refused.code == "busy" and current and not current.closed:
                watcher.turn = current.id  # somebody's message, which came at the same time, has started it
                return
            raise
        if receipt.duplicate:
            await driver.find_turn(watcher, receipt.turn)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._turn is not None:
            self._turn.detach()
