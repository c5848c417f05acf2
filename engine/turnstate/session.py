"""What a user holds of a session: a handle that reads, says and answers, and a session that also drives."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from turnstate_states import codec
from turnstate_states.checkpoint import Checkpoint
from turnstate_states.content import UserPart, as_parts
from turnstate_states.errors import CheckpointError, InvalidInput, Refused, SessionInUse
from turnstate_states.events import Event
from turnstate_states.submissions import (
    Annotate,
    Answer,
    Command,
    Delete,
    Delivery,
    Describe,
    Edit,
    EditQueued,
    Interrupt,
    Provide,
    Receipt,
    Regenerate,
    RemoveQueued,
    Resume,
    RevokeGrant,
    Send,
    Submission,
    Switch,
    Verdict,
)
from turnstate_states.transcript import Message, Transcript
from turnstate_states.turn import Call, Decision, Grant

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
    from .views import ThreadView

__all__ = ["Session", "SessionHandle"]

Out = TypeVar("Out")
Handle = TypeVar("Handle", bound="SessionHandle")
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
    def _beside(self: Handle, id: str) -> Handle:
        """Another session of the same kind."""

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

    async def thread(self) -> ThreadView:
        """The visible messages with what user interfaces show of them: status, calls, and which branch of how many."""
        from .views import read_thread_view

        return await read_thread_view(self._store, self.id)

    async def branches(self, message: Message | str) -> Sequence[Message]:
        """The messages that stand in the same place as this one, itself included, oldest first.

        Raises:
            Refused: there is no such message.
        """
        _, transcript = await self._loaded()
        name = _message_id(message)
        if name not in transcript:
            raise Refused("gone", f"there is no message {name} in session {self.id}")
        return [transcript[found] for found in transcript.branches(name)]

    async def _loaded(self) -> tuple[Checkpoint, Transcript]:
        loaded = await load(self._store, self.id)
        return (Checkpoint(self.id, 0.0), Transcript()) if loaded is None else loaded

    async def export(self) -> bytes:
        """All messages with all branches, as JSON that ``import_session`` of an engine or a client reads."""
        from turnstate_states.thread import export_thread

        return export_thread(*await self._loaded())

    async def fork(self: Handle, message: Message | str | None = None, *, id: str | None = None) -> Handle:
        """Begin another session with the messages up to and with this one.

        Args:
            message: a message that is not between a call and its result; by default the last such one that is visible.
            id: the new session's id; by default one is made.

        Returns:
            The new session. Approvals, labels and what waits stay with this one.

        Raises:
            Refused: there is no such message, it is between a call and its result, or the new session exists.
        """
        from turnstate_states.thread import fork_thread

        from .beginning import begin

        at = None if message is None else _message_id(message)
        thread = fork_thread(*await self._loaded(), at)
        new = f"{self.id[:180]}-{uuid.uuid4().hex[:8]}" if id is None else _new_session(id)
        await begin(self._store, new, thread, source=self.id)
        return self._beside(new)

    async def grants(self) -> Sequence[Grant]:
        """The approvals for the session."""
        loaded = await load(self._store, self.id)
        return () if loaded is None else loaded[0].grants

    # ---- saying

    async def send(self, message: Content, *, delivery: Delivery = "queue", id: str | None = None) -> Receipt:
        """Send a message. It starts a turn; or, while one runs,

        - ``queue``: waits for it to end,
        - ``steer``: joins it at its next request,
        - ``supersede``: ends it, and starts the next one.
        """
        if delivery not in ("queue", "steer", "supersede"):
            raise InvalidInput(f"delivery: expected 'queue', 'steer' or 'supersede', got {delivery!r}")
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

    async def edit(
        self,
        message: Message | str,
        content: Content,
        *,
        settings: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> Receipt:
        """Say a person's message otherwise: a branch beside it, with a turn of its own. The old one stays.

        A turn that waits for a person is ended by it, as superseded; one that works is not disturbed (``busy``).
        """
        edit = Edit(id or new_id(), _message_id(message), as_parts(content), _mapping("settings", settings or {}))
        return await self._submit(edit, explicit=id is not None)

    async def regenerate(
        self, message: Message | str = "", *, settings: Mapping[str, Any] | None = None, id: str | None = None
    ) -> Receipt:
        """Have the model answer again; the old answer stays as a branch.

        Args:
            message: a person's message to be answered again, or a reply of the model's to get another one beside; by default
                the last person's message.
            settings: settings of the model for the new turn.
            id: the submission's id.
        """
        again = Regenerate(id or new_id(), _message_id(message), _mapping("settings", settings or {}))
        return await self._submit(again, explicit=id is not None)

    async def switch(self, message: Message | str, *, id: str | None = None) -> Receipt:
        """Show the branch that goes through this message, down to what was shown of it last."""
        return await self._submit(Switch(id or new_id(), _message_id(message)), explicit=id is not None)

    async def delete_message(self, message: Message | str, *, id: str | None = None) -> Receipt:
        """Take a message out of the thread, with the results of its calls; what followed follows the one before it.

        What was written stays in the store until the session is deleted.
        """
        return await self._submit(Delete(id or new_id(), _message_id(message)), explicit=id is not None)

    async def annotate(self, message: Message | str, metadata: Mapping[str, Any], *, id: str | None = None) -> Receipt:
        """Lay metadata (plain JSON: feedback, a rating, ...) over a message's; None takes a key away. No model sees it."""
        note = Annotate(id or new_id(), _message_id(message), _mapping("metadata", metadata))
        return await self._submit(note, explicit=id is not None)

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
        raw = None if arguments is None else _json("arguments", _mapping("arguments", arguments))
        answer = Answer(id or new_id(), call_ids(calls), "approve", raw, for_session, by=by)
        return await self._submit(answer, explicit=id is not None)

    async def deny(
        self, *calls: Call | str, reason: str = "", end_turn: bool = False, by: str = "", id: str | None = None
    ) -> Receipt:
        """Keep calls from running; the model is told the reason. ``end_turn`` ends the turn as well."""
        answer = Answer(id or new_id(), call_ids(calls), "deny", reason=reason, end_turn=end_turn, by=by)
        return await self._submit(answer, explicit=id is not None)

    async def answer(
        self,
        call: Call | str,
        *,
        option: str = "",
        text: str = "",
        answers: Mapping[str, Any] | None = None,
        verdict: Verdict = "",
        reason: str = "",
        by: str = "",
        id: str | None = None,
    ) -> Receipt:
        """Answer the prompt of a call.

        Args:
            call: the call, or its id.
            option: the id of the option that was chosen.
            text: what was written.
            answers: for each question's id ``{"options": [...], "text": "..."}``.
            verdict: ``approve`` or ``deny`` where that does not follow from the rest; ``dismiss`` closes the prompt.
            reason: why, for the model.
            by: who says so, for the record.
            id: the id of this answer.
        """
        said = Answer(
            id or new_id(),
            call_ids([call]),
            verdict,
            reason=reason,
            by=by,
            option=option,
            text=text,
            answers=_mapping("answers", answers or {}),
        )
        return await self._submit(said, explicit=id is not None)

    async def provide(
        self,
        call: Call | str,
        result: Any = None,
        *,
        text: str | None = None,
        error: bool = False,
        artifact: Any = None,
        preliminary: bool = False,
        by: str = "",
        id: str | None = None,
    ) -> Receipt:
        """Say what a call gave that waits for somebody outside; of one that waits for a decision, in place of running it.

        Args:
            call: the call, or its id.
            result: any plain JSON value, None included.
            text: what the model reads instead.
            error: it failed; ``result`` says how.
            artifact: plain JSON for user interfaces; no model sees it.
            preliminary: it is only what there is so far: it is told, and the call waits on.
            by: who says so, for the record.
            id: the id of this answer.
        """
        _json("result", result)
        _json("artifact", artifact)
        (name,) = call_ids([call])
        said = Provide(id or new_id(), name, result, text, error, artifact, preliminary, by)
        return await self._submit(said, explicit=id is not None)

    async def rename(self, title: str) -> Receipt:
        """Give the session another title; it is cut to 200 characters."""
        return await self._submit(Describe(new_id(), title), explicit=False)

    async def label(self, labels: Mapping[str, str | None]) -> Receipt:
        """Set labels, by which lists can be filtered; None takes one away."""
        return await self._submit(Describe(new_id(), labels=_mapping("labels", labels)), explicit=False)

    async def archive(self, archived: bool = True) -> Receipt:
        """Take the session off the usual list, or put it back."""
        return await self._submit(Describe(new_id(), archived=archived), explicit=False)

    async def command(self, name: str, arguments: Mapping[str, Any] | None = None, *, id: str | None = None) -> Receipt:
        """Have the middleware that owns this command carry it out.

        The receipt says that it will be; :class:`~turnstate.CommandEnded` tells what it gave.
        """
        return await self._submit(
            Command(id or new_id(), name, _mapping("arguments", arguments or {})), explicit=id is not None
        )

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


def _new_session(id: str) -> str:
    from .engine import check_id

    return check_id(id)


def _message_id(message: Message | str) -> str:
    return message.id if isinstance(message, Message) else message


def _json(what: str, value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what}: expected plain JSON values: {error}") from None


def _mapping(what: str, value: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"{what}: expected a mapping, got {type(value).__name__}")
    for name in value:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"{what}: expected text as keys, got {name!r}")
    return dict(value)


def checked(submission: Submission) -> Submission:
    """The submission as it is read again: a value of another type than expected would spoil what is stored.

    Raises:
        InvalidInput: a value cannot be stored, or is of another type; the text names it.
    """
    try:
        return codec.decode_submission(codec.encode_submission(submission))
    except CheckpointError as error:
        raise InvalidInput(str(error)) from None
    except (TypeError, ValueError, RecursionError):
        codec.digest(submission)  # it says what cannot be stored
        raise


def _shown(transcript: Transcript) -> Sequence[Message]:
    return [message for message in transcript.visible() if message.id in transcript]


class ClientHandle(SessionHandle):
    """A handle without an engine: what it says goes through the store to whoever drives the session."""

    def _beside(self, id: str) -> ClientHandle:
        return ClientHandle(self._store, id)

    async def _submit(self, submission: Submission, *, explicit: bool) -> Receipt:
        return await post_and_wait(self._store, self.id, checked(submission))


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
        if isinstance(submission, (Send, Edit, Regenerate)):
            self._engine.agent.model.check_settings(submission.settings)
        submission = checked(submission)
        try:
            driver = await self._engine.drive(self.id)
        except SessionInUse:
            return await post_and_wait(self._store, self.id, submission)
        return await driver.submit(submission, explicit=explicit).wait()

    def events(self, *, after: int = 0) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Follow the session, deltas included; see :meth:`SessionHandle.events`."""
        return EventStream(self._store, self.id, check_number(after), self._engine.driven)

    @overload
    async def run(self, message: Content, *, edits: Message | str = "", check: bool = True) -> Result[str]: ...
    @overload
    async def run(
        self, message: Content, *, output: type[Out], edits: Message | str = "", check: bool = True
    ) -> Result[Out]: ...
    async def run(
        self, message: Content, *, output: type[Any] | None = None, edits: Message | str = "", check: bool = True
    ) -> Result[Any]:
        """Send a message and wait for the turn to end, or to wait for a person.

        With ``edits`` it takes the place of that message, which stays as a branch; see :meth:`SessionHandle.edit`.

        With ``output`` the model is asked for JSON of that type (a dataclass, an attrs class, a TypedDict, ``int``, ...),
        and ``result.output`` is the value.

        Raises:
            TurnIncomplete: it did not complete; TurnFailed if something broke, or the answer is not of that type. Not with
                ``check=False``.
            InvalidInput: JSON cannot give that type.
            SessionInUse: another engine drives the session.
        """
        async with self._manage(message, output, {}, None, edits) as turn:
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
        return self._manage(message, output, _mapping("settings", settings or {}), id, edits)

    def _manage(
        self,
        message: Content,
        output: type[Any] | None,
        settings: Mapping[str, Any],
        id: str | None,
        edits: Message | str,
    ) -> TurnManager[Any]:
        wanted: OutputType[Any] | None = None
        if output is not None and output is not str:
            from .outputs import OutputType

            wanted = OutputType(output)
            settings = {**wanted.settings, **settings}
        said: Send | Edit = Send(id or new_id(), as_parts(message), settings=dict(settings))
        self._engine.agent.model.check_settings(settings)
        if edits:
            said = Edit(said.id, _message_id(edits), said.parts, said.settings)
        return TurnManager(self._engine, self.id, checked(said), explicit=id is not None, output=wanted)

    async def hand_down(self, call: str, decision: Decision, edited: str | None, id: str) -> Receipt:
        """Answer a call as it was answered in the session above; for agents that are tools."""
        verdict: Verdict = "approve" if decision.verdict == "approve" else "deny"
        said = Answer(
            id,
            (call,),
            verdict,
            edited if verdict == "approve" else None,
            decision.for_session,
            decision.reason,
            decision.end_turn,
            decision.by,
            decision.option,
            decision.text,
            decision.answers,
        )
        return await self._submit(said, explicit=True)

    def retry(
        self, message: Message | str = "", *, settings: Mapping[str, Any] | None = None, id: str | None = None
    ) -> AbstractAsyncContextManager[Turn[str]]:
        """Have the model answer again, and hold the turn, live; see :meth:`SessionHandle.regenerate`."""
        self._engine.agent.model.check_settings(settings or {})
        again = Regenerate(id or new_id(), _message_id(message), _mapping("settings", settings or {}))
        return TurnManager(self._engine, self.id, checked(again), explicit=id is not None)

    def resume(self) -> AbstractAsyncContextManager[Turn[str]]:
        """Go on with the stored turn, and hold it: one that has not ended, or that ended by limit, failure or interrupt.

        Raises, on entering:
            Refused: there is nothing to go on with.
            SessionInUse: another engine drives the session.
        """
        return TurnManager(self._engine, self.id, Resume(new_id()), explicit=False)
