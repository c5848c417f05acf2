"""Whether the outcome of a list of rules depends on their order."""

from __future__ import annotations

import fnmatch
import re
from itertools import combinations
from typing import TYPE_CHECKING

from .command import ShellCommand
from .conditions import Between, Condition, Glob, Not, OneOf
from .hosts import Host
from .paths import Under

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .rules import Rule

__all__ = ["disputed"]


def disputed(rules: Sequence[Rule]) -> tuple[Rule, Rule] | None:
    """The first two rules of which the later is stricter and both may fit one call; None if there are none.

    Where there are none, the strictest rule that fits and the first one have verdicts of the same kind.
    """
    for earlier, later in combinations(rules, 2):
        if later.strictness > earlier.strictness and _meet(earlier, later):
            return earlier, later
    return None


def _meet(earlier: Rule, later: Rule) -> bool:
    """Whether a call may surely fit the earlier one and possibly the later one."""
    if not globs_meet(earlier.tool, later.tool):
        return False
    names = earlier.conditions.keys() & later.conditions.keys()
    return all(_may_share(earlier.conditions[name], later.conditions[name]) for name in names)


# The JSON of what is not text, as patterns.
LISTS = ("[[]*]", "{*}")
NOT_TEXT = (*LISTS, "true", "false", "null", "-*", "[0-9]*")


def _may_share(earlier: Condition, later: Condition) -> bool:
    """Whether there may be a value that fits the earlier condition, of which the later does not say False."""
    if later == Not(earlier) or earlier == Not(later):
        return False
    match earlier, later:
        case OneOf(), Glob() | OneOf() | Between() | Host() | ShellCommand():
            return any(later.touches(value) is not False for value in earlier.values)
        case Glob(), Glob():
            return globs_meet(earlier.pattern, later.pattern) or _fits_some(earlier, LISTS)
        case Glob(), OneOf():
            texts = [value for value in later.values if isinstance(value, str)]
            return not texts or _fits_some(earlier, NOT_TEXT) or any(earlier.fits(text) for text in texts)
        case Between(), Between():
            return _below(earlier, later) and _below(later, earlier)
        case Under(), Under():
            pairs = [(one, other) for one in earlier.directories for other in later.directories]
            return earlier.base != later.base or any(_nested(a, b) or _nested(b, a) for a, b in pairs)
        case Host(), Host():
            return any(_hosts_meet(one, other) for one in earlier.hosts for other in later.hosts)
        case ShellCommand(), ShellCommand():
            return earlier.may_touch(later)
        case _:
            return True


def _fits_some(glob: Glob, shapes: Sequence[str]) -> bool:
    return any(globs_meet(glob.pattern, shape) for shape in shapes)


def _below(one: Between, other: Between) -> bool:
    return one.low is None or other.high is None or one.low <= other.high


def _nested(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def _hosts_meet(one: str, other: str) -> bool:
    """Whether a host fits both; a name has no ``*``, so one of two patterns fits the other as a text."""
    return globs_meet(one.replace("[", "[[]"), other.replace("[", "[[]"))


_TOKENS = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)


def globs_meet(one: str, other: str) -> bool:
    """Whether a text fits both patterns; in doubt (two sets of characters) True.

    >>> globs_meet("read_*", "*_file"), globs_meet("read_*", "delete_*"), globs_meet("[ab]c", "bc"), globs_meet("[!b]c", "bc")
    (True, False, True, False)
    """
    left, right = _TOKENS.findall(one), _TOKENS.findall(other)
    # reachable[j]: whether left[:i] and right[:j] can describe one text
    reachable = [True] + [False] * len(right)
    for j, token in enumerate(right):
        reachable[j + 1] = reachable[j] and token[0] == "*"
    for token in left:
        star = token[0] == "*"
        row = [reachable[0] and star]
        for j, against in enumerate(right):
            if star or against[0] == "*":
                row.append(reachable[j + 1] or row[j])
            else:
                row.append(reachable[j] and _one_character(token, against))
        reachable = row
    return reachable[-1]


def _one_character(one: str, other: str) -> bool:
    """Whether a character fits both of two tokens that stand for one."""
    if "?" in (one, other) or (len(one) > 1 and len(other) > 1):
        return True
    if len(one) > 1 or len(other) > 1:
        character, characters = sorted((one, other), key=len)
        return fnmatch.fnmatchcase(character, characters)
    return one == other
