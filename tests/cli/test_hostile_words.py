"""What servers, models and the command line say to fool whoever reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chatting import options
from tests.cli.command import at_terminal, run, through_pipe
from tests.cli.fake_openai import Answer, Body, Fail, Say, fake_openai, last
from tests.cli.hostile import FOOLS, ROUNDS, got_through, storable
from tests.depth import pick
from turnstate import Client, SQLiteStore

BAD = [FOOLS, *ROUNDS]


def argument(text: str) -> str:
    """A text as an argument of a command can hold it."""
    return text.replace("\0", "")


ARGUMENTS: list[Callable[[str], list[str]]] = [
    lambda bad: [bad],
    lambda bad: ["chat", bad],
    lambda bad: ["chat", "--model", bad, f"--{bad}"],
    lambda bad: ["chat", "--model", "m", "--base-url", bad],
    lambda bad: ["chat", "--model", "m", "--base-url", f"http://{bad}/v1"],
    lambda bad: ["chat", "--model", "m", "--api-key", bad],
    lambda bad: ["chat", "--model", "m", "--session", bad],
    lambda bad: ["chat", "--model", "m", "--db", f"no/{bad}"],
    lambda bad: ["chat", "--model", "m", "--import", bad],
    lambda bad: ["sessions", "--db", bad],
    lambda bad: ["sessions", "--search", bad],
    lambda bad: ["sessions", bad],
    lambda bad: ["show", bad],
    lambda bad: ["show", "x", "--db", bad],
    lambda bad: ["diagram", "--format", bad],
    lambda bad: ["diagram", bad],
    lambda bad: ["demo", bad],
    lambda bad: ["demo", "--yes", "--db", f"no/{bad}"],
    lambda bad: ["decode", bad, "x"],
    lambda bad: ["decode", "chat", bad],
]


@pytest.mark.parametrize("at", range(0, len(ARGUMENTS), pick(2, 1)))
def test_arguments(at: int) -> None:
    """Whatever argument of whatever command is not right is said without a character of it that could fool."""
    for bad in BAD:
        done = run(*ARGUMENTS[at](argument(f"x{bad}")), given="hello\n")
        assert got_through(done.stdout + done.stderr) == set()
        assert done.returncode in (0, 1, 2)
        assert (done.stdout + done.stderr).count("\n") == 1


@pytest.mark.parametrize(("model", "path"), [(FOOLS, "v1"), ("m", argument(FOOLS))], ids=["model", "path"])
def test_a_server_that_is_away(model: str, path: str) -> None:
    """The name of a server that does not answer is said cleaned, at each attempt and at the end."""
    done = run("chat", "--model", model, "--base-url", f"http://127.0.0.1:9/{path}", given="hello\n")
    assert got_through(done.stdout + done.stderr) == set()
    assert done.returncode in (1, 2)


def test_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The name of a home directory is shown cleaned, in help too."""
    for bad in BAD:
        home = tmp_path / f"h{storable(argument(bad))}"
        monkeypatch.setenv("XDG_STATE_HOME", str(home))
        for arguments in (["sessions"], ["sessions", "--help"], ["show", "x"]):
            done = run(*arguments)
            assert got_through(done.stdout + done.stderr) == set()
            assert done.stdout + done.stderr


# ---- chat


def hostile(bad: str) -> Callable[[Body], Answer]:
    """A model that answers each line with what it is told to, every text of it bad."""

    def answer(body: Body) -> Answer:
        message = last(body)
        said = str(message["content"])
        if message["role"] == "tool":
            return Say(f"It said: {said}")
        if said.startswith("fail"):
            return Fail(400, f"server{bad}")
        calls: dict[str, tuple[str, dict[str, Any]]] = {
            "tool": (f"tool{bad}", {f"name{bad}": f"value{bad}"}),
            "args": ("write_file", {f"name{bad}": f"value{bad}"}),
            "write": ("write_file", {"path": f"path{bad}", "content": f"content{bad}\nmore{bad}\n"}),
            "read": ("read_file", {"path": f"path{bad}"}),
            "list": ("list_files", {"folder": f"folder{bad}"}),
            "secret": ("read_file", {"path": f".ssh/{bad}"}),
            "ask": ("ask_user", {"question": f"question{bad}"}),
        }
        word = said.partition(" ")[0]
        return Say(f"text{bad}", (calls[word],) if word in calls else ())

    return answer


SPOKEN = [
    *("hello", "tool", "args", "write", "y", "write", "e path=y{bad}", "write", "n why{bad}", "read", "list"),
    *("secret", "n", "ask", "answer{bad}", "say {bad}", "/history all", "/edit other{bad}", "/branch"),
    *("/rename title{bad}", "/sessions", "/sessions none{bad}", "/open to{bad}", "/export to/{bad}", "/branch m{bad}"),
    *("/delete x{bad}", "/fork x{bad}", "/retry x{bad}", "/x{bad}", "/history x{bad}", "/deny {bad}", "fail"),
]


def lines(bad: str) -> list[str]:
    """What a person types."""
    bad = "".join(bad.split("\n"))
    return [line.replace("{bad}", bad) for line in SPOKEN]


WORDS = ("text", "tool", "name", "value", "path", "content", "more", "folder", "question", "answer", "title", "server")
"""What stands beside what is bad: it was shown."""


@pytest.mark.trio
@pytest.mark.parametrize("at", range(0, len(BAD), pick(2, 1)))
async def test_a_conversation(at: int) -> None:
    """Texts, calls, arguments, results, questions, titles and errors are printed without a character that could fool."""
    bad = storable(BAD[at])
    async with fake_openai(hostile(bad)) as server:
        async with through_pipe("\n".join(lines(bad)), *options(server)) as chat:
            assert await chat.end() == 1
        printed = chat.text + run("show", "s").stdout + run("sessions").stdout
        assert got_through(printed) == set()
        assert [word for word in WORDS if word not in printed] == []


@pytest.mark.trio
async def test_at_a_terminal() -> None:
    """So they are where a person sits: there it is streamed, asked, and told who else does something."""
    async with fake_openai(hostile(FOOLS)) as server, at_terminal(*options(server, "--no-tools")) as chat:
        await chat.until("you> ")
        chat.type("hello")
        await chat.until("text")
        await chat.until("you> ")
        async with Client(SQLiteStore("state/turnstate/turnstate.db")) as client:
            await client.session("s").send(f"elsewhere{FOOLS}")
            await chat.until("said elsewhere: ")
            await chat.until("you> ")
        chat.type("fail")
        await chat.until("failed: ")
        await chat.until("you> ")
        chat.type("\x04")
        await chat.end()
    assert got_through(chat.text.replace("^D\x08\x08", "")) == set()
