"""How deep the tests go: ``TURNSTATE_DEPTH`` is ``quick`` (the default) or ``full`` (what the project's check sets).

Quick runs fewer examples, searches less far and tries every k-th place where a full run tries each. What was done is
counted, and the last lines of a run print the counts.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings

__all__ = ["FULL", "Depth", "counted", "examples", "pick", "places", "rotated", "steps_of", "until"]

T = TypeVar("T")
U = TypeVar("U")
_WORDS = ("quick", "full")
_CHOSEN = os.environ.get("TURNSTATE_DEPTH", "quick")
if _CHOSEN not in _WORDS:
    raise pytest.UsageError(f"TURNSTATE_DEPTH: expected quick or full, got {_CHOSEN!r}")
FULL = _CHOSEN == "full"
"""Whether everything is tried."""
PART = 6
"""A quick run tries about one of so many examples, and one of so many places."""
FEWEST = 8
"""Examples that a quick run tries at least."""

counts: Counter[str] = Counter()
"""What this process did so far, by kind: ``examples``, ``states``, ``crashes``, ``kills`` and so on."""


def counted(kind: str, number: int = 1) -> None:
    """Note that something was tried."""
    counts[kind] += number


def pick(quick: T, full: T) -> T:
    """The one of two values that fits the depth."""
    return full if FULL else quick


def places(number: int, *, part: int = PART, first: int = 1, kind: str = "crashes") -> Sequence[int]:
    """The places of a sweep, ``first`` to ``number``: each of them, or every ``part``-th with the first and the last.

    >>> list(places(3))
    [1, 2, 3]
    """
    every = range(first, number + 1)
    chosen = every if FULL or number <= first + 2 else sorted({*every[:: max(1, part)], number})
    counted(kind, len(chosen))
    return chosen


def rotated(ones: Iterable[T], others: Iterable[U], part: int = 3) -> list[tuple[T, U]]:
    """Each of the one with each of the other; in a quick run one in ``part`` of the pairs, with each of both in some."""
    first, second = list(ones), list(others)
    step = pick(part, 1)
    return [(one, other) for at, one in enumerate(first) for by, other in enumerate(second) if (at + by) % step == 0]


def until(last: int, *, step: int = 1, part: int = PART) -> range:
    """The places of a sweep whose end shows only when it is reached: 1, 2, 3 and so on, at most to ``last``.

    A full run takes each ``step``-th place, a quick one each ``part``-th of those. Whoever tries one counts it.
    """
    return range(1, last + 1, step if FULL else step * part)


def _examples(full: int) -> int:
    return full if FULL else max(min(full, FEWEST), full // PART)


def steps_of(full: int, steps: int, **more: Any) -> settings:
    """The settings of a stateful test with so many examples and steps in a full run."""
    return settings(max_examples=_examples(full), stateful_step_count=steps, deadline=None, **more)


def examples(full: int = 100, **more: Any) -> Callable[[T], T]:
    """Decorate a test that Hypothesis feeds: how many examples a full run tries. Stands above ``@given``."""

    def decorate(test: Any) -> Any:
        inner = test.hypothesis.inner_test

        @functools.wraps(inner)
        def one(*args: Any, **kwargs: Any) -> Any:
            counted("examples")
            return inner(*args, **kwargs)

        @functools.wraps(inner)
        async def one_on_trio(*args: Any, **kwargs: Any) -> Any:
            counted("examples")
            return await inner(*args, **kwargs)

        test.hypothesis.inner_test = one_on_trio if inspect.iscoroutinefunction(inner) else one
        return settings(max_examples=_examples(full), deadline=None, **more)(test)

    return decorate


class Depth:
    """A plugin of pytest: adds the counts of all workers up, and prints them at the end of a run."""

    KEY = "turnstate_counts"

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the counts to the process that reports."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[self.KEY] = dict(counts)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the counts of a worker of pytest-xdist."""
        self.total.update(getattr(node, "workeroutput", {}).get(self.KEY, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was tried."""
        total = self.total + counts
        text = ", ".join(f"{number} {kind}" for kind, number in sorted(total.items()))
        terminalreporter.write_line(f"depth {_CHOSEN}: {text or 'nothing counted'}")
