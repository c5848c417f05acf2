"""The work that is measured: a turn of eleven requests with ten tool calls, by turnstate and by a bare loop.

The model answers at once from the last message alone; the tool gives 600 characters, so a step adds about 1 KB.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from turnstate import Agent, Engine, Limits, MemoryStore, Model, ModelRequest, Reply, Store, Text, tool
from turnstate.models import OnDelta
from turnstate.states import ToolCall

CALLS = 10
STEPS = CALLS + 1
PAD = "x" * 600
TEXT500 = "lorem ipsum " * 42


def next_number(last: str | None, calls: int) -> int | None:
    """The number of the next call, or None for the final answer."""
    number = 0 if last is None else int(last.split(":", 1)[0]) + 1
    return number if number < calls else None


class CountingModel(Model):
    """Asks for ``work(n)`` until ``calls`` were made."""

    name = "counting"

    def __init__(self, calls: int = CALLS, delay: float = 0.0) -> None:
        self.calls = calls
        self.delay = delay

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        if self.delay:
            await trio.sleep(self.delay)
        last = request.messages[-1]
        number = next_number(last.text if last.role == "tool" else None, self.calls)
        if number is None:
            return Reply((Text("done"),))
        return Reply((ToolCall("", "work", f'{{"n":{number}}}'),), "tool-calls")


class StreamingModel(Model):
    """Gives ``pieces`` pieces of text, ``together`` at a time."""

    name = "streaming"

    def __init__(self, pieces: int, together: int) -> None:
        self.pieces = pieces
        self.together = together

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        for start in range(0, self.pieces, self.together):
            for _ in range(min(self.together, self.pieces - start)):
                on_delta("text", "tok ", 0)
            await trio.lowlevel.checkpoint()
        return Reply((Text("tok " * self.pieces),))


@tool
async def work(n: int) -> str:
    """Do some work."""
    return f"{n}:{PAD}"


def agent(model: Model) -> Agent:
    """The agent that is measured."""
    return Agent(model, tools=[work], limits=Limits(steps=None))


def engine(store: Store, model: Model | None = None) -> Engine:
    """An engine that is measured."""
    return Engine(agent(model or CountingModel()), store)


def memory() -> Store:
    """A store that costs as little as possible."""
    return MemoryStore()


# ---- the floor: the same turn as a bare loop


async def _ask(messages: list[dict[str, Any]], calls: int) -> dict[str, Any]:
    last = messages[-1]
    number = next_number(last["content"] if last["role"] == "tool" else None, calls)
    if number is None:
        return {"role": "assistant", "content": "done"}
    call = {"id": f"c{number}", "name": "work", "arguments": json.dumps({"n": number})}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


async def bare_turn(
    messages: list[dict[str, Any]],
    calls: int = CALLS,
    save: Callable[[list[dict[str, Any]]], Awaitable[None]] | None = None,
    delay: float = 0.0,
) -> None:
    """A turn with no framework; ``save`` gets what each step adds."""
    new: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    messages.extend(new)
    while True:
        if delay:
            await trio.sleep(delay)
        reply = await _ask(messages, calls)
        messages.append(reply)
        new.append(reply)
        for call in reply.get("tool_calls", ()):
            result = {"role": "tool", "id": call["id"], "content": await work.function(**json.loads(call["arguments"]))}
            messages.append(result)
            new.append(result)
        if save is not None:
            await save(new)
        new = []
        if "tool_calls" not in reply:
            return


class BareStore:
    """Bare sqlite3, one row a message, synchronous FULL."""

    def __init__(self, path: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        self.connection.execute("CREATE TABLE m(id INTEGER PRIMARY KEY, body TEXT)")

    def append(self, messages: list[dict[str, Any]]) -> None:
        """Append messages in one transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        rows = [(json.dumps(message),) for message in messages]
        self.connection.executemany("INSERT INTO m(body) VALUES (?)", rows)
        self.connection.execute("COMMIT")

    async def save(self, messages: list[dict[str, Any]]) -> None:
        """Append messages, in a thread."""
        await trio.to_thread.run_sync(self.append, messages)
