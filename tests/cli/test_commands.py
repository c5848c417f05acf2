"""``sessions``, ``show``, ``diagram``, and what a wrong input gives."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
import trio

from tests.cli.command import run
from turnstate import Agent, Engine, SQLiteStore, tool
from turnstate.states import STATES
from turnstate.testing import ScriptedCall, ScriptedModel, call


@tool(approval=True)
async def pay(to: str, euros: float) -> str:
    """Pay."""
    return f"paid {to} {euros}"


async def _fill(path: Path) -> None:
    script: list[str | list[str | ScriptedCall]] = [
        ["I pay.", call("pay", to="Ana", euros=3.0)],
        "Paid.",
        [call("pay", to="\x1b[31mBob", euros=5.0)],
    ]
    async with Engine(Agent(ScriptedModel(script), tools=[pay]), SQLiteStore(path)) as engine:
        alice = engine.session("alice")
        waiting = await alice.run("Pay Ana", check=False)
        async with alice.resume() as turn:
            await alice.approve(*waiting.waiting, arguments={"to": "Ana", "euros": 4.0}, for_session=True)
            assert (await turn.result()).text == "Paid."
        await engine.session("bob").run("Pay Bob", check=False)
        await engine.session("bob").send("and then rest")


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A file with a session that is complete and one in which a person must answer."""
    path = tmp_path / "some.db"
    trio.run(_fill, path)
    return str(path)


def test_sessions(tmp_path: Path, db: str) -> None:
    """The table has a row for each session, with what is open in it."""
    listed = run("sessions", "--db", db)
    assert (listed.returncode, listed.stderr) == (0, "")
    head, alice, bob = listed.stdout.splitlines()
    assert head.split() == ["SESSION", "STATE", "CHANGED", "OPEN", "TITLE"]
    assert alice.startswith("alice    complete           today ")
    assert alice.endswith("  -                      Pay Ana")
    assert bob.startswith("bob      awaiting-approval  today ")
    assert bob.endswith("  1 approval, 1 message  Pay Bob")


def test_sessions_filtered(tmp_path: Path, db: str) -> None:
    """--waiting and --unfinished leave out the rest, and say so when nothing is left."""
    for option in ("--waiting", "--unfinished"):
        rows = run("sessions", option, "--db", db).stdout.splitlines()
        assert [row.split()[0] for row in rows] == ["SESSION", "bob"]
    nothing = run("sessions", "--waiting")
    assert nothing.returncode == 0
    assert nothing.stdout == "no session waits for a person in ~/state/turnstate/turnstate.db\n"
    assert not (tmp_path / "state").exists()


def test_sessions_searched_and_sorted(tmp_path: Path, db: str) -> None:
    """--search looks at titles, --archived shows those off the list, --recent sorts by the last change."""

    def listed(*options: str) -> list[str]:
        return [row.split()[0] for row in run("sessions", "--db", db, *options).stdout.splitlines()[1:]]

    assert listed("--search", "BOB") == ["bob"]
    trio.run(_archive_and_say_more, db)
    assert listed() == ["bob", "zoe"]
    assert listed("--recent") == ["zoe", "bob"]
    assert listed("--archived") == ["alice"]
    nothing = run("sessions", "--db", db, "--archived", "--search", "bob").stdout
    assert nothing == f'no session is archived and has "bob" in its title in {home_short(db, tmp_path)}\n'


async def _archive_and_say_more(path: str) -> None:
    async with Engine(Agent(ScriptedModel(["Paid."])), SQLiteStore(path)) as engine:
        await engine.session("alice").archive()
        await engine.session("zoe").run("Pay Zoe")


def home_short(path: str, home: Path) -> str:
    """A path as the command shows it."""
    return path.replace(str(home), "~")


def test_show(tmp_path: Path, db: str) -> None:
    """A session is shown with what was said, what a person changed, what is allowed and used."""
    shown = run("show", "alice", "--db", db)
    assert (shown.returncode, shown.stderr) == (0, "")
    for text in (
        "  you       Pay Ana",
        "  model     I pay.",
        '            pay(to="Ana", euros=4.0)',
        '(changed by a person; the model wanted pay(to="Ana", euros=3.0))',
        "            ✓ pay: paid Ana 4.0",
        '  session   alice  "Pay Ana"',
        "  state     complete: completed, turn t1, 2 steps, 1 call, today ",
        '  allowed   pay(euros=4.0, to="Ana") (g1)',
        "tokens in, ",
    ):
        assert text in shown.stdout


def test_show_what_is_open(tmp_path: Path, db: str) -> None:
    """An open approval and a waiting message are shown, and control characters as what they are."""
    shown = run("show", "bob", "--db", db).stdout
    assert '  open      pay(to="\\u001b[31mBob", euros=5.0)  asked today ' in shown
    assert '  waits     "and then rest"' in shown
    assert "\x1b" not in shown


def test_diagram(tmp_path: Path) -> None:
    """The diagram has every state, and is drawn without anything that has to be installed."""
    drawn = run("diagram")
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert drawn.stdout.startswith("stateDiagram-v2")
    assert all(state in drawn.stdout for state in STATES)


def test_diagram_svg_without_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the dot program svg says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("diagram", "--format", "svg")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "svg needs" in done.stderr


def test_version_and_help(tmp_path: Path) -> None:
    """--version and --help print and end with 0; without a command the help comes, with 2."""
    assert run("--version").stdout == f"turnstate {version('turnstate')}\n"
    for arguments in (["--help"], *([name, "--help"] for name in ("demo", "chat", "sessions", "show", "diagram"))):
        done = run(*arguments)
        assert done.returncode == 0
        assert done.stdout.startswith("usage: turnstate")
    assert run().returncode == 2


WRONG: list[tuple[str, list[str], int, str]] = [
    ("no such command", ["talk"], 2, "invalid choice: 'talk'"),
    ("no such option", ["demo", "--fast"], 2, "unrecognized arguments: --fast"),
    ("no model", ["chat"], 2, "--model"),
    ("a bad format", ["diagram", "--format", "png"], 2, "png"),
    ("a bad url", ["chat", "--model", "m", "--base-url", "localhost"], 2, "http://localhost:8000/v1"),
    ("a bad session id", ["show", "a\nb"], 2, "session id"),
    ("an empty model", ["chat", "--model", " "], 2, "model"),
    ("a bad key", ["chat", "--model", "m", "--api-key", "a\nb"], 2, "api_key"),
    ("no such session", ["show", "x"], 1, "there is no session 'x'"),
    ("no such file", ["sessions", "--db", "none.db"], 1, "none.db: there is no such file"),
    ("no database", ["sessions", "--db", "text"], 1, "not a turnstate store"),
    ("no database to show", ["show", "x", "--db", "text"], 1, "not a turnstate store"),
    ("no database for the demo", ["demo", "--yes", "--db", "text"], 1, "not a turnstate store"),
    ("a directory", ["sessions", "--db", "."], 1, "directory"),
    ("no directory", ["demo", "--yes", "--db", "no/where.db"], 1, "does not exist"),
    ("no directory for a chat", ["chat", "--model", "m", "--db", "no/where.db"], 1, "does not exist"),
    ("nobody listens", ["chat", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"], 1, "connection refused"),
]


@pytest.mark.parametrize(("arguments", "code", "text"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_input(tmp_path: Path, arguments: list[str], code: int, text: str) -> None:
    """What a user did wrong is one line that says it, with the right exit code."""
    (tmp_path / "text").write_text("this is no database, but it is long enough to look at " * 40)
    done = run(*arguments, given="hello\n")
    assert done.returncode == code
    assert text in done.stderr
    assert done.stderr.startswith("turnstate: ")
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "text").read_text().startswith("this is no database")


def test_a_state_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """A state directory that is a file is told of in one line."""
    (tmp_path / "state").write_text("")
    done = run("chat", "--model", "m")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "--db" in done.stderr
