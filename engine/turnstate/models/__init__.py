"""Models: adapters to providers. An adapter of your own derives from :class:`Model`."""

from __future__ import annotations

from .base import DeltaKind, Model, ModelRequest, OnDelta, Reply, ToolDefinition
from .openai_chat import OpenAIChat

__all__ = ["DeltaKind", "Model", "ModelRequest", "OnDelta", "OpenAIChat", "Reply", "ToolDefinition"]
