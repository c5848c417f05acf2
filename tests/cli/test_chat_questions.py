"""How ``turnstate chat`` asks what a tool wants to know: options, texts, several questions, and what a line means there."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
import trio

from tests.cli.command import PATIENCE
from turnstate import Agent, Engine, MemoryStore, Option, Prompt, Question, Tool, ToolContext, tool
from turnstate.cli.chat import Chat
from turnstate.cli.chat_view import View
from turnstate.cli.lines import LineReader
from turnstate.cli.terminal import Terminal
from turnstate.testing import ScriptedModel, call

SEATS = (Option("w", label="Window", description="with a view"), Option("a", label="Aisle"), Option("any", "_any"))
RIGHTS = (
    Option("once", label="This time"),
    Option("ever", "allow-always"),
    Option("no", "reject-once", label="Never"),
    Option("ask", "_later", label="Later"),
)


def asking(prompt: Prompt, *, outside: bool = False) -> Tool[..., Any]:
    """A tool about which people are asked like this; its result says what they answered."""

    @tool(name="book", approval=True, prompt=prompt, outside=outside)
    async def book(ctx: ToolContext[Any], to: str) -> str:
        said = ctx.decision
        if said is None:
            return "nobody was asked"
        answers = {name: given["options"] or given["text"] for name, given in said.answers.items()}
        return f"{to}: {said.option or '-'} / {said.text or '-'} / {answers or '-'} / {said.reason or '-'}"

    return book


async def no_signals() -> AsyncGenerator[int]:
    """Nobody presses Ctrl-C."""
    await trio.sleep_forever()
    yield 0


async def talk(
    asked: Tool[..., Any], *lines: str, times: int = 1, interactive: bool = False, to: str = "Rome"
) -> list[str]:
    """The rows that a chat printed in which the model calls the tool and a person types these lines."""
    calls = [call("book", to=to) for _ in range(times)]
    printed = io.BytesIO()
    read, write = os.pipe()
    os.write(write, "\n".join(["go", *lines]).encode())
    os.close(write)
    signals: AsyncIterator[int] = no_signals()
    agent = Agent[None](ScriptedModel([*calls, "Done."]), tools=[asked])
    try:
        async with Engine(agent, MemoryStore()) as engine:
            view = View(Terminal(io.TextIOWrapper(printed, "utf-8")), interactive=interactive)
            with trio.fail_after(PATIENCE):
                await Chat(engine, view, LineReader(read), signals).run("s")
    finally:
        os.close(read)
    return printed.getvalue().decode().splitlines()


def results(rows: list[str]) -> list[str]:
    """What was asked, what was wrong with a line, and what became of the calls."""
    return [row.strip() for row in rows if row.startswith("  ") and not row.startswith("     ")][1:]


SELECT = Prompt("Which seat?", SEATS, display="select")
FREE = Prompt("Which seat?", SEATS, display="select", freeform=True, dismissible=True)
DECIDE = Prompt("Book it?", RIGHTS)
NOTED = Prompt("Book it?", RIGHTS, freeform=True, dismissible=True)
TEXT = Prompt("For whom?", display="text", dismissible=True)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("prompt", "line", "result"),
    [
        (SELECT, "2", "✓ book: Rome: a / - / - / -"),
        (SELECT, "window", "✓ book: Rome: w / - / - / -"),
        (SELECT, "A", "✓ book: Rome: a / - / - / -"),
        (SELECT, "3", "✓ book: Rome: any / - / - / -"),
        (SELECT, "/deny I stay", "✗ book: tool denied: I stay"),
        (FREE, "4", "✓ book: Rome: - / 4 / - / -"),
        (FREE, "near the door", "✓ book: Rome: - / near the door / - / -"),
        (FREE, "//door", "✓ book: Rome: - / /door / - / -"),
        (FREE, "/dismiss", "✗ book: tool denied: the user dismissed the question"),
        (TEXT, "Ana, please", "✓ book: Rome: - / Ana, please / - / -"),
        (DECIDE, "1", "✓ book: Rome: once / - / - / -"),
        (DECIDE, "1 but hurry", "✓ book: Rome: once / - / - / but hurry"),
        (DECIDE, "3 too far", "✗ book: tool denied: too far"),
        (DECIDE, "y", "✓ book: Rome: - / - / - / -"),
        (DECIDE, "n too far", "✗ book: tool denied: too far"),
        (DECIDE, "e to=Bari", "✓ book: Bari: - / - / - / -"),
        (NOTED, "1 by train", "✓ book: Rome: once / by train / - / -"),
        (NOTED, "y, by train", "✓ book: Rome: - / by train / - / -"),
        (NOTED, "/dismiss", "✗ book: tool denied: the user dismissed the question"),
    ],
)
async def test_one_line(prompt: Prompt, line: str, result: str) -> None:
    """A number, a name, words of one's own, a command: each is the answer that it looks like."""
    rows = await talk(asking(prompt), line)
    assert results(rows)[-1] == result
    assert rows[-1] == "Done."


@pytest.mark.trio
async def test_what_is_shown() -> None:
    """The call is shown with its arguments, the question, and the options with their numbers."""
    rows = await talk(asking(SELECT), "1")
    assert rows[:6] == [
        "  book asks you:",
        '      to  "Rome"',
        "    Which seat?",
        "      1 Window: with a view",
        "      2 Aisle",
        "      3 any",
    ]


@pytest.mark.trio
@pytest.mark.parametrize(
    ("prompt", "lines", "wrong"),
    [
        (SELECT, ["", "4", "middle", "1 2", "1"], ["choose 1-3", "choose 1-3", "choose 1-3", "choose one of them"]),
        (FREE, ["", "1"], ["choose 1-3, or your own words"]),
        (TEXT, ["", "Ana"], ["write your answer"]),
        (SELECT, ["/dismiss", "1"], ["verdict: this request cannot be dismissed; approve or deny it"]),
        (DECIDE, ["e to=1x y", "1"], ["'y' is not name=value: write such pairs, or a JSON object"]),
        (DECIDE, ["e wrong=1", "y"], ["arguments: bad arguments for book: "]),
    ],
)
async def test_wrong_lines(prompt: Prompt, lines: list[str], wrong: list[str]) -> None:
    """A line that is no answer is told what one would be, and it is asked again."""
    *told, result = results(await talk(asking(prompt), *lines))
    told = [row for row in told if not row.startswith("→") and row != prompt.text]
    assert len(told) == len(wrong)
    assert all(row.startswith(expected) for row, expected in zip(told, wrong, strict=True))
    assert result.startswith("✓ book: ")


@pytest.mark.trio
async def test_a_decision_without_an_answer() -> None:
    """A line that decides nothing is told what would, with the numbers of the options."""
    rows = await talk(asking(DECIDE), "well", "1")
    assert "choose 1-4, or answer y, n REASON, e NAME=VALUE or a (always" in " ".join(rows)


@pytest.mark.trio
async def test_an_option_for_the_session() -> None:
    """An option that allows always is not asked about again."""
    rows = await talk(asking(DECIDE), "2", times=2)
    assert sum("wants to run" in row for row in rows) == 1
    assert results(rows)[-1] == "✓ book: nobody was asked"


@pytest.mark.trio
@pytest.mark.parametrize(("line", "result"), [("y", "✓ book: Rome: ask / - / - / -"), ("n", "✗ book: tool denied:")])
async def test_an_option_of_the_hosts_own(line: str, result: str) -> None:
    """Where an option says neither, it is asked whether the call runs then."""
    rows = await talk(asking(DECIDE), "4", "what?", line)
    assert "answer y or n" in results(rows)
    assert results(rows)[-1].startswith(result)


SEVERAL = Prompt(
    "Some questions.",
    display="questions",
    questions=(
        Question("seat", "Which seat?", SEATS[:2]),
        Question("meals", "Which meals?", (Option("b"), Option("l"), Option("d")), multiple=True),
        Question("name", "For whom?"),
    ),
)


@pytest.mark.trio
async def test_several_questions() -> None:
    """Questions are asked one after the other, and the answers given together."""
    rows = await talk(asking(SEVERAL), "2", "x", "1, 3", "Ana")
    for text in (
        "    Some questions.",
        "    1/3 Which seat?",
        "    2/3 Which meals?",
        "    3/3 For whom?",
        "      3 d",
    ):
        assert rows.count(text) == 1
    answers = {"seat": ["a"], "meals": ["b", "d"], "name": "Ana"}
    assert results(rows)[-1] == f"✓ book: Rome: - / - / {answers} / -"
    assert "choose 1-3, or several such as 1 2" in results(rows)


@pytest.mark.trio
async def test_the_input_ends_between_questions() -> None:
    """At the end of the input nothing of it is answered."""
    rows = await talk(asking(SEVERAL), "2")
    assert results(rows)[-1] == "✗ book: tool denied: nobody was there to answer: the input had ended"


@pytest.mark.trio
@pytest.mark.parametrize(
    ("prompt", "lines", "result"),
    [
        (SELECT, ["2"], "✓ book: Aisle"),
        (FREE, ["a bed"], "✓ book: a bed"),
        (TEXT, ["Ana"], "✓ book: Ana"),
        (SEVERAL, ["1", "2 3", "Ana"], '✓ book: {"seat": "Window", "meals": ["l", "d"], "name": "Ana"}'),
        (TEXT, ["/dismiss"], "✗ book: tool denied: the user dismissed the question"),
        (TEXT, ["/deny no"], "✗ book: tool denied: no"),
    ],
)
async def test_a_result_from_outside(prompt: Prompt, lines: list[str], result: str) -> None:
    """Where the person's answer is the result, the model reads the names of what they chose, or their words."""
    first = ["1", "1", "Ana"] if prompt is SEVERAL else ["1"]
    rows = await talk(asking(prompt, outside=True), *first, *lines)
    assert results(rows)[-1] == result


@pytest.mark.trio
async def test_at_a_terminal() -> None:
    """A person is told how to answer, and is asked why not and for changes."""
    text = "\n".join(await talk(asking(NOTED), "n", "too far", times=1, interactive=True))
    assert "  1-4, or [y]es  [n]o, why  [e]dit  [a]lways /dismiss  > " in text
    assert "  why not? (Enter: no reason) > " in text
    assert "✗ book: tool denied: too far" in text
    text = "\n".join(await talk(asking(FREE), "1", interactive=True))
    assert "  1-3, or your own words, or /dismiss > " in text
    text = "\n".join(await talk(asking(DECIDE), "e", "", "e", "to=Bari", interactive=True))
    assert text.count('  change what? (such as to="Rome"; Enter: nothing) > ') == 2
    assert "✓ book: Bari" in text


@pytest.mark.trio
@pytest.mark.parametrize(("prompt", "answers"), [(SELECT, ["2"]), (FREE, ["a bed"]), (SEVERAL, ["1", "2", "Ana"])])
async def test_a_long_call_is_seen_before_an_answer(prompt: Prompt, answers: list[str]) -> None:
    """An answer of any kind lets the call run, so none is taken before all of the call was shown."""
    to = "\n".join(f"town {number}" for number in range(60))
    lines = [answers[0], "v", *answers]
    text = "\n".join(await talk(asking(prompt), *lines, interactive=True, to=to))
    cut, refused, rest = text.partition(
        "not all of it was shown yet (20 lines left): v shows all, then answer; or /deny"
    )
    assert refused
    assert "… 20 more lines: v shows all of it" in cut
    assert "town 59" not in cut
    assert "✓ book" not in cut
    assert "  [v]iew all first, or /deny > " in cut
    assert "town 59" in rest
    assert "✓ book" in rest
