"""How requests travel: certificates, proxies, HTTP/2."""

from __future__ import annotations

import ssl
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

from turnstate import Agent, Engine, InvalidInput, MemoryStore, TurnFailed
from turnstate.models import HTTPOptions, OpenAIChat
from turnstate.testing.byte_server import ByteServer, head, serving

BODY = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
ANSWER = [head(len(BODY), "200 OK", "Content-Type: text/event-stream") + BODY]


def no_package(name: str) -> None:
    """Nothing is installed."""


async def said(url: str, options: HTTPOptions) -> str:
    """What a model at a URL answers."""
    model = OpenAIChat("m", base_url=url, api_key="canary-key", http=options)
    async with Engine(Agent(model), MemoryStore()) as engine:
        return (await engine.session("a").run("hello")).text


async def test_a_certificate_of_ones_own(tmp_path: Path) -> None:
    """A server whose certificate the given authority signed is trusted, as a file or a context, and no other is."""
    authority = trustme.CA()
    server = ByteServer([ANSWER])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)  # pyright: ignore[reportUnknownMemberType]
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)  # pyright: ignore[reportUnknownMemberType]

    async def handle(stream: trio.SSLStream[trio.SocketStream]) -> None:
        try:
            await server.handle(stream)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        except (trio.BrokenResourceError, ssl.SSLError):
            pass  # a client that does not trust us hangs up

    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_ssl_over_tcp, handle, 0, context, host="localhost")
        listeners = await nursery.start(serve)
        port = listeners[0].transport_listener.socket.getsockname()[1]
        url = f"https://localhost:{port}"
        assert await said(url, HTTPOptions(ca=file)) == "hi"
        assert await said(url, HTTPOptions(ca=trusting)) == "hi"
        model = OpenAIChat("m", base_url=url, api_key="x")
        async with Engine(Agent(model), MemoryStore()) as engine:
            with pytest.raises(TurnFailed, match="certificate"):
                await engine.session("a").run("hello")
        nursery.cancel_scope.cancel()


async def test_a_proxy_gets_the_request() -> None:
    """With a proxy the request goes to it and names the whole address."""
    async with serving(ANSWER) as proxy:
        assert await said("http://model.invalid/v1", HTTPOptions(proxy=proxy.url)) == "hi"
    assert proxy.requests[0][0].startswith(b"POST http://model.invalid/v1/chat/completions HTTP/1.1")


async def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's proxy counts, unless that is turned off."""
    async with serving(ANSWER) as proxy, serving(ANSWER) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert await said(server.url, HTTPOptions(environment=False)) == "hi"
        assert (len(proxy.requests), len(server.requests)) == (0, 1)
        assert await said("http://model.invalid/v1", HTTPOptions()) == "hi"
        assert len(proxy.requests) == 1


def test_what_cannot_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that holds no certificates, a proxy that is no URL, and HTTP/2 without its package are refused at once."""
    with pytest.raises(InvalidInput, match="ca"):
        OpenAIChat("m", api_key="x", http=HTTPOptions(ca=tmp_path / "missing.pem"))
    with pytest.raises(InvalidInput):
        HTTPOptions(proxy="nowhere")
    monkeypatch.setattr("turnstate.models.wire.http.find_spec", no_package)
    with pytest.raises(InvalidInput, match=r"turnstate\[http2\]"):
        HTTPOptions(http2=True)


async def test_http2_can_be_asked_for() -> None:
    """With HTTP/2 asked for, a server that only speaks HTTP/1.1 is still understood."""
    async with serving(ANSWER) as server:
        assert await said(server.url, HTTPOptions(http2=True, environment=False)) == "hi"
