"""OpenAI Responses, and the servers that speak it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import ModelRequest, OnDelta
from .http import HTTPOptions, Timeouts
from .openai_model import ApiKey, OpenAIModel
from .openai_responses_decode import ResponsesDecoder
from .openai_responses_encode import ResponsesEncoder
from .openai_responses_settings import RESERVED, check_responses_settings
from .openai_settings import check_extra_body

__all__ = ["OpenAIResponses"]


class OpenAIResponses(OpenAIModel):
    """A model behind ``POST BASE_URL/responses``.

    Every request holds the whole conversation, and the server is asked to store nothing (the setting ``store`` changes
    that). What it needs back, encrypted reasoning above all, is kept in the messages and sent as it came.

    Args:
        name: the model's name on the server.
        base_url: where the server is, such as ``http://localhost:8000/v1``; otherwise the environment's
            ``OPENAI_BASE_URL``, otherwise OpenAI. A query in it is kept.
        api_key: the key; otherwise the environment's ``OPENAI_API_KEY``; without one no ``Authorization`` is sent, as
            local servers want it.
        settings: see :data:`~turnstate.models.openai_responses_settings.RESPONSES_SETTINGS`. Those of a turn come before
            them.
        headers: further headers of each request.
        extra_body: further fields of each request's body, for what only one server knows. None leaves a field out:
            ``{"include": None}`` for a server that refuses it.
        timeouts: limits in seconds.
        connections: how many requests may be under way at once; more of them wait.
        http: proxy, certificates and HTTP/2, see :class:`~turnstate.models.HTTPOptions`.

    Raises:
        InvalidInput: a value is wrong. The text never holds the key.
    """

    path = "responses"

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
        self._encoder = ResponsesEncoder(
            name,
            settings=check_responses_settings(settings or {}),
            extra_body=check_extra_body(extra_body or {}, RESERVED),
            origin=self._origin,
        )

    def _body(self, request: ModelRequest) -> bytes:
        return self._encoder.encode(request)

    def _decoder(self, on_delta: OnDelta) -> ResponsesDecoder:
        return ResponsesDecoder(self.name, on_delta, self._origin)
