"""Usage of a Gemini answer as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnstate_states.transcript import Usage

from ..wire.json_values import as_count

__all__ = ["counts_tokens", "read_usage"]

_COUNTS = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount")


def counts_tokens(usage: Mapping[str, Any]) -> bool:
    """Whether usage holds more than the kind of traffic, which is all that early chunks may tell."""
    return any(name in usage for name in _COUNTS)


def read_usage(usage: Mapping[str, Any] | None) -> Usage:
    """Usage as Gemini tells it; what is missing, null or no count is unknown.

    Tokens of the prompt and those that its own tools added are input; thoughts, which are no part of the candidates'
    tokens there, are output.

    >>> read_usage({"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": 20, "totalTokenCount": 34})
    Usage(input=9, output=25, reasoning=20)
    """
    if not usage:
        return Usage()
    prompt, tools = as_count(usage.get("promptTokenCount")), as_count(usage.get("toolUsePromptTokenCount"))
    made, thoughts = as_count(usage.get("candidatesTokenCount")), as_count(usage.get("thoughtsTokenCount"))
    total = as_count(usage.get("totalTokenCount"))
    sent = None if prompt is None and tools is None else (prompt or 0) + (tools or 0)
    output = None if made is None and thoughts is None else (made or 0) + (thoughts or 0)
    if output is None and total is not None and sent is not None and total >= sent:
        output = total - sent
    return Usage(sent, output, as_count(usage.get("cachedContentTokenCount")), None, thoughts)
