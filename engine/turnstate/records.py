"""Commits as a store takes them, and sessions as a list shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence

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
    """The calls that wait for a person."""
    turn = checkpoint.turn
    if turn is None or turn.final or turn.ending is not None:
        return []
    return [call for call in turn.calls.values() if call.status == "asked"]


def listing_of(checkpoint: Checkpoint) -> Listing:
    """What lists show of a session."""
    turn = checkpoint.turn
    return Listing(
        checkpoint.session,
        checkpoint.title,
        "idle" if turn is None else turn.state,
        bool(waiting_calls(checkpoint)),
        turn is not None and not turn.closed,
        checkpoint.held,
        len(checkpoint.queue) + len(checkpoint.steers),
        checkpoint.created_at,
        checkpoint.updated_at,
        json.dumps(checkpoint.labels) if checkpoint.labels else "{}",
    )


def info_of(checkpoint: Checkpoint) -> SessionInfo:
    """A session in full."""
    turn = checkpoint.turn
    listing = listing_of(checkpoint)
    return SessionInfo(
        checkpoint.session,
        listing.title,
        listing.state,
        waiting_calls(checkpoint),
        listing.unfinished,
        listing.held,
        listing.queued,
        listing.created_at,
        listing.updated_at,
        dict(checkpoint.labels),
        sum(checkpoint.usage.values(), Usage()),
        "" if turn is None or turn.outcome is None else turn.outcome,
        "" if turn is None else turn.reason,
    )


def listed(listing: Listing, waiting: Sequence[Call] = ()) -> SessionInfo:
    """A session as its list row says."""
    return SessionInfo(
        listing.session,
        listing.title,
        listing.state,
        waiting,
        listing.unfinished,
        listing.held,
        listing.queued,
        listing.created_at,
        listing.updated_at,
        json.loads(listing.labels),
    )
