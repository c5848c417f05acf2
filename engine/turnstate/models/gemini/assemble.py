"""Puts the responses of a Gemini stream together: each of them is whole in itself and holds the next parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from turnstate_states.content import Audio, File, Hosted, Image, Part, Reasoning, Text
from turnstate_states.errors import ModelError, ModelErrorKind
from turnstate_states.transcript import Usage
from turnstate_states.turn import Stop

from ..base import OnDelta, Reply
from ..wire.http_errors import one_line
from ..wire.json_values import as_dict, as_list, is_dict, misfit
from . import PROTOCOL
from .calls import GeminiCall, GeminiCalls
from .citations import add_citations
from .errors import stream_error
from .usage import counts_tokens, read_usage

__all__ = ["GeminiAssembler"]

_FILTERED = (
    "SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII ESCALATION MODEL_ARMOR IMAGE_SAFETY IMAGE_RECITATION "
    "IMAGE_PROHIBITED_CONTENT IMAGE_OTHER"
)
_STOPS: dict[str, Stop] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(_FILTERED.split(), "content-filter"),
}
_FAILURES: dict[str, tuple[str, ModelErrorKind, bool]] = {
    "MALFORMED_FUNCTION_CALL": ("the model's tool call was malformed", "protocol", True),
    "UNEXPECTED_TOOL_CALL": ("the model called a tool that it was not given", "protocol", True),
    "MALFORMED_RESPONSE": ("the model's answer was malformed", "protocol", True),
    "MISSING_THOUGHT_SIGNATURE": ("a thought signature is missing in the request", "invalid-request", False),
    "PUP_LIMITED_DISABLED": ("the account is limited for a violation of the provider's policy", "permission", False),
}
"""Finish reasons that are failures: what is told, its kind, and whether another try may do better."""

_NO_REASON = ("FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED")
_EXTRAS = ("groundingMetadata", "citationMetadata", "urlContextMetadata", "finishMessage")


@attrs.define
class _Run:
    """Neighbouring texts of one kind; ``fields`` holds the other fields of its part, and then it gets nothing more."""

    thought: bool
    pieces: list[str]
    fields: dict[str, Any]


class GeminiAssembler:
    """Takes decoded responses, tells their pieces to ``on_delta`` and makes the reply.

    ``finish`` is the finish reason, empty until it has come; ``blocked`` why the prompt was; ``begun`` and ``chosen``
    whether there was a response and a candidate; ``closing_usage`` whether usage came with the end or after it;
    ``resumed`` whether content came after a finish reason: some servers tell one with every piece.
    """

    def __init__(self, model: str, on_delta: OnDelta) -> None:
        self.finish = ""
        self.blocked = ""
        self.begun = False
        self.chosen = False
        self.closing_usage = False
        self.resumed = False
        self._asked = model
        self._model = ""
        self._on_delta = on_delta
        self._items: list[_Run | GeminiCall | Part] = []
        self._calls = GeminiCalls(on_delta)
        self._usage: dict[str, Any] | None = None
        self._found: dict[str, list[Mapping[str, Any]]] = {"groundingMetadata": [], "citationMetadata": []}
        self._metadata: dict[str, Any] = {}

    def text_only(self, chunk: Any) -> bool:
        """The short way for what nearly every response is, one piece of text; False if it is anything else."""
        try:
            candidates, usage = chunk["candidates"], chunk["usageMetadata"]
            candidate = candidates[0]
            parts = candidate["content"]["parts"]
            part = parts[0]
            text = part["text"]
            thought = len(part) == 2 and part["thought"] is True
            if (
                type(text) is not str
                or not text
                or len(candidates) != 1
                or len(parts) != 1
                or len(part) != 1 + thought
                or (len(candidate) != 1 and (len(candidate) != 2 or candidate["index"] != 0))
                or type(usage) is not dict
                or "promptTokenCount" not in usage
                or "error" in chunk
                or "promptFeedback" in chunk
                or not self._model
                or self.finish
                or self.blocked
            ):
                return False
        except (KeyError, IndexError, TypeError, AttributeError):
            return False
        self._usage = usage
        self._say(text, thought, {})
        return True

    def chunk(self, chunk: object) -> None:
        """Take a response.

        Raises:
            ModelError: it tells an error or does not make sense.
        """
        fields = as_dict(chunk, "a response")
        if fields.get("error"):
            raise stream_error(fields)
        self.begun = True
        for candidate in as_list(fields.get("candidates") or [], "candidates"):
            self._candidate(as_dict(candidate, "a candidate"))
        if is_dict(feedback := fields.get("promptFeedback")):
            self._feedback(feedback)
        if is_dict(usage := fields.get("usageMetadata")) and counts_tokens(usage):
            self._usage = usage
            self.closing_usage = bool(self.finish or self.blocked)
        if isinstance(model := fields.get("modelVersion"), str) and model:
            self._model = model
        if id := fields.get("responseId"):
            self._metadata["id"] = id

    @property
    def usage(self) -> Usage:
        """What the server has told of usage so far."""
        return read_usage(self._usage)

    def reply(self) -> Reply:
        """The reply, once the answer is known to be complete.

        Raises:
            ModelError: it ended in the middle of a call though it was not cut short.
        """
        if self._calls.open is not None and self.finish == "STOP":
            raise ModelError("the model's tool call was not finished", kind="protocol", retryable=True)
        self._calls.close()
        parts = [_part(item) for item in self._items]
        parts = add_citations(parts, self._found["groundingMetadata"], self._found["citationMetadata"])
        stop = _STOPS.get(self.finish, "other") if self.finish else "content-filter"
        if stop == "stop" and any(isinstance(item, GeminiCall) for item in self._items):
            stop = "tool-calls"
        usage = self.usage
        model = self._model or self._asked
        return Reply(tuple(parts), stop, self.finish or self.blocked, usage, model, self._metadata)

    def _candidate(self, fields: Mapping[str, Any]) -> None:
        if fields.get("index") not in (0, None):
            return
        self.chosen = True
        if (content := fields.get("content")) is not None:
            for part in as_list(as_dict(content, "content").get("parts") or [], "parts"):
                self._part(as_dict(part, "a part"))
        for name in _EXTRAS:
            if value := fields.get(name):
                self._metadata[name] = value
                if name in self._found and is_dict(value):
                    self._found[name].append(value)
        reason = fields.get("finishReason")
        if reason is not None and not isinstance(reason, str):
            raise misfit("finishReason", reason)
        if reason and reason not in _NO_REASON:
            self._finished(reason.upper())

    def _finished(self, reason: str) -> None:
        if reason in _FAILURES:
            text, kind, retryable = _FAILURES[reason]
            message = self._metadata.get("finishMessage")
            more = f": {one_line(message)}" if isinstance(message, str) and message else ""
            raise ModelError(f"{text} ({reason}){more}", kind=kind, retryable=retryable)
        self.finish = reason

    def _feedback(self, feedback: Mapping[str, Any]) -> None:
        reason = feedback.get("blockReason")
        if isinstance(reason, str) and reason and reason not in _NO_REASON:
            self.blocked = reason
            self._metadata["promptFeedback"] = dict(feedback)

    def _part(self, part: Mapping[str, Any]) -> None:
        if part.get("functionCall") is not None:
            self.resumed = self.resumed or bool(self.finish)
            if (call := self._calls.feed(part)) is not None:
                self._items.append(call)
        elif (text := part.get("text")) is not None:
            if not isinstance(text, str):
                raise misfit("text", text)
            self._text(text, part)
        elif (other := _other(part)) is not None:
            self._items.append(other)

    def _text(self, text: str, part: Mapping[str, Any]) -> None:
        fields = _fields(part, "text", "thought") if len(part) > 1 else {}
        if text or fields:
            self._say(text, bool(part.get("thought")), fields)

    def _say(self, text: str, thought: bool, fields: dict[str, Any]) -> None:
        if text:
            self.resumed = self.resumed or bool(self.finish)
            self._on_delta("reasoning" if thought else "text", text, 0)
        last = self._items[-1] if self._items else None
        if isinstance(last, _Run) and last.thought == thought and not last.fields and not fields:
            last.pieces.append(text)
        else:
            self._items.append(_Run(thought, [text], fields))


def _fields(part: Mapping[str, Any], *but: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in but and value is not None}


def _part(item: _Run | GeminiCall | Part) -> Part:
    if isinstance(item, GeminiCall):
        return item.part()
    if not isinstance(item, _Run):
        return item
    text = "".join(item.pieces)
    if item.thought:
        return Reasoning(text, provider={PROTOCOL: {"thought": True, **item.fields}})
    return Text(text, provider={PROTOCOL: item.fields} if item.fields else {})


def _other(part: Mapping[str, Any]) -> Part | None:
    """A part that is neither text nor a call of ours; what is not known is kept verbatim."""
    if is_dict(data := part.get("inlineData")) and isinstance(text := data.get("data"), str):
        kind = data.get("mimeType")
        kind = kind if isinstance(kind, str) else ""
        return _media(f"data:{kind};base64,{text}", kind, part, "inlineData", ("mimeType", "data"))
    if is_dict(data := part.get("fileData")) and isinstance(url := data.get("fileUri"), str):
        kind = data.get("mimeType")
        return _media(url, kind if isinstance(kind, str) else "", part, "fileData", ("mimeType", "fileUri"))
    kept = _fields(part)
    name = next((name for name in kept if name not in ("thought", "thoughtSignature")), "")
    if not kept:
        return None
    inner = kept.get(name)
    shown = (inner.get("code") or inner.get("output")) if is_dict(inner) else None
    return Hosted(name or "part", shown if isinstance(shown, str) else "", provider={PROTOCOL: kept})


def _media(url: str, kind: str, part: Mapping[str, Any], name: str, known: tuple[str, ...]) -> Part:
    fields = _fields(part, name)
    if unknown := _fields(part[name], *known):
        fields[name] = unknown
    provider = {PROTOCOL: fields}
    if kind.startswith("image/"):
        return Image(url, kind, provider=provider)
    if kind.startswith("audio/") and name == "inlineData":
        return Audio(url, kind, provider=provider)
    shown = part[name].get("displayName")
    return File(url, shown if isinstance(shown, str) else "", kind, provider=provider)
