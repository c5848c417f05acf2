"""A server on loopback that keeps connections open between requests and sends its answers in chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def part(data: bytes) -> bytes:
    """A chunk of the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


END = part(b"")


def plain(status: str, body: bytes, *headers: str) -> list[Any]:
    """A whole answer in one step."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return ["\r\n".join(lines).encode() + b"\r\n\r\n" + body]


Step = bytes | float | str
"""Bytes to send, seconds to sleep, ``close`` the connection, or ``hold`` it until the client goes away."""
"""Bytes to send, seconds to sleep, ``close`` the connection, or ``hold`` it until the client goes away."""


@attrs.define
class KeepAliveServer:
    """Answers each request with the next script (the last one for ever), byte for byte, on as few connections as come.

    ``requests`` are the heads and the bodies that came, ``connections`` how many there were; ``asked`` and ``gone`` are set
    when a request has come, and when a client hung up.
    """

    scripts: list[list[Step]]
    url: str = ""
    requests: list[tuple[bytes, bytes]] = attrs.field(factory=list[tuple[bytes, bytes]])
    connections: int = 0
    asked: trio.Event = attrs.field(factory=trio.Event)
    gone: trio.Event = attrs.field(factory=trio.Event)

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one connection."""
        self.connections += 1
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    more = await stream.receive_some()
                    if not more:
                        return
                    data += more
                head, _, rest = data.partition(b"\r\n\r\n")
                size = next(
                    int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
                )
                while len(rest) < size:
                    rest += await stream.receive_some()
                self.requests.append((head, rest[:size]))
                self.asked.set()
                data = rest[size:]
                script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
                for step in script:
                    if not await self._step(stream, step):
                        return
        except trio.BrokenResourceError:
            self.gone.set()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await stream.aclose()

    async def _step(self, stream: trio.SocketStream, step: Step) -> bool:
        if isinstance(step, bytes):
            await stream.send_all(step)
        elif isinstance(step, float):
            await trio.sleep(step)
        elif step == "hold":
            await stream.receive_some()
            self.gone.set()
            return False
        return step != "close"


@asynccontextmanager
async def serving(*scripts: list[Any]) -> AsyncGenerator[KeepAliveServer]:
    """A server on loopback with these scripts."""
    server = KeepAliveServer(list(scripts))
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.handle, 0, host="127.0.0.1"))
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
        yield server
        nursery.cancel_scope.cancel()
