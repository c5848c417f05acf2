"""What callers give, made fit to be stored, or refused."""

from __future__ import annotations

import functools
import secrets
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, cast

import attrs

from turnstate_states import checks, codec
from turnstate_states.content import as_parts
from turnstate_states.errors import InvalidInput
from turnstate_states.submissions import Command, Describe, Submission
from turnstate_states.transcript import Message
from turnstate_states.turn import Call, Grant

from .sizes import check_encoded, check_parts

__all__ = ["call_refs", "checked", "grant_id", "message_id", "new_id", "new_life", "object_text", "submission_id"]

ARGUMENT_DEPTH = 64
"""How deep the arguments of a call or a command, and answers, may be nested."""
S = TypeVar("S", bound=Submission)


def new_id() -> str:
    """An id for a submission that its sender did not name."""
    return f"s-{uuid.uuid4().hex[:16]}"


def new_life() -> str:
    """What tells a session from another one that has, or had, the same id."""
    return secrets.token_hex(8)


def submission_id(id: str | None) -> str:
    """The id that a sender gave, or a new one.

    Raises:
        InvalidInput: it is empty, longer than 200 characters or holds control characters.
    """
    return new_id() if id is None else checks.identifier("id", id)


def call_refs(calls: Iterable[Call | str]) -> dict[str, str | None]:
    """The ids of some calls, each with the digest of what was asked about it; None where only its id is known.

    A question from before format 2 has no digest: its digest is empty.
    """
    found: dict[str, str | None] = {}
    for call in calls:
        if isinstance(call, Call):
            asked = call.digest or call.status == "asked"
            found[call.id] = call.digest if asked else None
        else:
            name = checks.text("calls", call, expected="a call, its token or its id")
            id, _, digest = name.partition("#")
            found[id] = digest or None  # a token without a digest says no more than the id
    if not found:
        raise InvalidInput("calls: expected at least one call, its token or its id")
    return found


def message_id(message: Message | str, where: str = "message") -> str:
    """The id of a message that is named by itself or its id."""
    return _id_of(where, message, Message, "a message or its id")


def grant_id(grant: Grant | str) -> str:
    """The id of an approval for the session that is named by itself or its id."""
    return _id_of("grant", grant, Grant, "an approval for the session or its id")


def _id_of(where: str, value: object, kind: type[Any], expected: str) -> str:
    return cast(Any, value).id if isinstance(value, kind) else checks.text(where, value, expected=expected)


def object_text(what: str, value: Mapping[str, Any]) -> str:
    """A mapping as JSON text. Raises InvalidInput if it is not plain JSON, or nested more than 64 deep."""
    import json

    return json.dumps(checks.json_object(what, value, ARGUMENT_DEPTH))


def checked(submission: S) -> S:
    """The submission with copies of its values that share nothing with the caller's, each of the type that it is read as.

    Raises:
        InvalidInput: a value cannot be stored, is of another type, or too large; the text names it.
    """
    kind: Any = type(submission)
    fits = {name: check(name, getattr(submission, name)) for name, check in _checks_of(kind).items()}
    media = check_parts(submission.tag, fits.get("parts", ()))
    made: S = kind(**fits)
    check_encoded(made, codec.encode_submission(made), media)
    return made


@functools.cache
def _checks_of(kind: type[Any]) -> dict[str, Callable[[str, Any], Any]]:
    hints = typing.get_type_hints(kind)
    return {field.name: _check_of(kind, field.name, hints[field.name]) for field in attrs.fields(kind)}


def _check_of(kind: type[Any], field: str, hint: Any) -> Callable[[str, Any], Any]:
    """The check of a field by its type: one that nobody wrote a check for has no type that is known here."""
    if (kind, field) in SPECIAL:
        return SPECIAL[kind, field]
    if typing.get_origin(hint) is Literal:
        return functools.partial(checks.choice, choices=typing.get_args(hint))
    return BY_FIELD[field] if field in BY_FIELD else BY_TYPE[hint]


def _optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return functools.partial(checks.optional, check)


def _calls(where: str, value: Iterable[str]) -> tuple[str, ...]:
    return tuple(checks.text(where, name) for name in value)


def _as_it_is(where: str, value: Any) -> Any:
    """For what the library itself fills in."""
    return value


def _parts(where: str, value: Any) -> Any:
    return as_parts(value)


def _labels(where: str, value: object) -> dict[str, str | None]:
    given = checks.mapping(where, value)
    return {checks.name("labels: a name", key): _optional(checks.name)(f"labels.{key}", given[key]) for key in given}


def _title(where: str, value: str | None) -> str | None:
    return None if value is None else checks.name(where, value, filled=True)


def _deep(where: str, value: object) -> dict[str, Any]:
    return checks.json_object(where, value, ARGUMENT_DEPTH)


SPECIAL: dict[tuple[type[Any], str], Callable[[str, Any], Any]] = {
    (Command, "arguments"): _deep,
    (Describe, "title"): _title,
    (Describe, "labels"): _labels,
}
BY_FIELD: dict[str, Callable[[str, Any], Any]] = {
    "id": checks.identifier,
    "calls": _calls,
    "parts": _parts,
    "by": checks.name,
    "answers": _deep,
    "digests": _as_it_is,
    "given": _as_it_is,
}
BY_TYPE: dict[Any, Callable[[str, Any], Any]] = {
    str: checks.text,
    str | None: _optional(checks.text),
    bool: checks.flag,
    bool | None: _optional(checks.flag),
    Any: checks.json_value,
    Mapping[str, Any]: checks.json_object,
}
