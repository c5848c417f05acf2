"""The four protocols, for tests that hold in each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import pytest

from turnstate.models import Anthropic, Gemini, Model, ModelRequest, OnDelta, OpenAIChat, OpenAIResponses, Reply

__all__ = ["KEY", "PROTOCOLS", "InTurn", "Protocol", "adapter", "each_protocol"]

Protocol = Literal["chat", "responses", "messages", "gemini"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
KEY = "sk-a-secret"
"""The key that is sent where a test says nothing else."""

_ADAPTERS: Mapping[Protocol, Callable[..., Model]] = {
    "chat": OpenAIChat,
    "responses": OpenAIResponses,
    "messages": Anthropic,
    "gemini": Gemini,
}

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
"""Runs a test once for each protocol, which it gets as ``protocol``."""


def adapter(protocol: Protocol, base_url: str, **options: Any) -> Model:
    """The adapter of a protocol for one server; its model has the protocol's name."""
    return _ADAPTERS[protocol](protocol, base_url=base_url, **{"api_key": KEY, **options})


class InTurn(Model):
    """Several models: the first gives a conversation's first reply, the second its second one, the last all the others."""

    name = "in-turn"

    def __init__(self, *models: Model) -> None:
        self._models = models

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        """Ask the one whose turn it is."""
        replies = sum(message.role == "assistant" for message in request.messages)
        return await self._models[min(replies, len(self._models) - 1)].respond(request, on_delta)

    async def aclose(self) -> None:
        """Close the connections of all."""
        for model in self._models:
            await model.aclose()
