"""Settings and further fields of requests in every protocol, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from turnstate.models.anthropic.settings import check_messages_body, check_messages_settings
from turnstate.models.gemini.settings import check_gemini_body, check_gemini_settings
from turnstate.models.openai_chat.settings import check_chat_body, check_chat_settings
from turnstate.models.openai_responses.settings import check_responses_body, check_responses_settings
from turnstate_states.errors import InvalidInput

Check = Callable[[Mapping[str, Any]], dict[str, Any]]
Bad = list[tuple[dict[str, Any], str]]

SETTINGS: dict[str, Check] = {
    "chat": check_chat_settings,
    "responses": check_responses_settings,
    "messages": check_messages_settings,
    "gemini": check_gemini_settings,
}
BODIES: dict[str, Check] = {
    "chat": check_chat_body,
    "responses": check_responses_body,
    "messages": check_messages_body,
    "gemini": check_gemini_body,
}
BAD_EVERYWHERE: Bad = [
    ({"temprature": 1}, "temperature"),
    ({"temperature": "hot"}, "a finite number"),
    ({"temperature": float("nan")}, "a finite number"),
    ({"temperature": True}, "a finite number"),
    ({"max_tokens": 0}, "a positive whole number"),
    ({"max_tokens": True}, "a positive whole number"),
    ({"service_tier": "\ud800"}, "service_tier"),
]
BAD: dict[str, Bad] = {
    "chat": [
        ({"stop": ["a", 1]}, "text or a list of texts"),
        ({"parallel_tool_calls": 1}, "true or false"),
        ({"logit_bias": {"1": float("inf")}}, "logit_bias"),
        ({"metadata": {"a": object()}}, "metadata"),
    ],
    "responses": [
        ({"seed": 1}, "seed"),
        ({"stop": "x"}, "stop"),
        ({"include": "x"}, "a list of texts"),
        ({"hosted_tools": ["web_search"]}, "a list of mappings"),
        ({"hosted_tools": [{"x": float("inf")}]}, "hosted_tools"),
        ({"metadata": {"a": object()}}, "metadata"),
    ],
    "messages": [
        ({"seed": 1}, "extra_body"),
        ({"stop": [" "]}, "not blank"),
        ({"tool_choice": "f"}, "required"),
        ({"tool_choice": {"name": "f"}}, "required"),
        ({"hosted_tools": [{}]}, "type and name"),
        ({"hosted_tools": [1]}, "list of mappings"),
        ({"thinking_budget": 5}, "1024"),
        ({"thinking_budget": 2000, "max_tokens": 2000}, "larger"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 10}, "larger"),
        ({"thinking": {}, "thinking_budget": 2000}, "either"),
        ({"cache": "2h"}, "5m"),
        ({"cache": 1}, "5m"),
        ({"metadata": {"a": float("inf")}}, "metadata"),
        ({"user": "\ud800"}, "user"),
    ],
    "gemini": [
        ({"parallel_tool_calls": False}, "not known"),
        ({"stop": ["a", 1]}, "text or a list of texts"),
        ({"tool_choice": "sometimes"}, "required"),
        ({"tool_choice": {}}, "name a tool"),
        ({"response_format": {}}, "json_schema"),
        ({"response_format": {"type": "json_schema"}}, "json_schema"),
        ({"reasoning_effort": "huge"}, "medium"),
        ({"reasoning_effort": "low", "thinking_budget": 5}, "exclude"),
        ({"response_format": {"type": "object", "maximum": float("inf")}}, "response_format"),
    ],
}
OURS: dict[str, list[dict[str, Any]]] = {
    "chat": [{"messages": []}, {"stream": False}, {"tools": []}],
    "responses": [{"input": []}, {"stream": False}, {"tools": []}, {"instructions": "x"}],
    "messages": [{"messages": []}, {"stream": False}, {"tools": []}, {"system": ""}],
    "gemini": [{"contents": []}, {"systemInstruction": {}}, {"tools": {}}, {"toolConfig": 1}],
}


@pytest.mark.parametrize(
    ("protocol", "settings", "text"),
    [(protocol, *bad) for protocol in SETTINGS for bad in [*BAD_EVERYWHERE, *BAD[protocol]]],
)
def test_bad_settings(protocol: str, settings: dict[str, Any], text: str) -> None:
    """A setting that is not known or does not fit is refused with a text that says what would do."""
    with pytest.raises(InvalidInput, match=text):
        SETTINGS[protocol](settings)


@pytest.mark.parametrize(
    ("protocol", "settings"),
    [
        ("chat", {"temperature": 0.1, "stop": ["a"], "tool_choice": {"type": "function"}, "seed": -1}),
        ("chat", {"logit_bias": MappingProxyType({"1": 2}), "parallel_tool_calls": False, "user": None}),
        ("responses", {"include": ["a"], "hosted_tools": [{"type": "x"}], "store": True, "top_logprobs": 0}),
        ("messages", {"cache": "5m", "stop": "x", "thinking_budget": 2000, "top_k": 1}),
        ("gemini", {"seed": 2, "thinking_budget": -1, "response_modalities": ("TEXT",), "tool_choice": "auto"}),
    ],
)
def test_good_settings(protocol: str, settings: dict[str, Any]) -> None:
    """A setting takes a value of its kind, and None takes it back."""
    assert SETTINGS[protocol](settings) == settings


@pytest.mark.parametrize(
    ("protocol", "fields"),
    [(protocol, bad) for protocol in BODIES for bad in [*OURS[protocol], {"x": float("nan")}, {"x": "\ud800"}]],
)
def test_bad_extra_body(protocol: str, fields: dict[str, Any]) -> None:
    """Extra fields cannot replace what the adapter makes, and must be JSON."""
    with pytest.raises(InvalidInput, match="extra_body"):
        BODIES[protocol](fields)
