"""Where the command keeps its files."""

from __future__ import annotations

import os
from pathlib import Path

from turnstate_states.errors import StoreError

__all__ = ["chosen_db", "default_db", "existing_db", "home_short", "make_state_dir", "state_dir"]


def state_dir() -> Path:
    """The directory for state that outlives a run: ``$XDG_STATE_HOME/turnstate``, or ``~/.local/state/turnstate``."""
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~")) / ".local" / "state"
    return root / "turnstate"


def default_db() -> str:
    """The SQLite file that is used if none is named."""
    return str(state_dir() / "turnstate.db")


def home_short(path: str) -> str:
    """A path with ``~`` for the home directory, for people."""
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if home != "/" and path.startswith(f"{home}/") else path


def chosen_db(given: str | None) -> str:
    """The file to write to; the default one's directory is made.

    Raises:
        StoreError: it cannot be made.
    """
    if given is not None:
        return given
    make_state_dir()
    return default_db()


def make_state_dir() -> Path:
    """Make the directory for state, for its user only."""
    folder = state_dir()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        text = f"{folder}: it cannot be made ({error.strerror}): name a file with --db"
        raise StoreError(text) from error
    return folder


def existing_db(given: str | None) -> str | None:
    """The file to read from; None if the default one is not there yet. Reading makes no file.

    Raises:
        StoreError: the file that was named does not exist.
    """
    path = default_db() if given is None else given
    if os.path.exists(path):
        return path
    if given is None:
        return None
    raise StoreError(f"{path}: there is no such file")
