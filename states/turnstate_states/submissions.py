"""What a client may submit to a session.

Each has an ``id``: sent again with the same content it acts once, with other content it is refused. ``given`` is when it was
given, in seconds since the epoch: what was given in time counts, however late it is applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import attrs

from .content import UserPart
from .values import Value

__all__ = [
    "Annotate",
    "Answer",
    "Command",
    "Delete",
    "Delivery",
    "Describe",
    "Edit",
    "EditQueued",
    "Interrupt",
    "Provide",
    "Receipt",
    "Regenerate",
    "RemoveQueued",
    "Resume",
    "RevokeGrant",
    "Send",
    "Submission",
    "Switch",
    "Verdict",
]

Delivery = Literal["queue", "steer", "supersede"]
Verdict = Literal["approve", "deny", "dismiss", ""]
Author = Literal["person", "agent"]


def _given() -> Any:
    return attrs.field(default=None, kw_only=True, repr=False)


def _no_digests() -> Mapping[str, str]:
    return {}


@attrs.frozen(eq=False, repr=False)
class Send(Value):
    """A person's message.

    ``queue``: it starts a turn, now or after this one. ``steer``: it joins the running turn. ``supersede``: it ends the
    running turn and starts the next one.

    ``author`` is who wrote it: a person, or the agent above that gives a task. ``origin`` is the sender's own id of it.
    """

    tag: ClassVar[str] = "send"
    id: str
    parts: tuple[UserPart, ...]
    delivery: Delivery = "queue"
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    author: Author = "person"
    origin: str = ""
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Answer(Value):
    """A person's answer to calls that wait for one.

    ``arguments`` (JSON text) replaces those of the one call that is named. ``for_session`` also grants the same tool with
    equal arguments from now on. ``end_turn`` (with ``deny``) ends the turn. ``digests`` has for each call the digest of the
    question that was answered (``Call.digest``); an answer to another question is refused.

    Where the request has a prompt, ``option`` chooses one of its options, ``text`` is what was written and ``answers`` has
    for each question ``{"options": [...], "text": "..."}``; ``verdict`` may then be empty if it follows from them, and
    ``dismiss`` closes a prompt that allows it.
    """

    tag: ClassVar[str] = "answer"
    id: str
    calls: tuple[str, ...]
    verdict: Verdict
    arguments: str | None = None
    for_session: bool = False
    reason: str = ""
    end_turn: bool = False
    by: str = ""
    option: str = ""
    text: str = ""
    answers: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    digests: Mapping[str, str] = attrs.field(factory=_no_digests)
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Interrupt(Value):
    """End the turn, or whichever runs if ``turn`` is None."""

    tag: ClassVar[str] = "interrupt"
    id: str
    turn: str | None = None
    reason: str = ""
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Resume(Value):
    """Go on with a turn that ended by limit, failure, denial or interrupt, and release what waits."""

    tag: ClassVar[str] = "resume"
    id: str
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class EditQueued(Value):
    """Change the message of the submission ``target``, as long as it waits."""

    tag: ClassVar[str] = "edit-queued"
    id: str
    target: str
    parts: tuple[UserPart, ...]
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class RemoveQueued(Value):
    """Take back the message of the submission ``target``, as long as it waits."""

    tag: ClassVar[str] = "remove-queued"
    id: str
    target: str
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class RevokeGrant(Value):
    """Take back an approval for the session."""

    tag: ClassVar[str] = "revoke-grant"
    id: str
    grant: str
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Edit(Value):
    """Say a person's earlier message otherwise: a branch beside it, with a turn of its own."""

    tag: ClassVar[str] = "edit"
    id: str
    message: str
    parts: tuple[UserPart, ...]
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Regenerate(Value):
    """Answer again: another reply to a person's message, or beside one of the model's. The old one stays as a branch.

    An empty ``message`` is the last one that a person said.
    """

    tag: ClassVar[str] = "regenerate"
    id: str
    message: str
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Switch(Value):
    """Show the path through this message, and what was shown below it last."""

    tag: ClassVar[str] = "switch"
    id: str
    message: str
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Delete(Value):
    """Take a message out of the thread, with the results of its calls; what followed it follows the one before it."""

    tag: ClassVar[str] = "delete"
    id: str
    message: str
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Annotate(Value):
    """Lay metadata over a message's; None takes a key away. No model sees it."""

    tag: ClassVar[str] = "annotate"
    id: str
    message: str
    metadata: Mapping[str, Any]
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Describe(Value):
    """Change what a list shows of the session: its title, labels (None takes one away), whether it is archived."""

    tag: ClassVar[str] = "describe"
    id: str
    title: str | None = None
    labels: Mapping[str, str | None] = attrs.field(factory=dict[str, "str | None"])
    archived: bool | None = None
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Provide(Value):
    """The result of a call from outside: of a tool that has no function here, or in place of running it.

    ``result`` is plain JSON; the model reads ``text``, or the result if that is None. ``error`` says that it failed.
    ``artifact`` is for user interfaces. A ``preliminary`` result is told and settles nothing. ``digest`` is that of the
    request (``Call.digest``).
    """

    tag: ClassVar[str] = "provide"
    id: str
    call: str
    result: Any = None
    text: str | None = None
    error: bool = False
    artifact: Any = None
    preliminary: bool = False
    by: str = ""
    digest: str = ""
    given: float | None = _given()


@attrs.frozen(eq=False, repr=False)
class Command(Value):
    """Have the middleware that owns this command carry it out. ``arguments`` is plain JSON."""

    tag: ClassVar[str] = "command"
    id: str
    name: str
    arguments: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    given: float | None = _given()


Submission = (
    Send
    | Answer
    | Provide
    | Interrupt
    | Resume
    | Edit
    | Regenerate
    | Switch
    | Delete
    | Annotate
    | EditQueued
    | RemoveQueued
    | RevokeGrant
    | Describe
    | Command
)


@attrs.frozen(eq=False, repr=False)
class Receipt(Value):
    """What became of a submission; it is durable when you see it.

    ``code`` and ``text`` are set where it was refused. ``turn`` is the turn that it started, joined or ended; empty for a
    message that waits. ``duplicate`` is true for a submission that had been accepted before.
    """

    id: str
    digest: str = ""
    turn: str = ""
    code: str = ""
    text: str = ""
    duplicate: bool = False

    @property
    def refused(self) -> bool:
        """Whether it was refused; its id is free again."""
        return bool(self.code)
