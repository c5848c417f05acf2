"""Requests to Chat Completions servers: what is on the wire."""

from __future__ import annotations

from typing import Any

from tests.models.requests import TOOL, blank_history, call, message, request, result, strict_json
from turnstate.models.base import ModelRequest, ToolDefinition
from turnstate.models.openai_chat.encode import ChatEncoder
from turnstate.models.wire.encoding import EMPTY
from turnstate_states.content import File, Image, Reasoning, Refusal, Text, ToolCall, ToolResult
from turnstate_states.transcript import Message


def encoder(**more: Any) -> ChatEncoder:
    return ChatEncoder("m", settings=more.pop("settings", {}), extra_body=more.pop("extra_body", {}), **more)


def body(sent: ModelRequest, **more: Any) -> Any:
    return strict_json(encoder(**more).encode(sent))


def messages(*given: Message, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(request(*given, **more))["messages"]
    return found


def test_the_body_of_a_request() -> None:
    """Model, instructions, messages, tools, settings and the wish for a stream with usage are in the body."""
    sent = request(message("user", "hi"), instructions="be brief", tools=(TOOL,))
    assert body(sent, settings={"temperature": 0.5}, extra_body={"top_k": 3}) == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "f", "description": "does it", "parameters": dict(TOOL.parameters)},
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "top_k": 3,
    }


def test_settings_of_the_turn_come_first() -> None:
    """A turn's setting replaces the model's, and None takes it back; extra fields replace both."""
    sent = request(message("user", "hi"), settings={"temperature": 1, "seed": None})
    found = body(
        sent, settings={"temperature": 0, "seed": 4, "user": "u"}, extra_body={"user": "v", "stream_options": None}
    )
    assert (found["temperature"], found["user"]) == (1, "v")
    assert not {"seed", "stream_options"} & set(found)


def test_settings_about_tools_need_tools() -> None:
    """Without tools neither tools nor settings about them are sent, since servers refuse both."""
    settings = {"tool_choice": "auto", "parallel_tool_calls": False}
    assert not {"tools", *settings} & set(body(request(message("user", "hi")), settings=settings))
    assert {"tools", *settings} <= set(body(request(message("user", "hi"), tools=(TOOL,)), settings=settings))


def test_user_content() -> None:
    """Text alone is a string; with pictures or files it is a list of blocks; blank text is left out."""
    image, file = Image("data:image/png;base64,AA=="), File("data:application/pdf;base64,AA==", "a.pdf")
    (plain,) = messages(message("user", "a", " ", "b"))
    (mixed,) = messages(message("user", "look", "\n", image, file))
    assert plain["content"] == "a\nb"
    assert mixed["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": image.url}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": file.url}},
    ]


def test_calls_and_results_have_the_same_ids() -> None:
    """The provider's id is used where it tells the calls of a message apart, ours otherwise; results name the same."""
    calls = (call("m1.0", provider_id="a"), call("m1.1", provider_id="d"), call("m1.2", provider_id="d"), call("m1.3"))
    assistant, *results = messages(message("assistant", *calls), *(result(call.id) for call in calls))
    ids = [made["id"] for made in assistant["tool_calls"]]
    assert ids == ["a", "m1_1", "m1_2", "m1_3"] == [made["tool_call_id"] for made in results]
    assert assistant["content"] is None
    assert {made["role"] for made in results} == {"tool"}


def test_ids_hold_when_only_the_result_is_new() -> None:
    """A result that is encoded in a later request names its call as the earlier request did."""
    cache: dict[Any, Any] = {}
    asked, one = message("assistant", call("m1.0", provider_id="a")), encoder()
    one.encode(request(asked, cache=cache))
    assert strict_json(one.encode(request(asked, result("m1.0"), cache=cache)))["messages"][1]["tool_call_id"] == "a"


def test_made_up_tool_names_are_made_valid() -> None:
    """A name that servers would refuse for ever is changed, unless a tool has it."""
    names = ["f.g", "a b", "", "x" * 80]
    [assistant] = messages(
        message("assistant", *(call(f"m1.{n}", name=name) for n, name in enumerate(names))),
        tools=(ToolDefinition("f.g", "", {}),),
    )
    assert [made["function"]["name"] for made in assistant["tool_calls"]] == ["f.g", "a_b", "unnamed", "x" * 64]


def blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def test_no_blank_text_is_sent() -> None:
    """Case 45: blank replies, results and additions never become blank text, and every turn keeps its place."""
    history = [*blank_history(), message("assistant", Reasoning("hm"))]
    found = messages(*history, instructions=" \n", additions=["", " "])
    assert [made["role"] for made in found] == [made.role for made in history]
    assert not any(blank(made["content"]) for made in found)
    assert [found[n]["content"] for n in (1, 3, 5, 6, 7)] == [EMPTY, EMPTY, None, EMPTY, EMPTY]


def test_what_an_assistant_said() -> None:
    """Text and refusals go back as content, also those of an interrupted reply; reasoning does not."""
    parts = (Reasoning("hm"), Text("a"), Refusal("b"))
    [found] = messages(message("assistant", *parts, status="incomplete"))
    assert found == {"role": "assistant", "content": "ab"}


def test_reasoning_goes_back_only_where_it_is_wanted() -> None:
    """Reasoning details go back unchanged, and only to their own server; plain reasoning under the field asked for."""
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    thought = Reasoning("hm", provider={"openai_chat": {"origin": "http://a", "reasoning_details": details}})
    said = message("assistant", thought, "a")
    assert body(request(said), origin="http://a")["messages"][0]["reasoning_details"] == details
    assert "reasoning_details" not in body(request(said), origin="http://b")["messages"][0]
    assert body(request(said), reasoning_field="reasoning_content")["messages"][0]["reasoning_content"] == "hm"


def test_additions_come_last() -> None:
    """Additions are at the end of this request."""
    sent = request(message("user", "a"), message("assistant", "b"))
    sent.add("one")
    sent.add("two \ud800")
    assert body(sent)["messages"][2:] == [{"role": "user", "content": "one\n\ntwo \ufffd"}]


def test_neighbours_of_a_person_are_one_message() -> None:
    """Messages of a person that follow each other, and additions, are one, because chat templates refuse two in a row."""
    sent = request(message("user", "a"), message("user", "b", Image("data:image/png;base64,AA==")))
    sent.add("c")
    (said,) = body(sent)["messages"]
    texts = [block.get("text") for block in said["content"]]
    assert (said["role"], texts) == ("user", ["a", "b", None, "c"])
    assert body(request(message("user", "a"), message("user", "b")))["messages"] == [
        {"role": "user", "content": "a\n\nb"}
    ]


def test_pictures_of_tools_follow_their_batch() -> None:
    """What a tool shows stands in a person's message behind the results of its batch, with what a person says then."""
    calls = message("assistant", ToolCall("c0", "f", "{}", "a"), ToolCall("c1", "f", "{}", "b"))
    shows = message("tool", ToolResult("c0", "see", images=(Image("data:image/png;base64,AA=="),)))
    sent = body(request(calls, shows, message("tool", ToolResult("c1", "no")), message("user", "and?")))["messages"]
    assert [said["role"] for said in sent] == ["assistant", "tool", "tool", "user"]
    assert [block["type"] for block in sent[-1]["content"]] == ["image_url", "text"]


def test_two_models_do_not_share_what_they_encoded() -> None:
    """Encoders with one cache keep apart what they made."""
    cache: dict[Any, Any] = {}
    said = message("assistant", Reasoning("hm"), "a")
    encoder(reasoning_field="x").encode(request(said, cache=cache))
    assert "x" not in strict_json(encoder().encode(request(said, cache=cache)))["messages"][0]
