"""OpenAI Chat Completions, and the many servers that speak it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import ModelRequest, OnDelta
from .http import HTTPOptions, Timeouts
from .openai_chat_decode import ChatDecoder
from .openai_chat_encode import ChatEncoder
from .openai_model import ApiKey, OpenAIModel
from .openai_settings import check_extra_body, check_settings

__all__ = ["ApiKey", "OpenAIChat"]


class OpenAIChat(OpenAIModel):
    """A model behind ``POST BASE_URL/chat/completions``.

    Args:
        name: the model's name on the server.
        base_url: where the server is, such as ``http://localhost:8000/v1``; otherwise the environment's
            ``OPENAI_BASE_URL``, otherwise OpenAI. A query in it is kept.
        api_key: the key; otherwise the environment's ``OPENAI_API_KEY``; without one no ``Authorization`` is sent, as
            local servers want it.
        settings: see :data:`~turnstate.models.openai_settings.CHAT_SETTINGS`. Those of a turn come before them.
        headers: further headers of each request.
        extra_body: further fields of each request's body, for what only one server knows. None leaves a field out:
            ``{"stream_options": None}`` for a server that refuses it.
        timeouts: limits in seconds.
        connections: how many requests may be under way at once; more of them wait.
        http: proxy, certificates and HTTP/2, see :class:`~turnstate.models.HTTPOptions`.
        reasoning_field: the field under which reasoning is sent back, such as ``reasoning_content`` for DeepSeek's
            thinking models with tools. By default none is, but for what OpenRouter wants back unchanged.

    Raises:
        InvalidInput: a value is wrong. The text never holds the key.
    """

    path = "chat/completions"

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        settings: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeouts: Timeouts | None = None,
        connections: int = 100,
        http: HTTPOptions | None = None,
        reasoning_field: str | None = None,
    ) -> None:
        super().__init__(
            name,
            base_url=base_url,
            api_key=api_key,
            headers=headers,
            timeouts=timeouts,
            connections=connections,
            http=http,
        )
        self._encoder = ChatEncoder(
            name,
            settings=check_settings(settings or {}),
            extra_body=check_extra_body(extra_body or {}),
            origin=self._origin,
            reasoning_field=reasoning_field,
        )

    def _body(self, request: ModelRequest) -> bytes:
        return self._encoder.encode(request)

    def _decoder(self, on_delta: OnDelta) -> ChatDecoder:
        return ChatDecoder(self.name, on_delta, self._origin)
