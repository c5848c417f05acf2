"""Recorded Responses answers of real servers, whole and cut, against what the provider's own SDK made of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.models.decoding import Delta, decoded
from tests.models.recordings import answers, beginnings, events_of, load, streams, ways
from turnstate.models.base import ModelRequest, Reply
from turnstate.models.openai_responses import PROTOCOL
from turnstate.models.openai_responses.decode import ResponsesDecoder
from turnstate.models.openai_responses.encode import ResponsesEncoder
from turnstate.models.openai_responses.usage import read_usage
from turnstate.models.wire.errors import response_error
from turnstate_states.content import Hosted, Reasoning, Refusal, Text, ToolCall
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Message

FILES = answers("openai_responses")

pytestmark = pytest.mark.recordings

DIFFERENT_ERRORS: dict[str, tuple[str, str]] = {
    # Its first and last events lack their last brace: no client can read it.
    "ai__parallel-tool-call-wrapper.1": ("protocol", "an event of the answer is not JSON"),
    # The SDK looks only at the status and the server's text is lost.
    "ruby_llm__chat_error_handling_with_xai_grok-4-1-fast-non-reasoning_raises_approp__0": (
        "invalid-request",
        "Incorrect API key provided",
    ),
    # The SDK has one class for everything that comes inside a stream.
    "ai__openai-error.1": ("rate-limit", "You exceeded your current quota"),
}
"""Kind and start of the text where ours differs on purpose from the SDK's exception."""

SHOWN = {
    # Somebody shortened its deltas and not its whole texts; what was shown cannot be taken back.
    "ai__openai-shell-container.1": "The command ran successfully.",
}
"""What is shown piece by piece where that is not the text."""

KINDS = {
    "NotFoundError": {"not-found"},
    "AuthenticationError": {"authentication"},
    "BadRequestError": {"invalid-request", "context-overflow", "not-found", "authentication"},
}
"""The kinds that an exception of the SDK may be with us."""


@cache
def expected(file: Path) -> dict[str, Any]:
    return load(file, "expected.json")


REPLIES = [file for file in streams("openai_responses") if not expected(file).get("error")]
"""The streams that hold a reply."""


def decode(pieces: list[bytes]) -> tuple[Reply, list[Delta]]:
    return decoded(lambda on_delta: ResponsesDecoder("asked", on_delta, "http://server"), pieces)


def types(reply: Reply) -> list[str]:
    """The types of the items that the parts came from."""
    found: list[str] = []
    for part in reply.parts:
        kept: dict[str, Any] = getattr(part, "provider", {})[PROTOCOL]
        if isinstance(part, (Text, Refusal)):
            if "item" in kept:
                found.append("message")
        else:
            found.append(part.kind if isinstance(part, Hosted) else kept["item"]["type"])
    return found


def check(file: Path, pieces: list[bytes]) -> None:
    reply, deltas = decode(pieces)
    wanted = expected(file)
    thoughts = [part for part in reply.parts if isinstance(part, Reasoning)]
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    assert reply.text == wanted["text"] + wanted["refusal"]
    assert [part.text for part in thoughts] == [
        "\n\n".join(one["summary"] + one["content"]) for one in wanted["reasoning"]
    ]
    assert [len(part.provider[PROTOCOL]["item"].get("encrypted_content") or "") for part in thoughts] == [
        one["encrypted_len"] for one in wanted["reasoning"]
    ]
    assert [(call.provider_id, call.name, call.arguments) for call in calls] == [
        (call["id"], call["name"], call["arguments"]) for call in wanted["tool_calls"]
    ]
    assert types(reply) == wanted["output_types"]
    assert (reply.raw_stop, reply.stop) == (wanted["status"], "tool-calls" if calls else "stop")
    assert reply.usage == read_usage(wanted["usage"])
    assert reply.metadata["id"] == wanted["id"]
    told = "".join(text for kind, text, _ in deltas if kind == "text")
    assert told == SHOWN.get(file.stem, reply.text)
    assert "".join(text for kind, text, _ in deltas if kind == "reasoning") == "".join(part.text for part in thoughts)
    for slot, call in enumerate(calls):
        assert ("call", call.name, slot) in deltas
        assert "".join(text for kind, text, of in deltas if (kind, of) == ("arguments", slot)) == call.arguments


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_answers(file: Path) -> None:
    """Whole, in events and cut at a spread of bytes, an answer gives the SDK's value or fails as the SDK did."""
    data, about = file.read_bytes(), load(file, "json")
    error: dict[str, str] = expected(file).get("error") or {}
    if about["status"] != 200:
        found = response_error(about["status"], {}, data, "http://server/v1")
        kind, text = DIFFERENT_ERRORS.get(file.stem, ("", ""))
        assert found.kind in ({kind} if kind else KINDS[error["type"]])
        assert (text or error["message"].partition(" - ")[2]) in str(found)
        return
    for pieces in [*ways(data, spread=40), [event + b"\n\n" for event in events_of(file)]]:
        if error:
            with pytest.raises(ModelError) as caught:
                decode(pieces)
            kind, text = DIFFERENT_ERRORS[file.stem]
            assert (caught.value.kind, str(caught.value).startswith(text)) == (kind, True)
        else:
            check(file, pieces)


@pytest.mark.parametrize("file", streams("openai_responses"), ids=lambda file: file.stem)
def test_cut_answers(file: Path) -> None:
    """Case 8: an answer that is cut before the event that ends it is never complete, wherever the cut is."""
    events = events_of(file)
    last = next((n for n, event in enumerate(events) if b'"response.completed"' in event), len(events) - 2)
    step = max(1, last // 60)
    for beginning in beginnings(events, [*range(0, last, step), last]):
        with pytest.raises(ModelError):
            decode([beginning])


@pytest.mark.parametrize("file", REPLIES, ids=lambda file: file.stem)
def test_items_go_back_as_they_came(file: Path) -> None:
    """A recorded reply, sent back to its server, is the output of its last event, item by item."""
    data = file.read_bytes()
    last = next(line for line in data.splitlines() if line.startswith(b"data:") and b'"response.completed"' in line)
    output: list[dict[str, Any]] = json.loads(last[5:])["response"]["output"]
    parts = [
        attrs.evolve(part, id=f"m1.{n}") if isinstance(part, ToolCall) else part
        for n, part in enumerate(decode([data])[0].parts)
    ]
    message = Message("m1", None, "t1", "assistant", tuple(parts), 0.0)
    encoder = ResponsesEncoder("m", settings={"store": True}, extra_body={}, origin="http://server")
    sent = json.loads(encoder.encode(ModelRequest("s", "a", "", (message,))))["input"]
    wanted = [{name: value for name, value in item.items() if value is not None} for item in output]
    # What waits for a result that only this program's user could give is refused without one, so it is left out.
    waiting = {"apply_patch_call", "local_shell_call", "tool_search_call"}
    wanted = [item for item in wanted if item["type"] not in waiting or not item.get("call_id")]
    while wanted and wanted[-1]["type"] == "reasoning":
        wanted.pop()
    assert sent == (wanted or [{"role": "assistant", "content": "(empty)"}])
