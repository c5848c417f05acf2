"""The answer of Gemini: bytes in any pieces in, deltas and one complete reply out.

Nothing here does I/O. Whatever a server sends, only :class:`~turnstate.ModelError` is raised.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnstate_states.content import clean_text
from turnstate_states.errors import ModelError

from .base import OnDelta, Reply
from .body_decoder import BodyDecoder
from .gemini_assemble import PROTOCOL, GeminiAssembler
from .gemini_errors import stream_error
from .wire import is_list, read_json, read_odd_json

__all__ = ["PROTOCOL", "GeminiDecoder"]

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

    def end(self) -> None:
        """The body has ended, or the patience.

        Raises:
            ModelError: the answer is not complete (kind ``cut``), or holds no candidate.
        """
        if self._whole is not None:
            self._document(b"".join(self._whole))
        elif not self._done:
            self._last_event()
        if not (self._answer.finish or self._answer.blocked):
            raise self._unfinished()

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
            chunk = _odd(text)
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

    def _unfinished(self) -> ModelError:
        if self._page:
            text = "the answer is a web page, no stream of events; is base_url right?"
            return ModelError(text, kind="protocol", retryable=False)
        if (self._answer.begun or self._whole is not None) and not self._answer.chosen:
            return ModelError("the answer holds no candidate", kind="protocol", retryable=True)
        return ModelError("the answer ended before it was finished", kind="cut", retryable=True)


def _odd(text: str) -> Any:
    if not text.strip():
        return {}
    chunk = read_odd_json(text, frozenset())
    if chunk is None:
        snippet = clean_text(text[:80])
        raise ModelError(f"a response in the stream is not JSON: {snippet}", kind="protocol", retryable=True)
    return chunk


def _too_deep() -> ModelError:
    return ModelError("the answer is nested too deeply", kind="protocol", retryable=True)
