"""The rules that Gemini answers 400 for."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.models.requests import strict_json


def check(data: bytes) -> Any:
    """The body, once it keeps every rule."""
    found = strict_json(data)
    contents = found["contents"]
    assert contents
    assert contents[0]["role"] == "user"
    roles = [content["role"] for content in contents]
    assert all(role != other for role, other in pairwise(roles))
    assert set(roles) <= {"user", "model"}
    calls: list[Any] = []
    for content in contents:
        parts = content["parts"]
        assert parts
        assert all("thoughtSignature" in part or part.get("text", "x").strip() for part in parts)
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        assert all("functionResponse" in part for part in parts[: len(answers)])
        named = [(answer["name"], answer.get("id")) for answer in answers]
        assert named == [(call["name"], call.get("id")) for call in calls]
        assert all(isinstance(answer["response"], dict) for answer in answers)
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        assert all(isinstance(call["args"], dict) for call in calls)
        assert not calls or content["role"] == "model"
    assert not calls
    return found
