"""What decoding a body has in common for all protocols: telling streams from documents, feeding events, the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set
from typing import Any, Generic, Protocol, TypeVar

from turnstate_states.errors import ModelError
from turnstate_states.transcript import Usage

from ..base import Reply
from .json_values import IN_PIECES, is_list, read_odd_json
from .redaction import foreign
from .sse import MAX_EVENT, SSEDecoder, too_large

__all__ = ["Assembler", "BodyDecoder"]


class Assembler(Protocol):
    """Puts a reply together."""

    @property
    def usage(self) -> Usage:
        """What the server has told of usage so far."""
        ...

    def reply(self) -> Reply:
        """The reply, once the answer is complete."""
        ...


A = TypeVar("A", bound=Assembler)


class BodyDecoder(ABC, Generic[A]):
    """Decodes one answer, streamed or whole.

    Feed it bytes until :meth:`feed` gives True or the body has ended, call :meth:`end`, then :meth:`reply`.
    """

    def __init__(self, answer: A, *, documents: bool = False) -> None:
        self._sse = SSEDecoder(documents=documents)
        self._answer = answer
        self._whole: bytearray | None = None
        self._limit = MAX_EVENT
        self._begun = False
        self._page = False
        self._done = False

    def feed(self, data: bytes, /) -> bool:
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
        """The body has ended, or the patience.

        Raises:
            ModelError: the answer is not complete (kind ``cut``), or does not make sense.
        """
        if self._whole is not None:
            self._document(bytes(self._whole))
        elif not self._done:
            self._last_event()
        if not self._complete():
            raise self._cut()

    def hold_to(self, limit: int) -> None:
        """Take no event, and no answer that is no stream, of more than so many bytes."""
        self._limit = self._sse.limit = limit

    @property
    def usage(self) -> Usage:
        """What the server has told of usage so far."""
        return self._answer.usage

    def reply(self) -> Reply:
        """The complete reply.

        Raises:
            ModelError: it is complete but makes no sense.
        """
        return self._answer.reply()

    @abstractmethod
    def _event(self, name: str, text: str) -> None:
        """Take an event of a stream; sets ``_done`` where nothing more is needed."""

    @abstractmethod
    def _document(self, body: bytes) -> None:
        """Take the whole of an answer that is no stream."""

    @abstractmethod
    def _complete(self) -> bool:
        """Whether what came is a whole answer."""

    def _begin(self, data: bytes) -> None:
        text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
        if text:
            self._begun = True
            self._page = text[:1] == b"<"
            # No event starts with these, so the Content-Type, which servers get wrong, need not be asked.
            self._whole = bytearray() if text[:1] in (b"{", b"[") else None

    def _keep(self, data: bytes) -> None:
        if self._whole is None or len(self._whole) + len(data) > self._limit:
            raise too_large("an answer", self._limit)
        self._whole += data

    def _read_event(self, text: str, what: str, in_pieces: Set[str] = IN_PIECES) -> Any:
        """The value of an event that is not strict JSON, which ``what`` names; an empty object if there is nothing in it."""
        if not text.strip():
            return {}
        value = read_odd_json(text, in_pieces)
        if value is None:
            snippet = foreign(text, 80)
            raise ModelError(f"{what} is not JSON: {snippet}", kind="protocol", retryable=True)
        return value

    def _read_document(self, body: bytes, in_pieces: Set[str] = IN_PIECES) -> Any:
        """The value of a document; of a list the first, which is how some servers wrap it."""
        document = read_odd_json(body.decode("utf-8-sig", "replace"), in_pieces)
        if is_list(document) and document:
            document = document[0]
        if document is None:
            raise ModelError("the answer is JSON that is broken or was cut", kind="cut", retryable=True)
        return document

    def _last_event(self) -> None:
        """What had no blank line after it; if it is only half an event, the stream was cut."""
        for name, text in self._sse.close():
            if name == "error" or text.strip() == "[DONE]" or read_odd_json(text) is not None:
                self._event(name, text.strip())

    def _cut(self) -> ModelError:
        if self._page:
            text = "the answer is a web page, no stream of events; is base_url right?"
            return ModelError(text, kind="protocol", retryable=False)
        return ModelError("the answer ended before it was finished", kind="cut", retryable=True)
