"""A local server that speaks Chat Completions and refuses what a strict provider refuses."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any

import trio

from turnstate_states import checks
from turnstate_states.errors import InvalidInput, ModelError

from .scripted import ScriptedCall, lines_of
from .strict_rules import broken_rule

__all__ = ["StrictServer", "broken_rule"]

Body = Mapping[str, Any]
Answer = str | ScriptedCall | ModelError | Iterable["str | ScriptedCall"]
"""One answer: text, a call, several of them, or an error, which becomes its status (500 if it has none)."""


class _Gone(Exception):
    """The client went away."""


class StrictServer(AbstractAsyncContextManager["StrictServer"]):
    """A server for tests of what really goes over the wire; ``async with StrictServer(["Hello"]) as server``.

    Point an adapter at it with ``OpenAIChat("any", base_url=server.url)``. It streams the next answer of its script, and
    answers 400 where a request breaks one of the rules that :func:`~turnstate.testing.broken_rule` lists.

    Args:
        script: the answers in order, or a function from the request's body to the answer.
        alternate: also demand that user and assistant take turns.
        delay: seconds between the pieces of an answer: words of a text, calls.

    ``requests`` are the bodies that came, ``refused`` what was wrong with those that were refused.

    Raises:
        InvalidInput: ``url`` is asked for while it does not serve.
    """

    def __init__(
        self,
        script: Iterable[Answer] | Callable[[Body], Answer],
        *,
        alternate: bool = False,
        delay: float = 0.0,
    ) -> None:
        self.requests: list[Body] = []
        self.refused: list[str] = []
        self.alternate = checks.flag("alternate", alternate)
        self.delay = checks.finite("delay", delay, least=0, expected="seconds")
        self._script = script if callable(script) else None
        self._lines = iter(lines_of(script, _kept))
        self._ids = itertools.count(1)
        self._port: int | None = None
        self._manager: Any = None

    @property
    def url(self) -> str:
        """Where it serves."""
        if self._port is None:
            raise InvalidInput("url: the server does not run; use it inside 'async with StrictServer(...)'")
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> StrictServer:
        self._manager = trio.open_nursery()
        nursery: trio.Nursery = await self._manager.__aenter__()
        self._nursery = nursery
        listeners: list[trio.SocketListener] = await nursery.start(
            partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1")
        )
        self._port = listeners[0].socket.getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._port = None
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection, request after request."""
        try:
            async with stream:
                data = b""
                while True:
                    body, data = await _read(stream, data)
                    await self._answer(stream, body)
        except (_Gone, trio.BrokenResourceError):
            pass

    async def _answer(self, stream: trio.SocketStream, raw: bytes) -> None:
        try:
            body: Body = json.loads(raw)
        except ValueError:
            body = {}
        self.requests.append(body)
        wrong = broken_rule(body, alternate=self.alternate)
        if wrong:
            self.refused.append(wrong)
            await _refuse(stream, 400, wrong)
            return
        try:
            answer = next(self._lines) if self._script is None else self._script(body)
        except StopIteration:
            await _refuse(stream, 404, f"the script has no answer for request {len(self.requests)}")
            return
        if isinstance(answer, ModelError):
            await _refuse(stream, answer.status or 500, str(answer), answer.retry_after)
            return
        parts = [answer] if isinstance(answer, (str, ScriptedCall)) else list(answer)
        await self._stream(stream, parts)

    async def _stream(self, stream: trio.SocketStream, parts: list[str | ScriptedCall]) -> None:
        await stream.send_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        calls = 0
        for part in parts:
            for delta in self._deltas(part, calls):
                await _event(stream, _chunk(delta))
                if self.delay:
                    await trio.sleep(self.delay)
            calls += isinstance(part, ScriptedCall)
        await _event(stream, _chunk({}, "tool_calls" if calls else "stop"))
        usage = {"prompt_tokens": 10, "completion_tokens": len(parts), "total_tokens": 10 + len(parts)}
        await _event(stream, {**_chunk({}), "choices": [], "usage": usage})
        await _send(stream, b"data: [DONE]\n\n")
        await stream.send_all(b"0\r\n\r\n")

    def _deltas(self, part: str | ScriptedCall, index: int) -> Iterable[Body]:
        if isinstance(part, str):
            for piece in re.findall(r"\s*\S+|\s+$", part):
                yield {"content": piece}
            return
        function = {"name": part.tool, "arguments": part.arguments}
        yield {
            "tool_calls": [{"index": index, "id": f"call_{next(self._ids)}", "type": "function", "function": function}]
        }


def _kept(answer: Answer) -> Answer:
    """An answer of a script, checked."""
    if isinstance(answer, ModelError):
        return answer
    items = (answer,) if isinstance(answer, (str, ScriptedCall)) else checks.items("script", answer, "text, calls")
    for item in items:
        checks.instance("script", item, (str, ScriptedCall), "text, call(...) or a ModelError")
    return answer if isinstance(answer, (str, ScriptedCall)) else tuple(items)


async def _read(stream: trio.SocketStream, data: bytes) -> tuple[bytes, bytes]:
    """The body of the next request, and what was read beyond it."""
    while b"\r\n\r\n" not in data:
        data += await _more(stream)
    head, _, data = data.partition(b"\r\n\r\n")
    lines = [line.lower() for line in head.split(b"\r\n")]
    size = next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), 0)
    while len(data) < size:
        data += await _more(stream)
    return data[:size], data[size:]


async def _more(stream: trio.SocketStream) -> bytes:
    data = await stream.receive_some()
    if not data:
        raise _Gone
    return bytes(data)


def _chunk(delta: Body, finish: str | None = None) -> Body:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "strict", "object": "chat.completion.chunk", "model": "strict", "choices": [choice]}


async def _event(stream: trio.SocketStream, data: Body) -> None:
    await _send(stream, f"data: {json.dumps(data)}\n\n".encode())


async def _send(stream: trio.SocketStream, data: bytes) -> None:
    await stream.send_all(b"%x\r\n%b\r\n" % (len(data), data))


async def _refuse(stream: trio.SocketStream, status: int, text: str, retry_after: float | None = None) -> None:
    body = json.dumps({"error": {"message": text, "type": "invalid_request_error" if status == 400 else "error"}})
    data = body.encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    if retry_after is not None:
        head += f"Retry-After: {retry_after:g}\r\n"
    await stream.send_all(head.encode() + b"\r\n" + data)
