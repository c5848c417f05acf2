"""Usage of an Anthropic Messages answer as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnstate_states.transcript import Usage

from ..wire.json_values import as_count, is_dict

__all__ = ["read_usage"]


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Usage as the API tells it; its ``input_tokens`` leave out what was read from the cache or written to it.

    >>> read_usage({"input_tokens": 1, "cache_read_input_tokens": 324, "output_tokens": 2})
    Usage(input=325, output=2, cached=324)
    """
    plain, read, written = (
        as_count(usage.get(name)) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    sent = None if plain is None else plain + (read or 0) + (written or 0)
    details = usage.get("output_tokens_details")
    thought = as_count(details.get("thinking_tokens")) if is_dict(details) else None
    return Usage(sent, as_count(usage.get("output_tokens")), read, written, thought)
