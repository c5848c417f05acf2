"""Google Gemini, and the servers that speak its protocol."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from turnstate_states.errors import InvalidInput, ModelError

from .base import ModelRequest, OnDelta
from .endpoint import check_key, check_url, shown_url
from .gemini_decode import GeminiDecoder
from .gemini_encode import GeminiEncoder
from .gemini_errors import response_error
from .gemini_settings import check_gemini_body, check_gemini_settings
from .http import Channel, HTTPOptions, Timeouts
from .openai_model import ApiKey, OpenAIModel

__all__ = ["Gemini"]

_DEFAULT_URL = "https://generativelanguage.googleapis.com/v1beta"
_VARIABLES = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_METHOD = "streamGenerateContent"


class Gemini(OpenAIModel):
    """A model behind ``POST BASE_URL/models/NAME:streamGenerateContent?alt=sse``.

    Args:
        name: the model's name, such as ``gemini-3-flash-preview``; with a slash in it it is a path of its own, such as
            ``tunedModels/mine``.
        base_url: where the server is; otherwise Google's own. For Vertex AI it ends with ``/publishers/google``.
        api_key: the key, sent in a header and never in the URL; otherwise the environment's ``GEMINI_API_KEY``, otherwise
            ``GOOGLE_API_KEY``.
        settings: see :data:`~turnstate.models.gemini_settings.GEMINI_SETTINGS`. Those of a turn come before them.
        headers: further headers of each request; ``Authorization``, as Vertex AI wants it, takes the key's place.
        extra_body: further fields of each request's body, such as ``safetySettings``; see
            ``check_gemini_body``.
        timeouts: limits in seconds.
        connections: how many requests may be under way at once; more of them wait.
        http: proxy, certificates and HTTP/2, see :class:`~turnstate.models.HTTPOptions`.

    Raises:
        InvalidInput: a value is wrong. The text never holds the key.
    """

    path = _METHOD
    key_headers = frozenset({"authorization", "x-goog-api-key"})

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
        base = check_url(base_url or _DEFAULT_URL)
        super().__init__(
            name,
            base_url=base,
            api_key=_key_of_environment if api_key is None else api_key,
            headers=headers,
            timeouts=timeouts,
            connections=connections,
            http=http,
        )
        self._url = _stream_url(base, name.strip())
        self._origin = shown_url(self._url)
        self._base = shown_url(base)
        self._channel = Channel(self._url, timeouts or Timeouts(), connections, http)
        self._encoder = GeminiEncoder(
            name, settings=check_gemini_settings(settings or {}), extra_body=check_gemini_body(extra_body or {})
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={self._base!r})"

    def _authorize(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def _failed(self, status: int, answer: Mapping[str, str], text: bytes, *, with_key: bool) -> ModelError:
        return response_error(status, answer, text, self._origin, with_key=with_key)

    def _body(self, request: ModelRequest) -> bytes:
        return self._encoder.encode(request)

    def _decoder(self, on_delta: OnDelta) -> GeminiDecoder:
        return GeminiDecoder(self.name, on_delta)


def _key_of_environment() -> str:
    for variable in _VARIABLES:
        if key := check_key(os.environ.get(variable, ""), variable):
            return key
    return ""


def _stream_url(base: str, name: str) -> str:
    parts = urlsplit(base)
    query = parse_qsl(parts.query, keep_blank_values=True)
    if any(field.lower() == "key" for field, _ in query):
        raise InvalidInput("base_url: leave the key out of the URL, where logs would show it; pass it as api_key")
    path = parts.path.rstrip("/")
    if not path.endswith(f":{_METHOD}"):
        path += f"/{quote(name if '/' in name else f'models/{name}', safe='/-._~@:')}:{_METHOD}"
    query_text = "&".join(filter(None, (parts.query, "" if ("alt", "sse") in query else "alt=sse")))
    return urlunsplit(parts._replace(path=path, query=query_text))
