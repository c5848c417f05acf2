"""Random long lives of a session, with everything that may happen to it, and the invariants checked after every commit."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.depth import counted, steps_of
from tests.states.explore import World
from tests.states.scope import HOOKED, PLAIN, REPLIES, Action, Scope
from tests.states.searching import check_recovery, check_replays

EVERYTHING = Scope(
    PLAIN,
    replies=tuple(REPLIES),
    answers=("approve", "edited", "session", "deny", "deny-end", "option", "text"),
    sends=("queue", "steer", "supersede"),
    hooks=("ok", "message", "again", "stop", "error"),
    changes=("edit", "regenerate", "switch", "delete", "annotate"),
    provides=("result", "falsy", "error", "preliminary"),
    suspends=("one", "two", "brief"),
    commands=("note", "idle"),
)
HOOKS = attrs.evolve(
    EVERYTHING, rules=attrs.evolve(HOOKED, makes_room=True), hooks=(*EVERYTHING.hooks, "compact"), imported=True
)
THREADS = attrs.evolve(
    EVERYTHING,
    rules=attrs.evolve(PLAIN, turn_ended=True),
    replies=("text", "subs", "outsides", "sub", "choose"),
    answers=("approve", "edited", "deny-end", "option"),
    imported=True,
)
BENIGN = ("prepared", "reviewed", "closed", "reply", "done", "look", "policy", "answer", "provide", "suspend", "tick")


class Life(RuleBasedStateMachine):
    """A session that lives as long as Hypothesis wants."""

    def __init__(self) -> None:
        super().__init__()
        counted("lives")
        self.world = World.new(EVERYTHING)

    @initialize(scope=st.sampled_from((EVERYTHING, HOOKS, THREADS)))
    def begin(self, scope: Scope) -> None:
        """Choose what there is, and say the first thing."""
        self.world = World.new(scope)
        self.world.apply(("send", "queue"))

    def _draw(self, data: st.DataObject, batches: Sequence[tuple[Action, ...]]) -> None:
        """Let one of these happen; what there are many ways to do is no more likely for that."""
        kind = data.draw(st.sampled_from(list(dict.fromkeys(batch[-1][0] for batch in batches))))
        self.world.apply(*data.draw(st.sampled_from([batch for batch in batches if batch[-1][0] == kind])))

    @rule(data=st.data())
    def happen(self, data: st.DataObject) -> None:
        """Anything may happen."""
        self._draw(data, self.world.enabled())

    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """Something that brings the turn on, one way or another."""
        benign = [batch for batch in self.world.enabled() if len(batch) == 1 and batch[0][0] in BENIGN]
        if benign:
            self._draw(data, benign)

    @rule()
    def advance(self) -> None:
        """The most ordinary thing happens."""
        self.world.advance()

    @precondition(lambda self: self.world.core.turn is not None and self.world.core.turn.closed)
    @rule(how=st.sampled_from((("send", "queue"), ("resume",))))
    def go_on(self, how: Action) -> None:
        """Someone begins another turn."""
        self.world.apply(how)

    def teardown(self) -> None:
        """A crash now leads to the turn's end, and all of it can be replayed."""
        check_recovery(self.world)
        check_replays(self.world)


TestLife = Life.TestCase
TestLife.settings = steps_of(150, 40, suppress_health_check=[HealthCheck.too_slow])
