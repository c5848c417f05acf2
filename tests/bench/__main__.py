"""``python -m tests.bench [NAME ...]``: what turnstate costs, beside the floor measured in the same run.

Names: turn durable growth stream concurrency resume import decode encode. Without any, all.
``python -m tests.bench hostile [NAME ...]``: what one session, model or client can make all others pay.
It prints and asserts nothing.
"""

from __future__ import annotations

import functools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import trio

from turnstate import Agent, Engine, Message, SQLiteStore, Text, TextDelta, tool
from turnstate.states import Checkpoint, codec
from turnstate.stores import Listing, Owner, StoredCommit, StoredRow
from turnstate.stores.base import LIVE_OWNERS
from turnstate.testing import ScriptedModel, call

from .hostile import child, hostile
from .measure import Clock, Figure, median, repeat, rss_mb
from .wire import bench_decode, bench_encode
from .work import PAD, STEPS, TEXT500, BareStore, CountingModel, StreamingModel, agent, bare_turn, engine, memory

RUNS = 7


def cpu(clock: Clock) -> float:
    """CPU seconds."""
    return clock.cpu


def size_of(clock: Clock) -> float:
    """Bytes written."""
    return float(clock.bytes)


def wall(clock: Clock) -> float:
    """Seconds that passed."""
    return clock.wall


async def bench_turn() -> list[Figure]:
    """CPU of a step that nothing makes durable."""
    async with engine(memory()) as running:
        count = iter(range(1_000_000))
        clocks = await repeat(lambda: running.session(f"s{next(count)}").run("go"), times=50, runs=RUNS)
    floor = await repeat(lambda: bare_turn([]), times=200, runs=RUNS)
    per, per_floor = 50 * STEPS / 1e3, 200 * STEPS / 1e3
    return [
        Figure(f"{name} per step, memory", median(clocks, what) / per, "ms", median(floor, what) / per_floor)
        for name, what in (("CPU", cpu), ("wall", wall))
    ]


async def bench_durable() -> list[Figure]:
    """A step with SQLite, synchronous FULL."""
    with tempfile.TemporaryDirectory() as folder:
        async with engine(SQLiteStore(Path(folder) / "t.db")) as running:
            count = iter(range(1_000_000))
            clocks = await repeat(lambda: running.session(f"s{next(count)}").run("go"), times=10, runs=RUNS)
        bare = BareStore(str(Path(folder) / "bare.db"))
        floor = await repeat(lambda: bare_turn([], save=bare.save), times=10, runs=RUNS)
        bare.connection.close()
    per = 10 * STEPS
    return [
        Figure(f"durable step: {name}", median(clocks, what) / per * scale, unit, median(floor, what) / per * scale)
        for name, unit, scale, what in DURABLE
    ]


DURABLE: tuple[tuple[str, str, float, Callable[[Clock], float]], ...] = (
    ("wall", "ms", 1e3, wall),
    ("CPU", "ms", 1e3, cpu),
    ("written", "KB", 1e-3, size_of),
)


async def stored_history(store: SQLiteStore, session: str, messages: int) -> None:
    """Store a session with that many messages, a user's and an assistant's in turn."""
    owner = Owner("bench", "", 0, "", time.time() + 3600)
    LIVE_OWNERS.add(owner.id)
    await store.renew(owner)
    await store.claim(session, owner, time.time())
    made = [
        Message(f"m{n}", f"m{n - 1}" if n > 1 else None, "t0", "user" if n % 2 else "assistant", (Text(TEXT500),), 1.0)
        for n in range(1, messages + 1)
    ]
    checkpoint = Checkpoint(session, 1.0, sequence=1, messages=messages, head=f"m{messages}", events=1)
    row = StoredRow(1, codec.encode_messages(made), b'[{"number":1,"text":"made","type":"warned"}]')
    data = codec.encode_checkpoint(checkpoint)
    await store.commit(StoredCommit(session, owner.id, 0, 1, data, Listing(session), row))
    await store.release(session, owner.id)


async def bench_growth() -> list[Figure]:
    """One more step behind a history."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (10, 1000, 5000):
            clocks: list[Clock] = []
            for run in range(4):
                async with SQLiteStore(Path(folder) / f"{size}.db") as store:
                    await stored_history(store, f"s{run}", size)
                    async with Engine(agent(CountingModel()), store) as running:
                        session = running.session(f"s{run}")
                        await session.send("warm up", id="warm")
                        await session.run("go")
                        with Clock() as clock:
                            await session.run("go")
                        clocks.append(clock)
            figures += [
                Figure(f"step behind {size} messages: wall", median(clocks[1:], wall) / STEPS * 1e3, "ms"),
                Figure(f"step behind {size} messages: written", median(clocks[1:], size_of) / STEPS / 1e3, "KB"),
            ]
    return figures


async def bench_stream() -> list[Figure]:
    """A piece of text, from the model to a subscriber."""
    pieces = 20_000
    floor = await repeat(lambda: channel(pieces), times=1, runs=RUNS)
    cost = median(floor, wall) / pieces * 1e6
    figures: list[Figure] = []
    for together in (1, 5, 20):
        async with engine(memory(), StreamingModel(pieces, together)) as running:
            reader = functools.partial(read_text, running, iter(range(1000)), pieces)
            clocks = await repeat(reader, times=1, runs=RUNS)
        figures.append(Figure(f"delta, {together} in a read", median(clocks, wall) / pieces * 1e6, "us", cost))
    return figures


async def read_text(running: Engine, numbers: Iterator[int], pieces: int) -> None:
    """Run a turn and read its text as it comes."""
    seen = 0
    async with running.session(f"s{next(numbers)}").turn("go") as turn:
        async for event in turn:
            if isinstance(event, TextDelta):
                seen += len(event.text) // 4
    if seen != pieces:
        raise RuntimeError(f"{seen} of {pieces} pieces were told")


async def channel(pieces: int) -> None:
    """The floor of streaming: a trio memory channel."""
    send, receive = trio.open_memory_channel[str](100)

    async def produce() -> None:
        async with send:
            for _ in range(pieces):
                await send.send("tok ")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        async for _ in receive:
            pass


async def bench_concurrency() -> list[Figure]:
    """A thousand turns at once, each request taking 50 ms; in a process of its own."""
    wall, base, peak = _in_a_process("turnstate")
    floor_wall, floor_base, floor_peak = _in_a_process("bare")
    return [
        Figure("1,000 turns at once: wall", wall, "s", floor_wall),
        Figure("1,000 turns at once: memory on top", peak - base, "MB", floor_peak - floor_base),
        Figure("1,000 turns at once: memory in all", peak, "MB", floor_peak),
    ]


def _in_a_process(which: str) -> list[float]:
    command = [sys.executable, "-m", "tests.bench", "--concurrency", which]
    return [float(word) for word in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


async def many_turns(which: str) -> None:
    """The child of :func:`bench_concurrency`."""
    async with engine(memory(), CountingModel(delay=0.05)) as running:

        async def one(number: int) -> None:
            if which == "bare":
                await bare_turn([], delay=0.05)
            else:
                await running.session(f"s{number}").run("go")

        await one(-1)
        base = rss_mb()
        with Clock() as clock:
            async with trio.open_nursery() as nursery:
                for number in range(1000):
                    nursery.start_soon(one, number)
        print(clock.wall, base, rss_mb())


async def bench_resume() -> list[Figure]:
    """Opening a stored session of 1,000 messages that waits for an approval, and going on to the answer."""

    @tool(approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount} {PAD}"

    clocks: list[Clock] = []
    asks = Agent(ScriptedModel(lambda request: call("pay", amount=1)), tools=[pay])
    answers = Agent(StreamingModel(1, 1), tools=[pay])
    with tempfile.TemporaryDirectory() as folder:
        for run in range(RUNS + 1):
            path = Path(folder) / f"{run}.db"
            async with SQLiteStore(path) as store:
                await stored_history(store, "s", 1000)
                async with Engine(asks, store) as first:
                    await first.session("s").run("go", check=False)
            with Clock() as clock:
                async with Engine(answers, SQLiteStore(path)) as second:
                    session = second.session("s")
                    async with session.resume() as turn:
                        await session.approve(*turn.waiting)
                        await turn.result()
            clocks.append(clock)
    return [Figure("resume with 1,000 messages: wall", median(clocks[1:], wall) * 1e3, "ms")]


async def bench_import() -> list[Figure]:
    """Importing it."""
    return [Figure("import", import_ms("turnstate"), "ms", import_ms("trio, sqlite3, json"))]


def import_ms(what: str) -> float:
    """The median time of an import in a new process, in ms."""
    code = f"import time; t = time.perf_counter(); import {what}; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(9)]
    return statistics.median(float(run.stdout) for run in runs) * 1e3


BENCHES: dict[str, Callable[[], Awaitable[list[Figure]]]] = {
    "turn": bench_turn,
    "durable": bench_durable,
    "growth": bench_growth,
    "stream": bench_stream,
    "concurrency": bench_concurrency,
    "resume": bench_resume,
    "import": bench_import,
    "decode": bench_decode,
    "encode": bench_encode,
}


async def main(names: list[str]) -> None:
    """Run and print."""
    print(f"{'':<46}{'turnstate':>12} {'':<7}{'floor':>12}{'ratio':>12}")
    for name in names or list(BENCHES):
        for figure in await BENCHES[name]():
            print(figure.line(), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--concurrency"]:
        trio.run(many_turns, sys.argv[2])
    elif sys.argv[1:2] == ["--hostile"]:
        trio.run(child, sys.argv[2])
    elif sys.argv[1:2] == ["hostile"]:
        hostile(sys.argv[2:])
    else:
        trio.run(main, sys.argv[1:])
