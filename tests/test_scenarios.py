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
    if not (TESTS / file).is_file():
        return {}
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


def fault_of(tests: str, note: str) -> str:
    """What is wrong with the tests that a row names, or an empty text."""
    named = NAMED.findall(tests)
    if not len(named) == tests.count("::") == tests.count("`") // 2:
        return "a name that cannot be read"
    lost = [f"{file}::{name}" for file, name in named if not docstrings(file).get(name)]
    if lost:
        return f"no such test with a docstring: {', '.join(lost)}"
    return "" if named or note.endswith(".") else "neither a test nor a sentence that says why there is none"


def test_every_test_that_is_named_exists() -> None:
    """A row names tests that exist and have a docstring, or says in a sentence why there is none."""
    found = [(id, fault_of(tests, note)) for id, _, tests, note in rows("")]
    assert len(found) > 400
    assert [f"{id}: {fault}" for id, fault in found if fault] == []


@pytest.mark.parametrize(
    ("tests", "note", "fault"),
    [
        ("`test_scenarios.py::test_nothing_is_promised`", "", ""),
        ("", "There is nothing to test.", ""),
        ("", "", "neither"),
        ("", "later", "neither"),
        ("`test_scenarios.py::test_nothing`", "", "no such test with a docstring: test_scenarios.py::test_nothing"),
        ("`no_such_file.py::test_it`", "", "no such test"),
        ("test_scenarios.py::test_nothing_is_promised", "", "cannot be read"),
        ("`test_scenarios.py`", "", "cannot be read"),
    ],
)
def test_a_bad_row_is_found(tests: str, note: str, fault: str) -> None:
    """Each way in which a row can be wrong is told."""
    assert fault in fault_of(tests, note)
    assert bool(fault) == bool(fault_of(tests, note))


def test_scenario_tests_name_their_ids() -> None:
    """The tests in scenarios/ that the row of a scenario names say its id in their docstring."""
    silent = [
        f"{id}: {file}::{name}"
        for id, _, tests, _ in rows("")
        for file, name in NAMED.findall(tests)
        if id[0].isalpha() and file.startswith("scenarios/")
        if id not in re.findall(r"\b[A-Z]\d+\b", docstrings(file).get(name, ""))
    ]
    assert silent == []


def test_cases_name_their_numbers() -> None:
    """Of the tests that the row of a case names at least one says its number, or the row says what there is instead."""
    silent: list[str] = []
    for id, _, tests, note in rows("Cases"):
        said = [docstrings(file).get(name, "") for file, name in NAMED.findall(tests)]
        numbers = {number for text in said if "ase" in text for number in re.findall(r"\d+", text)}
        if id not in numbers and not note:
            silent.append(f"case {id}: {numbers}")
    assert silent == []


def test_every_scenario_of_the_thread_is_named() -> None:
    """An id that a test of the thread says in its docstring is in the table, and its row names that test."""
    named = {id: {name for _, name in NAMED.findall(tests)} for id, _, tests, _ in rows("Thread: ")}
    unnamed = [
        f"{id}: {path.name}::{name}"
        for path in sorted((TESTS / "scenarios").glob("test_thread_*.py"))
        for name, text in docstrings(f"scenarios/{path.name}").items()
        for id in re.findall(rf"\b[{''.join(THREAD)}]\d+\b", text)
        if name not in named.get(id, ())
    ]
    assert unnamed == []


def test_nothing_is_promised() -> None:
    """What the table says is so: a row has a test or a reason, and none says that it will come."""
    assert "not yet" not in (TESTS / "SCENARIOS.md").read_text(encoding="utf-8").lower()
