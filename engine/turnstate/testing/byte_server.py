"""A server on loopback that plays back bytes, whatever it is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

__all__ = ["ByteServer", "Step", "head", "serving"]

Step = bytes | float | str
"""What a server does: send bytes, sleep for seconds, or ``hold`` the connection until the client goes away."""


@attrs.define
class ByteServer:
    """Answers each request with the next script (the last one for ever), byte for byte, and hangs up.

    ``requests`` are the heads and the bodies that came; ``asked`` and ``gone`` are set when a request has come, and when a
    client hung up on a server that held its connection.
    """

    scripts: list[Sequence[Step]]
    url: str = ""
    requests: list[tuple[bytes, bytes]] = attrs.field(factory=list[tuple[bytes, bytes]])
    asked: trio.Event = attrs.field(factory=trio.Event)
    gone: trio.Event = attrs.field(factory=trio.Event)

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one connection."""
        try:
            self.requests.append(await _request(stream))
            self.asked.set()
            for step in self.scripts[min(len(self.requests), len(self.scripts)) - 1]:
                if isinstance(step, bytes):
                    await stream.send_all(step)
                elif isinstance(step, float):
                    await trio.sleep(step)
                else:
                    await stream.receive_some()
                    self.gone.set()
        except (trio.BrokenResourceError, EOFError):
            self.gone.set()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await stream.aclose()


async def _request(stream: trio.SocketStream) -> tuple[bytes, bytes]:
    data, size = b"", -1
    while True:
        head, found, body = data.partition(b"\r\n\r\n")
        if found and size < 0:
            lines = head.lower().split(b"\r\n")
            size = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        if found and len(body) >= size:
            return head, body
        more = await stream.receive_some()
        if not more:
            raise EOFError
        data += more


@asynccontextmanager
async def serving(*scripts: Sequence[Step]) -> AsyncGenerator[ByteServer, None]:
    """A server on loopback with these scripts."""
    server = ByteServer(list(scripts))
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.handle, 0, host="127.0.0.1"))
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        try:
            yield server
        except Exception as error:
            # Outside the nursery it comes out as it is, not in a group.
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def head(length: int | None = None, status: str = "200 OK", *more: str) -> bytes:
    """The head of an answer; without a length its body ends with the connection."""
    lines = [f"HTTP/1.1 {status}", "Connection: close", *more]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"
