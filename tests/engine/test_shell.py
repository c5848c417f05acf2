"""The shell tool, run for real."""

from __future__ import annotations

import os
import subprocess
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.engine.commands import both, run, until, zombies
from tests.engine.helpers import engine_of, requests_of, result_texts, until_event
from turnstate import CallStarted, InvalidInput
from turnstate.policy import AllowAll
from turnstate.testing import call
from turnstate.tools import process, shell


@both
@pytest.mark.trio
async def test_what_the_model_reads(sandbox: Any) -> None:
    """The model reads the exit code, and standard output and error in the order in which they came."""
    made = shell(sandbox=sandbox, cwd="/usr")
    assert await run(made, "echo a; echo b >&2; echo c; exit 3") == "exit code 3\na\nb\nc"
    assert await run(made, "true") == "exit code 0"
    assert await run(made, "read line; echo $?; pwd") == "exit code 0\n1\n/usr"
    assert await run(made, "printf '\\377'") == "exit code 0\n\ufffd"
    killed = await run(made, "kill -9 $$")
    assert killed == ("ended by SIGKILL" if sandbox == "none" else "exit code 137")


@both
@pytest.mark.trio
async def test_head_and_tail(sandbox: Any) -> None:
    """Of a long output head and tail are kept, within the tool's limit and cut between characters (T10)."""
    made = shell(sandbox=sandbox, output_limit=1000)
    async with engine_of(call("shell", command="seq 9999"), "ok", tools=[made], policy=AllowAll()) as engine:
        await engine.session("s").run("go")
        (text,) = result_texts(requests_of(engine)[1])
    assert text.startswith("exit code 0\n1\n2\n3\n")
    assert text.endswith("\n9998\n9999")
    assert text.count("left out") == 1
    assert len(text.encode()) <= 1000
    wide = await run(made, "yes 漢字 | head -n 5000")
    assert "\ufffd" not in wide
    assert len(wide.encode()) <= 1000


@both
@pytest.mark.trio
async def test_much_output(sandbox: Any) -> None:
    """A hundred megabytes of output need no more memory than their head and tail."""
    made = shell(sandbox=sandbox)
    await run(made, "true")
    tracemalloc.start()
    try:
        found = await run(made, "yes 0123456789 | head -c 100000000")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.startswith("exit code 0\n0123456789\n")
    assert "99,960,200 bytes left out" in found
    assert peak < 2_000_000


@both
@pytest.mark.trio
async def test_timeout(sandbox: Any) -> None:
    """A command that takes too long is unknown, and none of its processes is left."""
    marker = f"41.{os.getpid()}1"
    command = f"sleep {marker} & (trap '' TERM; sleep {marker})"
    made = shell(sandbox=sandbox, timeout=0.5)
    async with engine_of(call("shell", command=command), "ok", tools=[made], policy=AllowAll()) as engine:
        await engine.session("s").run("go")
        (text,) = result_texts(requests_of(engine)[1])
        assert text == "execution interrupted; result unknown: timed out after 0.5 s; it may have taken effect"
        await until(marker, False)
    assert zombies() == []


@both
@pytest.mark.trio
async def test_interrupt(sandbox: Any, tmp_path: Path) -> None:
    """An interrupt tells the command to end first, so that it can clean up, and leaves none of its processes."""
    marker = f"42.{os.getpid()}2"
    command = f"trap 'echo bye > said; exit' TERM; sleep {marker} & wait"
    made = shell(sandbox=sandbox, cwd=tmp_path)
    policy = AllowAll(write=[tmp_path])
    async with engine_of(call("shell", command=command), tools=[made], policy=policy) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            await until_event(session, CallStarted)
            await until(marker, True)
            await session.interrupt("enough")
            result = await turn.result(check=False)
        await until(marker, False)
    assert (result.outcome, result.calls[0].status) == ("interrupted", "unknown")
    assert (tmp_path / "said").read_text() == "bye\n"
    assert zombies() == []


@both
@pytest.mark.trio
async def test_a_stubborn_command(sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that ignores the signal to end is killed after a grace."""
    monkeypatch.setattr(process, "GRACE", 0.2)
    marker = f"43.{os.getpid()}3"
    made = shell(sandbox=sandbox)
    with trio.move_on_after(0.4) as scope:
        await run(made, f"trap '' TERM; sleep {marker}; sleep {marker}; sleep {marker}")
    assert scope.cancelled_caught
    await until(marker, False)


@both
@pytest.mark.trio
async def test_left_behind(sandbox: Any) -> None:
    """A command that leaves processes behind ends when it ends, and they end with it."""
    marker = f"44.{os.getpid()}4"
    with trio.fail_after(5):
        assert await run(shell(sandbox=sandbox), f"sleep {marker} & echo started") == "exit code 0\nstarted"
    await until(marker, False)


@pytest.mark.trio
async def test_an_output_that_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a sandbox a process may leave the group and keep the output open; its command is not waited for longer."""
    monkeypatch.setattr(process, "DRAIN", 0.2)
    with trio.fail_after(1.5):
        assert await run(shell(sandbox="none"), "echo a; setsid sleep 2 & sleep 0.1") == "exit code 0\na"


@both
@pytest.mark.trio
async def test_nothing_leaks(sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file nor a dead process is left, however a command ends; it is started by the thread that waits for it."""
    started: list[int] = []
    popen = subprocess.Popen

    def note(*args: Any, **options: Any) -> Any:
        started.append(threading.get_ident())
        return popen(*args, **options)

    made = shell(sandbox=sandbox)
    await run(made, "true")
    before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(subprocess, "Popen", note)
    for command in ("true", "exit 4", "exec 1>&- 2>&-; sleep 0.1", "sleep 9"):
        with trio.move_on_after(0.3):
            await run(made, command)
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: 1 / 0)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(ZeroDivisionError):
        await run(made, "true")
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert zombies() == []
    assert set(started) == {threading.get_ident()}


@pytest.mark.trio
async def test_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no file descriptors of processes, a thread waits."""
    monkeypatch.delattr(os, "pidfd_open")
    assert await run(shell(sandbox="none"), "echo a; exit 3") == "exit code 3\na"


@pytest.mark.trio
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("x" * 8001, "Expected `str` of length <= 8000"),
        ("é" * 4001, "it has 8,002 bytes, and 8,000 are allowed"),
        ("", "Expected `str` of length >= 1"),
        ("a\0b", "it holds a NUL character"),
    ],
)
async def test_commands_that_are_refused(command: str, text: str) -> None:
    """A command that is too long, empty or no text is refused in words for the model."""
    made = shell(sandbox="none")
    async with engine_of(call("shell", command=command), "ok", tools=[made], policy=AllowAll()) as engine:
        await engine.session("s").run("go")
        (found,) = result_texts(requests_of(engine)[1])
    assert text in found


@pytest.mark.parametrize(
    "options",
    [
        {"cwd": "/missing"},
        {"write": "/usr"},
        {"write": ["/missing"]},
        {"env": {"A": 1}},
        {"env": {"A=B": ""}},
        {"sandbox": "docker"},
        {"timeout": 0},
        {"name": "a b"},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    """An option that cannot be used is refused when the tool is made."""
    chosen: dict[str, Any] = {"sandbox": "none", **options}
    with pytest.raises(InvalidInput):
        shell(**chosen)
