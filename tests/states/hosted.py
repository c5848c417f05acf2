"""A session with a driver and a store around it, as they will be: what the core says is written in bytes and checked."""

from __future__ import annotations

import attrs

from tests.states.ledger import TELLING, Ledger, check_pairs, messages_told
from tests.states.trees import check_tree, same
from turnstate_states.checkpoint import Commit
from turnstate_states.codec import (
    decode_checkpoint,
    decode_events,
    decode_messages,
    encode_checkpoint,
    encode_events,
    encode_messages,
    with_bodies,
)
from turnstate_states.core import SessionCore
from turnstate_states.events import Annotated, Deleted, Imported, NumberedEvent, StepStarted, Switched
from turnstate_states.reports import Activity, Stopped
from turnstate_states.rules import Rules
from turnstate_states.submissions import Receipt
from turnstate_states.transcript import Message, Transcript

SIZE_LIMIT = 8000
"""Bytes of a checkpoint in these worlds: what is open in them is bounded, however long the session is."""


@attrs.define(eq=False)
class Hosted:
    """A core, what was stored and told of it, and what its driver has running.

    ``working`` are the calls that were begun and of which nothing is known yet; ``head`` is the end of the visible path as
    somebody knows it who hears nothing but events.
    """

    rules: Rules
    core: SessionCore
    ledger: Ledger
    now: float = 1000.0
    log: list[NumberedEvent] = attrs.field(factory=list[NumberedEvent])
    messages: dict[str, Message] = attrs.field(factory=dict[str, Message])
    receipts: dict[str, Receipt] = attrs.field(factory=dict[str, Receipt])
    stored: bytes = b""
    written: list[bytes] = attrs.field(factory=list[bytes])
    running: Activity | None = None
    working: dict[str, None] = attrs.field(factory=dict[str, None])
    head: str | None = None

    def drive(self) -> None:
        core = self.core
        for _ in range(4):
            if core.stopping and self.running is None:
                assert core.turn is not None
                assert core.report(Stopped(core.turn.id), now=self.now)
            commit = core.commit(self.now)
            if commit is None:
                break
            self._write(commit)
            self._begin(commit)
        else:
            raise AssertionError("the core goes on without any input")
        if not core.stopping:
            self.running = core.activity
        assert encode_checkpoint(core.checkpoint) == self.stored, "a change without a commit"

    def _write(self, commit: Commit) -> None:
        """Store a commit as a store does, in bytes, and check it."""
        stored = encode_checkpoint(commit.checkpoint)
        assert commit.after == commit.checkpoint.sequence - 1
        assert encode_checkpoint(decode_checkpoint(stored)) == stored
        assert len(stored) < SIZE_LIMIT, f"the checkpoint grew to {len(stored)} bytes"
        bodies, told = encode_messages(commit.messages), encode_events(commit.events)
        self._check_messages(commit)
        for message in decode_messages(bodies):
            self.messages[message.id] = message
        assert decode_events(told, self.messages.get) == commit.events
        for event in commit.events:
            self.ledger.check(event)
        self.log += commit.events
        for receipt in commit.receipts:
            assert receipt.id not in self.receipts
            self.receipts[receipt.id] = receipt
        self._check_waiting(commit)
        if any(isinstance(event, StepStarted) for event in commit.events):
            check_pairs(self.core.transcript.conversation.messages())
        self.stored = stored
        self.written.append(b"\n".join((stored, bodies, told)))
        if any(isinstance(event, (Switched, Deleted, Annotated, Imported)) for event in commit.events):
            self.check_restored()

    def _check_messages(self, commit: Commit) -> None:
        """Each message is told once, has a new id, and stands below the one that was the last then."""
        if commit.after:
            told = [message.id for message in messages_told(commit.events)]
            assert told == [message.id for message in commit.messages]
        assert not {message.id for message in commit.messages} & self.messages.keys()
        for event in commit.events:
            if isinstance(event, (Switched, Imported, Deleted)):
                self.head = event.head
            if isinstance(event, TELLING) and event.message is not None and not event.message.changes:
                assert event.message.parent == self.head
                self.head = event.message.id
        assert commit.checkpoint.head == self.core.transcript.head == self.head
        assert commit.checkpoint.chosen == self.core.transcript.chosen

    def check_restored(self) -> None:
        """The transcript has the shape that it must have, and what is read from the store is the same."""
        check_tree(self.core.transcript)
        same(self.restored().transcript, self.core.transcript)

    def _check_waiting(self, commit: Commit) -> None:
        """Each message that was accepted and not consumed waits, and no other."""
        waiting = [item.id for item in (*commit.checkpoint.steers, *commit.checkpoint.queue)]
        assert len(waiting) <= self.rules.limits.queue
        assert sorted(waiting) == sorted(self.ledger.waiting)
        accepted = {name for name in self.receipts if name.startswith("send")}
        said = {name for name in self.ledger.waiting if "!" not in name}  # others are what commands say
        assert accepted == said | {name for name in self.ledger.consumed if name in accepted}

    def _begin(self, commit: Commit) -> None:
        """Begin the calls that the commit marks started."""
        turn = self.core.turn
        calls = {} if turn is None else turn.calls
        for call in commit.started:
            assert self.core.activity is not None
            assert self.core.activity.kind == "execute"
            self.working[call.id] = None
        self.working = {name: None for name in self.working if name in calls and not calls[name].settled}

    def restored(self) -> SessionCore:
        """A core made from nothing but what is stored."""
        checkpoint = with_bodies(decode_checkpoint(self.stored), self.messages.get, self._event)
        transcript = Transcript(self.messages.values(), checkpoint.head, checkpoint.chosen)
        return SessionCore(checkpoint, transcript, self.rules)

    def _event(self, number: int) -> NumberedEvent | None:
        return self.log[number - 1] if 0 < number <= len(self.log) else None
