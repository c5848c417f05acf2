"""Random conversations as a session sends them: they grow, are edited, cut and shortened, and go back to another branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import strategies as st

from tests.models.requests import TOOL, message
from turnstate.models.base import ToolDefinition
from turnstate_states.content import File, Hosted, Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from turnstate_states.transcript import Message

__all__ = ["Draw", "Step", "conversations"]

Draw = Callable[[st.SearchStrategy[Any]], Any]


@attrs.frozen
class Step:
    """What one request holds."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...]
    settings: dict[str, Any]
    instructions: str = ""
    additions: tuple[str, ...] = ()


PICTURE = Image("data:image/png;base64,AAAA")
SHOWN: st.SearchStrategy[Part] = st.sampled_from(
    [Text("a"), Text("b\n"), Text(" "), Text("é\x00"), PICTURE, File("data:text/plain,x", "f.txt")]
)
THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
ITEM = {"type": "message", "id": "msg_1", "role": "assistant"}
SAID: st.SearchStrategy[Part] = st.one_of(
    st.sampled_from([Text("a"), Text(" "), Refusal("r"), Reasoning("hm"), PICTURE]),
    st.sampled_from(
        [
            Reasoning("hm", provider={"openai_chat": {"origin": "", "reasoning_details": [{"data": "x"}]}}),
            Reasoning("hm", provider={"anthropic_messages": {"type": "thinking", "signature": "s"}}),
            Reasoning("hm", provider={"gemini": {"thought": True}}),
            Text("c", provider={"gemini": {"thoughtSignature": "s"}}),
            Text("d", provider={"openai_responses": {"origin": "", "item": ITEM, "part": {"type": "output_text"}}}),
            Reasoning("hm", provider={"openai_responses": {"origin": "", "item": THOUGHT}}),
            Reasoning(
                "hm", provider={"openai_responses": {"origin": "", "item": {**THOUGHT, "encrypted_content": "x"}}}
            ),
        ]
    ),
)
HOSTED: list[Part] = [
    Hosted("search", provider={"anthropic_messages": {"block": {"type": kind, name: id}}})
    for id in ("s", "t")
    for kind, name in (("server_tool_use", "id"), ("web_search_tool_result", "tool_use_id"))
]
NAMES = st.sampled_from(["f", "f", "odd name", "x.y", ""])
ASKED: dict[str, Any] = {"type": "function_call", "id": "fc_1", "status": "completed"}
PROVIDERS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"gemini": {"thoughtSignature": "s"}}, {"openai_responses": {"origin": "", "item": ASKED}}]
)
TOOLS = st.sampled_from([(TOOL,), (TOOL,), (TOOL, ToolDefinition("x.y", "", {})), ()])


def conversations(settings: list[dict[str, Any]]) -> st.SearchStrategy[list[Step]]:
    """Requests of one session, each with one of these settings."""
    return _conversations(settings)


@st.composite
def _conversations(draw: Draw, settings: list[dict[str, Any]]) -> list[Step]:
    messages: list[Message] = []
    before = [messages]
    steps: list[Step] = []
    hosted = draw(st.booleans())
    for _ in range(draw(st.integers(1, 8))):
        messages = _changed(draw, messages, before, hosted)
        before.append(messages)
        tools, chosen = (TOOL,), settings[0]
        instructions, additions = "", ()
        if not draw(st.integers(0, 3)):
            tools, chosen = draw(TOOLS), draw(st.sampled_from(settings))
            instructions, additions = draw(st.sampled_from(["", "be brief"])), draw(st.sampled_from([(), ("now",)]))
        steps.append(Step(tuple(messages), tools, chosen, instructions, additions))
    return steps


def _changed(draw: Draw, messages: list[Message], before: list[list[Message]], hosted: bool) -> list[Message]:
    """The conversation grown, as mostly, or changed otherwise."""
    place = draw(st.integers(0, len(messages)))
    end = draw(st.integers(place, len(messages)))
    match draw(st.integers(0, 13)):
        case 0:
            return [*messages[:place], *messages[end:]]
        case 1:
            return [*messages[:place], *_more(draw, hosted), *messages[end:]]
        case 2:
            return messages[:place]
        case 3:
            return messages[place:]
        case 4:
            return [*draw(st.sampled_from(before)), *_more(draw, hosted)]
        case 5:
            # Equal messages, but other objects.
            return [*messages[:place], *(attrs.evolve(one) for one in messages[place:end]), *messages[end:]]
        case 6:
            return [*messages, *messages[place:end]]
        case 7:
            return messages
        case _:
            return [*messages, *(one for _ in range(draw(st.integers(1, 4))) for one in _more(draw, hosted))]


def _more(draw: Draw, hosted: bool) -> list[Message]:
    """What a person or the instructions say, or a reply with the results of its calls, mostly whole and in order."""
    kind = draw(st.integers(0, 9))
    if kind < 2:
        return [message("user", *draw(st.lists(SHOWN, max_size=2)))]
    if kind == 2:
        return [message("system", draw(st.sampled_from(["s", " "])))]
    reply = _reply(draw, hosted=hosted and kind in (3, 5, 7))
    results = [_result(draw, call.id) for call in reply.calls]
    if kind == 4:
        results = draw(st.lists(st.sampled_from(results), max_size=3)) if results else [_result(draw, "m0.0")]
    return [reply, *results]


def _reply(draw: Draw, *, hosted: bool) -> Message:
    parts: list[Part] = draw(st.lists(SAID, max_size=2))
    if hosted:
        parts += draw(st.lists(st.sampled_from(HOSTED), min_size=1, max_size=2))
    reply = message("assistant", model=draw(st.sampled_from(["", "gemini-2.5-pro"])))
    for number in range(draw(st.sampled_from([0, 1, 1, 2]))):
        id = draw(st.sampled_from(["", "x", "y.z", f"p{reply.id}{number}"]))
        call = ToolCall(f"{reply.id}.{number}", draw(NAMES), '{"a":1}', provider_id=id, provider=draw(PROVIDERS))
        parts.append(call)
    return attrs.evolve(reply, parts=tuple(parts))


def _result(draw: Draw, call: str) -> Message:
    images = draw(st.sampled_from([(), (), (PICTURE,), (PICTURE, Image("https://x/y.png"))]))
    return message("tool", ToolResult(call, draw(st.sampled_from(["ok", " "])), images=images))
