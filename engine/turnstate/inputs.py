"""What callers give, made fit to be stored, or refused."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Mapping
from typing import Any

from turnstate_states import codec
from turnstate_states.errors import CheckpointError, InvalidInput
from turnstate_states.submissions import Submission

__all__ = ["checked", "json_text", "mapping", "new_id", "new_life"]


def new_id() -> str:
    """An id for a submission that its sender did not name."""
    return f"s-{uuid.uuid4().hex[:16]}"


def new_life() -> str:
    """What tells a session from another one that has, or had, the same id."""
    return secrets.token_hex(8)


def json_text(what: str, value: Any) -> str:
    """A value as JSON. Raises InvalidInput if it is not plain."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what}: expected plain JSON values: {error}") from None


def mapping(what: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with texts as keys, as a dict of its own. Raises InvalidInput for anything else."""
    if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"{what}: expected a mapping, got {type(value).__name__}")
    for name in value:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"{what}: expected text as keys, got {name!r}")
    return dict(value)


def checked(submission: Submission) -> Submission:
    """The submission as it is read again: a value of another type than expected would spoil what is stored.

    Raises:
        InvalidInput: a value cannot be stored, or is of another type; the text names it.
    """
    try:
        return codec.decode_submission(codec.encode_submission(submission))
    except CheckpointError as error:
        raise InvalidInput(str(error)) from None
    except (TypeError, ValueError, RecursionError):
        codec.digest(submission)  # it says what cannot be stored
        raise
