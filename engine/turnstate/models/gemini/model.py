"""The adapter of Google Gemini."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from turnstate_states.errors import InvalidInput, ModelError

from ..base import OnDelta
from ..wire.endpoint import shown_url
from ..wire.http_model import HTTPModel
from .decode import GeminiDecoder
from .encode import GeminiEncoder
from .errors import response_error
from .settings import check_gemini_body, check_gemini_settings

__all__ = ["Gemini"]


class Gemini(HTTPModel):
    """A model behind ``POST BASE_URL/models/NAME:streamGenerateContent?alt=sse``, at Google or at another server.

    Takes what every adapter does, see :class:`~turnstate.models.wire.http_model.HTTPModel`. A ``name`` with a slash in it
    is a path of its own, such as ``tunedModels/mine``. Without ``base_url`` Google's own counts; for Vertex AI it ends with
    ``/publishers/google``. Without ``api_key`` the environment's ``GEMINI_API_KEY`` counts, then ``GOOGLE_API_KEY``; it is
    sent in a header and never in the URL, and the header ``Authorization``, as Vertex AI wants it, takes its place.
    ``settings`` are those of :data:`~turnstate.models.gemini.settings.GEMINI_SETTINGS`. Of ``extra_body``,
    ``generationConfig`` and ``toolConfig`` are merged with what the settings make of them, and ``tools`` (hosted ones) are
    sent besides the agent's.
    """

    tells_cost = False
    path = "streamGenerateContent"
    default_url = "https://generativelanguage.googleapis.com/v1beta"
    key_variables = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    key_headers = frozenset({"authorization", "x-goog-api-key"})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={shown_url(self._secret_base.reveal())!r})"

    def _make_encoder(self, settings: Mapping[str, Any], extra_body: Mapping[str, Any]) -> GeminiEncoder:
        return GeminiEncoder(
            self.name, settings=check_gemini_settings(settings), extra_body=check_gemini_body(extra_body)
        )

    def _make_decoder(self, on_delta: OnDelta) -> GeminiDecoder:
        return GeminiDecoder(self.name, on_delta)

    def _endpoint(self, base: str) -> str:
        parts = urlsplit(base)
        query = parse_qsl(parts.query, keep_blank_values=True)
        if any(field.lower() == "key" for field, _ in query):
            raise InvalidInput("base_url: leave the key out of the URL, where logs would show it; pass it as api_key")
        path, name = parts.path.rstrip("/"), self.name.strip()
        if not path.endswith(f":{self.path}"):
            path += f"/{quote(name if '/' in name else f'models/{name}', safe='/-._~@:')}:{self.path}"
        query_text = "&".join(filter(None, (parts.query, "" if ("alt", "sse") in query else "alt=sse")))
        return urlunsplit(parts._replace(path=path, query=query_text))

    def _authorize(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def _failed(self, status: int, answer: Mapping[str, str], text: bytes, *, with_key: bool) -> ModelError:
        return response_error(status, answer, text, self._origin, with_key=with_key)
