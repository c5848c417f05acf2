"""Checks of paths that hosts give."""

from __future__ import annotations

import os
from typing import Any, cast

from turnstate_states import checks
from turnstate_states.errors import InvalidInput

__all__ = ["path", "paths"]


def path(where: str, value: object) -> str:
    """A path of a file that an operating system takes, as text."""
    found: object = os.fspath(cast(Any, value)) if isinstance(value, (str, os.PathLike)) else None  # pyright: ignore[reportUnknownVariableType]
    try:
        if isinstance(found, str) and "\0" not in found and os.fsencode(found) is not None:  # pyright: ignore[reportUnnecessaryComparison]
            return found
    except UnicodeEncodeError:
        pass
    raise checks.unfit(where, "a path", value)  # pyright: ignore[reportUnknownArgumentType]


def paths(where: str, value: object) -> tuple[str, ...]:
    """A list of paths."""
    if isinstance(value, (str, os.PathLike)):
        raise InvalidInput(f"{where}: expected a list of paths, got one path; put it in a list")
    given = checks.items(where, value, "a list of paths")
    found = tuple(path(f"{where}[{place}]", item) for place, item in enumerate(given))
    if "" in found:
        raise InvalidInput(f"{where}: an empty path would be the directory where the program is; write it out")
    return found
