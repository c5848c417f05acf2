"""The adapter of Anthropic Messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ..base import OnDelta
from ..wire.http_model import HTTPModel
from .decode import MessageDecoder
from .encode import MessageEncoder
from .settings import check_messages_body, check_messages_settings

__all__ = ["Anthropic"]


class Anthropic(HTTPModel):
    """A model behind ``POST BASE_URL/v1/messages``, at Anthropic or at another server that speaks it.

    Takes what every adapter does, see :class:`~turnstate.models.wire.http_model.HTTPModel`. ``base_url`` may end with
    ``/v1``; without it the environment's ``ANTHROPIC_BASE_URL`` counts, then Anthropic's own; without ``api_key`` its
    ``ANTHROPIC_API_KEY``. ``settings`` are those of :data:`~turnstate.models.anthropic.settings.MESSAGES_SETTINGS`;
    ``headers`` take ``anthropic-beta``.
    """

    tells_cost = False
    path = "v1/messages"
    default_url = "https://api.anthropic.com"
    url_variable = "ANTHROPIC_BASE_URL"
    key_variables = ("ANTHROPIC_API_KEY",)

    def _make_encoder(self, settings: Mapping[str, Any], extra_body: Mapping[str, Any]) -> MessageEncoder:
        return MessageEncoder(
            self.name, settings=check_messages_settings(settings), extra_body=check_messages_body(extra_body)
        )

    def _make_decoder(self, on_delta: OnDelta) -> MessageDecoder:
        return MessageDecoder(self.name, on_delta)

    def _endpoint(self, base: str) -> str:
        parts = urlsplit(base)
        # Other protocols want /v1 in the base URL, so it is often given.
        root = parts.path.rstrip("/").removesuffix("/v1")
        return super()._endpoint(urlunsplit(parts._replace(path=root)))

    def _standing_headers(self) -> dict[str, str]:
        return {"anthropic-version": "2023-06-01"}

    def _authorize(self, key: str) -> dict[str, str]:
        return {"x-api-key": key}
