"""Puts the events of an Anthropic Messages answer together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnstate_states.content import ToolCall, clean_text
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Usage
from turnstate_states.turn import Stop

from ..base import DeltaKind, OnDelta, Reply
from ..wire.errors import stream_error
from ..wire.json_values import as_dict, as_list, is_dict, mend, misfit
from ..wire.redaction import foreign
from .parts import BULK, Block, as_text, family_of, part_of
from .usage import read_usage

__all__ = ["MessageAssembler"]

_STOPS: dict[str, Stop] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-calls",
    "pause_turn": "pause",
    "compaction": "pause",
    "refusal": "refusal",
}
_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("input", "partial_json"),
}
_FIELDS = {"signature_delta": "thinking", "citations_delta": "text", "compaction_delta": "compaction"}
_TOLD: dict[str, DeltaKind] = {"text": "text", "thinking": "reasoning", "tool_use": "arguments"}
_METADATA = ("id", "stop_sequence", "stop_details", "container", "context_management")


class MessageAssembler:
    """Takes decoded events, tells their pieces to ``on_delta`` and makes the reply.

    ``done`` is true once the answer is complete. Set ``wide`` when the texts may hold lone surrogates.
    """

    def __init__(self, model: str, on_delta: OnDelta) -> None:
        self.done = False
        self.wide = False
        self._asked = model
        self._on_delta = on_delta
        self._model = ""
        self._raw_stop = ""
        self._blocks: list[Block] = []
        self._by_index: dict[int, Block] = {}
        self._calls = 0
        self._usage: dict[str, Any] = {}
        self._metadata: dict[str, Any] = {}

    def event(self, name: str, data: object) -> None:
        """Take an event; ``name`` counts where the data does not tell its type.

        Raises:
            ModelError: it is an error, or does not make sense.
        """
        fields = as_dict(data, "an event")
        match fields.get("type") or name:
            case "content_block_delta":
                self._delta(fields)
            case "content_block_start":
                block = self._open(as_dict(fields.get("content_block"), "content_block"))
                index = _index(fields)
                self._by_index[len(self._blocks) - 1 if index is None else index] = block
            case "content_block_stop":
                if (known := self._find(fields)) is not None:
                    self._close(known)
            case "message_start":
                # A second one, which some servers and proxies send, only tells usage again.
                self._describe(as_dict(fields.get("message") or {}, "message"))
            case "message_delta":
                self._describe({**fields, **as_dict(fields.get("delta") or {}, "delta")})
            case "message_stop":
                self.done = True
            case "error":
                raise stream_error(fields)
            case _:
                if is_dict(fields.get("error")):
                    raise stream_error(fields)

    def piece_only(self, data: Any) -> bool:
        """The short way for what nearly every event is, one more piece of a block; False if it is anything else."""
        try:
            delta = data["delta"]
            bulk, name = _DELTAS[delta["type"]]
            text = delta[name]
            block = self._by_index[data["index"]]
            if BULK[block.kind] != bulk or type(text) is not str or not text or self.wide:
                return False
            block.pieces[bulk].append(text)
        except (KeyError, TypeError):
            return False
        self._on_delta(_TOLD[block.kind], text, block.slot)
        return True

    def document(self, message: Mapping[str, Any]) -> None:
        """Take a whole answer that was not streamed."""
        if message.get("type") == "error" or message.get("error"):
            raise stream_error(message)
        content = message.get("content")
        if content is None:
            raise ModelError("the answer holds no content", kind="protocol")
        self._describe(message)
        for block in as_list(content, "content"):
            self._close(self._open(as_dict(block, "a block of content"), whole=True))
        self.done = True

    @property
    def usage(self) -> Usage:
        """What the server has told of usage so far."""
        return read_usage(self._usage)

    def reply(self) -> Reply:
        """The reply, once the answer is complete.

        Raises:
            ModelError: it stopped for a tool call but holds none.
        """
        for block in self._blocks:
            self._close(block)
        family = family_of(self._asked)
        parts = tuple(part_of(block, family) for block in self._blocks)
        calls = any(isinstance(part, ToolCall) for part in parts)
        stop = _STOPS.get(self._raw_stop, "other") if self._raw_stop else "stop"
        if calls and stop == "stop":
            stop = "tool-calls"
        elif stop == "tool-calls" and not calls:
            raise ModelError("the model stopped for a tool call but made none", kind="protocol", retryable=True)
        if self._usage:
            self._metadata["usage"] = self._usage
        usage = self.usage
        return Reply(parts, stop, self._raw_stop, usage, self._model or self._asked, self._metadata)

    def _describe(self, fields: Mapping[str, Any]) -> None:
        model, reason = fields.get("model"), fields.get("stop_reason")
        if isinstance(model, str) and model:
            self._model = clean_text(model)
        if reason is not None and not isinstance(reason, str):
            raise misfit("stop_reason", reason)
        self._raw_stop = clean_text(reason or "") or self._raw_stop
        for name in _METADATA:
            if fields.get(name):
                self._metadata[name] = fields[name]
        if is_dict(usage := fields.get("usage")):
            # Each count is a total so far: the last one is right, and what is left out has not changed.
            self._usage.update((name, value) for name, value in usage.items() if value is not None)

    def _open(self, fields: dict[str, Any], *, whole: bool = False) -> Block:
        kind = fields.get("type")
        if not isinstance(kind, str):
            raise misfit("the type of a block", kind)
        block = Block(kind, dict(fields), self._calls if kind == "tool_use" else 0)
        self._blocks.append(block)
        if kind == "tool_use":
            self._calls += 1
            name = fields.get("name")
            self._on_delta("call", clean_text(name) if isinstance(name, str) else "", block.slot)
            given = fields.get("input")
            if is_dict(given) and (given or whole):
                block.fields["input"] = as_text(given)
            else:
                block.fields["input"] = given if isinstance(given, str) else ""
        elif kind in BULK:
            block.pieces[kind] = []
            self._say(block, kind, fields.get(kind))
        return block

    def _find(self, fields: Mapping[str, Any]) -> Block | None:
        index = _index(fields)
        if index is None:
            return self._blocks[-1] if self._blocks else None
        return self._by_index.get(index)

    def _delta(self, fields: Mapping[str, Any]) -> None:
        delta = as_dict(fields.get("delta"), "delta")
        kind = delta.get("type")
        if not isinstance(kind, str) or not (kind in _DELTAS or kind in _FIELDS):
            return
        block = self._find(fields)
        if block is None:
            if kind not in ("text_delta", "thinking_delta"):
                raise ModelError(
                    f"the server sent {kind} for a block that it never opened", kind="protocol", retryable=True
                )
            block = self._open({"type": _DELTAS[kind][0]})
            self._by_index[_index(fields) or 0] = block
        if kind in _FIELDS:
            self._set(block, kind, delta)
            return
        bulk, name = _DELTAS[kind]
        if BULK.get(block.kind, bulk) != bulk or block.kind == "redacted_thinking":
            raise _wrong(kind, block)
        self._say(block, bulk, delta.get(name))

    def _set(self, block: Block, kind: str, delta: Mapping[str, Any]) -> None:
        if block.kind != _FIELDS[kind] and (block.kind in BULK or block.kind == "redacted_thinking"):
            raise _wrong(kind, block)
        match kind:
            case "signature_delta":
                signature = delta.get("signature")
                if not isinstance(signature, str):
                    raise misfit("signature", signature)
                block.fields["signature"] = signature
            case "citations_delta":
                known = block.fields.get("citations")
                block.fields["citations"] = [*as_list(known or [], "citations"), delta.get("citation")]
            case _:
                block.fields.update((name, value) for name, value in delta.items() if name != "type")

    def _say(self, block: Block, bulk: str, text: object) -> None:
        if text is None or text == "":
            return
        if not isinstance(text, str):
            raise misfit(bulk, text)
        if self.wide:
            text, block.held = mend(block.held + text)
        if text:
            block.pieces.setdefault(bulk, []).append(text)
            if block.kind in _TOLD:
                self._on_delta(_TOLD[block.kind], text, block.slot)

    def _close(self, block: Block) -> None:
        if block.held:
            held, block.held = "\ufffd", ""
            bulk = next(reversed(block.pieces), BULK.get(block.kind, "text"))
            self._say(block, bulk, held)
        if block.kind == "tool_use" and not block.closed and not block.pieces:
            # Some servers send the whole input where the block is opened.
            self._say(block, "input", block.fields["input"])
        block.closed = True


def _index(fields: Mapping[str, Any]) -> int | None:
    index = fields.get("index")
    if index is None:
        return None
    if not isinstance(index, int) or isinstance(index, bool):
        raise misfit("index", index)
    return index


def _wrong(kind: str, block: Block) -> ModelError:
    return ModelError(
        f"the server sent {kind} for a block of type {foreign(block.kind, 40)}", kind="protocol", retryable=True
    )
