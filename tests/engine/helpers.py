"""What the tests of the engine share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import trio

from turnstate import Agent, Engine, Event, MemoryStore, Message, ModelRequest, Reply, Session, Store
from turnstate.models.base import Model, OnDelta
from turnstate.states import Reasoning, Text, ToolCall
from turnstate.testing import ScriptedModel


def strict(messages: Sequence[Message]) -> None:
    """Hold a request's messages to what strict providers demand."""
    assert messages, "no message"
    expected: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            (result,) = message.results
            assert expected, f"a result without a call before it: {result.call}"
            assert result.call == expected.pop(0), "results out of call order"
            assert result.text.strip() or result.status == "ok", "an error result without text"
            continue
        assert not expected, f"calls without a result before {message.role} {message.text!r}: {expected}"
        assert message.parts, "a message without parts"
        for part in message.parts:
            assert not isinstance(part, Text) or part.text.strip(), "a blank text"
        assert message.role != "assistant" or any(not isinstance(part, Reasoning) for part in message.parts)
        expected = [part.id for part in message.calls]
        assert len(set(expected)) == len(expected)
        assert seen.isdisjoint(expected), "a call that was there before"
        seen.update(expected)
    assert not expected, f"calls without a result at the end: {expected}"
    last = messages[-1]
    assert last.role in ("user", "tool"), "the last word is the model's"


class StrictModel(ScriptedModel):
    """A scripted model that holds each request to what strict providers demand."""

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        strict(request.messages)
        return await super().respond(request, on_delta)


class Gate:
    """A place in a test's own code where it stops until it is let go."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self.open = trio.Event()

    async def wait(self) -> None:
        """Stop here."""
        self.reached.set()
        await self.open.wait()


class GatedModel(Model):
    """A model that streams the given pieces, then stops at a gate, then gives the whole as its reply.

    Requests after the last gate are answered at once with ``rest``.
    """

    name = "gated"

    def __init__(self, *pieces: str, rest: str = "rest", calls: Iterable[ToolCall] = ()) -> None:
        self.pieces = pieces
        self.rest = rest
        self.calls = tuple(calls)
        self.gate = Gate()
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        strict(request.messages)
        self.requests.append(request)
        if len(self.requests) > 1:
            return Reply((Text(self.rest),))
        for piece in self.pieces:
            on_delta("text", piece, 0)
        await self.gate.wait()
        text = "".join(self.pieces)
        parts = (*((Text(text),) if text else ()), *self.calls)
        return Reply(parts, "tool-calls" if self.calls else "stop")


def result_texts(request: ModelRequest) -> list[str]:
    """The texts of the results in a request."""
    return [message.text for message in request.messages if message.role == "tool"]


def said(request: ModelRequest) -> list[str]:
    """What people said in a request."""
    return [message.text for message in request.messages if message.role == "user"]


async def events_of(session: Session, after: int = 0, *, until: Callable[[Event], bool]) -> list[Event]:
    """The events after a number up to the first that fits."""
    found: list[Event] = []
    with trio.fail_after(30):
        async with session.events(after=after) as stream:
            async for event in stream:
                found.append(event)
                if until(event):
                    return found
    raise AssertionError("the stream ended")


async def until_event(session: Session, kind: type[Any], after: int = 0) -> Any:
    """Wait for the first event of a kind."""
    return (await events_of(session, after, until=lambda event: isinstance(event, kind)))[-1]


def engine_of(*lines: Any, tools: Sequence[Any] = (), store: Store | None = None, **more: Any) -> Engine[None]:
    """An engine with a strict scripted model."""
    agent = Agent[None](StrictModel(list(lines)), tools=tools, **more)
    return Engine(agent, MemoryStore() if store is None else store)


def requests_of(engine: Engine[Any]) -> list[ModelRequest]:
    """What the model of an engine was asked."""
    model = engine.agent.model
    assert isinstance(model, (ScriptedModel, GatedModel))
    return model.requests
