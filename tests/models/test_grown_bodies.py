"""Bodies that are kept and grown from request to request are those that a new encoder makes."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.models.conversations import PICTURE, Step, conversations
from tests.models.requests import TOOL, call, message, request, result
from turnstate.models.anthropic.encode import MessageEncoder
from turnstate.models.base import ToolDefinition
from turnstate.models.gemini.encode import GeminiEncoder
from turnstate.models.openai_chat.encode import ChatEncoder
from turnstate.models.openai_responses.encode import ResponsesEncoder
from turnstate.models.wire.http_model import Encoder
from turnstate_states.content import Hosted, Image, Reasoning, Text, ToolResult
from turnstate_states.errors import InvalidInput
from turnstate_states.transcript import Message

NONE: dict[str, Any] = {}
MAKERS: dict[str, Callable[[], Encoder]] = {
    "chat": lambda: ChatEncoder("m", settings={}, extra_body={}, reasoning_field="reasoning"),
    "responses": lambda: ResponsesEncoder("m", settings={}, extra_body={}),
    "messages": lambda: MessageEncoder("claude-x", settings={}, extra_body={}),
    "gemini": lambda: GeminiEncoder("gemini-2.5-pro", settings={}, extra_body={}),
    "gemini-3": lambda: GeminiEncoder("gemini-3-pro", settings={}, extra_body={}),
}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "responses": [NONE, {"store": True}, {"item_ids": False}],
    "messages": [{"cache": True}, NONE, {"thinking_budget": 2000}],
}
every_maker = pytest.mark.parametrize("name", MAKERS)


def encoded(encoder: Encoder, step: Step, cache: dict[Any, Any]) -> bytes:
    return encoder.encode(
        request(
            *step.messages,
            instructions=step.instructions,
            tools=step.tools,
            settings=step.settings,
            additions=list(step.additions),
            cache=cache,
        )
    )


def plain(*messages: Message) -> Step:
    return Step(messages, (TOOL,), {})


def long_history(size: int) -> list[Message]:
    """A question and a loop of calls and results."""
    history = [message("user", "go")]
    while len(history) < size:
        asked = message("assistant", "I look.", id=f"m{len(history)}")
        asked = attrs.evolve(asked, parts=(*asked.parts, call(f"{asked.id}.0", provider_id=f"p{len(history)}")))
        history += [asked, result(f"{asked.id}.0", "ok " * 100)]
    return history


@every_maker
@examples(150)
@given(data=st.data())
def test_a_grown_body_is_that_of_a_new_encoder(name: str, data: st.DataObject) -> None:
    """Whatever a conversation becomes from one request to the next, what is kept never changes a byte."""
    one, cache = MAKERS[name](), dict[Any, Any]()
    for step in data.draw(conversations(SETTINGS.get(name, [NONE]))):
        assert encoded(one, step, cache) == encoded(MAKERS[name](), step, {})


@every_maker
def test_one_more_step_takes_the_same_however_long_the_conversation_is(name: str) -> None:
    """What is settled is not gone through again, message by message."""
    counts: list[int] = []
    for size in (50, 500):
        one, cache, history = MAKERS[name](), dict[Any, Any](), long_history(size + 4)
        for end in (size + 1, size + 3):
            encoded(one, plain(*history[:end]), cache)
        counts.append(calls_in(lambda: encoded(one, plain(*history), cache)))  # noqa: B023 - called at once
    assert counts[0] == counts[1]


def calls_in(work: Callable[[], object]) -> int:
    """How many functions are called."""
    count = 0

    def counted(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    # Collecting garbage may call functions too.
    gc.disable()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@every_maker
def test_no_more_is_kept_than_one_body(name: str) -> None:
    """However many requests there were and whatever became of the conversation, only the last body is kept."""
    one, cache, history = MAKERS[name](), dict[Any, Any](), long_history(200)
    for end in range(2, len(history)):
        encoded(one, plain(*history[:end]), cache)
        encoded(one, plain(*history[: end - 1], message("user", "no " * 200)), cache)
    last = encoded(one, plain(*history), cache)
    assert bytes_in(cache) < 1.2 * len(last)
    encoded(one, plain(*history[-2:]), cache)
    assert bytes_in(cache) < 3_000


def bytes_in(cache: object) -> int:
    """How long all bytes are that are reachable."""
    found: dict[int, object] = {}
    rest: list[object] = [cache]
    while rest:
        value = rest.pop()
        if id(value) not in found and not isinstance(value, type):
            found[id(value)] = value
            rest += gc.get_referents(value)
    return sum(len(value) for value in found.values() if isinstance(value, bytes))


@every_maker
def test_other_tools_change_only_the_calls_that_they_name(name: str) -> None:
    """A call with an odd name keeps it while a tool has it; what was kept for other tools does not count."""
    one, cache = MAKERS[name](), dict[Any, Any]()
    history = (message("user", "go"), message("assistant", call("m1.0", name="a tool")), result("m1.0"))
    for tools in ((TOOL,), (TOOL, ToolDefinition("a tool", "", {})), ()):
        step = Step(history, tools, {})
        assert encoded(one, step, cache) == encoded(MAKERS[name](), step, {})


@every_maker
def test_pictures_of_tools_wait_for_the_end_of_their_batch(name: str) -> None:
    """A batch that grows from request to request has the pictures behind it each time."""
    one, cache = MAKERS[name](), dict[Any, Any]()
    pictures = (PICTURE, Image("https://x/y.png"))
    calls = message("assistant", *(call(f"m1.{n}", provider_id=f"p{n}") for n in range(3)))
    shown = [message("tool", ToolResult(f"m1.{n}", "see", images=pictures)) for n in range(3)]
    history = [message("user", "go"), calls, *shown, message("user", "and?"), message("assistant", "so")]
    for end in range(1, len(history) + 1):
        step = plain(*history[:end])
        assert encoded(one, step, cache) == encoded(MAKERS[name](), step, {})


def hosted(**block: str) -> Hosted:
    return Hosted("search", provider={"anthropic_messages": {"block": block}})


USE = hosted(type="server_tool_use", id="s")
ANSWER = hosted(type="web_search_tool_result", tool_use_id="s")


@pytest.mark.parametrize("between", [0, 1, 2, 3, 8])
def test_an_answer_that_comes_late(between: int) -> None:
    """A use without its answer is left out once the conversation went on, and is there again if the answer still comes."""
    exchanges = [[message("assistant", f"{n}"), message("user", "on")] for n in range(between + 5)]
    history = [message("user", "go"), message("assistant", "a", USE), message("user", "on")]
    history += [one for exchange in exchanges[:between] for one in exchange]
    history.append(message("assistant", ANSWER, "b"))
    history += [one for exchange in exchanges[between:] for one in exchange[::-1]]
    one, cache = MAKERS["messages"](), dict[Any, Any]()
    for end in (*range(1, len(history) + 1), *range(len(history), 0, -1)):
        step = plain(*history[:end])
        body = encoded(one, step, cache)
        assert body == encoded(MAKERS["messages"](), step, {})
    assert b"web_search_tool_result" in encoded(one, plain(*history), cache)


@pytest.mark.parametrize("parts", [("a",), ("a", USE), (Reasoning("unsigned"),)], ids=["said", "paused", "nothing"])
def test_marks_move_along_the_last_two_turns_of_a_person(parts: tuple[Any, ...]) -> None:
    """Whether the reply at the end adds a turn of a person or none, two turns are marked."""
    one, cache = MAKERS["messages"](), dict[Any, Any]()
    history = [message("user", "go")]
    for number in range(5):
        history += [message("assistant", f"{number}"), message("user", "on")]
        step = Step((*history, message("assistant", *parts)), (TOOL,), {"cache": True})
        turns = json.loads(encoded(one, step, cache))["messages"]
        marked = [at for at, turn in enumerate(turns) if "cache_control" in turn["content"][-1]]
        assert marked == [at for at, turn in enumerate(turns) if turn["role"] == "user"][-2:]


def test_a_request_that_cannot_be_encoded_leaves_nothing_behind() -> None:
    """What was encoded before the message that cannot be is kept, and the conversation goes on without that one."""
    one, cache, history = MAKERS["responses"](), dict[Any, Any](), long_history(5)
    item = {"type": "message", "id": "msg_1", "odd": float("nan")}
    bad = message("assistant", Text("x", provider={"openai_responses": {"origin": "", "item": item, "part": {}}}))
    with pytest.raises(InvalidInput):
        encoded(one, plain(*history, bad, message("user", "on")), cache)
    step = plain(*history, message("user", "on"))
    assert encoded(one, step, cache) == encoded(MAKERS["responses"](), step, {})
    body = json.loads(encoded(one, step, cache))
    assert body["input"][-1] == {"role": "user", "content": "on"}
