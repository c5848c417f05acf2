"""The adapter of OpenAI Responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import OnDelta
from ..openai.model import OpenAIModel
from .decode import ResponsesDecoder
from .encode import ResponsesEncoder
from .settings import check_responses_body, check_responses_settings

__all__ = ["OpenAIResponses"]


class OpenAIResponses(OpenAIModel):
    """A model behind ``POST BASE_URL/responses``, at OpenAI or at another server that speaks it.

    Every request holds the whole conversation, and the server is asked to store nothing (the setting ``store`` changes
    that). What it needs back, encrypted reasoning above all, is kept in the messages and sent as it came.

    Takes what every adapter does, see :class:`~turnstate.models.wire.http_model.HTTPModel`. Without ``base_url`` the
    environment's ``OPENAI_BASE_URL`` counts, then OpenAI's own; without ``api_key`` its ``OPENAI_API_KEY``. ``settings``
    are those of :data:`~turnstate.models.openai_responses.settings.RESPONSES_SETTINGS`.
    """

    path = "responses"

    def _make_encoder(self, settings: Mapping[str, Any], extra_body: Mapping[str, Any]) -> ResponsesEncoder:
        return ResponsesEncoder(
            self.name,
            settings=check_responses_settings(settings),
            extra_body=check_responses_body(extra_body),
            origin=self._origin,
        )

    def _make_decoder(self, on_delta: OnDelta) -> ResponsesDecoder:
        return ResponsesDecoder(self.name, on_delta, self._origin)
