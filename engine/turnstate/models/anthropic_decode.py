"""The answer of a server of Anthropic Messages: bytes in any pieces in, deltas and one complete reply out.

Nothing here does I/O. Whatever a server sends, only :class:`~turnstate.ModelError` is raised.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnstate_states.content import clean_text
from turnstate_states.errors import ModelError

from .anthropic_assemble import MessageAssembler
from .base import OnDelta
from .body_decoder import BodyDecoder
from .openai_errors import stream_error
from .wire import as_dict, is_dict, is_list, read_odd_json

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

    def end(self) -> None:
        """The body has ended.

        Raises:
            ModelError: the answer is not complete (kind ``cut``).
        """
        if self._whole is not None:
            self._document(b"".join(self._whole))
            return
        if not self._answer.done:
            for name, text in self._sse.close():
                # If it is only half an event, the stream was cut.
                if read_odd_json(text) is not None:
                    self._event(name, text)
        if not self._answer.done:
            raise self._cut()

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
        data = read_odd_json(text, _NOTHING)
        if data is None:
            snippet = clean_text(text[:80])
            raise ModelError(f"an event of the answer is not JSON: {snippet}", kind="protocol", retryable=True)
        if is_dict(data) and data.get("type") == "content_block_delta" and is_dict(delta := data.get("delta")):
            halves = read_odd_json(text, _IN_PIECES)["delta"]
            delta.update((field, halves[field]) for field in _IN_PIECES if isinstance(halves.get(field), str))
            self._answer.wide = True
        return data

    def _document(self, body: bytes) -> None:
        document = read_odd_json(body.decode("utf-8-sig", "replace"), _NOTHING)
        if is_list(document) and document:
            document = document[0]
        if document is None:
            raise ModelError("the answer is JSON that is broken or was cut", kind="cut", retryable=True)
        self._answer.document(as_dict(document, "the answer"))
