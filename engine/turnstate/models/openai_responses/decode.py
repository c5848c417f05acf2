"""The answer of a Responses server: bytes in any pieces in, deltas and one complete reply out.

Nothing here does I/O. Whatever a server sends, only :class:`~turnstate.ModelError` is raised.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnstate_states.errors import ModelError

from ..base import OnDelta
from ..wire.body_decoder import BodyDecoder
from ..wire.errors import stream_error
from ..wire.json_values import is_dict, is_list, read_json, scrub
from .assemble import PIECES, ResponsesAssembler

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
        origin: whom to give the items back to, see :class:`~turnstate.models.openai_responses.encode.ResponsesEncoder`.
    """

    patience: float | None = None
    """The event that ends a response says all that there is, so nothing is waited for after it."""

    def __init__(self, model: str, on_delta: OnDelta, origin: str = "") -> None:
        super().__init__(ResponsesAssembler(model, on_delta, origin))

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
        event = self._read_event(text, "an event of the answer")
        if event:
            self._answer.expect_surrogates()
        return event

    def _complete(self) -> bool:
        return bool(self._answer.status)

    def _document(self, body: bytes) -> None:
        document = scrub(self._read_document(body))
        if is_dict(document) and not document.get("error") and not is_list(document.get("output")):
            raise ModelError("the answer is JSON, but no response of this protocol", kind="protocol")
        self._answer.response(document, "completed")
