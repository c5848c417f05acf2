"""Whether an attempt that broke is tried again, and when."""

from __future__ import annotations

import zlib

from .rules import Rules
from .turn import Failure, TurnState
from .work import Work

__all__ = ["back_off", "next_try", "why_given_up"]


def next_try(work: Work, failure: Failure) -> float | None:
    """Count the failure; the seconds until the attempt is tried again, or None if it is not.

    A request that was too long is tried again at once when the hooks have made room, once in a step.
    """
    turn, rules = work.turn, work.rules
    if failure.kind == "context-overflow" and rules.makes_room and not turn.overflowed:
        turn.overflow, turn.overflowed = failure, True
        return 0.0
    turn.tries += 1
    if not failure.retryable or turn.tries >= rules.limits.attempts or _asks_too_long(rules, failure):
        return None
    return max(back_off(rules, work.checkpoint.session, turn), failure.retry_after or 0)


def why_given_up(rules: Rules, failure: Failure) -> str:
    """Why it is not tried again, in words."""
    if _asks_too_long(rules, failure):
        return f"{failure.message} (the server asks to wait {failure.retry_after:g} s)"
    return failure.message


def _asks_too_long(rules: Rules, failure: Failure) -> bool:
    return (failure.retry_after or 0) > rules.longest_wait


def back_off(rules: Rules, session: str, turn: TurnState) -> float:
    """Seconds before the next attempt: doubling, capped, with up to a quarter taken off by a hash of the attempt."""
    delay = min(rules.delay * 2.0 ** min(turn.tries - 1, 30), rules.longest_delay)
    jitter = zlib.crc32(f"{session}/{turn.attempt_id}".encode()) / 2**32
    return delay * (1.0 - jitter / 4)
