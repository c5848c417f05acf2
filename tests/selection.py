"""Which tests run: those that need more than ``pip install '.[test]'`` brings run only where they are turned on.

Such a test has a marker, one of :data:`~tests.needs.NEEDS`. It is deselected unless ``TURNSTATE_WITH`` names its marker
(``TURNSTATE_WITH=npm,bubblewrap,recordings``) or the variable that says where the thing is has a value. Where it is turned
on and the thing is missing, the test fails. No test is ever skipped: one that skips itself fails.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests.needs import NEEDS

__all__ = [
    "pytest_collection_modifyitems",
    "pytest_report_header",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
]

WITH = "TURNSTATE_WITH"


def turned_on() -> frozenset[str]:
    """The markers whose tests run.

    Raises:
        pytest.UsageError: ``TURNSTATE_WITH`` names something else.
    """
    named = {name.strip() for name in os.environ.get(WITH, "").split(",")} - {""}
    if unknown := named - set(NEEDS):
        raise pytest.UsageError(f"{WITH} names {', '.join(sorted(unknown))}; there are only {', '.join(NEEDS)}")
    return frozenset(named | {name for name, need in NEEDS.items() if os.environ.get(need.variable)})


def _needs(item: pytest.Item) -> set[str]:
    return {marker.name for marker in item.iter_markers()} & set(NEEDS)


def pytest_report_header() -> str:
    """Say what is left out, and how to turn it on."""
    off = [name for name in NEEDS if name not in turned_on()]
    return f"left out: {', '.join(off)} (see tests/README.md)" if off else "nothing is left out"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that are not turned on."""
    on = turned_on()
    off = [item for item in items if not _needs(item) <= on]
    if off:
        config.hook.pytest_deselected(items=off)
        items[:] = [item for item in items if _needs(item) <= on]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose need is missing; also one that got no parameters for it, which pytest itself would skip."""
    for name in sorted(_needs(item)):
        if why := NEEDS[name].missing():
            pytest.fail(f"this test was turned on, but {why}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that was skipped: whoever only looks at the last line would think that it ran."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"no test may be skipped: {report.longrepr}"
    return report
