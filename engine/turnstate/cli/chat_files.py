"""Which files the tools of ``turnstate chat`` may touch, and about which a person is asked before they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import translate
from itertools import pairwise
from pathlib import Path

import attrs

from ..errors import ToolError

__all__ = ["Folder"]

PRIVATE = (
    (".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "*.kdbx"),
    ("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh", ".gnupg", ".password-store"),
    (".aws", ".azure", ".kube", ".docker", "gcloud", "*.tfstate", "*.tfstate.backup", ".vault-token"),
    (".netrc", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials"),
    ("credentials", "credentials.*", "secrets", "secrets.*", "*_history"),
)
"""Names of files and folders that hold keys and passwords by custom."""
PRIVATE_IN = {".git": {"config", "credentials"}, "gh": {"hosts.yml"}, ".cargo": {"credentials", "credentials.toml"}}
"""Those whose names say it only together with the folder's."""
IS_PRIVATE = re.compile("|".join(translate(name) for names in PRIVATE for name in names))
STORE = ("", "-wal", "-shm", "-journal")
"""A SQLite database and the files that belong to it, by what their names end in."""


@attrs.frozen
class Folder:
    """The folder that the tools may touch, its links followed.

    Args:
        root: the folder, resolved.
        store: the database in which this chat is stored; nothing in it is for the tools.
    """

    root: Path
    store: Path | None = None

    def inside(self, path: str) -> Path:
        """The file that a path names; links are followed first, so that none leads outside.

        Raises:
            ToolError: it is outside of the folder, or belongs to the database of this chat.
        """
        try:
            found = (self.root / path).resolve()
        except (OSError, ValueError) as error:
            raise ToolError(f"{path!r} is no path that can be used") from error
        if not found.is_relative_to(self.root):
            raise ToolError(f"{path} is outside of the working directory; use paths below it")
        # Not even opened: who closes a file of SQLite's ends the locks that this process has on it.
        if any(_is_same(found, own) for own in self._stored()):
            raise ToolError(f"{path} belongs to the database of this chat, which is not for tools")
        return found

    def is_private(self, path: str) -> bool:
        """Whether a name on the way to a file says that it may hold a secret: the one given, or one behind links."""
        try:
            found = (self.root / path).resolve()
        except (OSError, ValueError):
            return False  # it cannot be opened either
        return any(map(_holds_secrets, (Path(os.path.normpath(path)), found)))

    def _stored(self) -> Iterator[Path]:
        if self.store is not None:
            database = self.store.resolve()
            yield from (database.with_name(f"{database.name}{end}") for end in STORE)


def _is_same(found: Path, own: Path) -> bool:
    """Whether it is the same file, over hard links too; a name counts where nothing is there yet."""
    try:
        return found == own or found.samefile(own)
    except OSError:
        return False


def _holds_secrets(path: Path) -> bool:
    parts = [part.casefold() for part in path.parts]
    pairs = pairwise(parts)
    return any(map(IS_PRIVATE.match, parts)) or any(name in PRIVATE_IN.get(folder, ()) for folder, name in pairs)
