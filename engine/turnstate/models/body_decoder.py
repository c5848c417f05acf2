"""What decoding a body has in common for all protocols: telling streams from documents, feeding events, the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from turnstate_states.errors import ModelError
from turnstate_states.transcript import Usage

from .base import Reply
from .sse import MAX_EVENT, SSEDecoder
from .wire import read_odd_json

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
        self._whole: list[bytes] | None = None
        self._size = 0
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

    def _begin(self, data: bytes) -> None:
        text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
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
