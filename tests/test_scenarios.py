"""The table of scenarios is kept honest."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROW = re.compile(r"^\| (\w+) \| (.+?) \| (.*?) ?\| (.*?) ?\|$")
NAMED = re.compile(r"`([^`]+\.py)::(\w+)`")
SCENARIOS = {"Q": 17, "R": 11, "M": 12, "T": 16, "A": 16, "C": 13, "W": 14, "D": 11}
THREAD = {"N": 8, "U": 8, "H": 15, "P": 16, "X": 10, "L": 10, "V": 14, "B": 15, "K": 13, "O": 14}
CASES = [
    *(1, 3, 4, 5, 8, 9, 11, 12, 13, 14, 17, 18, 20, 22, 23, 24, 26, 27, 29, 31, 32, 34),
    *(35, 36, 38, 40, 42, 43, 45, 46, 47, 49, 51, 52, 53, 56, 57, 58, 60, 62, 63, 64),
    *(67, 69, 70, 71, 74, 75, 77, 78, 79, 80, 82, 83, 85, 86, 87, 90, 91, 92),
    *(94, 97, 98, 100, 101, 103, 104, 105, 106, 107, 109, 111, 112, 113, 115, 116, 119),
]


def rows(heading: str) -> list[tuple[str, str, str, str]]:
    """The rows of the tables under all headings that begin so, without their heads."""
    found: list[tuple[str, str, str, str]] = []
    here = False
    for line in (TESTS / "SCENARIOS.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            here = line[3:].startswith(heading)
        elif here and (match := ROW.match(line)) and match[1] != "id":
            found.append((match[1], match[2], match[3], match[4]))
        else:
            assert not here or not line.startswith("| ") or line.startswith("| id "), (
                f"a row that cannot be read: {line}"
            )
    return found


@functools.cache
def docstrings(file: str) -> dict[str, str]:
    """The tests of a file with what they say, whether they are in a class or not."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    found = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return {node.name: ast.get_docstring(node) or "" for node in found if node.name.startswith("test_")}


def test_every_scenario_has_a_row() -> None:
    """Each scenario, weakness and case stands in its table, once and in order."""
    scenarios = [row[0] for row in rows("") if row[0][0].isalpha()]
    numbers = SCENARIOS | THREAD
    assert scenarios == [f"{letter}{number}" for letter, last in numbers.items() for number in range(1, last + 1)]
    assert [row[0] for row in rows("Weaknesses")] == [str(number) for number in range(1, 33)]
    assert [row[0] for row in rows("Thread weak points")] == [str(number) for number in range(1, 11)]
    assert [row[0] for row in rows("Thread reports")] == [str(number) for number in range(1, 58)]
    assert sorted(int(row[0]) for row in rows("Cases")) == CASES


@pytest.mark.parametrize("row", rows(""), ids=lambda row: str(row[0]))  # pyright: ignore[reportUnknownLambdaType]
def test_every_test_that_is_named_exists(row: tuple[str, str, str, str]) -> None:
    """A row names tests that exist and have a docstring, or says in a sentence why there is none."""
    _, _, tests, note = row
    named = NAMED.findall(tests)
    assert len(named) == tests.count("::") == tests.count("`") // 2
    for file, name in named:
        assert docstrings(file).get(name), f"{file} has no {name} with a docstring"
    assert named or note.endswith(".")


def test_scenario_tests_name_their_ids() -> None:
    """The tests in scenarios/ that the row of a scenario names say its id in their docstring."""
    for id, _, tests, _ in rows(""):
        for file, name in NAMED.findall(tests):
            if id[0].isalpha() and file.startswith("scenarios/"):
                said = re.findall(r"\b[A-Z]\d+\b", docstrings(file)[name])
                assert id in said, f"{id}: {file}::{name} names {said}"


def test_cases_name_their_numbers() -> None:
    """Of the tests that the row of a case names at least one says its number, or the row says what there is instead."""
    for id, _, tests, note in rows("Cases"):
        said = [docstrings(file)[name] for file, name in NAMED.findall(tests)]
        numbers = {number for text in said if "ase" in text for number in re.findall(r"\d+", text)}
        assert id in numbers or note, f"case {id}: {numbers}"


def test_every_scenario_of_the_thread_is_named() -> None:
    """An id that a test of the thread says in its docstring is in the table, and its row names that test."""
    named = {id: {name for _, name in NAMED.findall(tests)} for id, _, tests, _ in rows("Thread: ")}
    for path in sorted((TESTS / "scenarios").glob("test_thread_*.py")):
        for name, text in docstrings(f"scenarios/{path.name}").items():
            for id in re.findall(rf"\b[{''.join(THREAD)}]\d+\b", text):
                assert name in named[id], f"{id}: its row does not name {path.name}::{name}"


def test_nothing_is_promised() -> None:
    """What the table says is so: a row has a test or a reason, and none says that it will come."""
    assert "not yet" not in (TESTS / "SCENARIOS.md").read_text(encoding="utf-8").lower()
