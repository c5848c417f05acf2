"""A tiny server that speaks OpenAI Chat Completions with streaming, in the test's own process."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

Body = Mapping[str, Any]


@attrs.frozen
class Say:
    """A reply with text, or calls as (tool, arguments); ``gate``: wait for it after the first piece of text."""

    text: str = ""
    calls: tuple[tuple[str, Body], ...] = ()
    gate: trio.Event | None = None
    cut: bool = False


@attrs.frozen
class Fail:
    """An answer that is an error."""

    status: int
    message: str


Answer = Say | Fail


@attrs.define
class FakeOpenAI:
    """The server; ``requests`` are the bodies that came, ``answer`` gives the answer to each."""

    answer: Callable[[Body], Answer]
    url: str = ""
    requests: list[Body] = attrs.field(factory=list[Body])
    arrived: trio.Event = attrs.field(factory=trio.Event)

    async def wait_for(self, number: int) -> None:
        """Wait until that many requests have come."""
        while len(self.requests) < number:
            await self.arrived.wait()

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one connection, one request."""
        try:
            request: Body = json.loads(await _body(stream))
        except trio.BrokenResourceError:
            return
        self.requests.append(request)
        self.arrived.set()
        self.arrived = trio.Event()
        answer = self.answer(request)
        try:
            if isinstance(answer, Fail):
                await self._fail(stream, answer)
            else:
                await self._stream(stream, answer)
        except trio.BrokenResourceError:
            pass

    async def _fail(self, stream: trio.SocketStream, answer: Fail) -> None:
        body = json.dumps({"error": {"message": answer.message}}).encode()
        head = f"HTTP/1.1 {answer.status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        await stream.send_all(head.encode() + b"Connection: close\r\n\r\n" + body)

    async def _stream(self, stream: trio.SocketStream, say: Say) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        head, space, tail = say.text.partition(" ")
        await _delta(stream, {"role": "assistant", "content": head})
        if say.gate is not None:
            await say.gate.wait()
        if say.cut:
            return
        await _delta(stream, {"content": space + tail})
        for index, (tool, arguments) in enumerate(say.calls):
            function = {"name": tool, "arguments": json.dumps(arguments)}
            await _delta(stream, {"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]})
        await _delta(stream, {}, "tool_calls" if say.calls else "stop")
        await stream.send_all(b"data: [DONE]\n\n")


async def _body(stream: trio.SocketStream) -> bytes:
    """What a request holds.

    Raises:
        BrokenResourceError: whoever sends it has gone.
    """
    data = b""
    length: int | None = None
    while length is None or len(data) < length:
        received = await stream.receive_some()
        if not received:
            raise trio.BrokenResourceError("the request breaks off")
        data += received
        if length is None and b"\r\n\r\n" in data:
            head, _, data = data.partition(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0)
    return data


async def _delta(stream: trio.SocketStream, delta: Body, finish: str | None = None) -> None:
    chunk = {"id": "x", "object": "chat.completion.chunk", "model": "fake"}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    await stream.send_all(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())


@asynccontextmanager
async def fake_openai(answer: Callable[[Body], Answer]) -> AsyncGenerator[FakeOpenAI]:
    """Serve on a free port of this host."""
    server = FakeOpenAI(answer)

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await server.handle(stream)

    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
        yield server
        nursery.cancel_scope.cancel()


def last(body: Body) -> Body:
    """The last message of a request."""
    message: Body = body["messages"][-1]
    return message
