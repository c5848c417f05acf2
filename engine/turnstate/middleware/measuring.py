"""How many tokens a request has, about, and where a conversation may be cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from turnstate_states.content import Audio, File, Image, ToolCall, ToolResult
from turnstate_states.transcript import Message

from ..models.base import ModelRequest

__all__ = ["BYTES_PER_TOKEN", "cut_for", "estimate", "tokens_of"]

BYTES_PER_TOKEN = 4
MEDIA_BYTES = 6_000
"""What an image, a file or a piece of audio counts: providers shrink them, so that their own size says little."""


def size_of(message: Message) -> int:
    """The bytes of what a model reads of a message."""
    size = 0
    for part in message.parts:
        if isinstance(part, (Image, File, Audio)):
            size += MEDIA_BYTES
        elif isinstance(part, ToolCall):
            size += len(part.name) + len(part.arguments.encode())
        else:
            size += len(part.text.encode())
            if isinstance(part, ToolResult):
                size += MEDIA_BYTES * len(part.images)
    return size


def tokens(size: int) -> int:
    """Bytes as tokens.

    >>> tokens(9)
    3
    """
    return -(-size // BYTES_PER_TOKEN)


def estimate(messages: Iterable[Message]) -> int:
    """About how many tokens messages have."""
    return tokens(sum(size_of(message) for message in messages))


@attrs.frozen
class _Counted:
    """The bytes of the messages from ``first`` to ``last``, which are ``count``."""

    first: Message
    last: Message
    count: int
    size: int


def tokens_of(request: ModelRequest) -> int:
    """How many tokens a request will have: what was measured and what is estimated, whichever is more."""
    added = sum(len(text.encode()) for text in request.additions)
    return max(measured(request.messages), tokens(_fixed_size(request) + _size_so_far(request) + added))


def measured(messages: Sequence[Message]) -> int:
    """What the provider counted in the last request, its reply, and an estimate of what came since; 0 if that is unknown.

    What it counted before the last summary says nothing about what is left.
    """
    summarised = messages[0].parent if messages and messages[0].keeps is not None else None
    since = 0
    for message in reversed(messages):
        if message.id == summarised:
            break
        if message.role == "assistant":
            usage = message.usage
            known = usage is not None and usage.input is not None
            return usage.total + tokens(since) if usage is not None and known else 0
        since += size_of(message)
    return 0


def _fixed_size(request: ModelRequest) -> int:
    """The bytes of what is in each request."""
    key = (__name__, "fixed")
    known: tuple[object, object, int] | None = request.cache.get(key)
    if known is None or known[0] is not request.instructions or known[1] is not request.tools:
        size = len(request.instructions.encode())
        for tool in request.tools:
            size += len(f"{tool.name}{tool.description}{dict(tool.parameters)}".encode())
        known = request.cache[key] = (request.instructions, request.tools, size)
    return known[2]


def _size_so_far(request: ModelRequest) -> int:
    """The bytes of the messages; those that were there the last time are not counted again."""
    messages, key = request.messages, (__name__, "so far")
    if not messages:
        return 0
    known: _Counted | None = request.cache.get(key)
    count = size = 0
    if (
        known is not None
        and known.count <= len(messages)
        and messages[0] is known.first
        and messages[known.count - 1] is known.last
    ):
        count, size = known.count, known.size
    for at in range(count, len(messages)):
        size += size_of(messages[at])
    request.cache[key] = _Counted(messages[0], messages[-1], len(messages), size)
    return size


def cut_for(messages: Sequence[Message], keep: int) -> int | None:
    """Where to cut so that at most ``keep`` tokens are kept, and in any case the last message with what belongs to it.

    Returns:
        The index of the first message to keep, a person's or a model's; None if nothing is left to be summarised before it.
    """
    found, size = None, 0
    for at in range(len(messages) - 1, 0, -1):
        size += size_of(messages[at])
        if found is not None and tokens(size) > keep:
            break
        if messages[at].role in ("user", "assistant"):
            found = at
    if found == 1 and messages[0].keeps is not None:
        return None
    return found
