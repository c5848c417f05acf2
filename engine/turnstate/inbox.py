"""Saying something to a session that another process drives, or nobody."""

from __future__ import annotations

import time

import attrs
import trio

from turnstate_states import codec
from turnstate_states.errors import InvalidInput, RefusalCode, Refused
from turnstate_states.rules import Rules
from turnstate_states.submissions import Command, Interrupt, Receipt, Send, Submission

from .reading import load
from .stores.base import ROOM, InboxItem, Room, Store

__all__ = ["post_and_wait"]

PATIENCE = 10.0
"""Seconds to wait for the driver's answer; then the submission is durable all the same, and waits."""
RESERVED = 64
"""Submissions that are no messages and fit into an inbox that is full of messages."""

CODES: tuple[RefusalCode, ...] = ("stale", "conflict", "gone", "busy", "full")


async def post_and_wait(store: Store, session: str, submission: Submission) -> Receipt:
    """Put a submission into the session's inbox, and wait for what its driver says if there is one.

    Returns:
        The driver's receipt; without a driver, or where it takes too long, one whose ``turn`` is empty: the submission is
        durable and will be applied by whoever drives the session next.

    Raises:
        Refused: the session cannot accept it; ``full`` also where too much waits in the inbox.
        InvalidInput: it makes no sense.
    """
    stored = await store.receipt(session, submission.id)
    known = None if stored is None else codec.decode_receipt(stored)
    submission, receipt, room = await _would_accept(store, session, submission, known)
    if receipt.duplicate:
        return receipt
    if submission.given is None:
        submission = attrs.evolve(submission, given=time.time())
    await store.post(InboxItem(session, submission.id, codec.encode_submission(submission)), room)
    with trio.move_on_after(PATIENCE):
        while True:
            driven = await _driven(store, session)
            found = await _answer(store, session, submission.id)
            if found is not None:
                return _or_raise(found)
            if not driven:
                break
            await trio.sleep(0.05)
    return Receipt(submission.id)


async def _answer(store: Store, session: str, id: str) -> Receipt | None:
    """What the driver said, once it took the submission out of the inbox; both are one commit."""
    if await store.receipt(session, id) is None:
        return None  # there is no need to read what waits
    if any(item.id == id for item in await store.inbox([session])):
        return None
    stored = await store.receipt(session, id)
    return None if stored is None else codec.decode_receipt(stored)


async def _would_accept(
    store: Store, session: str, submission: Submission, known: Receipt | None
) -> tuple[Submission, Receipt, Room]:
    """Try it on a copy of the stored state, so that what is surely wrong is refused at once.

    Besides the receipt it gives the room that the inbox has for such a submission: messages wait there as they do in the
    session, where those of the inbox go, and what ends or answers something must get through when messages fill it.

    An interrupt of whatever runs becomes one of the turn that runs now: it may be applied much later.
    """
    from turnstate_states.core import SessionCore

    loaded = await load(store, session)
    now = time.time()
    # Which commands there are is known where the agent is.
    rules = Rules(commands={submission.name: True} if isinstance(submission, Command) else {})
    core = SessionCore.new(session, rules, now=now) if loaded is None else SessionCore(*loaded, rules)
    waiting = len(core.checkpoint.queue) + len(core.checkpoint.steers)
    items = max(0, rules.limits.queue - waiting) if isinstance(submission, Send) else rules.limits.queue + RESERVED
    if isinstance(submission, Interrupt) and submission.turn is None and core.turn is not None:
        submission = attrs.evolve(submission, turn=core.turn.id)
    return submission, core.submit(submission, now=now, known=known), attrs.evolve(ROOM, items=items)


async def _driven(store: Store, session: str) -> bool:
    owner = await store.owner_of(session)
    return owner is not None and owner.alive(time.time())


def _or_raise(receipt: Receipt) -> Receipt:
    if not receipt.refused:
        return receipt
    for code in CODES:
        if receipt.code == code:
            raise Refused(code, receipt.text)
    raise InvalidInput(receipt.text)
