"""The adapter of OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnstate_states import checks

from ..base import OnDelta
from ..openai.model import OpenAIModel
from ..wire.http import HTTPOptions, Timeouts
from ..wire.http_model import ApiKey
from ..wire.inflating import MAX_REPLY
from .decode import ChatDecoder
from .encode import ChatEncoder
from .settings import check_chat_body, check_chat_settings

__all__ = ["OpenAIChat"]


class OpenAIChat(OpenAIModel):
    """A model behind ``POST BASE_URL/chat/completions``, at OpenAI or at one of the many servers that speak it.

    Takes what every adapter does, see :class:`~turnstate.models.wire.http_model.HTTPModel`. Without ``base_url`` the
    environment's ``OPENAI_BASE_URL`` counts, then OpenAI's own; without ``api_key`` its ``OPENAI_API_KEY``. ``settings``
    are those of :data:`~turnstate.models.openai_chat.settings.CHAT_SETTINGS`.

    Args:
        reasoning_field: the field under which reasoning is sent back, such as ``reasoning_content`` for DeepSeek's
            thinking models with tools. By default none is, but for what OpenRouter wants back unchanged.
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
        max_reply_bytes: int = MAX_REPLY,
        reasoning_field: str | None = None,
    ) -> None:
        self._reasoning_field = checks.optional_text("reasoning_field", reasoning_field)
        super().__init__(
            name,
            base_url=base_url,
            api_key=api_key,
            settings=settings,
            headers=headers,
            extra_body=extra_body,
            timeouts=timeouts,
            connections=connections,
            http=http,
            max_reply_bytes=max_reply_bytes,
        )

    def _make_encoder(self, settings: Mapping[str, Any], extra_body: Mapping[str, Any]) -> ChatEncoder:
        return ChatEncoder(
            self.name,
            settings=check_chat_settings(settings),
            extra_body=check_chat_body(extra_body),
            origin=self._origin,
            reasoning_field=self._reasoning_field,
        )

    def _make_decoder(self, on_delta: OnDelta) -> ChatDecoder:
        return ChatDecoder(self.name, on_delta, self._origin)
