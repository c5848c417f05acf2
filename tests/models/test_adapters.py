"""What the adapters of all protocols do alike: what they refuse, where their defaults come from, when httpx is loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.models.exchanges import CANARY, everything_told, hello, ignore
from turnstate import Agent, Engine, MemoryStore
from turnstate.models import Anthropic, Fallback, Gemini, OpenAIChat, OpenAIResponses, Timeouts
from turnstate_states.errors import InvalidInput, ModelError

Adapter = type[OpenAIChat | OpenAIResponses | Anthropic | Gemini]
ADAPTERS: list[Adapter] = [OpenAIChat, OpenAIResponses, Anthropic, Gemini]
every_adapter = pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)

BAD: list[dict[str, Any]] = [
    {"name": ""},
    {"name": " "},
    {"base_url": "localhost:8000/v1"},
    {"base_url": "http://"},
    {"base_url": "http://a b/"},
    {"base_url": "http://[x/"},
    {"base_url": "http://host:99999999/"},
    {"settings": {"nope": 1}},
    {"headers": {"a b": "c"}},
    {"connections": 0},
]
OURS: list[Callable[[], object]] = [
    partial(OpenAIChat, "m", extra_body={"messages": []}),
    partial(OpenAIResponses, "m", extra_body={"input": []}),
    partial(Anthropic, "m", extra_body={"messages": []}),
    partial(Gemini, "m", extra_body={"contents": []}),
    partial(Timeouts, idle=0),
    partial(Timeouts, total=-1),
]
VARIABLES: list[tuple[Adapter, str]] = [
    (OpenAIChat, "OPENAI_API_KEY"),
    (OpenAIResponses, "OPENAI_API_KEY"),
    (Anthropic, "ANTHROPIC_API_KEY"),
    (Gemini, "GEMINI_API_KEY"),
    (Gemini, "GOOGLE_API_KEY"),
]


@every_adapter
@pytest.mark.parametrize("bad", BAD)
def test_bad_arguments(adapter: Adapter, bad: dict[str, Any]) -> None:
    """What cannot work is refused when the model is made."""
    arguments: dict[str, Any] = {"name": "m", **bad}
    with pytest.raises(InvalidInput):
        adapter(**arguments)


@pytest.mark.parametrize("make", OURS)
def test_bad_arguments_of_its_own(make: Callable[[], object]) -> None:
    """So are fields of the body that only the adapter can fill, and limits that are none."""
    with pytest.raises(InvalidInput):
        make()


@pytest.mark.parametrize("key", [f"{CANARY}\nx", f"{CANARY}é", f"{CANARY}\x01", f"{CANARY}\x00"])
@pytest.mark.parametrize("way", ["argument", "environment", "header"])
@pytest.mark.parametrize(("adapter", "variable"), VARIABLES)
def test_bad_keys_are_refused_without_an_echo(
    adapter: Adapter, variable: str, key: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 119: a key that no header can carry is refused at once; the text does not hold it."""
    if way == "environment":
        # An environment cannot hold NUL.
        monkeypatch.setenv(variable, key.replace("\x00", "\x01"))
    api_key = key if way == "argument" else None
    with pytest.raises(InvalidInput) as caught:
        adapter("m", api_key=api_key, headers={"X-Key": key} if way == "header" else {})
    assert CANARY not in everything_told(caught.value)


@pytest.mark.parametrize(
    ("adapter", "settings", "text"),
    [
        (OpenAIChat, {"temperature": "hot"}, "temperature"),
        (OpenAIResponses, {"seed": 1}, "seed"),
        (Anthropic, {"thinking_budget": 9}, "1024"),
        (Gemini, {"temperature": "hot"}, "temperature"),
    ],
)
async def test_bad_settings_of_a_turn(adapter: Adapter, settings: dict[str, Any], text: str) -> None:
    """A setting of a turn that cannot be sent is an error before anything is sent."""
    sent = hello()
    sent.settings = settings
    with pytest.raises(ModelError, match=text) as caught:
        await adapter("m", base_url="http://127.0.0.1:9/v1").respond(sent, ignore)
    assert caught.value.kind == "invalid-request"


@pytest.mark.parametrize(
    ("adapter", "variable", "provider", "given"),
    [
        (OpenAIChat, "OPENAI_BASE_URL", "https://api.openai.com/v1", "http://host:1/v1"),
        (OpenAIResponses, "OPENAI_BASE_URL", "https://api.openai.com/v1", "http://host:1/v1"),
        (Anthropic, "ANTHROPIC_BASE_URL", "https://api.anthropic.com", "http://host:1"),
    ],
)
def test_the_url_of_the_environment(
    adapter: Adapter, variable: str, provider: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL comes from the argument, the environment or is the provider's; nothing secret of it is shown."""
    monkeypatch.delenv(variable, raising=False)
    assert repr(adapter("m")) == f"{adapter.__name__}('m', base_url={provider!r})"
    monkeypatch.setenv(variable, "http://me:secret@host:1/v1/")
    assert repr(adapter("m")) == f"{adapter.__name__}('m', base_url={given!r})"
    monkeypatch.setenv(variable, "http://other/v1")
    assert repr(adapter("m", base_url="http://host:1/v1")) == f"{adapter.__name__}('m', base_url={given!r})"


def test_a_url_with_the_path() -> None:
    """A base URL that holds the path already is shown without it."""
    assert repr(OpenAIChat("m", base_url="http://h/v1/chat/completions")) == "OpenAIChat('m', base_url='http://h/v1')"


def test_httpx_is_imported_only_when_needed() -> None:
    """Making a model of any provider does not import httpx."""
    code = """
import sys
from turnstate.models import resolve
for provider in ("openai", "openai-chat", "anthropic", "gemini"):
    resolve(f"{provider}:m")
    assert "httpx" not in sys.modules, provider
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@every_adapter
async def test_a_turn_with_settings_that_no_model_knows_is_never_begun(adapter: Adapter) -> None:
    """Settings of a turn are checked before anything is written, for a fallback by all of its models."""
    model = Fallback(adapter("m", api_key="k"))
    model.check_settings({"temperature": 0.5})
    async with Engine(Agent(model), MemoryStore()) as engine:
        session = engine.session("s")
        with pytest.raises(InvalidInput, match="temprature"):
            session.turn("hi", settings={"temprature": 1})
        with pytest.raises(InvalidInput, match="temprature"):
            await session.regenerate("m1", settings={"temprature": 1})
        assert (await session.info()).last_event == 0
