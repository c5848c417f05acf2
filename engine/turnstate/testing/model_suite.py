"""What every model must do, as tests that an adapter's author runs against it.

In a test module (pytest and pytest-trio are needed)::

    from turnstate.testing.model_suite import ModelSuite

    class TestMyModel(ModelSuite):
        text = b'data: {"text": "Hel"}\\n\\ndata: {"text": "lo"}\\n\\ndata: [DONE]\\n\\n'
        calls = b'data: {"call": "add", "arguments": "{}"}\\n\\ndata: [DONE]\\n\\n'

        def make_model(self, url):
            return MyModel("m", base_url=url)

``text`` and ``calls`` are what a server answers, a text in several pieces and one tool call or more; a server on loopback
then does so. Without them the model is asked as it is, with an empty URL, and the tests that need a server are skipped.

Call ``pytest.register_assert_rewrite("turnstate.testing")`` in a ``conftest.py`` to see the values when a test
fails.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, get_args

import attrs
import pytest
import trio

from turnstate.models.base import Model, ModelRequest, Reply, ToolDefinition
from turnstate_states.content import (
    Audio,
    Citation,
    File,
    Hosted,
    Image,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from turnstate_states.errors import ModelError, ModelErrorKind
from turnstate_states.transcript import Message, Role, Usage
from turnstate_states.turn import Stop

from .byte_server import ByteServer, Step, head, serving

__all__ = ["Heard", "ModelSuite", "every_kind_of_part"]

PROMPT = 2.0
"""Seconds within which a cancelled request must be over, and its server must see it."""

_CUTS = 60


@attrs.define
class Heard:
    """What ``on_delta`` was told."""

    deltas: list[tuple[str, str, int]] = attrs.field(factory=list[tuple[str, str, int]])
    first: trio.Event = attrs.field(factory=trio.Event)

    def __call__(self, kind: str, text: str, slot: int) -> None:
        trio.lowlevel.current_task()
        self.deltas.append((kind, text, slot))
        self.first.set()

    def joined(self, kind: str, slot: int = 0) -> str:
        """All the pieces of a kind."""
        return "".join(text for told, text, number in self.deltas if told == kind and number == slot)


def every_kind_of_part() -> tuple[Message, ...]:
    """A history that holds every kind of part, of no provider and of unknown ones, in a valid order."""
    kept: dict[str, Any] = {"provider": {"a_protocol_that_nobody_has": {"signature": "s", "id": "i"}}}
    picture, data = Image("data:image/png;base64,iVBORw0KGgo="), "data:{};base64,aGk="
    said: tuple[Part, ...] = (
        Reasoning("hm", **kept),
        Hosted("search_call", "q", **kept),
        Text("é🌍", citations=(Citation("http://h/", "t", "q"),), **kept),
        Refusal("no", **kept),
        ToolCall("m2.0", "add", '{"a": 1}', provider_id="x.y", **kept),
        ToolCall("m2.1", "no such tool", '{"a": ', provider_id="x.y"),
        ToolCall("m2.2", "add", ""),
    )
    asked: tuple[Part, ...] = (
        *(Text("hi"), Text(" ")),
        *(picture, Image("https://h/a.png")),
        *(File(data.format("application/pdf"), "a.pdf"), File(data.format("text/plain"))),
        Audio(data.format("audio/wav")),
    )
    history: list[tuple[Role, tuple[Part, ...]]] = [
        ("user", asked),
        ("assistant", said),
        ("tool", (ToolResult("m2.0", "1", images=(picture,)),)),
        ("tool", (ToolResult("m2.1", "", "error"),)),
        ("tool", (ToolResult("m2.2", "nobody knows", "unknown"),)),
        ("assistant", (Reasoning("only thought"),)),
        ("system", (Text("a note"),)),
        ("user", (Text("a"),)),
        ("assistant", (Text("\n"),)),
        ("user", (Text("b"),)),
    ]
    return tuple(
        Message(f"m{number}", f"m{number - 1}" if number > 1 else None, "t1", role, parts, 0.0)
        for number, (role, parts) in enumerate(history, 1)
    )


TOOL = ToolDefinition("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})


def _question(**more: Any) -> ModelRequest:
    asked = Message("m1", None, "t1", "user", (Text("hi"),), 0.0)
    return ModelRequest("s", "t1.1.1", "Be brief.", (asked,), (TOOL,), **more)


class ModelSuite:
    """Derive a class whose name starts with ``Test``, say how the model is made, and what its server answers."""

    text: ClassVar[bytes | None] = None
    """The body of an answer that is text in at least two pieces; None for a model without a server."""

    calls: ClassVar[bytes | None] = None
    """The body of an answer with at least one tool call; None to leave the tests with calls out."""

    content_type: ClassVar[str] = "text/event-stream"
    """The media type of ``text`` and ``calls``."""

    def make_model(self, url: str) -> Model:
        """A model that asks the server at this URL, which answers whatever path is asked."""
        raise NotImplementedError

    def answer(self, body: bytes) -> list[Step]:
        """A script that answers with a body."""
        return [head(None, "200 OK", f"Content-Type: {self.content_type}"), body]

    def body_of(self, kind: str) -> bytes:
        """One of the bodies; skips the test if there is none."""
        body = self.text if kind == "text" else self.calls
        if body is None:
            pytest.skip(f"the suite was not given the bytes of an answer with {kind}")
        return body

    @asynccontextmanager
    async def open(self, *scripts: Sequence[Step]) -> AsyncGenerator[tuple[Model, ByteServer], None]:
        """A model and its server; without scripts the server answers with ``text``."""
        if not scripts:
            scripts = (self.answer(self.text or b""),)
        async with serving(*scripts) as server:
            model = self.make_model(server.url if self.text is not None else "")
            try:
                yield model, server
            finally:
                with trio.CancelScope(shield=True):
                    await model.aclose()

    async def fails(self, script: Sequence[Step]) -> ModelError:
        """The error that a script ends in."""
        self.body_of("text")
        async with self.open(script) as (model, _):
            with pytest.raises(ModelError) as caught, trio.fail_after(10):
                await model.respond(_question(), Heard())
        _check_error(caught.value)
        return caught.value

    @pytest.mark.trio
    @pytest.mark.parametrize("kind", ["text", "calls"])
    async def test_deltas_make_the_reply(self, kind: str) -> None:
        """The pieces that are told, joined, are the text, the reasoning and the arguments of the reply."""
        served = kind == "calls" or self.text is not None
        scripts = [self.answer(self.body_of(kind))] if served else []
        async with self.open(*scripts) as (model, _):
            heard = Heard()
            reply = await model.respond(_question(), heard)
            _check_reply(reply)
            _check_deltas(reply, heard)
            if scripts:
                made = [part for part in reply.parts if isinstance(part, ToolCall)] if kind == "calls" else reply.text
                assert made
                assert len(heard.deltas) > 1
            told = list(heard.deltas)
            await trio.sleep(0.05)
            assert heard.deltas == told, "on_delta was called after the reply"

    @pytest.mark.trio
    async def test_a_reply_may_be_asked_for_again(self) -> None:
        """The same request can be sent again with the same cache, and is not changed by that."""
        async with self.open() as (model, server):
            request = _question()
            request.add("only now")
            before = attrs.evolve(request, additions=list(request.additions))
            replies = [await model.respond(request, Heard()) for _ in range(2)]
            assert replies[0].parts == replies[1].parts
            assert (request.messages, request.additions, request.settings) == (
                before.messages,
                before.additions,
                before.settings,
            )
            if self.text is not None:
                assert server.requests[0][1] == server.requests[1][1]
                assert b"only now" in server.requests[0][1]

    @pytest.mark.trio
    async def test_every_kind_of_part_is_accepted(self) -> None:
        """A history that holds every kind of part, also of other providers, becomes a request."""
        async with self.open() as (model, server):
            request = ModelRequest("s", "t1.1.1", "", every_kind_of_part(), (TOOL,))
            _check_reply(await model.respond(request, Heard()))
            for _, body in server.requests:
                _check_body(body)
                assert b"a_protocol_that_nobody_has" not in body

    @pytest.mark.trio
    async def test_lone_surrogates_do_not_reach_the_wire(self) -> None:
        """Texts of the program that no encoder accepts are cleaned or refused as a model error."""
        async with self.open() as (model, server):
            tool = ToolDefinition("add", "\ud800", {"type": "object", "description": "\ud800"})
            odd = attrs.evolve(_question(), instructions="\udfffa", tools=(tool,))
            for request in (odd, _question(additions=["\ud800a"])):
                try:
                    await model.respond(request, Heard())
                except ModelError as error:
                    _check_error(error)
            for _, body in server.requests:
                _check_body(body)

    @pytest.mark.trio
    @pytest.mark.parametrize("kind", ["text", "calls"])
    @pytest.mark.parametrize("broken", [False, True])
    async def test_a_cut_is_never_a_reply(self, kind: str, broken: bool) -> None:
        """Cut anywhere, an answer is a retryable error, or the same reply if nothing that matters was missing."""
        body = self.body_of(kind)
        start = head(len(body) if broken else None, "200 OK", f"Content-Type: {self.content_type}")
        places = sorted({*range(0, len(body), max(1, len(body) // _CUTS)), *_boundaries(body)})
        scripts = [[start, body], *([start, body[:place]] for place in places if place < len(body))]
        async with self.open(*scripts) as (model, _):
            whole = await model.respond(_question(), Heard())
            cuts = 0
            for _ in scripts[1:]:
                try:
                    reply = await model.respond(_question(), Heard())
                except ModelError as error:
                    _check_error(error, "cut", "connection")
                    cuts += 1
                else:
                    assert (reply.parts, reply.stop) == (whole.parts, whole.stop)
            assert cuts, "no cut was noticed"

    @pytest.mark.trio
    @pytest.mark.parametrize(
        "status", ["400 Bad Request", "401 Unauthorized", "404 Not Found", "500 Oops", "529 Overloaded"]
    )
    async def test_a_status_is_a_model_error(self, status: str) -> None:
        """A status that is no success is a typed error that keeps it."""
        for body in (b"", b'{"error": {"message": "no"}}', b"<html><title>no</title></html>", b"\xff"):
            error = await self.fails([head(len(body), status), body])
            assert error.status == int(status[:3])
            assert error.retryable == (status[0] == "5")

    @pytest.mark.trio
    async def test_a_rate_limit_tells_when_to_come_back(self) -> None:
        """A 429 may be retried, after the seconds that the server asks for."""
        error = await self.fails([head(0, "429 Too Many Requests", "Retry-After: 7")])
        assert (error.kind, error.retryable, error.status, error.retry_after) == ("rate-limit", True, 429, 7.0)

    @pytest.mark.trio
    @pytest.mark.parametrize(
        "script",
        [
            [],
            [b"SSH-2.0-x\r\n\r\n"],
            [head(), b"<html>hello</html>"],
            [head(), b"data: {not json\n\n"],
            [head(), b"\x00\xff" * 50],
            [head(), b"[[[[[" * 5000],
            [head(), b'data: [1]\n\ndata: "x"\n\n'],
            [head(2), b"{}"],
        ],
    )
    async def test_nonsense_is_a_model_error(self, script: list[Step]) -> None:
        """Whatever a server sends, only a model error comes out, and no reply."""
        await self.fails(script)

    @pytest.mark.trio
    async def test_nobody_at_home_is_a_model_error(self) -> None:
        """A server that does not listen is a connection error."""
        self.body_of("text")
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        await listeners[0].aclose()
        model = self.make_model(f"http://127.0.0.1:{port}")
        with pytest.raises(ModelError) as caught:
            await model.respond(_question(), Heard())
        await model.aclose()
        _check_error(caught.value)
        assert (caught.value.kind, caught.value.retryable) == ("connection", True)

    @pytest.mark.trio
    @pytest.mark.parametrize("when", ["before the answer", "in the answer"])
    async def test_cancellation_is_prompt(self, when: str) -> None:
        """A cancelled request is over at once, its server sees that, and the model can be used again."""
        body = self.body_of("text")
        held: list[Step] = ["hold"] if when == "before the answer" else [*self.answer(body[: len(body) // 2]), "hold"]
        async with self.open(held, self.answer(body)) as (model, server):
            heard = Heard()
            with trio.fail_after(PROMPT):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(model.respond, _question(), heard)
                    await server.asked.wait()
                    await trio.sleep(0.05)
                    nursery.cancel_scope.cancel()
                await server.gone.wait()
            told = len(heard.deltas)
            reply = await model.respond(_question(), Heard())
            assert reply.text
            assert len(heard.deltas) == told

    @pytest.mark.trio
    async def test_an_error_of_the_listener_is_its_own(self) -> None:
        """What ``on_delta`` raises comes out as it is."""
        self.body_of("text")

        def broken(kind: str, text: str, slot: int) -> None:
            raise KeyError("mine")

        async with self.open() as (model, _):
            with pytest.raises(KeyError, match="mine"):
                await model.respond(_question(), broken)
            assert (await model.respond(_question(), Heard())).text

    @pytest.mark.trio
    async def test_two_requests_at_once(self) -> None:
        """Requests that are under way together do not get into each other's way."""
        heard, replies = [Heard(), Heard()], list[Reply]()
        script: list[Step] = []
        if self.text is not None:
            start, body = self.answer(self.text)
            assert isinstance(body, bytes)
            script = [start, *(step for place in range(0, len(body), 40) for step in (body[place : place + 40], 0.002))]

        async def ask(model: Model, listener: Heard) -> None:
            replies.append(await model.respond(_question(), listener))

        async with self.open(*([script] if script else [])) as (model, _), trio.open_nursery() as nursery:
            for listener in heard:
                nursery.start_soon(ask, model, listener)
        assert replies[0].parts == replies[1].parts
        for listener in heard:
            _check_deltas(replies[0], listener)

    @pytest.mark.trio
    async def test_closing_spares_others(self) -> None:
        """Closing, also twice, leaves a request under way alone, and a later one works."""
        body = self.body_of("text")
        slow = [*self.answer(body[: len(body) // 2]), 0.1, body[len(body) // 2 :]]
        async with self.open(slow, self.answer(body)) as (model, server):
            replies: list[Reply] = []

            async def ask() -> None:
                replies.append(await model.respond(_question(), Heard()))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await server.asked.wait()
                await model.aclose()
            await model.aclose()
            await ask()
        assert replies[0].parts == replies[1].parts

    @pytest.mark.trio
    async def test_bad_settings_are_a_model_error(self) -> None:
        """A setting of a turn that is not known is refused before anything is sent."""
        self.body_of("text")
        async with self.open() as (model, server):
            with pytest.raises(ModelError) as caught:
                await model.respond(_question(settings={"no such setting": 1}), Heard())
            assert (caught.value.kind, server.requests) == ("invalid-request", [])


def _boundaries(body: bytes) -> Iterable[int]:
    place = body.find(b"\n\n")
    while place >= 0:
        yield from (place, place + 1, place + 2)
        place = body.find(b"\n\n", place + 2)


def _check_error(error: ModelError, *transient: ModelErrorKind) -> None:
    """A typed error with one line; if kinds are given, one of them that may be retried."""
    assert error.kind in (transient or get_args(ModelErrorKind)), str(error)
    assert error.retryable or not transient
    assert str(error).strip()
    assert "\n" not in str(error)
    str(error).encode()


def _check_body(body: bytes) -> None:
    """The body is UTF-8, and JSON without NaN and without lone surrogates."""

    def no(name: str) -> Any:
        raise AssertionError(f"{name} is on the wire")

    json.dumps(json.loads(body.decode(), parse_constant=no), ensure_ascii=False).encode()


def _check_reply(reply: Reply) -> None:
    assert reply.stop in get_args(Stop)
    assert reply.stop, "a complete reply has a reason to stop"
    assert isinstance(reply.usage, Usage)  # pyright: ignore[reportUnnecessaryIsInstance]
    for name in ("input", "output", "cached", "cache_written", "reasoning"):
        count = getattr(reply.usage, name)
        assert count is None or (isinstance(count, int) and count >= 0), name
    assert (reply.usage.cached or 0) <= (reply.usage.input or reply.usage.cached or 0)
    for part in reply.parts:
        if isinstance(part, ToolCall):
            assert part.id == "", "the engine gives calls their ids"
        kept = getattr(part, "provider", {})
        json.dumps(kept, allow_nan=False, ensure_ascii=False).encode()
    json.dumps(dict(reply.metadata), allow_nan=False, ensure_ascii=False).encode()


def _check_deltas(reply: Reply, heard: Heard) -> None:
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    assert heard.joined("text") == reply.text
    assert heard.joined("reasoning") == "".join(part.text for part in reply.parts if isinstance(part, Reasoning))
    for slot, call in enumerate(calls):
        assert heard.joined("call", slot) == call.name
        assert heard.joined("arguments", slot) == call.arguments
    assert {slot for kind, _, slot in heard.deltas if kind in ("call", "arguments")} == set(range(len(calls)))
