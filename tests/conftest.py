"""Fixtures that any test may use, and how a run is reported."""

import os
from collections.abc import Generator

import pytest

# Before anything imports them: their assertions are to explain themselves.
pytest.register_assert_rewrite("turnstate.testing")

from tests.depth import FULL, Depth  # noqa: E402
from tests.servers.fixtures import (  # noqa: E402
    aimock_process,
    aimock_server,
    llama_server,
    llmock_process,
    llmock_server,
    quick_clock,
)

pytest_plugins = ["tests.selection"]

__all__ = ["aimock_process", "aimock_server", "llama_server", "llmock_process", "llmock_server", "quick_clock"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A quick run leaves out what is marked as deep: long tests beside which a shorter one holds the same."""
    left_out = [] if FULL else [item for item in items if item.get_closest_marker("deep")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


def pytest_configure(config: pytest.Config) -> None:
    """Count what is tried, and keep the bytecode of the processes that a run starts."""
    config.pluginmanager.register(Depth(), "depth")
    if not hasattr(config, "workerinput"):
        # Many tests start processes, and workers rewrite assertions: compiling all of it each time takes longer than the
        # tests. The bytecode is beside what pytest itself keeps, so that no folder of the project is touched.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.rootpath / ".pytest_cache" / "bytecode")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what a test printed or logged fit for a pipe: a lone surrogate in it would end a worker of pytest-xdist."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
