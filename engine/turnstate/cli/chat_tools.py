"""The tools of ``turnstate chat``: it may look around below one folder, and writes only what a person approved."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import trio

from ..errors import ToolError
from ..tools import ToolContext, tool

__all__ = ["TOOLS", "Folder"]

LISTED = 200
READ = 100_000


@attrs.frozen
class Folder:
    """The folder that the tools may touch, its links followed."""

    root: Path

    def inside(self, path: str) -> Path:
        """The file that a path names; links are followed first, so that none leads outside."""
        try:
            found = (self.root / path).resolve()
        except (OSError, ValueError) as error:
            raise ToolError(f"{path!r} is no path that can be used") from error
        if not found.is_relative_to(self.root):
            raise ToolError(f"{path} is outside of the working directory; use paths below it")
        return found


@tool
def list_files(ctx: ToolContext[Folder], folder: str = ".") -> list[str]:
    """List the files and folders in a folder of the working directory.

    Args:
        folder: relative to the working directory.
    """
    found = ctx.deps.inside(folder)
    if not found.is_dir():
        raise ToolError(f"{folder} is not a folder")
    names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in os.scandir(found))
    return [*names[:LISTED], *([f"... and {len(names) - LISTED} more"] if len(names) > LISTED else [])]


@tool
def read_file(path: str, ctx: ToolContext[Folder]) -> str:
    """Read a text file of the working directory.

    Args:
        path: relative to the working directory.
    """
    found = ctx.deps.inside(path)
    if not found.is_file():
        raise ToolError(f"{path} is not a file; list_files shows what there is")
    with found.open("rb") as file:
        data = file.read(READ)
    if b"\0" in data:
        raise ToolError(f"{path} is not a text file")
    return data.decode(errors="replace")


async def was_written(path: str, content: str, ctx: ToolContext[Folder]) -> str | None:
    """After a crash: whether the file holds just what was to be written."""
    file = trio.Path(ctx.deps.inside(path))
    try:
        same = await file.is_file() and await file.read_bytes() == content.encode()
    except OSError:
        return None
    return f"wrote {path}" if same else None


@tool(approval=True, exclusive=True, on_crash=was_written)
async def write_file(path: str, content: str, ctx: ToolContext[Folder]) -> str:
    """Write a text file in the working directory, replacing what is there. A person is asked first.

    Args:
        path: relative to the working directory.
        content: the whole new content.
    """
    file = trio.Path(ctx.deps.inside(path))
    try:
        await file.parent.mkdir(parents=True, exist_ok=True)
        await file.write_bytes(content.encode())
    except OSError as error:
        raise ToolError(f"{path} cannot be written: {error.strerror}") from error
    return f"wrote {path}"


@tool(outside=True)
async def ask_user(question: str) -> None:
    """Ask the person at the terminal a question, where you cannot go on without their answer.

    Args:
        question: one question, in plain text.
    """


TOOLS = (list_files, read_file, write_file, ask_user)
