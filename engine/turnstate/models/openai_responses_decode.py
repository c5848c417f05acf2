"""The answer of a Responses server: bytes in any pieces in, deltas and one complete reply out.

Nothing here does I/O. Whatever a server sends, only :class:`~turnstate.ModelError` is raised.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnstate_states.content import clean_text
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Usage

from .base import OnDelta, Reply
from .openai_errors import stream_error
from .openai_responses_assemble import PIECES, ResponsesAssembler
from .sse import MAX_EVENT, SSEDecoder
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


class ResponsesDecoder:
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
        self._sse = SSEDecoder()
        self._answer = ResponsesAssembler(model, on_delta, origin)
        self._whole: list[bytes] | None = None
        self._size = 0
        self._begun = False
        self._page = False
        self._done = False

    def feed(self, data: bytes) -> bool:
        """Take the next bytes of the body; True when nothing more is needed.

        Raises:
            ModelError: the server told an error, or what it sent does not make sense.
        """
        if not self._begun:
            self._begin(data)
        if self._whole is not None:
            self._keep(data)
        elif not self._done:
            for name, text in self._sse.feed(data):
                self._event(name, text)
                if self._done:
                    break
        return self._done

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

    @property
    def usage(self) -> Usage:
        """What the server has told of usage so far."""
        return self._answer.usage

    def reply(self) -> Reply:
        """The complete reply.

        Raises:
            ModelError: an item in it makes no sense.
        """
        return self._answer.reply()

    def _begin(self, data: bytes) -> None:
        text = data.lstrip()
        if text:
            self._begun = True
            self._page = text[:1] == b"<"
            # No event starts with these, so the Content-Type, which servers get wrong, need not be asked.
            self._whole = [] if text[:1] in (b"{", b"[") else None

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._whole is None or self._size > MAX_EVENT:
            raise ModelError(f"the answer has more than {MAX_EVENT} bytes", kind="protocol")
        self._whole.append(data)

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

    def _last_event(self) -> None:
        """What had no blank line after it; if it is only half an event, the stream was cut."""
        for name, text in self._sse.close():
            if name == "error" or text.strip() == "[DONE]" or read_odd_json(text) is not None:
                self._event(name, text.strip())

    def _document(self, body: bytes) -> None:
        document = scrub(read_odd_json(body.decode("utf-8-sig", "replace")))
        if is_list(document) and document:
            document = document[0]
        if document is None:
            raise ModelError("the answer is JSON that is broken or was cut", kind="cut", retryable=True)
        if is_dict(document) and not document.get("error") and not is_list(document.get("output")):
            raise ModelError("the answer is JSON, but no response of this protocol", kind="protocol")
        self._answer.response(document, "completed")

    def _cut(self) -> ModelError:
        if self._page:
            text = "the answer is a web page, no stream of events; is base_url right?"
            return ModelError(text, kind="protocol", retryable=False)
        return ModelError("the answer ended before it was finished", kind="cut", retryable=True)
