"""Every sequence of inputs up to a depth, over small alphabets, with the invariants checked after every commit.

``TURNSTATE_SEARCH_DEPTH`` searches to another depth than ``TURNSTATE_DEPTH`` says.
"""

from __future__ import annotations

import os

import attrs
import pytest

from tests.depth import counted, pick
from tests.states.explore import World
from tests.states.scope import COMPACTING, HOOKED, PLAIN, Scope
from tests.states.searching import check_recovery, check_replays, fingerprint
from turnstate_states.rules import Limits

DEPTH = int(os.environ.get("TURNSTATE_SEARCH_DEPTH") or pick(4, 16))

TIGHT = attrs.evolve(PLAIN, limits=Limits(steps=2, attempts=1, resumptions=1, queue=1, grants=1))

SCOPES = {
    "approvals": Scope(
        TIGHT,
        replies=("text", "several"),
        answers=("session", "deny-end"),
        sends=("steer",),
        verdicts=("allow", "ask"),
        turns=1,
    ),
    "queue": Scope(replies=("text", "plain", "cut"), turns=3),
    "hooks": Scope(
        HOOKED,
        replies=("text", "plain"),
        sends=("steer",),
        hooks=("ok", "message", "again", "stop", "error"),
        turns=1,
    ),
    "threads": Scope(
        attrs.evolve(TIGHT, turn_ended=True),
        replies=("text", "outside"),
        answers=(),
        sends=("supersede",),
        changes=("edit", "switch", "delete"),
        targets=("old",),
        provides=("falsy",),
        turns=2,
    ),
    "nested": Scope(
        TIGHT,
        replies=("text", "sub"),
        answers=("approve",),
        sends=("supersede",),
        provides=("falsy",),
        suspends=("two",),
        turns=1,
    ),
    "compaction": Scope(
        COMPACTING,
        replies=("text", "plain"),
        sends=("steer",),
        hooks=("ok", "compact", "error"),
        turns=1,
    ),
}


def search(scope: Scope, depth: int, every: int = 40) -> tuple[int, int]:
    """Search breadth first; the number of states that differ, and the depth at which no new ones came (or ``depth``).

    Recovery and replays are checked in one of ``every`` states.
    """
    level = [World.new(scope)]
    seen = {fingerprint(level[0])}
    for at in range(depth):
        found: list[World] = []
        for world in level:
            for batch in world.enabled():
                other = world.copy()
                other.apply(*batch)
                mark = fingerprint(other)
                if mark in seen:
                    continue
                seen.add(mark)
                found.append(other)
                if len(seen) % every == 0:
                    check_recovery(other)
                    check_replays(other)
        level = found
        if not level:
            return len(seen), at
    return len(seen), depth


@pytest.mark.parametrize("name", SCOPES)
def test_invariants_hold_in_every_state_that_can_be_reached(name: str) -> None:
    """No sequence of inputs, crashes and races breaks an invariant."""
    states, _ = search(SCOPES[name], DEPTH)
    counted("states", states)
    assert states > 30
