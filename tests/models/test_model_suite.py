"""The public suite for models, run on the adapters here and on a model without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from turnstate.models import Anthropic, OpenAIChat
from turnstate.models.base import Model, ModelRequest, OnDelta, Reply
from turnstate.testing.model_suite import ModelSuite
from turnstate.testing.scripted import ScriptedModel
from turnstate_states.content import Text


def events(*values: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def fragment(**function: str) -> dict[str, Any]:
    return chunk({"tool_calls": [{"index": 0, "id": "c", "function": function}]})


USAGE = {"prompt_tokens": 3, "completion_tokens": 2}


class TestOpenAIChat(ModelSuite):
    """Chat Completions."""

    text = (
        events(chunk({"content": "Hé"}), chunk({"content": "llo"}), chunk({}, "stop", usage=USAGE))
        + b"data: [DONE]\n\n"
    )
    calls = (
        events(
            chunk({"reasoning_content": "hm"}),
            fragment(name="add", arguments='{"a":'),
            fragment(arguments="1}"),
            chunk({}, "tool_calls", usage=USAGE),
        )
        + b"data: [DONE]\n\n"
    )

    def make_model(self, url: str) -> Model:
        return OpenAIChat("m", base_url=url)


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    pieces = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    opened = {"type": "content_block_start", "index": index, "content_block": start}
    return [opened, *pieces, {"type": "content_block_stop", "index": index}]


def said(*blocks: list[dict[str, Any]], reason: str) -> bytes:
    start = {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}}
    stop = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}}
    return events(
        start, {"type": "ping"}, *(item for items in blocks for item in items), stop, {"type": "message_stop"}
    )


WORDS = [{"type": "text_delta", "text": text} for text in ("Hé", "llo")]
THOUGHTS = [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "s"}]
PIECES = [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"a":', "1}")]


class TestAnthropic(ModelSuite):
    """Anthropic Messages."""

    text = said(block(0, {"type": "text", "text": ""}, *WORDS), reason="end_turn")
    calls = said(
        block(0, {"type": "thinking", "thinking": "", "signature": ""}, *THOUGHTS),
        block(1, {"type": "tool_use", "id": "x", "name": "add", "input": {}}, *PIECES),
        block(2, {"type": "tool_use", "id": "y", "name": "add", "input": {}}),
        reason="tool_use",
    )

    def make_model(self, url: str) -> Model:
        return Anthropic("m", base_url=url)


class TestScriptedModel(ModelSuite):
    """A model without a server: the tests that need one are skipped."""

    def make_model(self, url: str) -> Model:
        assert url == ""
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

    class Suite(ModelSuite):
        def make_model(self, url: str) -> Model:
            return Careless(rule)

    async def run() -> None:
        await Suite().test_deltas_make_the_reply("text")
        await Suite().test_a_reply_may_be_asked_for_again()

    if not rule:
        await run()
        return
    with pytest.raises(AssertionError):
        await run()
