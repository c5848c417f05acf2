"""What the messages of a request became, kept for the next request. Nothing here does I/O.

Every request holds the whole conversation, which mostly grows at its end. An encoder therefore goes on where the last request
ended, so that one more step costs the same however long the conversation is; only joining the bytes takes longer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

from turnstate_states.transcript import Message

__all__ = ["GrownBody", "grown_body", "join_items"]

S = TypeVar("S")
V = TypeVar("V")
B = TypeVar("B", bound="GrownBody[Any]")


class _Point(NamedTuple, Generic[S]):
    """How many messages are settled, as long as ``needs`` are there, and how many pieces they became, with the state then."""

    messages: int
    pieces: int
    state: S
    needs: int


class _Known(NamedTuple):
    """What some messages became, which holds for these very objects and what else they were encoded with."""

    messages: tuple[Message, ...]
    context: object
    value: object


class GrownBody(Generic[S]):
    """The messages of the last request as pieces of bytes, and what an encoder must know to go on behind them.

    Messages are *settled* once no later message changes the bytes of theirs. What is not settled yet is laid out anew for
    each request, from what is remembered of it. A body belongs to one session, and holds one conversation at a time.

    Args:
        source: what the bytes depend on besides the messages.
        start: the state before the first message; states are never changed.
    """

    def __init__(self, source: Hashable, start: S) -> None:
        self.source = source
        self.pieces: list[bytes] = []
        self._messages: tuple[Message, ...] = ()
        self._points: list[_Point[S]] = [_Point(0, 0, start, 0)]
        self._known: dict[str, dict[int, _Known]] = {}

    def resume(self, messages: Iterable[Message]) -> tuple[int, S]:
        """Take the messages of a request, and cut the body back to what is settled and begins them too.

        Returns:
            How many of the messages are settled, and the state behind them: where to go on.
        """
        messages = tuple(messages)
        old = self._messages
        common = _common(old, messages)
        if common < len(old):
            still = {id(message) for message in messages[common:]}
            self.forget(message for message in old[common:] if id(message) not in still)
        self._messages = messages
        while self._points[-1].needs > common:
            self._points.pop()
        point = self._points[-1]
        del self.pieces[point.pieces :]
        return point.messages, point.state

    def settle(self, messages: int, state: S, *, needs: int = 0) -> None:
        """From now on so many messages are settled, as the pieces so far.

        Args:
            messages: how many.
            state: what counts behind them.
            needs: how many messages must be there for that, where it takes some that are not settled themselves.
        """
        self._points.append(_Point(messages, len(self.pieces), state, max(messages, needs)))

    def restart(self) -> None:
        """Take back that anything is settled."""
        del self._points[1:], self.pieces[:]

    def remember(
        self, messages: Sequence[Message], make: Callable[[], V], context: object = None, *, kind: str = ""
    ) -> V:
        """What messages became, made if it is not known.

        Args:
            messages: at least one; it counts for these very objects.
            make: makes it.
            context: what it depends on besides the messages, of texts alone, because 1 is equal to True.
            kind: tells apart what a message became alone and together with others.
        """
        table = self._known.setdefault(kind, {})
        known = table.get(id(messages[0]))
        if known is None or not _same(known.messages, messages) or known.context != context:
            # The messages are held, so that no other object gets an id that is a key here.
            known = table[id(messages[0])] = _Known(tuple(messages), context, make())
        return cast("V", known.value)

    def forget(self, messages: Iterable[Message]) -> None:
        """Remember no longer what these messages became."""
        for message in messages:
            for table in self._known.values():
                table.pop(id(message), None)


def _same(some: Sequence[Message], others: Sequence[Message]) -> bool:
    """Whether these are the very same messages."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _common(old: tuple[Message, ...], new: tuple[Message, ...]) -> int:
    """How many messages at the beginning are the very same; equal ones could still be encoded differently."""
    shorter = min(len(old), len(new))
    if all(map(operator.is_, old, new)):
        return shorter
    return next(at for at in range(shorter) if old[at] is not new[at])


def grown_body(cache: dict[Any, Any], owner: object, source: Hashable, make: Callable[[], B]) -> B:
    """The body that an encoder keeps in the cache of a session.

    Args:
        cache: that of a request.
        owner: the encoder.
        source: what the bytes depend on besides the messages; a body that was made from something else is dropped.
        make: makes a body from this source.
    """
    body: B | None = cache.get((owner, "messages"))
    if body is None or body.source != source:
        body = cache[owner, "messages"] = make()
    return body


def join_items(head: bytes, items: list[bytes], tail: bytes) -> bytes:
    """Items with commas between them, and what stands before and behind.

    They are joined once, since each further copy of a long body costs as much again.

    >>> join_items(b"[", [b"1", b"2"], b"]"), join_items(b"[", [], b"]")
    (b'[1,2]', b'[]')
    """
    items = list(items) or [b""]
    items[0] = head + items[0]
    items[-1] += tail
    return b",".join(items)
