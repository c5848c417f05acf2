"""Answers written by hand after the four protocols, whole, in pieces and cut at every byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.models.decoding import Delta, decoded
from tests.models.recordings import ways
from turnstate.models.anthropic.decode import MessageDecoder
from turnstate.models.base import OnDelta, Reply
from turnstate.models.gemini.decode import GeminiDecoder
from turnstate.models.gemini.errors import response_error as gemini_error
from turnstate.models.openai_chat.decode import ChatDecoder
from turnstate.models.openai_responses.decode import ResponsesDecoder
from turnstate.models.wire.errors import response_error
from turnstate.models.wire.http_model import Decoder
from turnstate_states.content import Reasoning, Refusal, Text, ToolCall
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Usage

FOLDER = Path(__file__).with_name("handmade")
DECODERS: Mapping[str, Callable[[OnDelta], Decoder]] = {
    "openai_chat": partial(ChatDecoder, "asked"),
    "openai_responses": partial(ResponsesDecoder, "asked"),
    "anthropic_messages": partial(MessageDecoder, "asked"),
    "gemini": partial(GeminiDecoder, "asked"),
}
NAMES = {
    *("text.sse", "reasoning.sse", "calls.sse", "error.sse", "cut.sse"),
    *("limit.body", "whole.body"),
}


def about(file: Path) -> dict[str, Any]:
    """What the adapter must make of an answer."""
    found: dict[str, Any] = json.loads(file.with_suffix(".json").read_bytes())
    return found


FILES = sorted(file for protocol in DECODERS for name in NAMES for file in [FOLDER / protocol / name])
REPLIES = [file for file in FILES if "error" not in about(file)]
FAILURES = [file for file in FILES if "error" in about(file) and file.suffix == ".sse"]
STATUSES = [file for file in FILES if "status" in about(file).get("error", {})]


def each(files: list[Path]) -> pytest.MarkDecorator:
    """Runs a test once for each file."""
    return pytest.mark.parametrize("file", files, ids=lambda file: f"{file.parent.name}-{file.stem}")


def decode(file: Path, pieces: list[bytes]) -> tuple[Reply, list[Delta]]:
    return decoded(DECODERS[file.parent.name], pieces)


def outcome(file: Path, data: bytes) -> Reply | ModelError:
    """The reply, or the error, that these bytes of an answer are."""
    try:
        return decode(file, [data])[0]
    except ModelError as error:
        return error


def seen(reply: Reply) -> dict[str, Any]:
    """A reply in the form of the files."""

    def joined(kind: type[Text | Refusal | Reasoning]) -> str:
        return "".join(part.text for part in reply.parts if isinstance(part, kind))

    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    return {
        **{"text": joined(Text), "refusal": joined(Refusal), "reasoning": joined(Reasoning)},
        "calls": [[call.provider_id, call.name, call.arguments] for call in calls],
        **{"stop": reply.stop, "raw_stop": reply.raw_stop, "usage": reply.usage},
    }


def told(deltas: list[Delta], kind: str, slot: int = 0) -> str:
    """The pieces of a kind, joined."""
    return "".join(text for what, text, of in deltas if (what, of) == (kind, slot))


def all_ways(data: bytes) -> list[list[bytes]]:
    """A body whole, in lines, cut in two at every offset and byte by byte, and byte by byte with the other line ends."""
    plain = data.replace(b"\r\n", b"\n")
    other = plain if plain != data else data.replace(b"\n", b"\r\n")
    return [*ways(data, spread=len(data)), [bytes([byte]) for byte in other]]


def test_every_protocol_has_every_answer() -> None:
    """No file is missing, and none lies there that no test reads."""
    there = {file for file in FOLDER.glob("*/*") if file.suffix != ".json"}
    assert there == set(FILES)
    assert len(REPLIES) + len(FAILURES) + len(STATUSES) == len(FILES) == 28


@each(REPLIES)
def test_replies(file: Path) -> None:
    """However its bytes are cut into pieces, an answer is the same reply, and the deltas add up to it."""
    data, wanted = file.read_bytes(), about(file)
    wanted.pop("ends", None)
    wanted["usage"] = Usage(**wanted["usage"])
    for pieces in all_ways(data):
        reply, deltas = decode(file, pieces)
        assert seen(reply) == wanted
        assert (told(deltas, "text"), told(deltas, "reasoning")) == (wanted["text"], wanted["reasoning"])
        for slot, (_, name, arguments) in enumerate(wanted["calls"]):
            assert (told(deltas, "call", slot), told(deltas, "arguments", slot)) == (name, arguments)


@each(REPLIES)
def test_cut_replies(file: Path) -> None:
    """Case 8: cut before any byte, an answer is a retryable ``cut``, or, once its end has come, the whole reply."""
    data, wanted = file.read_bytes(), about(file)
    earliest = data.index(wanted["ends"].encode()) if "ends" in wanted else len(data.rstrip()) - 1
    whole, _ = decode(file, [data])
    for place in range(len(data)):
        found = outcome(file, data[:place])
        if isinstance(found, ModelError):
            assert (found.kind, found.retryable) == ("cut", True), data[:place]
        else:
            assert place > earliest, data[:place]
            assert (found.parts, found.stop) == (whole.parts, whole.stop)


@each(FAILURES)
def test_failures(file: Path) -> None:
    """However its bytes are cut into pieces, an answer that fails is the same error."""
    wanted = about(file)["error"]
    for pieces in all_ways(file.read_bytes()):
        with pytest.raises(ModelError) as caught:
            decode(file, pieces)
        assert (caught.value.kind, caught.value.retryable) == (wanted["kind"], wanted["retryable"])
        assert wanted["text"] in str(caught.value)


@each(FAILURES)
def test_cut_failures(file: Path) -> None:
    """Cut before any byte, an answer that fails is that error or a retryable ``cut``, never a reply."""
    data, kind = file.read_bytes(), about(file)["error"]["kind"]
    for place in range(len(data)):
        with pytest.raises(ModelError) as caught:
            decode(file, [data[:place]])
        assert caught.value.kind in ("cut", kind)
        assert caught.value.retryable


@each(STATUSES)
def test_statuses(file: Path) -> None:
    """The body of a status that is no success is a typed error; cut before any byte, it still has its kind and status."""
    data, wanted = file.read_bytes(), about(file)["error"]
    read = gemini_error if file.parent.name == "gemini" else response_error
    error = read(wanted["status"], {}, data, "http://server/v1")
    assert (error.kind, error.retryable, error.status) == (wanted["kind"], wanted["retryable"], wanted["status"])
    assert error.retry_after == wanted.get("retry_after")
    assert wanted["text"] in str(error)
    for place in range(len(data)):
        error = read(wanted["status"], {}, data[:place], "http://server/v1")
        assert (error.kind, error.retryable, error.status) == (wanted["kind"], wanted["retryable"], wanted["status"])
