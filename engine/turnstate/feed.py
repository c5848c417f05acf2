"""Telling what happens to any number of subscribers, each at its own pace.

A delta costs the model's task one append; a subscriber is woken once for all that arrived together and gets neighbouring
pieces joined. One that reads too slowly is told :class:`~turnstate.Lagged` and goes on from now; it delays nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import trio

from turnstate_states.content import Part, Reasoning, Text
from turnstate_states.events import CallDelta, CallProgress, Event, Lagged, NumberedEvent, ReasoningDelta, TextDelta

from .models.base import DeltaKind
from .tools.output import shorten

__all__ = ["Attempt", "Feed", "Piece", "Subscription"]

CAPACITY = 20_000
"""Entries that are kept at most; a subscriber that is further behind is told Lagged."""

TRIM = 1024
"""Entries from which on it is worth looking for what all have read."""

JOINED = 4096
"""Pieces that are joined at once, since each by itself takes many times the memory of its text."""

KEPT = 1024 * 1024
"""Bytes of text that are kept of an attempt that did not end well."""


class Piece(NamedTuple):
    """A delta before it is told; ``tool`` is the name of the call that it belongs to."""

    attempt: Attempt
    kind: DeltaKind
    text: str
    slot: int
    tool: str


class Attempt:
    """A running attempt and what it gave so far: its pieces, those of one kind that came one after the other joined."""

    def __init__(self, id: str, turn: str) -> None:
        self.id = id
        self.turn = turn
        self._runs: list[Piece] = []
        self._chunks: list[str] = []
        self._open: list[str] = []
        self._head: Piece | None = None
        self._tools: dict[int, str] = {}

    def take(self, kind: DeltaKind, text: str, slot: int) -> Piece:
        """Take a piece. It costs the same however many there are, and many small ones take no more memory than their text."""
        if kind == "call":
            self._tools.setdefault(slot, text)
        piece = Piece(self, kind, text, slot, self._tools.get(slot, ""))
        if self._head is None or not _alike(self._head, piece):
            self._close()
            self._head = piece
        self._open.append(text)
        if len(self._open) >= JOINED:
            self._chunks.append("".join(self._open))
            self._open.clear()
        return piece

    def _close(self) -> None:
        if self._head is not None:
            self._runs.append(self._head._replace(text="".join((*self._chunks, *self._open))))
            self._chunks, self._open, self._head = [], [], None

    def pieces(self) -> list[Piece]:
        """What it gave so far; neighbours of one kind are one."""
        self._close()
        if self._runs:
            # What comes next may belong to it.
            self._head = self._runs.pop()
            self._chunks = [self._head.text]
            return [*self._runs, self._head]
        return []

    def parts(self) -> tuple[Part, ...]:
        """What it gave so far, without calls; of more than :data:`KEPT` characters the head and the tail."""
        pieces = self.pieces()
        text, reasoning = (
            shorten("".join(piece.text for piece in pieces if piece.kind == kind), KEPT)
            for kind in ("text", "reasoning")
        )
        parts: list[Part] = []
        if reasoning:
            parts.append(Reasoning(reasoning))
        if text:
            parts.append(Text(text))
        return tuple(parts)


Entry = NumberedEvent | CallProgress | Piece


class Feed:
    """What is told about one session.

    Entries are kept once for all readers, and each reader knows how far it is: telling costs the same however many there
    are, and reading looks at no other reader. What all have read is dropped once there is twice as much as the last time,
    so that the look at all readers which that takes is paid for by the entries; what only one reads is dropped at once. A
    reader that is too far behind finds out by itself, when it reads, that what it wants is gone.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self.attempt: Attempt | None = None
        self.closed = False
        self.failure: BaseException | None = None
        self._entries: list[Entry] = []
        self._base = 0
        self._trim_at = TRIM
        self._readers: dict[Subscription, None] = {}
        self._lot = trio.lowlevel.ParkingLot()

    @property
    def watched(self) -> bool:
        """Whether anybody reads."""
        return bool(self._readers)

    @property
    def end(self) -> int:
        """Where what is told next will stand."""
        return self._base + len(self._entries)

    def tell(self, events: Iterable[NumberedEvent | CallProgress]) -> None:
        """Tell events, in order."""
        for event in events:
            if event.number is not None:
                self.last = event.number
            if self._readers:
                self._add(event)
        self._lot.unpark_all()

    def begin(self, attempt: Attempt) -> None:
        """From now on deltas belong to this attempt."""
        self.attempt = attempt

    def delta(self, kind: DeltaKind, text: str, slot: int) -> None:
        """Tell a piece of the running attempt."""
        attempt = self.attempt
        if attempt is None:
            return
        piece = attempt.take(kind, text, slot)
        if self._readers:
            self._add(piece)
            if self._lot:
                self._lot.unpark_all()

    def close(self, failure: BaseException | None = None) -> None:
        """End all subscriptions once they have read what is there."""
        self.closed = True
        self.failure = failure
        self._lot.unpark_all()

    def subscribe(self) -> Subscription:
        """Read from now on; first comes, as one, what the running attempt gave so far."""
        reader = Subscription(self, self.end)
        self._readers[reader] = None
        return reader

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        if len(self._entries) > CAPACITY:
            self._drop(self.end - CAPACITY // 2)
        elif len(self._entries) >= self._trim_at:
            self._trim()

    def _trim(self) -> None:
        """Forget what every reader has read."""
        self._drop(min((reader.cursor for reader in self._readers), default=self.end))
        self._trim_at = max(TRIM, 2 * len(self._entries))

    def _drop(self, before: int) -> None:
        if before > self._base:
            del self._entries[: before - self._base]
            self._base = before

    def leave(self, reader: Subscription) -> None:
        """Forget a reader."""
        if self._readers.pop(reader, self) is None and not self._readers:
            self._drop(self.end)

    def entries(self, cursor: int) -> list[Entry] | None:
        """What is there from a cursor on; None if some of it is gone already."""
        if cursor < self._base:
            return None
        return self._entries[cursor - self._base :]

    def was_read(self, reader: Subscription) -> None:
        """Forget at once what only this one reads."""
        if len(self._readers) == 1 and reader in self._readers:
            self._drop(reader.cursor)

    async def wait(self) -> None:
        """Until something is told or it closes."""
        await self._lot.park()


def _alike(one: Piece, other: Piece) -> bool:
    """Whether two pieces can be told as one."""
    return one.kind == other.kind and one.slot == other.slot and one.attempt is other.attempt and one.kind != "call"


class Subscription:
    """One reader of a feed: an asynchronous iterator of events."""

    def __init__(self, feed: Feed, cursor: int) -> None:
        self._feed = feed
        self.cursor = cursor
        self.seen = feed.last
        self.upto = feed.last
        """What has a number up to this was told before the reader stood here, or before it was told that it lags."""
        self._ready: list[Event] = []
        self._next = 0
        if feed.attempt is not None:
            self._ready.extend(_joined(feed.attempt.pieces()))

    def close(self) -> None:
        """Stop reading."""
        self._feed.leave(self)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        while True:
            event = self.take()
            if event is not None:
                return event
            if self._feed.closed:
                if self._feed.failure is not None:
                    raise self._feed.failure
                raise StopAsyncIteration
            await self._feed.wait()

    def take(self) -> Event | None:
        """The next event if there is one now."""
        if self._next >= len(self._ready) and not self._refill():
            return None
        event = self._ready[self._next]
        self._next += 1
        if event.number is not None:
            self.seen = event.number
        return event

    def _refill(self) -> bool:
        self._ready, self._next = [], 0
        entries = self._feed.entries(self.cursor)
        if entries is None:
            self.cursor = self._feed.end
            self.upto = self._feed.last
            self._ready.append(Lagged(self.seen))
            return True
        self.cursor += len(entries)
        self._feed.was_read(self)
        self._ready = _joined(entries)
        return bool(entries)


def _joined(entries: Iterable[Entry]) -> list[Event]:
    """Entries as events, neighbouring pieces of one kind as one delta."""
    ready: list[Event] = []
    run: list[str] = []
    head: Piece | None = None
    for entry in entries:
        if isinstance(entry, Piece):
            if head is not None and _alike(head, entry):
                run.append(entry.text)
                continue
            if head is not None:
                ready.append(_delta(head, "".join(run)))
            head, run = entry, [entry.text]
            continue
        if head is not None:
            ready.append(_delta(head, "".join(run)))
            head = None
        ready.append(entry)
    if head is not None:
        ready.append(_delta(head, "".join(run)))
    return ready


def _delta(piece: Piece, text: str) -> Event:
    attempt = piece.attempt
    if piece.kind == "text":
        return TextDelta(text, attempt.id, turn=attempt.turn)
    if piece.kind == "reasoning":
        return ReasoningDelta(text, attempt.id, turn=attempt.turn)
    if piece.kind == "call":
        return CallDelta(text, "", piece.slot, attempt.id, turn=attempt.turn)
    return CallDelta(piece.tool, text, piece.slot, attempt.id, turn=attempt.turn)
