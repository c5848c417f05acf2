"""``turnstate decode``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from turnstate_states.content import Reasoning, Refusal, Text, ToolCall, clean_text
from turnstate_states.errors import InvalidInput, ModelError

from .streams import Console
from .text import visible

if TYPE_CHECKING:
    from ..models.base import DeltaKind, OnDelta, Reply
    from ..models.wire.http_model import Decoder

__all__ = ["PROTOCOLS", "decode"]

PIECE = 65536


def decode(arguments: argparse.Namespace, console: Console) -> int:
    """Print what each recorded body says, as one JSON object a line; 1 if one of them is an error."""
    make = PROTOCOLS[arguments.protocol]
    # What cannot be read is told before anything is printed.
    bodies = [console.stdin.buffer.read() if file == "-" else _read(file) for file in arguments.files]
    failed = False
    for body in bodies:
        found = _decoded(make, body)
        failed = failed or found["error"] is not None
        console.out.line(visible(msgspec.json.encode(found).decode()))
    return int(failed)


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except ValueError as error:
        raise InvalidInput(f"{file!r} is no name of a file: {error}") from error


def _decoded(make: Callable[[OnDelta], Decoder], body: bytes) -> dict[str, Any]:
    partial = _Partial()
    decoder = make(partial.add)
    try:
        for start in range(0, len(body), PIECE):
            if decoder.feed(body[start : start + PIECE]):
                break
        decoder.end()
        return _shown(decoder.reply())
    except ModelError as error:
        told = {"kind": error.kind, "retryable": error.retryable, "message": clean_text(str(error))}
        return partial.shown() | {"error": told}


class _Partial:
    """What came before an error."""

    def __init__(self) -> None:
        self._said: dict[str, list[str]] = {"text": [], "reasoning": []}
        self._calls: dict[int, tuple[str, list[str]]] = {}

    def add(self, kind: DeltaKind, text: str, slot: int) -> None:
        """Take a piece."""
        if kind == "call":
            self._calls[slot] = (text, [])
        elif kind != "arguments":
            self._said[kind].append(text)
        elif slot in self._calls:
            self._calls[slot][1].append(text)

    def shown(self) -> dict[str, Any]:
        """It in the form of a reply."""
        calls = [{"name": name, "arguments": "".join(pieces)} for name, pieces in self._calls.values()]
        text, reasoning = ("".join(pieces) for pieces in self._said.values())
        nothing = {"stop": "", "raw_stop": "", "usage": None}
        return {"text": text, "refusal": "", "reasoning": reasoning, "calls": calls, **nothing}


def _shown(reply: Reply) -> dict[str, Any]:
    def joined(kind: type[Text | Refusal | Reasoning]) -> str:
        return "".join(part.text for part in reply.parts if isinstance(part, kind))

    return {
        "text": joined(Text),
        "refusal": joined(Refusal),
        "reasoning": joined(Reasoning),
        "calls": [
            {"name": part.name, "arguments": part.arguments} for part in reply.parts if isinstance(part, ToolCall)
        ],
        "stop": reply.stop,
        "raw_stop": reply.raw_stop,
        "usage": attrs.asdict(reply.usage),
        "error": None,
    }


def _chat(on_delta: OnDelta) -> Decoder:
    from ..models.openai_chat.decode import ChatDecoder

    return ChatDecoder("", on_delta)


def _responses(on_delta: OnDelta) -> Decoder:
    from ..models.openai_responses.decode import ResponsesDecoder

    return ResponsesDecoder("", on_delta)


def _messages(on_delta: OnDelta) -> Decoder:
    from ..models.anthropic.decode import MessageDecoder

    return MessageDecoder("", on_delta)


def _gemini(on_delta: OnDelta) -> Decoder:
    from ..models.gemini.decode import GeminiDecoder

    return GeminiDecoder("", on_delta)


PROTOCOLS: dict[str, Callable[[OnDelta], Decoder]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}
"""For each protocol how its decoder is made."""
