"""Answers decoded as the tests of decoders need it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from turnstate.models.base import OnDelta, Reply
from turnstate.models.wire.http_model import Decoder
from turnstate_states.errors import ModelError

Delta = tuple[str, str, int]


def decoded(
    make: Callable[[OnDelta], Decoder], pieces: Iterable[bytes], *, to_the_end: bool = False
) -> tuple[Reply, list[Delta]]:
    """The reply that these pieces of a body are, and what was told on the way.

    Args:
        make: makes the decoder.
        pieces: the body.
        to_the_end: feed also what comes after the decoder has enough.
    """
    deltas: list[Delta] = []
    decoder = make(lambda kind, text, slot: deltas.append((kind, text, slot)))
    for piece in pieces:
        if decoder.feed(piece) and not to_the_end:
            break
    decoder.end()
    return decoder.reply(), deltas


def failure(decode: Callable[[], object]) -> ModelError:
    """The error that decoding ends with, its text one line."""
    with pytest.raises(ModelError) as caught:
        decode()
    assert "\n" not in str(caught.value)
    return caught.value
