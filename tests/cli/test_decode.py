"""``turnstate decode``: recorded bodies of the four protocols as lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import PATIENCE, run

SHARED = os.environ.get("TURNSTATE_SHARED", "")
FIELDS = ["text", "refusal", "reasoning", "calls", "stop", "raw_stop", "usage", "error"]
FOLDERS = {
    "chat": "openai_chat",
    "responses": "openai_responses",
    "messages": "anthropic_messages",
    "gemini": "gemini",
}


def stream(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def gemini(*parts: Any, finish: str = "STOP") -> dict[str, Any]:
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    return {"candidates": [{"content": {"parts": list(parts)}, "finishReason": finish}], "usageMetadata": usage}


CHAT = {"choices": [{"index": 0, "message": {"content": "Hi", "refusal": "no"}, "finish_reason": "stop"}]}
MESSAGES = {
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}
RESPONSES = {
    "object": "response",
    "id": "r",
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}],
}


def test_a_streamed_answer(tmp_path: Path) -> None:
    """A line has every field: texts, calls with their raw arguments, why it stopped, usage."""
    call = {"functionCall": {"name": "f", "args": {"ä": [1.0]}}}
    (tmp_path / "a.sse").write_bytes(stream(gemini({"text": "hm", "thought": True}, {"text": "é"}, call)))
    done = run("decode", "gemini", "a.sse")
    assert (done.returncode, done.stderr) == (0, "")
    [line] = done.stdout.splitlines()
    found = json.loads(line)
    assert list(found) == FIELDS
    assert found == {
        "text": "é",
        "refusal": "",
        "reasoning": "hm",
        "calls": [{"name": "f", "arguments": '{"ä":[1.0]}'}],
        "stop": "tool-calls",
        "raw_stop": "STOP",
        "usage": {
            "input": 3,
            "output": 2,
            "cached": None,
            "cache_written": None,
            "reasoning": None,
            "cost": None,
        },
        "error": None,
    }


@pytest.mark.parametrize(
    ("protocol", "body"),
    [("chat", CHAT), ("messages", MESSAGES), ("responses", RESPONSES), ("gemini", gemini({"text": "Hi"}))],
)
def test_whole_answers_from_a_pipe(tmp_path: Path, protocol: str, body: dict[str, Any]) -> None:
    """Each protocol's answer that was not streamed is read, also from the standard input."""
    done = run("decode", protocol, "-", given=json.dumps(body))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["text"], found["error"]) == ("Hi", None)
    assert found["refusal"] == ("no" if protocol == "chat" else "")


def test_errors_and_several_files(tmp_path: Path) -> None:
    """Files give one line each, in order; an error is an object in its line, with what had come, and exit code 1."""
    call = {"functionCall": {"name": "f", "args": {"a": 1}}}
    cut = {"candidates": [{"content": {"parts": [{"text": "a"}, {"text": "b", "thought": True}, call]}}]}
    (tmp_path / "good").write_bytes(stream(gemini({"text": "x"})))
    (tmp_path / "cut").write_bytes(stream(cut))
    (tmp_path / "busy").write_text('{"error": {"code": 503, "message": "busy\\nnow", "status": "UNAVAILABLE"}}')
    done = run("decode", "gemini", "cut", "busy", "good")
    assert (done.returncode, done.stderr) == (1, "")
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert list(first) == list(second) == list(third) == FIELDS
    assert (first["text"], first["reasoning"], first["stop"], first["usage"]) == ("a", "b", "", None)
    assert first["calls"] == [{"name": "f", "arguments": '{"a":1}'}]
    assert (first["error"]["kind"], first["error"]["retryable"]) == ("cut", True)
    assert second["error"] == {"kind": "overloaded", "retryable": True, "message": "busy now"}
    assert third["error"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["decode"], 2, "PROTOCOL"),
        (["decode", "grpc", "x"], 2, "grpc"),
        (["decode", "gemini"], 2, "FILE"),
        (["decode", "gemini", "none"], 1, "none"),
        (["decode", "gemini", "."], 1, "directory"),
    ],
)
def test_wrong_use(tmp_path: Path, arguments: list[str], code: int, text: str) -> None:
    """What a user did wrong is one line that says it, and nothing is printed."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("turnstate: ")
    assert done.stderr.count("\n") == 1
    assert text in done.stderr


def test_only_the_decoder_is_loaded() -> None:
    """Decoding loads neither the engine's network nor the other protocols."""
    code = (
        "import sys; from turnstate.cli import main; main(['decode', 'gemini', '-']);"
        "print([name for name in sys.modules if name == 'httpx' or 'anthropic' in name or 'openai_chat' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="", capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.recordings
@pytest.mark.parametrize("protocol", FOLDERS)
def test_recorded_answers(tmp_path: Path, protocol: str) -> None:
    """Every recording of a protocol gives a line with all fields, and a reply or an error."""
    files = sorted((Path(SHARED) / "fixtures" / FOLDERS[protocol]).glob("*.sse"))
    done = run("decode", protocol, *map(str, files))
    assert done.stderr == ""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(files)
    assert all(list(line) == FIELDS and (line["error"] is None) == bool(line["stop"]) for line in lines)
    assert sum(line["error"] is None for line in lines) > len(lines) * 0.8
