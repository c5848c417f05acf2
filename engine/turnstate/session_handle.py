"""What a user holds of a session: it reads, says and answers, from any process."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from turnstate_states import checks
from turnstate_states.content import UserPart, as_parts
from turnstate_states.errors import Refused
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
    RevokeGrant,
    Send,
    Submission,
    Switch,
    Verdict,
)
from turnstate_states.transcript import Message
from turnstate_states.turn import Call, Grant

from .inbox import post_and_wait
from .inputs import call_refs, checked, grant_id, message_id, new_id, object_text, submission_id
from .session_reader import SessionReader

__all__ = ["ClientHandle", "Content", "SessionHandle"]

Content = str | Iterable[UserPart]
"""A person's message: text, or parts."""


class SessionHandle(SessionReader):
    """Reads a session, says things to it and answers for it, from any process.

    Methods that say something return a :class:`~turnstate.Receipt` when it is durable, and raise
    :class:`~turnstate.Refused` where the session cannot accept it. With an ``id`` of your own (1 to 200 printable characters)
    you may send the same again after a failure: it acts once.

    Each raises :class:`~turnstate.InvalidInput` for a value that cannot be used; the text names it, and nothing was changed.
    What is stored as data (metadata, arguments, results, artifacts, settings, answers) must be plain JSON.

    An answer to a call is on what was asked about it. A :class:`~turnstate.Call`, and its ``token``, carry that with them; a
    bare id means what this handle has shown under it last. If something else is asked by then, because the tool was changed
    or the session made anew, the answer is refused as ``stale``.
    """

    def _asked(self, calls: Iterable[Call | str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """The ids of calls, and the digests of what was asked about them: an answer is on what was shown, not on a name."""
        digests: dict[str, str] = {}
        refs = call_refs(calls)
        for name, given in refs.items():
            digest = self._shown.digest(name) if given is None else given
            if digest is None:
                self._check_unseen(name)
            elif digest:
                digests[name] = digest
        return tuple(refs), digests

    def _check_unseen(self, call: str) -> None:
        """A call that is named by a bare id, and about which this handle has shown nothing, is taken as it stands."""

    @abstractmethod
    async def _submit(self, submission: Submission, *, explicit: bool) -> Receipt: ...

    async def send(self, message: Content, *, delivery: Delivery = "queue", id: str | None = None) -> Receipt:
        """Send a message. It starts a turn; or, while one runs,

        - ``queue``: waits for it to end,
        - ``steer``: joins it at its next request,
        - ``supersede``: ends it, and starts the next one.
        """
        send = Send(submission_id(id), as_parts(message), delivery)
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
        edit = Edit(submission_id(id), message_id(message), as_parts(content), _given(settings))
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
        again = Regenerate(submission_id(id), message_id(message), _given(settings))
        return await self._submit(again, explicit=id is not None)

    async def switch(self, message: Message | str, *, id: str | None = None) -> Receipt:
        """Show the branch that goes through this message, down to what was shown of it last."""
        return await self._submit(Switch(submission_id(id), message_id(message)), explicit=id is not None)

    async def delete_message(self, message: Message | str, *, id: str | None = None) -> Receipt:
        """Take a message out of the thread, with the results of its calls; what followed follows the one before it.

        What was written stays in the store until the session is deleted.
        """
        return await self._submit(Delete(submission_id(id), message_id(message)), explicit=id is not None)

    async def annotate(self, message: Message | str, metadata: Mapping[str, Any], *, id: str | None = None) -> Receipt:
        """Lay metadata (plain JSON: feedback, a rating, ...) over a message's; None takes a key away. No model sees it."""
        note = Annotate(submission_id(id), message_id(message), metadata)
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
            calls: the calls, their tokens (``Call.token``), or their ids.
            arguments: run the one call with these instead; they are checked like the model's.
            for_session: also allow this tool with equal arguments from now on.
            by: who says so, for the record.
            id: the id of this answer.
        """
        raw = None if arguments is None else object_text("arguments", arguments)
        names, digests = self._asked(calls)
        answer = Answer(submission_id(id), names, "approve", raw, for_session, by=by, digests=digests)
        return await self._submit(answer, explicit=id is not None)

    async def deny(
        self, *calls: Call | str, reason: str = "", end_turn: bool = False, by: str = "", id: str | None = None
    ) -> Receipt:
        """Keep calls from running; the model is told the reason. ``end_turn`` ends the turn as well."""
        names, digests = self._asked(calls)
        answer = Answer(submission_id(id), names, "deny", reason=reason, end_turn=end_turn, by=by, digests=digests)
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
            call: the call, its token, or its id.
            option: the id of the option that was chosen.
            text: what was written.
            answers: for each question's id ``{"options": [...], "text": "..."}``.
            verdict: ``approve`` or ``deny`` where that does not follow from the rest; ``dismiss`` closes the prompt.
            reason: why, for the model.
            by: who says so, for the record.
            id: the id of this answer.
        """
        names, digests = self._asked([call])
        said = Answer(
            submission_id(id),
            names,
            verdict,
            reason=reason,
            by=by,
            option=option,
            text=text,
            answers=_given(answers),
            digests=digests,
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
            call: the call, its token, or its id.
            result: any plain JSON value, None included.
            text: what the model reads instead.
            error: it failed; ``result`` says how.
            artifact: plain JSON for user interfaces; no model sees it.
            preliminary: it is only what there is so far: it is told, and the call waits on.
            by: who says so, for the record.
            id: the id of this answer.
        """
        (name,), digests = self._asked([call])
        digest = digests.get(name, "")
        said = Provide(submission_id(id), name, result, text, error, artifact, preliminary, by, digest)
        return await self._submit(said, explicit=id is not None)

    async def rename(self, title: str) -> Receipt:
        """Give the session another title; it is cut to 200 characters."""
        return await self._submit(Describe(new_id(), checks.name("title", title, filled=True)), explicit=False)

    async def label(self, labels: Mapping[str, str | None]) -> Receipt:
        """Set labels, by which lists can be filtered; None takes one away."""
        return await self._submit(Describe(new_id(), labels=labels), explicit=False)

    async def archive(self, archived: bool = True) -> Receipt:
        """Take the session off the usual list, or put it back."""
        return await self._submit(Describe(new_id(), archived=checks.flag("archived", archived)), explicit=False)

    async def command(self, name: str, arguments: Mapping[str, Any] | None = None, *, id: str | None = None) -> Receipt:
        """Have the middleware that owns this command carry it out.

        The receipt says that it will be; :class:`~turnstate.CommandEnded` tells what it gave.
        """
        return await self._submit(Command(submission_id(id), name, _given(arguments)), explicit=id is not None)

    async def interrupt(self, reason: str = "", *, turn: str | None = None) -> bool:
        """End the running turn; whether there was one (with the id ``turn``, if that is given)."""
        try:
            await self._submit(Interrupt(new_id(), turn, reason), explicit=False)
        except Refused:
            return False
        return True

    async def revoke(self, grant: Grant | str) -> None:
        """Take back an approval for the session."""
        await self._submit(RevokeGrant(new_id(), grant_id(grant)), explicit=False)


def _given(values: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {} if values is None else values


class ClientHandle(SessionHandle):
    """A handle without an engine: what it says goes through the store to whoever drives the session."""

    def _beside(self, id: str) -> ClientHandle:
        return ClientHandle(self._store, id)

    def _check_unseen(self, call: str) -> None:
        raise Refused(
            "stale",
            f"call {call}: this handle has not shown what is asked about it; read it with info(), thread() or events(), and "
            "give the Call or its token",
        )

    async def _submit(self, submission: Submission, *, explicit: bool) -> Receipt:
        return await post_and_wait(self._store, self.id, checked(submission))
