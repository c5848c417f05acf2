"""Gemini over real sockets: what is sent, how an answer ends, keys; what all adapters share is tested with OpenAIChat."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import trio

from tests.models.exchanges import CANARY, everything_told, failure_of, hello, ignore, opened, reply_of
from tests.models.keep_alive_server import END, HEAD, KeepAliveServer, part, plain, serving
from turnstate.models import Gemini, Timeouts
from turnstate.models.base import OnDelta, Reply
from turnstate.models.gemini import decode
from turnstate_states.errors import InvalidInput, ModelError


def event(text: str = "", finish: str | None = None, **more: Any) -> bytes:
    candidate = {
        "content": {"parts": [{"text": text}], "role": "model"},
        **({"finishReason": finish} if finish else {}),
    }
    return b"data: " + json.dumps({"candidates": [candidate], **more}).encode() + b"\r\n\r\n"


USAGE = {"promptTokenCount": 2, "candidatesTokenCount": 1, "totalTokenCount": 3}
GOOD = [HEAD, part(event("Hel")), part(event("lo", "STOP", usageMetadata=USAGE)), END]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of whoever runs the tests is used."""
    for variable in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


def model(server: KeepAliveServer, **more: Any) -> Gemini:
    return Gemini("gemini-3-pro", base_url=server.url, **more)


async def ask(server: KeepAliveServer, on_delta: OnDelta = ignore, **more: Any) -> Reply:
    return await reply_of(model(server, **more), on_delta)


async def fails(server: KeepAliveServer, **more: Any) -> ModelError:
    return await failure_of(model(server, **more))


@pytest.mark.trio
async def test_a_reply() -> None:
    """A reply is streamed; the request asks for events, with the key in a header and nothing of it in the URL."""
    async with serving(GOOD) as server:
        deltas: list[str] = []
        reply = await ask(
            server, lambda kind, text, slot: deltas.append(text), api_key=" k-1\r\n", headers={"X-A": "b"}
        )
        await ask(server)
    assert (reply.text, reply.stop, reply.usage.total, deltas) == ("Hello", "stop", 3, ["Hel", "lo"])
    head, body = server.requests[0]
    assert head.startswith(b"POST /v1/models/gemini-3-pro:streamGenerateContent?alt=sse HTTP/1.1\r\n")
    assert {b"x-goog-api-key: k-1", b"x-a: b"} <= set(head.lower().split(b"\r\n"))
    assert json.loads(body) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    assert b"x-goog-api-key" not in server.requests[1][0].lower()


@pytest.mark.trio
async def test_an_open_socket_does_not_hold_the_reply_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event says that it is the last: a server that stays open, whatever it pings, is waited for seconds only."""
    assert 0.5 <= decode.END_PATIENCE <= 3
    monkeypatch.setattr(decode, "END_PATIENCE", 0.3)
    pings: list[Any] = [0.05, part(b": ping\n\n")] * 100
    async with serving([*GOOD[:-1], *pings, "hold"]) as server:
        with trio.fail_after(3):
            assert (await ask(server)).text == "Hello"
            await server.gone.wait()


@pytest.mark.trio
async def test_a_finish_reason_with_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that tells a finish reason with every piece is heard to its end, however long that takes."""
    monkeypatch.setattr(decode, "END_PATIENCE", 0.3)
    pieces: list[Any] = [0.15, part(event("a", "STOP", usageMetadata=USAGE))] * 5
    async with serving([HEAD, *pieces, END]) as server:
        assert (await ask(server)).text == "aaaaa"


@pytest.mark.trio
async def test_a_break_and_a_cut() -> None:
    """Cases 8 and 9: a break and an early end are errors of their own kinds, but not after the finish reason."""
    async with serving([HEAD, part(event("a")), b"5\r\nda", "close"], [HEAD, part(event("a")), END]) as server:
        broken, cut = await fails(server), await fails(server)
    assert [(error.kind, error.retryable) for error in (broken, cut)] == [("connection", True), ("cut", True)]
    async with serving([HEAD, part(event("a", "STOP")), "close"]) as server:
        assert (await ask(server)).text == "a"


@pytest.mark.trio
async def test_an_answer_in_one_piece() -> None:
    """A server that answers with a JSON array in place of events is read."""
    body = b"[" + event("a").strip()[6:] + b",\r\n" + event("b", "STOP").strip()[6:] + b"]"
    async with serving(plain("200 OK", body, "Content-Type: application/json")) as server:
        assert (await ask(server)).text == "ab"


@pytest.mark.trio
async def test_errors() -> None:
    """Cases 100 and 101: a status and an error inside the stream have one class, with the server's wait."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}]
    error = {"code": 429, "message": "slow\ndown", "status": "RESOURCE_EXHAUSTED", "details": details}
    body = json.dumps({"error": error}, indent=1).encode()
    async with serving(
        plain("429 Too Many Requests", body),
        [HEAD, part(event("a")), part(body + b"\n"), END],
        plain("529 Overloaded", b""),
    ) as server:
        for _ in range(2):
            found = await fails(server)
            assert (found.kind, found.retryable, found.status, found.retry_after) == ("rate-limit", True, 429, 17.0)
            assert str(found).startswith("slow down")
        assert (await fails(server)).kind == "overloaded"


@pytest.mark.trio
async def test_an_error_in_the_stream_closes_the_connection() -> None:
    """An error told in the stream ends the attempt at once though the server goes on."""
    failed = event("", "MALFORMED_FUNCTION_CALL")
    async with serving([HEAD, part(failed), "hold"]) as server:
        with trio.fail_after(1):
            assert (await fails(server)).kind == "protocol"
            await server.gone.wait()


@pytest.mark.trio
async def test_cancellation_closes_the_connection() -> None:
    """Case 77: a cancelled attempt is over at once, and the server sees it."""
    async with serving([HEAD, part(event("a")), "hold"]) as server, opened(model(server)) as made:
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(made.respond, hello(), ignore)
                await server.asked.wait()
                nursery.cancel_scope.cancel()
            await server.gone.wait()


@pytest.mark.trio
async def test_the_key_is_found_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """Case 119: with any failure, a server that echoes the key included, no URL, error, log or repr holds it."""
    caplog.set_level(logging.DEBUG)
    echo = json.dumps({"error": {"code": 400, "message": f"API key not valid: {CANARY}"}}).encode()
    scripts: list[list[Any]] = [
        plain("400 Bad Request", echo),
        plain("404 Not Found", CANARY.encode()),
        [HEAD, part(b"data: " + echo + b"\r\n\r\n"), END],
        [HEAD, part(b"data: {" + CANARY.encode() + b"\r\n\r\n"), END],
        [
            HEAD,
            part(
                json.dumps({"candidates": [{"finishReason": "MALFORMED_RESPONSE", "finishMessage": CANARY}]}).encode()
            ),
            END,
        ],
        ["close"],
        [HEAD, "hold"],
    ]
    async with serving(*scripts) as server:
        for _ in scripts:
            made = Gemini("m", base_url=server.url, api_key=CANARY, timeouts=Timeouts(idle=0.1))
            with pytest.raises(ModelError) as caught:
                await made.respond(hello(), ignore)
            await made.aclose()
            assert CANARY not in everything_told(caught.value) + repr(made) + repr(vars(made)["_channel"])
    assert all(CANARY.encode() in head and CANARY.encode() not in head.split(b"\r\n")[0] for head, _ in server.requests)
    assert CANARY not in caplog.text


@pytest.mark.trio
async def test_where_keys_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key comes from a function, asked each time, or the environment; an Authorization of one's own takes its place."""
    keys = iter(["k-1", "k-2"])
    async with serving(GOOD) as server:
        async with opened(model(server, api_key=lambda: next(keys))) as made:
            for _ in range(2):
                await made.respond(hello(), ignore)
        monkeypatch.setenv("GOOGLE_API_KEY", "k-3")
        await ask(server)
        monkeypatch.setenv("GEMINI_API_KEY", "k-4")
        await ask(server)
        await ask(server, headers={"authorization": "Bearer t"})
    heads = [head.lower() for head, _ in server.requests]
    assert [head.split(b"x-goog-api-key: ")[1][:3] for head in heads[:4]] == [b"k-1", b"k-2", b"k-3", b"k-4"]
    assert b"x-goog-api-key" not in heads[4]


@pytest.mark.parametrize(
    ("name", "base", "target"),
    [
        ("m", None, "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("tunedModels/a b", "http://h/v1/", "http://h/v1/tunedModels/a%20b:streamGenerateContent?alt=sse"),
        ("models/m", "http://h/v1?a=1", "http://h/v1/models/m:streamGenerateContent?a=1&alt=sse"),
        ("m?x#y", "http://h", "http://h/models/m%3Fx%23y:streamGenerateContent?alt=sse"),
        ("m", "http://h/x:streamGenerateContent?alt=sse", "http://h/x:streamGenerateContent?alt=sse"),
    ],
)
def test_where_requests_go(name: str, base: str | None, target: str) -> None:
    """The address is made of the base and the model's name; a query is kept, a whole address is taken as it is."""
    assert Gemini(name, base_url=base)._url == target  # pyright: ignore[reportPrivateUsage]


def test_keys_in_the_url_are_refused_without_an_echo() -> None:
    """Case 119: a key in the URL, where logs would show it, is refused at once; the text does not hold it."""
    with pytest.raises(InvalidInput) as caught:
        Gemini("m", base_url=f"http://h/?key={CANARY}")
    assert CANARY not in everything_told(caught.value)


def test_nothing_secret_is_shown() -> None:
    """What a person may read of the model holds neither a password nor a query."""
    made = Gemini("m", base_url="http://me:secret@host:1/v1/?token=secret", api_key=CANARY)
    assert repr(made) == "Gemini('m', base_url='http://host:1/v1/')"
