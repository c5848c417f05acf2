"""OpenAIResponses over real sockets: what is sent, how an exchange ends, keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from tests.models.exchanges import CANARY, failure_of, hello, ignore, opened, reply_of
from tests.models.keep_alive_server import END, HEAD, KeepAliveServer, part, plain, serving
from turnstate.models import OpenAIResponses, Timeouts
from turnstate.models.base import OnDelta, Reply
from turnstate_states.errors import ModelError


def event(kind: str, **fields: Any) -> bytes:
    return b"data: " + json.dumps({"type": f"response.{kind}", **fields}).encode() + b"\n\n"


def text(delta: str) -> bytes:
    return event("output_text.delta", output_index=0, content_index=0, item_id="msg_1", delta=delta)


def response(said: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "output_text", "text": said, "annotations": []}]
    return {
        "id": "resp_1",
        "model": "m-1",
        "status": "completed",
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "content": content}],
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }


LAST = event("completed", response=response("Hello"))
GOOD = [HEAD, part(text("Hel")), part(text("lo")), part(LAST), END]


def model(server: KeepAliveServer, **more: Any) -> OpenAIResponses:
    return OpenAIResponses("m", base_url=server.url, **more)


async def ask(server: KeepAliveServer, on_delta: OnDelta = ignore, **more: Any) -> Reply:
    return await reply_of(model(server, **more), on_delta)


async def fails(server: KeepAliveServer, **more: Any) -> ModelError:
    return await failure_of(model(server, **more))


async def test_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply is streamed; the request is a POST of JSON to ``responses`` with the key in a header."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with serving(GOOD) as server:
        deltas: list[str] = []
        reply = await ask(
            server,
            lambda kind, text, slot: deltas.append(text),
            api_key="k-1",
            headers={"X-A": "b"},
            settings={"max_tokens": 50},
        )
        await ask(server)
    assert (reply.text, reply.stop, reply.usage.input, deltas) == ("Hello", "stop", 3, ["Hel", "lo"])
    head, body = server.requests[0]
    assert head.startswith(b"POST /v1/responses HTTP/1.1\r\n")
    assert {b"authorization: bearer k-1", b"x-a: b"} <= set(head.lower().split(b"\r\n"))
    sent = json.loads(body)
    assert (sent["input"], sent["max_output_tokens"]) == ([{"role": "user", "content": "hi"}], 50)
    assert b"authorization" not in server.requests[1][0].lower()


async def test_a_connection_is_used_again() -> None:
    """Replies one after the other share a connection."""
    async with serving(GOOD) as server, opened(model(server)) as made:
        for _ in range(5):
            await made.respond(hello(), ignore)
        assert server.connections == 1


async def test_an_open_socket_does_not_hold_the_reply_up() -> None:
    """The event that ends the response ends the attempt though the socket stays open, and it is closed then."""
    async with serving([*GOOD[:-1], "hold"]) as server:
        with trio.fail_after(2):
            assert (await ask(server)).text == "Hello"
            await server.gone.wait()


async def test_one_byte_at_a_time() -> None:
    """Cases 1 and 3: a body that arrives byte by byte, with CRLF and text of many bytes, is the same reply."""
    stream = (text("é日🌍") + event("completed", response=response("é日🌍"))).replace(b"\n", b"\r\n")
    async with serving([HEAD, *(part(stream[n : n + 1]) for n in range(len(stream))), END]) as server:
        assert (await ask(server)).text == "é日🌍"


async def test_a_break_and_a_cut_are_told_apart() -> None:
    """Cases 8 and 9: a broken connection and a body that ends too early are different kinds, both may be retried."""
    async with serving([HEAD, part(text("a")), b"5\r\nda", "close"]) as server:
        broken = await fails(server)
    async with serving([HEAD, part(text("a")), END]) as server:
        cut = await fails(server)
    assert [(error.kind, error.retryable) for error in (broken, cut)] == [("connection", True), ("cut", True)]


async def test_a_silent_server_is_not_waited_for() -> None:
    """A stream that stalls before its end is a timeout."""
    async with serving([HEAD, part(text("a")), "hold"]) as server:
        error = await fails(server, timeouts=Timeouts(idle=0.1))
    assert (error.kind, error.retryable) == ("timeout", True)


async def test_cancelling_closes_the_connection() -> None:
    """A cancelled attempt leaves nothing behind: the server sees the connection end at once."""
    async with serving([HEAD, part(text("a")), "hold"]) as server, opened(model(server)) as made:
        with trio.move_on_after(0.2):
            await made.respond(hello(), ignore)
        with trio.fail_after(1):
            await server.gone.wait()


async def test_an_answer_in_one_piece() -> None:
    """An answer that is JSON in place of a stream is a reply."""
    body = json.dumps(response("a")).encode()
    async with serving(plain("200 OK", body, "Content-Type: application/json")) as server:
        assert (await ask(server)).text == "a"


async def test_the_same_cause_is_the_same_error() -> None:
    """Case 101: overload and rate limits are told apart and may be retried, by status or inside the stream."""
    busy = {"code": "server_is_overloaded", "type": "service_unavailable_error", "message": "busy"}
    slow = {"code": "rate_limit_exceeded", "message": "slow"}
    failed = [HEAD, part(event("failed", response={"status": "failed", "error": busy})), END]
    inside = [
        HEAD,
        part(b"event: error\ndata: " + json.dumps({"type": "error", "error": slow}).encode() + b"\n\n"),
        END,
    ]
    limited = plain("429 Too Many Requests", json.dumps({"error": slow}).encode(), "Retry-After: 3")
    async with serving(failed, plain("529 Overloaded", b""), inside, limited) as server:
        found = [await fails(server) for _ in range(4)]
    assert [error.kind for error in found] == ["overloaded", "overloaded", "rate-limit", "rate-limit"]
    assert all(error.retryable for error in found)
    assert found[3].retry_after == 3


async def test_keys_are_never_told() -> None:
    """Case 119: a key that a server echoes, in a status or in the stream, is hidden; the repr does not hold it."""
    echo = {"message": f"bad key {CANARY}", "code": "invalid_api_key"}
    inside = [HEAD, part(event("failed", response={"status": "failed", "error": echo})), END]
    async with serving(plain("401 Unauthorized", json.dumps({"error": echo}).encode()), inside) as server:
        for _ in range(2):
            error = await fails(server, api_key=CANARY)
            assert error.kind == "authentication"
            assert CANARY not in str(error)
            assert "***" in str(error)
        assert CANARY not in repr(OpenAIResponses("m", base_url=server.url, api_key=CANARY))


async def test_rotating_keys() -> None:
    """A function is asked for the key before each attempt."""
    keys = iter(["k-1", "k-2"])
    async with serving(GOOD) as server, opened(model(server, api_key=lambda: next(keys))) as made:
        for _ in range(2):
            await made.respond(hello(), ignore)
    assert [f"authorization: bearer k-{n}".encode() in server.requests[n - 1][0].lower() for n in (1, 2)] == [
        True,
        True,
    ]
