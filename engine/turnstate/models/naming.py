"""Models by name, as a command line or a configuration file gives them."""

from __future__ import annotations

from typing import Any, cast

from turnstate_states import checks
from turnstate_states.errors import InvalidInput

from .. import models
from .base import Model

__all__ = ["is_model_name", "resolve"]

_PROVIDERS = {
    "openai": "OpenAIResponses",
    "openai-chat": "OpenAIChat",
    "anthropic": "Anthropic",
    "gemini": "Gemini",
}
_FORMS = ", ".join([*(f"{provider}:NAME" for provider in _PROVIDERS), "http://HOST:PORT/v1#NAME (Chat Completions)"])


def resolve(name: str, **options: Any) -> Model:
    """The model that a name stands for.

    ``openai:NAME`` speaks OpenAI Responses, ``openai-chat:NAME`` Chat Completions, ``anthropic:NAME`` and ``gemini:NAME``
    their own protocols; ``http://HOST:PORT/v1#NAME`` is Chat Completions at that address.

    Args:
        name: the provider and the model's name there, or an address and the model's name.
        options: what the adapter's class takes besides the name: ``api_key``, ``settings``, ``timeouts``, ...

    Raises:
        InvalidInput: the name has none of these forms, or the adapter does not take it or an option.

    >>> resolve("http://localhost:8000/v1#qwen3")
    OpenAIChat('qwen3', base_url='http://localhost:8000/v1')
    """
    scheme, colon, rest = checks.text("model name", name).strip().partition(":")
    if scheme.lower() in ("http", "https") and rest.startswith("//"):
        address, _, model = name.strip().partition("#")
        if not model.strip():
            raise InvalidInput("model: the address lacks the model's name; write http://HOST:PORT/v1#NAME")
        if "base_url" in options:
            raise InvalidInput("model: it is an address, so base_url cannot be given, too")
        return _make("openai-chat", model.strip(), {**options, "base_url": address})
    if not colon or scheme.lower() not in _PROVIDERS or not rest.strip():
        raise InvalidInput(f"model name: expected one of {_FORMS}; got {name[:80]!r}")
    return _make(scheme.lower(), rest.strip(), options)


def is_model_name(name: str) -> bool:
    """Whether a name says how to reach its model; others, such as ``qwen3:8b``, are a server's own.

    >>> is_model_name("anthropic:claude-x"), is_model_name("qwen3:8b")
    (True, False)
    """
    scheme = name.strip().partition(":")[0].lower()
    return scheme in _PROVIDERS or name.strip().lower().startswith(("http://", "https://"))


def _make(provider: str, name: str, options: dict[str, Any]) -> Model:
    kind = _PROVIDERS[provider]
    adapter = getattr(models, kind)
    try:
        return cast("Model", adapter(name, **options))
    except TypeError as error:
        raise InvalidInput(f"model: {kind} does not take these options: {error}") from error
