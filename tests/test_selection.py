"""No test is skipped: what a test needs is there, or the test is left out, or it fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import NEEDS

ROOT = Path(__file__).parents[1]
CONFTEST = "pytest_plugins = ['tests.selection']"
TESTS = """
import pytest

def test_plain(): pass

@pytest.mark.npm
def test_npm(): pass

@pytest.mark.bubblewrap
def test_bubblewrap(): pass

@pytest.mark.recordings
@pytest.mark.parametrize("file", [])
def test_recordings(file): pass
"""
SKIPPING = """
import pytest

def test_itself(): pytest.skip("no time")

@pytest.mark.skipif(True, reason="not today")
def test_marked(): pass

@pytest.mark.parametrize("file", [])
def test_empty(file): pass

@pytest.mark.xfail
def test_known(): assert False
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with one test of each kind; the one with recordings found none to run on."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers -p no:cacheprovider\nmarkers =\n"
        + "".join(f"    {name}: needs something\n" for name in NEEDS)
    )
    return tmp_path


def run(project: Path, **variables: str) -> str:
    """What pytest says of the folder, with these variables and no program on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TURNSTATE_", "PYTEST_"))}
    environment = {
        **kept,
        "PYTHONPATH": str(ROOT),
        "PATH": str(project),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # it starts in half the time
        **variables,
    }
    command = [sys.executable, "-m", "pytest", "-rA", "--color=no", "."]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_what_needs_more_is_left_out(project: Path) -> None:
    """Where nothing is turned on only the plain test runs; the others are left out, not skipped, and the head says so."""
    said = run(project)
    assert "1 passed, 3 deselected in" in said
    assert "left out: bubblewrap, npm, recordings (see tests/README.md)" in said


def test_what_is_turned_on_fails_if_it_is_missing(project: Path) -> None:
    """A test that is turned on and lacks what it needs fails and says what is missing, also one without parameters."""
    said = run(project, TURNSTATE_WITH="bubblewrap, npm,recordings")
    assert "1 passed, 3 errors in" in said
    assert "bubblewrap (the program bwrap) is not installed" in said
    assert "TURNSTATE_AIMOCK must be the path of its node_modules/.bin/llmock" in said
    assert "TURNSTATE_SHARED does not name a folder with recorded answers" in said


def test_saying_where_it_is_turns_it_on(project: Path) -> None:
    """The variable that names the program or the folder turns its tests on without more."""
    program = project / "serve"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    said = run(project, TURNSTATE_AIMOCK=str(program), TURNSTATE_SHARED=str(project / "nowhere"))
    assert "1 deselected" in said
    assert re.findall(r"^(PASSED|ERROR) test_it.py::(\w+)", said, re.MULTILINE) == [
        ("PASSED", "test_plain"),
        ("PASSED", "test_npm"),
        ("ERROR", "test_recordings"),
    ]


def test_an_unknown_name_is_refused(project: Path) -> None:
    """``TURNSTATE_WITH`` takes only the names that there are."""
    said = run(project, TURNSTATE_WITH="npm,docker")
    assert "TURNSTATE_WITH names docker; there are only bubblewrap, npm, recordings" in said
    assert "passed" not in said


def test_the_markers_are_registered(pytestconfig: pytest.Config) -> None:
    """Each of the needs is a marker of the project."""
    registered = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert registered >= set(NEEDS)


def test_a_skipped_test_fails(project: Path) -> None:
    """A test that skips itself, is marked to be skipped or has no parameters fails and says why."""
    (project / "test_it.py").write_text(SKIPPING)
    said = run(project)
    assert "1 failed, 1 xfailed, 2 errors in" in said
    for why in ("no time", "not today", "got empty parameter set"):
        assert re.search(f"no test may be skipped: .*{why}", said)
