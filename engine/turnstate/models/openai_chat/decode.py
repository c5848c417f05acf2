"""The answer of a Chat Completions server: bytes in any pieces in, deltas and one complete reply out.

Nothing here does I/O. Whatever a server sends, only :class:`~turnstate.ModelError` is raised.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnstate_states.errors import ModelError

from ..base import OnDelta
from ..wire.body_decoder import BodyDecoder
from ..wire.errors import stream_error
from ..wire.json_values import read_json
from .assemble import ChatAssembler

__all__ = ["ChatDecoder"]

USAGE_PATIENCE = 5.0
"""Seconds that an answer with a finish reason may take to tell its usage or its end."""

END_PATIENCE = 0.5
"""Seconds that an answer with a finish reason and its usage may take to end."""


class ChatDecoder(BodyDecoder[ChatAssembler]):
    """Decodes one answer, streamed or whole.

    Feed it bytes until :meth:`feed` gives True or the body has ended, call :meth:`end`, then :meth:`reply`.

    Args:
        model: the name that was asked for, until the server says its own.
        on_delta: is told every piece.
        origin: whom to give reasoning back to, see :class:`~turnstate.models.openai_chat.encode.ChatEncoder`.
    """

    def __init__(self, model: str, on_delta: OnDelta, origin: str = "") -> None:
        super().__init__(ChatAssembler(model, on_delta, origin))

    @property
    def patience(self) -> float | None:
        """Seconds that the rest may still take, now that the answer is complete in itself; None while it is not."""
        if not self._answer.finish:
            return None
        return END_PATIENCE if self._answer.closing_usage else USAGE_PATIENCE

    def _event(self, name: str, text: str) -> None:
        if name == "error":
            raise stream_error(read_json(text) or text)
        if text[:6] == "[DONE]":
            self._done = True
            return
        try:
            chunk = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            chunk = self._odd(text)
        if not self._answer.text_only(chunk):
            self._answer.chunk(chunk)

    def _odd(self, text: str) -> Any:
        chunk = self._read_event(text, "a chunk of the answer")
        if chunk:
            self._answer.expect_surrogates()
        return chunk

    def _complete(self) -> bool:
        silently = self._done and self._answer.finished_silently()
        return self._whole is not None or bool(self._answer.finish) or silently

    def _document(self, body: bytes) -> None:
        document = self._read_document(body)
        self._answer.expect_surrogates()
        self._answer.chunk(document, whole=True)
        if not self._answer.chosen:
            raise ModelError("the answer holds no choice", kind="protocol")
