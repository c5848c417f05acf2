"""What a client may say to a session.

Each has an ``id``: sent again with the same content it acts once, with other content it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import attrs

from .content import UserPart
from .values import Value

__all__ = [
    "Answer",
    "Delivery",
    "EditQueued",
    "Interrupt",
    "Receipt",
    "RemoveQueued",
    "Resume",
    "RevokeGrant",
    "Send",
    "Submission",
    "Verdict",
]

Delivery = Literal["queue", "steer"]
Verdict = Literal["approve", "deny"]


@attrs.frozen(eq=False, repr=False)
class Send(Value):
    """A person's message. ``queue``: it starts a turn, now or after this one. ``steer``: it joins the running turn."""

    tag: ClassVar[str] = "send"
    id: str
    parts: tuple[UserPart, ...]
    delivery: Delivery = "queue"
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(eq=False, repr=False)
class Answer(Value):
    """A person's answer to calls that wait for one.

    ``arguments`` (JSON text) replaces those of the one call that is named. ``for_session`` also grants the same tool with
    equal arguments from now on. ``end_turn`` (with ``deny``) ends the turn.
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


@attrs.frozen(eq=False, repr=False)
class Interrupt(Value):
    """End the turn, or whichever runs if ``turn`` is None."""

    tag: ClassVar[str] = "interrupt"
    id: str
    turn: str | None = None
    reason: str = ""


@attrs.frozen(eq=False, repr=False)
class Resume(Value):
    """Go on with a turn that ended by limit, failure, denial or interrupt, and release what waits."""

    tag: ClassVar[str] = "resume"
    id: str


@attrs.frozen(eq=False, repr=False)
class EditQueued(Value):
    """Change the message of the submission ``target``, as long as it waits."""

    tag: ClassVar[str] = "edit-queued"
    id: str
    target: str
    parts: tuple[UserPart, ...]


@attrs.frozen(eq=False, repr=False)
class RemoveQueued(Value):
    """Take back the message of the submission ``target``, as long as it waits."""

    tag: ClassVar[str] = "remove-queued"
    id: str
    target: str


@attrs.frozen(eq=False, repr=False)
class RevokeGrant(Value):
    """Take back an approval for the session."""

    tag: ClassVar[str] = "revoke-grant"
    id: str
    grant: str


Submission = Send | Answer | Interrupt | Resume | EditQueued | RemoveQueued | RevokeGrant


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
