"""Settings of the Responses API, checked before anything is sent, and what becomes of them in a request's body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..wire.settings import check_extra_body, check_settings

__all__ = ["RESPONSES_SETTINGS", "check_responses_body", "check_responses_settings", "fields_of", "is_strict"]


RESPONSES_SETTINGS: Mapping[str, str] = {
    "temperature": "a finite number",
    "top_p": "a finite number",
    "max_tokens": "a positive whole number",
    "max_output_tokens": "a positive whole number",
    "tool_choice": "text or a mapping",
    "parallel_tool_calls": "true or false",
    "max_tool_calls": "a positive whole number",
    "hosted_tools": "a list of mappings",
    "strict_tools": "true or false",
    "response_format": "a mapping",
    "text": "a mapping",
    "verbosity": "text",
    "reasoning": "a mapping",
    "reasoning_effort": "text",
    "include": "a list of texts",
    "store": "true or false",
    "item_ids": "true or false",
    "truncation": "text",
    "context_management": "a list of mappings",
    "service_tier": "text",
    "prompt_cache_key": "text",
    "prompt_cache_retention": "text",
    "user": "text",
    "safety_identifier": "text",
    "metadata": "a mapping",
    "top_logprobs": "a whole number",
    "stream_options": "a mapping",
}
"""Names of the settings, and what each of them must be.

``max_tokens``, ``reasoning_effort``, ``verbosity`` and ``response_format`` are those of Chat Completions and are sent in
this protocol's own form. ``hosted_tools`` are tools that the server runs, such as ``{"type": "web_search"}``.
``strict_tools`` False asks for no strict schemas; otherwise every tool whose schema allows it is strict. ``item_ids`` False
leaves out the ids of items that are given back, for a server that looks them up ("Item with id ... not found") though it
was told to store nothing.
"""

ENCRYPTED = "reasoning.encrypted_content"
_NO_REASONING = re.compile(r"(.*/)?(ft:)?(gpt-3|gpt-4|chatgpt-|gpt-5(\.\d+)?-chat)")
_ONLY_WITH_TOOLS = ("tool_choice", "parallel_tool_calls", "max_tool_calls")
_OURS = ("hosted_tools", "strict_tools", "item_ids", "max_tokens", "reasoning_effort", "verbosity", "response_format")


def check_responses_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a dict of their own; see :func:`~turnstate.models.wire.settings.check_settings`."""
    return check_settings(settings, RESPONSES_SETTINGS)


def check_responses_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The further fields of a request's body; see :func:`~turnstate.models.wire.settings.check_extra_body`."""
    return check_extra_body(fields, ("input", "instructions", "stream", "tools"))


def fields_of(model: str, settings: Mapping[str, Any], *, tools: bool) -> dict[str, Any]:
    """Settings as fields of a request's body.

    >>> fields_of("gpt-4.1", {"max_tokens": 9, "reasoning_effort": "low"}, tools=False)
    {'model': 'gpt-4.1', 'stream': True, 'store': False, 'max_output_tokens': 9, 'reasoning': {'effort': 'low'}}
    """
    given = {name: value for name, value in settings.items() if value is not None}
    fields: dict[str, Any] = {"model": model, "stream": True, "store": False}
    fields |= {name: value for name, value in given.items() if name not in _OURS}
    if "max_tokens" in given:
        fields.setdefault("max_output_tokens", given["max_tokens"])
    if "reasoning_effort" in given:
        fields["reasoning"] = {"effort": given["reasoning_effort"], **fields.get("reasoning", {})}
    text = dict(fields.get("text", {}))
    if "verbosity" in given:
        text.setdefault("verbosity", given["verbosity"])
    if "response_format" in given:
        text.setdefault("format", _flat(given["response_format"], "json_schema"))
    if text:
        fields["text"] = text
    if "tool_choice" in fields:
        fields["tool_choice"] = _flat(fields["tool_choice"], "function")
    if not tools:
        for name in _ONLY_WITH_TOOLS:
            fields.pop(name, None)
    include = list(fields.get("include", ()))
    if fields["store"] is False and ENCRYPTED not in include and not _NO_REASONING.match(model):
        # Without it nothing that a server does not store can be given back; models that do not reason refuse it.
        include.append(ENCRYPTED)
    return {**fields, "include": include} if include else fields


def _flat(value: Any, name: str) -> Any:
    """Chat Completions puts into an object of its own what is beside ``type`` here."""
    inner: object = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return {"type": name, **cast("Mapping[str, Any]", inner)} if isinstance(inner, Mapping) else cast("object", value)


_PLAIN_KEYWORDS = frozenset(
    {
        *("type", "title", "description", "enum", "const", "$ref", "pattern", "minimum", "maximum", "exclusiveMinimum"),
        *("exclusiveMaximum", "multipleOf", "minItems", "maxItems", "required", "additionalProperties"),
    }
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


def is_strict(schema: Any, *, root: bool = True) -> bool:
    """Whether a schema is one that OpenAI can hold a model to: every object closed, every property required.

    >>> is_strict({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
    ...            "additionalProperties": False})
    True
    >>> is_strict({"type": "object", "properties": {"a": {"type": "string"}}})
    False
    """
    if not isinstance(schema, Mapping):
        return False
    fields = cast("Mapping[str, Any]", schema)
    kind = fields.get("type")
    typed = kind == "object" and "$ref" not in fields if root else bool(fields.keys() & {"type", "$ref", "anyOf"})
    if not typed:
        return False
    if kind == "object" or "properties" in fields:
        properties = fields.get("properties", {})
        closed = fields.get("additionalProperties") is False and isinstance(properties, Mapping)
        if not closed or set(fields.get("required", ())) != set(cast("Mapping[str, Any]", properties)):
            return False
    return all(_keyword_is_strict(name, value, root) for name, value in fields.items())


def _keyword_is_strict(name: str, value: Any, root: bool) -> bool:
    if name in ("properties", "$defs"):
        return isinstance(value, Mapping) and _all_strict(cast("Mapping[str, Any]", value).values())
    if name == "items":
        return is_strict(value, root=False)
    if name == "anyOf":
        return not root and isinstance(value, list) and _all_strict(value)  # pyright: ignore[reportUnknownArgumentType]
    return name in _PLAIN_KEYWORDS or (name == "format" and value in _FORMATS)


def _all_strict(schemas: Iterable[Any]) -> bool:
    return all(is_strict(schema, root=False) for schema in schemas)
