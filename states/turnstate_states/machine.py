"""The turn as a state machine: the one definition, and the table compiled from it.

:class:`TurnMachine` is what the docs draw and what tests drive. Sessions step on :data:`TABLE`, compiled from it once at
import, because a statechart instance for each turn would cost more than everything else in a step; a test drives both
over every state, event and combination of facts and holds them equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import attrs
from statemachine import State, StateChart

from .turn import StateName

__all__ = [
    "EVENTS",
    "FACTS",
    "STATES",
    "TABLE",
    "EventName",
    "Facts",
    "NotAllowed",
    "Rule",
    "TurnMachine",
    "next_state",
    "transitions",
]

EventName = Literal["start", "repeat", "request", "retry", "reply", "ask", "answer", "settle", "abort"]


@attrs.define
class Facts:
    """The facts that guards look at, and the state: the model of a :class:`TurnMachine`.

    ``has_calls``: the reply has calls that are to run. ``more_to_do``: no calls, but a continuation, a steer or a hook asks
    for one more step. ``may_run``: a call runs, may start, or is being decided without a person. ``all_settled``: every
    call has its result.
    """

    state: StateName = "idle"
    has_calls: bool = False
    more_to_do: bool = False
    may_run: bool = False
    all_settled: bool = False


FACTS: tuple[str, ...] = ("has_calls", "more_to_do", "may_run", "all_settled")


class TurnMachine(StateChart[Facts]):
    """One turn of an agent, from a message to a final state."""

    allow_event_without_transition = False
    catch_errors_as_events = False
    atomic_configuration_update = True
    enable_self_transition_entries = False

    idle = State("idle", value="idle", initial=True)
    before_model = State("before-model", value="before-model")
    streaming = State("streaming", value="streaming")
    awaiting_approval = State("awaiting-approval", value="awaiting-approval")
    executing_tools = State("executing-tools", value="executing-tools")
    aborted = State("aborted", value="aborted", final=True)
    complete = State("complete", value="complete", final=True)

    start = idle.to(before_model)
    repeat = before_model.to(before_model)
    request = before_model.to(streaming)
    retry = streaming.to(before_model)
    reply = (
        streaming.to(executing_tools, cond="has_calls")
        | streaming.to(before_model, cond="more_to_do")
        | streaming.to(complete)
    )
    ask = executing_tools.to(awaiting_approval, unless=["may_run", "all_settled"])
    answer = awaiting_approval.to(executing_tools, cond="may_run") | awaiting_approval.to(
        executing_tools, cond="all_settled"
    )
    settle = executing_tools.to(before_model, cond="all_settled")
    abort = (
        before_model.to(aborted) | streaming.to(aborted) | awaiting_approval.to(aborted) | executing_tools.to(aborted)
    )


@attrs.frozen
class Rule:
    """One transition: it is taken if each named fact has the value that stands with it."""

    target: StateName
    guards: tuple[tuple[str, bool], ...] = ()

    def allows(self, facts: object) -> bool:
        """Whether all its guards hold."""
        return all(getattr(facts, name) is expected for name, expected in self.guards)


class NotAllowed(Exception):
    """The event has no transition from this state with these facts. Raised for a bug in this package, not for users."""


Table = Mapping[tuple[StateName, EventName], tuple[Rule, ...]]


def transitions(machine: type[StateChart[Any]]) -> Table:
    """The transitions of a statechart as a table: the rules of each state and event, in the order they are tried."""
    table: dict[tuple[StateName, EventName], tuple[Rule, ...]] = {}
    for state in machine.states:
        for transition in state.transitions:
            specs = cast(Iterable[Any], transition.cond)
            guards = tuple((str(spec.func), bool(spec.expected_value)) for spec in specs)
            rule = Rule(cast(StateName, cast(Any, transition.target).value), guards)
            for event in transition.events:
                key = (cast(StateName, state.value), cast(EventName, str(event.id)))
                table[key] = (*table.get(key, ()), rule)
    return table


TABLE: Table = transitions(TurnMachine)
STATES: tuple[StateName, ...] = tuple(cast(StateName, state.value) for state in TurnMachine.states)
EVENTS: tuple[EventName, ...] = ("start", "repeat", "request", "retry", "reply", "ask", "answer", "settle", "abort")


def next_state(state: StateName, event: EventName, facts: object = None) -> StateName:
    """The state that ``event`` leads to.

    Raises:
        NotAllowed: no transition fits.

    >>> next_state("idle", "start")
    'before-model'
    """
    for rule in TABLE.get((state, event), ()):
        if not rule.guards or rule.allows(facts):
            return rule.target
    raise NotAllowed(f"{event} in {state}")
