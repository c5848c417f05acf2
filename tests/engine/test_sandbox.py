"""What a command of the shell tool may reach, tried for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.commands import fetch, run, until
from tests.engine.helpers import engine_of, requests_of, result_texts
from turnstate import Allow, InvalidInput, ToolError
from turnstate.testing import call
from turnstate.tools import shell


@pytest.mark.bubblewrap
@pytest.mark.trio
async def test_network() -> None:
    """A command reaches a server of its machine only with the network in its verdict, or in what every call may (A3)."""
    assert "secret" not in await fetch(shell(), network=False)
    assert await fetch(shell(), network=True) == "exit code 0\nsecret"
    assert await fetch(shell(network=True), network=False) == "exit code 0\nsecret"


@pytest.mark.bubblewrap
@pytest.mark.trio
async def test_writing(tmp_path: Path) -> None:
    """Only granted paths can be written, whether the verdict grants them or the host did; all others are read-only."""
    for name in ("always", "granted", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "file").write_text("kept")
    made = shell(cwd=tmp_path, write=["always"])
    found = await run(made, "touch always/a granted/b", write=("granted",))
    assert found == "exit code 0"
    assert (tmp_path / "always" / "a").exists()
    assert (tmp_path / "granted" / "b").exists()
    for target in ("other/c", "c", "granted/c", "/c", "/etc/c", "/usr/c", "other/file"):
        assert "Read-only file system" in await run(made, f"echo > {target}")
    assert (tmp_path / "other" / "file").read_text() == "kept"
    assert await run(made, "cat other/file") == "exit code 0\nkept"
    assert "exit code 0" not in await run(made, "mount -o remount,rw /")


@pytest.mark.bubblewrap
@pytest.mark.trio
async def test_private_places(tmp_path: Path) -> None:
    """``/tmp`` is empty, can be written and is gone afterwards; ``/run``, where sockets are, is empty."""
    mark = Path("/tmp") / f"turnstate-{os.getpid()}"
    mark.write_text("outside")
    try:
        made = shell(cwd="/usr")
        assert await run(made, f"ls -A /tmp /run; echo in > {mark}; cat {mark}") == "exit code 0\n/run:\n\n/tmp:\nin"
        assert mark.read_text() == "outside"
        assert await run(made, "ls -A /tmp; echo $HOME") == "exit code 0\n/tmp"
    finally:
        mark.unlink()


@pytest.mark.bubblewrap
@pytest.mark.trio
async def test_environment_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command sees neither the host's environment nor the machine's processes, nor a file that the host has open."""
    monkeypatch.setenv("API_KEY", "secret")
    made = shell(env={"COLOUR": "blue"}, cwd="/usr")
    found = (await run(made, "env")).splitlines()
    assert {line.partition("=")[0] for line in found[1:]} == {"PATH", "HOME", "LANG", "COLOUR", "PWD"}
    assert f"/{os.getpid()}\n" not in await run(made, "ls -d /proc/[0-9]*")
    assert await run(made, "ls /proc/self/fd | wc -l") == "exit code 0\n4"


@pytest.mark.bubblewrap
@pytest.mark.trio
async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A command cannot widen a later grant by putting a link in the place of a granted path."""
    made = shell(cwd=tmp_path, write=[tmp_path])
    await run(made, "ln -s /etc out")
    with pytest.raises(ToolError, match="out, which it may write, is a symbolic link to /etc"):
        await run(made, "touch out/x", write=("out",))
    with pytest.raises(ToolError, match="missing, which it may write, does not exist"):
        await run(made, "true", write=("missing",))


@pytest.mark.bubblewrap
@pytest.mark.trio
async def test_left_behind_in_a_session_of_its_own() -> None:
    """In a sandbox also a process that left the group ends with its command."""
    marker = f"45.{os.getpid()}5"
    assert await run(shell(), f"setsid sleep {marker} & sleep 0.2") == "exit code 0"
    await until(marker, False)


HOST = """
import sys, trio
from turnstate import ToolContext
from turnstate.tools import shell
context = ToolContext(None, session_id="s", turn_id="t1", call_id="m2.0", tool="shell")
trio.run(shell(), context, "sleep " + sys.argv[1])
"""


@pytest.mark.bubblewrap
@pytest.mark.trio
async def test_the_host_is_killed() -> None:
    """A sandboxed command does not outlive a host that was killed."""
    marker = f"46.{os.getpid()}6"
    with subprocess.Popen([sys.executable, "-c", HOST, marker]) as host:  # noqa: ASYNC220
        try:
            await until(marker, True)
        finally:
            host.kill()
    await until(marker, False)


def test_without_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without bubblewrap there is no shell unless the host says that it wants no sandbox."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match=r"bwrap.* was not found; install it, or say sandbox='none'"):
        shell()
    assert shell(sandbox="none").name == "shell"


@pytest.mark.trio
async def test_a_sandbox_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the kernel allows no sandbox, or bubblewrap is gone, a command is not run, and the model is told why."""
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = shell()
    with pytest.raises(ToolError, match="not run, because its sandbox could not be made: bwrap: No permissions"):
        await run(made, "true")
    program.unlink()
    with pytest.raises(ToolError, match=r"the command was not run: bubblewrap .* was not found"):
        await run(made, "true")


@pytest.mark.bubblewrap
@pytest.mark.trio
async def test_a_person_is_asked() -> None:
    """By default a person is asked about each command, and an approved one has no more than its verdict gives."""
    async with engine_of(call("shell", command="touch /usr/x"), "ok", tools=[shell()]) as engine:
        session = engine.session("s")
        waiting = await session.run("go", check=False)
        assert waiting.outcome == "waiting"
        await session.approve(waiting.calls[0])
        async with session.resume() as turn:
            await turn.result()
        assert "Read-only file system" in result_texts(requests_of(engine)[1])[0]
    assert Allow() == Allow(network=False, write=[])
