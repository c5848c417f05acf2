"""Command lines for bubblewrap, which runs a command with only what it may reach."""

from __future__ import annotations

import os
from collections.abc import Iterable

from turnstate_states.errors import ToolError

__all__ = ["bubblewrap", "granted"]

PRIVATE = ("/tmp", "/run", "/var/run")
"""Replaced by empty directories. Sockets of services are in them, and a socket can be used on a read-only file system."""

FIXED = [
    "--die-with-parent",
    "--new-session",
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
]


def granted(paths: Iterable[str], cwd: str) -> list[str]:
    """Paths that may be written, as the kernel knows them, outer ones first.

    Raises:
        ToolError: one does not exist, or leads elsewhere by a symbolic link: an earlier command may have put that there.
    """
    found: set[str] = set()
    for path in paths:
        full = os.path.normpath(os.path.join(cwd, path))
        real = os.path.realpath(full)
        if real != full:
            raise ToolError(f"the command was not run: {path}, which it may write, is a symbolic link to {real}")
        if not os.path.exists(real):
            raise ToolError(f"the command was not run: {path}, which it may write, does not exist")
        found.add(real)
    return sorted(found)


def bubblewrap(program: str, command: list[str], *, cwd: str, write: list[str], network: bool) -> list[str]:
    """The command line that runs ``command`` in a sandbox: everything is read-only but ``write`` and a private ``/tmp``."""
    line = [program, *FIXED]
    if not network:
        line.append("--unshare-net")
    line += ["--bind" if "/" in write else "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    private = [path for path in PRIVATE if os.path.isdir(path) and not os.path.islink(path)]
    for path in private:
        line += ["--tmpfs", path]
    needed = [cwd]
    if network:
        needed.append(os.path.realpath("/etc/resolv.conf"))  # often below /run
    for path in needed:
        if os.path.exists(path) and any(_below(path, base) for base in private):
            line += ["--ro-bind", path, path]
    for path in write:
        if path != "/":
            line += ["--bind", path, path]
    return [*line, "--chdir", cwd, "--", *command]


def _below(path: str, base: str) -> bool:
    return path == base or path.startswith(base + "/")
