"""The session while one commit is being made: its state, and what the commit adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from .checkpoint import Checkpoint, Commit, Queued, Titled
from .content import Part, Text
from .events import (
    Compacted,
    Custom,
    EventBase,
    MessageAdded,
    MessageTaken,
    NumberedEvent,
    SessionChanged,
    Switched,
    Warned,
)
from .message import Message, MessageStatus, Role, Source, Timing, Usage
from .reports import Effects, Summary
from .rules import Bound, Rules
from .stepping import EventName, Facts, next_state
from .submissions import Author, Receipt
from .transcript import Transcript
from .turn import Call, CallStatus, TurnState

__all__ = ["Work"]

E = TypeVar("E", bound=EventBase)
FEEDBACK: Mapping[str, Any] = {"from": "middleware"}


class Work:
    """One session's state and the commit in the making. Every change goes through here."""

    def __init__(self, checkpoint: Checkpoint, transcript: Transcript, rules: Rules) -> None:
        self.checkpoint = checkpoint
        self.transcript = transcript
        self.rules = rules
        self.now = checkpoint.updated_at
        self.cause = ""
        self.asked_before: set[str] = set()
        """Calls about which an earlier process asked: what is decided about them now may be something else."""
        self._clear()

    def _clear(self) -> None:
        self.after = self.checkpoint.sequence
        self.messages: list[Message] = []
        self.events: list[NumberedEvent] = []
        self.receipts: list[Receipt] = []
        self.begun: dict[str, None] = {}
        self.checking: dict[str, None] = {}
        self.taken: list[str] = []
        self.bound: dict[str, tuple[str, Bound]] = {}
        self.changed = False

    @property
    def turn(self) -> TurnState:
        """The current turn, which must exist."""
        assert self.checkpoint.turn is not None, "there is no turn yet"
        return self.checkpoint.turn

    @property
    def active(self) -> TurnState | None:
        """The turn that has not ended, if there is one."""
        turn = self.checkpoint.turn
        return None if turn is None or turn.final else turn

    @property
    def turn_over(self) -> bool:
        """Whether no turn runs, and the hooks after the last one are done."""
        turn = self.checkpoint.turn
        return turn is None or turn.closed

    @property
    def reserved(self) -> bool:
        """Whether a command is being carried out beside which no turn may run."""
        commands = self.rules.commands
        return any(commands.get(command.name) is False for command in self.checkpoint.commands)

    def at(self, now: float, cause: str = "") -> None:
        """Take the time and the cause of what follows. Time never runs backwards."""
        self.now = max(now, self.now)
        turn = self.active
        self.cause = cause or ("" if turn is None else turn.cause)

    def count_time(self) -> None:
        """Count the time at work up to now."""
        turn = self.checkpoint.turn
        if turn is not None and turn.clock is not None:
            turn.worked += self.now - turn.clock
            turn.clock = self.now

    def step(self, event: EventName, facts: Facts | None = None) -> None:
        """Take a transition of the machine."""
        turn = self.turn
        turn.state = next_state(turn.state, event, facts)
        self.changed = True

    def tell(self, event: type[E], *args: Any, **more: Any) -> int:
        """Add an event to the log; its number."""
        checkpoint = self.checkpoint
        number = checkpoint.events = checkpoint.events + 1
        turn = "" if checkpoint.turn is None or checkpoint.turn.closed else checkpoint.turn.id
        told: Any = event(*args, number=number, at=self.now, turn=turn, cause=self.cause, **more)
        self.events.append(told)
        return number

    def next_message(self) -> str:
        """The id that the next message will get."""
        return f"m{self.checkpoint.messages + 1}"

    def add_message(
        self,
        role: Role,
        parts: tuple[Part, ...],
        *,
        status: MessageStatus = "complete",
        model: str = "",
        usage: Usage | None = None,
        timing: Timing | None = None,
        metadata: Mapping[str, Any] | None = None,
        keeps: str | None = None,
        source: Source = "",
        origin: str = "",
    ) -> Message:
        """Append a message below the head."""
        checkpoint = self.checkpoint
        checkpoint.messages += 1
        message = Message(
            f"m{checkpoint.messages}",
            self.transcript.head,
            self.turn.id,
            role,
            parts,
            self.now,
            status,
            model,
            usage,
            timing,
            metadata or {},
            keeps,
            source=source,
            origin=origin,
        )
        self.transcript.append(message)
        checkpoint.head = message.id
        if checkpoint.chosen:
            self._follow_transcript()
        self.messages.append(message)
        return message

    def record_change(
        self, changes: tuple[str, ...], status: MessageStatus, metadata: Mapping[str, Any] | None = None
    ) -> Message:
        """Append the record of a change to earlier messages, and apply it."""
        checkpoint = self.checkpoint
        checkpoint.messages += 1
        name = f"m{checkpoint.messages}"
        record = Message(
            name, None, "", "system", (), self.now, status=status, metadata=metadata or {}, changes=changes
        )
        self.transcript.append(record)
        self._follow_transcript()
        self.messages.append(record)
        return record

    def move(self, head: str | None, why: Literal["edit", "regenerate"]) -> None:
        """Have what is written next follow this message."""
        if head != self.transcript.head:
            self.transcript.move(head)
            self._follow_transcript()
            self.tell(Switched, head, why)

    def switch(self, message: str) -> None:
        """Show another path."""
        self.transcript.switch(message)
        self._follow_transcript()
        self.tell(Switched, self.transcript.head, "switch")

    def _follow_transcript(self) -> None:
        self.checkpoint.head = self.transcript.head
        self.checkpoint.chosen = dict(self.transcript.chosen)

    def put_call(self, call: Call) -> None:
        """Store a call's new state."""
        self.turn.calls[call.id] = call
        self.changed = True

    def count_usage(self, model: str, usage: Usage) -> None:
        """Count usage under the model's name, for the session and the turn, if there is one."""
        if usage == Usage():
            return
        if not self.turn_over:
            self.turn.usage += usage
        totals = self.checkpoint.usage
        totals[model] = totals.get(model, Usage()) + usage
        self.changed = True

    def count_effects(self, effects: Effects) -> None:
        """Count the usage of hooks; it is kept even where their other effects are not."""
        for model, usage in effects.usage.items():
            self.count_usage(model, usage)

    def apply_effects(self, effects: Effects) -> None:
        """Apply what hooks did, but for usage."""
        for text in effects.messages:
            self.add_feedback(text)
        for name, data in effects.events:
            self.tell(Custom, name, data)
        for text in effects.warnings:
            self.tell(Warned, text)
        if effects.title:
            self.describe(effects.title, by="hook")

    def describe(
        self,
        title: str | None = None,
        labels: Mapping[str, str | None] | None = None,
        archived: bool | None = None,
        *,
        by: Titled = "person",
    ) -> None:
        """Change what lists show of the session; a hook does not take a person's title away."""
        checkpoint = self.checkpoint
        if by == "hook" and checkpoint.titled == "person":
            return
        before = (checkpoint.title, checkpoint.labels, checkpoint.archived)
        if title is not None:
            checkpoint.title, checkpoint.titled = short_title(title), by
            self.changed = True
        laid = {**checkpoint.labels, **(labels or {})}
        checkpoint.labels = {name: value for name, value in laid.items() if value is not None}
        if archived is not None:
            checkpoint.archived = archived
        if (checkpoint.title, checkpoint.labels, checkpoint.archived) != before:
            self.tell(SessionChanged, checkpoint.title, checkpoint.labels, checkpoint.archived)

    def add_feedback(self, text: str) -> None:
        """Add a middleware's words for the model, for good."""
        self.tell(MessageAdded, self.add_message("user", (Text(text),), metadata=FEEDBACK, source="hook"))

    def compact(self, summary: Summary) -> bool:
        """Have the model start from a summary; False, and a warning, if the conversation cannot be cut there."""
        if self.transcript.conversation.cut_before(summary.keeps) is None:
            self.tell(
                Warned, f"a summary was dropped: the conversation cannot be cut before {summary.keeps or 'it began'}"
            )
            return False
        message = self.add_message("system", (Text(summary.text),), metadata=FEEDBACK, keeps=summary.keeps)
        self.checkpoint.epoch += 1
        self.turn.last_usage = None
        self.tell(Compacted, message)
        return True

    def take(self, waiting: Iterable[Queued]) -> None:
        """Let waiting messages join the turn."""
        for item in waiting:
            message = self.add_message("user", item.parts, source=source_of(item.author), origin=item.origin)
            self.tell(MessageTaken, item.id, message)

    def finish(self) -> Commit | None:
        """The commit of all that changed, or None if nothing did."""
        if not (self.changed or self.events or self.receipts or self.taken):
            return None
        self.count_time()
        checkpoint = self.checkpoint
        checkpoint.sequence += 1
        checkpoint.updated_at = self.now
        calls = {} if checkpoint.turn is None else checkpoint.turn.calls
        commit = Commit(
            self.after,
            checkpoint.copy(),
            self.messages,
            self.events,
            self.receipts,
            _still("started", self.begun, calls),
            _still("checking", self.checking, calls),
            self.taken,
        )
        self._clear()
        return commit


def source_of(author: Author) -> Source:
    """Who wrote a message that came from outside."""
    return "agent" if author == "agent" else ""


def short_title(text: str) -> str:
    """A title on one line, of at most 200 characters, without U+0000, which not every store can hold in a list."""
    return " ".join(text.replace("\0", " ").split())[:200]


def _still(status: CallStatus, marked: Iterable[str], calls: Mapping[str, Call]) -> list[Call]:
    """The marked calls that are still so: the turn may have ended before anything was written."""
    return [call for name in marked if (call := calls.get(name)) is not None and call.status == status]
