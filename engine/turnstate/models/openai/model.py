"""Where OpenAI is, for the adapters of both of its protocols."""

from __future__ import annotations

from ..wire.http_model import HTTPModel

__all__ = ["OpenAIModel"]


class OpenAIModel(HTTPModel):
    """A model behind one path of an OpenAI server, or of one like it."""

    default_url = "https://api.openai.com/v1"
    url_variable = "OPENAI_BASE_URL"
    key_variables = ("OPENAI_API_KEY",)
