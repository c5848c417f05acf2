"""A reply of Anthropic Messages on its way back: what the provider's rules want, kept through a stored session."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.models.anthropic_rules import check, sign
from turnstate.models.anthropic.decode import MessageDecoder
from turnstate.models.anthropic.encode import MessageEncoder
from turnstate.models.anthropic.settings import check_messages_settings
from turnstate.models.base import ModelRequest, Reply, ToolDefinition
from turnstate_states.content import Citation, Hosted, Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from turnstate_states.transcript import Conversation, Message

TOOL = ToolDefinition("f", "", {})


def thinking(text: str = "hm") -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": sign(text)}


def use(id: str = "x") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "f", "input": {"a": 1}}


def search(id: str = "s") -> dict[str, Any]:
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}}


def found(id: str = "s") -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": [{"encrypted_content": "e", "url": "u"}]}


def text(said: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def reply(*blocks: dict[str, Any], reason: str = "end_turn", model: str = "claude-x") -> Reply:
    decoder = MessageDecoder(model, lambda kind, text, slot: None)
    decoder.feed(json.dumps({"type": "message", "content": blocks, "stop_reason": reason}).encode())
    decoder.end()
    return decoder.reply()


def messages(*said: Reply | tuple[Part, ...] | str | None) -> list[Message]:
    """A history: replies with their results, texts of a person; None is nobody's result."""
    history: list[Message] = []

    def add(role: Any, parts: tuple[Part, ...]) -> None:
        history.append(Message(f"m{len(history)}", None, "t", role, parts, 0.0))

    for item in said:
        if isinstance(item, str):
            add("user", (Text(item),))
        elif item is not None:
            parts = item.parts if isinstance(item, Reply) else item
            base = f"m{len(history)}"
            calls = [part for part in parts if isinstance(part, ToolCall)]
            numbered = iter(range(len(calls)))
            add(
                "assistant",
                tuple(attrs.evolve(p, id=f"{base}.{next(numbered)}") if isinstance(p, ToolCall) else p for p in parts),
            )
            for n in range(len(calls)):
                add("tool", (ToolResult(f"{base}.{n}", "ok"),))
    return history


def body(
    history: list[Message], model: str = "claude-y", additions: tuple[str, ...] = (), **settings: Any
) -> dict[str, Any]:
    encoder = MessageEncoder(model, settings=check_messages_settings(settings), extra_body={})
    return check(encoder.encode(ModelRequest("s", "t.1.1", "", tuple(history), (TOOL,), additions=list(additions))))


def said(history: list[Message], **more: Any) -> list[dict[str, Any]]:
    return [
        block for turn in body(history, **more)["messages"] if turn["role"] == "assistant" for block in turn["content"]
    ]


def test_content_goes_back_verbatim_and_in_order() -> None:
    """Cases 23 and 29: every block goes back as it came, in its order, with all that the provider put into it."""
    citation = {
        "type": "web_search_result_location",
        "url": "u",
        "title": "t",
        "cited_text": "q",
        "encrypted_index": "e",
    }
    blocks = [
        thinking(),
        {"type": "redacted_thinking", "data": "secret"},
        text("one"),
        thinking(""),
        search(),
        found(),
        text("two", citations=[citation]),
        {"type": "future", "x": [1, None]},
        thinking("more"),
        {**use(), "caller": {"type": "direct"}},
    ]
    assert said(messages("go", reply(*blocks, reason="tool_use")), thinking_budget=2000) == blocks


def test_two_rounds_with_thinking_and_tools() -> None:
    """Case 29: thinking with its signature goes back before its call, in each round of a tool loop."""
    first, second = reply(thinking("1"), use("a"), reason="tool_use"), reply(thinking("2"), use("b"), reason="tool_use")
    history = messages("go", first, second)
    assert [block["type"] for block in said(history, thinking_budget=2000)] == ["thinking", "tool_use"] * 2
    assert "thinking" in body(history, thinking_budget=2000)


@pytest.mark.parametrize(
    "change", [{"text": ""}, {"text": "hm!"}, {"provider": {}}, {"provider": {"anthropic_messages": {}}}]
)
def test_thinking_that_was_changed_is_left_out(change: dict[str, Any]) -> None:
    """Case 29: never text without its signature, never a signature without its text."""
    thought, rest = reply(thinking(), text()).parts
    history = messages("go", (attrs.evolve(thought, **change), rest), "on")
    assert said(history) == [text()]


def test_signatures_go_only_to_models_that_can_read_them() -> None:
    """Thinking and hosted items of Claude go to any Claude; those of another server's model only to that model."""
    blocks = (thinking(), search(), found(), text())
    claude, other = messages("go", reply(*blocks), "on"), messages("go", reply(*blocks, model="glm"), "on")
    assert said(claude, model="anthropic.claude-9") == list(blocks)
    assert said(other, model="glm") == list(blocks)
    assert said(claude, model="glm") == said(other, model="claude-y") == [text()]


def test_a_loop_from_elsewhere_goes_on_without_thinking() -> None:
    """In the middle of a tool loop that another provider began thinking is not asked for; afterwards it is again."""
    foreign = (Reasoning("hm", provider={"gemini": {}}), ToolCall("", "f", "{}"))
    history = messages("go", foreign)
    assert "thinking" not in body(history, thinking_budget=2000)
    assert body(history, thinking={"type": "adaptive"})["thinking"] == {"type": "adaptive"}
    assert "thinking" in body(messages("go", foreign, (Text("done"),), "on"), thinking_budget=2000)


def test_a_pause_goes_on_with_what_was_said() -> None:
    """A paused reply is the end of the next request, unchanged; what follows it joins its turn."""
    paused = reply(text(), search(), reason="pause_turn")
    history = messages("go", paused)
    assert body(history)["messages"][-1] == {"role": "assistant", "content": [text(), search()]}
    after = messages("go", paused, reply(found(), text("b")), "on")
    assert [turn["role"] for turn in body(after)["messages"]] == ["user", "assistant", "user"]
    assert said(after) == [text(), search(), found(), text("b")]


def test_a_use_that_is_never_answered_is_left_out() -> None:
    """A server tool without its result, after a limit or an interrupt, does not make later requests invalid."""
    history = messages("go", reply(text(), search(), reason="pause_turn"), "stop that")
    assert said(history) == [text()]
    assert said(messages("go", reply(search(), reason="pause_turn")), additions=("now",)) == [text("(empty)")]
    assert said(messages("go", reply(found(), text()), "on")) == [text()]


def test_a_use_that_waits_for_our_result() -> None:
    """A hosted tool that called one of ours is answered in the reply after our result, which goes alone."""
    run = {"type": "server_tool_use", "id": "c", "name": "code_execution", "input": {"code": "f()"}}
    done = {"type": "code_execution_tool_result", "tool_use_id": "c", "content": {"stdout": "1"}}
    begun = reply(run, {**use(), "caller": {"type": "code_execution_20260120", "tool_id": "c"}}, reason="tool_use")
    assert [block["type"] for block in said(messages("go", begun))] == ["server_tool_use", "tool_use"]
    kinds = [block["type"] for block in said(messages("go", begun, reply(done, text()), "on"))]
    assert kinds == ["server_tool_use", "tool_use", "code_execution_tool_result", "text"]


def test_a_refusal_without_content() -> None:
    """Case 27: a refusal that holds nothing leaves a history that the API accepts."""
    history = messages("go", reply(reason="refusal"), "something else")
    conversation = Conversation()
    for message in history:
        conversation.add(message)
    for given_ in (history, list(conversation.messages())):
        assert body(given_)["messages"][-1]["content"][-1] == text("something else")


def called(id: str, arguments: str) -> ToolCall:
    return ToolCall("", "f", arguments, provider_id=id)


PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, st.sampled_from(["a", " ", "\n", ""])),
    st.just(Text("c", citations=(Citation("u"),), provider={"anthropic_messages": {"citations": [{"type": "x"}]}})),
    st.just(Refusal("r")),
    st.sampled_from(
        [*reply(thinking(), {"type": "redacted_thinking", "data": "d"}, search(), found(), found("t")).parts]
    ),
    st.just(Reasoning("unsigned")),
    st.just(Hosted("other", provider={"gemini": {}})),
    st.just(Image("data:image/png;base64,AAAA")),
    st.builds(called, st.sampled_from(["", "x", "y.z"]), st.sampled_from(["{}", "", "[", '{"a":1}'])),
)


@examples()
@given(
    st.lists(st.one_of(st.just("u"), st.lists(PARTS, max_size=4).map(tuple)), max_size=6), st.randoms(), st.booleans()
)
def test_any_history_is_accepted(items: list[Any], random: Any, thinks: bool) -> None:
    """Cases 35, 38 and 45: whatever a history holds and lacks, the request keeps the provider's rules."""
    history = messages(*items)
    kept = [message for message in history if message.role != "tool" or random.random() < 0.7]
    twice = [message for message in kept for _ in range(2 if message.role == "tool" and random.random() < 0.2 else 1)]
    body(twice, thinking_budget=2000 if thinks else None, cache=True)
    body(twice, additions=("now",))
