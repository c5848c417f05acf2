"""The calls of a Gemini answer: whole, or in fragments until one comes without ``willContinue``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from turnstate_states.content import ToolCall

from ..base import OnDelta
from ..wire.json_values import as_dict, is_dict, read_text
from . import PROTOCOL
from .arguments import PartialArguments

__all__ = ["GeminiCall", "GeminiCalls"]

_KNOWN = frozenset({"id", "name", "args", "partialArgs", "willContinue"})
_json = msgspec.json.Encoder()


@attrs.define
class GeminiCall:
    """A call that is being put together; ``fields`` holds the other fields of its part, verbatim."""

    number: int
    id: str = ""
    name: str = ""
    fields: dict[str, Any] = attrs.field(factory=dict[str, Any])
    arguments: str = ""
    partial: PartialArguments | None = None
    args: object = None

    def part(self) -> ToolCall:
        """The call as a part."""
        return ToolCall("", self.name, self.arguments, provider_id=self.id, provider={PROTOCOL: self.fields})


class GeminiCalls:
    """Takes parts with a call. ``open`` is the call that goes on, if one does."""

    def __init__(self, on_delta: OnDelta) -> None:
        self.open: GeminiCall | None = None
        self._on_delta = on_delta
        self._number = 0

    def feed(self, part: Mapping[str, Any]) -> GeminiCall | None:
        """Take a part; gives the call if it opened one.

        Raises:
            ModelError: a field has a type that makes no sense.
        """
        fields = as_dict(part["functionCall"], "functionCall")
        name, id = read_text(fields, "name"), read_text(fields, "id")
        call, opened = self.open, None
        if call is None or (name and name != call.name) or (id and call.id and id != call.id):
            if not (fields.keys() & {"name", "id", "args", "partialArgs"}):
                return None
            self.close()
            opened = call = self._begin(name, id)
        _add(call, part, fields)
        if not fields.get("willContinue"):
            self.close()
        return opened

    def close(self) -> None:
        """Whatever call is open gets nothing more."""
        call, self.open = self.open, None
        if call is None:
            return
        args = call.args if call.partial is None else call.partial.close()
        # Some proxies give the text of the JSON instead.
        call.arguments = args if isinstance(args, str) else _json.encode({} if args is None else args).decode()
        self._on_delta("arguments", call.arguments, call.number)

    def _begin(self, name: str, id: str) -> GeminiCall:
        call = self.open = GeminiCall(self._number, id, name)
        self._number += 1
        self._on_delta("call", name, call.number)
        return call


def _add(call: GeminiCall, part: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    call.id = call.id or read_text(fields, "id")
    if (args := fields.get("args")) is not None:
        call.args = args
    if pieces := fields.get("partialArgs"):
        if call.partial is None:
            call.partial = PartialArguments(call.args if is_dict(call.args) else {})
        call.partial.feed(pieces)
    for name, value in part.items():
        if name != "functionCall" and value is not None:
            call.fields[name] = value
    unknown = {name: value for name, value in fields.items() if name not in _KNOWN and value is not None}
    if unknown:
        call.fields["functionCall"] = {**call.fields.get("functionCall", {}), **unknown}
