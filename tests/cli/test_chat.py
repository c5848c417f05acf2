"""``turnstate chat`` against a small server, through pipes and at a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.cli.chatting import answer, options
from tests.cli.command import at_terminal, run, through_pipe
from tests.cli.fake_openai import Answer, Body, Fail, Say, fake_openai
from tests.cli.processes import process_at_terminal


@pytest.mark.trio
async def test_a_line_is_a_message(tmp_path: Path) -> None:
    """Each piped line is a message, and the answers are printed."""
    async with fake_openai(answer) as server, through_pipe("hello\nagain", *options(server)) as chat:
        assert await chat.end() == 0
    assert chat.text == "You said hello\nYou said again\n"
    assert [message["role"] for message in server.requests[1]["messages"]] == ["system", "user", "assistant", "user"]


@pytest.mark.trio
async def test_reading_is_free_within_the_directory(tmp_path: Path) -> None:
    """Listing and reading need no approval, and a path outside is an error for the model."""
    (tmp_path / "a.txt").write_text("the text")
    (tmp_path.parent / "secret").write_text("the secret")
    async with fake_openai(answer) as server, through_pipe("read", *options(server)) as chat:
        assert await chat.end() == 0
    assert "✓ read_file: the text" in chat.text
    assert "✗ read_file: ../secret is outside of the working directory" in chat.text
    assert "the secret" not in str(server.requests)


@pytest.mark.trio
async def test_approvals(tmp_path: Path) -> None:
    """Yes, no with a reason, edit, always, and the end of the input each do what they say."""
    lines = "\n".join(["write", "no", "write", "n too early", "write", "e path=b.txt", "write", "a", "write", "write"])
    async with fake_openai(answer) as server, through_pipe(lines, *options(server)) as chat:
        assert await chat.end() == 0
    denied = [part for part in chat.text.split("\n") if "✗" in part]
    assert denied == [
        "  ✗ write_file: tool denied: the user declined",
        "  ✗ write_file: tool denied: too early",
    ]
    assert chat.text.count("wants to run") == 4
    assert chat.text.count("✓ write_file: wrote notes/todo.txt") == 3
    assert (tmp_path / "b.txt").read_text() == (tmp_path / "notes" / "todo.txt").read_text() == "milk\nbread\n"


@pytest.mark.trio
async def test_the_input_ends_at_a_question(tmp_path: Path) -> None:
    """At the end of the input what is asked is denied, with that as the reason, and the turn goes to its end."""
    async with fake_openai(answer) as server, through_pipe("write", *options(server)) as chat:
        assert await chat.end() == 0
    assert "tool denied: nobody was there to answer" in chat.text
    assert not (tmp_path / "notes").exists()


@pytest.mark.trio
async def test_a_steer(tmp_path: Path) -> None:
    """A line typed while it works joins the running turn."""
    gate = trio.Event()

    def slowly(body: Body) -> Answer:
        return Say("One moment", gate=gate) if len(server.requests) == 1 else answer(body)

    async with fake_openai(slowly) as server, at_terminal(*options(server)) as chat:
        await chat.until("you> ")
        chat.type("hello")
        await chat.until("One")
        chat.type("be quick")
        await chat.until("(it joins at the next step)")
        gate.set()
        await chat.until("You said be quick")
        await chat.until("you> ")
        chat.type("\x04")
        assert await chat.end() == 0
    assert "Come back with: turnstate chat" in chat.text
    show = run("show", "s").stdout
    assert "complete: completed, turn t1, 2 steps" in show


@pytest.mark.trio
async def test_killed_at_a_question(tmp_path: Path) -> None:
    """Killed while a person is asked, the next start says since when and asks again; the answer counts."""
    async with fake_openai(answer) as server:
        async with process_at_terminal(tmp_path, *options(server)) as chat:
            await chat.until("you> ")
            chat.type("write")
            await chat.until("[a]lways > ")
            await chat.kill()
        async with at_terminal(*options(server)) as chat:
            await chat.until("1 approval open since ")
            await chat.until("[a]lways > ")
            chat.type("maybe")
            await chat.until("answer y, n REASON")
            await chat.until("[a]lways > ")
            chat.type("e")
            await chat.until("change what?")
            chat.type("path=c.txt")
            await chat.until("The tool said: wrote c.txt")
    assert (tmp_path / "c.txt").read_text() == "milk\nbread\n"
    assert len(server.requests) == 2


@pytest.mark.trio
async def test_killed_in_the_middle_of_a_reply(tmp_path: Path) -> None:
    """A turn whose process was killed goes on by itself at the next start."""

    def slowly(body: Body) -> Answer:
        return Say("One moment", gate=trio.Event()) if len(server.requests) == 1 else answer(body)

    async with fake_openai(slowly) as server:
        async with process_at_terminal(tmp_path, *options(server)) as chat:
            await chat.until("you> ")
            chat.type("hello")
            await chat.until("One")
            await chat.kill()
        async with through_pipe("", *options(server)) as again:
            assert await again.end() == 0
    assert "a turn was cut off (streaming, today " in again.text
    assert "You said hello" in again.text


@pytest.mark.trio
async def test_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C interrupts the turn; Enter goes on with it; Ctrl-C twice leaves with 130."""
    gates = [trio.Event(), trio.Event()]
    gates[1].set()

    def slowly(body: Body) -> Answer:
        return Say("Once upon a time", gate=gates[len(server.requests) - 1])

    async with fake_openai(slowly) as server, process_at_terminal(tmp_path, *options(server)) as chat:
        await chat.until("you> ")
        chat.type("a story")
        await chat.until("Once")
        chat.interrupt()
        await chat.until("(interrupted; Enter goes on with it, or say something else)")
        await chat.until("you> ")
        chat.type("")
        await chat.until("Once upon a time")
        await chat.until("you> ")
        chat.interrupt()
        await chat.until("(Ctrl-C again leaves; so does Ctrl-D)")
        chat.interrupt()
        assert await chat.end() == 130
    assert "Come back with: turnstate chat" in chat.text
    assert "Traceback" not in chat.text


@pytest.mark.trio
async def test_leaving_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    """Ctrl-D while it works leaves at once, and the turn goes on at the next start."""

    def slowly(body: Body) -> Answer:
        return Say("One moment", gate=trio.Event()) if len(server.requests) == 1 else answer(body)

    async with fake_openai(slowly) as server:
        async with at_terminal(*options(server)) as chat:
            await chat.until("you> ")
            chat.type("hello")
            await chat.until("One")
            chat.type("\x04")
            assert await chat.end() == 0
        assert "The turn has not ended; it goes on when you come back." in chat.text
        async with through_pipe("", *options(server)) as chat:
            assert await chat.end() == 0
    assert "You said hello" in chat.text


@pytest.mark.trio
async def test_a_broken_attempt_is_void(tmp_path: Path) -> None:
    """A reply that breaks off is said to be void and comes again."""

    def breaking(body: Body) -> Answer:
        return Say("Once upon a time", cut=len(server.requests) == 1)

    async with fake_openai(breaking) as server, through_pipe("a story", *options(server)) as chat:
        assert await chat.end() == 0
    assert "what came so far is void; trying again in " in chat.text
    assert chat.text.endswith("Once upon a time\n")


@pytest.mark.trio
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fail(401, "bad key"), "the server refused the API key (401): bad key"),
        (Fail(404, "no model 'fake'"), "no model 'fake' (404)"),
    ],
)
async def test_a_server_that_refuses(tmp_path: Path, fault: Fail, text: str) -> None:
    """A refused key and an unknown model are one line; what was said is kept, and Enter goes on with it."""
    faults: list[Answer] = [fault]

    def once(body: Body) -> Answer:
        return faults.pop() if faults else answer(body)

    async with fake_openai(once) as server:
        chosen = options(server, "--api-key", "not-a-real-key")
        async with through_pipe("hello\nnever sent", *chosen) as chat:
            assert await chat.end() == 1
        assert chat.text == f"turnstate: {text} (session s keeps what was said)\n"
        async with through_pipe("\n", *chosen) as chat:
            assert await chat.end() == 0
    assert "the last turn ended as failed" in chat.text
    assert "You said hello" in chat.text


@pytest.mark.trio
async def test_a_session_that_another_process_drives(tmp_path: Path) -> None:
    """A second chat on one session is refused in one line, and the first goes on."""
    async with fake_openai(answer) as server, process_at_terminal(tmp_path, *options(server)) as first:
        await first.until("you> ")
        async with through_pipe("hello", *options(server)) as second:
            assert await second.end() == 1
        assert second.text.startswith("turnstate: ")
        assert second.text.count("\n") == 1
        first.type("hello")
        await first.until("You said hello")
