"""Random long lives of a session, with everything that may happen to it, and the invariants checked after every commit."""

from __future__ import annotations

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

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
BENIGN = ("prepared", "reviewed", "closed", "reply", "done", "look", "policy", "answer", "provide", "suspend", "tick")


class Life(RuleBasedStateMachine):
    """A session that lives as long as Hypothesis wants."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World.new(EVERYTHING)

    @initialize(hooks=st.booleans())
    def begin(self, hooks: bool) -> None:
        """Choose whether there are hooks, and say the first thing."""
        self.world = World.new(HOOKS if hooks else EVERYTHING)
        self.world.apply(("send", "queue"))

    @rule(data=st.data())
    def happen(self, data: st.DataObject) -> None:
        """Anything may happen; what there are many ways to do is no more likely for that."""
        enabled = self.world.enabled()
        kind = data.draw(st.sampled_from(list(dict.fromkeys(batch[-1][0] for batch in enabled))))
        self.world.apply(*data.draw(st.sampled_from([batch for batch in enabled if batch[-1][0] == kind])))

    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """Something that brings the turn on, one way or another."""
        benign = [batch for batch in self.world.enabled() if len(batch) == 1 and batch[0][0] in BENIGN]
        if benign:
            self.world.apply(*data.draw(st.sampled_from(benign)))

    @rule()
    def advance(self) -> None:
        """The most ordinary thing happens."""
        self.world.advance()

    @rule(effects=st.sampled_from(("after", "before")))
    def crash(self, effects: str) -> None:
        """The process dies, and another one goes on."""
        self.world.apply(("crash", effects))

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
TestLife.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
