"""OpenAIResponses over real sockets: what is sent, how an exchange ends, keys."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.models.test_openai_chat_http import CANARY, END, HEAD, Server, part, plain, request, serving
from turnstate.models.base import Reply
from turnstate.models.http import Timeouts
from turnstate.models.openai_responses import OpenAIResponses
from turnstate_states.errors import InvalidInput, ModelError


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


@asynccontextmanager
async def open_model(server: Server, **more: Any) -> AsyncGenerator[OpenAIResponses]:
    made = OpenAIResponses("m", base_url=server.url, **more)
    try:
        yield made
    finally:
        await made.aclose()


async def ask(server: Server, **more: Any) -> tuple[Reply, list[str]]:
    deltas: list[str] = []
    async with open_model(server, **more) as made:
        return await made.respond(request(), lambda kind, text, slot: deltas.append(text)), deltas


async def fails(server: Server, **more: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(server, **more)
    assert "\n" not in str(caught.value)
    return caught.value


async def test_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply is streamed; the request is a POST of JSON to ``responses`` with the key in a header."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with serving(GOOD) as server:
        reply, deltas = await ask(server, api_key="k-1", headers={"X-A": "b"}, settings={"max_tokens": 50})
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
    async with serving(GOOD) as server, open_model(server) as made:
        for _ in range(5):
            await made.respond(request(), lambda kind, text, slot: None)
        assert server.connections == 1


async def test_an_open_socket_does_not_hold_the_reply_up() -> None:
    """The event that ends the response ends the attempt though the socket stays open, and it is closed then."""
    async with serving([*GOOD[:-1], "hold"]) as server:
        with trio.fail_after(2):
            assert (await ask(server))[0].text == "Hello"
            await server.gone.wait()


async def test_one_byte_at_a_time() -> None:
    """Cases 1 and 3: a body that arrives byte by byte, with CRLF and text of many bytes, is the same reply."""
    stream = (text("é日🌍") + event("completed", response=response("é日🌍"))).replace(b"\n", b"\r\n")
    async with serving([HEAD, *(part(stream[n : n + 1]) for n in range(len(stream))), END]) as server:
        assert (await ask(server))[0].text == "é日🌍"


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
    async with serving([HEAD, part(text("a")), "hold"]) as server, open_model(server) as made:
        with trio.move_on_after(0.2):
            await made.respond(request(), lambda kind, text, slot: None)
        with trio.fail_after(1):
            await server.gone.wait()


async def test_an_answer_in_one_piece() -> None:
    """An answer that is JSON in place of a stream is a reply."""
    body = json.dumps(response("a")).encode()
    async with serving(plain("200 OK", body, "Content-Type: application/json")) as server:
        assert (await ask(server))[0].text == "a"


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
    async with serving(GOOD) as server, open_model(server, api_key=lambda: next(keys)) as made:
        for _ in range(2):
            await made.respond(request(), lambda kind, text, slot: None)
    assert [f"authorization: bearer k-{n}".encode() in server.requests[n - 1][0].lower() for n in (1, 2)] == [
        True,
        True,
    ]


async def test_bad_settings_of_a_turn() -> None:
    """A setting of a turn that cannot be sent is an error before anything is sent."""
    sent = request()
    sent.settings = {"seed": 1}
    with pytest.raises(ModelError, match="seed") as caught:
        await OpenAIResponses("m", base_url="http://127.0.0.1:9/v1").respond(sent, lambda kind, text, slot: None)
    assert caught.value.kind == "invalid-request"


BAD: list[Callable[[], object]] = [
    lambda: OpenAIResponses(""),
    lambda: OpenAIResponses("m", base_url="localhost:8000/v1"),
    lambda: OpenAIResponses("m", settings={"nope": 1}),
    lambda: OpenAIResponses("m", extra_body={"input": []}),
    lambda: OpenAIResponses("m", headers={"a b": "c"}),
    lambda: OpenAIResponses("m", connections=0),
]


@pytest.mark.parametrize("make", BAD)
def test_bad_arguments(make: Callable[[], object]) -> None:
    """What cannot work is refused when the model is made."""
    with pytest.raises(InvalidInput):
        make()


def test_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL comes from the argument, the environment or is OpenAI's."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert repr(OpenAIResponses("m")) == "OpenAIResponses('m', base_url='https://api.openai.com/v1')"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:secret@host:1/v1/")
    assert repr(OpenAIResponses("m")) == "OpenAIResponses('m', base_url='http://host:1/v1')"


def test_httpx_is_imported_only_when_needed() -> None:
    """Making a model by its name does not import httpx."""
    code = "import sys; from turnstate.models.naming import resolve; resolve('openai:m'); assert 'httpx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
