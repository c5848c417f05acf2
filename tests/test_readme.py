"""The README and the pages of the docs say what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import turnstate.models
from turnstate.models import Model
from turnstate.testing import ScriptedModel
from turnstate_states.machine import TABLE, TurnMachine

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_picture_is_the_machine() -> None:
    """The README's diagram is what the machine gives."""
    (picture,) = blocks(README, "mermaid")
    assert picture.strip() == format(TurnMachine, "mermaid").strip()


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/programs.md"])
def test_programs_compile(name: str) -> None:
    """Each Python block is a program."""
    found = blocks((ROOT / name).read_text(), "python")
    assert found
    for source in found:
        compile(source, name, "exec")


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_the_first_program_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first program prints the answer of its model, and the second time it goes on with the session."""

    def scripted(model: str, *, base_url: str) -> Model:
        assert (model, base_url) == ("qwen3", "http://localhost:8000/v1")
        return ScriptedModel(["Elbe, Oder, Rhine"])

    monkeypatch.setattr(turnstate.models, "OpenAIChat", scripted)
    monkeypatch.chdir(tmp_path)
    (source, *_) = [block for block in blocks((ROOT / name).read_text(), "python") if "trio.run(main)" in block]
    for _ in range(2):
        exec(compile(source, name, "exec"), {"__name__": "first_program"})
    assert capsys.readouterr().out == "Elbe, Oder, Rhine\n" * 2
    assert (tmp_path / "turns.db").exists()


def test_the_two_commands_stand_in_the_readme() -> None:
    """A visitor finds the command that shows it and the one that tests it."""
    assert blocks(README, "console") == ["pip install . && turnstate demo\n", "pip install '.[test]' && pytest\n"]


def test_the_readme_links_to_files_that_exist() -> None:
    """No link leads nowhere."""
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_table_of_transitions_is_the_machine() -> None:
    """The page on the machine lists every transition in the order in which they are tried, and no other."""
    page = (ROOT / "docs" / "machine.md").read_text()
    (table,) = re.findall(r"^\| state \| event \| guard \| next state \|\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    written = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table.splitlines()]
    given = [
        (state, event, ", ".join(name if wanted else f"not {name}" for name, wanted in rule.guards), rule.target)
        for (state, event), rules in TABLE.items()
        for rule in rules
    ]
    assert sorted(written) == sorted(given)
    for state, event in TABLE:
        here = [row for row in written if row[:2] == (state, event)]
        assert here == [row for row in given if row[:2] == (state, event)]
