"""Recorded answers of Gemini, whole and cut, against what Google's own SDK made of them."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.models.decoding import Delta, decoded
from tests.models.recordings import answers, beginnings, events_of, folder, load, streams, ways
from turnstate.models.base import Reply
from turnstate.models.gemini.decode import GeminiDecoder
from turnstate.models.gemini.encode_parts import own_fields
from turnstate.models.gemini.errors import response_error
from turnstate_states.content import Hosted, Reasoning, Text, ToolCall
from turnstate_states.errors import ModelError

FILES = answers("gemini")

pytestmark = pytest.mark.recordings

# The SDK has no accumulator, so it does not join the fragments of arguments: these are what they say.
CALLS: dict[str, list[tuple[str, Any]]] = {
    "ai__google-stream-no-args-tool-call": [
        ("read_theme", {}),
        *(("read_screen", {"id": name}) for name in ("A", "B", "C")),
    ],
    "ai__google-stream-tool-call-arguments": [
        ("getWeather", {"location": "Boston"}),
        ("getWeather", {"location": "San Francisco"}),
    ],
}
"""Where ours differs on purpose from the SDK's value. Beside these: tokens of thoughts are output with us."""

KINDS = {
    "NOT_FOUND": "not-found",
    "INVALID_ARGUMENT": "invalid-request",
    "RESOURCE_EXHAUSTED": "rate-limit",
}
"""The kinds that a status of Google is with us, unless the text says that the input is too long."""


def fragments(calls: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """The SDK's fragments joined by simple means: the paths of the recordings hold names and indices only."""
    found: list[tuple[str, Any]] = []
    for call in calls:
        if call["name"]:
            found.append((call["name"], call["arguments"] or {}))
        pieces: list[dict[str, Any]] = call["partial_args"] or []
        for piece in pieces:
            holder: Any = found[-1][1]
            steps: list[Any] = [
                int(step) if step.isdigit() else step for step in re.findall(r"\w+", piece["json_path"])
            ]
            for step, after in zip(steps, [*steps[1:], None], strict=True):
                new: Any = "" if after is None else [] if isinstance(after, int) else {}
                if isinstance(step, int) and step == len(holder):
                    holder.append(new)
                elif isinstance(step, str):
                    holder.setdefault(step, new)
                if after is None:
                    holder[step] += piece["string_value"]
                holder = holder[step]
    return found


@cache
def wanted(file: Path) -> dict[str, Any]:
    expected = load(file, "expected.json")
    if "nonstream" in expected:
        whole = expected["nonstream"]
        candidate = whole["candidates"][0]
        text = "".join(part["text"] for part in candidate["content"]["parts"])
        expected.update(text=text, finish_reason=candidate["finish_reason"], usage=whole["usage_metadata"])
    usage: dict[str, Any] = expected["usage"]
    kinds: dict[str, int] = expected.get("part_kinds", {})
    return {
        "text": expected["text"],
        "reasoning": expected.get("reasoning", ""),
        "calls": CALLS.get(file.stem) or fragments(expected.get("tool_calls", [])),
        "finish": expected["finish_reason"],
        "signatures": expected.get("thought_signatures", 0),
        "hosted": sum(kinds.get(kind, 0) for kind in ("executable_code", "code_execution_result")),
        "cited": bool(expected.get("grounding_chunks")),
        "input": usage["prompt_token_count"] + usage.get("tool_use_prompt_token_count", 0),
        "output": usage["candidates_token_count"] + usage.get("thoughts_token_count", 0),
        "total": usage["total_token_count"],
    }


def decode(pieces: list[bytes]) -> tuple[Reply, list[Delta]]:
    return decoded(lambda on_delta: GeminiDecoder("asked", on_delta), pieces)


def check(file: Path, pieces: list[bytes]) -> list[Delta]:
    reply, deltas = decode(pieces)
    texts = [part for part in reply.parts if isinstance(part, Text)]
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    kept = [own_fields(part) or {} for part in reply.parts]
    found = {
        "text": reply.text,
        "reasoning": "".join(part.text for part in reply.parts if isinstance(part, Reasoning)),
        "calls": [(call.name, json.loads(call.arguments)) for call in calls],
        "finish": reply.raw_stop,
        "signatures": sum("thoughtSignature" in fields for fields in kept),
        "hosted": sum(isinstance(part, Hosted) for part in reply.parts),
        "cited": any(part.citations for part in texts),
        "input": reply.usage.input,
        "output": reply.usage.output,
        "total": reply.usage.total,
    }
    assert found == wanted(file)
    assert reply.stop == ("tool-calls" if calls else {"STOP": "stop", "MAX_TOKENS": "length"}[reply.raw_stop])
    for kind, text in (("text", reply.text), ("reasoning", found["reasoning"])):
        assert "".join(delta for what, delta, _ in deltas if what == kind) == text
    assert [delta for what, delta, _ in deltas if what == "arguments"] == [call.arguments for call in calls]
    return deltas


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_answers(file: Path) -> None:
    """Whole, in lines and cut at a spread of bytes, an answer gives the SDK's value and the same deltas."""
    data, about = file.read_bytes(), load(file, "json")
    if about["status"] != 200:
        expected = load(file, "expected.json")["error"]
        error = response_error(about["status"], {}, data, "http://server/v1beta")
        assert error.kind in (KINDS[expected["status"]], "context-overflow")
        assert error.status == expected["code"] == about["status"]
        assert expected["message"].split("\n")[0].split(".")[0] in str(error)
        return
    first, *rest = ways(data, spread=40, small=4000)
    whole = check(file, first)
    assert all(check(file, pieces) == whole for pieces in [*rest, [data.replace(b"\r\n", b"\n")]])


@pytest.mark.parametrize("file", streams("gemini"), ids=lambda file: file.stem)
def test_cut_answers(file: Path) -> None:
    """Case 8: an answer that is cut before its finish reason is never complete, wherever the cut is."""
    events = events_of(file)
    last = next(n for n, event in enumerate(events) if b'"finishReason"' in event)
    for beginning in beginnings(events, range(last + 1)):
        with pytest.raises(ModelError) as caught:
            decode([beginning])
        assert (caught.value.kind, caught.value.retryable) == ("cut", True)


@pytest.mark.parametrize("file", streams("gemini"), ids=lambda file: file.stem)
def test_recorded_answers_as_an_array(file: Path) -> None:
    """The same responses as one JSON array, which comes without alt=sse, are the same reply."""
    events = [line.removeprefix(b"data: ") for line in file.read_bytes().splitlines() if line.startswith(b"data: ")]
    check(file, [b"[" + b",\r\n".join(events) + b"]"])


def test_the_quota_says_how_long_to_wait() -> None:
    """Case 100: the wait is the longest that is told, so that it is never shorter than the server's."""
    [file] = folder("gemini").glob("ruby_llm__chat_real_error_scenarios_gemini*.body")
    error = response_error(429, {}, file.read_bytes(), "http://server/v1beta")
    assert (error.kind, error.retryable) == ("rate-limit", True)
    assert error.retry_after == pytest.approx(48.939935699)
