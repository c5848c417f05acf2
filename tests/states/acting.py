"""What every action of a world needs: to submit, to report, to name things, and to know that nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from tests.states.hosted import Hosted
from tests.states.scope import Action, Scope
from turnstate_states.codec import encode_checkpoint
from turnstate_states.errors import InvalidInput, Refused
from turnstate_states.reports import Activity, Report
from turnstate_states.submissions import Provide, Submission
from turnstate_states.turn import Call


@attrs.define(eq=False)
class Acting(Hosted):
    """A session with everything around it.

    ``script`` is what happened so far, batch by batch; ``provided`` what was said last of calls outside.
    """

    scope: Scope = attrs.field(factory=Scope)
    submissions: int = 0
    last_submission: Submission | None = None
    last_report: Report | None = None
    provided: dict[str, Provide] = attrs.field(factory=dict[str, Provide])
    script: tuple[tuple[Action, ...], ...] = ()

    def unchanged(self, do: Callable[[], Any]) -> None:
        """Do something that must change nothing."""
        before = encode_checkpoint(self.core.checkpoint)
        do()
        assert encode_checkpoint(self.core.checkpoint) == before

    def say(self, submission: Submission) -> bool:
        """Submit; whether it was accepted."""
        before, messages = encode_checkpoint(self.core.checkpoint), len(self.core.transcript)
        try:
            self.core.submit(submission, now=self.now)
        except (Refused, InvalidInput):
            assert encode_checkpoint(self.core.checkpoint) == before
            assert len(self.core.transcript) == messages
            return False
        self.last_submission = submission
        return True

    def expect(self, submission: Submission, accepted: bool) -> None:
        """Submit what is accepted, or refused."""
        assert self.say(submission) == accepted

    def new_id(self, kind: str) -> str:
        """An id that no submission had."""
        self.submissions += 1
        return f"{kind}{self.submissions}"

    def report(self, report: Report, *, ends: bool = True) -> None:
        """Report what is expected; ``ends`` where the activity's task is over with it."""
        assert self.core.report(report, now=self.now), f"{report} did not count"
        self.last_report = report
        if ends:
            self.running = None

    def refuse(self, report: Report) -> None:
        """Report what does not count."""
        assert not self.core.report(report, now=self.now)

    def key(self) -> Activity:
        """The key of the running activity."""
        assert self.running is not None
        return self.running

    def call(self, at: str) -> Call:
        """The call at a place, or the one nested in it: ``0/m1.0``."""
        turn = self.core.turn
        assert turn is not None
        outer, _, inner = at.partition("/")
        call = list(turn.calls.values())[int(outer)]
        return call.view(next(nested for nested in call.nested if nested.id == inner)) if inner else call

    def open(self) -> bool:
        """Whether there is a turn that was not told to end, so that its calls may be answered."""
        turn = self.core.turn
        return turn is not None and turn.ending is None and not turn.final

    def happen(self, calls: Iterable[str]) -> None:
        """The effects of these calls happen."""
        effects = self.ledger.effects
        for call in calls:
            effects[call] = effects.get(call, 0) + 1
