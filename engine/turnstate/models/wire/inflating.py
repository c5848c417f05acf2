"""The body of an answer as the receiver gets it: in pieces of a bounded size, and never more than a bounded number of bytes.

No compression is asked for, but some proxies compress all the same. A few bytes can hold a great many, so a body is inflated
piece by piece, as far as it is taken, and its bytes are counted as they come out. Nothing here does I/O.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from turnstate_states import checks
from turnstate_states.errors import InvalidInput, ModelError

from .redaction import foreign

__all__ = ["MAX_REPLY", "Plain", "check_size"]

MAX_REPLY = 64 * 1024 * 1024
"""Bytes that an answer may have by default."""

PIECE = 128 * 1024
"""Bytes that come out at once."""


def check_size(value: object) -> int:
    """``max_reply_bytes`` as it can be used.

    Raises:
        InvalidInput: it is no number of bytes.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(f"max_reply_bytes: expected a number of bytes, at least 1, got {checks.shown(value)}")
    return value


class Plain:
    """Makes the bytes of a body plain.

    Args:
        encoding: the header ``Content-Encoding``.
        limit: bytes that may come out in all.

    Raises:
        ModelError: it is compressed in an unknown way.
    """

    def __init__(self, encoding: str, limit: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ModelError(f"the answer is compressed in an unknown way ({foreign(encoding, 20)})", kind="protocol")
        self._inflater = zlib.decompressobj(wbits=47) if encoding not in ("", "identity") else None
        self._limit = limit
        self._size = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What these bytes of the body hold; whoever needs no more may stop.

        Raises:
            ModelError: it cannot be inflated, or is more than the limit.
        """
        if self._inflater is None:
            yield self._counted(data)
            return
        full = False
        while data or full:
            try:
                plain = self._inflater.decompress(data, PIECE)
            except zlib.error:
                text = "the answer could not be decompressed"
                raise ModelError(text, kind="protocol", retryable=True) from None
            data = self._inflater.unconsumed_tail
            full = len(plain) == PIECE  # more may come out of what went in already
            if plain:
                yield self._counted(plain)

    def _counted(self, data: bytes) -> bytes:
        self._size += len(data)
        if self._size > self._limit:
            text = f"the answer has more than {self._limit} bytes; the model's max_reply_bytes is the limit"
            raise ModelError(text, kind="protocol")
        return data
