"""Settings of Gemini, checked before anything is sent, and what they become on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from turnstate_states.errors import InvalidInput

from ..wire.settings import check_extra_body, check_settings

__all__ = ["GEMINI_SETTINGS", "check_gemini_body", "check_gemini_settings", "make_fields", "thinks_by_level"]


GEMINI_SETTINGS: Mapping[str, str] = {
    "temperature": "a finite number",
    "top_p": "a finite number",
    "top_k": "a positive whole number",
    "max_tokens": "a positive whole number",
    "stop": "text or a list of texts",
    "seed": "a whole number",
    "presence_penalty": "a finite number",
    "frequency_penalty": "a finite number",
    "tool_choice": "text or a mapping",
    "response_format": "a mapping",
    "response_modalities": "a list of texts",
    "media_resolution": "text",
    "reasoning_effort": "text",
    "thinking_budget": "a whole number",
    "include_thoughts": "true or false",
    "cached_content": "text",
    "service_tier": "text",
}
"""Names of the settings, and what each of them must be.

``tool_choice``: ``auto``, ``none``, ``required``, or ``{"name": ...}`` for one tool (OpenAI's form is understood, too).
``response_format``: ``{"type": "json_object"}``, OpenAI's ``json_schema`` form, or a JSON Schema. ``reasoning_effort``:
``none``, ``minimal``, ``low``, ``medium``, ``high``; or a ``thinking_budget`` in tokens, -1 for the model's own choice.
"""

_GENERATION = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_tokens": "maxOutputTokens",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "response_modalities": "responseModalities",
    "media_resolution": "mediaResolution",
}
_TOP = {"cached_content": "cachedContent", "service_tier": "serviceTier"}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "any": "ANY"}
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
"""What an effort is in tokens, by Google's own table for models before Gemini 3."""

_EFFORTS = (*_BUDGETS, "xhigh")
_RESERVED = ("contents", "systemInstruction")
_MERGED = ("generationConfig", "toolConfig")
_OLD = re.compile(r"gemini-(pro|[12])\b|gemma")


def thinks_by_level(model: str) -> bool:
    """Whether a model has the ways of Gemini 3: levels of thinking, signatures that must come back, pictures in results.

    >>> thinks_by_level("gemini-2.5-flash"), thinks_by_level("models/gemini-3-pro"), thinks_by_level("gemini-flash-latest")
    (False, True, True)
    """
    return _OLD.search(model.lower()) is None


def check_gemini_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a dict of their own. A value of None is allowed: it takes back a setting of the model.

    Raises:
        InvalidInput: a name is not known, or a value does not fit; the text says what would.
    """
    checked = check_settings(settings, GEMINI_SETTINGS)
    if (choice := checked.get("tool_choice")) is not None:
        _calling(choice)
    if (form := checked.get("response_format")) is not None:
        _response(form)
    effort = checked.get("reasoning_effort")
    if effort is not None and effort.lower() not in _EFFORTS:
        raise InvalidInput(f"settings: reasoning_effort must be one of {', '.join(_EFFORTS)}, got {effort!r}"[:300])
    if effort is not None and checked.get("thinking_budget") is not None:
        raise InvalidInput("settings: reasoning_effort and thinking_budget exclude each other; give one of them")
    return checked


def check_gemini_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The additional fields of a request's body.

    ``generationConfig`` and ``toolConfig`` are merged with what the settings make of them, ``tools`` (hosted ones) are sent
    besides the agent's, all else replaces. None leaves a field out.

    Raises:
        InvalidInput: a field is one that only the adapter can fill, or not JSON.
    """
    checked = check_extra_body(fields, _RESERVED)
    for name in _MERGED:
        if checked.get(name) is not None and not isinstance(checked[name], Mapping):
            raise InvalidInput(f"extra_body: {name} must be a mapping")
    if not isinstance(checked.get("tools", []), (list, tuple)):
        raise InvalidInput("extra_body: tools must be a list of mappings")
    return checked


def make_fields(model: str, settings: Mapping[str, Any], extra: Mapping[str, Any], *, tools: bool) -> dict[str, Any]:
    """All fields of a body but contents, instructions and tools."""
    given = {name: value for name, value in settings.items() if value is not None}
    generation: dict[str, Any] = {wire: given[name] for name, wire in _GENERATION.items() if name in given}
    if (stop := given.get("stop")) is not None:
        generation["stopSequences"] = [stop] if isinstance(stop, str) else stop
    if (form := given.get("response_format")) is not None:
        generation.update(_response(form))
    if thinking := _thinking(model, given):
        generation["thinkingConfig"] = thinking
    fields: dict[str, Any] = {wire: given[name] for name, wire in _TOP.items() if name in given}
    fields["generationConfig"] = generation
    if tools and (choice := given.get("tool_choice")) is not None:
        fields["toolConfig"] = {"functionCallingConfig": _calling(choice)}
    for name, value in extra.items():
        merged = name in _MERGED and isinstance(value, Mapping)
        if name != "tools":
            fields[name] = {**fields.get(name, {}), **value} if merged else value
    return {name: value for name, value in fields.items() if value is not None and value != {}}


def _thinking(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    thinking: dict[str, Any] = {}
    if (budget := given.get("thinking_budget")) is not None:
        thinking["thinkingBudget"] = budget
    if (effort := given.get("reasoning_effort")) is not None:
        effort = effort.lower()
        if effort != "none" and thinks_by_level(model):
            thinking["thinkingLevel"] = effort
        else:
            thinking["thinkingBudget"] = _BUDGETS.get(effort, _BUDGETS["high"])
    if (include := given.get("include_thoughts")) is not None:
        thinking["includeThoughts"] = include
    return thinking


def _calling(choice: str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(choice, str):
        mode = _MODES.get(choice.lower())
        if mode is None:
            text = f'settings: tool_choice must be auto, none, required or {{"name": ...}}, got {choice!r}'
            raise InvalidInput(text[:300])
        return {"mode": mode}
    if isinstance(choice.get("mode"), str):
        return dict(choice)
    name = _mapping(choice.get("function", choice)).get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInput('settings: tool_choice must name a tool: {"name": ...}')
    return {"mode": "ANY", "allowedFunctionNames": [name]}


def _response(form: Mapping[str, Any]) -> dict[str, Any]:
    kind: Any = form.get("type")
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"responseMimeType": "application/json"}
    schema: Any = form
    if kind == "json_schema":
        schema = _mapping(form.get("json_schema", form)).get("schema")
    if not isinstance(schema, Mapping) or not schema:
        raise InvalidInput("settings: response_format must be json_object, json_schema with a schema, or a JSON Schema")
    return {"responseMimeType": "application/json", "responseJsonSchema": schema}


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
