"""What each submission does, in whatever state the session is. Everything is checked before anything is changed."""

from __future__ import annotations

import attrs

from .answering import answer, provide
from .branching import annotate, change_thread, check_quotes
from .calls import ask_again
from .checkpoint import Queued
from .content import Text, as_parts, clean_text
from .errors import InvalidInput, Refused
from .events import (
    CommandAccepted,
    CommandEnded,
    GrantRevoked,
    MessageEdited,
    MessageQueued,
    MessageRemoved,
    TurnStopping,
    Warned,
)
from .reports import CommandDone
from .steps import KEPT_WAITING, SUPERSEDED, start_turn, tell_to_end
from .submissions import (
    Annotate,
    Answer,
    Command,
    Delete,
    Describe,
    Edit,
    EditQueued,
    Interrupt,
    Provide,
    Regenerate,
    RemoveQueued,
    Resume,
    RevokeGrant,
    Send,
    Submission,
    Switch,
)
from .turn import Ending, TurnState
from .work import Work, source_of

__all__ = ["end_command", "route", "start_waiting"]

LABELS = 64
"""How many labels a session may have, and how many characters a label's name."""
LABEL_VALUE = 1000


def route(work: Work, submission: Submission) -> str:
    """Apply a submission.

    Returns:
        The turn that it started, joined or ended; empty for a message that waits for the next one.

    Raises:
        Refused: the session cannot accept it now.
        InvalidInput: it makes no sense.
    """
    match submission:
        case Send():
            return _send(work, submission)
        case Answer():
            answer(work, submission)
        case Provide():
            provide(work, submission)
        case Edit() | Regenerate() | Switch() | Delete():
            change_thread(work, submission)
        case Annotate():
            annotate(work, submission)
        case Describe():
            _describe(work, submission)
        case Command():
            _command(work, submission)
        case Interrupt():
            _interrupt(work, submission)
        case Resume():
            _resume(work, submission)
        case EditQueued():
            _edit_queued(work, submission)
        case RemoveQueued():
            _remove_queued(work, submission)
        case RevokeGrant():
            _revoke(work, submission)
    return "" if work.active is None else work.active.id


def _busy(work: Work) -> TurnState | None:
    """The turn that is not over yet: active, or ended with its hooks, or the change that they hold up, still to come."""
    turn = work.checkpoint.turn
    return None if turn is None or (turn.closed and work.checkpoint.pending is None) else turn


def _send(work: Work, send: Send) -> str:
    check_quotes(work, as_parts(send.parts))
    checkpoint = work.checkpoint
    waiting = len(checkpoint.queue) + len(checkpoint.steers)
    if waiting >= work.rules.limits.queue:
        raise Refused("full", f"{waiting} messages wait already; send it again when some were taken, or remove one")
    if _busy(work) is None and not checkpoint.queue and not work.reserved:
        start_turn(work, send.parts, send.id, send.settings, source=source_of(send.author), origin=send.origin)
        return work.turn.id
    turn = work.active
    delivery = send.delivery
    if delivery == "supersede" and _superseded(work):
        delivery = "steer"  # of the turn that the message before it is about to start
    elif delivery == "steer" and turn is None:
        delivery = "queue"
    number = work.tell(MessageQueued, send.id, send.parts, delivery, send.settings)
    first = delivery == "supersede" and checkpoint.pending is None
    item = Queued(send.id, number, send.parts, send.settings, number, first, send.author, send.origin)
    if turn is None:
        checkpoint.held = False
    if delivery == "steer":
        checkpoint.steers = (*checkpoint.steers, item)
        return work.turn.id
    if delivery == "queue":
        checkpoint.queue = (*checkpoint.queue, item)
        return ""
    checkpoint.queue = (item, *checkpoint.queue)
    if turn is not None and turn.ending is None:
        tell_to_end(work, Ending("superseded", SUPERSEDED, send.id))
    return ""


def _superseded(work: Work) -> bool:
    """Whether a message waits already that is to start the next turn in the place of this one."""
    turn, queue = work.active, work.checkpoint.queue
    return bool(queue) and queue[0].first and (turn is None or turn.ending is not None)


def start_waiting(work: Work) -> None:
    """Start a turn with the oldest message that waits."""
    checkpoint = work.checkpoint
    if not checkpoint.queue:
        checkpoint.queue, checkpoint.steers = checkpoint.steers, ()
    item, *rest = checkpoint.queue
    checkpoint.queue = tuple(rest)
    start_turn(work, item.parts, item.id, item.settings, source=source_of(item.author), origin=item.origin)


def _interrupt(work: Work, interrupt: Interrupt) -> None:
    turn = work.active
    if turn is None or (interrupt.turn is not None and interrupt.turn != turn.id):
        raise Refused("stale", "no turn runs" if turn is None else f"turn {interrupt.turn} is over; {turn.id} runs")
    if turn.ending is not None:
        return
    reason = interrupt.reason or "interrupted"
    work.tell(TurnStopping, reason)
    tell_to_end(work, Ending("interrupted", reason, interrupt.id))


def _resume(work: Work, resume: Resume) -> None:
    checkpoint = work.checkpoint
    turn = checkpoint.turn
    if _busy(work) is not None:
        raise Refused("busy", "a turn is running; it goes on by itself")
    if work.reserved:
        raise Refused("busy", "a command is being carried out beside which no turn may run")
    stopped = turn is not None and checkpoint.held and turn.outcome in KEPT_WAITING
    if turn is not None and stopped and turn.head == checkpoint.head:
        start_turn(work, None, resume.id, turn.settings, turn.id)
    elif checkpoint.queue:
        checkpoint.held = False
        work.changed = True
    elif turn is not None and stopped:
        raise Refused(
            "stale", f"turn {turn.id} ended on another branch; switch back to go on with it, or send a message"
        )
    elif checkpoint.held:
        checkpoint.held = False
        work.changed = True
    else:
        raise Refused("stale", "there is nothing to go on with; send a message")


def _waiting(work: Work, target: str) -> Queued:
    for item in (*work.checkpoint.steers, *work.checkpoint.queue):
        if item.id == target:
            return item
    raise Refused("gone", f"message {target} does not wait any more")


def _replace(work: Work, old: Queued, new: Queued | None) -> None:
    put = () if new is None else (new,)
    checkpoint = work.checkpoint
    for name in ("steers", "queue"):
        items: tuple[Queued, ...] = getattr(checkpoint, name)
        if old in items:
            at = items.index(old)
            setattr(checkpoint, name, (*items[:at], *put, *items[at + 1 :]))
    work.changed = True


def _edit_queued(work: Work, edit: EditQueued) -> None:
    check_quotes(work, as_parts(edit.parts))
    item = _waiting(work, edit.target)
    number = work.tell(MessageEdited, item.id, edit.parts, item.settings)
    _replace(work, item, attrs.evolve(item, event=number, parts=edit.parts))


def _remove_queued(work: Work, remove: RemoveQueued) -> None:
    item = _waiting(work, remove.target)
    _replace(work, item, None)
    work.tell(MessageRemoved, item.id)


def _describe(work: Work, said: Describe) -> None:
    if said.title is not None and not said.title.strip():
        raise InvalidInput("title: expected some text")
    labels = {**work.checkpoint.labels, **said.labels}
    if sum(value is not None for value in labels.values()) > LABELS:
        raise InvalidInput(f"labels: at most {LABELS} are kept; take some away by setting them to None")
    for name, value in said.labels.items():
        if not 0 < len(name) <= LABELS or len(value or "") > LABEL_VALUE:
            raise InvalidInput(f"labels.{name}: a name has 1 to {LABELS} characters, a value up to {LABEL_VALUE}")
        if clean_text(name + (value or "")) != name + (value or ""):
            raise InvalidInput(f"labels.{name!r}: it holds a lone surrogate")
    work.describe(None if said.title is None else clean_text(said.title), said.labels, said.archived)


def _command(work: Work, command: Command) -> None:
    commands, checkpoint = work.rules.commands, work.checkpoint
    if command.name not in commands:
        raise InvalidInput(f"command {command.name}: unknown; there are {', '.join(sorted(commands)) or 'none'}")
    if not commands[command.name] and not work.turn_over:
        raise Refused("busy", f"command {command.name} cannot be carried out while a turn runs")
    if len(checkpoint.commands) >= work.rules.limits.queue:
        raise Refused("full", f"{len(checkpoint.commands)} commands wait already")
    checkpoint.commands = (*checkpoint.commands, command)
    work.tell(CommandAccepted, command.id, command.name, command.arguments)


def end_command(work: Work, command: Command, done: CommandDone) -> None:
    """Note that a command was carried out; what its middleware says to the model is sent like anybody's message."""
    checkpoint = work.checkpoint
    checkpoint.commands = tuple(waiting for waiting in checkpoint.commands if waiting.id != command.id)
    effects = done.effects
    work.count_effects(effects)
    work.apply_effects(attrs.evolve(effects, messages=()))
    for at, text in enumerate(effects.messages):
        try:
            _send(work, Send(f"{command.id}!{at}", (Text(clean_text(text)),), "steer"))
        except (Refused, InvalidInput) as error:
            work.tell(Warned, f"command {command.name}: a message was not sent: {error}")
    work.tell(CommandEnded, command.id, command.name, done.result, done.error)


def _revoke(work: Work, revoke: RevokeGrant) -> None:
    for grant in work.checkpoint.grants:
        if grant.id == revoke.grant:
            work.checkpoint.grants = tuple(kept for kept in work.checkpoint.grants if kept != grant)
            work.tell(GrantRevoked, grant)
            ask_again(work, grant)
            return
    raise Refused("gone", f"there is no grant {revoke.grant}")
