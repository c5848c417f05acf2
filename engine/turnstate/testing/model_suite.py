"""What every model must do, as tests that an adapter's author runs against it.

In a test module (pytest and pytest-trio are needed)::

    from turnstate.testing.model_suite import ModelSuite

    class TestMyModel(ModelSuite):
        text = b'data: {"text": "Hel"}\\n\\ndata: {"text": "lo"}\\n\\ndata: [DONE]\\n\\n'
        calls = b'data: {"call": "add", "arguments": "{}"}\\n\\ndata: [DONE]\\n\\n'

        def make_model(self, url):
            return MyModel("m", base_url=url)

``text`` and ``calls`` are what a server answers, a text in several pieces and one tool call or more; a server on loopback
then does so. For a model that asks no server derive from :class:`InProcessModelSuite` instead::

    class TestMyModel(InProcessModelSuite):
        def make_model(self):
            return MyModel()

Call ``pytest.register_assert_rewrite("turnstate.testing")`` in a ``conftest.py`` to see the values when a test
fails.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
import trio

from turnstate.models.base import Model, Reply
from turnstate_states.content import ToolCall
from turnstate_states.errors import ModelError

from .byte_server import ByteServer, Step, head, serving
from .model_checks import Heard, check_deltas, check_error, check_reply, every_kind_of_part, question
from .model_rules import ModelRules, Opened

__all__ = ["Heard", "InProcessModelSuite", "ModelSuite", "every_kind_of_part"]

PROMPT = 2.0
"""Seconds within which a cancelled request must be over, and its server must see it."""

_CUTS = 60


class InProcessModelSuite(ModelRules):
    """For a model that asks no server. Derive a class whose name starts with ``Test`` and say how the model is made."""

    over_http = False

    def make_model(self) -> Model:
        """A model that answers whatever it is asked."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self, *, slowly: bool = False) -> AsyncGenerator[Opened, None]:
        """The model, closed at the end; it is as slow as it is."""
        async with _closing(self.make_model()) as model:
            yield Opened(model)


class ModelSuite(ModelRules):
    """For an adapter over HTTP. Derive a class whose name starts with ``Test``, say how the model is made, and what its
    server answers.
    """

    text: ClassVar[bytes]
    """The body of an answer that is text in at least two pieces."""

    calls: ClassVar[bytes | None] = None
    """The body of an answer with at least one tool call; None: there are no tests with calls."""

    content_type: ClassVar[str] = "text/event-stream"
    """The media type of ``text`` and ``calls``."""

    over_http = True

    def make_model(self, url: str) -> Model:
        """A model that asks the server at this URL, which answers whatever path is asked."""
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make the tests that take a ``kind`` of answer for the kinds that there are.

        Raises:
            pytest.UsageError: the class has no ``text``.
        """
        if getattr(self, "text", None) is None:
            raise pytest.UsageError(
                f"{type(self).__name__}.text is missing: give the bytes that a server answers, "
                "or derive from InProcessModelSuite if the model asks no server"
            )
        if "kind" in metafunc.fixturenames:
            metafunc.parametrize("kind", ["text"] if self.calls is None else ["text", "calls"])

    def answer(self, body: bytes) -> list[Step]:
        """A script that answers with a body."""
        return [head(None, "200 OK", f"Content-Type: {self.content_type}"), body]

    def body_of(self, kind: str) -> bytes:
        """The body of an answer of a kind, ``text`` or ``calls``."""
        body = self.text if kind == "text" else self.calls
        assert body is not None
        return body

    @asynccontextmanager
    async def opened(self, *, slowly: bool = False) -> AsyncGenerator[Opened, None]:
        """A model whose server answers with ``text``, ``slowly`` in many pieces."""
        start, body = self.answer(self.text)
        assert isinstance(body, bytes)
        pieces = [step for place in range(0, len(body), 40) for step in (body[place : place + 40], 0.002)]
        async with self.open([start, *(pieces if slowly else [body])]) as (model, server):
            yield Opened(model, server.requests)

    @asynccontextmanager
    async def open(self, *scripts: Sequence[Step]) -> AsyncGenerator[tuple[Model, ByteServer], None]:
        """A model and its server; without scripts the server answers with ``text``."""
        if not scripts:
            scripts = (self.answer(self.text),)
        async with serving(*scripts) as server, _closing(self.make_model(server.url)) as model:
            yield model, server

    async def fails(self, script: Sequence[Step]) -> ModelError:
        """The error that a script ends in."""
        async with self.open(script) as (model, _):
            with pytest.raises(ModelError) as caught, trio.fail_after(10):
                await model.respond(question(), Heard())
        check_error(caught.value)
        return caught.value

    @pytest.mark.trio
    async def test_an_answer_comes_in_pieces(self, kind: str) -> None:
        """The pieces of a streamed answer are told one by one, and joined they are the reply."""
        async with self.open(self.answer(self.body_of(kind))) as (model, _):
            heard = Heard()
            reply = await model.respond(question(), heard)
            check_reply(reply)
            check_deltas(reply, heard)
            made = [part for part in reply.parts if isinstance(part, ToolCall)] if kind == "calls" else reply.text
            assert made
            assert len(heard.deltas) > 1

    @pytest.mark.trio
    @pytest.mark.parametrize("broken", [False, True])
    async def test_a_cut_is_never_a_reply(self, kind: str, broken: bool) -> None:
        """Cut anywhere, an answer is a retryable error, or the same reply if nothing that matters was missing."""
        body = self.body_of(kind)
        start = head(len(body) if broken else None, "200 OK", f"Content-Type: {self.content_type}")
        places = sorted({*range(0, len(body), max(1, len(body) // _CUTS)), *_boundaries(body)})
        scripts = [[start, body], *([start, body[:place]] for place in places if place < len(body))]
        async with self.open(*scripts) as (model, _):
            whole = await model.respond(question(), Heard())
            cuts = 0
            for _ in scripts[1:]:
                try:
                    reply = await model.respond(question(), Heard())
                except ModelError as error:
                    check_error(error, "cut", "connection")
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
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        await listeners[0].aclose()
        model = self.make_model(f"http://127.0.0.1:{port}")
        with pytest.raises(ModelError) as caught:
            await model.respond(question(), Heard())
        await model.aclose()
        check_error(caught.value)
        assert (caught.value.kind, caught.value.retryable) == ("connection", True)

    @pytest.mark.trio
    @pytest.mark.parametrize("when", ["before the answer", "in the answer"])
    async def test_cancellation_is_prompt(self, when: str) -> None:
        """A cancelled request is over at once, its server sees that, and the model can be used again."""
        body = self.text
        held: list[Step] = ["hold"] if when == "before the answer" else [*self.answer(body[: len(body) // 2]), "hold"]
        async with self.open(held, self.answer(body)) as (model, server):
            heard = Heard()
            with trio.fail_after(PROMPT):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(model.respond, question(), heard)
                    await server.asked.wait()
                    await trio.sleep(0.05)
                    nursery.cancel_scope.cancel()
                await server.gone.wait()
            told = len(heard.deltas)
            reply = await model.respond(question(), Heard())
            assert reply.text
            assert len(heard.deltas) == told

    @pytest.mark.trio
    async def test_an_error_of_the_listener_is_its_own(self) -> None:
        """What ``on_delta`` raises comes out as it is."""

        def broken(kind: str, text: str, slot: int) -> None:
            raise KeyError("mine")

        async with self.open() as (model, _):
            with pytest.raises(KeyError, match="mine"):
                await model.respond(question(), broken)
            assert (await model.respond(question(), Heard())).text

    @pytest.mark.trio
    async def test_closing_spares_others(self) -> None:
        """Closing, also twice, leaves a request under way alone, and a later one works."""
        body = self.text
        slow = [*self.answer(body[: len(body) // 2]), 0.1, body[len(body) // 2 :]]
        async with self.open(slow, self.answer(body)) as (model, server):
            replies: list[Reply] = []

            async def ask() -> None:
                replies.append(await model.respond(question(), Heard()))

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
        async with self.open() as (model, server):
            with pytest.raises(ModelError) as caught:
                await model.respond(question(settings={"no such setting": 1}), Heard())
            assert (caught.value.kind, server.requests) == ("invalid-request", [])


@asynccontextmanager
async def _closing(model: Model) -> AsyncGenerator[Model, None]:
    try:
        yield model
    finally:
        with trio.CancelScope(shield=True):
            await model.aclose()


def _boundaries(body: bytes) -> Iterable[int]:
    place = body.find(b"\n\n")
    while place >= 0:
        yield from (place, place + 1, place + 2)
        place = body.find(b"\n\n", place + 2)
