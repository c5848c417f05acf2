"""The tools of ``turnstate chat``: it may look around below one folder, and writes only what a person approved.

A person is also asked before it reads what may be a secret.
"""

from __future__ import annotations

import os

import trio

from ..errors import ToolError
from ..tools import ToolContext, tool
from .chat_files import Folder

__all__ = ["TOOLS"]

LISTED = 200
READ = 100_000
SECRET = "By its name it may hold a secret. The model's server would get all of it."


def is_private(ctx: ToolContext[Folder], path: str) -> bool:
    """Whether a person is asked before a file is read."""
    return ctx.deps.is_private(path)


def is_private_folder(ctx: ToolContext[Folder], folder: str = ".") -> bool:
    """Whether a person is asked before a folder is listed."""
    return ctx.deps.is_private(folder)


@tool(approval=is_private_folder)
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


@tool(approval=is_private, prompt=SECRET)
def read_file(path: str, ctx: ToolContext[Folder]) -> str:
    """Read a text file of the working directory. A person is asked first where its name says that it may hold a secret.

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
    try:
        file = trio.Path(ctx.deps.inside(path))
        same = await file.is_file() and await file.read_bytes() == content.encode()
    except (OSError, ToolError):
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
