"""The door to the terminal: no text gets through it that could fool anybody, however it is printed."""

from __future__ import annotations

import ast
import io
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import turnstate.cli
from tests.cli.command import PATIENCE, environment
from tests.cli.hostile import ALL, EACH, FOOLS, got_through
from turnstate.cli.streams import Console, Streams
from turnstate.cli.terminal import Terminal, styled
from turnstate.cli.text import call_text, one_line, plain, short, value_text, visible


class Screen(io.StringIO):
    """A stream that says that it is a terminal, with what was printed."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


WAYS: list[Callable[[Terminal, str], None]] = [
    lambda terminal, text: terminal.write(text),
    lambda terminal, text: terminal.write(styled(text, "red")),
    lambda terminal, text: terminal.line(text, styled(text, "bold"), text),
    lambda terminal, text: terminal.wrapped(text, "dim", indent="  "),
    lambda terminal, text: terminal.wrapped("x", first=(text, styled(text, "dim"))),
    lambda terminal, text: terminal.labelled(text, text, "red"),
    lambda terminal, text: terminal.write(*(f"{row}\n" for row in terminal.rows(text, 4))),
]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_nothing_gets_through(way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to print cleans each of the characters, and what stands around them comes out."""
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen()
    WAYS[way](Terminal(screen), f"before{''.join(ALL)}after")
    assert got_through(screen.getvalue()) == set()
    assert "before" in screen.getvalue()
    assert "after" in screen.getvalue()


def test_wrapping_keeps_runs_of_spaces() -> None:
    """Where a row ends one space makes room for the break; a run of them stays."""
    screen = Screen()
    Terminal(screen).wrapped(f"{'a ' * 60}|   b    {'c' * 84}   d")
    rows = screen.getvalue().splitlines()
    text = "".join(row if row.startswith(" ") or row.endswith("␠") else f"{row} " for row in rows).replace("␠", " ")
    assert text.rstrip() == f"{'a ' * 60}|   b    {'c' * 84}   d"


def test_only_the_terminal_makes_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is colour, the codes are those of the styles and no others."""
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    Terminal(screen).line(styled(FOOLS, "red"), "\x1b[32mgreen", styled("\x1b[0m", "bold"))
    printed = screen.getvalue()
    assert [part.partition("m")[0] for part in printed.split("\x1b[")[1:]] == ["31", "0", "1", "0"]
    assert got_through(printed) == {"\x1b"}


@pytest.mark.parametrize("break_", ["\n", "\t", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_line_is_one_line(break_: str) -> None:
    """Nothing breaks a line: a text cannot look like the next line of the command's own."""
    screen = Screen()
    Terminal(screen).line(f"a{break_}b", styled(f"c{break_}d"))
    assert len(screen.getvalue().splitlines()) == 1
    assert "\t" not in screen.getvalue()


def test_what_a_stream_cannot_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that knows ASCII only gets ASCII."""
    monkeypatch.setenv("TERM", "dumb")
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, "ascii")
    Terminal(stream).line("→ ä " + "".join(ALL))
    assert written.getvalue().startswith(b"-> \\xe4 ")


def uncut(text: str) -> str:
    """A text made short that was short before."""
    return short(text, len(text))


@pytest.mark.parametrize("make", [plain, one_line, visible, value_text, uncut])
def test_cleaned_texts(make: Callable[[str], str]) -> None:
    """Each way to make a text fit to be read cleans it."""
    assert got_through(make("".join(ALL))) == set()


def test_cleaned_calls() -> None:
    """So is a call: the tool, the names of its arguments, and these."""
    bad = "".join(EACH)
    assert got_through(call_text(f"tool{bad}", {f"name{bad}": [f"value{bad}", {bad: bad}]})) == set()


def test_names_that_differ_look_different() -> None:
    """A name with a character that cannot be seen does not look like the one without it."""
    for char in [*EACH, "\u00a0", "\u3164", "\ufe0f", "\u2800"]:
        assert visible(f"ali{char}ce").isprintable()
        assert visible(f"ali{char}ce") not in ("alice", "ali ce", f"ali{char}ce")


def test_prose_stays_readable() -> None:
    """Joiners go, and line ends of either kind, accents and emoji stay."""
    assert plain("می\u200cخواهم 👩\u200d💻 e\u0301 ❤\ufe0f a\r\nb\tc") == "میخواهم 👩💻 e\u0301 ❤\ufe0f a\nb\tc"


def test_what_others_print() -> None:
    """Warnings and lines of a log that go to the process's own streams are cleaned on the way."""
    out, err = Screen(), Screen()
    console = Console.of(Streams(sys.stdin, out, err))
    with console.takes_all():
        sys.stderr.write(f"careful{FOOLS}")
        print(f"printed{FOOLS}")
        logging.StreamHandler().handle(logging.makeLogRecord({"msg": f"logged{FOOLS}"}))
    assert "printed" in out.getvalue()
    assert "careful" in err.getvalue()
    assert "logged" in err.getvalue()
    assert got_through(out.getvalue() + err.getvalue()) == set()


def test_a_fault_of_the_program_itself(tmp_path: Path) -> None:
    """What Python says of an error that nobody handles is cleaned, and the exit code tells."""
    code = "import sys; from turnstate.cli import main, parser\ndef broken(): raise ValueError(sys.argv[1])"
    code += "\nparser.default_db = broken; sys.exit(main(['sessions']))"
    done = subprocess.run(
        [sys.executable, "-c", code, f"fault{FOOLS}"],
        capture_output=True,
        env=environment(tmp_path),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert "ValueError: fault" in done.stderr.decode()
    assert got_through(done.stderr.decode()) == set()


def test_there_is_no_other_door() -> None:
    """In the code of the command nobody prints but the terminal, and nobody has its stream."""
    folder = Path(turnstate.cli.__file__).parent
    for path in folder.glob("*.py"):
        if path.name in ("terminal.py", "demo_agent.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name):
                assert node.id != "print", path.name
            elif isinstance(node, ast.Attribute):
                allowed = path.name in ("streams.py", "app.py")
                assert node.attr not in ("_stream", "__stdout__", "__stderr__"), path.name
                assert allowed or node.attr not in ("stdout", "stderr"), path.name
