"""OpenAIChat over real sockets: what is sent, every way an exchange can end, limits, cancellation, keys."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import trio

from tests.models.exchanges import CANARY, everything_told, failure_of, hello, ignore, opened, reply_of
from tests.models.keep_alive_server import END, HEAD, KeepAliveServer, part, plain, serving
from turnstate.models import OpenAIChat, Timeouts
from turnstate.models.base import OnDelta, Reply
from turnstate.models.wire.secret import Secret
from turnstate_states.errors import ModelError


def event(content: str = "", finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return b"data: " + json.dumps({"model": "m", "choices": [choice], **more}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
GOOD = [HEAD, part(event("Hel")), part(event("lo", "stop")), part(DONE), END]


def model(server: KeepAliveServer, **more: Any) -> OpenAIChat:
    return OpenAIChat("m", base_url=server.url, **more)


async def ask(server: KeepAliveServer, on_delta: OnDelta = ignore, **more: Any) -> Reply:
    return await reply_of(model(server, **more), on_delta)


async def fails(server: KeepAliveServer, **more: Any) -> ModelError:
    return await failure_of(model(server, **more))


@pytest.mark.trio
async def test_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply is streamed; the request is a POST of JSON with the key in a header."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with serving(GOOD) as server:
        deltas: list[str] = []
        reply = await ask(
            server, lambda kind, text, slot: deltas.append(text), api_key=" k-1\r\n", headers={"X-A": "b"}
        )
        await ask(server)
    assert (reply.text, reply.stop, deltas) == ("Hello", "stop", ["Hel", "lo"])
    head, body = server.requests[0]
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert {b"authorization: bearer k-1", b"x-a: b", b"accept-encoding: identity"} <= set(head.lower().split(b"\r\n"))
    assert json.loads(body)["messages"] == [{"role": "user", "content": "hi"}]
    assert b"authorization" not in server.requests[1][0].lower()


@pytest.mark.trio
async def test_one_byte_at_a_time() -> None:
    """Cases 1 and 3: a body that arrives byte by byte, with CRLF and text of many bytes, is the same reply."""
    stream = (event("é日🌍") + event("", "stop") + DONE).replace(b"\n", b"\r\n")
    async with serving([HEAD, *(part(stream[n : n + 1]) for n in range(len(stream))), END]) as server:
        assert (await ask(server)).text == "é日🌍"


@pytest.mark.trio
async def test_a_connection_is_used_again() -> None:
    """Replies one after the other share a connection."""
    async with serving(GOOD) as server, opened(model(server)) as made:
        for _ in range(5):
            await made.respond(hello(), ignore)
        assert server.connections == 1


@pytest.mark.trio
async def test_an_open_socket_does_not_hold_the_reply_up() -> None:
    """``[DONE]`` ends the attempt though the socket stays open, and the connection is then closed."""
    async with serving([*GOOD[:-1], "hold"]) as server:
        with trio.fail_after(2):
            assert (await ask(server)).text == "Hello"
            await server.gone.wait()


@pytest.mark.trio
async def test_patience_after_the_finish_reason_is_bounded() -> None:
    """A server that tells finish and usage but never the end is not waited for, whatever it pings."""
    usage = part(event("a", "stop", usage={"prompt_tokens": 2}))
    pings: list[Any] = [0.1, part(b": ping\n\n")] * 40
    async with serving([HEAD, usage, *pings, "hold"]) as server:
        with trio.fail_after(2.5):
            assert (await ask(server)).usage.input == 2


@pytest.mark.trio
async def test_a_break_after_the_finish_reason_is_no_failure() -> None:
    """What is complete stays complete when the connection then breaks."""
    async with serving([HEAD, part(event("a", "stop")), "close"]) as server:
        assert (await ask(server)).text == "a"


@pytest.mark.trio
async def test_a_break_and_a_cut_are_told_apart() -> None:
    """Cases 8 and 9: a broken connection and a body that ends too early are different kinds, both may be retried."""
    async with serving([HEAD, part(event("a")), b"5\r\nda", "close"]) as server:
        broken = await fails(server)
    async with serving([HEAD, part(event("a")), END]) as server:
        cut = await fails(server)
    assert [(error.kind, error.retryable) for error in (broken, cut)] == [("connection", True), ("cut", True)]


@pytest.mark.trio
@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (["close"], "connection"),
        ([b"SSH-2.0-x\r\n\r\n", "close"], "protocol"),
        ([HEAD, b"zz\r\n", "close"], "protocol"),
    ],
)
async def test_servers_that_do_not_speak_http(script: list[Any], kind: str) -> None:
    """A server that hangs up, or answers with something else, is a typed error that may be retried."""
    async with serving(script) as server:
        error = await fails(server)
    assert (error.kind, error.retryable) == (kind, True)


@pytest.mark.trio
async def test_an_answer_that_is_compressed_all_the_same() -> None:
    """A body that a server compresses unasked is read; a broken one is a typed error."""
    import gzip

    head = HEAD.replace(b"Transfer", b"Content-Encoding: gzip\r\nTransfer")
    async with serving(
        [head, part(gzip.compress(event("a", "stop") + DONE)), END], [head, part(b"oops"), END]
    ) as server:
        assert (await ask(server)).text == "a"
        assert (await fails(server)).kind == "protocol"


@pytest.mark.trio
async def test_an_answer_in_one_piece() -> None:
    """An answer that is JSON in place of a stream is a reply."""
    body = json.dumps({"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}).encode()
    async with serving(plain("200 OK", body, "Content-Type: application/json")) as server:
        assert (await ask(server)).text == "a"


@pytest.mark.trio
async def test_statuses() -> None:
    """Case 101: a status is an error with its class, the server's text and its Retry-After."""
    body = b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}'
    async with serving(plain("429 Too Many Requests", body, "Retry-After: 3"), plain("529 Overloaded", b"")) as server:
        error = await fails(server)
        assert (error.kind, error.retryable, error.status, error.retry_after) == ("rate-limit", True, 429, 3.0)
        assert str(error) == "slow down (429)"
        assert ((await fails(server)).kind, len(server.requests)) == ("overloaded", 2)


@pytest.mark.trio
async def test_a_status_whose_body_breaks_is_still_that_status() -> None:
    """A failed status counts though its explanation never comes in full."""
    head = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 100\r\n\r\nover"
    async with serving([head, "close"]) as server:
        error = await fails(server)
    assert (error.kind, error.status) == ("overloaded", 503)


@pytest.mark.trio
async def test_redirects_are_not_followed() -> None:
    """A redirect is an error that says what to change, so that no key goes elsewhere."""
    async with serving(plain("301 Moved", b"", "Location: http://127.0.0.1:9/")) as server:
        error = await fails(server)
    assert "base_url" in str(error)
    assert not error.retryable


@pytest.mark.trio
async def test_connection_refused() -> None:
    """Nobody listening is one clear line."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    error = await fails(KeepAliveServer([], url=f"http://127.0.0.1:{port}/v1"))
    assert str(error) == (
        f"cannot connect to http://127.0.0.1:{port}/v1/chat/completions (connection refused); is the server running?"
    )
    assert (error.kind, error.retryable) == ("connection", True)


@pytest.mark.trio
async def test_unknown_host() -> None:
    """A host name that cannot be found is a connection error that says so."""
    error = await fails(KeepAliveServer([], url="http://nowhere.invalid/v1"))
    assert error.kind == "connection"
    assert "host name" in str(error)


STALLS: list[list[Any]] = [["hold"], [HEAD, "hold"], [HEAD, part(event("a")), "hold"]]


@pytest.mark.trio
@pytest.mark.parametrize("script", STALLS)
async def test_every_wait_has_a_limit(script: list[Any]) -> None:
    """Cases 79 and 106: no headers, no first byte and silence in the stream each end by their limit."""
    async with serving(script) as server:
        with trio.fail_after(2):
            error = await fails(server, timeouts=Timeouts(first_byte=0.2, idle=0.2))
            assert (error.kind, error.retryable) == ("timeout", True)
            await server.gone.wait()


@pytest.mark.trio
async def test_pings_are_life_and_the_whole_has_a_limit() -> None:
    """Case 106: comments keep an attempt alive past the idle limit, but not past the overall limit."""
    pings: list[Any] = [0.05, part(b": ping\n\n")] * 10
    async with serving([HEAD, *pings, *GOOD[1:]]) as server:
        assert (await ask(server, timeouts=Timeouts(idle=0.3))).text == "Hello"
        error = await fails(server, timeouts=Timeouts(idle=0.3, total=0.2))
    assert (error.kind, error.retryable) == ("timeout", True)


@pytest.mark.trio
@pytest.mark.parametrize("script", STALLS)
async def test_cancellation_closes_the_connection(script: list[Any]) -> None:
    """Cases 77 and 79: whatever is waited for, a cancelled attempt is over at once and the server sees it."""
    async with serving(script) as server, opened(model(server)) as made:
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(made.respond, hello(), ignore)
                await server.asked.wait()
                nursery.cancel_scope.cancel()
            await server.gone.wait()


@pytest.mark.trio
async def test_many_cancellations_leave_nothing_behind() -> None:
    """Cases 77 and 111: after 200 cancellations at all moments, two slots only, a request works at once."""
    async with (
        serving(*([[0.002, HEAD, 0.002, part(event("a")), "hold"]] * 2)) as server,
        opened(model(server, connections=2)) as made,
    ):
        for n in range(200):
            with trio.move_on_after(n % 20 * 0.0005):
                await made.respond(hello(), ignore)
        server.scripts = [[*GOOD]]
        with trio.fail_after(2):
            assert (await made.respond(hello(), ignore)).text == "Hello"


@pytest.mark.trio
async def test_connections_are_bounded() -> None:
    """No more requests than allowed are under way at once; the others wait and then succeed."""
    async with serving([0.02, *GOOD]) as server, opened(model(server, connections=2)) as made:
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(made.respond, hello(), ignore)
        assert (len(server.requests), server.connections) == (8, 2)


@pytest.mark.trio
async def test_an_error_of_the_listener_is_its_own() -> None:
    """What ``on_delta`` raises comes out unchanged, and the connection is closed."""

    def broken(kind: str, text: str, slot: int) -> None:
        raise KeyError("mine")

    async with serving([*GOOD[:2], "hold"]) as server:
        with pytest.raises(KeyError, match="mine"), trio.fail_after(1):
            await ask(server, broken)


@pytest.mark.trio
async def test_a_model_error_in_the_stream_closes_the_connection() -> None:
    """An error told in the stream ends the attempt at once though the server goes on."""
    async with serving([HEAD, part(b'data: {"error":{"code":"server_is_overloaded"}}\n\n'), "hold"]) as server:
        with trio.fail_after(1):
            assert (await fails(server)).kind == "overloaded"
            await server.gone.wait()


@pytest.mark.trio
async def test_closing_spares_a_request_under_way() -> None:
    """Closing a model that somebody else is just using does not break that request."""
    async with serving([HEAD, part(event("a")), 0.1, *GOOD[1:]]) as server, opened(model(server)) as made:
        replies: list[Reply] = []

        async def other() -> None:
            replies.append(await made.respond(hello(), ignore))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await server.asked.wait()
            await made.aclose()
        assert [reply.text for reply in replies] == ["aHello"]


def test_a_model_works_in_one_run_after_another() -> None:
    """One model object serves several runs of trio, as a module-level agent needs it."""
    made: list[OpenAIChat] = []

    async def main(url: str = "") -> None:
        async with serving(GOOD) as server:
            if not made:
                made.append(model(server))
            made[0]._channel._address = Secret(server.url + "/chat/completions")  # pyright: ignore[reportPrivateUsage]
            assert (await made[0].respond(hello(), ignore)).text == "Hello"
            await made[0].aclose()
            assert (await made[0].respond(hello(), ignore)).text == "Hello"
            await made[0].aclose()

    trio.run(main)
    trio.run(main)


@pytest.mark.trio
async def test_the_key_is_found_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """Case 119: with any failure, a server that echoes the key included, no error, log or repr holds it."""
    caplog.set_level(logging.DEBUG)
    echo = json.dumps({"error": {"message": f"Incorrect API key: {CANARY}"}}).encode()
    scripts: list[list[Any]] = [
        plain("401 Unauthorized", echo),
        plain("404 Not Found", CANARY.encode()),
        [HEAD, part(b"data: " + echo + b"\n\n"), END],
        [HEAD, part(b"data: {" + CANARY.encode() + b"\n\n"), END],
        ["close"],
        [HEAD, "hold"],
    ]
    async with serving(*scripts) as server:
        for _ in scripts:
            made = model(server, api_key=CANARY, timeouts=Timeouts(idle=0.1))
            with pytest.raises(ModelError) as caught:
                await made.respond(hello(), ignore)
            await made.aclose()
            assert CANARY not in everything_told(caught.value) + repr(made) + repr(vars(made)["_channel"])
    assert all(CANARY.encode() in head for head, _ in server.requests)
    assert CANARY not in caplog.text


@pytest.mark.trio
async def test_keys_from_a_function() -> None:
    """A function, plain or async, is asked before each attempt; what goes wrong in it is an authentication error."""
    keys = iter(["k-1", "k-2"])

    async def later() -> str:
        return "k-3"

    def broken() -> str:
        raise RuntimeError(CANARY)

    async with serving(GOOD) as server:
        async with opened(model(server, api_key=lambda: next(keys))) as made:
            await made.respond(hello(), ignore)
            await made.respond(hello(), ignore)
        await ask(server, api_key=later)
        error = await fails(server, api_key=broken)
        assert error.kind == "authentication"
        assert CANARY not in str(error)
    assert [head.lower().split(b"bearer ")[1][:3] for head, _ in server.requests] == [b"k-1", b"k-2", b"k-3"]


@pytest.mark.trio
async def test_another_header_for_the_key() -> None:
    """A host that authenticates by a header of its own sends no second key; a query in the URL is kept."""
    async with serving(GOOD) as server:
        made = OpenAIChat("m", base_url=server.url + "?api-version=1", api_key=CANARY, headers={"api-key": "other"})
        await made.respond(hello(), ignore)
        await made.aclose()
    head = server.requests[0][0]
    assert head.startswith(b"POST /v1/chat/completions?api-version=1 ")
    assert b"api-key: other" in head
    assert CANARY.encode() not in head
