"""Server-sent events: bytes in any pieces in, whole events out.

What comes out depends neither on the style of the line ends (LF, CRLF, CR) nor on where the bytes were cut. The decoder
does no I/O, and its work is linear in the number of bytes.
"""

from __future__ import annotations

from turnstate_states.errors import ModelError

__all__ = ["MAX_EVENT", "Event", "SSEDecoder", "too_large"]

Event = tuple[str, str]
"""An event's name (empty if it has none) and its data."""

MAX_EVENT = 32 * 1024 * 1024
"""Bytes that one event may have by default."""

_BOM = b"\xef\xbb\xbf"
_OTHER_FIELDS = frozenset({b"", b"id", b"retry"})


class SSEDecoder:
    """An incremental decoder.

    Unlike a browser it delivers the last event at the end of the stream though no blank line follows it: servers forget
    that line. Comments, events without data and the fields ``id`` and ``retry`` are skipped. Bytes that are not UTF-8
    become U+FFFD.

    Args:
        limit: bytes that one event may have.
        documents: take lines of bare JSON between the events, or after the first line of one, as data. Google's servers
            write errors so.

    >>> decoder = SSEDecoder()
    >>> decoder.feed(b"event: a\\rdata: 1\\r"), decoder.feed(b"\\n: a comment\\r\\n\\r")
    ([], [('a', '1')])
    """

    def __init__(self, limit: int = MAX_EVENT, *, documents: bool = False) -> None:
        self.limit = limit
        self._documents = documents
        self._pending = bytearray()
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[Event]:
        """The events that are complete with these bytes.

        Raises:
            ModelError: an event is larger than the limit (kind ``protocol``).
        """
        if self._after_cr or b"\r" in data:
            data = self._with_lf(data)
        pending = self._pending
        if pending:
            if b"\n\n" not in data and not (data[:1] == b"\n" and pending.endswith(b"\n")):
                self._keep(data)
                return []
            data = bytes(pending) + data
            pending.clear()
        blocks = data.split(b"\n\n")
        rest = blocks.pop()
        if rest:
            self._keep(rest)
        return self._events(blocks) if blocks else []

    def close(self) -> list[Event]:
        """What was left when the stream ended: the last event, if no blank line followed it."""
        rest = bytes(self._pending)
        self._pending.clear()
        return self._events([rest]) if rest else []

    def _with_lf(self, data: bytes) -> bytes:
        """The bytes with LF as the only line end; a CR ends its line at once, an LF after it is swallowed."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data[-1:] == b"\r"
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, data: bytes) -> None:
        if len(self._pending) + len(data) > self.limit:
            raise too_large("an event", self.limit)
        self._pending += data

    def _events(self, blocks: list[bytes]) -> list[Event]:
        if self._at_start:
            self._at_start = False
            blocks[0] = blocks[0].removeprefix(_BOM)
        events: list[Event] = []
        for block in blocks:
            if len(block) > self.limit:
                raise too_large("an event", self.limit)
            if block[:6] == b"data: " and b"\n" not in block:
                if len(block) > 6:
                    events.append(("", block[6:].decode("utf-8", "replace")))
            elif (event := _parse(block, self._documents)) is not None:
                events.append(event)
        return events


def too_large(what: str, limit: int) -> ModelError:
    """The error for an event, or a whole answer in one, that is larger than its limit."""
    text = f"the server sent {what} of more than {limit} bytes in one piece; a larger max_reply_bytes of the model allows it"
    return ModelError(text, kind="protocol", retryable=False)


def _parse(block: bytes, documents: bool) -> Event | None:
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
        elif documents and field not in _OTHER_FIELDS and (data or line.lstrip()[:1] in (b"{", b"[")):
            data.append(line)
    text = b"\n".join(data)
    return (name.decode("utf-8", "replace"), text.decode("utf-8", "replace")) if text else None
