"""A session of an engine: it also drives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from turnstate_states import checks
from turnstate_states.content import as_parts
from turnstate_states.errors import SessionInUse
from turnstate_states.events import Event
from turnstate_states.submissions import Edit, Receipt, Regenerate, Resume, Send, Submission
from turnstate_states.transcript import Message

from .inbox import post_and_wait
from .inputs import checked, message_id, new_id, submission_id
from .reading import check_number
from .results import Result
from .session_handle import Content, SessionHandle
from .streams import EventStream
from .turns import Turn, TurnManager

if TYPE_CHECKING:
    from .engine import Engine
    from .outputs import OutputType

__all__ = ["Session"]

Out = TypeVar("Out")
S = TypeVar("S", bound=Submission)


class Session(SessionHandle):
    """A session of an engine: saying something to it, running it and resuming it drive it here.

    Where another engine drives it, what is said goes to that one; running and resuming raise
    :class:`~turnstate.SessionInUse`.
    """

    def __init__(self, engine: Engine[Any], id: str) -> None:
        super().__init__(engine.store, id)
        self._engine = engine

    def _beside(self, id: str) -> Session:
        return Session(self._engine, id)

    async def _submit(self, submission: Submission, *, explicit: bool) -> Receipt:
        submission = self._checked(submission)
        try:
            driver = await self._engine.drive(self.id)
        except SessionInUse:
            return await post_and_wait(self._store, self.id, submission)
        return await driver.submit(submission, explicit=explicit).wait()

    def events(self, *, after: int = 0) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Follow the session, deltas included; see :meth:`SessionHandle.events`."""
        return EventStream(self._store, self.id, check_number(after), self._shown, self._engine.driven)

    @overload
    async def run(self, message: Content, *, edits: Message | str = "", check: bool = True) -> Result[str]: ...
    @overload
    async def run(
        self, message: Content, *, output: type[Out], edits: Message | str = "", check: bool = True
    ) -> Result[Out]: ...
    async def run(
        self, message: Content, *, output: type[Any] | None = None, edits: Message | str = "", check: bool = True
    ) -> Result[Any]:
        """Send a message and wait for the turn to complete.

        It never waits for a person: where the turn can go on only with an answer (an approval, a result from outside), it
        raises :class:`~turnstate.TurnIncomplete` at once, whose ``result`` has the outcome ``waiting`` and in ``waiting``
        the calls, and the turn waits on. With ``check=False`` that result is returned instead. Answer with
        :meth:`approve`, :meth:`deny`, :meth:`answer` or :meth:`provide`, and hold the turn with :meth:`resume`.

        With ``edits`` it takes the place of that message, which stays as a branch; see :meth:`SessionHandle.edit`.

        With ``output`` the model is asked for JSON of that type (a dataclass, an attrs class, a TypedDict, ``int``, ...),
        and ``result.output`` is the value.

        Raises:
            TurnIncomplete: it did not complete, or waits for a person; TurnFailed if something broke, or the answer is not
                of that type. Not with ``check=False``.
            InvalidInput: JSON cannot give that type.
            SessionInUse: another engine drives the session.
        """
        checks.flag("check", check)
        async with self._manage(message, output, None, None, edits) as turn:
            return await turn.result(check=check)

    @overload
    def turn(
        self,
        message: Content,
        *,
        edits: Message | str = "",
        settings: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> AbstractAsyncContextManager[Turn[str]]: ...
    @overload
    def turn(
        self,
        message: Content,
        *,
        output: type[Out],
        edits: Message | str = "",
        settings: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> AbstractAsyncContextManager[Turn[Out]]: ...
    def turn(
        self,
        message: Content,
        *,
        output: type[Any] | None = None,
        edits: Message | str = "",
        settings: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> AbstractAsyncContextManager[Turn[Any]]:
        """Send a message and hold the turn that it starts, live.

        Leaving the block early, or cancelling it, detaches: the turn goes on in the engine; :meth:`interrupt` ends it.

        Args:
            message: text or parts.
            output: the type that the answer is to have; see :meth:`run`.
            edits: a person's earlier message that this one takes the place of; see :meth:`SessionHandle.edit`.
            settings: settings of the model for this turn.
            id: the submission's id.

        Raises:
            InvalidInput: the message or a setting cannot be used.
        """
        return self._manage(message, output, settings, id, edits)

    def _manage(
        self,
        message: Content,
        output: type[Any] | None,
        settings: Mapping[str, Any] | None,
        id: str | None,
        edits: Message | str,
    ) -> TurnManager[Any]:
        given = {} if settings is None else checks.json_object("settings", settings)
        wanted: OutputType[Any] | None = None
        if output is not None and output is not str:
            from .outputs import OutputType

            wanted = OutputType(output)
            given = {**wanted.settings, **given}
        said: Send | Edit = Send(submission_id(id), as_parts(message), settings=given)
        if edited := message_id(edits, "edits"):
            said = Edit(said.id, edited, said.parts, said.settings)
        return TurnManager(
            self._engine, self.id, self._checked(said), explicit=id is not None, output=wanted, shown=self._shown
        )

    def _checked(self, submission: S) -> S:
        submission = checked(submission)
        if isinstance(submission, (Send, Edit, Regenerate)):
            self._engine.agent.model.check_settings(submission.settings)
        return submission

    def retry(
        self, message: Message | str = "", *, settings: Mapping[str, Any] | None = None, id: str | None = None
    ) -> AbstractAsyncContextManager[Turn[str]]:
        """Have the model answer again, and hold the turn, live; see :meth:`SessionHandle.regenerate`."""
        again = Regenerate(submission_id(id), message_id(message), {} if settings is None else settings)
        return TurnManager(self._engine, self.id, self._checked(again), explicit=id is not None, shown=self._shown)

    def resume(self) -> AbstractAsyncContextManager[Turn[str]]:
        """Go on with the stored turn, and hold it: one that has not ended, or that ended by limit, failure or interrupt.

        Raises, on entering:
            Refused: there is nothing to go on with.
            SessionInUse: another engine drives the session.
        """
        return TurnManager(self._engine, self.id, Resume(new_id()), explicit=False, shown=self._shown)
