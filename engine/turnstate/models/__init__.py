"""Models: adapters to providers. An adapter of your own derives from :class:`Model`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .base import DeltaKind, Model, ModelRequest, OnDelta, Reply, ToolDefinition

if TYPE_CHECKING:
    from .anthropic import Anthropic
    from .fallback import FALLBACK_ON, Fallback
    from .gemini import Gemini
    from .http import HTTPOptions, Timeouts
    from .naming import resolve
    from .openai_chat import OpenAIChat
    from .openai_responses import OpenAIResponses

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
    "Anthropic": "anthropic",
    "FALLBACK_ON": "fallback",
    "Fallback": "fallback",
    "Gemini": "gemini",
    "HTTPOptions": "http",
    "OpenAIChat": "openai_chat",
    "OpenAIResponses": "openai_responses",
    "Timeouts": "http",
    "resolve": "naming",
}


def __getattr__(name: str) -> Any:
    """Import an adapter when it is first asked for, so that importing the package is quick."""
    if name in LAZY:
        return getattr(importlib.import_module(f".{LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
