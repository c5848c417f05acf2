"""A request to Gemini as bytes. Nothing here does I/O.

What messages became is kept in the request's cache, so a step encodes only what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import attrs
import msgspec

from turnstate_states.content import Text, ToolCall, clean_text
from turnstate_states.transcript import Message

from ..base import ModelRequest, ToolDefinition
from ..wire.encoding import EMPTY, added_text, made_once, odd_names, tool_head
from ..wire.grown_body import GrownBody, grown_body
from ..wire.json_values import to_json
from .encode_parts import UNSIGNED, model_parts, own_fields, result_part, shown_parts, wire_name
from .settings import check_gemini_settings, make_fields, thinks_by_level

__all__ = ["GeminiEncoder"]

_json = msgspec.json.Encoder()
_Wire = tuple[str, str]
"""A call's name and id on the wire."""
_Role = Literal["user", "model"]
_OPENINGS: Mapping[_Role, bytes] = {"user": b'{"role":"user","parts":[', "model": b'{"role":"model","parts":['}
_CHANGES: Mapping[_Role, bytes] = {role: b"]}," + opening for role, opening in _OPENINGS.items()}


class _State(NamedTuple):
    """The role of the content that is open, and the last calls."""

    role: _Role | None
    calls: Mapping[str, _Wire]


@attrs.frozen
class _Encoded:
    """What a message became. ``after`` follows the whole batch."""

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
        end = b"]}]"
        if request.instructions.strip():
            instructions = {"parts": [{"text": clean_text(request.instructions)}]}
            end += b',"systemInstruction":' + _json.encode(instructions)
        if tools := self._tools(request):
            end += b',"tools":' + tools
        fields = self._fields(request)
        end += b"," + fields[1:] if len(fields) > 2 else b"}"
        return b"".join([b'{"contents":[', *self._contents(request), end])

    def _fields(self, request: ModelRequest) -> bytes:
        settings = self._settings
        if request.settings:
            settings = check_gemini_settings({**settings, **request.settings})
        fields = make_fields(self._model, settings, self._extra, tools=bool(request.tools))
        return to_json(fields, "settings")

    def _tools(self, request: ModelRequest) -> bytes:
        def make() -> bytes:
            tools: list[Any] = [{"functionDeclarations": [*map(_tool, request.tools)]}] if request.tools else []
            tools += self._extra.get("tools") or []
            return to_json(tools, "tools") if tools else b""

        return made_once(request.cache, (self, "tools"), request.tools, make)

    def _contents(self, request: ModelRequest) -> list[bytes]:
        """The contents, of which the last is left open. Neighbours of one role are one content.

        So roles alternate, and the results of a batch are together.
        """
        names = made_once(request.cache, (self, "names"), request.tools, lambda: odd_names(request.tools, wire_name))
        body = grown_body(request.cache, self, names, lambda: GrownBody[_State](names, _State(None, {})))
        role, after = self._grow(body, request.messages, names)
        if additions := added_text(request):
            after.append(_text(additions))
        last: list[bytes] = []
        for data in after if after or role else [_text(EMPTY)]:
            role = _add(last, role, "user", data)
        return [*body.pieces, *last]

    def _grow(
        self, body: GrownBody[_State], messages: tuple[Message, ...], names: frozenset[str]
    ) -> tuple[_Role | None, list[bytes]]:
        """Encode what is new.

        Returns:
            The role of the content that is open, and the pictures that follow a batch. It is not settled before it ends.
        """
        settled, (role, calls) = body.resume(messages)
        after: list[bytes] = []
        for number, message in enumerate(messages[settled:], settled + 1):
            if message.role != "tool":
                for data in after:
                    role = _add(body.pieces, role, "user", data)
                after = []
            known = self._encoded(body, message, calls, names)
            if message.role == "assistant":
                calls = known.calls
            if known.data:
                role = _add(body.pieces, role, "model" if message.role == "assistant" else "user", known.data)
            if known.after:
                after.append(known.after)
            if not after:
                body.settle(number, _State(role, calls))
        return role, after

    def _encoded(
        self, body: GrownBody[_State], message: Message, calls: Mapping[str, _Wire], names: frozenset[str]
    ) -> _Encoded:
        context = calls if message.role == "tool" else None
        return body.remember((message,), lambda: self._message(message, calls, names), context)

    def _message(self, message: Message, calls: Mapping[str, _Wire], names: frozenset[str]) -> _Encoded:
        match message.role:
            case "assistant":
                return self._assistant(message, names)
            case "tool":
                return self._results(message, calls)
            case "system":
                # There is no such role among the contents, and the instructions come before all of them.
                return _Encoded(_joined(shown_parts([Text(message.text)])))
            case "user":
                return _Encoded(_joined(shown_parts(message.parts)))

    def _assistant(self, message: Message, names: frozenset[str]) -> _Encoded:
        parts = model_parts(message.parts, names)
        calls: dict[str, _Wire] = {}
        for call in message.calls:
            calls[call.id] = (wire_name(call.name, names), call.provider_id if own_fields(call) is not None else "")
        if self._new and message.calls and self._unsigned(message, message.calls[0]):
            first = next(part for part in parts if "functionCall" in part)
            first.setdefault("thoughtSignature", UNSIGNED)
        return _Encoded(_joined(parts), b"", calls)

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
        return _Encoded(_joined(results), _joined(after))


def _add(pieces: list[bytes], role: _Role | None, wanted: _Role, data: bytes) -> _Role:
    """Add parts to the content that is open, if it has their role, or else to a new one; returns their role."""
    if role is None and wanted == "model":
        role = _add(pieces, role, "user", _text(EMPTY))
    pieces.append(b"," if role == wanted else _CHANGES[wanted] if role else _OPENINGS[wanted])
    pieces.append(data)
    return wanted


def _joined(parts: Iterable[Mapping[str, Any]]) -> bytes:
    return b",".join(_json.encode(part) for part in parts)


def _text(text: str) -> bytes:
    return _json.encode({"text": clean_text(text)})


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    return {**tool_head(tool), "parametersJsonSchema": tool.parameters}
