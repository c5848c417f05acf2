"""Anthropic over real sockets: what is sent, how an exchange ends, keys. What all adapters do is in the model suite."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import trio

from tests.models.exchanges import CANARY, everything_told, failure_of, hello, ignore, reply_of
from turnstate.models import Anthropic, Timeouts
from turnstate.models.base import OnDelta, Reply
from turnstate.testing.byte_server import ByteServer, Step, head, serving
from turnstate_states.errors import ModelError


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n"


def text(said: str) -> bytes:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": said})


START = event("message_start", message={"model": "m", "usage": {"input_tokens": 1}})
STOP = event("message_delta", delta={"stop_reason": "end_turn"}) + event("message_stop")
OPEN = head(None, "200 OK", "Content-Type: text/event-stream")
GOOD: list[Step] = [OPEN, START, text("Hel"), text("lo"), STOP]


def plain(status: str, body: bytes, *headers: str) -> list[Step]:
    return [head(len(body), status, *headers), body]


def error_body(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"}).encode()


async def ask(server: ByteServer, on_delta: OnDelta = ignore, path: str = "", **more: Any) -> Reply:
    return await reply_of(Anthropic("m", base_url=server.url + path, **more), on_delta)


async def fails(server: ByteServer, **more: Any) -> ModelError:
    return await failure_of(Anthropic("m", base_url=server.url, **more))


async def test_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply is streamed; the request is a POST of JSON with the version and the key in headers."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    deltas: list[str] = []
    async with serving(GOOD) as server:
        reply = await ask(
            server, lambda kind, text, slot: deltas.append(text), api_key=" k-1\r\n", headers={"X-A": "b"}
        )
        await ask(server)
    assert (reply.text, reply.stop, deltas) == ("Hello", "stop", ["Hel", "lo"])
    first, body = server.requests[0]
    assert first.startswith(b"POST /v1/messages HTTP/1.1\r\n")
    assert {b"x-api-key: k-1", b"x-a: b", b"anthropic-version: 2023-06-01"} <= set(first.lower().split(b"\r\n"))
    assert b"authorization" not in first.lower()
    assert json.loads(body)["stream"] is True
    assert b"x-api-key" not in server.requests[1][0].lower()


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/messages", "/proxy"])
async def test_urls(path: str) -> None:
    """A base URL may end with ``/v1`` or not, and may be the whole one; a query is kept."""
    async with serving(GOOD) as server:
        await ask(server, path=path)
        await ask(server, path=path + "?v=1")
    wanted = b"/proxy/v1/messages" if path == "/proxy" else b"/v1/messages"
    assert [first.split(b" ")[1] for first, _ in server.requests] == [wanted, wanted + b"?v=1"]


async def test_headers_of_the_program_come_first() -> None:
    """Another version, betas and another header that authorizes replace what the adapter would send."""
    headers = {"Anthropic-Version": "2099-01-01", "anthropic-beta": "x,y", "Authorization": "Bearer t"}
    async with serving(GOOD) as server:
        await ask(server, api_key=CANARY, headers=headers)
    lines = server.requests[0][0].lower().split(b"\r\n")
    assert {b"anthropic-version: 2099-01-01", b"anthropic-beta: x,y", b"authorization: bearer t"} <= set(lines)
    assert sum(line.startswith(b"anthropic-version") for line in lines) == 1
    assert CANARY.encode() not in server.requests[0][0]


async def test_an_open_socket_does_not_hold_the_reply_up() -> None:
    """``message_stop`` ends the attempt though the socket stays open, and the connection is then closed."""
    async with serving([*GOOD, "hold"]) as server:
        with trio.fail_after(2):
            assert (await ask(server)).text == "Hello"
            await server.gone.wait()


async def test_an_answer_in_one_piece() -> None:
    """An answer that is JSON in place of a stream is a reply."""
    body = json.dumps({"content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn"}).encode()
    async with serving(plain("200 OK", body, "Content-Type: application/json")) as server:
        assert (await ask(server)).text == "a"


async def test_statuses() -> None:
    """Cases 98, 100 and 101: a status is an error with its class, the server's text and its Retry-After."""
    scripts = [
        plain("429 Too Many Requests", error_body("rate_limit_error", "slow down"), "Retry-After: 3"),
        plain("529 Overloaded", error_body("overloaded_error", "Overloaded")),
        plain("529 Overloaded", b""),
        plain("400 Bad Request", error_body("invalid_request_error", "prompt is too long: 3 tokens > 2 maximum")),
        plain("500 Oops", error_body("api_error", "x"), "x-should-retry: false"),
    ]
    async with serving(*scripts) as server:
        errors = [await fails(server) for _ in scripts]
    assert [(error.kind, error.retryable, error.status) for error in errors] == [
        ("rate-limit", True, 429),
        ("overloaded", True, 529),
        ("overloaded", True, 529),
        ("context-overflow", False, 400),
        ("server", False, 500),
    ]
    assert (errors[0].retry_after, str(errors[0])) == (3.0, "slow down (429)")


@pytest.mark.parametrize("before", [[], [START, text("a")]])
async def test_an_error_in_the_stream_ends_the_attempt(before: list[Step]) -> None:
    """Cases 5 and 101: an error told in the stream is typed and ends the attempt though the server goes on."""
    told = b"event: error\ndata: " + error_body("overloaded_error", "Overloaded") + b"\n\n"
    async with serving([OPEN, *before, told, "hold"]) as server:
        with trio.fail_after(2):
            error = await fails(server)
            await server.gone.wait()
    assert (error.kind, error.retryable, error.status) == ("overloaded", True, None)


async def test_pings_are_life_but_silence_is_not() -> None:
    """Case 106: pings keep an attempt alive past the idle limit; silence, also after the stop reason, ends it."""
    pings: list[Step] = [0.05, event("ping")] * 8
    async with serving([OPEN, START, *pings, *GOOD[2:]], [OPEN, START, STOP[:60], "hold"]) as server:
        assert (await ask(server, timeouts=Timeouts(idle=0.3))).text == "Hello"
        error = await fails(server, timeouts=Timeouts(idle=0.2))
    assert (error.kind, error.retryable) == ("timeout", True)


async def test_the_key_is_found_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """Case 119: with any failure, a server that echoes the key included, no error, log or repr holds it."""
    caplog.set_level(logging.DEBUG)
    echo = error_body("authentication_error", f"invalid x-api-key: {CANARY}")
    scripts: list[list[Step]] = [
        plain("401 Unauthorized", echo),
        plain("404 Not Found", CANARY.encode()),
        [OPEN, b"event: error\ndata: " + echo + b"\n\n"],
        [OPEN, b"data: {" + CANARY.encode() + b"\n\n"],
        [],
        [OPEN, "hold"],
    ]
    async with serving(*scripts) as server:
        for _ in scripts:
            error = await fails(server, api_key=CANARY, timeouts=Timeouts(idle=0.1))
            assert CANARY not in everything_told(error)
    assert CANARY not in repr(Anthropic("m", api_key=CANARY)) + caplog.text
    assert all(CANARY.encode() in first for first, _ in server.requests)


async def test_a_missing_key_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that wants a key where none is set gets an error that names the variable."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with serving(plain("401 Unauthorized", error_body("authentication_error", "no key"))) as server:
        error = await fails(server)
    assert "ANTHROPIC_API_KEY" in str(error)
    assert error.kind == "authentication"


async def test_keys_from_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function is asked before each attempt, and so is the environment."""
    keys = iter(["k-1", "k-2"])
    async with serving(GOOD) as server:
        made = Anthropic("m", base_url=server.url, api_key=lambda: next(keys))
        await made.respond(hello(), ignore)
        await made.respond(hello(), ignore)
        await made.aclose()
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k-3")
        await ask(server)
    assert [first.lower().split(b"x-api-key: ")[1][:3] for first, _ in server.requests] == [b"k-1", b"k-2", b"k-3"]
