"""What tests need that ``pip install '.[test]'`` does not bring; see :mod:`tests.selection`."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

__all__ = ["AIMOCK", "NEEDS", "SHARED", "Need"]

SHARED = "TURNSTATE_SHARED"
AIMOCK = "TURNSTATE_AIMOCK"


@attrs.frozen
class Need:
    """Something that a test needs and that pip does not bring."""

    missing: Callable[[], str]
    """Why it is not there, or an empty text."""

    variable: str = ""
    """The environment variable that says where it is, and that turns its tests on as well."""


def _recordings() -> str:
    place = os.environ.get(SHARED, "")
    if place and any(Path(place, "fixtures").glob("*/*.sse")):
        return ""
    return f"{SHARED} does not name a folder with recorded answers in fixtures/: {place!r}"


def _aimock() -> str:
    program = os.environ.get(AIMOCK, "")
    if not program:
        return (
            "the model server aimock is not installed; `npm ci` in a copy of tests/servers/aimock brings it, "
            f"and {AIMOCK} must be the path of its node_modules/.bin/llmock"
        )
    return "" if os.access(program, os.X_OK) else f"{AIMOCK} is no program: {program}"


@functools.cache
def _bubblewrap() -> str:
    if shutil.which("bwrap") is None:
        return "bubblewrap (the program bwrap) is not installed"
    namespaces = ["--unshare-user", "--unshare-pid", "--unshare-net"]
    probe = ["bwrap", *namespaces, "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"the kernel lets bubblewrap make no sandbox: {done.stderr.strip()}"


NEEDS: Mapping[str, Need] = {
    "bubblewrap": Need(_bubblewrap),
    "npm": Need(_aimock, AIMOCK),
    "recordings": Need(_recordings, SHARED),
}
"""The markers, with what their tests need."""
