"""What the encoders share: texts, names, ids and arguments that every later request can be sent with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set
from typing import Any, TypeVar, cast

import msgspec

from turnstate_states.content import clean_text

from ..base import ModelRequest, ToolDefinition

__all__ = ["EMPTY", "added_text", "made_once", "object_arguments", "odd_names", "own_id", "sound_name", "tool_head"]

EMPTY = "(empty)"
"""Stands for a message without content: servers refuse blank text and empty content, strict templates a missing turn."""

V = TypeVar("V")
_json = msgspec.json.Encoder()


def added_text(request: ModelRequest) -> str:
    """What is added to this request only, empty for nothing."""
    return "\n\n".join(text for text in request.additions if text.strip())


def tool_head(tool: ToolDefinition) -> dict[str, Any]:
    """The name of a tool and what it does, without a blank description."""
    described = {"description": clean_text(tool.description)} if tool.description.strip() else {}
    return {"name": tool.name, **described}


def made_once(cache: dict[Any, Any], key: object, source: object, make: Callable[[], V]) -> V:
    """What was made from a source for the last request with this cache, made anew if it is from another one."""
    known: tuple[object, object] | None = cache.get(key)
    if known is None or known[0] != source:
        known = cache[key] = (source, make())
    return cast("V", known[1])


def own_id(id: str) -> str:
    """An id as every server allows it: letters, digits, ``_`` and ``-``."""
    return re.sub("[^A-Za-z0-9_-]", "_", id) or "_"


def sound_name(name: str, names: Set[str], longest: int = 64) -> str:
    """A call's name; one that the model made up must not make every later request invalid.

    >>> sound_name("search the web", {"search"}), sound_name("", set())
    ('search_the_web', 'unnamed')
    """
    if name in names or (len(name) <= longest and re.fullmatch("[A-Za-z0-9_-]+", name)):
        return name
    return re.sub("[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def odd_names(tools: Iterable[ToolDefinition], sound: Callable[[str, Set[str]], str] = sound_name) -> frozenset[str]:
    """The names that calls keep only because a tool has them: with all others a call is encoded the same for any tools.

    >>> odd_names([ToolDefinition("search", "", {}), ToolDefinition("a.b", "", {})])
    frozenset({'a.b'})
    """
    return frozenset(tool.name for tool in tools if sound(tool.name, frozenset()) != tool.name)


def object_arguments(text: str) -> bytes:
    """Arguments as the model sent them if they are a JSON object; otherwise an object that shows them.

    >>> object_arguments('{"a": 1}'), object_arguments("[1"), object_arguments(" ")
    (b'{"a": 1}', b'{"_raw":"[1"}', b'{}')
    """
    if not text.strip():
        return b"{}"
    try:
        if isinstance(msgspec.json.decode(text), dict):
            return text.encode()
    except (ValueError, RecursionError):
        pass
    return _json.encode({"_raw": text})
