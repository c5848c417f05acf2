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

__all__ = ["Attempt", "Feed", "Piece", "Subscription"]

CAPACITY = 20_000
"""Entries that a subscriber may be behind before it is told Lagged."""


class Piece(NamedTuple):
    """A delta before it is told."""

    attempt: Attempt
    kind: DeltaKind
    text: str
    slot: int


class Attempt:
    """A running attempt and what it gave so far."""

    def __init__(self, id: str, turn: str) -> None:
        self.id = id
        self.turn = turn
        self.pieces: list[Piece] = []

    def parts(self) -> tuple[Part, ...]:
        """What it gave so far, without calls."""
        text = "".join(piece.text for piece in self.pieces if piece.kind == "text")
        reasoning = "".join(piece.text for piece in self.pieces if piece.kind == "reasoning")
        parts: list[Part] = []
        if reasoning:
            parts.append(Reasoning(reasoning))
        if text:
            parts.append(Text(text))
        return tuple(parts)

    def tool(self, slot: int) -> str:
        """The name of the tool that the call in this slot names."""
        return next((piece.text for piece in self.pieces if piece.kind == "call" and piece.slot == slot), "")


Entry = NumberedEvent | CallProgress | Piece


class Feed:
    """What is told about one session."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.attempt: Attempt | None = None
        self.closed = False
        self.failure: BaseException | None = None
        self._entries: list[Entry] = []
        self._base = 0
        self._readers: list[Subscription] = []
        self._lot = trio.lowlevel.ParkingLot()

    @property
    def watched(self) -> bool:
        """Whether anybody reads."""
        return bool(self._readers)

    def tell(self, events: Iterable[NumberedEvent | CallProgress]) -> None:
        """Tell events, in order."""
        for event in events:
            if event.number is not None:
                self.last = event.number
            if self._readers:
                self._entries.append(event)
        self._wake()

    def begin(self, attempt: Attempt) -> None:
        """From now on deltas belong to this attempt."""
        self.attempt = attempt

    def delta(self, kind: DeltaKind, text: str, slot: int) -> None:
        """Tell a piece of the running attempt."""
        attempt = self.attempt
        if attempt is None:
            return
        piece = Piece(attempt, kind, text, slot)
        attempt.pieces.append(piece)
        if self._readers:
            self._entries.append(piece)
            if self._lot or len(self._entries) > CAPACITY:
                self._wake()

    def close(self, failure: BaseException | None = None) -> None:
        """End all subscriptions once they have read what is there."""
        self.closed = True
        self.failure = failure
        self._lot.unpark_all()

    def subscribe(self) -> Subscription:
        """Read from now on; first comes, as one, what the running attempt gave so far."""
        reader = Subscription(self, self._base + len(self._entries))
        self._readers.append(reader)
        return reader

    def _wake(self) -> None:
        if len(self._entries) > CAPACITY:
            self._drop_behind()
        self._lot.unpark_all()

    def _drop_behind(self) -> None:
        end = self._base + len(self._entries)
        for reader in self._readers:
            if reader.cursor < end - CAPACITY // 2:
                reader.lag(end)
        self.trim()

    def trim(self) -> None:
        """Forget what every reader has read."""
        least = min((reader.cursor for reader in self._readers), default=self._base + len(self._entries))
        if least > self._base:
            del self._entries[: least - self._base]
            self._base = least

    def leave(self, reader: Subscription) -> None:
        """Forget a reader."""
        if reader in self._readers:
            self._readers.remove(reader)
            self.trim()

    def entries(self, cursor: int) -> list[Entry]:
        """What is there from a cursor on."""
        return self._entries[cursor - self._base :]

    async def wait(self) -> None:
        """Until something is told or it closes."""
        await self._lot.park()


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
        self._lagged = False
        if feed.attempt is not None:
            self._ready.extend(_joined(feed.attempt.pieces))

    def lag(self, end: int) -> None:
        """Skip to the end, and say so first."""
        self.cursor = end
        self.upto = self._feed.last
        self._lagged = True

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
        if self._lagged:
            self._lagged = False
            self._ready.append(Lagged(self.seen))
            return True
        entries = self._feed.entries(self.cursor)
        if not entries:
            return False
        self.cursor += len(entries)
        self._feed.trim()
        self._ready = _joined(entries)
        return True


def _joined(entries: Iterable[Entry]) -> list[Event]:
    """Entries as events, neighbouring pieces of one kind as one delta."""
    ready: list[Event] = []
    run: list[str] = []
    head: Piece | None = None
    for entry in entries:
        if isinstance(entry, Piece):
            if (
                head is not None
                and entry.kind == head.kind
                and entry.slot == head.slot
                and entry.attempt is head.attempt
            ):
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
    return CallDelta(attempt.tool(piece.slot), text, piece.slot, attempt.id, turn=attempt.turn)
