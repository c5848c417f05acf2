"""Models by name."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from turnstate.models import OpenAIChat, OpenAIResponses
from turnstate.models.base import Model, ModelRequest, OnDelta, Reply
from turnstate.models.naming import resolve
from turnstate_states.errors import InvalidInput


class Named(Model):
    """Stands for an adapter that is not imported before it is asked for."""

    def __init__(self, name: str, *, api_key: str = "") -> None:
        self.name = name
        self.api_key = api_key

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        """Never asked."""
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.mark.parametrize(
    ("name", "kind", "shown"),
    [
        ("openai:gpt-5", OpenAIResponses, "OpenAIResponses('gpt-5', base_url='https://api.openai.com/v1')"),
        (
            " OpenAI: ft:gpt-4.1:me ",
            OpenAIResponses,
            "OpenAIResponses('ft:gpt-4.1:me', base_url='https://api.openai.com/v1')",
        ),
        ("openai-chat:gpt-5", OpenAIChat, "OpenAIChat('gpt-5', base_url='https://api.openai.com/v1')"),
        ("http://host:8000/v1#org/m:1#2", OpenAIChat, "OpenAIChat('org/m:1#2', base_url='http://host:8000/v1')"),
        ("https://host/v1/#m", OpenAIChat, "OpenAIChat('m', base_url='https://host/v1')"),
    ],
)
def test_names(name: str, kind: type[Model], shown: str) -> None:
    """A provider and a name, or an address and a name, are a model."""
    made = resolve(name)
    assert type(made) is kind
    assert repr(made) == shown


@pytest.mark.parametrize(("provider", "kind"), [("anthropic", "Anthropic"), ("gemini", "Gemini")])
def test_other_providers(monkeypatch: pytest.MonkeyPatch, provider: str, kind: str) -> None:
    """The adapter's module is imported when its name is asked for, and gets the options."""
    fake = ModuleType(f"turnstate.models.{provider}.model")
    setattr(fake, kind, Named)
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    made = resolve(f"{provider}:big-1", api_key="k")
    assert isinstance(made, Named)
    assert (made.name, made.api_key) == ("big-1", "k")


def test_options_go_to_the_adapter() -> None:
    """Everything else that an adapter takes can be given beside the name."""
    assert "http://h/v1" in repr(resolve("openai:m", base_url="http://h/v1", settings={"max_tokens": 5}))
    for name, options in (("openai:m", {"nope": 1}), ("openai:m", {"settings": {"nope": 1}})):
        with pytest.raises(InvalidInput, match="nope"):
            resolve(name, **options)


@pytest.mark.parametrize(
    "name", ["", "gpt-5", "openai", "openai:", "openai: ", "mistral:x", "http:x", "ftp://host#m", "file:///x#m", ":x"]
)
def test_names_that_are_none(name: str) -> None:
    """A name of another form is refused with a text that tells the forms."""
    with pytest.raises(InvalidInput, match=r"openai:NAME.*anthropic:NAME.*http://HOST:PORT/v1#NAME"):
        resolve(name)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("http://me:secret@host/v1", {}, "lacks the model's name"),
        ("http://me:secret@host/v1# ", {}, "lacks the model's name"),
        ("http://me:secret@host/v1#m", {"base_url": "http://other"}, "base_url"),
        ("http://#m", {}, "base_url"),
    ],
)
def test_addresses_that_are_none(name: str, options: dict[str, Any], text: str) -> None:
    """An address without a name, or with another one beside it, is refused; nothing secret of it is shown."""
    with pytest.raises(InvalidInput, match=text) as caught:
        resolve(name, **options)
    assert "secret" not in str(caught.value)
