"""What the adapters of OpenAI's protocols share: where the server is, what opens it, and one exchange."""

from __future__ import annotations

import inspect
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Protocol

from turnstate_states.errors import InvalidInput, ModelError
from turnstate_states.transcript import Usage

from .base import Model, ModelRequest, OnDelta, Reply
from .endpoint import check_key, check_url, join_url, shown_url
from .http import Channel, HTTPOptions, Receiver, Timeouts
from .http_errors import hide
from .openai_errors import response_error

__all__ = ["ApiKey", "Decoder", "OpenAIModel"]

ApiKey = str | Callable[[], str | Awaitable[str]]
"""A key, or a function (plain or async) that is asked for it before each attempt."""

_DEFAULT_URL = "https://api.openai.com/v1"


class Decoder(Receiver, Protocol):
    """A receiver that has the reply when the body has ended."""

    @property
    def usage(self) -> Usage:
        """What the server has told of usage so far."""
        ...

    def reply(self) -> Reply:
        """The complete reply; raises :class:`~turnstate.ModelError` if it makes no sense."""
        ...


class OpenAIModel(Model):
    """A model behind one path of an OpenAI server; see the adapters for the arguments.

    Raises:
        InvalidInput: a value is wrong. The text never holds the key.
    """

    path: ClassVar[str]
    """Where requests go, below the base URL."""
    key_headers: ClassVar[frozenset[str]] = frozenset({"authorization", "api-key", "x-api-key"})
    """Headers of the host's own that take the key's place, in lower case."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None,
        api_key: ApiKey | None,
        headers: Mapping[str, str] | None,
        timeouts: Timeouts | None,
        connections: int,
        http: HTTPOptions | None = None,
    ) -> None:
        if not name.strip():
            raise InvalidInput("name: expected the model's name on the server")
        if connections < 1:
            raise InvalidInput("connections: expected at least 1")
        self.name = name
        self._url = join_url(check_url(base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL), self.path)
        self._api_key = check_key(api_key) if isinstance(api_key, str) else api_key
        self._headers = _check_headers(headers or {})
        self._origin = shown_url(self._url)
        self._channel = Channel(self._url, timeouts or Timeouts(), connections, http)
        if api_key is None:
            _key_of_environment()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={self._origin.removesuffix(f'/{self.path}')!r})"

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        """Send the request and wait for the whole reply; see :meth:`Model.respond`."""
        body = self._encode(request)
        key = await self._key()
        given = {name.lower() for name in self._headers}
        authorized = not given.isdisjoint(self.key_headers)
        standing = {"Content-Type": "application/json", **self._standing_headers()}
        if key and not authorized:
            standing |= self._authorize(key)
        headers = {name: value for name, value in standing.items() if name.lower() not in given} | self._headers

        def failed(status: int, answer: Mapping[str, str], text: bytes) -> ModelError:
            return self._failed(status, answer, text, with_key=bool(key) or authorized)

        decoder = self._decoder(on_delta)
        try:
            await self._channel.post(body, headers, decoder, failed)
            return decoder.reply()
        except ModelError as error:
            error.usage = decoder.usage
            hide(error, (key, *self._headers.values()))
            raise

    def _standing_headers(self) -> dict[str, str]:
        """Headers of each request; the host's own take their place."""
        return {}

    def _authorize(self, key: str) -> dict[str, str]:
        """The header that carries the key."""
        return {"Authorization": f"Bearer {key}"}

    def _failed(self, status: int, answer: Mapping[str, str], text: bytes, *, with_key: bool) -> ModelError:
        """The error that an answer with a status other than 2xx is."""
        return response_error(status, answer, text, self._origin, with_key=with_key)

    async def aclose(self) -> None:
        """Close the connections, unless a request is under way; a later request makes new ones."""
        await self._channel.aclose()

    @abstractmethod
    def _body(self, request: ModelRequest) -> bytes:
        """The body of a request; raises :class:`~turnstate.InvalidInput` if something cannot be sent."""

    @abstractmethod
    def _decoder(self, on_delta: OnDelta) -> Decoder:
        """A decoder for one answer."""

    def _encode(self, request: ModelRequest) -> bytes:
        try:
            return self._body(request)
        except InvalidInput as error:
            raise ModelError(str(error), kind="invalid-request") from error

    async def _key(self) -> str:
        if isinstance(self._api_key, str):
            return self._api_key
        try:
            if self._api_key is None:
                return _key_of_environment()
            given = self._api_key()
            return check_key(await given if inspect.isawaitable(given) else given)
        except InvalidInput as error:
            raise ModelError(str(error), kind="authentication") from error
        except Exception as error:
            text = f"api_key: the function raised {type(error).__name__}"
            raise ModelError(text, kind="authentication") from error


def _key_of_environment() -> str:
    return check_key(os.environ.get("OPENAI_API_KEY", ""), "OPENAI_API_KEY")


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        good = name.isascii() and name.isprintable() and name and not set(name) & set(' :()<>@,;\\"/[]?={}')
        if not good or not (value.isascii() and value.isprintable()):
            raise InvalidInput(f"headers: {name!r} or its value holds a character that a header cannot carry")
    return dict(headers)
