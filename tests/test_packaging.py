"""What the package is made of, and what it must not hold."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import importlib
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import turnstate
import turnstate.states
import turnstate_states

ROOT = Path(__file__).parents[1]
PURE = {"attrs", "cattrs", "msgspec", "statemachine", "turnstate_states"}
FOLDERS = (".ci", "docs", "engine", "states", "tests")
IMPURE = {
    "asyncio",
    "io",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "sqlite3",
    "subprocess",
    "threading",
    "time",
    "uuid",
}


def imported(path: Path) -> set[str]:
    """The packages that a module imports, those of relative imports left out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "states").rglob("*.py")), ids=lambda path: path.stem)
def test_the_pure_part_imports_nothing_that_acts(path: Path) -> None:
    """``states`` stands on attrs, cattrs, msgspec, python-statemachine and the harmless part of the standard library."""
    names = imported(path)
    assert names - set(sys.stdlib_module_names) <= PURE
    assert not names & IMPURE


def test_the_facade_hands_on_every_public_name() -> None:
    """``turnstate.states`` and ``turnstate_states`` are the same names for the same things."""
    assert turnstate.states.__all__ == turnstate_states.__all__
    for name in turnstate_states.__all__:
        assert getattr(turnstate.states, name) is getattr(turnstate_states, name)


@pytest.mark.parametrize("module", [turnstate, turnstate_states, turnstate.states], ids=lambda module: module.__name__)
def test_public_names_exist(module: object) -> None:
    """``__all__`` lists what there is, each once."""
    names: list[str] = vars(module)["__all__"]
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(module, name)] == []


PUBLIC = [
    importlib.import_module(f"turnstate{name}")
    for name in ("", ".states", ".models", ".tools", ".middleware", ".policy", ".stores", ".testing")
]


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_import_star_takes_no_name_of_the_language_or_of_typing(module: object) -> None:
    """``from turnstate import *`` leaves builtins and the names of typing and collections.abc as they are."""
    taken = {name for place in (builtins, typing, collections.abc) for name in dir(place)}
    names: list[str] = vars(module)["__all__"]
    assert [name for name in names if name in taken] == []


def test_what_import_star_leaves_out_can_be_imported() -> None:
    """The names that ``import *`` leaves out are there for those who ask for them."""
    from turnstate import Annotated, Text

    assert (turnstate.states.Text, Annotated.__module__) == (Text, "turnstate_states.events")


@pytest.mark.parametrize("part", ["engine", "states"])
def test_every_assertion_says_what_it_holds(part: str) -> None:
    """An assertion that fails reaches whoever runs the program, so each has a text; those of test suites need none."""
    mute = [
        f"{path.name}:{node.lineno}"
        for path in (ROOT / part).rglob("*.py")
        if path.parent.name != "testing"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert) and node.msg is None
    ]
    assert mute == []


def test_importing_it_leaves_httpx_alone() -> None:
    """What only a model needs is imported when there is one."""
    program = "import sys, turnstate, turnstate.states; print({'httpx', 'httpcore'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


def own_files() -> list[str]:
    """The files of the project: those that git knows or would add; outside a clone all that lie in its folders."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-co", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        return [name for name in listed if (ROOT / name).is_file()]
    paths = [path for name in FOLDERS for path in (ROOT / name).rglob("*")] + list(ROOT.glob("*"))
    return [str(path.relative_to(ROOT)) for path in paths if path.is_file() and path.suffix != ".pyc"]


def test_no_path_of_a_machine_is_committed() -> None:
    """The project works wherever it is cloned: no file names a place of the machine that it was written on."""
    names = own_files()
    assert {"pyproject.toml", "tests/test_packaging.py", "engine/turnstate/__init__.py"} <= set(names)
    place = re.compile(r"(?<![\w.$}~-])/(?:" + "|".join(["work", "root", "home", "farm", "Users", "tmp"]) + r")/\w")
    found = [
        f"{name}:{number}"
        for name in names
        for number, line in enumerate((ROOT / name).read_text(errors="replace").splitlines(), 1)
        if place.search(line)
    ]
    assert found == []
