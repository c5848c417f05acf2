"""Files that were made to fool whoever looks at them: databases, exported threads, recorded traffic."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from tests.cli.chatting import answer, options
from tests.cli.command import run, through_pipe
from tests.cli.fake_openai import fake_openai
from tests.cli.hostile import ALL, FOOLS, ROUNDS, got_through, storable
from tests.depth import pick
from turnstate import Agent, Engine, SQLiteStore, tool
from turnstate.testing import ScriptedCall, ScriptedModel, call

COLUMNS = ("session", "state", "outcome", "title", "labels")


@tool(approval=True)
async def pay(to: str, euros: float) -> str:
    """Pay."""
    return f"paid {to} {euros}"


@tool
async def broken(why: str) -> str:
    """Fail."""
    raise ValueError(why)


async def _fill(path: Path) -> None:
    """Sessions in which everything happens that `sessions` and `show` print."""
    script: list[str | list[str | ScriptedCall]] = [
        ["I pay.", call("pay", to="Ana", euros=3.0)],
        [call("broken", why="because")],
        "Paid.",
        "First.",
        "Again.",
        [call("pay", to="Bob", euros=5.0)],
    ]
    async with Engine(Agent(ScriptedModel(script), tools=[pay, broken]), SQLiteStore(path)) as engine:
        alice = engine.session("alice")
        waiting = await alice.run("Pay Ana", check=False)
        async with alice.resume() as turn:
            await alice.approve(*waiting.waiting, arguments={"to": "Eva", "euros": 4.0}, for_session=True)
            await turn.result()
        await alice.run("And then?")
        await alice.regenerate()
        async with alice.resume() as turn:
            await turn.result()
        await alice.rename("The title")
        await engine.session("bob").run("Pay Bob", check=False)
        await engine.session("bob").send("and then rest")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of that kind, to be copied."""
    path = tmp_path_factory.mktemp("filled") / "some.db"
    trio.run(_fill, path)
    return path


# ---- changing a stored text wherever it stands


Change = Callable[[str], str]


def changed(value: Any, change: Change) -> Any:
    """A value of JSON with its texts changed, in texts that are JSON themselves too."""
    if isinstance(value, str):
        return json.dumps(changed(json.loads(value), change)) if value[:1] == "{" else change(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {change(key) if key in NAMES else key: changed(inner, change) for key, inner in fields.items()}
    return [changed(inner, change) for inner in _items(value)] if isinstance(value, list) else value


def _items(value: Any) -> list[Any]:
    items: list[Any] = value
    return items


NAMES = {"to", "euros", "why", "scripted", "m2.0", "m3.0"}
"""The keys that are names or ids, not fields."""


def rewrite(path: Path, change: Change) -> None:
    """Change all texts in a database."""
    with sqlite3.connect(path) as database:
        database.create_function("changed", 1, partial(_text, change))
        database.create_function("changed_json", 1, partial(_json, change))
        for column in COLUMNS[:-1]:
            database.execute(f"update session set {column} = changed({column})")
        database.execute("update session set checkpoint = changed_json(checkpoint), labels = changed_json(labels)")
        database.execute("update log set messages = changed_json(messages), events = changed_json(events)")
    database.close()


def _text(change: Change, text: str | None) -> str | None:
    return None if text is None else change(text)


def _json(change: Change, body: Any) -> Any:
    if not body:
        return body
    text = json.dumps(changed(json.loads(body), change))
    return text if isinstance(body, str) else text.encode()


def texts(path: Path) -> set[str]:
    """All texts in a database."""
    found: set[str] = set()

    def note(text: str) -> str:
        found.add(text)
        return text

    rewrite(path, note)
    return found - {""}


# ---- the tests


def commands(db: Path) -> Iterator[str]:
    """What each command prints of a database, errors too."""
    for arguments in (["sessions"], ["show", "alice"], ["show", "bob"]):
        done = run(*arguments, "--db", str(db))
        assert "Traceback" not in done.stderr
        yield done.stdout + done.stderr


def marked(one: str, text: str) -> str:
    """One text made bad."""
    return f"{one}mark{FOOLS}" if text == one else text


def test_each_text_of_a_database(tmp_path: Path, filled: Path) -> None:
    """Whichever text of a database was changed, ids and states too, nothing of it reaches the terminal as it is."""
    copy = tmp_path / "copy.db"
    shutil.copy(filled, copy)
    seen: set[str] = set()
    known = texts(copy)
    for one in known:
        shutil.copy(filled, copy)
        rewrite(copy, partial(marked, one))
        printed = "".join(commands(copy))
        assert got_through(printed) == set(), one
        if f"{one}mark" in printed:
            seen.add(one)
    shown = {"alice", "bob", "The title", "awaiting-approval", "Ana", "Eva", "euros", "Pay Bob", "pay", "I pay.", "g1"}
    assert shown | {"t1", "m2.0", "scripted", "and then rest", "because", "complete"} <= seen


@pytest.mark.parametrize("at", range(0, len(ROUNDS), pick(2, 1)))
def test_each_character(tmp_path: Path, filled: Path, at: int) -> None:
    """Each of the characters in the texts that a person or a model gave comes out as something else."""
    copy = tmp_path / "copy.db"
    shutil.copy(filled, copy)
    given = {"The title", "Ana", "Eva", "Pay Ana", "Pay Bob", "Bob", "I pay.", "Paid.", "euros", "pay", "and then rest"}
    rewrite(copy, lambda text: f"{text}{storable(ROUNDS[at])}end" if text in given else text)
    for printed in commands(copy):
        assert got_through(printed) == set()
        assert "end" in printed


def test_all_characters_in_a_message(tmp_path: Path, filled: Path) -> None:
    """A message with all the characters there are is printed without one of them."""
    copy = tmp_path / "copy.db"
    shutil.copy(filled, copy)
    text = storable("".join(ALL))
    rewrite(copy, lambda given: f"begin{text}end" if given == "I pay." else given)
    shown = run("show", "alice", "--db", str(copy)).stdout
    assert got_through(shown) == set()
    assert "begin" in shown
    assert "end" in "".join(shown.split())


# ---- an exported thread, a recorded answer


@pytest.mark.trio
async def test_an_imported_thread(tmp_path: Path) -> None:
    """Ids, texts and what had to be left out of an imported thread are shown cleaned, by each command that shows them."""
    said = {"id": f"a{FOOLS}", "parent": None, "turn": f"t{FOOLS}", "role": "user", "created_at": 0.0}
    message = said | {"parts": [{"type": "text", "text": f"a river{FOOLS}"}]}
    lost = message | {"id": f"b{FOOLS}", "parent": f"nowhere{FOOLS}"}
    (tmp_path / "x.json").write_text(json.dumps({"messages": [message, lost]}))
    lines = ["/history", "/branch", f"/edit a{FOOLS} a lake", "/history", "/branch", "/branch prev", "/delete 1"]
    async with fake_openai(answer) as server:
        started = through_pipe("\n".join(lines), *options(server, "--import", "x.json"))
        async with started as chat:
            await chat.end()
    assert got_through(chat.text) == set()
    assert "left out, because what they follow is missing: b" in chat.text
    assert "a river" in chat.text


BODIES: dict[str, Callable[[str], Any]] = {
    "chat": lambda bad: {
        "choices": [
            {
                "index": 0,
                "message": {
                    "content": bad,
                    "refusal": bad,
                    "reasoning_content": bad,
                    "tool_calls": [{"id": bad, "type": "function", "function": {"name": bad, "arguments": bad}}],
                },
                "finish_reason": bad,
            }
        ]
    },
    "messages": lambda bad: {
        "type": "message",
        "role": "assistant",
        "model": bad,
        "content": [{"type": "text", "text": bad}, {"type": "tool_use", "id": bad, "name": bad, "input": {bad: bad}}],
        "stop_reason": bad,
        "usage": {"input_tokens": 1, "output_tokens": 2},
    },
    "responses": lambda bad: {
        "object": "response",
        "id": bad,
        "status": "completed",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": bad}]},
            {"type": "function_call", "call_id": bad, "name": bad, "arguments": bad},
        ],
    },
    "gemini": lambda bad: {
        "candidates": [
            {
                "content": {"parts": [{"text": bad}, {"functionCall": {"name": bad, "args": {bad: bad}}}]},
                "finishReason": bad,
            }
        ],
        "usageMetadata": {},
    },
}
ERRORS: list[Callable[[str], Any]] = [
    lambda bad: {"error": {"code": 503, "message": bad, "status": bad, "type": bad}},
    lambda bad: {"type": "error", "error": {"type": bad, "message": bad}},
    lambda bad: bad,
]


@pytest.mark.parametrize("protocol", BODIES)
def test_decoded_traffic(tmp_path: Path, protocol: str) -> None:
    """Each character in each text of a body is escaped in the JSON that is printed, and still what it was."""
    for bad in ROUNDS:
        (tmp_path / "body").write_text(json.dumps(BODIES[protocol](bad)))
        done = run("decode", protocol, "body")
        assert got_through(done.stdout + done.stderr) == set()
        assert done.stdout.count("\n") == 1
        assert json.loads(done.stdout)["text"] == storable(bad)


@pytest.mark.parametrize("protocol", BODIES)
def test_decoded_errors(tmp_path: Path, protocol: str) -> None:
    """So is what an error says, and what is no answer at all."""
    for make in ERRORS:
        for bad in ROUNDS:
            (tmp_path / "body").write_text(json.dumps(make(f"why{bad}"), ensure_ascii=True))
            (tmp_path / "raw").write_bytes(json.dumps(make(f"why{bad}"), ensure_ascii=False).encode(errors="replace"))
            done = run("decode", protocol, "body", "raw")
            assert got_through(done.stdout + done.stderr) == set()
            assert done.stdout.count("\n") == 2
