"""Server-sent events: framing, cuts, line ends, encoding, bounds."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from turnstate.models.wire.sse import Event, SSEDecoder
from turnstate_states.errors import ModelError

STREAM = (
    ": hello\n\nevent: a\ndata: 1\n\ndata:2\nid: 7\nretry: 5\n\n\n\ndata: A\ndata: B\n\ndata:\n\nevent: none\n\n"
    "data:  two spaces\n\ndata: é日🌍\n\ndata\ndata: x\n\nunknown: field\ndata: last"
).encode()
EVENTS: list[Event] = [
    ("a", "1"),
    ("", "2"),
    ("", "A\nB"),
    ("", " two spaces"),
    ("", "é日🌍"),
    ("", "\nx"),
    ("", "last"),
]


def decode(*pieces: bytes) -> list[Event]:
    decoder = SSEDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_do_not_matter(end: bytes) -> None:
    """Case 1: LF, CRLF and CR give the same events."""
    assert decode(STREAM.replace(b"\n", end)) == EVENTS


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_cuts_do_not_matter(end: bytes) -> None:
    """Cases 1 and 3: the events are the same when the stream is cut at any one place, or at all of them."""
    stream = STREAM.replace(b"\n", end)
    for place in range(len(stream) + 1):
        assert decode(stream[:place], stream[place:]) == EVENTS
    assert decode(*(bytes([byte]) for byte in stream)) == EVENTS


@examples()
@given(
    st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"data: x", b"data:y", b"event: e", b": c"]), max_size=14),
    st.data(),
)
def test_any_mixture_of_line_ends(parts: list[bytes], data: st.DataObject) -> None:
    """Case 1: with line ends mixed at random every way of cutting gives what a line-by-line reading gives."""
    stream = b"".join(parts)
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in itertools.pairwise([0, *places, len(stream)])]
    assert decode(*pieces) == line_by_line(stream)


def line_by_line(stream: bytes) -> list[Event]:
    events: list[Event] = []
    name, data = "", list[str]()
    for line in [*stream.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if not line:
            if "\n".join(data):
                events.append((name, "\n".join(data)))
            name, data = "", []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            name = line[6:].removeprefix(" ")
    return events


def test_mixed_lines_over_chunks_are_one_event() -> None:
    """Case 1: lines with different ends in different chunks, CR and LF apart, are one event."""
    assert decode(b"data: A\r\n", b"data: B\r", b"data: C\r\n", b"\n") == [("", "A\nB\nC")]
    assert decode(b"data: X\n\r\n") == [("", "X")]
    assert decode(b"data: X\r", b"\ndata: Y\r", b"\n\r", b"\n") == [("", "X\nY")]


def test_an_event_ended_by_cr_is_delivered_at_once() -> None:
    """Case 1: an event that a lone CR ends does not wait for the byte after it."""
    decoder = SSEDecoder()
    assert decoder.feed(b"data: X\r\r") == [("", "X")]
    assert decoder.feed(b"\ndata: Y\r") == []
    assert decoder.feed(b"\r") == [("", "Y")]


def test_a_byte_order_mark_is_dropped_only_at_the_start() -> None:
    """A byte order mark before the first field is no part of its name, even when it is cut; elsewhere it is text."""
    assert decode(b"\xef\xbb", b"\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n") == [("", "a"), ("", "\ufeffb")]


def test_invalid_bytes_become_replacement_characters() -> None:
    """Case 3: U+FFFD stands only where the server's own bytes are invalid."""
    assert decode(b"data: a\xffb\n\n") == [("", "a\ufffdb")]


def test_other_line_separators_are_text() -> None:
    """U+2028, U+0085 and form feed end no line."""
    text = "a\u2028b\u0085c\x0cd\x1ee"
    assert decode(f"data: {text}\n\n".encode()) == [("", text)]


def test_the_last_event_needs_no_blank_line() -> None:
    """Case 4: the last event counts at the end of the stream, with or without its line end."""
    assert decode(b"data: [DONE]") == decode(b"data: [DONE]\n") == [("", "[DONE]")]
    assert decode(b": ping") == decode(b"") == []


def test_events_are_bounded() -> None:
    """An event larger than the limit is a protocol error, in pieces and in one."""
    for pieces in ([b"data: xxx"] * 4, [b"data: " + b"x" * 40 + b"\n\n"]):
        decoder = SSEDecoder(limit=30)
        with pytest.raises(ModelError) as caught:
            any(decoder.feed(piece) for piece in pieces)
        assert caught.value.kind == "protocol"


def test_the_limit_is_for_one_event() -> None:
    """Many events may together be larger than the limit of one."""
    decoder = SSEDecoder(limit=30)
    assert sum(len(decoder.feed(b"data: 0123456789\n\n" * 10)) for _ in range(10)) == 100


def test_the_work_is_linear() -> None:
    """A large event in small pieces costs about in proportion to its size."""

    def seconds(size: int) -> float:
        decoder = SSEDecoder()
        begin = time.perf_counter()
        for _ in range(size):
            decoder.feed(b"0123456789")
        assert decoder.feed(b"\n\n") == []
        return time.perf_counter() - begin

    seconds(1000)
    assert seconds(100_000) < 60 * max(seconds(10_000), 0.002)
