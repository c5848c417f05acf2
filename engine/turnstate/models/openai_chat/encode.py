"""A request to a Chat Completions server as bytes. Nothing here does I/O.

What messages became is kept in the request's cache, so a step encodes only what is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

import attrs
import msgspec

from turnstate_states.content import Part, Reasoning, ToolCall, clean_text, text_of
from turnstate_states.transcript import Message

from ..base import ModelRequest, ToolDefinition
from ..wire.encoding import (
    EMPTY,
    added_text,
    made_once,
    object_arguments,
    odd_names,
    own_id,
    sound_name,
    tool_head,
)
from ..wire.grown_body import GrownBody, grown_body, join_items
from ..wire.json_values import to_json
from . import PROTOCOL
from .said import Content, content_of, said
from .settings import check_chat_settings

__all__ = ["ChatEncoder"]

_OWN_FIELDS: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
_ONLY_WITH_TOOLS = ("tool_choice", "parallel_tool_calls")
_json = msgspec.json.Encoder()


_Ids = Mapping[str, str]
"""For each call's own id the one that is sent."""


@attrs.frozen
class _Encoded:
    """What a message became; ``ids`` are those of its calls, ``pictures`` whether a person's message has to show some."""

    data: bytes
    ids: _Ids = attrs.field(factory=dict[str, str])
    pictures: bool = False


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
        end = b"]" + (b',"tools":' + tools if tools else b"")
        return join_items(b'{"messages":[', self._messages(request), end + b"," + self._fields(request)[1:])

    def _fields(self, request: ModelRequest) -> bytes:
        settings = {**self._settings, **check_chat_settings(request.settings)} if request.settings else self._settings
        fields = {"model": self._model, **_OWN_FIELDS, **settings, **self._extra}
        if not request.tools:
            for name in _ONLY_WITH_TOOLS:
                fields.pop(name, None)
        return to_json({name: value for name, value in fields.items() if value is not None}, "settings")

    def _tools(self, request: ModelRequest) -> bytes:
        tools = request.tools
        return made_once(request.cache, (self, "tools"), tools, lambda: to_json([*map(_tool, tools)], "tools"))

    def _messages(self, request: ModelRequest) -> list[bytes]:
        names = made_once(request.cache, (self, "names"), request.tools, lambda: odd_names(request.tools))
        body = grown_body(request.cache, self, names, lambda: GrownBody[_Ids](names, {}))
        run = self._grow(body, request.messages, names)
        first = [_plain("system", request.instructions)] if request.instructions.strip() else []
        # Many chat templates refuse a system message at the end; a person's is accepted everywhere.
        if added := added_text(request):
            last = [said([*map(_content, run), clean_text(added)])]
        else:
            last = [self._said(body, run)] if run else []
        return [*first, *body.pieces, *last]

    def _grow(self, body: GrownBody[_Ids], messages: tuple[Message, ...], names: frozenset[str]) -> list[Message]:
        """Encode what is new; the state is the ids of the last calls.

        Returns:
            What a person's message at the end has to hold. It is not settled, since what follows may join it.
        """
        settled, ids = body.resume(messages)
        run: list[Message] = []
        for number, message in enumerate(messages[settled:], settled + 1):
            role = message.role
            if role == "user":
                run.append(message)
                continue
            if run and role != "tool":
                body.pieces.append(self._said(body, run))
                run = []
            known = self._encoded(body, message, ids, names)
            if role == "assistant":
                ids = known.ids
            elif known.pictures:
                run.append(message)
            if known.data:
                body.pieces.append(known.data)
            if not run:
                body.settle(number, ids)
        return run

    def _said(self, body: GrownBody[_Ids], run: list[Message]) -> bytes:
        """Neighbouring messages of a person, and pictures of tools, which only a person's message can hold, as one."""
        return body.remember(run, lambda: said([*map(_content, run)]), kind="said")

    def _encoded(self, body: GrownBody[_Ids], message: Message, ids: _Ids, names: frozenset[str]) -> _Encoded:
        context = ids if message.role == "tool" else None
        return body.remember((message,), lambda: self._message(message, ids, names), context)

    def _message(self, message: Message, ids: _Ids, names: frozenset[str]) -> _Encoded:
        if message.role == "assistant":
            return self._assistant(message, names)
        if message.role == "tool":
            pictures = any(result.images for result in message.results)
            return _Encoded(b",".join(_results(message, ids)), pictures=pictures)
        return _Encoded(_plain("system", message.text))

    def _assistant(self, message: Message, names: frozenset[str]) -> _Encoded:
        calls, text = message.calls, text_of(message.parts)
        ids = _wire_ids(calls)
        if not text.strip():
            text = "" if calls else EMPTY
        wire: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            wire["tool_calls"] = [_call(call, ids[call.id], names) for call in calls]
        self._give_back(message.parts, wire)
        return _Encoded(_json.encode(wire), ids)

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


def _results(message: Message, ids: _Ids) -> Iterable[bytes]:
    for result in message.results:
        text = result.text if result.text.strip() else EMPTY
        wire_id = ids.get(result.call) or own_id(result.call)
        yield _json.encode({"role": "tool", "tool_call_id": wire_id, "content": text})
