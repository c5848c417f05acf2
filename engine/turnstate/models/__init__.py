"""Models: adapters to providers. An adapter of your own derives from :class:`Model`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .base import DeltaKind, Model, ModelRequest, OnDelta, Reply, ToolDefinition

if TYPE_CHECKING:
    from .anthropic.model import Anthropic
    from .fallback import FALLBACK_ON, Fallback
    from .gemini.model import Gemini
    from .naming import resolve
    from .openai_chat.model import OpenAIChat
    from .openai_responses.model import OpenAIResponses
    from .wire.http import HTTPOptions, Timeouts

__all__ = [
    "FALLBACK_ON",
    "Anthropic",
    "DeltaKind",
    "Fallback",
    "Gemini",
    "HTTPOptions",
    "Model",
    "ModelRequest",
    "OnDelta",
    "OpenAIChat",
    "OpenAIResponses",
    "Reply",
    "Timeouts",
    "ToolDefinition",
    "resolve",
]

LAZY = {
    "Anthropic": "anthropic.model",
    "FALLBACK_ON": "fallback",
    "Fallback": "fallback",
    "Gemini": "gemini.model",
    "HTTPOptions": "wire.http",
    "OpenAIChat": "openai_chat.model",
    "OpenAIResponses": "openai_responses.model",
    "Timeouts": "wire.http",
    "resolve": "naming",
}


def __getattr__(name: str) -> Any:
    """Import an adapter when it is first asked for, so that importing the package is quick."""
    if name in LAZY:
        return getattr(importlib.import_module(f".{LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
