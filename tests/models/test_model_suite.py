"""The public suites for models, run on the adapters here and on a model that asks no server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from turnstate.models import Anthropic, Gemini, OpenAIChat, OpenAIResponses
from turnstate.models.base import Model, ModelRequest, OnDelta, Reply
from turnstate.testing.model_rules import ModelRules
from turnstate.testing.model_suite import InProcessModelSuite, ModelSuite
from turnstate.testing.scripted import ScriptedModel
from turnstate_states.content import Text

HANDMADE = Path(__file__).with_name("handmade")


class TestOpenAIChat(ModelSuite):
    """Chat Completions."""

    text = (HANDMADE / "openai_chat" / "text.sse").read_bytes()
    calls = (HANDMADE / "openai_chat" / "calls.sse").read_bytes()

    def make_model(self, url: str) -> Model:
        return OpenAIChat("m", base_url=url)


class TestOpenAIResponses(ModelSuite):
    """Responses."""

    text = (HANDMADE / "openai_responses" / "text.sse").read_bytes()
    calls = (HANDMADE / "openai_responses" / "calls.sse").read_bytes()

    def make_model(self, url: str) -> Model:
        return OpenAIResponses("m", base_url=url)


class TestAnthropic(ModelSuite):
    """Anthropic Messages."""

    text = (HANDMADE / "anthropic_messages" / "text.sse").read_bytes()
    calls = (HANDMADE / "anthropic_messages" / "calls.sse").read_bytes()

    def make_model(self, url: str) -> Model:
        return Anthropic("m", base_url=url)


class TestGemini(ModelSuite):
    """Gemini."""

    text = (HANDMADE / "gemini" / "text.sse").read_bytes()
    calls = (HANDMADE / "gemini" / "calls.sse").read_bytes()

    def make_model(self, url: str) -> Model:
        return Gemini("m", base_url=url, api_key="k")


class TestScriptedModel(InProcessModelSuite):
    """A model that asks no server."""

    def make_model(self) -> Model:
        return ScriptedModel(lambda request: "one two three")


class Careless(Model):
    """A model that breaks one rule."""

    def __init__(self, rule: str) -> None:
        self.rule = rule

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        on_delta("text", "a" if self.rule == "text" else "ab", 0)
        if self.rule == "late":
            task = trio.lowlevel.spawn_system_task(self.later, on_delta)
            assert task
        if self.rule == "change":
            request.additions.clear()
        return Reply((Text("ab"),), stop="" if self.rule == "stop" else "stop")

    async def later(self, on_delta: OnDelta) -> None:
        await trio.sleep(0.01)
        on_delta("text", "c", 0)


@pytest.mark.parametrize("rule", ["", "text", "late", "stop", "change"])
async def test_the_suite_finds_what_is_wrong(rule: str) -> None:
    """A model that breaks a rule of the contract fails the suite; one that keeps them passes."""

    class Suite(InProcessModelSuite):
        def make_model(self) -> Model:
            return Careless(rule)

    async def run() -> None:
        await Suite().test_deltas_make_the_reply()
        await Suite().test_a_reply_may_be_asked_for_again()

    if not rule:
        await run()
        return
    with pytest.raises(AssertionError):
        await run()


MODULE = """
from turnstate.testing.model_suite import InProcessModelSuite, ModelSuite

class TestHere(InProcessModelSuite):
    pass

class TestThere(ModelSuite):
    text = b"a"

class TestCalls(TestThere):
    calls = b"b"
"""


WITHOUT = """
from turnstate.testing.model_suite import ModelSuite

class TestNothing(ModelSuite):
    pass
"""


def collected(folder: Path) -> str:
    """What pytest says when it collects the folder, whose tests it does not run."""
    root = Path(__file__).parents[2]
    paths = f"{root / 'engine'}:{root / 'states'}"
    environment = {**os.environ, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "."]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60).stdout


def test_there_are_tests_only_for_what_was_given(tmp_path: Path) -> None:
    """A model without a server has no tests with one, an adapter without an answer with calls none with calls; one
    without any answer is an error that says what to do.
    """
    (tmp_path / "test_given.py").write_text(MODULE)
    (tmp_path / "test_missing.py").write_text(WITHOUT)
    output = collected(tmp_path)
    found = re.findall(r"::(\w+)::(\w+)(.*)", output)
    names = {suite: {name for of, name, _ in found if of == suite} for suite in ("TestHere", "TestThere", "TestCalls")}
    assert names["TestHere"] == {name for name in vars(ModelRules) if name.startswith("test_")}
    assert names["TestHere"] < names["TestThere"] == names["TestCalls"]
    kinds = {
        of: {kind for suite, _, id in found if suite == of for kind in re.findall("text|calls", id)} for of in names
    }
    assert kinds == {"TestHere": set(), "TestThere": {"text"}, "TestCalls": {"text", "calls"}}
    assert "TestNothing.text is missing: give the bytes that a server answers, or derive from InProcess" in output
