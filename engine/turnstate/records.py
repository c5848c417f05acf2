"""Commits as a store takes them, and sessions as a list shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs

from turnstate_states import codec
from turnstate_states.checkpoint import Checkpoint, Commit
from turnstate_states.transcript import Usage
from turnstate_states.turn import Call

from .results import SessionInfo
from .stores.base import Listing, StoredCommit, StoredRow

__all__ = ["info_of", "listed", "listing_of", "stored_commit", "waiting_calls"]


def stored_commit(commit: Commit, owner: str) -> StoredCommit:
    """A commit, encoded."""
    checkpoint = commit.checkpoint
    row = None
    if commit.events:
        messages = codec.encode_messages(commit.messages) if commit.messages else b""
        row = StoredRow(checkpoint.events, messages, codec.encode_events(commit.events))
    return StoredCommit(
        checkpoint.session,
        owner,
        commit.after,
        checkpoint.sequence,
        codec.encode_checkpoint(checkpoint),
        listing_of(checkpoint),
        row,
        tuple((receipt.id, codec.encode_receipt(receipt)) for receipt in commit.receipts),
        tuple(commit.taken),
    )


def waiting_calls(checkpoint: Checkpoint) -> list[Call]:
    """The calls that wait for a person, those nested in others included."""
    turn = checkpoint.turn
    if turn is None or turn.final or turn.ending is not None:
        return []
    return [waiting for call in turn.calls.values() for waiting in call.waiting]


def listing_of(checkpoint: Checkpoint) -> Listing:
    """What lists show of a session."""
    turn = checkpoint.turn
    return Listing(
        session=checkpoint.session,
        title=checkpoint.title,
        state="idle" if turn is None else turn.state,
        waiting=bool(waiting_calls(checkpoint)),
        unfinished=(turn is not None and not turn.closed) or bool(checkpoint.commands),
        held=checkpoint.held,
        queued=len(checkpoint.queue) + len(checkpoint.steers),
        created_at=checkpoint.created_at,
        updated_at=checkpoint.updated_at,
        labels=json.dumps(checkpoint.labels) if checkpoint.labels else "{}",
        archived=checkpoint.archived,
        parent=checkpoint.parent,
        deadline=_deadline(checkpoint),
        outcome="" if turn is None or turn.outcome is None else turn.outcome,
        last_event=checkpoint.events,
    )


def _deadline(checkpoint: Checkpoint) -> float | None:
    """When the first of the requests expires, if all that the turn does is wait for a person."""
    turn = checkpoint.turn
    if turn is None or turn.state != "awaiting-approval" or turn.ending is not None:
        return None
    times = [call.expires_at for call in turn.calls.values() if call.waiting and call.expires_at is not None]
    return min(times, default=None)


def info_of(checkpoint: Checkpoint) -> SessionInfo:
    """A session in full."""
    return attrs.evolve(
        listed(listing_of(checkpoint), waiting_calls(checkpoint)),
        usage=sum(checkpoint.usage.values(), Usage()),
        reason="" if checkpoint.turn is None else checkpoint.turn.reason,
    )


def listed(listing: Listing, waiting: Sequence[Call] = ()) -> SessionInfo:
    """A session as its list row says."""
    return SessionInfo(
        id=listing.session,
        title=listing.title,
        state=listing.state,
        waiting=tuple(waiting),
        unfinished=listing.unfinished,
        held=listing.held,
        queued=listing.queued,
        created_at=listing.created_at,
        updated_at=listing.updated_at,
        labels=json.loads(listing.labels),
        outcome=listing.outcome,
        archived=listing.archived,
        parent=listing.parent,
        deadline=listing.deadline,
        last_event=listing.last_event,
    )
