"""Fixtures that any test may use, and how a run is reported."""

from collections.abc import Generator

import pytest

# Before anything imports them: their assertions are to explain themselves.
pytest.register_assert_rewrite("turnstate.testing")

from tests.depth import Depth  # noqa: E402
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


def pytest_configure(config: pytest.Config) -> None:
    """Count what is tried."""
    config.pluginmanager.register(Depth(), "depth")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what a test printed or logged fit for a pipe: a lone surrogate in it would end a worker of pytest-xdist."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
