"""Recorded answers of real servers, whole and cut, against what the provider's own SDK made of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.models.decoding import Delta, decoded
from tests.models.recordings import answers, beginnings, events_of, load, streams, ways
from turnstate.models.base import Reply
from turnstate.models.openai.usage import read_usage
from turnstate.models.openai_chat import PROTOCOL
from turnstate.models.openai_chat.decode import ChatDecoder
from turnstate.models.wire.errors import response_error
from turnstate_states.content import Reasoning, Refusal, Text, ToolCall
from turnstate_states.errors import ModelError

FILES = answers("openai_chat")

pytestmark = pytest.mark.recordings

DIFFERENT: dict[str, dict[str, Any]] = {
    # The SDK cannot join content that is a list of blocks.
    "ai__mistral-reasoning": {
        "text": "2 + 2 = 4",
        "reasoning": "The user is asking for 2+2. This is basic arithmetic. 2+2=4.",
        "finish": "stop",
        "usage": {"prompt_tokens": 10, "completion_tokens": 46},
    },
    # The SDK cannot join annotations without an index.
    "pydantic-ai__test_openrouter_web_search_annotations_stream__0": {
        "text": None,
        "finish": "stop",
        "usage": None,
    },
    # The SDK doubles the fields of reasoning details that are not text, and does not take reasoning from them.
    "pydantic-ai__test_snowflake_thinking_streaming__0": {"reasoning": "15 * 27 = 405", "details": None},
}
"""Where ours differs on purpose from the SDK's value; None: the SDK has no value to compare with."""

KINDS = {
    "NotFoundError": {"not-found"},
    "AuthenticationError": {"authentication"},
    "BadRequestError": {"invalid-request", "context-overflow", "protocol"},
    "APIError": {"invalid-request", "protocol"},
}
"""The kinds that an exception of the SDK may be with us."""


@cache
def wanted(file: Path) -> dict[str, Any]:
    expected = load(file, "expected.json")
    if "nonstream" in expected:
        whole = expected["nonstream"]
        choice, message = whole["choices"][0], whole["choices"][0].get("message", {})
        expected = {
            "usage": whole.get("usage"),
            "choices": [{**message, "text": message.get("content"), "finish_reason": choice["finish_reason"]}],
        }
    choices: list[dict[str, Any]] = expected.get("choices") or [{}]
    choice = choices[0]
    calls: list[dict[str, Any]] = choice.get("tool_calls") or []
    found: dict[str, Any] = {
        "text": choice.get("text") or "",
        "refusal": choice.get("refusal") or "",
        "reasoning": choice.get("reasoning") or "",
        "details": choice.get("reasoning_details"),
        "calls": [(call["id"] or "", call["name"], call["arguments"]) for call in calls],
        "finish": choice.get("finish_reason") or "",
        "usage": expected.get("usage"),
    }
    found.update(DIFFERENT.get(file.stem, {}))
    return found


def decode(pieces: list[bytes]) -> tuple[Reply, list[Delta]]:
    return decoded(lambda on_delta: ChatDecoder("asked", on_delta), pieces)


def check(file: Path, pieces: list[bytes]) -> None:
    reply, deltas = decode(pieces)
    expected = wanted(file)
    thoughts = [part for part in reply.parts if isinstance(part, Reasoning)]
    details = [part.provider[PROTOCOL]["reasoning_details"] for part in thoughts if PROTOCOL in part.provider]
    found = {
        "text": "".join(part.text for part in reply.parts if isinstance(part, Text)),
        "refusal": "".join(part.text for part in reply.parts if isinstance(part, Refusal)),
        "reasoning": "".join(part.text for part in thoughts),
        "details": details[0] if details else None,
        "calls": [(part.provider_id, part.name, part.arguments) for part in reply.parts if isinstance(part, ToolCall)],
        "finish": reply.raw_stop,
    }
    assert {name: value for name, value in found.items() if expected[name] is not None} == {
        name: expected[name] for name in found if expected[name] is not None
    }
    if expected["usage"] is not None:
        assert reply.usage == read_usage(expected["usage"])
    assert "".join(text for kind, text, _ in deltas if kind == "text") == reply.text
    assert "".join(text for kind, text, _ in deltas if kind == "reasoning") == found["reasoning"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_answers(file: Path) -> None:
    """Whole, in events and cut at a spread of bytes, an answer gives the SDK's value or fails as the SDK did."""
    data, about, expected = file.read_bytes(), load(file, "json"), load(file, "expected.json")
    for pieces in ways(data):
        if about["status"] != 200:
            error = response_error(about["status"], {}, data, "http://server/v1")
            assert error.kind in KINDS[expected["error"]["type"]]
            assert error.status == about["status"]
        elif expected.get("error") and file.stem not in DIFFERENT:
            with pytest.raises(ModelError) as caught:
                decode(pieces)
            assert caught.value.kind in KINDS[expected["error"]["type"]]
            assert str(caught.value) == expected["error"]["message"]
        else:
            check(file, pieces)


@pytest.mark.parametrize("file", streams("openai_chat"), ids=lambda file: file.stem)
def test_cut_answers(file: Path) -> None:
    """Case 8: an answer that is cut before its finish reason is never complete, wherever the cut is."""
    events = events_of(file)
    last = next((n for n, event in enumerate(events) if b'"finish_reason":"' in event), len(events) - 3)
    for beginning in beginnings(events, range(last)):
        with pytest.raises(ModelError):
            decode([beginning])
