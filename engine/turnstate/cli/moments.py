"""Times as people say them."""

from __future__ import annotations

import calendar
import time

__all__ = ["moment", "since"]


def moment(at: float, now: float | None = None) -> str:
    """A time of the past as people say it: the weekday within the last days, the date before."""
    then = time.localtime(at)
    today = time.localtime(time.time() if now is None else now)
    clock = time.strftime("%H:%M", then)
    days = (_day(today) - _day(then)) // 86400
    if days == 0:
        return f"today {clock}"
    if 0 < days < 7:
        return f"{time.strftime('%A', then)} {clock}"
    return time.strftime("%Y-%m-%d %H:%M", then)


def _day(when: time.struct_time) -> int:
    """The day as seconds, without the shifts of summer time."""
    return calendar.timegm((when.tm_year, when.tm_mon, when.tm_mday, 0, 0, 0, 0, 0, 0))


def since(at: float) -> str:
    """Since when, in words."""
    return f"since {moment(at).removeprefix('today ')}"
