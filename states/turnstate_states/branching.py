"""Changes of the thread: saying something otherwise, answering again, showing another branch, deleting, annotating.

A turn that only waits for a person is ended by them, in the same commit, as superseded. While a turn works they are
refused: a model is reading this history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from .checkpoint import Pending
from .content import Quote, UserPart, as_parts
from .errors import InvalidInput, Refused
from .events import Annotated, Deleted
from .message import Message
from .steps import close, finish_ending, start_turn, tell_to_end
from .submissions import Annotate, Delete, Edit, Regenerate, Switch
from .turn import Ending
from .work import Work

__all__ = ["annotate", "apply_pending", "change_thread", "check_quotes"]

KINDS: dict[type, Literal["edit", "regenerate", "switch", "delete"]] = {
    Edit: "edit",
    Regenerate: "regenerate",
    Switch: "switch",
    Delete: "delete",
}


WHY = {
    "edit": "superseded by an edited message",
    "regenerate": "superseded by another answer",
    "switch": "superseded by a switch to another branch",
    "delete": "superseded by the deletion of a message",
}


def change_thread(work: Work, change: Edit | Regenerate | Switch | Delete) -> None:
    """Make a change of the thread, or have it wait for the hooks after the turn that it ends.

    Raises:
        Refused: a turn works, or the message is not there (any more).
        InvalidInput: the message is not one that this can be done to.
    """
    message = _last_said(work) if change.message == "" else find(work, change.message)
    parts: tuple[UserPart, ...] = ()
    if isinstance(change, Edit):
        parts = as_parts(change.parts)
        check_quotes(work, parts)
    _check_target(message, change)
    if work.checkpoint.pending is not None:
        raise Refused("busy", "another change of the thread is under way")
    turn = work.checkpoint.turn
    busy = turn is not None and not turn.closed
    if turn is not None and busy and (turn.state != "awaiting-approval" or turn.ending is not None):
        raise Refused("busy", "a model is reading this history: wait until the turn has ended, or interrupt it")
    if busy:
        tell_to_end(work, Ending("superseded", WHY[KINDS[type(change)]], change.id))
        finish_ending(work)
    if isinstance(change, (Switch, Delete)):
        _hold(work)
    if busy and not work.rules.turn_ended:
        close(work)
    settings: Mapping[str, Any] = change.settings if isinstance(change, (Edit, Regenerate)) else {}
    work.checkpoint.pending = Pending(change.id, KINDS[type(change)], message.id, parts, settings)
    if work.turn_over and not work.reserved:
        apply_pending(work)
    work.changed = True


def _check_target(message: Message, change: Edit | Regenerate | Switch | Delete) -> None:
    role, name = message.role, message.id
    if isinstance(change, Edit) and role != "user":
        raise InvalidInput(f"message: {name} is not a person's; edit one of theirs, or regenerate an answer")
    if isinstance(change, Regenerate) and role not in ("user", "assistant"):
        raise InvalidInput(f"message: {name} is no message that could be answered again; name a person's or a model's")
    if isinstance(change, Delete) and role == "tool":
        raise InvalidInput(f"message: {name} is the result of a call; delete the message that holds the call")
    if isinstance(change, Regenerate) and role == "assistant" and message.parent is None:
        raise InvalidInput(f"message: nothing stands before {name} that could be answered again")


def find(work: Work, message: str) -> Message:
    """A message of the thread.

    Raises:
        Refused: there is none with this id.
    """
    found = work.transcript.get(message)
    if found is None:
        raise Refused("gone", f"there is no message {message} in this session")
    return found


def _last_said(work: Work) -> Message:
    """The last visible message of a person."""
    for message in reversed(work.transcript.path):
        if message.role == "user" and "from" not in message.metadata:
            return message
    raise Refused("gone", "nobody said anything yet")


def apply_pending(work: Work) -> None:
    """Make the change that waited."""
    pending = work.checkpoint.pending
    assert pending is not None, "a change is applied only while one waits"
    work.checkpoint.pending = None
    work.cause = pending.id
    target = work.transcript[pending.target]
    if pending.kind == "edit":
        work.move(target.parent, "edit")
        start_turn(work, pending.parts, pending.id, pending.settings)
    elif pending.kind == "regenerate":
        work.move(target.id if target.role == "user" else target.parent, "regenerate")
        start_turn(work, None, pending.id, pending.settings)
    elif pending.kind == "switch":
        work.switch(target.id)
    else:
        record = work.record_change(work.transcript.batch(target.id), "deleted")
        work.tell(Deleted, record, work.transcript.head)


def _hold(work: Work) -> None:
    """What waits was written below another message; it does not start here by itself."""
    if work.checkpoint.queue:
        work.checkpoint.held = True


def annotate(work: Work, note: Annotate) -> None:
    """Lay metadata over a message's.

    Raises:
        Refused: the message is not there.
    """
    message = find(work, note.message)
    work.tell(Annotated, work.record_change((message.id,), "complete", note.metadata))


def check_quotes(work: Work, parts: Iterable[UserPart]) -> None:
    """Check that quotes are what was said.

    Raises:
        InvalidInput: the message is not there, or does not hold the words.
    """
    for at, part in enumerate(parts):
        if isinstance(part, Quote):
            message = work.transcript.get(part.message)
            if message is None:
                raise InvalidInput(f"parts[{at}]: there is no message {part.message} to quote")
            if not part.text.strip() or part.text not in message.text:
                raise InvalidInput(f"parts[{at}]: these words are not in message {part.message}; quote it exactly")
