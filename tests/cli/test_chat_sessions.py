"""Going from one session to another in ``turnstate chat``, and taking a thread elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from tests.cli.chatting import answer, asked, options
from tests.cli.command import at_terminal, run, through_pipe
from tests.cli.fake_openai import Answer, Body, FakeOpenAI, Say, fake_openai, last


async def talk(server: FakeOpenAI, *lines: str, session: str = "s") -> str:
    """A chat through a pipe that goes to its end; what it printed."""
    async with through_pipe("\n".join(lines), *options(server, session=session)) as chat:
        assert await chat.end() == 0
    return chat.text


def listed(*more: str) -> list[str]:
    """The sessions that are listed, with their titles."""
    rows = run("sessions", *more).stdout.splitlines()[1:]
    return [f"{row.split()[0]}: {row.split('  ')[-1].strip()}" for row in rows]


@pytest.mark.trio
async def test_fork(tmp_path: Path) -> None:
    """/fork goes on in a new session with what was said up to there; the first one stays as it is."""
    async with fake_openai(answer) as server, at_terminal(*options(server)) as chat:
        await chat.until("you> ")
        chat.type("a river")
        await chat.until("you> ")
        chat.type("a lake")
        await chat.until("you> ")
        chat.type("/fork 2")
        await chat.until("(forked from s, which stays as it is)\nsession s-")
        fork = "s-" + (await chat.until("\n")).strip()
        await chat.until("  you m1    a river\n  model m2  You said a river\n\nyou> ")
        chat.type("a sea")
        await chat.until("You said a sea")
        assert asked(server) == ["a river", "a sea"]
        chat.type("\x04")
        assert await chat.end() == 0
        assert f"--session {fork}" in " ".join(chat.text.split())
    assert listed() == ["s: a river", f"{fork}: a river"]
    assert "a lake" in run("show", "s").stdout


@pytest.mark.trio
async def test_fork_without_a_place(tmp_path: Path) -> None:
    """Without a message the fork has all that was said; what is asked stays with the first session."""
    async with fake_openai(answer) as server:
        text = await talk(server, "a river", "write", "/fork", "/edit a lake")
        assert asked(server) == ["a river", "a lake"]
    assert "(the turn in s waits for an answer)\n" in text
    assert text.endswith("You said a lake\n")
    assert "  1 approval  a river" in run("sessions", "--waiting").stdout


@pytest.mark.trio
async def test_sessions_and_open(tmp_path: Path) -> None:
    """/sessions lists them, what changed last first, or looks for a text in titles; /open goes to another one."""
    async with fake_openai(answer) as server:
        await talk(server, "Name a river")
        text = await talk(server, "Name a lake", "/sessions", "/sessions RIVER", "/open s", "Another", session="t")
        assert asked(server) == ["Name a river", "Another"]
    rows = [row.split() for row in text.splitlines()]
    heads = [at for at, row in enumerate(rows) if row[:1] == ["SESSION"]]
    assert [row[0] for row in rows[heads[0] + 1 : heads[1]]] == ["t", "s"]
    assert rows[heads[0] + 1][:2] == ["t", "(here)"]
    assert [row[0] for row in rows[heads[1] + 1 : heads[1] + 3]] == ["s", "You"]


@pytest.mark.trio
async def test_rename_and_archive(tmp_path: Path) -> None:
    """/rename gives another title; /archive takes the session off the list, and puts it back."""
    async with fake_openai(answer) as server:
        text = await talk(server, "a river", "/rename My  rivers", "/archive")
        assert text.endswith('(its title is "My rivers" now)\n(archived: /sessions does not list it any more)\n')
        assert listed() == []
        assert listed("--archived") == ["s: My rivers"]
        assert "(it is listed again)" in await talk(server, "/archive")
    assert listed() == ["s: My rivers"]


@pytest.mark.trio
async def test_a_turn_goes_on_elsewhere(tmp_path: Path) -> None:
    """Who opens another session leaves a working turn alone: it is at its end, or still at work, when they come back."""
    gate = trio.Event()

    def slowly(body: Body) -> Answer:
        slow = last(body)["content"] == "a river"
        return Say("One moment", gate=gate) if slow else answer(body)

    async with fake_openai(slowly) as server:
        await talk(server, "a lake", session="t")
        async with at_terminal(*options(server)) as chat:
            await chat.until("you> ")
            chat.type("a river")
            await chat.until("One")
            chat.type("/open t")
            await chat.until("(the turn in s goes on)\nsession t\n")
            await chat.until("you> ")
            chat.type("/open s")
            await chat.until("a turn is running\nOne")
            chat.type("/open t")
            await chat.until("you> ")
            gate.set()
            chat.type("a sea")
            await chat.until("You said a sea\n\nyou> ")
            chat.type("/open s")
            await chat.until("model m2  One moment\n\nyou> ")
        assert "One moment" not in chat.text[chat.text.index("session t") : chat.text.index("session s\n")]


@pytest.mark.trio
async def test_a_session_in_use(tmp_path: Path) -> None:
    """A session that another process drives is refused in one line, and the chat goes on where it is."""
    async with fake_openai(answer) as server, at_terminal(*options(server)) as first:
        await first.until("you> ")
        first.type("a river")
        await first.until("you> ")
        text = await talk(server, "/open s", "a lake", session="t")
    refused, *rest = text.splitlines()
    assert "s" in refused
    assert " ".join(rest).endswith("You said a lake")


@pytest.mark.trio
async def test_export_and_import(tmp_path: Path) -> None:
    """/export writes all branches to a file, and chat --import begins a session with them."""
    async with fake_openai(answer) as server:
        text = await talk(server, "a river", "/edit a lake", "/export lakes.json")
        assert text.endswith("(wrote 4 messages to lakes.json)\n")
        async with through_pipe("a sea\n/branch 1\n", *options(server, "--import", "lakes.json", session="t")) as chat:
            assert await chat.end() == 0
        assert asked(server) == ["a lake", "a sea"]
        assert chat.text == "You said a sea\n  you m1 1/2  a river\n  model m2    You said a river\n"
    assert listed() == ["s: a river", "t: a river"]


@pytest.mark.trio
async def test_import_at_a_terminal(tmp_path: Path) -> None:
    """What was left out of an import is told, and what is there is shown."""
    message = {"id": "a", "parent": None, "turn": "", "role": "user", "parts": [{"type": "text", "text": "a river"}]}
    lost = {**message, "id": "b", "parent": "nowhere"}
    thread = {"messages": [{**each, "created_at": 0.0} for each in (message, lost)]}
    (tmp_path / "x.json").write_text(json.dumps(thread))
    async with fake_openai(answer) as server, at_terminal(*options(server, "--import", "x.json")) as chat:
        await chat.until("warning: left out, because what they follow is missing: b")
        await chat.until("1 message so far")
        await chat.until("you a  a river")
        await chat.until("you> ")
        chat.type("/edit a a lake")
        await chat.until("You said a lake")


WRONG = [
    ("no such file", "none.json", 2, "none.json cannot be read: No such file or directory"),
    ("no thread", "other.json", 2, "this is not an exported thread"),
    ("no JSON", "text", 2, "thread"),
    ("there already", "good.json", 1, "session s exists already; choose another id"),
]


@pytest.mark.trio
@pytest.mark.parametrize(("file", "code", "text"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
async def test_what_cannot_be_imported(tmp_path: Path, file: str, code: int, text: str) -> None:
    """A file that cannot be imported is one line that says why, and nothing is begun."""
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "text").write_text("what is this?")
    async with fake_openai(answer) as server:
        await talk(server, "a river", "/export good.json")
        async with through_pipe("a lake\n", *options(server, "--import", file)) as chat:
            assert await chat.end() == code
        assert len(server.requests) == 1
    assert chat.text.startswith("turnstate: ")
    assert text in chat.text
    assert chat.text.count("\n") == 1
    assert listed() == ["s: a river"]
