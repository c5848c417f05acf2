"""What searches need: which worlds are alike, and what must hold of a whole life."""

from __future__ import annotations

from collections.abc import Iterable

from tests.states.explore import World
from tests.states.scope import Action, Scope
from turnstate_states.codec import decode_events
from turnstate_states.events import NumberedEvent
from turnstate_states.turn import Call


def fingerprint(world: World) -> object:
    """What decides how things go on, without ids, numbers and times."""
    checkpoint, turn = world.core.checkpoint, world.core.turn
    waiting: tuple[object, ...] = (
        len(checkpoint.queue),
        len(checkpoint.steers),
        checkpoint.held,
        len(checkpoint.grants),
    )
    closed = world.scope.turns is not None and checkpoint.turns
    first = bool(checkpoint.queue) and checkpoint.queue[0].first
    pending = checkpoint.pending and checkpoint.pending.kind
    waiting = (*waiting, first, pending, tuple(command.name for command in checkpoint.commands), _tree_print(world))
    if turn is None or turn.closed:
        return (*waiting, closed, turn is not None and turn.outcome)
    steered = any(item.event > turn.steers_seen for item in checkpoint.steers)
    return (
        *waiting,
        closed,
        (turn.state, turn.steps, turn.tries, turn.resumptions, turn.hook_pass, turn.not_before > world.now),
        (bool(turn.reply), turn.reviewed, turn.again, turn.agains, turn.outcome, world.running is None, steered),
        (turn.overflow is not None, turn.overflowed),
        turn.ending and turn.ending.outcome,
        tuple(_call_print(world, call) for call in turn.calls.values()),
    )


def _tree_print(world: World) -> object:
    """What the thread looks like where it is branched: what is shown, and how much there is besides."""
    transcript = world.core.transcript
    if not world.scope.changes:
        return None
    leaf = transcript.head is None or not transcript.followers(transcript.head)
    roles = tuple(message.role for message in transcript.path[-3:])
    return (roles, leaf, min(len(transcript) - len(transcript.path), 3), bool(transcript.chosen))


def _call_print(world: World, call: Call) -> object:
    decision = call.decision and (call.decision.verdict, call.decision.for_session, call.decision.end_turn)
    if call.settled:
        return (call.tool, decision)
    return (
        call.tool,
        call.status,
        call.wants,
        min(call.began, 3) if call.nested else call.began > 0,
        tuple((inner.id, inner.decision and inner.decision.verdict, inner.late) for inner in call.nested),
        decision,
        bool(call.grant),
        call.edited is not None,
        call.expires_at is not None and call.expires_at <= world.now,
        call.id in world.working,
        bool(world.ledger.effects.get(call.id)),
    )


def replay(scope: Scope, script: Iterable[tuple[Action, ...]]) -> World:
    """A new world in which the same things happen."""
    world = World.new(scope)
    for batch in script:
        world.apply(*batch)
    return world


def check_replays(world: World) -> None:
    """The same script gives the same bytes, and the stored log is what was told live, from any number on."""
    assert replay(world.scope, world.script).written == world.written
    stored: list[NumberedEvent] = []
    for commit in world.written:
        stored += decode_events(commit.split(b"\n")[2], world.messages.get)
    for after in range(len(world.log) + 1):
        assert stored[after:] == world.log[after:]


def check_recovery(world: World) -> None:
    """From here a crash leads, through ordinary steps, to the turn's end."""
    for effects in ("after", "before"):
        other = world.copy()
        other.apply(("crash", effects))
        other.finish()
