"""The command as a process: its entry point, its exit codes, its pipes, and what it loads."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.command import PATIENCE, environment
from tests.cli.processes import command, run_process


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["--version"], 0, f"turnstate {version('turnstate')}\n", ""),
        (["show", "ä"], 1, "", "turnstate: there is no session 'ä' in the default file, which does not exist yet; "),
        (["talk"], 2, "", "turnstate: argument COMMAND: invalid choice: 'talk'"),
    ],
    ids=["done", "failed", "misused"],
)
def test_the_entry_point(tmp_path: Path, arguments: list[str], code: int, out: str, err: str) -> None:
    """``python -m turnstate.cli`` prints to the streams of its process and ends with the code of what it did."""
    done = run_process(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (code, out)
    assert done.stderr.startswith(err)
    assert done.stderr.count("\n") == (1 if err else 0)


@pytest.mark.parametrize("arguments", [["sessions"], ["demo", "--source"]], ids=["at once", "at its end"])
def test_a_reader_that_leaves(tmp_path: Path, arguments: list[str]) -> None:
    """A pipe that nobody reads ends the command without a word."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        command(*arguments),
        stdout=write,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        timeout=PATIENCE,
        check=False,
    )
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 141


def test_the_library_does_not_load_it() -> None:
    """``import turnstate`` does not import the command."""
    code = "import sys, turnstate; print([name for name in sys.modules if name.split('.')[1:2] == ['cli']])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "[]\n"
