"""How much of an answer is taken: bytes after inflation, one event, an error's explanation, time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from tests.bench.hostile_replies import PROTOCOLS, endless_text
from tests.models.exchanges import failure_of, ignore, reply_of
from turnstate.models import Anthropic, Gemini, Model, OpenAIChat, OpenAIResponses, Timeouts
from turnstate.models.gemini.arguments import MAX_GAP, PartialArguments
from turnstate.models.openai_chat import calls as calls_module
from turnstate.models.openai_responses.assemble import ResponsesAssembler
from turnstate.models.openai_responses.slots import MAX_ITEMS
from turnstate.models.wire.inflating import PIECE, Plain
from turnstate.testing.byte_server import ByteServer, Step, head, serving
from turnstate_states.errors import InvalidInput, ModelError

MODELS: dict[str, Callable[..., Model]] = dict(
    zip(PROTOCOLS, (OpenAIChat, Anthropic, OpenAIResponses, Gemini), strict=True)
)
MB = 1024 * 1024


def model(server: ByteServer, protocol: str = "chat", **more: Any) -> Any:
    """The protocol's model at this server."""
    return MODELS[protocol]("m", base_url=server.url, api_key="k", **more)


async def fails(made: Any) -> ModelError:
    """The error of a request that must not take long."""
    with trio.fail_after(20):
        return await failure_of(made)


def some_text(protocol: str, size: int) -> Iterator[bytes]:
    """At least so many bytes of a reply that does not end."""
    for piece in endless_text(protocol):
        yield piece
        size -= len(piece)
        if size < 0:
            return


@pytest.mark.trio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_reply_without_an_end(protocol: str) -> None:
    """It is given up at the limit, which the error names; it is not asked for again."""
    async with serving([head(), *some_text(protocol, 3 * MB), "hold"]) as server:
        error = await fails(model(server, protocol, max_reply_bytes=2 * MB))
    assert (error.kind, error.retryable) == ("protocol", False)
    assert str(error) == "the answer has more than 2097152 bytes; the model's max_reply_bytes is the limit"


@pytest.mark.trio
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("packed", [False, True])
async def test_pings_without_an_end(protocol: str, packed: bool) -> None:
    """Comments count as bytes, packed or not: a server cannot keep an attempt going with them."""
    pings = b": ping\n\n" * (2 * MB // 8 + 1)
    body = gzip.compress(pings) if packed else pings
    more = ["Content-Encoding: gzip"] if packed else []
    async with serving([head(None, "200 OK", *more), body, "hold"]) as server:
        error = await fails(model(server, protocol, max_reply_bytes=2 * MB))
    assert "max_reply_bytes" in str(error)


@pytest.mark.trio
@pytest.mark.parametrize("over", [0, 1])
async def test_the_limit_is_exact(over: int) -> None:
    """A reply of just so many bytes is taken, whether it is packed or not; one byte more is too much."""
    reply = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    for body, more in ((reply, []), (gzip.compress(reply), ["Content-Encoding: gzip"])):
        async with serving([head(len(body), "200 OK", *more), body]) as server:
            made = model(server, max_reply_bytes=len(reply) - over)
            if over:
                assert "max_reply_bytes" in str(await fails(made))
            else:
                assert (await reply_of(made)).text == "hi"


SHAPES: dict[str, bytes] = {
    "an event": b"data: " + b"x" * 100,
    "lines of an event": b"data: x\n" * 100,
    "an answer": b'{"x":' + b" " * 100,
}


@pytest.mark.trio
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("shape", SHAPES)
async def test_one_event_without_an_end(protocol: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One event, and an answer that is no stream, have a limit of their own, which the error says how to raise."""
    monkeypatch.setattr("turnstate.models.wire.http_model.MAX_EVENT", 1000)
    body: list[Step] = [SHAPES[shape], *[SHAPES[shape][-8:] * 100] * 20]
    async with serving([head(), *body, "hold"]) as server:
        error = await fails(model(server, protocol, max_reply_bytes=8000))
    assert (error.kind, error.retryable) == ("protocol", False)
    what = "an answer" if shape == "an answer" else "an event"
    assert f"{what} of more than 4000 bytes in one piece; a larger max_reply_bytes" in str(error)


@pytest.mark.trio
@pytest.mark.parametrize("packed", [False, True])
async def test_an_error_without_an_end(packed: bool) -> None:
    """Of an error's explanation the first part is read, packed or not; the status says the rest."""
    text = b"no such thing " * (5 * MB // 14)
    body = gzip.compress(text) if packed else text
    more = ["Content-Encoding: gzip"] if packed else []
    async with serving([head(None, "404 Not Found", *more), body, "hold"]) as server:
        error = await fails(model(server, max_reply_bytes=MB))
    assert (error.kind, error.status) == ("not-found", 404)


@pytest.mark.trio
async def test_a_bomb_is_inflated_as_far_as_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 MB in 200 KB no more comes out than the limit, in small pieces, between which other tasks run."""
    made: list[int] = []
    ran = 0
    counted = Plain._counted  # pyright: ignore[reportPrivateUsage]

    def count(self: Plain, data: bytes) -> bytes:
        made.append(len(data))
        return counted(self, data)

    monkeypatch.setattr(Plain, "_counted", count)
    pack = zlib.compressobj(wbits=31)
    bomb = b"".join(pack.compress(b": ping\n\n" * (MB // 8)) for _ in range(200)) + pack.flush()

    async def others() -> None:
        nonlocal ran
        while True:
            await trio.lowlevel.checkpoint()
            ran += 1

    async with (
        serving([head(None, "200 OK", "Content-Encoding: gzip"), bomb, "hold"]) as server,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(others)
        error = await fails(model(server, max_reply_bytes=8 * MB))
        nursery.cancel_scope.cancel()
    assert "max_reply_bytes" in str(error)
    assert sum(made) <= 8 * MB + PIECE
    assert max(made) <= PIECE
    assert ran >= len(made)


@pytest.mark.trio
async def test_cancelled_while_it_inflates() -> None:
    """An attempt that is cancelled in the middle of what it inflates ends at once."""
    pack = zlib.compressobj(wbits=31)
    bomb = b"".join(pack.compress(b": ping\n\n" * (MB // 8)) for _ in range(60)) + pack.flush()
    fed = 0
    async with serving([head(None, "200 OK", "Content-Encoding: gzip"), bomb, "hold"]) as server:
        made = model(server)
        decoder_of = made._make_decoder
        with trio.CancelScope() as scope:

            def counting(on_delta: Any) -> Any:
                decoder = decoder_of(on_delta)
                feed = decoder.feed

                def counted(data: bytes) -> bool:
                    nonlocal fed
                    fed += 1
                    scope.cancel()
                    return bool(feed(data))

                decoder.feed = counted
                return decoder

            made._make_decoder = counting
            await reply_of(made)
        assert scope.cancelled_caught
    assert fed <= 2


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_all_of_it_comes_out(size: int, step: int) -> None:
    """Inflated in pieces a body is what it was, wherever the bytes are cut."""
    text = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    for packed in (gzip.compress(text), zlib.compress(text)):
        plain = Plain("gzip", size or 1)
        found = [piece for at in range(0, len(packed), step) for piece in plain.pieces(packed[at : at + step])]
        assert b"".join(found) == text


@pytest.mark.trio
async def test_dripping() -> None:
    """The time of the whole attempt counts, however alive a server is; the error says which limit it was."""
    drips: list[Step] = [b": ping\n\n", 0.05] * 100
    async with serving([head(), *drips]) as server:
        error = await fails(model(server, timeouts=Timeouts(total=0.3)))
    assert (error.kind, error.retryable) == ("timeout", True)
    assert str(error) == "the answer was not finished within 0.3 s (timeouts.total)"
    assert Timeouts().total == 3600


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "1"])
def test_what_is_no_size(protocol: str, value: Any) -> None:
    """It is refused when the model is made, by name."""
    with pytest.raises(InvalidInput, match="max_reply_bytes: expected"):
        MODELS[protocol]("m", base_url="http://x", max_reply_bytes=value)


# What an assembler would do again and again


def test_gaps_of_partial_arguments() -> None:
    """Short pieces make no long lists: what is skipped counts together over all lists of a call."""
    arguments = PartialArguments({})
    arguments.feed([{"jsonPath": f"$.a[{MAX_GAP}]", "numberValue": 1}])
    assert len(arguments.value["a"]) == MAX_GAP + 1
    with pytest.raises(ModelError, match="cannot be"):
        arguments.feed([{"jsonPath": "$.b[1]", "numberValue": 1}])
    arguments = PartialArguments({})
    arguments.feed([{"jsonPath": f"$.a[{at}]", "numberValue": at} for at in range(3 * MAX_GAP)])
    assert len(arguments.close()["a"]) == 3 * MAX_GAP


def test_items_of_a_response() -> None:
    """A response has a bounded number of items, whether they grew or come with its end."""
    assembler = ResponsesAssembler("m", ignore, "")
    items: list[Any] = [{"type": "reasoning", "id": f"r{number}", "summary": []} for number in range(MAX_ITEMS + 1)]
    assembler.response({"status": "completed", "output": items[:MAX_ITEMS]}, "completed")
    with pytest.raises(ModelError, match="items"):
        ResponsesAssembler("m", ignore, "").response({"output": items}, "completed")
    assembler = ResponsesAssembler("m", ignore, "")
    for item in items[:MAX_ITEMS]:
        assembler.event("", {"type": "response.output_item.added", "item": item})
    with pytest.raises(ModelError, match="items"):
        assembler.event("", {"type": "response.output_item.added", "item": items[-1]})


def test_arguments_that_are_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that leaves indices out cannot have the same arguments read without an end."""
    monkeypatch.setattr(calls_module, "MAX_READ", 10_000)
    slots = calls_module.CallSlots(ignore)
    slots.feed([{"id": "a", "function": {"name": "f", "arguments": '{"a": "' + "}" * 900}}])
    with pytest.raises(ModelError, match="tells nothing"):
        slots.feed([{"function": {"name": "f", "arguments": "}"}} for _ in range(12)])
