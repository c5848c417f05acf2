"""A request to Gemini as bytes. Nothing here does I/O.

What a message became is kept in the request's cache, so a step encodes only what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import msgspec

from turnstate_states.content import Text, ToolCall, clean_text
from turnstate_states.transcript import Message

from ..base import ModelRequest, ToolDefinition
from ..wire.encoding import EMPTY, added_text, tool_head
from ..wire.json_values import to_json
from .encode_parts import UNSIGNED, model_parts, own_fields, result_part, shown_parts, wire_name
from .settings import check_gemini_settings, make_fields, thinks_by_level

__all__ = ["GeminiEncoder"]

_json = msgspec.json.Encoder()
_Wire = tuple[str, str]
"""A call's name and id on the wire."""


@attrs.frozen
class _Encoded:
    """What a message became; it counts only for the very same message object. ``after`` follows the whole batch."""

    source: object
    data: bytes
    after: bytes = b""
    calls: Mapping[str, _Wire] = attrs.field(factory=dict[str, _Wire])


class GeminiEncoder:
    """Encodes requests for one model.

    Args:
        model: the model's name.
        settings: checked settings; those of a request come before them.
        extra_body: checked further fields of the body.
    """

    def __init__(self, model: str, *, settings: Mapping[str, Any], extra_body: Mapping[str, Any]) -> None:
        self._model = model
        self._settings = settings
        self._extra = extra_body
        self._new = thinks_by_level(model)

    def encode(self, request: ModelRequest) -> bytes:
        """The body of the request.

        Raises:
            InvalidInput: a setting of the request, or a tool's parameters, cannot be sent.
        """
        head = b'{"contents":[' + self._contents(request) + b"]"
        if request.instructions.strip():
            instructions = {"parts": [{"text": clean_text(request.instructions)}]}
            head += b',"systemInstruction":' + _json.encode(instructions)
        if tools := self._tools(request):
            head += b',"tools":' + tools
        fields = self._fields(request)
        return head + (b"," + fields[1:] if len(fields) > 2 else b"}")

    def _fields(self, request: ModelRequest) -> bytes:
        settings = self._settings
        if request.settings:
            settings = check_gemini_settings({**settings, **request.settings})
        fields = make_fields(self._model, settings, self._extra, tools=bool(request.tools))
        return to_json(fields, "settings")

    def _tools(self, request: ModelRequest) -> bytes:
        known: _Encoded | None = request.cache.get((self, "tools"))
        if known is not None and known.source == request.tools:
            return known.data
        tools: list[Any] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}] if request.tools else []
        tools += self._extra.get("tools") or []
        data = to_json(tools, "tools") if tools else b""
        request.cache[self, "tools"] = _Encoded(request.tools, data)
        return data

    def _contents(self, request: ModelRequest) -> bytes:
        """Neighbours of one role are one content, so that roles alternate and the results of a batch are together."""
        contents: list[tuple[str, list[bytes]]] = []
        for role, data in self._parts(request):
            if not contents and role == "model":
                contents.append(("user", [_text(EMPTY)]))
            if contents and contents[-1][0] == role:
                contents[-1][1].append(data)
            else:
                contents.append((role, [data]))
        if not contents:
            contents.append(("user", [_text(EMPTY)]))
        return b",".join(
            b'{"role":"' + role.encode() + b'","parts":[' + b",".join(parts) + b"]}" for role, parts in contents
        )

    def _parts(self, request: ModelRequest) -> Iterable[tuple[str, bytes]]:
        cache, names = request.cache, frozenset(tool.name for tool in request.tools)
        calls: Mapping[str, _Wire] = {}
        after: list[bytes] = []
        for message in request.messages:
            known: _Encoded | None = cache.get((self, message.id))
            if known is None or known.source is not message:
                known = cache[self, message.id] = self._message(message, calls, names)
            if after and message.role != "tool":
                yield "user", b",".join(after)
                after.clear()
            if message.role == "assistant":
                calls = known.calls
            if known.data:
                yield "model" if message.role == "assistant" else "user", known.data
            if known.after:
                after.append(known.after)
        if after:
            yield "user", b",".join(after)
        if additions := added_text(request):
            yield "user", _text(additions)

    def _message(self, message: Message, calls: Mapping[str, _Wire], names: frozenset[str]) -> _Encoded:
        match message.role:
            case "assistant":
                return self._assistant(message, names)
            case "tool":
                return self._results(message, calls)
            case "system":
                # There is no such role among the contents, and the instructions come before all of them.
                return _Encoded(message, _joined(shown_parts([Text(message.text)])))
            case "user":
                return _Encoded(message, _joined(shown_parts(message.parts)))

    def _assistant(self, message: Message, names: frozenset[str]) -> _Encoded:
        parts = model_parts(message.parts, names)
        calls: dict[str, _Wire] = {}
        for call in message.calls:
            calls[call.id] = (wire_name(call, names), call.provider_id if own_fields(call) is not None else "")
        if self._new and message.calls and self._unsigned(message, message.calls[0]):
            first = next(part for part in parts if "functionCall" in part)
            first.setdefault("thoughtSignature", UNSIGNED)
        return _Encoded(message, _joined(parts), b"", calls)

    def _unsigned(self, message: Message, call: ToolCall) -> bool:
        """Whether the first call of a message was made where no signatures are."""
        return own_fields(call) is None or (bool(message.model) and not thinks_by_level(message.model))

    def _results(self, message: Message, calls: Mapping[str, _Wire]) -> _Encoded:
        results: list[dict[str, Any]] = []
        after: list[dict[str, Any]] = []
        for result in message.results:
            name, id = calls.get(result.call, ("unnamed", ""))
            wire, pictures = result_part(result, name, id, with_images=self._new)
            results.append(wire)
            after += pictures
        return _Encoded(message, _joined(results), _joined(after))


def _joined(parts: Iterable[Mapping[str, Any]]) -> bytes:
    return b",".join(_json.encode(part) for part in parts)


def _text(text: str) -> bytes:
    return _json.encode({"text": clean_text(text)})


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    return {**tool_head(tool), "parametersJsonSchema": tool.parameters}
