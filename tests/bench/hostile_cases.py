"""The cases of the hostile benchmark: each gives what became of it, in a line."""

from __future__ import annotations

import functools
import json
import tempfile
import threading
import time
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from turnstate import (
    Agent,
    Client,
    Engine,
    InvalidInput,
    MemoryStore,
    Model,
    ModelRequest,
    Reply,
    SQLiteStore,
    Text,
    TurnstateError,
    tool,
)
from turnstate.models import Anthropic, Gemini, OnDelta, OpenAIChat, OpenAIResponses
from turnstate.states import ToolCall
from turnstate.testing import ScriptedModel, call

from .hostile_replies import PROTOCOLS, endless_text, many_calls

__all__ = ["CASES"]

MANY = 10_000
MODELS: dict[str, Callable[..., Model]] = {
    "chat": OpenAIChat,
    "anthropic": Anthropic,
    "responses": OpenAIResponses,
    "gemini": Gemini,
}


@tool
async def work(n: int = 0) -> str:
    """Do some work."""
    return "done"


class CallsModel(Model):
    """Asks for many calls in one reply."""

    name = "calls"

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        return Reply(tuple(ToolCall("", "work", '{"n": 1}') for _ in range(MANY)), "tool-calls")


async def told(turn: Awaitable[Any]) -> str:
    """How a turn ended, in a line."""
    start = time.perf_counter()
    try:
        result = await turn
        text = f"{result.outcome}: {result.reason or result.text[:40]}"
    except TurnstateError as error:
        text = f"{type(error).__name__}: {error}"
    return f"{time.perf_counter() - start:.2f} s, {text}"


async def calls_in_process() -> str:
    async with Engine(Agent(CallsModel(), tools=[work]), MemoryStore()) as engine:
        return await told(engine.session("s").run("go", check=False))


# ---- over HTTP


class Server:
    """Answers each request with pieces of bytes, as fast as they are taken."""

    def __init__(self, pieces: Callable[[], Any], head: str = "Content-Type: text/event-stream") -> None:
        self.pieces = pieces
        self.head = head if head.startswith("HTTP") else f"HTTP/1.1 200 OK\r\n{head}"
        self.url = ""
        self.sent = 0

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one connection."""
        try:
            await stream.receive_some()
            await stream.send_all(f"{self.head}\r\nConnection: close\r\n\r\n".encode())
            for piece in self.pieces():
                await stream.send_all(piece)
                self.sent += len(piece)
        except trio.BrokenResourceError:
            pass
        finally:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def serving(server: Server) -> AsyncGenerator[Server]:
    """The server on loopback."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(functools.partial(trio.serve_tcp, server.handle, 0, host="127.0.0.1"))
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield server
        nursery.cancel_scope.cancel()


async def over_http(protocol: str, pieces: Callable[[], Any], head: str = "Content-Type: text/event-stream") -> str:
    async with serving(Server(pieces, head)) as server:
        model = MODELS[protocol]("m", base_url=server.url, api_key="k")
        from turnstate import Limits

        agent = Agent(model, tools=[work], limits=Limits(attempts=1))
        async with Engine(agent, MemoryStore()) as engine:
            session = engine.session("s")
            text = ""
            with trio.move_on_after(8) as scope:
                text = await told(session.run("go", check=False))
            if scope.cancelled_caught:
                start = time.perf_counter()
                await session.interrupt()
                text = f"no end in 8 s; interrupted after {time.perf_counter() - start:.2f} s"
            return f"{text[:150]} ({server.sent / 1e6:.1f} MB sent)"


def calls_over_http(protocol: str) -> Callable[[], Awaitable[str]]:
    return lambda: over_http(protocol, lambda: many_calls(protocol, MANY))


def endless(protocol: str) -> Callable[[], Awaitable[str]]:
    return lambda: over_http(protocol, lambda: endless_text(protocol))


def _bomb(piece: bytes) -> bytes:
    """400 MB, packed."""
    pack = zlib.compressobj(wbits=31)
    packed = b"".join(pack.compress(piece * 1000) for _ in range(400_000 // len(piece)))
    return packed + pack.flush()


async def gzip_bomb() -> str:
    packed = _bomb(next(endless_text("chat")))
    return await over_http("chat", lambda: [packed], "Content-Encoding: gzip")


async def gzip_event() -> str:
    packed = _bomb(b" " * 1000)
    return await over_http("chat", lambda: [packed], "Content-Encoding: gzip")


async def gzip_error() -> str:
    packed = _bomb(b" " * 1000)
    return await over_http("chat", lambda: [packed], "HTTP/1.1 400 Bad\r\nContent-Encoding: gzip")


def _forever(piece: bytes) -> Any:
    while True:
        yield piece


async def long_line() -> str:
    return await over_http("chat", lambda: _forever(b"x" * 65536))


async def long_error() -> str:
    return await over_http("chat", lambda: _forever(b"x" * 65536), "HTTP/1.1 500 Bad")


async def pings() -> str:
    return await over_http("chat", lambda: _forever(b": ping\n\n" * 8192))


# ---- threads


async def hung_threads() -> str:
    release = threading.Event()

    @tool
    def hang() -> str:
        """Hang."""
        release.wait(20)
        return "free"

    @tool
    def quick() -> str:
        """Be quick."""
        return "quick"

    def script(request: ModelRequest) -> Reply:
        if request.messages[-1].role == "tool":
            return Reply((Text("done"),))
        if request.session == "bad":
            return Reply(tuple(ToolCall("", "hang", "{}") for _ in range(50)), "tool-calls")
        return Reply((ToolCall("", "quick", "{}"),), "tool-calls")

    async with Engine(Agent(ScriptedModel(script), tools=[hang, quick]), MemoryStore(), grace=0.1) as engine:
        await engine.session("bad").send("go")
        await trio.sleep(0.5)
        with trio.move_on_after(5):
            text = await told(engine.session("good").run("go", check=False))
            release.set()
            return f"another session's: {text}"
        release.set()
        return "another session's tool did not run in 5 s"


# ---- clients


async def many_sends() -> str:
    kept = refused = 0
    async with Client(MemoryStore()) as client:
        session = client.session("s")
        for number in range(700):
            try:
                await session.send(f"message {number}")
                kept += 1
            except TurnstateError:
                refused += 1
    return f"{kept} kept, {refused} refused"


async def big_message() -> str:
    async with Client(MemoryStore()) as client:
        try:
            await client.session("s").send("x" * 50_000_000)
        except InvalidInput as error:
            return f"refused: {error}"
    return "kept"


# ---- subscribers


async def slow_readers() -> str:
    pieces, readers = 2_000, 200

    class Streams(Model):
        name = "streams"

        async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
            for _ in range(pieces):
                on_delta("text", "tok ", 0)
                await trio.lowlevel.checkpoint()
            return Reply((Text("tok " * pieces),))

    async with Engine(Agent(Streams()), MemoryStore()) as engine:
        session = engine.session("s")
        await session.run("warm")

        async def read() -> None:
            async with session.events() as events:
                async for _ in events:
                    for _ in range(3):
                        await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(readers):
                nursery.start_soon(read)
            await trio.sleep(0.3)
            start = time.perf_counter()
            await session.run("go")
            took = time.perf_counter() - start
            nursery.cancel_scope.cancel()
    return f"a turn of {pieces} deltas with {readers} readers took {took:.2f} s"


# ---- what else one session could do


async def tiny_arguments() -> str:
    """Calls that come in many pieces, with a reader."""

    class Pieces(Model):
        name = "pieces"

        async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
            if request.messages[-1].role == "tool":
                return Reply((Text("done"),))
            for slot in range(100):
                on_delta("call", "work", slot)
            for _ in range(400):
                for slot in range(100):
                    on_delta("arguments", " ", slot)
                await trio.lowlevel.checkpoint()
            return Reply(tuple(ToolCall("", "work", " " * 400 + "{}") for _ in range(100)), "tool-calls")

    async with Engine(Agent(Pieces(), tools=[work]), MemoryStore()) as engine:
        session = engine.session("s")

        async def read() -> None:
            async with session.events() as events:
                async for _ in events:
                    pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.sleep(0.05)
            text = await told(session.run("go", check=False))
            nursery.cancel_scope.cancel()
    return text


async def huge_output() -> str:
    @tool
    async def shout() -> list[str]:
        """Shout."""
        return ["x" * 100] * 500_000

    model = ScriptedModel([call("shout"), "done"])
    async with Engine(Agent(model, tools=[shout]), MemoryStore()) as engine:
        return await told(engine.session("s").run("go", check=False))


async def long_import() -> str:
    messages = [
        {"id": f"m{n}", "parent": f"m{n - 1}" if n > 1 else None, "turn": "t1", "role": "user" if n % 2 else "assistant",
         "parts": [{"type": "text", "text": "hello"}], "created_at": 1.0}
        for n in range(1, MANY + 1)
    ]  # fmt: skip
    data = json.dumps({"format": 1, "session": "x", "head": f"m{MANY}", "messages": messages}).encode()
    async with Engine(Agent(ScriptedModel(["hi"])), MemoryStore()) as engine:
        session = await engine.import_session("s", data)
        return await told(session.run("go", check=False))


async def long_queue() -> str:
    """Messages that wait, sent one by one to a session whose turn waits for a person."""

    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    kept = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        model = ScriptedModel([call("pay"), "done"])
        async with Engine(Agent(model, tools=[pay]), SQLiteStore(Path(folder) / "t.db")) as engine:
            session = engine.session("s")
            await session.run("go", check=False)
            for number in range(1000):
                try:
                    await session.send(f"message {number}")
                    kept += 1
                except TurnstateError:
                    refused += 1
    return f"{kept} kept, {refused} refused"


CASES: dict[str, Callable[[], Awaitable[str]]] = {
    "calls: in process": calls_in_process,
    **{f"calls: {protocol}": calls_over_http(protocol) for protocol in PROTOCOLS},
    "hung functions": hung_threads,
    **{f"endless: {protocol}": endless(protocol) for protocol in PROTOCOLS},
    "endless line": long_line,
    "endless error": long_error,
    "endless pings": pings,
    "gzip": gzip_bomb,
    "gzip of one event": gzip_event,
    "gzip of an error": gzip_error,
    "700 sends": many_sends,
    "50 MB message": big_message,
    "200 slow readers": slow_readers,
    "tiny arguments": tiny_arguments,
    "50 MB output": huge_output,
    "import of 10,000": long_import,
    "1,000 waiting": long_queue,
}
