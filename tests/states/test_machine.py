"""The machine: every state and event pinned, and the table that sessions step on held equal to the statechart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from statemachine import StateChart
from statemachine.exceptions import TransitionNotAllowed

from turnstate_states.checkpoint import Checkpoint
from turnstate_states.codec import decode_checkpoint, encode_checkpoint
from turnstate_states.errors import CheckpointError
from turnstate_states.machine import (
    EVENTS,
    FACTS,
    STATES,
    TABLE,
    EventName,
    Facts,
    NotAllowed,
    TurnMachine,
    next_state,
    transitions,
)
from turnstate_states.turn import StateName, TurnState

PINNED: dict[StateName, dict[EventName, tuple[StateName, ...]]] = {
    "idle": {"start": ("before-model",)},
    "before-model": {
        "repeat": ("before-model",),
        "request": ("streaming",),
        "abort": ("aborted",),
    },
    "streaming": {
        "retry": ("before-model",),
        "reply": ("executing-tools", "before-model", "complete"),
        "abort": ("aborted",),
    },
    "executing-tools": {
        "ask": ("awaiting-approval",),
        "settle": ("before-model",),
        "abort": ("aborted",),
    },
    "awaiting-approval": {
        "answer": ("executing-tools",),
        "abort": ("aborted",),
    },
    "aborted": {},
    "complete": {},
}
"""What each event may lead to from each state; what is not named is an error."""

CHART: Any = TurnMachine
EVENT_IDS = {str(event.id) for event in CHART.events}

GUARDED: list[tuple[StateName, EventName, dict[str, bool], StateName | None]] = [
    ("streaming", "reply", {"has_calls": True}, "executing-tools"),
    ("streaming", "reply", {"has_calls": True, "more_to_do": True}, "executing-tools"),
    ("streaming", "reply", {"more_to_do": True}, "before-model"),
    ("streaming", "reply", {}, "complete"),
    ("executing-tools", "ask", {}, "awaiting-approval"),
    ("executing-tools", "ask", {"can_move": True}, None),
    ("executing-tools", "settle", {"all_settled": True}, "before-model"),
    ("executing-tools", "settle", {"can_move": True}, None),
    ("awaiting-approval", "answer", {"can_move": True}, "executing-tools"),
    ("awaiting-approval", "answer", {"all_settled": True}, None),
    ("awaiting-approval", "answer", {}, None),
]


def all_facts() -> Iterator[dict[str, bool]]:
    """Every combination of the facts."""
    for values in itertools.product((False, True), repeat=len(FACTS)):
        yield dict(zip(FACTS, values, strict=True))


def with_facts(state: StateName, facts: dict[str, bool]) -> Facts:
    """The model of a machine in a state."""
    model = Facts(state)
    for name, value in facts.items():
        setattr(model, name, value)
    return model


def step(state: StateName, event: EventName, facts: dict[str, bool]) -> StateName | None:
    """The next state of the table, or None for an error."""
    try:
        return next_state(state, event, with_facts(state, facts))
    except NotAllowed:
        return None


def drive(state: StateName, event: EventName, facts: dict[str, bool]) -> StateName | None:
    """The next state of the statechart, or None for an error."""
    model = with_facts(state, facts)
    machine: Any = TurnMachine(model)
    try:
        machine.send(event)
    except TransitionNotAllowed:
        assert model.state == state
        return None
    return model.state


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_each_state_and_event_is_pinned(state: StateName, event: EventName) -> None:
    """An event leads from a state to exactly the targets that are written down, or is an error."""
    expected = PINNED[state].get(event, ())
    assert tuple(rule.target for rule in TABLE.get((state, event), ())) == expected
    reached = {step(state, event, facts) for facts in all_facts()} - {None}
    assert reached == set(expected)


@pytest.mark.parametrize(("state", "event", "facts", "target"), GUARDED)
def test_guards_choose_the_target(
    state: StateName, event: EventName, facts: dict[str, bool], target: StateName | None
) -> None:
    """The facts decide which target is taken."""
    assert step(state, event, dict.fromkeys(FACTS, False) | facts) == target


def test_the_table_equals_the_statechart() -> None:
    """Over every state, event and combination of facts the table and the driven statechart go the same way."""
    for state, event in itertools.product(STATES, EVENTS):
        for facts in all_facts():
            assert step(state, event, facts) == drive(state, event, facts), (state, event, facts)


def test_the_table_is_compiled_from_the_statechart() -> None:
    """The table holds what the statechart declares, no more and no less."""
    assert transitions(TurnMachine) == TABLE
    assert {event for _, event in TABLE} == set(EVENTS)
    assert sorted(EVENTS) == sorted(EVENT_IDS)


def test_there_are_seven_states_one_first_and_two_final() -> None:
    """The states are the seven of the design; idle is the first, aborted and complete are final."""
    assert set(STATES) == set(PINNED)
    assert len(STATES) == 7
    assert [state.value for state in TurnMachine.states if state.initial] == ["idle"]
    assert {state.value for state in TurnMachine.states if state.final} == {"aborted", "complete"}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("allow_event_without_transition", False),
        ("catch_errors_as_events", False),
        ("atomic_configuration_update", True),
        ("enable_self_transition_entries", False),
    ],
)
def test_the_settings_are_explicit(setting: str, value: bool) -> None:
    """The settings that decide how errors and self transitions behave are set on the class itself."""
    assert vars(TurnMachine)[setting] is value


def test_no_name_shadows_an_attribute_of_the_statechart() -> None:
    """No state or event bears the name of something that every statechart has."""
    names = EVENT_IDS | {state.id for state in TurnMachine.states}
    assert len(names) == len(EVENTS) + len(STATES)
    assert not {name for name in names if hasattr(StateChart, name)}
    assert not names & {field.name for field in attrs.fields(Facts)}


@pytest.mark.parametrize("state", STATES)
def test_a_stored_state_is_one_of_the_seven(state: StateName) -> None:
    """Each of the states can be read back from a checkpoint."""
    checkpoint = Checkpoint("s", 0.0, turn=TurnState("t1", "s1", 0.0, state))
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


@pytest.mark.parametrize("state", ["before_model", "running", "", "IDLE", 3, None, ["idle"], {}])
def test_another_stored_state_is_refused(state: object) -> None:
    """A checkpoint whose turn is in no state of the machine is refused, and the error names the field."""
    turn = TurnState("t1", "s1", 0.0, state)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    data = encode_checkpoint(Checkpoint("s", 0.0, turn=turn))
    with pytest.raises(CheckpointError, match=r"\$\.turn"):
        decode_checkpoint(data)
