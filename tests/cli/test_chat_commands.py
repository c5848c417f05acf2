"""The commands of ``turnstate chat`` that change the thread, its questions, and what a wrong line gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.cli.chatting import answer, asked, options
from tests.cli.command import at_terminal, run, through_pipe
from tests.cli.fake_openai import Answer, Body, FakeOpenAI, Say, fake_openai
from tests.cli.processes import process_at_terminal
from turnstate import Client, SQLiteStore


async def talk(server: FakeOpenAI, *lines: str, session: str = "s") -> str:
    """A chat through a pipe that goes to its end; what it printed."""
    async with through_pipe("\n".join(lines), *options(server, session=session)) as chat:
        assert await chat.end() == 0
    return chat.text


@pytest.mark.trio
async def test_edit(tmp_path: Path) -> None:
    """/edit says the last message otherwise, or the one that an id or its number names; what followed is not shown."""
    async with fake_openai(answer) as server:
        text = await talk(server, "a river", "its name", "/edit its length", "/edit 1 a lake", "/edit m1 a sea")
        assert [asked(server, at) for at in range(2, 5)] == [["a river", "its length"], ["a lake"], ["a sea"]]
    assert text.endswith("You said its length\nYou said a lake\nYou said a sea\n")


@pytest.mark.trio
async def test_retry(tmp_path: Path) -> None:
    """/retry has the last message answered again, or an earlier one, or gives another reply beside one."""
    async with fake_openai(answer) as server:
        await talk(server, "a river", "a lake", "/retry", "/retry 1", "/retry m2")
        assert [asked(server, at) for at in range(2, 5)] == [["a river", "a lake"], ["a river"], ["a river"]]


@pytest.mark.trio
async def test_branches(tmp_path: Path) -> None:
    """/branch lists the branches with their places and shows another one: before, after, or by a message of it."""
    lines = ["a river", "/edit a lake", "/retry", "/branch", "/branch prev", "/branch m2", "/branch next", "/branch"]
    async with fake_openai(answer) as server:
        text = await talk(server, *lines)
    listed = """\
  2 branches where it begins:
     m1  you  1/2  a river
  →  m3  you  2/2  a lake
  2 branches after m3:
     m4  model  1/2  You said a lake
  →  m5  model  2/2  You said a lake
"""
    first, second = (
        "  you m3 2/2    a lake\n  model m4 1/2  You said a lake\n",
        "  you m1 1/2  a river\n  model m2    You",
    )
    assert listed + first + second in text
    assert text.endswith(listed.replace("→  m5", "   m5").replace("   m4", "→  m4"))
    shown = run("show", "s").stdout
    assert '(m3 is branch 2/2, beside m1 "a river")' in shown
    assert '(m4 is branch 1/2, beside m5 "You said a lake")' in shown


@pytest.mark.trio
async def test_history(tmp_path: Path) -> None:
    """/history lists the visible messages with their ids and calls; a count cuts it, and says so."""
    async with fake_openai(answer) as server:
        text = await talk(server, "read", "a river", "/edit a lake", "/history", "/history 1", "/history all")
    rows, cut, again = text[text.index("     m1") :].partition("(4 more before these)\n")
    first, calls, *rest = rows.splitlines()
    assert first == "     m1   you         read"
    assert calls.startswith("     m2   model       → list_files(")
    assert rest[1:] == ["     m9   you    2/2  a lake", "     m10  model       You said a lake"]
    assert cut
    assert again == f"     m10  model  You said a lake\n{rows}"


@pytest.mark.trio
async def test_delete(tmp_path: Path) -> None:
    """/delete takes a message out: the next request does not have it."""
    async with fake_openai(answer) as server:
        text = await talk(server, "a secret", "a river", "/delete m1", "/delete 2", "a lake")
        assert asked(server) == ["a river", "a lake"]
    assert "(m1 is gone)\n  you m3    a river\n" in text


@pytest.mark.trio
async def test_help(tmp_path: Path) -> None:
    """/help has a line for each command."""
    async with fake_openai(answer) as server:
        rows = (await talk(server, "/help")).splitlines()
    names = "edit retry branch history delete fork sessions open rename archive export deny dismiss help"
    assert [row.split()[0] for row in rows if row.startswith("  /")] == [f"/{name}" for name in names.split()]


@pytest.mark.trio
async def test_what_is_no_command(tmp_path: Path) -> None:
    """A path is a message, and two slashes say a line that begins with one."""
    async with fake_openai(answer) as server:
        text = await talk(server, "/etc/hosts is what?", "//help me")
    assert text == "You said /etc/hosts is what?\nYou said /help me\n"


REFUSED = [
    ("/branches", "there is no command /branches; /help lists them (to say it to the model, write //branches)"),
    ("/edit", "write /edit [MESSAGE] TEXT"),
    ("/edit m1", "write /edit [MESSAGE] TEXT"),
    ("/edit 99 hello", "there is no message 99 here; /history lists them"),
    ("/edit m2 hello", "message: m2 is not a person's; edit one of theirs, or regenerate an answer"),
    ("/retry m99", "there is no message m99 here; /history lists them"),
    ("/retry now", "there is no message now here; /history lists them"),
    ("/branch", "(there is one branch only; /edit and /retry make others)"),
    ("/branch next", "there is one branch only; /edit and /retry make others"),
    ("/branch 1/2", "there is no message 1/2 here; /history lists them"),
    ("/history few", "write /history [COUNT|all]"),
    ("/delete", "write /delete MESSAGE"),
    ("/delete m99", "there is no message m99 here; /history lists them"),
    ("/fork m99", "there is no message m99 here; /history lists them"),
    ("/sessions lake", '(no title holds "lake")'),
    ("/open", "write /open SESSION"),
    ("/open s", "you are in s"),
    ("/open t", "there is no session 't'; /sessions lists them"),
    ("/open \t\x07", "session id"),
    ("/rename", "write /rename TITLE"),
    ("/archive s", "write /archive"),
    ("/export", "write /export FILE"),
    ("/export no/where", "no/where cannot be written: No such file or directory"),
    ("/export there", "there exists already; name another file"),
    ("/deny", "nothing is asked now"),
    ("/dismiss", "nothing is asked now"),
    ("/dismiss now", "write /dismiss"),
]


@pytest.mark.trio
async def test_refusals(tmp_path: Path) -> None:
    """A command that cannot be carried out is one line that says why, and the chat goes on."""
    (tmp_path / "there").write_text("mine")
    lines = ["a river", *(line for line, _ in REFUSED), "a lake"]
    async with fake_openai(answer) as server:
        text = await talk(server, *lines)
        assert len(server.requests) == 2
    told = " ".join(text.split())
    assert told.startswith("You said a river ")
    assert told.endswith(" You said a lake")
    for line, expected in REFUSED:
        found, expected, told = told.partition(expected)
        assert expected, f"{line}: {found}"
    assert (tmp_path / "there").read_text() == "mine"


@pytest.mark.trio
async def test_before_anything_was_said(tmp_path: Path) -> None:
    """In a new session there is nothing to change, and that is what each command says."""
    async with fake_openai(answer) as server:
        lines = ["/edit x", "/retry", "/branch", "/history", "/delete 1", "/fork", "/export x", "/sessions"]
        text = await talk(server, *lines)
    assert text == "nothing was said yet\n" * 7 + "(no session is stored yet)\n"


@pytest.mark.trio
async def test_while_it_works(tmp_path: Path) -> None:
    """While the model works the thread is read and not changed; the turn goes on."""
    gate = trio.Event()

    def slowly(body: Body) -> Answer:
        return Say("One moment", gate=gate)

    async with fake_openai(slowly) as server, at_terminal(*options(server)) as chat:
        await chat.until("you> ")
        chat.type("a river")
        await chat.until("One")
        for line in ("/edit a lake", "/retry", "/branch m1", "/delete m1"):
            chat.type(line)
            await chat.until("a model is reading this history: wait until the turn has ended, or interrupt it")
        chat.type("/history")
        await chat.until("m1  you  a river")
        gate.set()
        await chat.until(" moment")
        await chat.until("you> ")


@pytest.mark.trio
async def test_at_a_question(tmp_path: Path) -> None:
    """At a question lists are shown and it is asked again; a change of the thread ends it."""
    async with fake_openai(answer) as server, at_terminal(*options(server)) as chat:
        await chat.until("you> ")
        chat.type("write")
        await chat.until("[a]lways > ")
        chat.type("/history")
        await chat.until("m1  you    write")
        await chat.until("[a]lways > ")
        chat.type("/edit a lake")
        await chat.until("✗ write_file: not run")
        await chat.until("(superseded)\nYou said a lake\n\nyou> ")
        chat.type("/branch prev")
        await chat.until("model m2    I write it.\n\nyou> ")
        chat.type("please write")
        await chat.until("[a]lways > ")
        chat.type("/branch prev")
        await chat.until("m1 is the first of 2")
        await chat.until("[a]lways > ")
        chat.type("/branch m4")
        await chat.until("(superseded)\n  you m4 2/2  a lake\n  model m5    You said a lake\n\nyou> ")
    assert not (tmp_path / "notes").exists()


@pytest.mark.trio
async def test_a_question_of_the_model(tmp_path: Path) -> None:
    """What the model asks a person is asked, and what they type is the result; /deny gives none."""
    async with fake_openai(answer) as server:
        text = await talk(server, "ask me", "", "Lisbon, please", "ask again", "/deny not now", "ask", "/dismiss")
    question = '  ask_user asks you:\n      question  "Which city?"\n'
    assert text.startswith(
        f"{question}  write your answer\n  ✓ ask_user: Lisbon, please\nThe tool said: Lisbon, please\n"
    )
    assert "✗ ask_user: tool denied: not now" in text
    assert "this request cannot be dismissed" in text
    assert text.endswith("The tool said: tool denied: nobody was there to answer: the input had ended\n")


@pytest.mark.trio
async def test_killed_at_a_question_of_the_model(tmp_path: Path) -> None:
    """Killed while the model waits for an answer, the next start asks again; sessions and show say what is open."""
    async with fake_openai(answer) as server:
        async with process_at_terminal(tmp_path, *options(server)) as chat:
            await chat.until("you> ")
            chat.type("ask me")
            await chat.until("your answer, or /deny > ")
            await chat.kill()
        assert "  1 question  ask me" in run("sessions", "--waiting").stdout
        assert '  open      ask_user(question="Which city?")  asked today ' in run("show", "s").stdout
        async with at_terminal(*options(server)) as chat:
            await chat.until("1 question open since ")
            await chat.until("your answer, or /deny > ")
            chat.type("//home")
            await chat.until("The tool said: /home")


@pytest.mark.trio
async def test_a_change_from_elsewhere(tmp_path: Path) -> None:
    """When another process shows another branch or says something, the chat says so and shows it."""
    async with fake_openai(answer) as server, process_at_terminal(tmp_path, *options(server)) as chat:
        await chat.until("you> ")
        chat.type("a river")
        await chat.until("you> ")
        chat.type("/edit a lake")
        await chat.until("You said a lake\n\nyou> ")
        async with Client(SQLiteStore(tmp_path / "state" / "turnstate" / "turnstate.db")) as client:
            await client.session("s").switch("m1")
            await chat.until("(the thread was changed elsewhere; it ends like this now)\n  you m1 1/2  a river\n")
            await chat.until("you> ")
            await client.session("s").send("a sea")
            await chat.until("(said elsewhere: a sea)\nYou said a sea\n\nyou> ")
        chat.type("\x04")
        assert await chat.end() == 0
