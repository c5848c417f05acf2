"""The base of the adapters: where the server is, what opens it, and one exchange."""

from __future__ import annotations

import copy
import inspect
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, NoReturn, Protocol

from turnstate_states import checks
from turnstate_states.content import Text
from turnstate_states.errors import InvalidInput, ModelError
from turnstate_states.transcript import Message, Usage

from ...failures import failure_in
from ..base import Model, ModelRequest, OnDelta, Reply
from .body_decoder import BodyDecoder
from .endpoint import check_headers, check_key, check_url, join_url, shown_url, warn_of_plain_http
from .errors import response_error
from .http import Channel, HTTPOptions, Receiver, Timeouts
from .inflating import MAX_REPLY, check_size
from .redaction import Redactor, redacting
from .secret import Secret
from .secret_words import bears_secret, redactor_of, secrets_in_body
from .sse import MAX_EVENT

__all__ = ["ApiKey", "Decoder", "Encoder", "HTTPModel"]

ApiKey = str | Callable[[], str | Awaitable[str]]
"""A key, or a function (plain or async) that is asked for it before each attempt."""


class Encoder(Protocol):
    """Makes the bodies of one model's requests."""

    def encode(self, request: ModelRequest) -> bytes:
        """The body of a request; raises :class:`~turnstate.InvalidInput` if something cannot be sent."""
        ...


class Decoder(Receiver, Protocol):
    """A receiver that has the reply when the body has ended."""

    @property
    def usage(self) -> Usage:
        """What the server has told of usage so far."""
        ...

    def reply(self) -> Reply:
        """The complete reply; raises :class:`~turnstate.ModelError` if it makes no sense."""
        ...


class HTTPModel(Model):
    """A model behind an HTTP server.

    Args:
        name: the model's name on the server.
        base_url: where the server is, such as ``http://localhost:8000/v1``; otherwise the environment or the adapter
            says it. A query in it is kept.
        api_key: the key, or a function (plain or async) that is asked for it before each attempt; otherwise the
            environment's. Without one none is sent, as local servers want it.
        settings: those of the adapter's protocol. Those of a turn come before them.
        headers: further headers of each request; one that authorizes takes the key's place.
        extra_body: further fields of each request's body, for what only one server knows. None leaves a field out, such as
            ``{"stream_options": None}`` for a server that refuses it.
        timeouts: limits in seconds.
        connections: how many requests may be under way at once; more of them wait.
        http: proxy, certificates and HTTP/2, see :class:`~turnstate.models.HTTPOptions`.
        max_reply_bytes: bytes that an answer may have, compressed or not; 64 MiB by default. One event of it may have half
            of that, at least 32 MiB. An answer with more fails, and is not asked for again.

    Raises:
        InvalidInput: a value is wrong. The text never holds the key.
    """

    path: ClassVar[str]
    """Where requests go, below the base URL."""
    default_url: ClassVar[str]
    """The base URL where nothing else says it."""
    url_variable: ClassVar[str] = ""
    """The environment's variable that says the base URL, if there is one."""
    key_variables: ClassVar[tuple[str, ...]]
    """The environment's variables that may hold the key; the first that does counts."""
    key_headers: ClassVar[frozenset[str]] = frozenset({"authorization", "api-key", "x-api-key"})
    """Headers of the host's own that take the key's place, in lower case."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        settings: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeouts: Timeouts | None = None,
        connections: int = 100,
        http: HTTPOptions | None = None,
        max_reply_bytes: int = MAX_REPLY,
    ) -> None:
        self.name = checks.text("name", name, filled=True, expected="the model's name on the server")
        checks.integer("connections", connections, least=1)
        checks.optional_text("base_url", base_url)
        if api_key is not None and not isinstance(api_key, str):
            checks.callback("api_key", api_key, "text or a function")
        checks.optional(checks.instance, "timeouts", timeouts, kind=Timeouts, expected="Timeouts")
        checks.optional(checks.instance, "http", http, kind=HTTPOptions, expected="HTTPOptions")
        settings = {} if settings is None else checks.mapping("settings", settings)
        extra_body = {} if extra_body is None else checks.mapping("extra_body", extra_body)
        headers = {} if headers is None else checks.mapping("headers", headers)
        # What may hold a secret is kept in a holder: no repr, vars() or pickle of a model shows it.
        base = check_url(base_url or os.environ.get(self.url_variable) or self.default_url)
        self._secret_base = Secret(base)
        self._secret_url = Secret(self._endpoint(base))
        self._origin = shown_url(self._url)
        self._secret_key = Secret(check_key(api_key)) if isinstance(api_key, str) else None
        self._ask_key = None if isinstance(api_key, str) else api_key
        if api_key is None:
            self._key_of_environment()
        self._secret_headers = Secret(check_headers(headers))
        self._max_reply = check_size(max_reply_bytes)
        self._http = http or HTTPOptions()
        self._channel = Channel(self._url, timeouts or Timeouts(), connections, self._http, self._max_reply)
        self._encoder = self._make_encoder(settings, extra_body)
        self._secret_fields = Secret(frozenset(secrets_in_body({**settings, **extra_body})))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={self._origin.removesuffix(f'/{self.path}')!r})"

    def __copy__(self) -> HTTPModel:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __deepcopy__(self, memo: dict[int, Any], /) -> HTTPModel:
        return copy.copy(self)

    def __reduce_ex__(self, protocol: object, /) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled, since it holds an API key; make it again where it is used"
        )

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        """Send the request and wait for the whole reply; see :meth:`Model.respond`."""
        body = self._encode(request)
        key = await self._key()
        with redacting(lambda: self._redactor(key)):
            decoder = self._make_decoder(on_delta)
            if isinstance(decoder, BodyDecoder):
                decoder.hold_to(max(MAX_EVENT, self._max_reply // 2))
            return await self._exchange(body, key, decoder)

    async def _exchange(self, body: bytes, key: str, decoder: Decoder) -> Reply:
        own = self._secret_headers.reveal()
        given = {name.lower() for name in own}
        authorized = not given.isdisjoint(self.key_headers)
        standing = {"Content-Type": "application/json", **self._standing_headers()}
        if key and not authorized:
            standing |= self._authorize(key)
        headers = {name: value for name, value in standing.items() if name.lower() not in given} | own
        if bears_secret(key, own, self._url):
            warn_of_plain_http(self._url)

        def failed(status: int, answer: Mapping[str, str], text: bytes) -> ModelError:
            return self._failed(status, answer, text, with_key=bool(key) or authorized)

        try:
            await self._channel.post(body, headers, decoder, failed)
            return decoder.reply()
        except ModelError as error:
            error.usage = decoder.usage
            raise

    def _redactor(self, key: str) -> Redactor:
        proxy = self._http.proxy
        urls = [self._url, *([] if proxy is None else [proxy.reveal()])]
        headers, fields = self._secret_headers.reveal(), self._secret_fields.reveal()
        return redactor_of(key, headers, urls, fields, environment=self._http.environment)

    @property
    def _url(self) -> str:
        """Where requests go, with all that may be secret in it."""
        return self._secret_url.reveal()

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Check settings of a turn as a request with them is encoded; see :meth:`Model.check_settings`."""
        if settings:
            said = Message("m1", None, "t1", "user", (Text("?"),), 0.0)
            self._encoder.encode(ModelRequest("", "", "", (said,), settings=settings))

    async def aclose(self) -> None:
        """Close the connections, unless a request is under way; a later request makes new ones."""
        await self._channel.aclose()

    @abstractmethod
    def _make_encoder(self, settings: Mapping[str, Any], extra_body: Mapping[str, Any]) -> Encoder:
        """The encoder of the model's requests; raises :class:`~turnstate.InvalidInput` if a value is wrong."""

    @abstractmethod
    def _make_decoder(self, on_delta: OnDelta) -> Decoder:
        """A decoder for one answer."""

    def _endpoint(self, base: str) -> str:
        """Where requests go."""
        return join_url(base, self.path)

    def _standing_headers(self) -> dict[str, str]:
        """Headers of each request; the host's own take their place."""
        return {}

    def _authorize(self, key: str) -> dict[str, str]:
        """The header that carries the key."""
        return {"Authorization": f"Bearer {key}"}

    def _failed(self, status: int, answer: Mapping[str, str], text: bytes, *, with_key: bool) -> ModelError:
        """The error that an answer with a status other than 2xx is."""
        return response_error(status, answer, text, self._origin, with_key=with_key, variable=self.key_variables[0])

    def _encode(self, request: ModelRequest) -> bytes:
        try:
            return self._encoder.encode(request)
        except InvalidInput as error:
            raise ModelError(str(error), kind="invalid-request") from error

    async def _key(self) -> str:
        if self._secret_key is not None:
            return self._secret_key.reveal()
        try:
            if self._ask_key is None:
                return self._key_of_environment()
            given = self._ask_key()
            return check_key(await given if inspect.isawaitable(given) else given)
        except InvalidInput as error:
            raise ModelError(str(error), kind="authentication") from error
        except BaseException as raised:
            cause = failure_in(raised)
            text = f"api_key: the function raised {type(cause).__name__}"
            raise ModelError(text, kind="authentication") from cause

    def _key_of_environment(self) -> str:
        keys = (check_key(os.environ.get(variable, ""), variable) for variable in self.key_variables)
        return next(filter(None, keys), "")
