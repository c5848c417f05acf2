"""A request to a Responses server as bytes. Nothing here does I/O.

What messages became is kept in the request's cache, so a step encodes only what is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs

from turnstate_states.content import clean_text
from turnstate_states.transcript import Message

from ..base import ModelRequest, ToolDefinition
from ..wire.encoding import added_text, made_once, odd_names, tool_head
from ..wire.grown_body import GrownBody, grown_body, join_items
from ..wire.json_values import to_json
from .encode_parts import AssistantItems, CallIds, plain, result_item, user_content
from .settings import check_responses_settings, fields_of, is_strict

__all__ = ["ResponsesEncoder"]


class _Source(NamedTuple):
    """What items depend on besides the messages: names of tools, and how a request gives items back."""

    names: frozenset[str]
    stored: bool
    with_ids: bool


@attrs.frozen
class _Encoded:
    """What a message became; ``ids`` are those of its calls."""

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
        rest = to_json({name: value for name, value in fields.items() if value is not None}, "settings")
        end = b"]"
        if request.tools or hosted:
            end += b',"tools":' + self._tools(request, list(hosted), strict=settings.get("strict_tools") is not False)
        names = made_once(request.cache, (self, "names"), request.tools, lambda: odd_names(request.tools))
        source = _Source(names, stored=fields.get("store") is not False, with_ids=settings.get("item_ids") is not False)
        return join_items(b'{"input":[', self._input(request, source), end + b"," + rest[1:])

    def _tools(self, request: ModelRequest, hosted: list[Any], *, strict: bool) -> bytes:
        tools = request.tools

        def make() -> bytes:
            return to_json([*(_tool(tool, strict=strict) for tool in tools), *hosted], "tools")

        return made_once(request.cache, (self, "tools"), (tools, hosted, strict), make)

    def _input(self, request: ModelRequest, source: _Source) -> list[bytes]:
        body = grown_body(request.cache, self, source, lambda: GrownBody[CallIds](source, {}))
        settled, ids = body.resume(request.messages)
        for number, message in enumerate(request.messages[settled:], settled + 1):
            known = self._encoded(body, message, ids, source)
            if message.role == "assistant":
                ids = known.ids
            if known.data:
                body.pieces.append(known.data)
            body.settle(number, ids)
        # As in Chat Completions: a user message is accepted everywhere.
        additions = added_text(request)
        return [*body.pieces, to_json(plain("user", additions), "additions")] if additions else body.pieces

    def _encoded(self, body: GrownBody[CallIds], message: Message, ids: CallIds, source: _Source) -> _Encoded:
        context = ids if message.role == "tool" else None
        return body.remember((message,), lambda: self._message(message, ids, source), context)

    def _message(self, message: Message, ids: CallIds, source: _Source) -> _Encoded:
        made: CallIds = {}
        match message.role:
            case "assistant":
                reply = AssistantItems(
                    message.parts, source.names, self._origin, stored=source.stored, with_ids=source.with_ids
                )
                items, made = reply.items(), reply.ids
            case "tool":
                items = [result_item(result, ids) for result in message.results]
            case "system":
                items = [plain("system", message.text)]
            case "user":
                items = [{"role": "user", "content": user_content(message.parts)}]
        return _Encoded(b",".join(to_json(item, "messages") for item in items), made)


def _tool(tool: ToolDefinition, *, strict: bool) -> dict[str, Any]:
    # Said in any case: without it the schema is taken as strict, and changed until it is.
    strict = strict and is_strict(tool.parameters)
    return {"type": "function", **tool_head(tool), "parameters": tool.parameters, "strict": strict}
