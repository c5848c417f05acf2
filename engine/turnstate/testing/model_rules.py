"""What every model must do, whether it asks a server or not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

import attrs
import pytest
import trio

from turnstate.models.base import Model, ModelRequest, Reply, ToolDefinition
from turnstate_states.errors import ModelError

from .model_checks import TOOL, Heard, check_body, check_deltas, check_error, check_reply, every_kind_of_part, question

__all__ = ["ModelRules", "Opened"]


@attrs.frozen
class Opened:
    """A model that can be asked, and what it has sent so far: heads and bodies of HTTP requests, if it sends any."""

    model: Model
    requests: Sequence[tuple[bytes, bytes]] = ()


class ModelRules:
    """The tests; a suite says how a model is opened for them."""

    over_http: ClassVar[bool]
    """Whether the model's requests can be seen."""

    def opened(self, *, slowly: bool = False) -> AbstractAsyncContextManager[Opened]:
        """A model that answers anything, ``slowly`` if several requests are to be under way at once."""
        raise NotImplementedError

    @pytest.mark.trio
    async def test_deltas_make_the_reply(self) -> None:
        """The pieces that are told, joined, are the text, the reasoning and the arguments of the reply."""
        async with self.opened() as opened:
            heard = Heard()
            reply = await opened.model.respond(question(), heard)
            check_reply(reply)
            check_deltas(reply, heard)
            told = list(heard.deltas)
            await trio.sleep(0.05)
            assert heard.deltas == told, "on_delta was called after the reply"

    @pytest.mark.trio
    async def test_a_reply_may_be_asked_for_again(self) -> None:
        """The same request can be sent again with the same cache, and is not changed by that."""
        async with self.opened() as opened:
            request = question()
            request.add("only now")
            before = attrs.evolve(request, additions=list(request.additions))
            replies = [await opened.model.respond(request, Heard()) for _ in range(2)]
            assert replies[0].parts == replies[1].parts
            assert (request.messages, request.additions, request.settings) == (
                before.messages,
                before.additions,
                before.settings,
            )
            if self.over_http:
                assert opened.requests[0][1] == opened.requests[1][1]
                assert b"only now" in opened.requests[0][1]

    @pytest.mark.trio
    async def test_every_kind_of_part_is_accepted(self) -> None:
        """A history that holds every kind of part, also of other providers, becomes a request."""
        async with self.opened() as opened:
            request = ModelRequest("s", "t1.1.1", "", every_kind_of_part(), (TOOL,))
            check_reply(await opened.model.respond(request, Heard()))
            for _, body in opened.requests:
                check_body(body)
                assert b"a_protocol_that_nobody_has" not in body

    @pytest.mark.trio
    async def test_lone_surrogates_do_not_reach_the_wire(self) -> None:
        """Texts of the program that no encoder accepts are cleaned or refused as a model error."""
        async with self.opened() as opened:
            tool = ToolDefinition("add", "\ud800", {"type": "object", "description": "\ud800"})
            odd = attrs.evolve(question(), instructions="\udfffa", tools=(tool,))
            for request in (odd, question(additions=["\ud800a"])):
                try:
                    await opened.model.respond(request, Heard())
                except ModelError as error:
                    check_error(error)
            for _, body in opened.requests:
                check_body(body)

    @pytest.mark.trio
    async def test_two_requests_at_once(self) -> None:
        """Requests that are under way together do not get into each other's way."""
        heard, replies = [Heard(), Heard()], list[Reply]()

        async def ask(model: Model, listener: Heard) -> None:
            replies.append(await model.respond(question(), listener))

        async with self.opened(slowly=True) as opened, trio.open_nursery() as nursery:
            for listener in heard:
                nursery.start_soon(ask, opened.model, listener)
        assert replies[0].parts == replies[1].parts
        for listener in heard:
            check_deltas(replies[0], listener)
