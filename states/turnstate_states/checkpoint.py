"""The serialised state of one session between commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from .content import UserPart
from .events import NumberedEvent
from .message import Message, Usage
from .submissions import Author, Command, Receipt
from .turn import Call, Grant, TurnState
from .values import Value

__all__ = ["FORMAT", "Checkpoint", "Commit", "Pending", "Queued"]

FORMAT = 2
"""The format of checkpoints that this version writes."""


@attrs.frozen(eq=False, repr=False)
class Queued(Value):
    """A message that waits.

    ``event`` is the number of the event that holds its parts, which are not stored here again; ``sent`` that of the event
    that told it first. ``first``: it is to start the very next turn, and what is to steer after it was sent joins that.
    """

    id: str
    event: int
    parts: tuple[UserPart, ...] = attrs.field(default=(), repr=False)
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any], repr=False)
    sent: int = 0
    first: bool = False
    author: Author = "person"
    origin: str = ""


@attrs.frozen(eq=False, repr=False)
class Pending(Value):
    """A change of the thread that waits: the submission that asked for it, and the message that it is about."""

    id: str
    kind: Literal["edit", "regenerate", "switch", "delete"]
    target: str
    parts: tuple[UserPart, ...] = attrs.field(default=(), repr=False)
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any], repr=False)


Titled = Literal["", "hook", "person"]
"""Who gave a session its title; empty for the first words that were said in it."""


@attrs.define
class Checkpoint:
    """Everything that decides how a session goes on. Its size depends on what is open, not on what has been said.

    ``events``, ``messages``, ``turns``, ``grant_count`` are the counters that ids and numbers come from. ``parent`` is the
    session whose tool call this one answers, empty for a session of its own; ``archived`` takes it off the list.
    ``chosen`` says which branch is shown where it is not the newest. ``pending`` is a change of the thread that waits for
    the hooks after the turn that it ended; ``commands`` are those that were not carried out yet. ``life`` is a random word
    made with the session, so that one made anew under the same id is another one; empty for sessions from before format 2.
    ``agent`` is the name of the agent that drives it, where it has one.
    """

    session: str
    created_at: float
    format: int = FORMAT
    sequence: int = 0
    updated_at: float = 0.0
    events: int = 0
    messages: int = 0
    turns: int = 0
    grant_count: int = 0
    head: str | None = None
    turn: TurnState | None = None
    steers: tuple[Queued, ...] = ()
    queue: tuple[Queued, ...] = ()
    held: bool = False
    usage: dict[str, Usage] = attrs.field(factory=dict[str, Usage])
    grants: tuple[Grant, ...] = ()
    labels: dict[str, str] = attrs.field(factory=dict[str, str])
    metadata: dict[str, Any] = attrs.field(factory=dict[str, Any])
    title: str = ""
    titled: Titled = ""
    archived: bool = False
    parent: str = ""
    chosen: dict[str, str] = attrs.field(factory=dict[str, str])
    pending: Pending | None = None
    commands: tuple[Command, ...] = ()
    epoch: int = 0
    life: str = ""
    agent: str = ""

    def copy(self) -> Checkpoint:
        """An independent copy; the values in it are shared, they never change."""
        other = Checkpoint.__new__(Checkpoint)
        for name in _FIELDS:
            setattr(other, name, getattr(self, name))
        other.turn = None if self.turn is None else self.turn.copy()
        other.usage = dict(self.usage)
        other.labels = dict(self.labels)
        other.chosen = dict(self.chosen)
        other.metadata = dict(self.metadata)
        return other


_FIELDS = tuple(field.name for field in attrs.fields(Checkpoint))


@attrs.define(eq=False)
class Commit:
    """One step forward: written whole or not at all.

    ``after`` is the sequence that it builds on; ``checkpoint.sequence`` the one that it makes. ``started`` and
    ``checking`` are the calls that the driver begins, or looks after, once it is durable. ``taken`` are the inbox
    submissions that it settles.
    """

    after: int
    checkpoint: Checkpoint
    messages: list[Message]
    events: list[NumberedEvent]
    receipts: list[Receipt]
    started: list[Call]
    checking: list[Call]
    taken: list[str]
