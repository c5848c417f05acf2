"""A condition on paths: below a directory, however they are written and wherever links lead."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from turnstate_states import checks
from turnstate_states.errors import InvalidInput

from .conditions import Condition

__all__ = ["Under"]

LINKS = 40
LONGEST = 4096


class Under(Condition):
    """A path that is one of these directories or lies below one.

    ``..`` and symbolic links are followed, when a call is judged, in a thread. What need not exist yet is fine, a new file
    for example. A path counts as below a directory only if it is in every way that a program could take it: with its last
    part as a link, or as what the link leads to; with ``..`` taken out of the text first, or walked through.

    These cannot be told: what is not text; a relative path, unless ``base`` says from where; ``~``, which some programs
    replace; URLs; control characters, and white space around it; a path through a link in ``/proc``, which is another one
    for another process; a path that cannot be followed, because of a loop or a permission for example.

    The file system may change between the verdict and the call. A rule does not hold a program to a directory, a sandbox
    does. Hard links and mounts of parts of a directory are not seen.

    >>> Under("/srv/data").fits("/srv/data/a/../b"), Under("/srv/data").fits("/srv/data/../secret")
    (True, False)

    Args:
        directories: absolute paths; they need not exist.
        base: the absolute path of the directory where the tool starts from with relative paths.

    Raises:
        InvalidInput: there is no directory, or a path is not absolute or not a path at all.
    """

    blocking: ClassVar[bool] = True

    def __init__(self, *directories: str | Path, base: str | Path | None = None) -> None:
        if not directories:
            raise InvalidInput("Under: directories: expected at least one directory")
        self.directories = tuple(_absolute(directory, "directories") for directory in directories)
        self.base = None if base is None else _absolute(base, "base")

    def fits(self, value: Any) -> bool | None:
        answers = {self._holds(real) for real in self._readings(value)}
        return answers.pop() if len(answers) == 1 else None

    def _readings(self, value: object) -> Iterator[str | None]:
        """Where the path leads, in each way that a program could take it; None for one that cannot be followed."""
        path = self._plain(value)
        if path is None:
            yield None
            return
        for text in (path, os.path.normpath(path)):
            yield resolve(text)
            yield resolve(text, last=False)

    def _plain(self, value: object) -> str | None:
        """The absolute path that a text is, unless a program could take it for something else."""
        if not isinstance(value, str) or not value.isprintable() or value != value.strip():
            return None
        if not value or len(value) > LONGEST or value[0] == "~" or "://" in value or value.startswith("file:"):
            return None
        if value[0] == "/":
            return value
        return None if self.base is None else f"{self.base}/{value}"

    def _holds(self, path: str | None) -> bool | None:
        if path is None:
            return None
        # A directory that may not be entered is taken as it is written: what is in it cannot be followed anyway.
        answers = [_within(path, resolve(directory) or directory) for directory in self.directories]
        return True if True in answers else None if None in answers else False

    def __repr__(self) -> str:
        shown = [repr(directory) for directory in self.directories]
        return f"Under({', '.join(shown if self.base is None else [*shown, f'base={self.base!r}'])})"


def _absolute(path: object, name: str) -> str:
    if not isinstance(path, (str, Path)):
        raise InvalidInput(f"Under: {name}: expected a path, got {type(path).__name__}")
    text = str(path)
    if not text.startswith("/") or not text.isprintable():
        raise InvalidInput(f"Under: {name}: expected an absolute path, got {checks.shown(text)}")
    return os.path.normpath("/" + text.lstrip("/"))


def resolve(path: str, *, last: bool = True) -> str | None:
    """The path without ``..`` and links, or None if it cannot be told; ``last`` is whether a link at its end is followed.

    Unlike ``os.path.realpath`` it guesses nothing where something is missing, forbidden or goes round in circles.
    """
    rest = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    done, links = "", 0
    while rest:
        part = rest.pop()
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = f"{done}/{part}"
        try:
            mode = os.lstat(here).st_mode
            target = os.readlink(here) if stat.S_ISLNK(mode) and (rest or last) else None
        except FileNotFoundError:  # it may become a file or a directory: nothing that leads elsewhere
            done = here
            continue
        except (OSError, ValueError):
            return None
        if target is None:
            if rest and not stat.S_ISDIR(mode):
                return None
            done = here
            continue
        links += 1
        if links > LINKS or here.startswith("/proc/"):
            return None
        rest += [part for part in reversed(target.split("/")) if part not in ("", ".")]
        done = "" if target.startswith("/") else done
    return done or "/"


def _within(path: str, directory: str) -> bool | None:
    """Whether a resolved path is a resolved directory or below it."""
    if path == directory or path.startswith(directory.rstrip("/") + "/"):
        return True
    # The same directory under another name: mounted twice, or on a file system that takes "A" for "a".
    try:
        wanted = os.stat(directory)
    except OSError:
        return False
    while path not in ("", "/"):
        try:
            if os.path.samestat(os.stat(path), wanted):
                return None
        except OSError:
            pass
        path = path.rpartition("/")[0]
    return False
