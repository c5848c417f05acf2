"""What the tools of ``turnstate chat`` do not read or write without a question, or at all."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from tests.cli.chatting import options
from tests.cli.command import through_pipe
from tests.cli.fake_openai import Answer, Body, Say, fake_openai, last
from turnstate.cli.chat_files import PRIVATE, Folder

KEPT = "what nobody is to know"


def reads(body: Body) -> Answer:
    """The model reads the file that a person names, or lists the folder, or writes the file."""
    message = last(body)
    if message["role"] == "tool":
        return Say("Done.")
    word, _, path = str(message["content"]).partition(" ")
    calls: dict[str, tuple[str, dict[str, str]]] = {
        "read": ("read_file", {"path": path}),
        "list": ("list_files", {"folder": path}),
        "here": ("list_files", {}),
        "write": ("write_file", {"path": path, "content": "overwritten"}),
    }
    return Say("", (calls[word],))


async def told(*lines: str, db: str = "turns.db") -> tuple[str, str]:
    """What a chat printed in which a person types these lines, and all that the model's server got."""
    async with fake_openai(reads) as server:
        async with through_pipe("\n".join(lines), *options(server, "--db", db)) as chat:
            assert await chat.end() == 0
        return chat.text, str(server.requests)


def named(pattern: str) -> str:
    """A name that fits a pattern."""
    return pattern.replace("*", "x")


NAMES = [named(pattern) for patterns in PRIVATE for pattern in patterns]
PATHS = [
    *(".env", ".ENV", "deep/down/.env.local", "a/../.env", "./.env", "server.pem", "id_rsa", "id_rsa.pub"),
    *(".ssh/config", ".aws/credentials", ".netrc", ".git/config", "gh/hosts.yml", ".cargo/credentials.toml"),
]


@pytest.mark.parametrize("at", range(len(NAMES + PATHS)), ids=(NAMES + PATHS).__getitem__)
def test_names_of_secrets(tmp_path: Path, at: int) -> None:
    """A name that tells of a secret is one about which a person is asked, in any case and any folder."""
    path = (NAMES + PATHS)[at]
    assert Folder(tmp_path).is_private(path)
    assert Folder(tmp_path).is_private(f"sub/{path.upper()}")


@pytest.mark.parametrize("path", ["README.md", "environment.py", ".git/HEAD", "config", "key.py", ".", "src/env"])
def test_names_of_other_files(path: str) -> None:
    """Other files are read without a question."""
    assert not Folder(Path("/srv/project")).is_private(path)


@pytest.mark.trio
@pytest.mark.parametrize("path", PATHS)
async def test_a_secret_is_asked_about(tmp_path: Path, path: str) -> None:
    """A person who says no, or is not there, keeps the file; who says yes gives it to the model."""
    file = tmp_path / path
    (tmp_path / "a").mkdir()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(KEPT)
    text, sent = await told(f"read {path}", "n", f"read {path}")
    assert text.count("read_file wants to run:") == 2
    assert "By its name it may hold a secret." in text
    assert text.count("✗ read_file: tool denied") == 2
    assert KEPT not in text + sent
    text, sent = await told(f"read {path}", "y", db="other.db")
    assert f"✓ read_file: {KEPT}" in text
    assert KEPT in sent


@pytest.mark.trio
async def test_a_link_to_a_secret(tmp_path: Path) -> None:
    """Links are followed before the name is looked at, and their own names count too."""
    (tmp_path / ".env").write_text(KEPT)
    (tmp_path / "notes.txt").symlink_to(".env")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "hosts").write_text(KEPT)
    (tmp_path / "keys").symlink_to(".ssh")
    (tmp_path / "plain").write_text(KEPT)
    (tmp_path / "x.pem").symlink_to("plain")
    for line in ("read notes.txt", "read keys/hosts", "list keys", "list .ssh", "read x.pem"):
        text, sent = await told(line)
        assert text.count("wants to run:") == 1
        assert KEPT not in sent
        assert "hosts'" not in sent.replace("keys/hosts'", "")


@pytest.mark.trio
async def test_other_files_are_read(tmp_path: Path) -> None:
    """What tells of no secret is read and listed without a question, with and without the name of a folder."""
    (tmp_path / "a.txt").write_text("hello")
    text, sent = await told("read a.txt", "here", "list .")
    assert "wants to run" not in text
    assert "warning" not in text
    assert sent.count("a.txt") > 2


LINKS = ["turns.db", "turns.db-wal", "turns.db-shm", "sub/../turns.db", "soft", "hard", "hard-wal", "sub/up/turns.db"]


@pytest.mark.trio
@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize("path", [*LINKS, "turns.db-journal"])
async def test_its_own_database(tmp_path: Path, path: str, verb: str) -> None:
    """The files in which the chat is stored are neither read nor written, over links of both kinds and over ``..``."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to("..")
    (tmp_path / "soft").symlink_to("turns.db")
    async with fake_openai(reads) as server:

        def linked(body: Body) -> Answer:
            # The files are there once the chat has begun.
            for made, own in (("hard", "turns.db"), ("hard-wal", "turns.db-wal")):
                if not (tmp_path / made).exists():
                    os.link(tmp_path / own, tmp_path / made)
            return reads(body)

        server.answer = linked
        lines = f"{verb} {path}" + ("\ny" if verb == "write" else "")
        async with through_pipe(lines, *options(server, "--db", "turns.db")) as chat:
            assert await chat.end() == 0
        assert f"{path} belongs to the database of this chat" in chat.text
        assert "SQLite format" not in str(server.requests)
    assert not (tmp_path / "turns.db-journal").exists()
    with sqlite3.connect(tmp_path / "turns.db") as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    database.close()


@pytest.mark.trio
async def test_its_own_database_by_a_link(tmp_path: Path) -> None:
    """A database that was opened by a link is known by its own name, too."""
    (tmp_path / "real.db").touch()
    (tmp_path / "link.db").symlink_to("real.db")
    for path in ("real.db", "link.db", "real.db-wal"):
        text, _ = await told(f"read {path}", db="link.db")
        assert "belongs to the database of this chat" in text
