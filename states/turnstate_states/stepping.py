"""Taking a step of the machine: the table's next state for an event and some facts.

The table is compiled from the statechart when the first step is taken, or when an engine is opened: importing
python-statemachine takes longer than the rest of this package.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal, get_args

import attrs

from .turn import StateName

if TYPE_CHECKING:
    from .machine import Table

__all__ = ["EVENTS", "FACTS", "STATES", "EventName", "Facts", "NotAllowed", "compiled", "next_state"]

EventName = Literal["start", "repeat", "request", "retry", "reply", "ask", "answer", "settle", "abort"]


@attrs.define
class Facts:
    """The facts that guards look at, and the state: the model of a :class:`TurnMachine`.

    ``has_calls``: the reply has calls that are to run. ``more_to_do``: no calls, but a continuation, a steer or a hook asks
    for one more step. ``can_move``: a call runs, may start or is being decided without a person, or none is open.
    ``all_settled``: every call has its result.
    """

    state: StateName = "idle"
    has_calls: bool = False
    more_to_do: bool = False
    can_move: bool = False
    all_settled: bool = False


STATES: tuple[StateName, ...] = get_args(StateName)
EVENTS: tuple[EventName, ...] = get_args(EventName)
FACTS: tuple[str, ...] = ("has_calls", "more_to_do", "can_move", "all_settled")


class NotAllowed(Exception):
    """The event has no transition from this state with these facts. Raised for a bug in this package, not for users."""


@functools.cache
def compiled() -> Table:
    """The table of :class:`~turnstate.states.TurnMachine`."""
    from .machine import TABLE

    return TABLE


def next_state(state: StateName, event: EventName, facts: object = None) -> StateName:
    """The state that ``event`` leads to.

    Raises:
        NotAllowed: no transition fits.

    >>> next_state("idle", "start")
    'before-model'
    """
    for rule in compiled().get((state, event), ()):
        if not rule.guards or rule.allows(facts):
            return rule.target
    raise NotAllowed(f"{event} in {state}")
