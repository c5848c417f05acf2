"""The words in which stores refuse, so that all of them say the same."""

from __future__ import annotations

from turnstate_states.errors import Refused, SessionInUse, StaleSession, StoreError

from .base import Owner

__all__ = ["busy", "closed", "full", "in_use", "stale", "unknown_owner"]


def in_use(session: str, holder: Owner) -> SessionInUse:
    """Another owner that is alive has the session."""
    return SessionInUse(
        f"session {session!r} is driven by another engine (process {holder.pid} on {holder.host}): "
        "read it or send to it, or try again when it is done"
    )


def stale(session: str, *, owned: bool, after: int, sequence: int | None) -> StaleSession:
    """The commit builds on something that is not what is stored."""
    if sequence is None:
        why = "is not claimed, or was deleted"
    elif not owned:
        why = "was taken over or its claim given up"
    else:
        why = f"is at sequence {sequence}, and this commit builds on {after}"
    return StaleSession(f"session {session!r} {why}: nothing was written")


def unknown_owner(owner: str) -> StoreError:
    """An owner must be stored before it claims: without its lease nobody could tell whether it is alive."""
    return StoreError(f"owner {owner!r} is not stored: renew it before it claims")


def busy(session: str) -> Refused:
    """The session cannot be deleted: its turn is not over."""
    return Refused("busy", f"session {session!r} has a turn that has not ended: interrupt it before you delete it")


def full(session: str, items: int) -> Refused:
    """There is no room in the inbox of the session."""
    text = (
        f"{items} submissions wait for session {session!r} already, which nobody takes; send it again when it is driven"
    )
    return Refused("full", text)


def closed(store: str) -> StoreError:
    """The store is not open."""
    return StoreError(f"{store} is not open: use it inside `async with store`")
