"""The one cattrs converter.

Unions carry an explicit ``type`` tag that is looked at first; nothing is ever imported by a name in the data. Structuring
is strict: 3 is not ``"3"``. A module of its own, because it is imported when something is first read or written, and
importing the package is to be quick.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import attrs
import cattrs
from cattrs.cols import list_structure_factory
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.v import format_exception

from . import asking, authorization, content, events, message, submissions, turn
from .checkpoint import Checkpoint, Pending, Queued
from .codec import fields_of
from .events import EventBase
from .message import Message
from .turn import Call

__all__ = ["make_converter", "where_wrong"]

T = TypeVar("T")

OMITTED: dict[type, tuple[str, ...]] = {Call: ("proposed",), Queued: ("parts", "settings")}
"""Fields that are not written, because a message or an event holds them."""

ALWAYS: dict[type, tuple[str, ...]] = {Checkpoint: ("format", "session", "sequence")}
"""Fields that are written even where they have their default value."""


ARRAYS: tuple[Any, ...] = (list, tuple)


def _strict(kind: type[T], *also: type) -> Callable[[Any, Any], T]:
    allowed = (kind, *also)

    def structure(value: Any, _: Any) -> T:
        if type(value) not in allowed:
            raise ValueError(f"expected {kind.__name__}, got {type(value).__name__}")
        return value  # type: ignore[no-any-return]

    return structure


def _plain(value: Any, _: Any = None) -> Any:
    return value


def _message(value: Any, _: Any) -> Message:
    if not isinstance(value, Message):
        raise ValueError("expected the id of a message")
    return value


def _is_array(kind: Any) -> bool:
    return kind is not None and get_origin(kind) in ARRAYS


def _array(kind: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """How to read a list or tuple: from an array, not from anything that can be iterated."""
    (arg, *_) = get_args(kind)
    make: Any = get_origin(kind)
    inner: Any = list.__class_getitem__(arg)
    if converter.detailed_validation:
        each: Callable[[Any, Any], Any] = list_structure_factory(inner, converter)
    else:
        each = _plainly(converter.get_structure_hook(arg), arg)

    def read(value: Any, _: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"expected an array, got {type(value).__name__}")  # pyright: ignore[reportUnknownArgumentType]
        return make(each(value, inner))

    return read


def _plainly(one: Callable[[Any, Any], Any], kind: Any) -> Callable[[Any, Any], Any]:
    """Read each value, without noting where one was wrong."""
    return lambda values, _: [one(value, kind) for value in values]


def _is_optional(kind: Any) -> bool:
    args = get_args(kind)
    return get_origin(kind) in (Union, types.UnionType) and len(args) == 2 and type(None) in args


def _optional(kind: Any, converter: cattrs.BaseConverter) -> Callable[[Any, Any], Any]:
    """How to read a value that may be null, found once: looking for it each time takes longer than reading."""
    (inner,) = (arg for arg in get_args(kind) if arg is not type(None))
    structure = converter.get_structure_hook(inner)
    return lambda value, _: None if value is None else structure(value, inner)


def _tagged(union: Any) -> dict[str, type]:
    return {cls.tag: cls for cls in get_args(union)}


CLASSES: tuple[type, ...] = (
    authorization.Decision,
    authorization.Permissions,
    authorization.Authorization,
    content.Citation,
    content.Image,
    message.Usage,
    message.Timing,
    turn.Failure,
    turn.Subject,
    asking.Option,
    asking.Question,
    asking.Prompt,
    turn.Nested,
    turn.Call,
    turn.Grant,
    submissions.Receipt,
    turn.Ending,
    turn.TurnState,
    submissions.Command,
    Queued,
)
TAGGED: tuple[tuple[Any, dict[str, type]], ...] = tuple(
    (union, _tagged(union)) for union in (content.Part, content.UserPart, submissions.Submission, events.NumberedEvent)
)
LATE: tuple[type, ...] = (Message, Pending, Checkpoint)


def _is_mapping(kind: Any) -> bool:
    return kind == Mapping[str, Any] or kind == dict[str, Any] or kind is Any


def make_converter(*, detailed: bool) -> cattrs.Converter:
    """The converter; ``detailed`` collects where data was wrong, and is slower."""
    converter = cattrs.Converter(detailed_validation=detailed)
    for kind, also in ((str, ()), (bool, ()), (int, ()), (float, (int,))):
        converter.register_structure_hook(kind, _strict(kind, *also))
    converter.register_structure_hook_func(_is_mapping, _plain)
    converter.register_unstructure_hook_func(_is_mapping, _plain)
    converter.register_structure_hook_factory(_is_array, _array)
    converter.register_structure_hook_factory(_is_optional, _optional)
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
            structure = _plain if names["message"].default is None else _message
            found["message"] = override(unstruct_hook=_message_id, struct_hook=structure)
        if "call" in names:
            found["call"] = override(struct_hook=_plain)
    return found


def _message_id(message: Message | None) -> str | None:
    return None if message is None else message.id


def _register(converter: cattrs.Converter, cls: type) -> None:
    overrides = _overrides(cls)
    converter.register_structure_hook(cls, cast(Any, make_dict_structure_fn(cls, converter, **overrides)))
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
        tag = fields_of(value).get("type")
        if not isinstance(tag, str) or tag not in structures:
            raise ValueError(f"type: expected one of {', '.join(sorted(classes))}; got {tag!r}")
        return structures[tag](value, classes[tag])

    converter.register_structure_hook_func(lambda kind: kind == union, structure)
    converter.register_unstructure_hook_func(lambda kind: kind == union, converter.unstructure)


def where_wrong(error: Exception) -> str:
    """The paths of the first bad fields, and what is wrong with them."""
    return "; ".join(cattrs.transform_error(error, "$", _explain)[:3])


def _explain(error: BaseException, kind: type | None) -> str:
    """What is wrong: the error's own words, where it has some."""
    return str(error) if type(error) in (ValueError, Exception) else format_exception(error, kind)
