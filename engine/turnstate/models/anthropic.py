"""Anthropic Messages, and the servers that speak it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from turnstate_states.errors import ModelError

from .anthropic_decode import MessageDecoder
from .anthropic_encode import MessageEncoder
from .anthropic_settings import check_messages_body, check_messages_settings
from .base import ModelRequest, OnDelta
from .endpoint import check_key
from .http import HTTPOptions, Timeouts
from .openai_errors import response_error
from .openai_model import ApiKey, OpenAIModel

__all__ = ["Anthropic"]

_DEFAULT_URL = "https://api.anthropic.com"
_VARIABLE = "ANTHROPIC_API_KEY"


class Anthropic(OpenAIModel):
    """A model behind ``POST BASE_URL/v1/messages``.

    Args:
        name: the model's name on the server.
        base_url: where the server is, with or without ``/v1`` at its end; otherwise the environment's
            ``ANTHROPIC_BASE_URL``, otherwise Anthropic. A query in it is kept.
        api_key: the key; otherwise the environment's ``ANTHROPIC_API_KEY``; without one no ``x-api-key`` is sent, as local
            servers want it.
        settings: see :data:`~turnstate.models.anthropic_settings.MESSAGES_SETTINGS`. Those of a turn come before them.
        headers: further headers of each request, such as ``anthropic-beta``; one that authorizes takes the key's place.
        extra_body: further fields of each request's body. None leaves a field out.
        timeouts: limits in seconds.
        connections: how many requests may be under way at once; more of them wait.
        http: proxy, certificates and HTTP/2, see :class:`~turnstate.models.HTTPOptions`.

    Raises:
        InvalidInput: a value is wrong. The text never holds the key.
    """

    path = "v1/messages"

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
        if api_key is None:
            _key_of_environment()
        super().__init__(
            name,
            base_url=_root(base_url or os.environ.get("ANTHROPIC_BASE_URL") or _DEFAULT_URL),
            api_key=_key_of_environment if api_key is None else api_key,
            headers=headers,
            timeouts=timeouts,
            connections=connections,
            http=http,
        )
        self._encoder = MessageEncoder(
            name, settings=check_messages_settings(settings or {}), extra_body=check_messages_body(extra_body or {})
        )

    def _standing_headers(self) -> dict[str, str]:
        return {"anthropic-version": "2023-06-01"}

    def _authorize(self, key: str) -> dict[str, str]:
        return {"x-api-key": key}

    def _failed(self, status: int, answer: Mapping[str, str], text: bytes, *, with_key: bool) -> ModelError:
        return response_error(status, answer, text, self._origin, with_key=with_key, variable=_VARIABLE)

    def _body(self, request: ModelRequest) -> bytes:
        return self._encoder.encode(request)

    def _decoder(self, on_delta: OnDelta) -> MessageDecoder:
        return MessageDecoder(self.name, on_delta)


def _key_of_environment() -> str:
    return check_key(os.environ.get(_VARIABLE, ""), _VARIABLE)


def _root(url: str) -> str:
    """The URL without ``/v1``, which is often given because other protocols want it."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return url
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")))
