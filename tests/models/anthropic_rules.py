"""What the Messages API accepts, as a check that is as strict as the provider."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

__all__ = ["check", "sign"]

ID = re.compile("[a-zA-Z0-9_-]+")
USER = {"text", "image", "document", "tool_result"}
MEDIA = {"image/jpeg", "image/png", "image/gif", "image/webp"}


def sign(thought: str) -> str:
    """The signature that a checked request must have for a thought."""
    return hashlib.sha256(thought.encode()).hexdigest()[:16]


def check(data: bytes, *, signed: bool = True) -> dict[str, Any]:
    """The body, if the provider accepts it; without ``signed`` signatures are not compared with :func:`sign`.

    Raises:
        AssertionError: it answers 400.
    """

    def no(name: str) -> Any:
        raise AssertionError(name)

    body: dict[str, Any] = json.loads(data.decode(), parse_constant=no)
    json.dumps(body, ensure_ascii=False).encode()
    assert isinstance(body["model"], str)
    assert body["max_tokens"] > 0
    for block in body.get("system", []):
        check_text(block)
    assert data.count(b'"cache_control"') <= 4
    check_turns(body["messages"], signed)
    thinking = body.get("thinking", {})
    if thinking.get("type") == "enabled":
        assert 1024 <= thinking["budget_tokens"] < body["max_tokens"]
        if body["messages"][-1]["content"][0]["type"] == "tool_result":
            assert any(block["type"].endswith("thinking") for block in body["messages"][-2]["content"])
    if "tool_choice" in body:
        assert body["tools"]
    return body


def check_turns(turns: list[dict[str, Any]], signed: bool) -> None:
    assert turns[0]["role"] == "user"
    ids: list[str] = []
    uses: set[str] = set()
    answers = {
        block.get("tool_use_id", "") for turn in turns if turn["role"] == "assistant" for block in turn["content"]
    }
    for number, turn in enumerate(turns):
        assert set(turn) == {"role", "content"}
        assert turn["role"] == ("user", "assistant")[number % 2]
        assert turn["content"]
        if turn["role"] == "user":
            calls = (
                [block["id"] for block in turns[number - 1]["content"] if block["type"] == "tool_use"] if number else []
            )
            check_user(turn["content"], calls)
            continue
        check_assistant(turn["content"], uses, answers if number < len(turns) - 2 else None, signed)
        calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        assert not calls or number + 1 < len(turns)
        ids += calls
    assert len(ids) == len(set(ids))
    last = turns[-1]
    assert last["role"] == "user" or last["content"][-1]["type"] not in ("text", "thinking", "redacted_thinking")


def check_user(blocks: list[dict[str, Any]], calls: list[str]) -> None:
    kinds = [block["type"] for block in blocks]
    assert set(kinds) <= USER
    assert kinds[: len(calls)] == ["tool_result"] * len(calls)
    assert "tool_result" not in kinds[len(calls) :]
    assert [block["tool_use_id"] for block in blocks[: len(calls)]] == calls
    for block in blocks:
        if block["type"] == "text":
            check_text(block)
        elif block["type"] == "tool_result":
            content = block["content"]
            inner = [{"type": "text", "text": content}] if isinstance(content, str) else content
            assert inner
            for part in inner:
                check_text(part) if part["type"] == "text" else check_source(part)
        else:
            check_source(block)


def check_assistant(blocks: list[dict[str, Any]], uses: set[str], answers: set[str] | None, signed: bool) -> None:
    assert blocks[-1]["type"] not in ("thinking", "redacted_thinking")
    for block in blocks:
        match block["type"]:
            case "text":
                check_text(block)
            case "thinking":
                assert block["signature"] == sign(block["thinking"]) if signed else block["signature"]
            case "redacted_thinking":
                assert block["data"]
            case "tool_use":
                assert ID.fullmatch(block["id"])
                assert re.fullmatch("[a-zA-Z0-9_-]{1,128}", block["name"])
                assert isinstance(block["input"], dict)
            case kind if kind.endswith("tool_use"):
                assert block["id"] not in uses
                uses.add(block["id"])
                assert answers is None or block["id"] in answers
                assert isinstance(block["input"], dict)
            case kind:
                assert kind not in ("image", "document", "tool_result")
                assert block.get("tool_use_id") in {*uses, None}


def check_text(block: dict[str, Any]) -> None:
    assert block["type"] == "text"
    assert block["text"].strip()


def check_source(block: dict[str, Any]) -> None:
    source = block["source"]
    if source["type"] == "base64":
        assert source["media_type"] in (MEDIA if block["type"] == "image" else {"application/pdf"})
        assert source["data"]
