"""Settings of Chat Completions, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..wire.settings import check_extra_body, check_settings

__all__ = ["CHAT_SETTINGS", "check_chat_body", "check_chat_settings"]

CHAT_SETTINGS: Mapping[str, str] = {
    "temperature": "a finite number",
    "top_p": "a finite number",
    "max_tokens": "a positive whole number",
    "max_completion_tokens": "a positive whole number",
    "stop": "text or a list of texts",
    "seed": "a whole number",
    "tool_choice": "text or a mapping",
    "parallel_tool_calls": "true or false",
    "response_format": "a mapping",
    "reasoning_effort": "text",
    "verbosity": "text",
    "user": "text",
    "safety_identifier": "text",
    "service_tier": "text",
    "frequency_penalty": "a finite number",
    "presence_penalty": "a finite number",
    "logit_bias": "a mapping",
    "logprobs": "true or false",
    "top_logprobs": "a whole number",
    "metadata": "a mapping",
    "store": "true or false",
    "prompt_cache_key": "text",
    "prediction": "a mapping",
}
"""Names of the settings, and what each of them must be."""


def check_chat_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a dict of their own; see :func:`~turnstate.models.wire.settings.check_settings`."""
    return check_settings(settings, CHAT_SETTINGS)


def check_chat_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The further fields of a request's body; see :func:`~turnstate.models.wire.settings.check_extra_body`."""
    return check_extra_body(fields, ("messages", "stream", "tools"))
