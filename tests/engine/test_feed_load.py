"""The feed under load: what telling and reading cost, counted in looks at readers and in pieces that are kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turnstate import Lagged, TextDelta
from turnstate import feed as feed_module
from turnstate.feed import Attempt, Feed, Subscription
from turnstate_states.events import CallDelta, Event


class Counting(dict[Subscription, None]):
    """Readers that count how often one of them is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Subscription]:
        for reader in super().__iter__():
            self.looks += 1
            yield reader


def fed(readers: int) -> tuple[Feed, list[Subscription], Counting]:
    """A feed with a running attempt and readers that count."""
    feed = Feed(0)
    feed.begin(Attempt("t1.1.1", "t1"))
    found = [feed.subscribe() for _ in range(readers)]
    feed._readers = counting = Counting(feed._readers)  # pyright: ignore[reportPrivateUsage]
    return feed, found, counting


def taken(reader: Subscription) -> list[Event]:
    """All that a reader can read now."""
    return list(iter(reader.take, None))


def test_no_reader_costs_another_one_anything() -> None:
    """Telling 20,000 pieces to 200 readers that read each one takes at most 20 looks at all readers, not one a read."""
    feed, readers, counting = fed(200)
    for number in range(2_000):
        feed.delta("text", f"{number} ", 0)
        for reader in readers:
            assert len(taken(reader)) == 1
    assert counting.looks <= 200 * 20
    assert len(feed._entries) <= feed_module.TRIM  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("others", [0, 1, 20])
def test_a_reader_that_never_reads_is_told_that_it_lags(others: int) -> None:
    """It costs the feed no more than the capacity, and the others lose nothing."""
    feed, readers, counting = fed(1 + others)
    texts = [""] * others
    for number in range(3 * feed_module.CAPACITY):
        feed.delta("text", f"{number} ", 0)
        if number % 1000 == 0 or number == 3 * feed_module.CAPACITY - 1:
            for at, reader in enumerate(readers[1:]):
                texts[at] += "".join(event.text for event in taken(reader) if isinstance(event, TextDelta))
        assert len(feed._entries) <= feed_module.CAPACITY  # pyright: ignore[reportPrivateUsage]
    assert set(texts) <= {"".join(f"{number} " for number in range(3 * feed_module.CAPACITY))}
    assert [type(event) for event in taken(readers[0])] == [Lagged]
    feed.delta("text", "on", 0)
    assert [event.text for event in taken(readers[0]) if isinstance(event, TextDelta)] == ["on"]
    assert counting.looks <= (1 + others) * 3 * feed_module.CAPACITY / feed_module.TRIM


def test_a_reader_that_left_takes_nothing_from_another() -> None:
    """One that has left and still reads does not make the feed forget what another one has not read."""
    feed, (gone, stays), _ = fed(2)
    gone.close()
    feed.delta("text", "a", 0)
    assert len(taken(gone)) == 1
    assert [event.text for event in taken(stays) if isinstance(event, TextDelta)] == ["a"]


def test_many_small_pieces_are_kept_as_one() -> None:
    """What an attempt gave so far is kept as text, however small the pieces are; a late reader gets it as one."""
    feed, _, _ = fed(0)
    attempt = feed.attempt
    assert attempt is not None
    for number in range(100_000):
        feed.delta("text", f"{number} ", 0)
    kept = [*attempt._chunks, *attempt._open]  # pyright: ignore[reportPrivateUsage]
    assert len(kept) < feed_module.JOINED + 100_000 / feed_module.JOINED + 1
    whole = "".join(f"{number} " for number in range(100_000))
    assert [event.text for event in taken(feed.subscribe()) if isinstance(event, TextDelta)] == [whole]
    feed.delta("text", "on", 0)
    assert [piece.text for piece in attempt.pieces()] == [whole + "on"]


def test_a_piece_of_arguments_knows_its_tool() -> None:
    """Pieces of the arguments of many calls, in turn, each name their call's tool, and no piece looks for it."""
    feed, (reader,), _ = fed(1)
    for slot in range(3):
        feed.delta("call", f"tool{slot}", slot)
    for slot in (0, 1, 2, 0):
        feed.delta("arguments", "x", slot)
    late = feed.subscribe()
    for found in (taken(reader), taken(late)):
        told = [(event.tool, event.arguments) for event in found if isinstance(event, CallDelta)]
        names = [("tool0", ""), ("tool1", ""), ("tool2", "")]
        assert told == [*names, ("tool0", "x"), ("tool1", "x"), ("tool2", "x"), ("tool0", "x")]


def test_what_a_broken_attempt_keeps_is_bounded() -> None:
    """Of more text than anybody reads the head and the tail are kept, and it says how much is missing."""
    attempt = Attempt("t1.1.1", "t1")
    for _ in range(3 * 1024):
        attempt.take("text", "x" * 1024, 0)
    (part,) = attempt.parts()
    assert "characters left out" in part.text  # type: ignore[union-attr]  # pyright: ignore
    assert len(part.text) < feed_module.KEPT + 100  # type: ignore[union-attr]  # pyright: ignore
