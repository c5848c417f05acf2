"""Settings of Anthropic Messages, checked before anything is sent, and what they are on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from turnstate_states.errors import InvalidInput

from ..wire.settings import check_extra_body, check_settings

__all__ = [
    "MESSAGES_SETTINGS",
    "cache_mark",
    "check_messages_body",
    "check_messages_settings",
    "default_max_tokens",
    "messages_fields",
]

MESSAGES_SETTINGS: Mapping[str, str] = {
    "temperature": "a finite number",
    "top_p": "a finite number",
    "top_k": "a positive whole number",
    "max_tokens": "a positive whole number",
    "stop": "text or a list of texts",
    "tool_choice": "text or a mapping",
    "parallel_tool_calls": "true or false",
    "strict_tools": "true or false",
    "hosted_tools": "a list of mappings",
    "thinking": "a mapping",
    "thinking_budget": "a positive whole number",
    "reasoning_effort": "text",
    "response_format": "a mapping",
    "metadata": "a mapping",
    "user": "text",
    "service_tier": "text",
    "cache": 'true, false, "5m" or "1h"',
}
"""Names of the settings, and what each of them must be.

``tool_choice`` is ``auto``, ``required`` (also ``any``), ``none`` or the mapping that the API has; ``hosted_tools`` are
definitions of tools that the provider runs; ``thinking_budget`` is short for a ``thinking`` of type ``enabled``;
``response_format`` goes as ``output_config.format``, ``reasoning_effort`` as ``output_config.effort``, ``user`` as
``metadata.user_id``. ``cache`` marks instructions, tools and the end of the conversation for the provider's cache.
"""

_LEAST_BUDGET = 1024
_CHOICES = {"auto": "auto", "required": "any", "any": "any", "none": "none"}
_MAX_TOKENS = (("claude-3-7", 16_384), ("claude-3-5", 8_192), ("claude-3", 4_096), ("claude-2", 4_096))
_AS_THEY_ARE = ("temperature", "top_p", "top_k", "service_tier")


def check_messages_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a dict of their own. A value of None is allowed: it takes back a setting of the model.

    Raises:
        InvalidInput: a name is not known, or a value does not fit; the text says what would.
    """
    checked = check_settings(settings, MESSAGES_SETTINGS)
    for name, good in _GOOD.items():
        value = checked.get(name)
        if value is not None and not good(value):
            wanted = _WANTED.get(name, MESSAGES_SETTINGS[name])
            raise InvalidInput(f"settings: {name} must be {wanted}, got {value!r}"[:300])
    if checked.get("thinking") is not None and checked.get("thinking_budget") is not None:
        raise InvalidInput("settings: give either thinking or thinking_budget")
    _check_budget(checked)
    return checked


def check_messages_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The additional fields of a request's body; None leaves a field out.

    Raises:
        InvalidInput: a field is one that only the adapter can fill, or not JSON.
    """
    return check_extra_body(fields, ("messages", "stream", "system", "tools"))


def default_max_tokens(model: str) -> int:
    """What is asked for where nothing was set: the API wants a number, and old models refuse a large one.

    >>> default_max_tokens("claude-3-haiku-20240307"), default_max_tokens("claude-sonnet-5")
    (4096, 16384)
    """
    return next((count for name, count in _MAX_TOKENS if name in model), 16_384)


def cache_mark(settings: Mapping[str, Any]) -> bytes:
    """The mark that is put on blocks for the cache; empty for none."""
    wanted = settings.get("cache")
    if not wanted:
        return b""
    return b',"cache_control":{"type":"ephemeral"%b}}' % (b',"ttl":"1h"' if wanted == "1h" else b"")


def messages_fields(settings: Mapping[str, Any], model: str, *, tools: bool) -> dict[str, Any]:
    """The fields of the body that settings become."""
    fields: dict[str, Any] = {name: settings.get(name) for name in _AS_THEY_ARE}
    thinking = _thinking(settings)
    budget = _budget(settings)
    fields["thinking"] = thinking
    fields["max_tokens"] = settings.get("max_tokens") or default_max_tokens(model) + budget
    stop = settings.get("stop")
    fields["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    fields["metadata"] = settings.get("metadata")
    if settings.get("user") is not None:
        fields["metadata"] = {**(fields["metadata"] or {}), "user_id": settings["user"]}
    wanted = {"format": _format(settings.get("response_format")), "effort": settings.get("reasoning_effort")}
    fields["output_config"] = {name: value for name, value in wanted.items() if value is not None} or None
    if tools:
        fields["tool_choice"] = _tool_choice(settings)
    return {name: value for name, value in fields.items() if value is not None}


def _format(given: Any) -> Any:
    """Chat Completions puts into an object of its own what is beside ``type`` here."""
    inner = given.get("json_schema") if given else None
    if isinstance(inner, Mapping):
        return {"type": "json_schema", "schema": cast("Mapping[str, Any]", inner).get("schema")}
    return given


def _thinking(settings: Mapping[str, Any]) -> Any:
    if settings.get("thinking_budget") is not None:
        return {"type": "enabled", "budget_tokens": settings["thinking_budget"]}
    return settings.get("thinking")


def _budget(settings: Mapping[str, Any]) -> int:
    thinking = _thinking(settings)
    budget = cast("Mapping[str, Any]", thinking).get("budget_tokens") if isinstance(thinking, Mapping) else 0
    return budget if isinstance(budget, int) else 0


def _check_budget(settings: Mapping[str, Any]) -> None:
    budget, most = _budget(settings), settings.get("max_tokens")
    if budget and budget < _LEAST_BUDGET:
        raise InvalidInput(f"settings: a thinking budget must be at least {_LEAST_BUDGET}, got {budget}")
    if budget and most is not None and most <= budget:
        raise InvalidInput(f"settings: max_tokens ({most}) must be larger than the thinking budget ({budget})")


def _tool_choice(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    given, parallel = settings.get("tool_choice"), settings.get("parallel_tool_calls")
    choice: dict[str, Any] | None = None
    if isinstance(given, str):
        choice = {"type": _CHOICES[given]}
    elif given is not None:
        choice = dict(given)
        if isinstance(function := choice.get("function"), Mapping):
            choice = {"type": "tool", "name": cast("Mapping[str, Any]", function).get("name")}
    if parallel is not None and (choice or {}).get("type") != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": not parallel}
    return choice


def _good_stop(value: object) -> bool:
    return all(text.strip() for text in ([value] if isinstance(value, str) else cast("list[str]", value)))


def _good_choice(value: object) -> bool:
    return (
        value in _CHOICES if isinstance(value, str) else isinstance(cast("Mapping[str, Any]", value).get("type"), str)
    )


def _good_tools(value: object) -> bool:
    return all(item.get("type") and item.get("name") for item in cast("list[Mapping[str, Any]]", value))


_GOOD = {
    "stop": _good_stop,
    "tool_choice": _good_choice,
    "hosted_tools": _good_tools,
}
_WANTED = {
    "stop": "text or a list of texts that are not blank",
    "tool_choice": 'auto, required, none or a mapping such as {"type": "tool", "name": "..."}',
    "hosted_tools": "a list of mappings with type and name",
}
