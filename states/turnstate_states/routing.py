"""What each submission does, in whatever state the session is. Everything is checked before anything is changed."""

from __future__ import annotations

import attrs

from . import texts
from .calls import allow_covered, ask_again, canonical, covering_grant, settle
from .checkpoint import Queued
from .content import as_parts
from .errors import InvalidInput, Refused
from .events import CallAnswered, GrantAdded, GrantRevoked, MessageEdited, MessageQueued, MessageRemoved, TurnStopping
from .steps import KEPT_WAITING, start_turn, tell_to_end
from .submissions import (
    Answer,
    EditQueued,
    Interrupt,
    RemoveQueued,
    Resume,
    RevokeGrant,
    Send,
    Submission,
)
from .turn import Call, Decision, Ending, Grant, TurnState
from .work import Work

__all__ = ["route", "start_waiting"]


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
            _answer(work, submission)
        case Interrupt():
            _interrupt(work, submission)
        case Resume():
            _resume(work, submission)
        case EditQueued():
            _edit(work, submission)
        case RemoveQueued():
            _remove(work, submission)
        case RevokeGrant():
            _revoke(work, submission)
    return "" if work.active is None else work.active.id


def _busy(work: Work) -> TurnState | None:
    """The turn that is not over yet: active, or ended with its hooks still to run."""
    turn = work.checkpoint.turn
    return None if turn is None or turn.closed else turn


def _send(work: Work, send: Send) -> str:
    as_parts(send.parts)
    checkpoint = work.checkpoint
    waiting = len(checkpoint.queue) + len(checkpoint.steers)
    if waiting >= work.rules.limits.queue:
        raise Refused("full", f"{waiting} messages wait already; send it again when some were taken, or remove one")
    if _busy(work) is None and not checkpoint.queue:
        start_turn(work, send.parts, send.id, send.settings)
        return work.turn.id
    delivery = send.delivery if work.active is not None else "queue"
    number = work.tell(MessageQueued, send.id, send.parts, delivery, send.settings)
    item = Queued(send.id, number, send.parts, send.settings, number)
    if delivery == "steer":
        checkpoint.steers = (*checkpoint.steers, item)
        return work.turn.id
    checkpoint.queue = (*checkpoint.queue, item)
    if work.active is None:
        checkpoint.held = False
    return ""


def start_waiting(work: Work) -> None:
    """Start a turn with the oldest message that waits."""
    item, *rest = work.checkpoint.queue
    work.checkpoint.queue = tuple(rest)
    start_turn(work, item.parts, item.id, item.settings)


def _answer(work: Work, answer: Answer) -> None:
    turn = work.active
    if turn is None or turn.ending is not None:
        raise Refused("stale", "no call waits for an answer: the turn is over or is ending")
    _check_answer(answer)
    decision = Decision(answer.verdict, work.now, answer.by, answer.reason, answer.for_session, answer.end_turn)
    edited = _edited(work, answer)
    fresh = [call for name in dict.fromkeys(answer.calls) if (call := _answerable(work, turn, name, decision, edited))]
    for call in fresh:
        work.put_call(attrs.evolve(call, decision=decision, edited=edited))
    for call in fresh:
        call = work.turn.calls[call.id]
        if call.status == "asked":  # an approval for the session may have allowed it meanwhile
            _apply_answer(work, call, answer)
    if fresh and answer.end_turn:
        work.tell(TurnStopping, answer.reason or "denied")
        tell_to_end(work, Ending("denied", answer.reason or "denied", answer.id))


def _check_answer(answer: Answer) -> None:
    if not answer.calls:
        raise InvalidInput("calls: name at least one call to answer")
    if answer.end_turn and answer.verdict != "deny":
        raise InvalidInput("end_turn: only a denial ends the turn; interrupt the turn to end it otherwise")
    if answer.for_session and answer.verdict != "approve":
        raise InvalidInput("for_session: only an approval can hold for the session")


def _edited(work: Work, answer: Answer) -> str | None:
    if answer.arguments is None:
        return None
    if answer.verdict != "approve" or len(set(answer.calls)) != 1:
        raise InvalidInput("arguments: give them with an approval of exactly one call")
    if canonical(answer.arguments) is None:
        raise InvalidInput("arguments: expected a JSON object")
    call = work.turn.calls.get(answer.calls[0])
    spec = None if call is None else work.rules.tools.get(call.tool)
    wrong = None if spec is None else spec.check(answer.arguments)
    if wrong is not None:
        raise InvalidInput(f"arguments: {wrong}")
    return answer.arguments


def _answerable(work: Work, turn: TurnState, name: str, decision: Decision, edited: str | None) -> Call | None:
    """The call, if it waits for this answer; None if it has the same answer already."""
    call = turn.calls.get(name)
    if call is None:
        raise Refused("stale", f"call {name} is not open")
    if call.decision is not None:
        same = attrs.evolve(call.decision, at=decision.at, by=decision.by) == decision and call.edited == edited
        if same:
            return None
        raise Refused("conflict", f"call {name} was answered before, and otherwise ({call.decision.verdict})")
    if call.status != "asked":
        raise Refused("stale", f"call {name} does not wait for an answer ({call.status})")
    if call.expires_at is not None and call.expires_at <= work.now:
        raise Refused("stale", f"the request to approve call {name} has expired")
    if decision.for_session and canonical(call.proposed if edited is None else edited) is None:
        raise InvalidInput(f"for_session: the arguments of call {name} are not a JSON object that could be compared")
    return call


def _apply_answer(work: Work, call: Call, answer: Answer) -> None:
    if answer.verdict == "deny":
        work.tell(CallAnswered, attrs.evolve(call, status="denied"))
        settle(work, call, "denied", texts.denied(answer.reason), answer.reason or "the user declined")
        return
    grant = _grant(work, call, answer.by) if answer.for_session else None
    allowed = attrs.evolve(call, status="allowed", grant="" if grant is None else grant.id)
    work.put_call(allowed)
    work.tell(CallAnswered, allowed)
    if grant is not None:
        allow_covered(work, grant)


def _grant(work: Work, call: Call, by: str) -> Grant:
    known = covering_grant(work, call)
    if known is not None:
        return known
    checkpoint = work.checkpoint
    checkpoint.grant_count += 1
    arguments = None if call.covers == "tool" else canonical(call.arguments_json)
    grant = Grant(f"g{checkpoint.grant_count}", call.tool, arguments, by, call.permissions)
    kept = checkpoint.grants
    for old in kept[: max(0, len(kept) + 1 - work.rules.limits.grants)]:
        work.tell(GrantRevoked, old)
    checkpoint.grants = (*kept, grant)[-work.rules.limits.grants :]
    work.tell(GrantAdded, grant)
    return grant


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
    if turn is not None and checkpoint.held and turn.outcome in KEPT_WAITING:
        start_turn(work, None, resume.id, turn.settings, turn.id)
    elif checkpoint.held or checkpoint.queue:
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


def _edit(work: Work, edit: EditQueued) -> None:
    as_parts(edit.parts)
    item = _waiting(work, edit.target)
    number = work.tell(MessageEdited, item.id, edit.parts, item.settings)
    _replace(work, item, attrs.evolve(item, event=number, parts=edit.parts))


def _remove(work: Work, remove: RemoveQueued) -> None:
    item = _waiting(work, remove.target)
    _replace(work, item, None)
    work.tell(MessageRemoved, item.id)


def _revoke(work: Work, revoke: RevokeGrant) -> None:
    for grant in work.checkpoint.grants:
        if grant.id == revoke.grant:
            work.checkpoint.grants = tuple(kept for kept in work.checkpoint.grants if kept != grant)
            work.tell(GrantRevoked, grant)
            ask_again(work, grant)
            return
    raise Refused("gone", f"there is no grant {revoke.grant}")
