"""``turnstate demo``: a turn over a SIGKILL, as a visitor runs it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.command import at_terminal, run
from tests.cli.processes import process_at_terminal
from tests.depth import pick


def test_yes_runs_to_a_completed_turn(tmp_path: Path) -> None:
    """Answering by itself it goes over the kill to a completed turn, and the card is charged once."""
    done = run("demo", "--yes", "--db", "demo.db")
    assert (done.returncode, done.stderr) == (0, "")
    assert "idle → before-model → streaming" in done.stdout
    assert "streaming → executing-tools → awaiting-approval" in done.stdout
    assert "streaming → complete" in done.stdout
    assert "yes, with euros=90.0 (the model wanted euros=120.0)" in done.stdout
    assert "✓ charge_card: found in the ledger: 90.00 EUR for A-17" in done.stdout
    assert "receipt sent to\n            billing@example.org" in done.stdout
    assert len((tmp_path / "demo.ledger").read_text().splitlines()) == 1
    assert len((tmp_path / "demo.outbox").read_text().splitlines()) == 1
    assert max(map(len, done.stdout.splitlines())) <= 88


@pytest.mark.deep
def test_nothing_is_left(tmp_path: Path) -> None:
    """By default no file stays behind; with --keep they do, and it says where. It prints the same each time."""
    done = run("demo")
    assert done.returncode == 0
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "state").exists()
    kept = run("demo", "--yes", "--keep").stdout
    (folder,) = (tmp_path / "tmp").iterdir()
    assert (folder / "demo.db").exists()
    assert f"{folder.name}/demo.ledger" in kept
    texts = [re.sub(r"\d+ starts|process \d+|[0-9a-f]{16}", "N", text) for text in (done.stdout, kept)]
    assert texts[0] == texts[1][: texts[1].index("kept: ")] != ""


@pytest.mark.parametrize("named", pick([("--db", "mine.db")], [(), ("--db", "mine.db")]))
def test_crash_and_go_on(tmp_path: Path, named: tuple[str, ...]) -> None:
    """After --crash the next run goes on: the model hears unknown, the effect stands once, the steer is not lost.

    --crash after --crash begins anew.
    """
    if not named:
        assert run("demo", "--crash").returncode == 1
    first = run("demo", "--crash", "--yes", *named)
    assert first.returncode == 1
    again = " ".join(["turnstate demo --yes", *named])
    assert first.stderr == f"turnstate: killed in the middle of send_receipt, as asked; go on with: {again}\n"
    left = tmp_path / "mine.outbox" if named else tmp_path / "state" / "turnstate" / "demo.outbox"
    sent = left.read_text()
    assert sent.count("receipt for A-17") == 1

    second = run("demo", "--yes", *named)
    assert (second.returncode, second.stderr) == (0, "")
    assert "? send_receipt: execution interrupted; result unknown: after restart" in second.stdout
    assert "it joins the turn" in second.stdout
    assert "streaming → complete" in second.stdout
    assert f"outbox    {sent}" in second.stdout
    if named:
        assert left.read_text() == sent
    else:
        assert list((tmp_path / "state" / "turnstate").iterdir()) == []


def test_source_is_a_program(tmp_path: Path) -> None:
    """--source prints the program that runs."""
    source = run("demo", "--source").stdout
    compile(source, "demo", "exec")
    assert "@tool(approval=True, on_crash=find_charge)" in source
    assert "Engine(agent, SQLiteStore(db)" in source


@pytest.mark.trio
async def test_a_person_answers(tmp_path: Path) -> None:
    """At a terminal a person is asked, and what they say counts."""
    async with at_terminal("demo") as demo:
        await demo.until("such as: e euros=90 > ")
        demo.type("why?")
        await demo.until("answer y, n REASON, or e NAME=VALUE")
        await demo.until("> ")
        demo.type("e euros=ninety")
        await demo.until("bad arguments for charge_card")
        await demo.until("> ")
        demo.type("e euros=75")
        await demo.until("SIGKILL")
        await demo.until("found in the ledger: 75.00 EUR")
        await demo.until("such as: y > ")
        demo.type("n no mail today")
        assert await demo.end() == 0
    assert "✗ send_receipt: tool denied: no mail today" in demo.text
    assert "outbox    nothing" in demo.text


@pytest.mark.deep
@pytest.mark.trio
async def test_no_to_the_charge(tmp_path: Path) -> None:
    """A person who says no at once sees a turn that ends, without a kill."""
    async with at_terminal("demo", "--crash") as demo:
        await demo.until("such as: e euros=90 > ")
        demo.type("n too much")
        assert await demo.end() == 0
    assert "SIGKILL" not in demo.text.partition("demo:")[2].partition("\n1 ")[2]
    assert "ledger    nothing" in demo.text
    assert list((tmp_path / "state" / "turnstate").iterdir()) == []


@pytest.mark.trio
async def test_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C ends it with 130, its process with it, and removes its files."""
    async with process_at_terminal(tmp_path, "demo") as demo:
        await demo.until("such as: e euros=90 > ")
        demo.interrupt()
        assert await demo.end() == 130
    assert "Traceback" not in demo.text
    assert list((tmp_path / "tmp").iterdir()) == []
    child = re.search(r"process +(\d+) starts", demo.text)
    assert child is not None
    with pytest.raises(ProcessLookupError):
        os.kill(int(child[1]), 0)
