"""Puts the chunks of a Chat Completions answer together, whatever dialect its server speaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnstate_states.content import Part, Reasoning, Refusal, Text
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Usage
from turnstate_states.turn import Stop

from ..base import OnDelta, Reply
from ..openai.usage import read_usage
from ..wire.errors import stream_error
from ..wire.json_values import as_dict, as_list, is_dict, is_list, misfit
from ..wire.redaction import foreign
from . import PROTOCOL
from .calls import CallSlots
from .parts import Pieces, add_details

__all__ = ["ChatAssembler"]

_STOPS: dict[str, Stop] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "tool_use": "tool-calls",
    "content_filter": "content-filter",
    "safety": "content-filter",
    "refusal": "refusal",
}
_METADATA = ("id", "provider", "service_tier", "system_fingerprint", "citations", "search_results")


class ChatAssembler:
    """Takes decoded chunks, tells their pieces to ``on_delta`` and makes the reply.

    ``finish`` is the finish reason, empty until it has come; ``closing_usage`` whether usage came with it, after it, or
    in a chunk without choices; ``chosen`` whether there was a choice.
    """

    def __init__(self, model: str, on_delta: OnDelta, origin: str) -> None:
        self.finish = ""
        self.closing_usage = False
        self.chosen = False
        self._origin = origin
        self._asked = model
        self._model = ""
        self._pieces = Pieces(on_delta)
        self._calls = CallSlots(on_delta)
        self._details: list[dict[str, Any]] = []
        self._annotations: list[Any] = []
        self._metadata: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None

    def expect_surrogates(self) -> None:
        """From now on the texts may hold lone surrogates."""
        self._pieces.wide = self._calls.wide = True

    def text_only(self, chunk: Any) -> bool:
        """The short way for what nearly every chunk is, one piece of text; False if the chunk is anything else."""
        try:
            choices = chunk["choices"]
            choice = choices[0]
            delta = choice["delta"]
            text = delta["content"]
            if (
                type(text) is not str
                or len(choices) != 1
                or choice.get("finish_reason") is not None
                or choice["index"] != 0
                or (len(delta) != 1 and (len(delta) != 2 or "role" not in delta))
                or chunk.get("usage") is not None
                or "error" in chunk
                or "error" in choice
                or not self._model
            ):
                return False
        except (KeyError, IndexError, TypeError, AttributeError):
            return False
        if text:
            self._pieces.add("text", text)
        return True

    def chunk(self, chunk: object, *, whole: bool = False) -> None:
        """Take any chunk, or (``whole``) the document of an answer that was not streamed.

        Raises:
            ModelError: it tells an error or does not make sense.
        """
        fields = as_dict(chunk, "a chunk")
        if fields.get("error") or fields.get("object") == "error":
            raise stream_error(fields)
        self._describe(fields)
        choices = as_list(fields.get("choices") or [], "choices")
        for choice in choices:
            self._choice(as_dict(choice, "a choice"), whole)
        usage = fields.get("usage")
        if not usage and is_dict(vendor := fields.get("x_groq")):
            usage = vendor.get("usage")
        if is_dict(usage) and usage:
            self._usage = usage
            self.closing_usage = bool(self.finish) or not choices

    def finished_silently(self) -> bool:
        """Whether a server that gives no finish reason has told that it is done: by usage in a chunk without choices.

        Calls are not trusted without a reason: nothing else says that the last one is whole.
        """
        return self.closing_usage and not self._calls

    @property
    def usage(self) -> Usage:
        """What the server has told of usage so far."""
        return read_usage(self._usage)

    def reply(self) -> Reply:
        """The reply, once the answer is known to be complete.

        Raises:
            ModelError: it stopped for a tool call but holds none.
        """
        calls = self._calls.close()
        parts = [*self._said(), *calls]
        stop = _STOPS.get(self.finish.lower(), "other") if self.finish else "stop"
        if any(isinstance(part, Refusal) for part in parts) and stop != "content-filter":
            stop = "refusal"
        elif calls and stop == "stop":
            stop = "tool-calls"
        elif stop == "tool-calls" and not calls:
            raise ModelError("the model stopped for a tool call but made none", kind="protocol", retryable=True)
        if self._annotations:
            self._metadata["annotations"] = self._annotations
        usage = self.usage
        return Reply(tuple(parts), stop, self.finish, usage, self._model or self._asked, self._metadata)

    def _describe(self, fields: Mapping[str, Any]) -> None:
        model = fields.get("model")
        if not self._model:
            self._model = model if isinstance(model, str) and model else self._asked
        for name in _METADATA:
            if fields.get(name):
                self._metadata[name] = fields[name]

    def _choice(self, fields: Mapping[str, Any], whole: bool) -> None:
        if fields.get("index") not in (0, None):
            return
        self.chosen = True
        if fields.get("error"):
            raise stream_error(fields)
        delta = fields.get("delta", fields.get("message"))
        if delta is not None:
            self._delta(as_dict(delta, "delta"), whole)
        reason = fields.get("finish_reason")
        if reason is not None and not isinstance(reason, str):
            raise misfit("finish_reason", reason)
        if reason:
            self._stopped(reason)

    def _delta(self, delta: Mapping[str, Any], whole: bool) -> None:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if details := delta.get("reasoning_details"):
            told = add_details(self._details, details)
            thought = thought or told
        self._say("reasoning", thought, "reasoning")
        content = delta.get("content")
        if is_list(content):
            self._blocks(content)
        else:
            self._say("text", content, "content")
        self._say("refusal", delta.get("refusal"), "refusal")
        if calls := delta.get("tool_calls"):
            self._calls.feed(calls, whole=whole)
        if call := delta.get("function_call"):
            self._calls.feed([{"function": call}])
        if annotations := delta.get("annotations"):
            self._annotations += as_list(annotations, "annotations")

    def _blocks(self, blocks: list[Any]) -> None:
        """Content as a list of typed blocks, which Mistral's reasoning models send; unknown types are skipped."""
        for block in blocks:
            fields = as_dict(block, "a block of content")
            match fields.get("type"):
                case "text":
                    self._say("text", fields.get("text"), "text")
                case "refusal":
                    self._say("refusal", fields.get("refusal"), "refusal")
                case "thinking":
                    self._thoughts(fields.get("thinking"))
                case _:
                    pass

    def _thoughts(self, thinking: object) -> None:
        if is_list(thinking):
            for piece in thinking:
                self._say("reasoning", as_dict(piece, "thinking").get("text"), "thinking")
        else:
            self._say("reasoning", thinking, "thinking")

    def _say(self, kind: str, text: object, field: str) -> None:
        if text is None or text == "":
            return
        if not isinstance(text, str):
            raise misfit(field, text)
        self._pieces.add(kind, text)

    def _stopped(self, reason: str) -> None:
        word = reason.lower()
        if word == "error":
            raise ModelError("the server broke the answer off with an error", kind="server", retryable=True)
        if word == "insufficient_system_resource":
            raise ModelError("the server has too little capacity now", kind="overloaded", retryable=True)
        if "malformed" in word:
            raise ModelError(
                f"the model's tool call was malformed ({foreign(reason, 80)})", kind="protocol", retryable=True
            )
        self.finish = self.finish or reason

    def _said(self) -> list[Part]:
        provider: dict[str, Any] = {}
        if self._details:
            provider = {PROTOCOL: {"origin": self._origin, "reasoning_details": self._details}}
        parts: list[Part] = []
        for kind, text in self._pieces.runs():
            if kind == "reasoning":
                parts.append(Reasoning(text, provider=provider))
                provider = {}
            else:
                parts.append(Refusal(text) if kind == "refusal" else Text(text))
        if provider:
            parts.insert(0, Reasoning("", provider=provider))
        return parts
