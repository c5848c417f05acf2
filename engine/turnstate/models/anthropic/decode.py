"""The answer of a server of Anthropic Messages: bytes in any pieces in, deltas and one complete reply out.

Nothing here does I/O. Whatever a server sends, only :class:`~turnstate.ModelError` is raised.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..base import OnDelta
from ..wire.body_decoder import BodyDecoder
from ..wire.errors import stream_error
from ..wire.json_values import as_dict, is_dict, read_odd_json
from .assemble import MessageAssembler

__all__ = ["MessageDecoder"]

_IN_PIECES = frozenset({"text", "thinking", "partial_json"})
_NOTHING: frozenset[str] = frozenset()


class MessageDecoder(BodyDecoder[MessageAssembler]):
    """Decodes one answer, streamed or whole.

    Feed it bytes until :meth:`feed` gives True or the body has ended, call :meth:`end`, then :meth:`reply`.

    Args:
        model: the name that was asked for, until the server says its own.
        on_delta: is told every piece.
    """

    patience: float | None = None
    """Nothing but ``message_stop`` makes an answer complete."""

    def __init__(self, model: str, on_delta: OnDelta) -> None:
        super().__init__(MessageAssembler(model, on_delta))

    def _event(self, name: str, text: str) -> None:
        if name == "error":
            raise stream_error(read_odd_json(text, _NOTHING) or text)
        try:
            data = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            data = self._odd(text)
        if data is not None and not self._answer.piece_only(data):
            self._answer.event(name, data)
            self._done = self._answer.done

    def _odd(self, text: str) -> Any:
        if not text.strip() or text[:6] == "[DONE]":
            return None
        data = self._read_event(text, "an event of the answer", _NOTHING)
        if is_dict(data) and data.get("type") == "content_block_delta" and is_dict(delta := data.get("delta")):
            halves = read_odd_json(text, _IN_PIECES)["delta"]
            delta.update((field, halves[field]) for field in _IN_PIECES if isinstance(halves.get(field), str))
            self._answer.wide = True
        return data

    def _last_event(self) -> None:
        for name, text in self._sse.close():
            # An error, too, counts only if it is more than half an event.
            if read_odd_json(text) is not None:
                self._event(name, text)

    def _complete(self) -> bool:
        return self._answer.done

    def _document(self, body: bytes) -> None:
        self._answer.document(as_dict(self._read_document(body, _NOTHING), "the answer"))
