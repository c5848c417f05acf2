"""Values to JSON and back: one cattrs converter, msgspec for the bytes.

Unions carry an explicit ``type`` tag that is looked at first; nothing is ever imported by a name in the data. Structuring
is strict: 3 is not ``"3"``. Big values are written once: an event that tells a message or a call holds its id, and the
message stands beside it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast, get_args

import attrs
import cattrs
import msgspec
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from . import content, events, submissions, transcript, turn
from .checkpoint import FORMAT, Checkpoint, Queued
from .errors import CheckpointError, InvalidInput
from .events import EventBase, MessageEdited, MessageQueued, NumberedEvent
from .submissions import Receipt, Submission
from .transcript import Message
from .turn import Call

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
    "with_bodies",
    "with_proposed",
]

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder().decode

OMITTED: dict[type, tuple[str, ...]] = {Call: ("proposed",), Queued: ("parts", "settings")}
"""Fields that are not written, because a message or an event holds them."""

ALWAYS: dict[type, tuple[str, ...]] = {Checkpoint: ("format", "session", "sequence")}
"""Fields that are written even where they have their default value."""


def json_bytes(value: Any) -> bytes:
    """JSON of plain data."""
    return _encoder.encode(value)


def _strict(kind: type[T], *also: type) -> Callable[[Any, Any], T]:
    allowed = (kind, *also)

    def structure(value: Any, _: Any) -> T:
        if type(value) not in allowed:
            raise ValueError(f"expected {kind.__name__}, got {type(value).__name__}")
        return value  # type: ignore[no-any-return]

    return structure


def _plain(value: Any, _: Any = None) -> Any:
    return value


def _tagged(union: Any) -> dict[str, type]:
    return {cls.tag: cls for cls in get_args(union)}


CLASSES: tuple[type, ...] = (
    transcript.Usage,
    transcript.Timing,
    turn.Failure,
    turn.Decision,
    turn.Call,
    turn.Grant,
    submissions.Receipt,
    turn.Ending,
    turn.TurnState,
    Queued,
    Checkpoint,
)
TAGGED: tuple[tuple[Any, dict[str, type]], ...] = tuple(
    (union, _tagged(union)) for union in (content.Part, content.UserPart, submissions.Submission, events.NumberedEvent)
)
LATE: tuple[type, ...] = (Message,)


def _is_mapping(kind: Any) -> bool:
    return kind == Mapping[str, Any] or kind == dict[str, Any] or kind is Any


def _make_converter(*, detailed: bool) -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=detailed)
    for kind, also in ((str, ()), (bool, ()), (int, ()), (float, (int,))):
        converter.register_structure_hook(kind, _strict(kind, *also))
    converter.register_structure_hook_func(_is_mapping, _plain)
    converter.register_unstructure_hook_func(_is_mapping, _plain)
    for cls in CLASSES:
        _register(converter, cls)
    for union, classes in TAGGED:
        for cls in classes.values():
            _register(converter, cls)
        _register_union(converter, union, classes)
    for cls in LATE:
        _register(converter, cls)
    return converter


def _overrides(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {name: override(omit=True) for name in OMITTED.get(cls, ())}
    found |= {name: override(omit_if_default=False) for name in ALWAYS.get(cls, ())}
    if issubclass(cls, EventBase):
        names = attrs.fields_dict(cls)
        if "message" in names:
            found["message"] = override(unstruct_hook=_message_id, struct_hook=_plain)
        if "call" in names:
            found["call"] = override(struct_hook=_plain)
    return found


def _message_id(message: Message | None) -> str | None:
    return None if message is None else message.id


def _register(converter: cattrs.Converter, cls: type) -> None:
    overrides = _overrides(cls)
    converter.register_structure_hook(cls, make_dict_structure_fn(cls, converter, **overrides))
    plain: Callable[[Any], dict[str, Any]] = make_dict_unstructure_fn(
        cls, converter, _cattrs_omit_if_default=True, **overrides
    )
    tag: str | None = getattr(cls, "tag", None)
    converter.register_unstructure_hook(cls, plain if tag is None else _with_tag(plain, tag))


def _with_tag(plain: Callable[[Any], dict[str, Any]], tag: str) -> Callable[[Any], dict[str, Any]]:
    def unstructure(value: Any) -> dict[str, Any]:
        data = plain(value)
        data["type"] = tag
        return data

    return unstructure


def _register_union(converter: cattrs.Converter, union: Any, classes: dict[str, type]) -> None:
    structures = {tag: converter.get_structure_hook(cls) for tag, cls in classes.items()}

    def structure(value: Any, _: Any) -> Any:
        tag = _fields(value).get("type")
        if not isinstance(tag, str) or tag not in structures:
            raise ValueError(f"type: expected one of {', '.join(sorted(classes))}; got {tag!r}")
        return structures[tag](value, classes[tag])

    converter.register_structure_hook_func(lambda kind: kind == union, structure)
    converter.register_unstructure_hook_func(lambda kind: kind == union, converter.unstructure)


@functools.cache
def converter(detailed: bool = False) -> cattrs.Converter:
    """The converter; ``detailed`` collects where the data was wrong, and is slower."""
    return _make_converter(detailed=detailed)


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a JSON object; of anything else there are none."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _structure(what: str, data: Any, kind: Any) -> Any:
    """Structure at full speed; where that fails, again with the path of what was wrong."""
    try:
        return converter().structure(data, kind)
    except Exception:
        pass
    try:
        return converter(True).structure(data, kind)
    except Exception as error:
        raise CheckpointError(f"{what}: {'; '.join(cattrs.transform_error(error, path='$')[:3])}") from error


def _parse(what: str, data: bytes) -> Any:
    try:
        return _decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CheckpointError(f"{what}: not JSON: {error}") from None


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as JSON."""
    return _encoder.encode(converter().unstructure(checkpoint))


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From a format to the next one."""


def decode_checkpoint(data: bytes) -> Checkpoint:
    """A checkpoint from JSON, migrated if an older version wrote it.

    Raises:
        CheckpointError: a newer version wrote it (names both), or it is not a checkpoint (names the bad field).
    """
    value = _parse("checkpoint", data)
    fields = _fields(value)
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
    checkpoint: Checkpoint = _structure("checkpoint", fields, Checkpoint)
    return checkpoint


def encode_messages(messages: Iterable[Message]) -> bytes:
    """Messages as a JSON array."""
    unstructure = converter().unstructure
    return _encoder.encode([unstructure(message) for message in messages])


def decode_messages(data: bytes) -> list[Message]:
    """Messages from a JSON array.

    Raises:
        CheckpointError: it is not one.
    """
    messages: list[Message] = _structure("messages", _parse("messages", data), list[Message])
    return messages


def encode_events(found: Iterable[NumberedEvent]) -> bytes:
    """Events as a JSON array; messages in them as ids."""
    unstructure = converter().unstructure
    return _encoder.encode([unstructure(event) for event in found])


def decode_events(data: bytes, find: Callable[[str], Message | None]) -> list[NumberedEvent]:
    """Events from a JSON array; ``find`` gives the messages that they name.

    Raises:
        CheckpointError: it is not one, or names a message that ``find`` does not know.
    """
    value = _parse("events", data)
    if not isinstance(value, list):
        raise CheckpointError("events: expected an array")
    rows: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return [_structure("events", _joined(row, find), NumberedEvent) for row in rows]


def _joined(row: Any, find: Callable[[str], Message | None]) -> Any:
    data = _fields(row)
    if data.get("message") is not None:
        message = find(data["message"]) if isinstance(data["message"], str) else None
        if message is None:
            raise CheckpointError(
                f"events: number {data.get('number')} names message {data['message']}, which is not stored"
            )
        data["message"] = message
    if "call" in data:
        call: Call = _structure("events", data["call"], Call)
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
    return _encoder.encode(converter().unstructure(submission))


def decode_submission(data: bytes) -> Submission:
    """A submission from JSON.

    Raises:
        CheckpointError: it is not one.
    """
    submission: Submission = _structure("submission", _parse("submission", data), Submission)
    return submission


def encode_receipt(receipt: Receipt) -> bytes:
    """A receipt as JSON."""
    return _encoder.encode(converter().unstructure(receipt))


def decode_receipt(data: bytes) -> Receipt:
    """A receipt from JSON.

    Raises:
        CheckpointError: it is not one.
    """
    receipt: Receipt = _structure("receipt", _parse("receipt", data), Receipt)
    return receipt


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
        _encoder.encode(data.pop("id"))
        content = msgspec.json.encode(data, order="sorted")
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
