"""The answer of Gemini: bytes in any pieces in, deltas and one complete reply out.

Nothing here does I/O. Whatever a server sends, only :class:`~turnstate.ModelError` is raised.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnstate_states.errors import ModelError

from ..base import OnDelta, Reply
from ..wire.body_decoder import BodyDecoder
from ..wire.json_values import is_list, read_json, read_odd_json
from .assemble import GeminiAssembler
from .errors import stream_error

__all__ = ["GeminiDecoder"]

USAGE_PATIENCE = 5.0
"""Seconds that an answer with a finish reason may take to tell its usage or its end."""

END_PATIENCE = 2.0
"""Seconds that an answer with a finish reason and its usage may take to end."""


class GeminiDecoder(BodyDecoder[GeminiAssembler]):
    """Decodes one answer: a stream of events, a JSON array of responses, or one response.

    Feed it bytes until :meth:`feed` gives True or the body has ended, call :meth:`end`, then :meth:`reply`. No event says
    that it is the last one, so the end of the body does once there was a finish reason.

    Args:
        model: the name that was asked for, until the server says its own.
        on_delta: is told every piece.
    """

    def __init__(self, model: str, on_delta: OnDelta) -> None:
        super().__init__(GeminiAssembler(model, on_delta), documents=True)

    @property
    def patience(self) -> float | None:
        """Seconds that the rest may still take, now that the answer is complete in itself; None while it is not."""
        if not (self._answer.finish or self._answer.blocked) or self._answer.resumed:
            return None
        return END_PATIENCE if self._answer.closing_usage else USAGE_PATIENCE

    def reply(self) -> Reply:
        """The complete reply.

        Raises:
            ModelError: it ended in the middle of a call.
        """
        try:
            return self._answer.reply()
        except RecursionError:
            raise _too_deep() from None

    def _event(self, name: str, text: str) -> None:
        if name == "error":
            raise stream_error(read_json(text) or text)
        if text[:6] == "[DONE]":
            self._done = True
            return
        try:
            chunk = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            chunk = self._read_event(text, "a response in the stream", frozenset())
        self._take(chunk)

    def _take(self, chunk: Any) -> None:
        try:
            for response in chunk if is_list(chunk) else [chunk]:
                if not self._answer.text_only(response):
                    self._answer.chunk(response)
        except RecursionError:
            raise _too_deep() from None

    def _document(self, body: bytes) -> None:
        document = read_json(body)
        if document is None:
            document = read_odd_json(body.decode("utf-8-sig", "replace"), frozenset())
        if document is None:
            raise ModelError("the answer is JSON that is broken or was cut", kind="cut", retryable=True)
        self._take(document)

    def _complete(self) -> bool:
        return bool(self._answer.finish or self._answer.blocked)

    def _cut(self) -> ModelError:
        if (self._answer.begun or self._whole is not None) and not (self._page or self._answer.chosen):
            return ModelError("the answer holds no candidate", kind="protocol", retryable=True)
        return super()._cut()


def _too_deep() -> ModelError:
    return ModelError("the answer is nested too deeply", kind="protocol", retryable=True)
