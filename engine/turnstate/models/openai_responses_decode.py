"""The answer of a Responses server: bytes in any pieces in, deltas and one complete reply out.

Nothing here does I/O. Whatever a server sends, only :class:`~turnstate.ModelError` is raised.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnstate_states.content import clean_text
from turnstate_states.errors import ModelError

from .base import OnDelta
from .body_decoder import BodyDecoder
from .openai_errors import stream_error
from .openai_responses_assemble import PIECES, ResponsesAssembler
from .wire import is_dict, is_list, read_json, read_odd_json, scrub

__all__ = ["ResponsesDecoder"]


class _Piece(msgspec.Struct):
    """What counts in an event that brings a piece; reading no more than that takes half the time."""

    type: str = ""
    delta: str = ""
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    summary_index: int | None = None


_read_piece = msgspec.json.Decoder(_Piece).decode


class ResponsesDecoder(BodyDecoder[ResponsesAssembler]):
    """Decodes one answer, streamed or whole.

    Feed it bytes until :meth:`feed` gives True or the body has ended, call :meth:`end`, then :meth:`reply`.

    Args:
        model: the name that was asked for, until the server says its own.
        on_delta: is told every piece.
        origin: whom to give the items back to, see :class:`~turnstate.models.openai_responses_encode.ResponsesEncoder`.
    """

    patience: float | None = None
    """The event that ends a response says all that there is, so nothing is waited for after it."""

    def __init__(self, model: str, on_delta: OnDelta, origin: str = "") -> None:
        super().__init__(ResponsesAssembler(model, on_delta, origin))

    def end(self) -> None:
        """The body has ended.

        Raises:
            ModelError: the answer is not complete (kind ``cut``).
        """
        if self._whole is not None:
            self._document(b"".join(self._whole))
            return
        if not self._done:
            self._last_event()
        if not self._answer.status:
            raise self._cut()

    def _event(self, name: str, text: str) -> None:
        try:
            piece = _read_piece(text)
        except (ValueError, RecursionError):
            pass
        else:
            if piece.delta and piece.type in PIECES and name != "error":
                index = piece.summary_index if piece.content_index is None else piece.content_index
                self._answer.piece(PIECES[piece.type], piece.output_index, piece.item_id, index, piece.delta)
                return
        self._any_event(name, text)

    def _any_event(self, name: str, text: str) -> None:
        if name == "error":
            raise stream_error(read_json(text) or text)
        if text[:6] == "[DONE]":
            self._done = True
            return
        try:
            event = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            event = self._odd(text)
        self._answer.event(name, event)
        self._done = bool(self._answer.status)

    def _odd(self, text: str) -> Any:
        if not text.strip():
            return {}
        event = read_odd_json(text)
        if event is None:
            snippet = clean_text(text[:80])
            raise ModelError(f"an event of the answer is not JSON: {snippet}", kind="protocol", retryable=True)
        self._answer.expect_surrogates()
        return event

    def _document(self, body: bytes) -> None:
        document = scrub(read_odd_json(body.decode("utf-8-sig", "replace")))
        if is_list(document) and document:
            document = document[0]
        if document is None:
            raise ModelError("the answer is JSON that is broken or was cut", kind="cut", retryable=True)
        if is_dict(document) and not document.get("error") and not is_list(document.get("output")):
            raise ModelError("the answer is JSON, but no response of this protocol", kind="protocol")
        self._answer.response(document, "completed")
