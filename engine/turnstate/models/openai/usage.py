"""Usage as OpenAI's servers tell it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from turnstate_states.transcript import Usage

from ..wire.json_values import as_count, is_dict

__all__ = ["read_usage"]


def read_usage(usage: Mapping[str, Any] | None) -> Usage:
    """Usage by the names of Chat Completions; what is missing, null or no count is unknown.

    xAI does not count reasoning as output; its total shows that.

    >>> read_usage({"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 303,
    ...             "completion_tokens_details": {"reasoning_tokens": 290}}).output
    291
    """
    if not usage:
        return Usage()
    sent, made = _inner(usage, "prompt_tokens_details"), _inner(usage, "completion_tokens_details")
    prompt, output = as_count(usage.get("prompt_tokens")), as_count(usage.get("completion_tokens"))
    reasoning = _first(made.get("reasoning_tokens"), usage.get("reasoning_tokens"))
    total = as_count(usage.get("total_tokens"))
    if reasoning and output is not None and total == (prompt or 0) + output + reasoning:
        output += reasoning
    cached = _first(sent.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens"))
    cost = usage.get("cost")
    known = isinstance(cost, (int, float)) and not isinstance(cost, bool) and math.isfinite(cost)
    return Usage(
        prompt,
        output,
        cached,
        as_count(sent.get("cache_write_tokens")),
        reasoning,
        float(cost) if known and cost is not None else None,
    )


def _inner(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = usage.get(name)
    return value if is_dict(value) else {}


def _first(*values: object) -> int | None:
    """The first of the values that is a count."""
    return next((count for value in values if (count := as_count(value)) is not None), None)
