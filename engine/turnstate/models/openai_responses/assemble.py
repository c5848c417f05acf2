"""Puts the events of a Responses answer together: by output index, or by item id where a server leaves that out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnstate_states.content import Part, Refusal, ToolCall
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Usage
from turnstate_states.turn import Stop

from ..base import OnDelta, Reply
from ..wire.errors import stream_error
from ..wire.json_values import as_dict, as_list, is_dict, misfit, scrub
from ..wire.redaction import foreign
from .items import Growing, PieceKind
from .parts import CALLS, parts_of, text_field
from .slots import GrowingItems
from .usage import read_usage

__all__ = ["PIECES", "ResponsesAssembler"]

PIECES: Mapping[str, PieceKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "thought",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "arguments",
}
"""Events that bring a piece of a text."""

_WHOLES: Mapping[str, tuple[PieceKind, str]] = {
    "response.output_text.done": ("text", "text"),
    "response.refusal.done": ("refusal", "refusal"),
    "response.reasoning_summary_text.done": ("summary", "text"),
    "response.reasoning_text.done": ("thought", "text"),
    "response.function_call_arguments.done": ("arguments", "arguments"),
    "response.custom_tool_call_input.done": ("arguments", "input"),
}
_LAST: Mapping[str, str] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_METADATA = ("id", "service_tier", "usage")


class ResponsesAssembler:
    """Takes decoded events, tells their pieces to ``on_delta`` and makes the reply.

    ``status`` is the response's last one, empty until the event that ends it has come.
    """

    def __init__(self, model: str, on_delta: OnDelta, origin: str) -> None:
        self.status = ""
        self._reason = ""
        self._origin = origin
        self._model = model
        self._wide = False
        self._items = GrowingItems(on_delta)
        self._metadata: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None

    def expect_surrogates(self) -> None:
        """From now on the texts may hold lone surrogates."""
        self._wide = True
        self._items.expect_surrogates()

    def piece(self, kind: PieceKind, output: int | None, item_id: str | None, index: int | None, text: str) -> None:
        """The short way for what nearly every event is, one piece of a text."""
        self._items.find(kind, output, item_id or "").add(kind, index or 0, text)

    def event(self, name: str, event: object) -> None:
        """Take any event; those of an unknown type are skipped.

        Raises:
            ModelError: it tells an error or does not make sense.
        """
        fields = as_dict(event, "an event")
        kind = fields.get("type")
        word = kind if isinstance(kind, str) else name
        if word == "error" or (not word and fields.get("error")):
            raise stream_error(fields)
        if word in PIECES:
            self._piece(PIECES[word], fields)
            return
        if self._wide:
            fields = scrub(fields)
        if word in _WHOLES:
            piece, field = _WHOLES[word]
            if (text := _text(fields, field)) is not None:
                self._place(piece, fields).replace(piece, _index(fields) or 0, text)
        elif word in _LAST:
            response = fields.get("response")
            self.response({} if response is None else response, _LAST[word])
        else:
            self._rest(word, fields)

    def response(self, response: object, status: str) -> None:
        """The whole response, as an event that ends it brings it, or as a body that is not streamed.

        Raises:
            ModelError: it failed.
        """
        fields = as_dict(response, "the response")
        said = fields.get("status")
        status = said if isinstance(said, str) and said else status
        self._describe(fields)
        if fields.get("error") or status == "failed":
            raise stream_error(fields)
        if status not in ("completed", "incomplete"):
            raise ModelError(f"the server ended the answer as {foreign(status, 40)!r}", kind="server", retryable=True)
        if is_dict(details := fields.get("incomplete_details")):
            self._reason = str(details.get("reason") or "")[:80]
        output = fields.get("output")
        if items := as_list([] if output is None else output, "output"):
            self._items.settle([as_dict(item, "an output item") for item in items])
        else:
            self._items.sort()
        self.status = status

    @property
    def usage(self) -> Usage:
        """What the server has told of usage so far."""
        return read_usage(self._usage)

    def reply(self) -> Reply:
        """The reply, once the response has ended."""
        parts = self._parts()
        items = [item.whole() for item in self._items.items]
        cut = any(item.get("type") in CALLS and item.get("status") == "incomplete" for item in items)
        usage = self.usage
        raw = self._reason if self.status == "incomplete" and self._reason else self.status
        return Reply(tuple(parts), self._stop(parts, cut=cut), raw, usage, self._model, self._metadata)

    def _stop(self, parts: list[Part], *, cut: bool) -> Stop:
        if self.status == "incomplete":
            # Whatever cut it off, known or not: the calls of half a reply must not run.
            return "content-filter" if self._reason == "content_filter" else "length"
        if any(isinstance(part, Refusal) for part in parts):
            return "refusal"
        if cut:
            return "length"
        return "tool-calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"

    def _parts(self) -> list[Part]:
        """All parts in order, but calls in the order of their numbers, under which their pieces were told."""
        calls = iter(sorted((item for item in self._items.items if item.kind in CALLS), key=lambda item: item.number))
        ordered = [next(calls) if item.kind in CALLS else item for item in self._items.items]
        return [part for item in ordered for part in parts_of(item.whole(), self._origin)]

    def _describe(self, fields: Mapping[str, Any]) -> None:
        if isinstance(model := fields.get("model"), str) and model:
            self._model = model
        for name in _METADATA:
            if fields.get(name):
                self._metadata[name] = fields[name]
        if is_dict(usage := fields.get("usage")) and usage:
            self._usage = usage

    def _rest(self, word: str, fields: Mapping[str, Any]) -> None:
        match word:
            case "response.output_item.added":
                self._items.announce(as_dict(fields.get("item"), "an output item"), _number(fields, "output_index"))
            case "response.output_item.done":
                self._items.finish(as_dict(fields.get("item"), "an output item"), _number(fields, "output_index"))
            case "response.output_text.annotation.added":
                self._place("text", fields).annotate(_index(fields) or 0, fields.get("annotation"))
            case "response.content_part.done":
                self._block(fields)
            case "response.created" | "response.in_progress" | "response.queued":
                self._describe(response if is_dict(response := fields.get("response")) else {})
            case _:
                pass

    def _block(self, fields: Mapping[str, Any]) -> None:
        block = as_dict(fields.get("part"), "a part of the content")
        piece: PieceKind = "refusal" if block.get("type") == "refusal" else "text"
        if block.get("type") in ("output_text", "refusal") and (text := _text(block, text_field(block))):
            self._place(piece, fields).replace(piece, _index(fields) or 0, text)

    def _piece(self, piece: PieceKind, fields: Mapping[str, Any]) -> None:
        if text := _text(fields, "delta"):
            self._place(piece, fields).add(piece, _index(fields) or 0, text)

    def _place(self, piece: PieceKind, fields: Mapping[str, Any]) -> Growing:
        return self._items.find(piece, _number(fields, "output_index"), _text(fields, "item_id") or "")


def _index(fields: Mapping[str, Any]) -> int | None:
    index = _number(fields, "content_index")
    return _number(fields, "summary_index") if index is None else index


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise misfit(name, value)
    return value
