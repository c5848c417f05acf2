"""Usage of a Responses answer as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnstate_states.transcript import Usage

from ..openai import usage as chat_usage

__all__ = ["read_usage"]


def read_usage(usage: Mapping[str, Any] | None) -> Usage:
    """Usage as a server tells it; what is missing, null or no count is unknown.

    >>> read_usage({"input_tokens": 9, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}})
    Usage(input=9, output=3, cached=4)
    """
    fields = usage or {}
    names = {
        "prompt_tokens": "input_tokens",
        "completion_tokens": "output_tokens",
        "prompt_tokens_details": "input_tokens_details",
        "completion_tokens_details": "output_tokens_details",
    }
    return chat_usage.read_usage(
        {**fields, **{ours: fields[theirs] for ours, theirs in names.items() if theirs in fields}}
    )
