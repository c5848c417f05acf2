"""The turn as a state machine: the one definition, and the table compiled from it.

:class:`TurnMachine` is what the docs draw and what tests drive. Sessions step on :data:`TABLE`, compiled from it once,
because a statechart instance for each turn would cost more than everything else in a step; a test drives both
over every state, event and combination of facts and holds them equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import attrs
from statemachine import State, StateChart

from .stepping import EVENTS, FACTS, STATES, EventName, Facts, NotAllowed, next_state
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
    ask = executing_tools.to(awaiting_approval, unless="can_move")
    answer = awaiting_approval.to(executing_tools, cond="can_move")
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
