"""Conditions on paths, checked against the file system."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.depth import examples
from turnstate.policy import Not, Under


def tree(folder: Path) -> Path:
    """A directory ``data`` beside a directory ``secret``, with links from one to the other."""
    data, secret = folder / "data", folder / "secret"
    for directory in (data / "sub", secret / "sub"):
        directory.mkdir(parents=True)
    (data / "file").write_text("f")
    (secret / "key").write_text("k")
    (data / "out").symlink_to(secret)
    (data / "out2").symlink_to("../secret/key")
    (data / "self").symlink_to("sub")
    (data / "loop").symlink_to("loop")
    (data / "gone").symlink_to("../secret/new")
    (secret / "in").symlink_to(data)
    (folder / "alias").symlink_to("data")
    return data


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        *[("data", True), ("data/", True), ("data/file", True), ("data/./sub//x", True), ("data/new/deep/file", True)],
        *[("data/sub/../file", True), ("data/new/../file", True), ("alias/file", True), ("data/self/x", True)],
        *[
            ("alias", None),
            ("data/self", True),
            ("secret/in/file", True),
            ("secret/in", None),
            ("data/out/../data/file", True),
        ],
        *[
            ("secret", False),
            ("secret/key", False),
            ("data/../secret/key", False),
            ("database", False),
            ("", False),
            ("/", False),
        ],
        *[
            ("data/out/key", False),
            ("data/new/../../secret", False),
            ("data/out", None),
            ("data/out2", None),
            ("data/gone", None),
        ],
        *[
            ("data/out/../file", None),
            ("data/loop", None),
            ("data/loop/x", None),
            ("data/file/x", None),
            ("data/file/../new", None),
            ("data/self/../../x", False),
        ],
        *[("data/a\nb", None), ("data/a ", None), ("data/a\x00", None), ("data/\ud800", None), ("data/a\u200bb", None)],
        *[("data/" + "x" * 300, None), ("data/" + "x/" * 3000, None), ("./data/out/sub/../../data/file", True)],
    ],
)
def test_paths(tmp_path: Path, path: str, answer: bool | None) -> None:
    """A path is below a directory if it is in every way to read it, and not if it is in none (A1)."""
    folder = Path(os.path.realpath(tmp_path))
    check = Under(tree(folder))
    assert check.fits(f"{folder}/{path}") is answer
    assert check.fits(f"//{folder}//{path}") is answer
    assert Under(folder / "alias").fits(f"{folder}/{path}") is answer
    assert Under("/nowhere", folder / "data").fits(f"{folder}/{path}") is answer
    assert Not(check).touches(f"{folder}/{path}") is (None if answer is None else not answer)


@pytest.mark.parametrize(
    "value", [None, True, 5, ["/a"], {"path": "/a"}, "", "~/a", "~root/a", "file:///a", "https://a/b", " /a"]
)
def test_what_is_no_plain_path(value: Any) -> None:
    """What is not text, or what some program takes for something other than a path, cannot be told, whatever the base."""
    for check in (Under("/"), Under("/srv", base="/srv")):
        assert check.fits(value) is None


def test_relative_paths(tmp_path: Path) -> None:
    """A relative path starts at the base, and cannot be told without one."""
    folder = Path(os.path.realpath(tmp_path))
    data = tree(folder)
    assert Under(data).fits("file") is None
    assert Under(data, base=data / "sub").fits("../file") is True
    assert Under(data, base=data / "sub").fits("../../secret/key") is False
    assert Under(data, base=folder / "alias").fits("file") is True


def test_links_of_other_processes() -> None:
    """A link in /proc leads elsewhere for each process, so it cannot be told where, nor what has the name of one."""
    for path in ("/proc/self/root/etc", "/proc/self/cwd/a", f"/proc/{os.getpid()}/root/etc", "/dev/fd/3", "/dev/stdin"):
        assert Under("/etc").fits(path) is None
    assert Under("/proc").fits("/proc/meminfo") is True


def test_what_may_not_be_followed() -> None:
    """What is in a directory that may not be entered cannot be told, and what is elsewhere can."""
    program = """if True:
        import os, sys
        from turnstate.policy import Under
        if os.geteuid() == 0:  # root may look everywhere
            os.seteuid(65534)
        shut = sys.argv[1]
        print([Under(given).fits(path) for given in (shut, f"{shut}/in") for path in (f"{shut}/in/a", "/etc/a")])"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory() as folder:  # that of a test is closed to other users from above
        shut = Path(os.path.realpath(folder)) / "shut"
        shut.mkdir(0)
        shut.parent.chmod(0o755)
        words = [sys.executable, "-c", program, str(shut)]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60)
        shut.chmod(0o700)
    assert done.stdout == "[None, False, None, False]\n", done.stderr


NAMES = ["data", "secret", "out", "out2", "self", "gone", "in", "alias", "sub", "file", "new", "key", "loop"]
PATHS = st.lists(st.sampled_from([*NAMES, "..", "..", ".", ""]), max_size=8).map("/".join)


@examples(400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS)
def test_the_file_system_agrees(tmp_path: Path, path: str) -> None:
    """A path that is below a directory opens a file below it, and one that is not opens none; links and ``..`` as may be."""
    folder = Path(os.path.realpath(tmp_path))
    data = folder / "data" if (folder / "data").exists() else tree(folder)
    answer = Under(data).fits(f"{folder}/{path}")
    for text in (f"{folder}/{path}", os.path.normpath(f"{folder}/{path}")):
        try:
            descriptor = os.open(text, os.O_RDONLY)
        except OSError:
            continue
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        os.close(descriptor)
        assert answer is None or answer is (real == str(data) or real.startswith(f"{data}/"))
