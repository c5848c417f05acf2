"""Values to JSON and back: one cattrs converter, msgspec for the bytes.

Big values are written once: an event that tells a message or a call holds its id, and the
message stands beside it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from .checkpoint import FORMAT, Checkpoint, Queued
from .errors import CheckpointError, InvalidInput
from .events import MessageEdited, MessageQueued, NumberedEvent
from .message import Message
from .submissions import Receipt, Submission
from .turn import Call

if TYPE_CHECKING:
    import cattrs

__all__ = [
    "decode_checkpoint",
    "decode_events",
    "decode_messages",
    "decode_receipt",
    "decode_submission",
    "digest",
    "encode_checkpoint",
    "encode_events",
    "encode_messages",
    "encode_receipt",
    "encode_submission",
    "json_bytes",
    "plain",
    "same_json",
    "with_bodies",
    "with_proposed",
]


@functools.cache
def _json() -> ModuleType:
    from . import jsons

    return jsons


def json_bytes(value: Any) -> bytes:
    """JSON of plain data."""
    data: bytes = _json().encode(value)
    return data


def plain(value: Any) -> Any:
    """A value as it is when it was written as JSON and read again.

    >>> plain({"a": (1, float("nan"))})
    {'a': [1, None]}
    """
    return _json().decode(json_bytes(value))


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON, which ``==`` does not say: false is not 0.

    >>> same_json({"a": 1, "b": 2}, {"b": 2, "a": 1}), same_json(False, 0)
    (True, False)
    """
    written: bool = _json().encode_sorted(one) == _json().encode_sorted(other)
    return written


@functools.cache
def converter(detailed: bool = False) -> cattrs.Converter:
    """The converter, made when it is first needed; ``detailed`` collects where data was wrong, and is slower."""
    from .converter import make_converter

    return make_converter(detailed=detailed)


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a JSON object; of anything else there are none."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def structure(what: str, data: Any, kind: Any) -> Any:
    """Structure at full speed; where that fails, again with the path of what was wrong."""
    try:
        return converter().structure(data, kind)
    except Exception:
        pass
    try:
        return converter(True).structure(data, kind)
    except Exception as error:
        from .converter import where_wrong

        raise CheckpointError(f"{what}: {where_wrong(error)}") from error


def parse(what: str, data: bytes) -> Any:
    jsons = _json()
    try:
        return jsons.decode(data)
    except jsons.BAD_JSON as error:
        raise CheckpointError(f"{what}: not JSON: {error}") from None


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as JSON."""
    return json_bytes(converter().unstructure(checkpoint))


def _from_1(fields: dict[str, Any]) -> dict[str, Any]:
    """Format 2 only adds fields; a session from before has no life of its own, and its open questions no digests."""
    return {**fields, "format": 2}


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1}
"""From a format to the next one."""


def decode_checkpoint(data: bytes) -> Checkpoint:
    """A checkpoint from JSON, migrated if an older version wrote it.

    Raises:
        CheckpointError: a newer version wrote it (names both), or it is not a checkpoint (names the bad field).
    """
    value = parse("checkpoint", data)
    fields = fields_of(value)
    if type(fields.get("format")) is not int:
        raise CheckpointError("checkpoint: $.format: expected the number of its format; this is not a checkpoint")
    if fields["format"] > FORMAT:
        raise CheckpointError(
            f"checkpoint: a newer version of turnstate wrote it (format {fields['format']}; this one reads up to {FORMAT}); "
            "upgrade turnstate to go on with this session"
        )
    while fields["format"] < FORMAT:
        migrate = MIGRATIONS.get(fields["format"])
        if migrate is None:
            raise CheckpointError(f"checkpoint: unknown format {fields['format']}")
        fields = migrate(fields)
    checkpoint: Checkpoint = structure("checkpoint", fields, Checkpoint)
    return checkpoint


def encode_messages(messages: Iterable[Message]) -> bytes:
    """Messages as a JSON array."""
    unstructure = converter().unstructure
    return json_bytes([unstructure(message) for message in messages])


def decode_messages(data: bytes) -> list[Message]:
    """Messages from a JSON array.

    Raises:
        CheckpointError: it is not one.
    """
    messages: list[Message] = structure("messages", parse("messages", data), list[Message])
    return messages


def encode_events(found: Iterable[NumberedEvent]) -> bytes:
    """Events as a JSON array; messages in them as ids."""
    unstructure = converter().unstructure
    return json_bytes([unstructure(event) for event in found])


def decode_events(data: bytes, find: Callable[[str], Message | None]) -> list[NumberedEvent]:
    """Events from a JSON array; ``find`` gives the messages that they name.

    Raises:
        CheckpointError: it is not one, or names a message that ``find`` does not know.
    """
    value = parse("events", data)
    if not isinstance(value, list):
        raise CheckpointError("events: expected an array")
    rows: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return [structure("events", _joined(row, find), NumberedEvent) for row in rows]


def _joined(row: Any, find: Callable[[str], Message | None]) -> Any:
    data = fields_of(row)
    if data.get("message") is not None:
        message = find(data["message"]) if isinstance(data["message"], str) else None
        if message is None:
            raise CheckpointError(
                f"events: number {data.get('number')} names message {data['message']}, which is not stored"
            )
        data["message"] = message
    if "call" in data:
        call: Call = structure("events", data["call"], Call)
        data["call"] = with_proposed(call, find)
    return data


def with_proposed(call: Call, find: Callable[[str], Message | None]) -> Call:
    """The call with the arguments that the model sent, which stand in its message."""
    message = find(call.id.partition(".")[0])
    for part in () if message is None else message.calls:
        if part.id == call.id:
            return attrs.evolve(call, proposed=part.arguments)
    return call


def encode_submission(submission: Submission) -> bytes:
    """A submission as JSON."""
    return json_bytes(converter().unstructure(submission))


def decode_submission(data: bytes) -> Submission:
    """A submission from JSON.

    Raises:
        CheckpointError: it is not one.
    """
    submission: Submission = structure("submission", parse("submission", data), Submission)
    return submission


def encode_receipt(receipt: Receipt) -> bytes:
    """A receipt as JSON."""
    return json_bytes(converter().unstructure(receipt))


def decode_receipt(data: bytes) -> Receipt:
    """A receipt from JSON.

    Raises:
        CheckpointError: it is not one.
    """
    receipt: Receipt = structure("receipt", parse("receipt", data), Receipt)
    return receipt


ASIDE = ("given", "digest", "digests", "author")
"""What is no part of the content: when it was given, through which question it was answered, and who wrote it, which the
program fills in. An earlier version had none of them, and what it sent may be sent again by this one."""


def digest(submission: Submission) -> str:
    """What a submission says, without its id, as 32 hexadecimal digits: equal for equal content.

    Raises:
        InvalidInput: it holds something that cannot be written as JSON.

    >>> from turnstate_states.submissions import Resume
    >>> digest(Resume("a")) == digest(Resume("b"))
    True
    """
    data: dict[str, Any] = converter().unstructure(submission)
    try:
        json_bytes(data.pop("id"))
        for name in ASIDE:
            data.pop(name, None)
        content = _json().encode_sorted(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{data['type']}: it holds something that cannot be stored: {error}") from None
    return hashlib.sha256(content).hexdigest()[:32]


def with_bodies(
    checkpoint: Checkpoint,
    find_message: Callable[[str], Message | None],
    find_event: Callable[[int], NumberedEvent | None],
) -> Checkpoint:
    """A decoded checkpoint with what it only names: the waiting messages' parts, and the calls' arguments.

    Raises:
        CheckpointError: an event that holds a waiting message is not stored.
    """
    checkpoint.steers = tuple(_with_parts(item, find_event) for item in checkpoint.steers)
    checkpoint.queue = tuple(_with_parts(item, find_event) for item in checkpoint.queue)
    if checkpoint.turn is not None:
        calls = checkpoint.turn.calls
        checkpoint.turn.calls = {name: with_proposed(call, find_message) for name, call in calls.items()}
    return checkpoint


def _with_parts(item: Queued, find_event: Callable[[int], NumberedEvent | None]) -> Queued:
    event = find_event(item.event)
    if not isinstance(event, (MessageQueued, MessageEdited)):
        raise CheckpointError(f"checkpoint: message {item.id} waits, but event {item.event} does not hold it")
    return attrs.evolve(item, parts=event.parts, settings=event.settings)
