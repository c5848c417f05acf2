"""Lists of sessions: what they show, and what can be asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import attrs

from turnstate_states import checks
from turnstate_states.errors import InvalidInput
from turnstate_states.values import Value

__all__ = ["Cursor", "Listing", "SessionOrder", "SessionQuery"]

SessionOrder = Literal["id", "recent"]


@attrs.frozen(eq=False, repr=False)
class Listing(Value):
    """What a list of sessions shows without reading any checkpoint. Times are in seconds since the epoch.

    ``labels`` is a JSON object of texts. ``parent`` is the session whose tool call this one answers, if any. ``deadline``
    is when the first of the requests that it waits for expires, ``outcome`` how its last turn ended, ``last_event`` the
    number of its last event.
    """

    session: str
    title: str = ""
    state: str = "idle"
    waiting: bool = False
    unfinished: bool = False
    held: bool = False
    queued: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    labels: str = "{}"
    archived: bool = False
    parent: str = ""
    deadline: float | None = None
    outcome: str = ""
    last_event: int = 0


@attrs.frozen(eq=False, repr=False)
class Cursor(Value):
    """Where a page of a list ends: what of its last session the order depends on."""

    session: str
    updated_at: float = 0.0

    @classmethod
    def of(cls, listing: Listing) -> Cursor:
        """Behind this session."""
        return cls(listing.session, listing.updated_at)


def _check_flag(_: object, field: attrs.Attribute[Any], value: object) -> None:
    either = "True, False or None" if field.name == "archived" else "True or False"
    if not isinstance(value, bool) and not (value is None and field.name == "archived"):
        raise InvalidInput(f"{field.name}: expected {either}, got {checks.shown(value)}")


def _check_search(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not _is_text(value):
        raise InvalidInput(f"search: expected a text, got {checks.shown(value)}")


def _check_labels(_: object, field: attrs.Attribute[Any], value: Mapping[Any, Any]) -> None:
    if not isinstance(value, Mapping) or not all(map(_is_text, (*value.keys(), *value.values()))):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"labels: expected names with texts, such as {{'project': 'a'}}, got {checks.shown(value)}")


def _check_order(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or value not in get_args(SessionOrder):
        raise InvalidInput(f'order: expected "id" or "recent", got {checks.shown(value)}')


def _ids(ids: Iterable[str] | None) -> tuple[str, ...] | None:
    if ids is None:
        return None
    return tuple(checks.text("ids", id) for id in checks.array("ids", ids, str, "ids"))


def _check_due(_: object, field: attrs.Attribute[Any], value: object) -> None:
    checks.optional(checks.number, "due", value, expected="None or a time in seconds")


def _is_text(value: object) -> bool:
    """Whether it is a text that a store can hold: one without half of a surrogate pair."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_labels() -> Mapping[str, str]:
    return {}


@attrs.frozen(eq=False, repr=False, kw_only=True)
class SessionQuery(Value):
    """Which sessions a list shows, and in which order. All that is given must hold.

    Args:
        waiting: only those in which a person must answer.
        unfinished: only those with a turn that has not ended.
        archived: only those that are archived, or that are not; None for both.
        children: also those that answer a tool call of another session.
        ids: only these.
        search: only those whose title holds this text, whatever the case; no character has a special meaning.
        labels: only those with each of these labels, exactly.
        due: only those whose deadline is not after this time, in seconds since the epoch.
        order: ``"id"``; or ``"recent"``: what changed last comes first, then by id.

    Raises:
        InvalidInput: a value cannot be used; the text names it.
    """

    waiting: bool = attrs.field(default=False, validator=_check_flag)
    unfinished: bool = attrs.field(default=False, validator=_check_flag)
    archived: bool | None = attrs.field(default=None, validator=_check_flag)
    children: bool = attrs.field(default=False, validator=_check_flag)
    ids: tuple[str, ...] | None = attrs.field(default=None, converter=_ids)
    search: str = attrs.field(default="", validator=_check_search)
    labels: Mapping[str, str] = attrs.field(factory=_no_labels, validator=_check_labels)
    due: float | None = attrs.field(default=None, validator=_check_due)
    order: SessionOrder = attrs.field(default="id", validator=_check_order)

    def matches(self, listing: Listing) -> bool:
        """Whether the list shows this session.

        >>> SessionQuery(search="GROSS").matches(Listing("s", "Der große Plan"))
        True
        """
        return (
            (listing.waiting or not self.waiting)
            and (listing.unfinished or not self.unfinished)
            and (self.archived is None or listing.archived == self.archived)
            and (self.children or not listing.parent)
            and (self.ids is None or listing.session in self.ids)
            and self.search.casefold() in listing.title.casefold()
            and (not self.labels or self.labels.items() <= json.loads(listing.labels).items())
            and (self.due is None or (listing.deadline is not None and listing.deadline <= self.due))
        )

    def place(self, session: Listing | Cursor) -> tuple[float, str]:
        """What the list is sorted by, ascending.

        >>> SessionQuery(order="recent").place(Listing("s", updated_at=5.0))
        (-5.0, 's')
        """
        return (-session.updated_at if self.order == "recent" else 0.0), session.session
