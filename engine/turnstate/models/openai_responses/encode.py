"""A request to a Responses server as bytes. Nothing here does I/O.

What a message became is kept in the request's cache, so a step encodes only what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import attrs

from turnstate_states.content import clean_text
from turnstate_states.transcript import Message

from ..base import ModelRequest, ToolDefinition
from ..wire.encoding import added_text, tool_head
from ..wire.json_values import to_json
from .encode_parts import AssistantItems, CallIds, plain, result_item, user_content
from .settings import check_responses_settings, fields_of, is_strict

__all__ = ["ResponsesEncoder"]


class _Way(NamedTuple):
    """How a request gives items back."""

    stored: bool
    with_ids: bool


_ANY_WAY = _Way(stored=False, with_ids=False)


@attrs.frozen
class _Encoded:
    """What a message became; it counts only for the very same message object and the same way of giving it back."""

    source: object
    way: _Way
    data: bytes
    ids: CallIds


class ResponsesEncoder:
    """Encodes requests for one model. Each holds the whole conversation, so that a server need not store anything.

    Args:
        model: the model's name on the server.
        settings: checked settings; those of a request come before them.
        extra_body: further fields of the body; they come before everything else.
        origin: items go back as they came only to the server that they came from; this names it.
    """

    def __init__(
        self, model: str, *, settings: Mapping[str, Any], extra_body: Mapping[str, Any], origin: str = ""
    ) -> None:
        self._model = model
        self._settings = settings
        self._extra = extra_body
        self._origin = origin

    def encode(self, request: ModelRequest) -> bytes:
        """The body of the request.

        Raises:
            InvalidInput: a setting of the request, or a tool's parameters, cannot be sent.
        """
        settings = self._settings
        if request.settings:
            settings = {**settings, **check_responses_settings(request.settings)}
        hosted = settings.get("hosted_tools") or ()
        fields = {**fields_of(self._model, settings, tools=bool(request.tools or hosted)), **self._extra}
        if request.instructions.strip():
            fields["instructions"] = clean_text(request.instructions)
        body = to_json({name: value for name, value in fields.items() if value is not None}, "settings")
        way = _Way(stored=fields.get("store") is not False, with_ids=settings.get("item_ids") is not False)
        items = b",".join(self._input(request, way))
        head = b'{"input":[' + items + b"]"
        if request.tools or hosted:
            head += b',"tools":' + self._tools(request, list(hosted), strict=settings.get("strict_tools") is not False)
        return head + b"," + body[1:]

    def _tools(self, request: ModelRequest, hosted: list[Any], *, strict: bool) -> bytes:
        source = (request.tools, hosted, strict)
        known = request.cache.get((self, "tools"))
        if known is not None and known.source == source:
            return cast("_Encoded", known).data
        data = to_json([*(_tool(tool, strict=strict) for tool in request.tools), *hosted], "tools")
        request.cache[self, "tools"] = _Encoded(source, _ANY_WAY, data, {})
        return data

    def _input(self, request: ModelRequest, way: _Way) -> Iterable[bytes]:
        cache, names = request.cache, frozenset(tool.name for tool in request.tools)
        ids: CallIds = {}
        for message in request.messages:
            key = (self, message.id)
            known: _Encoded | None = cache.get(key)
            if known is None or known.source is not message or known.way != way:
                known = cache[key] = self._message(message, ids, names, way)
            if message.role == "assistant":
                ids = known.ids
            if known.data:
                yield known.data
        if additions := added_text(request):
            # As in Chat Completions: a user message is accepted everywhere.
            yield to_json(plain("user", additions), "additions")

    def _message(self, message: Message, ids: CallIds, names: frozenset[str], way: _Way) -> _Encoded:
        made: CallIds = {}
        match message.role:
            case "assistant":
                reply = AssistantItems(message.parts, names, self._origin, stored=way.stored, with_ids=way.with_ids)
                items, made = reply.items(), reply.ids
            case "tool":
                items = [result_item(result, ids) for result in message.results]
            case "system":
                items = [plain("system", message.text)]
            case "user":
                items = [{"role": "user", "content": user_content(message.parts)}]
        data = b",".join(to_json(item, "messages") for item in items)
        return _Encoded(message, way, data, made)


def _tool(tool: ToolDefinition, *, strict: bool) -> dict[str, Any]:
    # Said in any case: without it the schema is taken as strict, and changed until it is.
    strict = strict and is_strict(tool.parameters)
    return {"type": "function", **tool_head(tool), "parameters": tool.parameters, "strict": strict}
