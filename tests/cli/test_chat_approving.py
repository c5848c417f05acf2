"""What a person sees of a call before they approve it: all of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.chatting import options
from tests.cli.command import Running, at_terminal, through_pipe
from tests.cli.fake_openai import Answer, Body, FakeOpenAI, Say, fake_openai, last
from turnstate.cli.terminal import exact_rows
from turnstate.cli.text import display_width

LONG = "".join(f"echo {number}\n" for number in range(1, 101)) + "rm -rf /\n"


def writing(content: str, path: str = "run.sh") -> FakeOpenAI:
    """A model that writes a file."""

    def answer(body: Body) -> Answer:
        if last(body)["role"] == "tool":
            return Say("Done.")
        return Say("", (("write_file", {"path": path, "content": content}),))

    return FakeOpenAI(answer)


async def asked(chat: Running) -> str:
    """Have the model write; what is shown of that."""
    await chat.until("you> ")
    chat.type("go")
    return await chat.until(" > ")


@pytest.mark.trio
async def test_a_long_call_is_cut_with_a_count(tmp_path: Path) -> None:
    """Of a long call the beginning is shown, with how much is left; v shows all, and then it can be approved."""
    async with fake_openai(writing(LONG).answer) as server, at_terminal(*options(server)) as chat:
        shown = await asked(chat)
        assert "echo 39\n" in shown
        assert "echo 40\n" not in shown
        assert "… 62 more lines: v shows all of it\n" in shown
        assert shown.endswith("[v]iew all first, or [n]o, why > ")
        chat.type("v")
        shown = await chat.until("[a]lways > ")
        assert all(f"echo {number}\n" in shown for number in range(1, 101))
        assert "rm -rf /\n" in shown
        assert "more line" not in shown
        assert not (tmp_path / "run.sh").exists()
        chat.type("y")
        await chat.until("Done.")
    assert (tmp_path / "run.sh").read_text() == LONG


@pytest.mark.trio
@pytest.mark.parametrize("line", ["y", "yes", "a", "e", "e path=b", "1", "", "well"])
async def test_nothing_is_approved_unseen(tmp_path: Path, line: str) -> None:
    """No answer but a denial is taken before all of a call was shown."""
    async with fake_openai(writing(LONG).answer) as server, at_terminal(*options(server)) as chat:
        await asked(chat)
        chat.type(line)
        await chat.until("not all of it was shown yet (62 lines left): v shows all, then answer; or [n]o, why")
        await chat.until("[v]iew all first, or [n]o, why > ")
        assert {name for name in os.listdir(tmp_path) if name not in ("tmp", "state")} == set()
        chat.type("n")
        await chat.until("why not? (Enter: no reason) > ")
        chat.type("v")
        await chat.until("tool denied: v")


@pytest.mark.trio
async def test_a_long_line_counts_as_its_rows(tmp_path: Path) -> None:
    """A call that is long because of one line, of many arguments or of a name is cut as well, and none of it is lost."""
    content = "".join(f"{number:05};" for number in range(1000))
    async with fake_openai(writing(content).answer) as server, at_terminal(*options(server)) as chat:
        shown = await asked(chat)
        assert "more lines: v shows all of it" in shown
        assert "00999" not in shown
        chat.type("v")
        shown = await chat.until("[a]lways > ")
        rows = shown[shown.rindex("content") + len("content") :].split('"')[1].splitlines()
        assert "".join(row.strip().removeprefix("↪") for row in rows) == content


@pytest.mark.trio
async def test_through_a_pipe_nothing_is_cut(tmp_path: Path) -> None:
    """Where nobody looks at a screen all is printed at once, and a line approves it."""
    async with fake_openai(writing(LONG).answer) as server, through_pipe("go\ny\n", *options(server)) as chat:
        assert await chat.end() == 0
    assert all(f" echo {number}\n" in chat.text for number in range(1, 101))
    assert "more line" not in chat.text
    assert (tmp_path / "run.sh").read_text() == LONG


@pytest.mark.trio
async def test_spaces_are_kept(tmp_path: Path) -> None:
    """Spaces at the beginning, in the middle and at the end of a line are shown, also where a row ends."""
    wide = "a" * 60 + " " * 40 + "; rm -rf /"
    content = f"  two  spaces   \n{wide}\n\ttab \u00a0end\n\n\n"
    async with fake_openai(writing(content).answer) as server, through_pipe("go\n", *options(server)) as chat:
        assert await chat.end() == 0
    rows = chat.text[chat.text.index("content") :].splitlines()
    indent = " " * len("      content  ")
    assert rows[0] == "content    two  spaces␠␠␠"
    joined = rows[1].removeprefix(indent) + rows[2].removeprefix(f"{indent}↪")
    assert joined.replace("␠", " ") == wide
    assert joined.count("␠") == 40
    assert rows[3] == f"{indent}\\ttab \\u00a0end"
    assert [row.strip() for row in rows[4:6]] == ["", ""]
    assert rows[6].startswith("  ✗ write_file")


@pytest.mark.parametrize("width", [20, 21, 33])
@pytest.mark.parametrize("text", ["", " ", " " * 50, "a " * 50, "  a" * 30, "宽" * 45, "e\u0301 " * 40, "x" * 20 + " "])
def test_rows_hold_everything(text: str, width: int) -> None:
    """Rows together are the text, none is too wide, and none ends in a blank."""
    rows = exact_rows(text, width)
    assert rows[0][:1] != "↪"
    assert rows[0] + "".join(row[1:] for row in rows[1:] if row[0] == "↪") == "".join(rows).replace("↪", "")
    assert "".join(rows).replace("↪", "").replace("␠", " ") == text
    assert all(display_width(row) <= width and not row.endswith(" ") for row in rows)
