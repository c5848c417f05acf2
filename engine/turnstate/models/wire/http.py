"""The HTTP that the adapters share: one streaming POST, fed to a pure receiver, with a limit for every wait.

httpx is imported when the first request is sent, and nothing of it leaves this module: everything that goes wrong is a
:class:`~turnstate.ModelError`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio

from turnstate_states import checks
from turnstate_states.errors import InvalidInput, ModelError

from ...failures import cancelled_here
from ...paths import path as check_path
from .endpoint import check_url, shown_url
from .http_errors import transport_error
from .inflating import MAX_REPLY, Plain
from .secret import Secret

if TYPE_CHECKING:
    import httpx

__all__ = ["Channel", "Failed", "HTTPOptions", "Receiver", "Timeouts"]

CLOSE_LIMIT = 2.0
"""Seconds that closing a response may take; it is shielded from cancellation that long."""

DRAIN_LIMIT = 0.05
"""Seconds to wait for the end of a body that is complete already; a connection can be used again only after it."""

ERROR_LIMIT = 5.0
"""Seconds to wait for each piece of an error's explanation."""

_ERROR_BODY = 64 * 1024

Failed = Callable[[int, Mapping[str, str], bytes], ModelError]
"""``failed(status, headers, body)``: the error that an answer with a status other than 2xx is."""


@attrs.frozen
class Timeouts:
    """Limits in seconds; ``math.inf`` or None is no limit.

    Args:
        connect: for the connection.
        first_byte: from the start of the attempt to the headers of the answer.
        idle: between two pieces of the answer. Comments and pings count as life.
        total: for the whole attempt, waiting for a free connection included; an hour by default.
    """

    connect: float | None = 10.0
    first_byte: float | None = 120.0
    idle: float | None = 120.0
    total: float | None = 3600.0

    def __attrs_post_init__(self) -> None:
        for name in attrs.fields_dict(type(self)):
            expected = "None for no limit, or seconds"
            checks.optional(checks.number, f"timeouts: {name}", getattr(self, name), above=0, expected=expected)


def _secret(value: str | Secret[str] | None) -> Secret[str] | None:
    return Secret(value) if isinstance(value, str) else value


@attrs.frozen(kw_only=True)
class HTTPOptions:
    """How requests travel.

    Args:
        http2: use HTTP/2 where the server does; needs the extra ``turnstate[http2]``.
        proxy: the URL of a proxy; otherwise that of the environment (``HTTPS_PROXY`` and the like).
            It is kept in a holder that no repr and no pickle shows.
        ca: whom to trust in place of the usual authorities: a file of certificates, or an ``ssl.SSLContext``.
        environment: whether the environment's proxies count.

    Raises:
        InvalidInput: an option cannot be used.
    """

    http2: bool = False
    proxy: Secret[str] | None = attrs.field(default=None, converter=_secret)
    ca: str | Path | ssl.SSLContext | None = None
    environment: bool = True

    def __attrs_post_init__(self) -> None:
        checks.flag("http2", self.http2)
        checks.flag("environment", self.environment)
        if self.ca is not None and not isinstance(self.ca, ssl.SSLContext):
            check_path("ca", self.ca)
        if self.http2 and find_spec("h2") is None:
            raise InvalidInput("http2: the package h2 is missing; install turnstate[http2]")
        if self.proxy is not None:
            given: Any = self.proxy.reveal() if isinstance(self.proxy, Secret) else self.proxy  # pyright: ignore[reportUnnecessaryIsInstance]
            check_url(given, "proxy")

    def tls(self) -> ssl.SSLContext:
        """Whom to trust.

        Raises:
            InvalidInput: the file of certificates cannot be read.
        """
        if isinstance(self.ca, ssl.SSLContext):
            return self.ca
        if self.ca is None:
            return _tls()
        try:
            return ssl.create_default_context(cafile=str(self.ca))
        except (OSError, ssl.SSLError) as error:
            raise InvalidInput(f"ca: {self.ca} is no file of certificates: {error}") from None


class Receiver(Protocol):
    """A pure decoder of one answer's body."""

    @property
    def patience(self) -> float | None:
        """Seconds that more may take though the answer is complete; None while it is not complete."""
        ...

    def feed(self, data: bytes, /) -> bool:
        """Take bytes; True when nothing more is needed."""
        ...

    def end(self) -> None:
        """The body has ended; raises :class:`~turnstate.ModelError` if something is missing."""
        ...


class Channel:
    """Sends the requests of one model. Its client is made when it is first needed, and again in another run of trio.

    Args:
        url: where requests go.
        timeouts: the limits.
        connections: how many requests may be under way at once; more of them wait.
        options: how requests travel.
        max_bytes: bytes that an answer may have, after inflation.
    """

    def __init__(
        self,
        url: str,
        timeouts: Timeouts,
        connections: int = 100,
        options: HTTPOptions | None = None,
        max_bytes: int = MAX_REPLY,
    ) -> None:
        self._address = Secret(url)
        self._max_bytes = max_bytes
        self._options = options or HTTPOptions()
        if isinstance(self._options.ca, (str, Path)):
            self._options = attrs.evolve(self._options, ca=self._options.tls())
        self._timeouts = timeouts
        # Waiting here and not in the client's pool: a slot of ours is free again whatever happens to a connection.
        self._slots = trio.CapacityLimiter(connections)
        self._client: httpx.AsyncClient | None = None
        self._run: object = None

    async def post(self, body: bytes, headers: Mapping[str, str], receiver: Receiver, failed: Failed) -> None:
        """Send a body and feed the answer to the receiver until it has enough.

        Raises:
            ModelError: the attempt failed, at whatever stage.
        """
        limit = self._timeouts.total
        with trio.move_on_after(_seconds(limit)) as overall:
            async with self._slots:
                response = await self._send(body, headers)
                try:
                    await self._receive(response, receiver, failed)
                finally:
                    with trio.move_on_after(CLOSE_LIMIT, shield=True):
                        await response.aclose()
        if overall.cancelled_caught:
            raise self._late(f"the answer was not finished within {limit:g} s (timeouts.total)")

    async def aclose(self) -> None:
        """Close the connections; nothing is done while a request is under way, since somebody else uses the model then.

        The channel can still be used, and then makes new ones.
        """
        if self._slots.borrowed_tokens:
            return
        client, self._client = self._client, None
        if client is not None and self._run is trio.lowlevel.current_trio_token():
            with trio.move_on_after(CLOSE_LIMIT, shield=True):
                await client.aclose()

    async def _send(self, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        client = self._open()
        request = client.build_request("POST", self._url, content=body, headers=dict(headers))
        request.stream = _whole_body()(body)
        request.url = _quiet_url()(request.url)
        limit = self._timeouts.first_byte
        with trio.move_on_after(_seconds(limit)):
            try:
                return await client.send(request, stream=True)
            except Exception as error:
                raise transport_error(error, shown_url(self._url), answering=False) from error
        raise self._late(f"no answer came from {shown_url(self._url)} within {limit:g} s")

    async def _receive(self, response: httpx.Response, receiver: Receiver, failed: Failed) -> None:
        if response.is_success:
            await self._read(response, receiver, _seconds(self._timeouts.idle))
            return
        body = _Body()
        try:
            await self._read(response, body, ERROR_LIMIT)
        except ModelError:
            # The status says enough; what came of its explanation is all that there will be.
            pass
        raise failed(response.status_code, response.headers, bytes(body.data))

    async def _read(self, response: httpx.Response, receiver: Receiver, idle: float) -> None:
        """Read the body. It always ends by its end or by cancellation, so that httpx's generators are never dropped."""
        plain = Plain(response.headers.get("content-encoding", ""), self._max_bytes)
        fault: Exception | None = None
        reading = _Reading(idle)
        with reading.scope:
            try:
                async for data in _stream(response):
                    if fault is None and not reading.enough:
                        try:
                            reading.enough = await _feed(receiver, plain.pieces(data))
                        except Exception as error:
                            fault = error
                            reading.scope.cancel()
                            continue
                        reading.wait(receiver.patience)
            except Exception as error:
                if fault is None and receiver.patience is None and not reading.enough:
                    fault = transport_error(error, shown_url(self._url), answering=True)
                    fault.__cause__ = error
        if fault is not None:
            raise fault
        if reading.scope.cancelled_caught and receiver.patience is None and not reading.enough:
            raise self._late(f"nothing came from {shown_url(self._url)} for {idle:g} s")
        receiver.end()

    @property
    def _url(self) -> str:
        return self._address.reveal()

    def _late(self, text: str) -> ModelError:
        return ModelError(text, kind="timeout", retryable=True)

    def _open(self) -> httpx.AsyncClient:
        run = trio.lowlevel.current_trio_token()
        if self._client is None or self._run is not run:
            self._client = _client(self._url, self._timeouts.connect, self._options)
            self._run = run
        return self._client


class _Reading:
    """How long to wait for the next piece."""

    def __init__(self, idle: float) -> None:
        self._idle = idle
        self._until = float("inf")
        self.enough = False
        self.scope = trio.CancelScope(deadline=trio.current_time() + idle)

    def wait(self, patience: float | None) -> None:
        now = trio.current_time()
        if self.enough:
            patience = DRAIN_LIMIT
        # A receiver may find that what looked complete goes on.
        self._until = float("inf") if patience is None else min(self._until, now + patience)
        self.scope.deadline = min(now + self._idle, self._until)


class _Body:
    """Receives the body of an error, the first part of it."""

    patience: float | None = None

    def __init__(self) -> None:
        self.data = bytearray()

    def feed(self, data: bytes, /) -> bool:
        self.data += data
        return len(self.data) > _ERROR_BODY

    def end(self) -> None:
        pass


@cache
def _whole_body() -> Callable[[bytes], httpx.AsyncByteStream]:
    """A request's body that is no generator: httpx's own is dropped half read when sending is cancelled."""
    import httpx

    class WholeBody(httpx.AsyncByteStream):
        def __init__(self, body: bytes) -> None:
            self._parts = [body]

        def __aiter__(self) -> WholeBody:
            return self

        async def __anext__(self) -> bytes:
            if not self._parts:
                raise StopAsyncIteration
            return self._parts.pop()

    return WholeBody


@cache
def _quiet_url() -> type[httpx.URL]:
    """A URL whose text holds no password and no query: httpx writes the text of each request's URL into its log."""
    import httpx

    class QuietURL(httpx.URL):
        def __str__(self) -> str:
            return shown_url(super().__str__())

    return QuietURL


def _stream(response: httpx.Response) -> httpx.AsyncByteStream:
    """The body as it comes, without httpx's own decoding, whose errors would leave generators half read."""
    import httpx

    assert isinstance(response.stream, httpx.AsyncByteStream), "an asynchronous client gives an asynchronous stream"
    return response.stream


async def _feed(receiver: Receiver, pieces: Iterator[bytes]) -> bool:
    """Feed pieces until the receiver has enough; between them other tasks run.

    Cancellation is looked for and not raised, since only the stream itself may raise it: see :meth:`Channel._read`.
    """
    for number, piece in enumerate(pieces):
        if number:
            await trio.lowlevel.cancel_shielded_checkpoint()
            if cancelled_here():
                return False
        if receiver.feed(piece):
            return True
    return False


def _seconds(limit: float | None) -> float:
    return float("inf") if limit is None else limit


def _client(url: str, connect: float | None, options: HTTPOptions) -> httpx.AsyncClient:
    import httpx

    return httpx.AsyncClient(
        # Redirects are not followed, so a plain URL needs no certificates, and reading them takes a while.
        verify=options.tls() if url.startswith("https:") else False,
        http2=options.http2,
        proxy=None if options.proxy is None else options.proxy.reveal(),
        trust_env=options.environment,
        timeout=httpx.Timeout(None, connect=connect),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30.0),
        follow_redirects=False,
        headers={
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "turnstate",
        },
    )


@cache
def _tls() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()
