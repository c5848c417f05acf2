"""A request to a Chat Completions server as bytes. Nothing here does I/O.

What a message became is kept in the request's cache, so a step encodes only what is new.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import attrs
import msgspec

from turnstate_states.content import Part, Reasoning, ToolCall, clean_text, text_of
from turnstate_states.transcript import Message

from ..base import ModelRequest, ToolDefinition
from ..wire.encoding import EMPTY, added_text, object_arguments, own_id, sound_name, tool_head
from ..wire.json_values import to_json
from . import PROTOCOL
from .said import Content, content_of, said
from .settings import check_chat_settings

__all__ = ["ChatEncoder"]

_OWN_FIELDS: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
_ONLY_WITH_TOOLS = ("tool_choice", "parallel_tool_calls")
_json = msgspec.json.Encoder()


@attrs.frozen
class _Encoded:
    """What a message became; it counts only for the very same message object."""

    source: object
    data: bytes
    ids: Mapping[str, str]
    pictures: bool = False
    more: Sequence[Message] = ()


class ChatEncoder:
    """Encodes requests for one model.

    Args:
        model: the model's name on the server.
        settings: checked settings; those of a request come before them.
        extra_body: further fields of the body; they come before everything else.
        origin: reasoning details go back only to the server that they came from; this names it.
        reasoning_field: the field under which a message's reasoning is sent back, for servers that want it; None sends
            none.
    """

    def __init__(
        self,
        model: str,
        *,
        settings: Mapping[str, Any],
        extra_body: Mapping[str, Any],
        origin: str = "",
        reasoning_field: str | None = None,
    ) -> None:
        self._model = model
        self._settings = settings
        self._extra = extra_body
        self._origin = origin
        self._reasoning_field = reasoning_field

    def encode(self, request: ModelRequest) -> bytes:
        """The body of the request.

        Raises:
            InvalidInput: a setting of the request, or a tool's parameters, cannot be sent.
        """
        tools = self._tools(request) if request.tools else b""
        head = b'{"messages":[' + b",".join(self._messages(request)) + b"]"
        if tools:
            head += b',"tools":' + tools
        return head + b"," + self._fields(request)[1:]

    def _fields(self, request: ModelRequest) -> bytes:
        settings = {**self._settings, **check_chat_settings(request.settings)} if request.settings else self._settings
        fields = {"model": self._model, **_OWN_FIELDS, **settings, **self._extra}
        if not request.tools:
            for name in _ONLY_WITH_TOOLS:
                fields.pop(name, None)
        return to_json({name: value for name, value in fields.items() if value is not None}, "settings")

    def _tools(self, request: ModelRequest) -> bytes:
        known = request.cache.get((self, "tools"))
        if known is not None and known.source == request.tools:
            return cast("_Encoded", known).data
        data = to_json([_tool(tool) for tool in request.tools], "tools")
        request.cache[self, "tools"] = _Encoded(request.tools, data, {})
        return data

    def _messages(self, request: ModelRequest) -> Iterable[bytes]:
        if request.instructions.strip():
            yield _plain("system", request.instructions)
        cache, names = request.cache, frozenset(tool.name for tool in request.tools)
        ids: Mapping[str, str] = {}
        run: list[Message] = []
        for message in request.messages:
            role = message.role
            if role == "user":
                run.append(message)
                continue
            if run and role != "tool":
                yield self._said(run, cache)
                run = []
            known: _Encoded | None = cache.get((self, message.id))
            if known is None or known.source is not message:
                known = cache[self, message.id] = self._message(message, ids, names)
            if role == "assistant":
                ids = known.ids
            elif known.pictures:
                run.append(message)
            if known.data:
                yield known.data
        # Many chat templates refuse a system message at the end; a person's is accepted everywhere.
        if added := added_text(request):
            yield said([*map(_content, run), clean_text(added)])
        elif run:
            yield self._said(run, cache)

    def _said(self, run: list[Message], cache: dict[Any, Any]) -> bytes:
        """Neighbouring messages of a person, and pictures of tools, which only a person's message can hold, as one."""
        first, *more = run
        key = (self, first.id) if first.role == "user" else (self, first.id, "pictures")
        known: _Encoded | None = cache.get(key)
        if known is None or known.source is not first or not _same(known.more, more):
            known = cache[key] = _Encoded(first, said([*map(_content, run)]), {}, more=more)
        return known.data

    def _message(self, message: Message, ids: Mapping[str, str], names: frozenset[str]) -> _Encoded:
        if message.role == "assistant":
            return self._assistant(message, names)
        if message.role == "tool":
            pictures = any(result.images for result in message.results)
            return _Encoded(message, b",".join(_results(message, ids)), {}, pictures)
        return _Encoded(message, _plain("system", message.text), {})

    def _assistant(self, message: Message, names: frozenset[str]) -> _Encoded:
        calls, text = message.calls, text_of(message.parts)
        ids = _wire_ids(calls)
        if not text.strip():
            text = "" if calls else EMPTY
        wire: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            wire["tool_calls"] = [_call(call, ids[call.id], names) for call in calls]
        self._give_back(message.parts, wire)
        return _Encoded(message, _json.encode(wire), ids)

    def _give_back(self, parts: Iterable[Part], wire: dict[str, Any]) -> None:
        thoughts = [part for part in parts if isinstance(part, Reasoning)]
        for part in thoughts:
            kept = part.provider.get(PROTOCOL)
            if isinstance(kept, Mapping):
                fields = cast("Mapping[str, Any]", kept)
                if fields.get("origin") == self._origin and fields.get("reasoning_details"):
                    wire["reasoning_details"] = fields["reasoning_details"]
        if self._reasoning_field and (thought := "".join(part.text for part in thoughts)):
            wire[self._reasoning_field] = thought


def _content(message: Message) -> Content:
    """What a person said, or what tools show besides their text."""
    if message.role != "tool":
        return content_of(message.parts)
    return content_of([image for result in message.results for image in result.images])


def _same(some: Sequence[Message], others: Sequence[Message]) -> bool:
    """Whether these are the very same messages."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _plain(role: str, text: str) -> bytes:
    return _json.encode({"role": role, "content": clean_text(text) if text.strip() else EMPTY})


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    return {"type": "function", "function": {**tool_head(tool), "parameters": tool.parameters}}


def _wire_ids(calls: Iterable[ToolCall]) -> dict[str, str]:
    """For each call's own id the one that is sent: the provider's if it tells the calls of the message apart."""
    times = Counter(call.provider_id for call in calls)
    return {
        call.id: call.provider_id if call.provider_id and times[call.provider_id] == 1 else own_id(call.id)
        for call in calls
    }


def _call(call: ToolCall, wire_id: str, names: frozenset[str]) -> dict[str, Any]:
    function = {"name": sound_name(call.name, names), "arguments": object_arguments(call.arguments).decode()}
    return {"id": wire_id, "type": "function", "function": function}


def _results(message: Message, ids: Mapping[str, str]) -> Iterable[bytes]:
    for result in message.results:
        text = result.text if result.text.strip() else EMPTY
        wire_id = ids.get(result.call) or own_id(result.call)
        yield _json.encode({"role": "tool", "tool_call_id": wire_id, "content": text})
