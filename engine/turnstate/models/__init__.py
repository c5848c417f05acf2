"""Models: adapters to providers. An adapter of your own derives from :class:`Model`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import DeltaKind, Model, ModelRequest, OnDelta, Reply, ToolDefinition

if TYPE_CHECKING:
    from .openai_chat import OpenAIChat

__all__ = ["DeltaKind", "Model", "ModelRequest", "OnDelta", "OpenAIChat", "Reply", "ToolDefinition"]


def __getattr__(name: str) -> Any:
    """Import an adapter when it is first asked for, so that importing the package is quick."""
    if name == "OpenAIChat":
        from .openai_chat import OpenAIChat

        return OpenAIChat
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
