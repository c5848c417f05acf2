"""What a user holds of a session: a handle that reads, says and answers, and a session that also drives."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from turnstate_states.content import UserPart, as_parts
from turnstate_states.errors import InvalidInput, Refused, SessionInUse
from turnstate_states.events import Event
from turnstate_states.submissions import (
    Answer,
    Delivery,
    EditQueued,
    Interrupt,
    Receipt,
    RemoveQueued,
    Resume,
    RevokeGrant,
    Send,
    Submission,
)
from turnstate_states.transcript import Message, Transcript
from turnstate_states.turn import Call, Grant

from .inbox import post_and_wait
from .reading import check_number, load
from .records import info_of
from .results import Result, SessionInfo
from .stores.base import Store
from .streams import EventStream
from .turns import Turn, TurnManager

if TYPE_CHECKING:
    from .engine import Engine
    from .outputs import OutputType

__all__ = ["Session", "SessionHandle"]

Out = TypeVar("Out")
Content = str | Iterable[UserPart]


def new_id() -> str:
    """An id for a submission that its sender did not name."""
    return f"s-{uuid.uuid4().hex[:16]}"


def call_ids(calls: Iterable[Call | str]) -> tuple[str, ...]:
    """The ids of some calls."""
    return tuple(call.id if isinstance(call, Call) else call for call in calls)


class SessionHandle(ABC):
    """Reads a session, says things to it and answers for it, from any process.

    Methods that say something return a :class:`~turnstate.Receipt` when it is durable, and raise
    :class:`~turnstate.Refused` where the session cannot accept it. With an ``id`` of your own you may send the same again
    after a failure: it acts once.
    """

    def __init__(self, store: Store, id: str) -> None:
        self._store = store
        self.id = id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"

    @abstractmethod
    async def _submit(self, submission: Submission, *, explicit: bool) -> Receipt: ...

    # ---- reading

    async def info(self) -> SessionInfo:
        """What a list shows of it, in full. A session in which nothing was said is ``idle``."""
        loaded = await load(self._store, self.id)
        return SessionInfo(self.id) if loaded is None else info_of(loaded[0])

    async def messages(self) -> Sequence[Message]:
        """The visible messages, oldest first, the results of each reply's calls in call order."""
        loaded = await load(self._store, self.id)
        return () if loaded is None else _shown(loaded[1])

    def events(self, *, after: int = 0) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Follow the session: the stored events with a number above ``after``, then what happens, without end.

        A client that notes the last number it saw and asks again with it gets exactly the rest. Numbered events come once,
        in order. Deltas are told where this process drives the session.
        """
        return EventStream(self._store, self.id, check_number(after))

    async def grants(self) -> Sequence[Grant]:
        """The approvals for the session."""
        loaded = await load(self._store, self.id)
        return () if loaded is None else loaded[0].grants

    # ---- saying

    async def send(self, message: Content, *, delivery: Delivery = "queue", id: str | None = None) -> Receipt:
        """Send a message: it starts a turn, or waits for the running one to end (``queue``) or joins it (``steer``)."""
        if delivery not in ("queue", "steer"):
            raise InvalidInput(f"delivery: expected 'queue' or 'steer', got {delivery!r}")
        send = Send(id or new_id(), as_parts(message), delivery)
        return await self._submit(send, explicit=id is not None)

    async def steer(self, message: Content, *, id: str | None = None) -> Receipt:
        """Send a message that joins the running turn at its next request; without a turn it starts one."""
        return await self.send(message, delivery="steer", id=id)

    async def edit_queued(self, target: str, message: Content) -> Receipt:
        """Change a waiting message; ``target`` is the id of the receipt that sending it gave."""
        return await self._submit(EditQueued(new_id(), target, as_parts(message)), explicit=False)

    async def remove_queued(self, target: str) -> Receipt:
        """Take a waiting message back."""
        return await self._submit(RemoveQueued(new_id(), target), explicit=False)

    async def approve(
        self,
        *calls: Call | str,
        arguments: Mapping[str, Any] | None = None,
        for_session: bool = False,
        by: str = "",
        id: str | None = None,
    ) -> Receipt:
        """Let calls run.

        Args:
            calls: the calls, or their ids.
            arguments: run the one call with these instead; they are checked like the model's.
            for_session: also allow this tool with equal arguments from now on.
            by: who says so, for the record.
            id: the id of this answer.
        """
        raw = None if arguments is None else _json(arguments)
        answer = Answer(id or new_id(), call_ids(calls), "approve", raw, for_session, by=by)
        return await self._submit(answer, explicit=id is not None)

    async def deny(
        self, *calls: Call | str, reason: str = "", end_turn: bool = False, by: str = "", id: str | None = None
    ) -> Receipt:
        """Keep calls from running; the model is told the reason. ``end_turn`` ends the turn as well."""
        answer = Answer(id or new_id(), call_ids(calls), "deny", reason=reason, end_turn=end_turn, by=by)
        return await self._submit(answer, explicit=id is not None)

    async def interrupt(self, reason: str = "", *, turn: str | None = None) -> bool:
        """End the running turn; whether there was one (with the id ``turn``, if that is given)."""
        try:
            await self._submit(Interrupt(new_id(), turn, reason), explicit=False)
        except Refused:
            return False
        return True

    async def revoke(self, grant: Grant | str) -> None:
        """Take back an approval for the session."""
        name = grant.id if isinstance(grant, Grant) else grant
        await self._submit(RevokeGrant(new_id(), name), explicit=False)


def _json(arguments: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(arguments), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"arguments: expected plain JSON values: {error}") from None


def _shown(transcript: Transcript) -> Sequence[Message]:
    return [message for message in transcript.visible() if message.id in transcript]


class ClientHandle(SessionHandle):
    """A handle without an engine: what it says goes through the store to whoever drives the session."""

    async def _submit(self, submission: Submission, *, explicit: bool) -> Receipt:
        return await post_and_wait(self._store, self.id, submission)


class Session(SessionHandle):
    """A session of an engine: saying something to it, running it and resuming it drive it here.

    Where another engine drives it, what is said goes to that one; running and resuming raise
    :class:`~turnstate.SessionInUse`.
    """

    def __init__(self, engine: Engine[Any], id: str) -> None:
        super().__init__(engine.store, id)
        self._engine = engine

    async def _submit(self, submission: Submission, *, explicit: bool) -> Receipt:
        try:
            driver = await self._engine.drive(self.id)
        except SessionInUse:
            return await post_and_wait(self._store, self.id, submission)
        return await driver.submit(submission, explicit=explicit).wait()

    def events(self, *, after: int = 0) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Follow the session, deltas included; see :meth:`SessionHandle.events`."""
        return EventStream(self._store, self.id, check_number(after), self._engine.driven)

    @overload
    async def run(self, message: Content, *, check: bool = True) -> Result[str]: ...
    @overload
    async def run(self, message: Content, *, output: type[Out], check: bool = True) -> Result[Out]: ...
    async def run(self, message: Content, *, output: type[Any] | None = None, check: bool = True) -> Result[Any]:
        """Send a message and wait for the turn to end, or to wait for a person.

        With ``output`` the model is asked for JSON of that type (a dataclass, an attrs class, a TypedDict, ``int``, ...),
        and ``result.output`` is the value.

        Raises:
            TurnIncomplete: it did not complete; TurnFailed if something broke, or the answer is not of that type. Not with
                ``check=False``.
            InvalidInput: JSON cannot give that type.
            SessionInUse: another engine drives the session.
        """
        async with self._manage(message, output, {}, None) as turn:
            return await turn.result(check=check)

    @overload
    def turn(
        self, message: Content, *, settings: Mapping[str, Any] | None = None, id: str | None = None
    ) -> AbstractAsyncContextManager[Turn[str]]: ...
    @overload
    def turn(
        self, message: Content, *, output: type[Out], settings: Mapping[str, Any] | None = None, id: str | None = None
    ) -> AbstractAsyncContextManager[Turn[Out]]: ...
    def turn(
        self,
        message: Content,
        *,
        output: type[Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> AbstractAsyncContextManager[Turn[Any]]:
        """Send a message and hold the turn that it starts, live.

        Leaving the block early, or cancelling it, detaches: the turn goes on in the engine; :meth:`interrupt` ends it.

        Args:
            message: text or parts.
            output: the type that the answer is to have; see :meth:`run`.
            settings: settings of the model for this turn.
            id: the submission's id.
        """
        return self._manage(message, output, settings or {}, id)

    def _manage(
        self, message: Content, output: type[Any] | None, settings: Mapping[str, Any], id: str | None
    ) -> TurnManager[Any]:
        wanted: OutputType[Any] | None = None
        if output is not None and output is not str:
            from .outputs import OutputType

            wanted = OutputType(output)
            settings = {**wanted.settings, **settings}
        send = Send(id or new_id(), as_parts(message), settings=dict(settings))
        return TurnManager(self._engine, self.id, send, explicit=id is not None, output=wanted)

    def resume(self) -> AbstractAsyncContextManager[Turn[str]]:
        """Go on with the stored turn, and hold it: one that has not ended, or that ended by limit, failure or interrupt.

        Raises, on entering:
            Refused: there is nothing to go on with.
            SessionInUse: another engine drives the session.
        """
        return TurnManager(self._engine, self.id, Resume(new_id()), explicit=False)
