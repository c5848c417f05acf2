"""A tool that runs shell commands, each in a sandbox with the permissions of its verdict."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import msgspec

from turnstate_states import checks
from turnstate_states.errors import InvalidInput, ToolError
from turnstate_states.turn import Permissions

from ..paths import path as check_path
from ..paths import paths as check_paths
from .base import Approval, Tool
from .bubblewrap import bubblewrap, granted
from .context import ToolContext
from .output import shorten
from .process import run_child

__all__ = ["shell"]

COMMAND_BYTES = 8_000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MISSING = "bubblewrap (bwrap) was not found"

Command = Annotated[str, msgspec.Meta(min_length=1, max_length=COMMAND_BYTES)]

ABOUT = """Run a command with sh and read what it prints, standard output and error together, and its exit code.

It starts in {cwd}. A long output is cut in the middle. After {timeout:g} seconds it is ended, and processes that it
leaves behind are ended with it. {sandbox}"""
SANDBOXED = (
    "It runs in a sandbox: it can write only below /tmp, which is empty at first and gone afterwards{write}; {net}."
)


@attrs.frozen
class _Settings:
    cwd: str
    write: tuple[str, ...]
    env: Mapping[str, str]
    network: bool
    program: str | None
    """bubblewrap's, or None for no sandbox."""
    limit: int


def shell(
    *,
    name: str = "shell",
    cwd: str | Path | None = None,
    write: Iterable[str | Path] = (),
    network: bool = False,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    approval: Approval = True,
    exclusive: bool = True,
    expires: float | None = None,
    output_limit: int = 40_000,
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap",
) -> Tool[..., Any]:
    """A tool that runs shell commands, each in a sandbox of its own.

    In the sandbox everything is readable and nothing can be written but an empty, private ``/tmp`` and the granted paths.
    There is no network unless it is granted. ``/run`` is empty, the processes of the machine are not to be seen, and the
    environment holds only ``PATH``, ``HOME`` (``/tmp``), ``LANG`` and what ``env`` adds. A call is granted what its
    verdict gives (:class:`~turnstate.Allow`), and what ``network`` and ``write`` give every call.

    A command that takes longer than ``timeout``, or whose turn is interrupted, is ended with all its processes: SIGTERM,
    then SIGKILL two seconds later. The model reads the exit code and the output, its head and tail if it is long.

    Args:
        name: what the model calls it.
        cwd: where commands start; by default where the program is.
        write: existing paths below which every call may write.
        network: whether every call may use the network.
        env: added to the environment.
        timeout: seconds; then the call's outcome is unknown.
        approval: as for :func:`turnstate.tool`; by default a person is asked each time.
        exclusive: one at a time, in order; False to let commands of one reply run side by side.
        expires: seconds after which an unanswered request for approval is denied.
        output_limit: bytes of output that are kept.
        sandbox: ``"none"`` runs commands with all that the program itself may do, whatever their verdicts grant.

    Raises:
        InvalidInput: an option cannot be used, or bubblewrap is not installed.
    """
    checks.text("name", name)
    checks.flag("network", network)
    checks.number("timeout", timeout, above=0, expected="seconds")
    checks.integer("output_limit", output_limit, least=1, expected="a number of bytes")
    checks.choice("sandbox", sandbox, ("bubblewrap", "none"))
    home = _directory(cwd)
    program = _program(sandbox)
    settings = _Settings(
        home,
        tuple(granted_always(write, home)),
        _environment({} if env is None else env, sandboxed=program is not None),
        network,
        program,
        output_limit,
    )

    async def run(ctx: ToolContext[Any], command: Command) -> str:
        return await _run(settings, command, ctx)

    return Tool(
        run,
        name=name,
        description=_about(settings, timeout),
        approval=approval,
        exclusive=exclusive,
        timeout=timeout,
        expires=expires,
        output_limit=output_limit,
    )


def _directory(cwd: str | Path | None) -> str:
    path = os.path.realpath("." if cwd is None else check_path("cwd", cwd) or ".")
    if not os.path.isdir(path):
        raise InvalidInput(f"shell: cwd: {checks.shown(path)} is not a directory")
    return path


def _program(sandbox: str) -> str | None:
    if sandbox == "none":
        return None
    if sandbox != "bubblewrap":
        raise InvalidInput(f"shell: sandbox: expected 'bubblewrap' or 'none', got {sandbox!r}")
    program = shutil.which("bwrap")
    if program is None:
        raise InvalidInput(f"shell: {MISSING}; install it, or say sandbox='none' to run commands without a sandbox")
    return program


def granted_always(write: Iterable[str | Path], cwd: str) -> list[str]:
    """The paths of the option ``write``; symbolic links are followed now, once, since the host named them."""
    found = [os.path.realpath(os.path.join(cwd, path)) for path in check_paths("shell: write", write)]
    for path in found:
        if not os.path.exists(path):
            raise InvalidInput(f"shell: write: {path} does not exist")
    return found


def _environment(env: Mapping[str, str], *, sandboxed: bool) -> dict[str, str]:
    for name, value in checks.mapping("shell: env", env).items():
        if not isinstance(value, str) or "=" in name or "\0" in name + value or not name:
            raise InvalidInput(f"shell: env: {checks.shown(name)} is not a variable with a text")
    home = "/tmp" if sandboxed else os.environ.get("HOME", "/")
    return {"PATH": os.environ.get("PATH", PATH), "HOME": home, "LANG": "C.UTF-8", **env}


def _about(settings: _Settings, timeout: float) -> str:
    write = "".join(f", and below {path}" for path in settings.write)
    net = "it can use the network" if settings.network else "it has no network unless that was granted"
    sandbox = "" if settings.program is None else SANDBOXED.format(write=write, net=net)
    return ABOUT.format(cwd=settings.cwd, timeout=timeout, sandbox=sandbox).strip()


def _words(settings: _Settings, command: str, permissions: Permissions) -> list[str]:
    words = ["/bin/sh", "-c", _checked(command)]
    if not os.path.isdir(settings.cwd):
        raise ToolError(f"the command was not run: {settings.cwd}, where it would start, is gone")
    if settings.program is None:
        return words
    return bubblewrap(
        settings.program,
        words,
        cwd=settings.cwd,
        write=granted((*settings.write, *permissions.write), settings.cwd),
        network=settings.network or permissions.network,
    )


async def _run(settings: _Settings, command: str, ctx: ToolContext[Any]) -> str:
    words = _words(settings, command, ctx.permissions)
    limit = max(settings.limit - 200, 2)  # room for the exit code
    option = "" if settings.program is None else "--json-status-fd"
    try:
        code, kept, status = await run_child(
            words, limit=limit, env=settings.env, cwd=settings.cwd, status_option=option
        )
    except FileNotFoundError:
        what = "sh" if settings.program is None else MISSING
        raise ToolError(f"the command was not run: {what}") from None
    if settings.program is not None and code >= 0 and "exit-code" not in status:
        text = shorten(kept.text().strip(), 500)
        raise ToolError(f"the command was not run, because its sandbox could not be made: {text}")
    return f"{_ended(code)}\n{shorten(kept.text(), limit + 100)}".rstrip("\n")


def _checked(command: str) -> str:
    size = len(command.encode(errors="replace"))
    if "\0" in command:
        raise ToolError("the command was not run: it holds a NUL character")
    if size > COMMAND_BYTES:
        raise ToolError(
            f"the command was not run: it has {size:,} bytes, and {COMMAND_BYTES:,} are allowed; write a file and run it"
        )
    return command


def _ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"
