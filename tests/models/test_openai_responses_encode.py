"""Requests to Responses servers: what is on the wire, and what goes back where."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.models.requests import COUNTER, TOOL, blank_history, call, message, request, result, strict_json
from tests.models.test_openai_responses_decode import ITEMS
from turnstate.models.base import ModelRequest, Reply, ToolDefinition
from turnstate.models.openai_responses import PROTOCOL
from turnstate.models.openai_responses.decode import ResponsesDecoder
from turnstate.models.openai_responses.encode import ResponsesEncoder
from turnstate.models.openai_responses.parts import CALLS
from turnstate_states.content import (
    Audio,
    File,
    Hosted,
    Image,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Message

CLOSED: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def encoder(model: str = "m", **more: Any) -> ResponsesEncoder:
    return ResponsesEncoder(model, settings=more.pop("settings", {}), extra_body=more.pop("extra_body", {}), **more)


def body(sent: ModelRequest, **more: Any) -> Any:
    return strict_json(encoder(**more).encode(sent))


def items(*given: Message, origin: str = "http://a", **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(request(*given), origin=origin, **more)["input"]
    return found


def replied(*output: dict[str, Any], origin: str = "http://a") -> Message:
    """What a message becomes of a reply with these output items."""
    decoder = ResponsesDecoder("m", lambda kind, text, slot: None, origin)
    last = {"type": "response.completed", "response": {"status": "completed", "output": list(output)}}
    decoder.feed(b"data: " + json.dumps(last).encode() + b"\n\n")
    reply: Reply = decoder.reply()
    name = f"m{next(COUNTER)}"
    numbered = [
        attrs.evolve(part, id=f"{name}.{n}") if isinstance(part, ToolCall) else part
        for n, part in enumerate(reply.parts)
    ]
    return message("assistant", *numbered, id=name)


THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"}
CALL: dict[str, Any] = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "f",
    "arguments": '{"a" : 1}',
}
SAID: dict[str, Any] = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "a", "annotations": [{"type": "url_citation", "url": "u"}]}],
}


def test_the_body_of_a_request() -> None:
    """Model, instructions, input, tools, settings, the wish for a stream and for nothing to be stored are in the body."""
    sent = request(message("user", "hi"), instructions="be brief", tools=(TOOL,))
    assert body(sent, settings={"temperature": 0.5}, extra_body={"top_k": 3}) == {
        "model": "m",
        "instructions": "be brief",
        "input": [{"role": "user", "content": "hi"}],
        "tools": [
            {
                "type": "function",
                "name": "f",
                "description": "does it",
                "parameters": dict(TOOL.parameters),
                "strict": False,
            }
        ],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "temperature": 0.5,
        "top_k": 3,
    }


def test_settings_of_the_turn_come_first() -> None:
    """A turn's setting replaces the model's, and None takes it back; extra fields replace both."""
    sent = request(message("user", "hi"), settings={"temperature": 1, "top_p": None})
    settings = {"temperature": 0, "top_p": 0.5, "user": "u"}
    found = body(sent, settings=settings, extra_body={"user": "v", "include": None})
    assert (found["temperature"], found["user"]) == (1, "v")
    assert not {"top_p", "include"} & set(found)


def test_settings_of_chat_completions() -> None:
    """What Chat Completions calls otherwise is sent in this protocol's form; its own form comes first."""
    schema = {"name": "s", "schema": {"type": "object"}, "strict": True}
    settings = {
        "max_tokens": 5,
        "reasoning_effort": "low",
        "reasoning": {"summary": "auto"},
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": schema},
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    }
    found = body(request(message("user", "hi"), tools=(TOOL,)), settings=settings)
    assert found["max_output_tokens"] == 5
    assert found["reasoning"] == {"effort": "low", "summary": "auto"}
    assert found["text"] == {"verbosity": "low", "format": {"type": "json_schema", **schema}}
    assert found["tool_choice"] == {"type": "function", "name": "f"}
    assert not {"max_tokens", "reasoning_effort", "verbosity", "response_format"} & set(found)
    own = {"max_tokens": 5, "max_output_tokens": 7, "response_format": {"type": "json_object"}}
    found = body(request(message("user", "hi")), settings=own)
    assert (found["max_output_tokens"], found["text"]) == (7, {"format": {"type": "json_object"}})


@pytest.mark.parametrize(
    ("model", "settings", "include"),
    [
        ("gpt-5.2", {}, ["reasoning.encrypted_content"]),
        ("o3", {"include": ["web_search_call.results"]}, ["web_search_call.results", "reasoning.encrypted_content"]),
        ("gpt-5", {"store": True}, None),
        ("gpt-4.1-mini", {}, None),
        ("openai/gpt-4o", {}, None),
        ("gpt-5-chat-latest", {}, None),
        ("gpt-4.1", {"include": ["reasoning.encrypted_content"]}, ["reasoning.encrypted_content"]),
    ],
)
def test_encrypted_reasoning_is_asked_for(model: str, settings: Any, include: Any) -> None:
    """Reasoning must come with its content where nothing is stored; models that do not reason are not asked."""
    assert body(request(message("user", "hi")), model=model, settings=settings).get("include") == include


def test_settings_about_tools_need_tools() -> None:
    """Without tools neither tools nor settings about them are sent; tools of the server are tools."""
    settings = {"tool_choice": "auto", "parallel_tool_calls": False, "max_tool_calls": 2}
    assert not {"tools", *settings} & set(body(request(message("user", "hi")), settings=settings))
    assert {"tools", *settings} <= set(body(request(message("user", "hi"), tools=(TOOL,)), settings=settings))
    search = MappingProxyType({"type": "web_search"})
    found = body(request(message("user", "hi"), tools=(TOOL,)), settings={**settings, "hosted_tools": [search]})
    assert [tool["type"] for tool in found["tools"]] == ["function", "web_search"]
    assert "hosted_tools" not in found
    alone = body(request(message("user", "hi")), settings={**settings, "hosted_tools": [search]})
    assert (alone["tools"], alone["tool_choice"]) == ([{"type": "web_search"}], "auto")


def properties(**schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schemas, "required": [*schemas], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "is_strict"),
    [
        (CLOSED, True),
        (properties(a={"type": "string", "enum": ["x"]}, b={"type": "array", "items": properties()}), True),
        ({**properties(a={"$ref": "#/$defs/A"}), "$defs": {"A": properties(b={"type": ["integer", "null"]})}}, True),
        (properties(a={"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}), True),
        ({"type": "object"}, False),
        ({**CLOSED, "properties": {"a": {"type": "string"}}}, False),
        (properties(a={"type": "object"}), False),
        (properties(a={"type": "array", "items": {"type": "object"}}), False),
        (properties(a={}), False),
        (properties(a=True), False),
        (properties(a={"type": "integer", "default": 3}), False),
        (properties(a={"type": "string", "format": "uri"}), False),
        ({"type": "string"}, False),
    ],
)
def test_tools_are_strict_where_they_can_be(schema: Any, is_strict: bool) -> None:
    """A tool is strict if its schema allows it and the setting does not forbid it; it always says which."""
    sent = request(message("user", "hi"), tools=(ToolDefinition("f", "", schema),))
    assert body(sent)["tools"][0]["strict"] is is_strict
    assert body(sent, settings={"strict_tools": False})["tools"][0]["strict"] is False


def test_user_content() -> None:
    """Text alone is a string; with pictures, files or speech it is a list of blocks; blank text is left out."""
    image = Image("data:image/png;base64,AA==", provider={PROTOCOL: {"detail": "low"}})
    files = File("data:application/pdf;base64,AA==", "a.pdf"), File("http://x/b.pdf")
    speech = Audio("data:audio/mpeg;base64,AA=="), Audio("data:audio/x-wav;base64,BB=="), Audio("http://x/a.wav")
    plain, mixed = items(message("user", "a", " ", "b"), message("user", "look", "\n", image, *files, *speech))
    assert plain["content"] == "a\nb"
    assert mixed["content"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": image.url, "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": files[0].url},
        {"type": "input_file", "file_url": "http://x/b.pdf"},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
        {"type": "input_audio", "input_audio": {"data": "BB==", "format": "wav"}},
        {"type": "input_text", "text": "(audio that could not be sent)"},
    ]


def test_a_reply_goes_back_as_it_came() -> None:
    """Case 29: items go back verbatim and in order, each call with its output right after, under the call's id."""
    second: dict[str, Any] = {**CALL, "id": "fc_2", "call_id": "call_2", "arguments": "{}"}
    search: dict[str, Any] = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    refusal: dict[str, Any] = {
        "type": "message",
        "id": "msg_2",
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "no"}],
    }
    output: list[dict[str, Any]] = [THOUGHT, search, SAID, {**THOUGHT, "id": "rs_2"}, CALL, second, refusal]
    said = replied(*output)
    ids = [part.id for part in said.calls]
    found = items(message("user", "q"), said, *(result(id, f"r{n}") for n, id in enumerate(ids)))
    assert found == [
        {"role": "user", "content": "q"},
        *output,
        {"type": "function_call_output", "call_id": "call_1", "output": "r0"},
        {"type": "function_call_output", "call_id": "call_2", "output": "r1"},
    ]


def test_unknown_items_and_content_go_back() -> None:
    """Case 23: an item and a content part of unknown types are in the next request, without fields that are null."""
    future: dict[str, Any] = {"type": "future", "id": "x", "data": {"y": [1, None]}}
    several: dict[str, Any] = {
        **SAID,
        "content": [{"type": "future_part", "z": 1}, *SAID["content"], {"type": "refusal", "refusal": "b"}],
    }
    assert items(replied({**future, "gone": None}, several)) == [future, several]


def test_the_text_of_a_part_is_what_counts() -> None:
    """A text that was changed after it came, to take a secret out, does not go back as it was."""
    said = replied(SAID)
    [part] = said.parts
    assert isinstance(part, Text)
    [found] = items(attrs.evolve(said, parts=(attrs.evolve(part, text="***"),)))
    assert found == {**SAID, "content": [{**SAID["content"][0], "text": "***"}]}


def test_elsewhere_only_what_everybody_takes_is_sent() -> None:
    """To another server reasoning, hosted items and ids are left out; text, refusals, calls and results are sent."""
    search: dict[str, Any] = {"type": "web_search_call", "id": "ws_1"}
    said = replied(THOUGHT, search, SAID, CALL)
    id = said.calls[0].id
    own = id.replace(".", "_")
    assert items(said, result(id), origin="http://b") == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "call_id": own, "name": "f", "arguments": '{"a" : 1}'},
        {"type": "function_call_output", "call_id": own, "output": "ok"},
    ]
    other = Reasoning("hm", provider={"anthropic_messages": {"signature": "s"}})
    mixed = message("assistant", other, Hosted("web_fetch", provider={"gemini": {}}), "b", Refusal("c"), call("m1.0"))
    assert items(mixed, result("m1.0")) == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "b"}, {"type": "output_text", "text": "c"}],
        },
        {"type": "function_call", "call_id": "m1_0", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "m1_0", "output": "ok"},
    ]


def test_ids_of_other_providers_cannot_clash() -> None:
    """Calls of another provider get ids of their own, since it may have used one twice in the conversation."""
    found = items(
        message("assistant", call("m1.0", provider_id="call_0")),
        result("m1.0"),
        message("assistant", call("m3.0", provider_id="call_0")),
        result("m3.0"),
    )
    assert [item["call_id"] for item in found] == ["m1_0", "m1_0", "m3_0", "m3_0"]


def test_one_id_for_two_calls() -> None:
    """Where a server gives two calls of a reply one id, the second gets another, and so does its result."""
    said = replied(CALL, {**CALL, "id": "fc_2"})
    found = items(said, *(result(part.id) for part in said.calls))
    ids = [item["call_id"] for item in found]
    assert ids[:2] == ids[2:]
    assert len(set(ids)) == 2


def test_ids_hold_when_only_the_result_is_new() -> None:
    """A result that is encoded in a later request names its call as the earlier request did."""
    cache: dict[Any, Any] = {}
    said, one = replied(CALL), encoder(origin="http://a")
    one.encode(request(said, cache=cache))
    found = strict_json(one.encode(request(said, result(said.calls[0].id), cache=cache)))["input"]
    assert found[1]["call_id"] == "call_1"


def test_reasoning_goes_back_whole_or_not_at_all() -> None:
    """Case 29: reasoning that a server cannot look into is left out, with the ids of what followed from it."""
    bare: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
    raw: dict[str, Any] = {**bare, "content": [{"type": "reasoning_text", "text": "hm"}]}
    bare_call = {name: value for name, value in CALL.items() if name != "id"}
    assert items(replied(bare, CALL)) == [bare_call]
    assert items(replied(bare, CALL), settings={"store": True}) == [bare, CALL]
    assert items(replied(raw, CALL)) == [raw, CALL]


def test_ids_of_items_can_be_left_out() -> None:
    """For a server that looks ids up though it stores nothing, items go back without them, calls with their call id."""
    said = replied(THOUGHT, SAID, CALL)
    found = items(said, result(said.calls[0].id), settings={"item_ids": False})
    assert not any("id" in item for item in found)
    assert [item.get("encrypted_content") or item.get("call_id") for item in found] == ["xyz", None, "call_1", "call_1"]
    sent = request(said, settings={"item_ids": False}, cache={})
    assert "item_ids" not in body(sent)


def test_reasoning_needs_what_it_led_to() -> None:
    """A thought with nothing after it, as in a reply that was cut, is refused by the server and left out."""
    assert items(replied(SAID, THOUGHT)) == [SAID]
    assert items(replied(THOUGHT)) == [{"role": "assistant", "content": "(empty)"}]


def test_hosted_calls_that_wait_for_us_are_left_out() -> None:
    """Case 35: a hosted call that nobody answered would be refused for ever; one with its output goes back."""
    waiting: dict[str, Any] = {
        "type": "local_shell_call",
        "id": "ls_1",
        "call_id": "call_9",
        "action": {"command": ["ls"]},
    }
    shell: dict[str, Any] = {"type": "shell_call", "id": "sh_1", "call_id": "call_8"}
    output: dict[str, Any] = {"type": "shell_call_output", "id": "so_1", "call_id": "call_8", "output": []}
    assert items(replied(waiting, SAID, shell, output)) == [SAID, shell, output]
    assert items(replied(output, SAID)) == [SAID]


def test_custom_tool_calls() -> None:
    """A custom tool's call goes back with its input and gets an output of its own type; elsewhere it is a function's."""
    custom: dict[str, Any] = {
        "type": "custom_tool_call",
        "id": "ct_1",
        "call_id": "call_1",
        "name": "sql",
        "input": "SELECT 1",
    }
    said = replied(custom)
    id = said.calls[0].id
    assert items(said, result(id)) == [
        custom,
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "ok"},
    ]
    here, answer = items(said, result(id), origin="http://b")
    assert (here["type"], here["arguments"]) == ("function_call", '{"_raw":"SELECT 1"}')
    assert answer["type"] == "function_call_output"


def test_results_with_images() -> None:
    """What a tool shows is beside what it says."""
    image = Image("data:image/png;base64,AA==")
    found = items(message("assistant", call("m1.0")), result("m1.0", "see", images=(image,)))
    assert found[1]["output"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": image.url},
    ]


@pytest.mark.parametrize(
    ("sent", "wire"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        ('{"a": ', '{"_raw":"{\\"a\\": "}'),
        ('{"a": NaN}', '{"_raw":"{\\"a\\": NaN}"}'),
    ],
)
def test_arguments_that_came_from_here_are_an_object(sent: str, wire: str) -> None:
    """Cases 20 and 94: of a call of this server, too, arguments that it could not parse are wrapped."""
    assert items(replied({**CALL, "arguments": sent}))[0]["arguments"] == wire


def test_made_up_tool_names_are_made_valid() -> None:
    """A name that servers would refuse for ever is changed."""
    [made] = items(message("assistant", call("m1.0", name="a b")))
    assert made["name"] == "a_b"


def test_no_blank_text_is_sent() -> None:
    """Case 45: blank replies, results and additions never become blank text, and every turn keeps its place."""
    blank: dict[str, Any] = {
        **SAID,
        "content": [{"type": "output_text", "text": " \n"}, {"type": "output_text", "text": "b"}],
    }
    history = [*blank_history(), replied(blank), message("system", " ")]
    found = body(request(*history, instructions=" \n", additions=["", " "]), origin="http://a")
    assert "instructions" not in found
    sent = found["input"]
    assert [item.get("role") or item["type"] for item in sent] == [
        *(
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
            "function_call",
            "function_call_output",
            "assistant",
            "system",
        )
    ]
    assert [sent[n].get("content", sent[n].get("output")) for n in (1, 3, 6, 8)] == ["(empty)"] * 4
    assert [block["text"] for block in sent[7]["content"]] == ["b"]


def check_strictly(sent: list[dict[str, Any]]) -> None:
    """Fail where a strict server would refuse the items of one reply with the outputs of its calls."""
    calls = [(item["type"], item["call_id"]) for item in sent if item.get("type") in CALLS]
    place = len(sent) - len(calls)
    assert [(item["type"], item["call_id"]) for item in sent[place:]] == [(f"{kind}_output", id) for kind, id in calls]
    assert len({id for _, id in calls}) == len(calls)
    assert sent[place - 1].get("type") != "reasoning"
    assert all(item["content"] for item in sent if "role" in item)


@examples()
@given(st.lists(ITEMS, max_size=4), st.sampled_from(["http://a", "http://b"]), st.booleans())
def test_whatever_reply_came_can_be_sent_back(output: list[dict[str, Any]], origin: str, stored: bool) -> None:
    """Whatever a server sent as a reply, the next request is strict JSON with one output for each call, in order."""
    try:
        said = replied(*output)
    except ModelError:
        return
    settings = {"store": stored}
    check_strictly(items(said, *(result(part.id) for part in said.calls), origin=origin, settings=settings))


def test_additions_come_last() -> None:
    """Additions are one last message of this request, and what cannot be encoded is replaced."""
    sent = request(message("user", "a"), instructions="x\ud800")
    sent.add("one")
    sent.add("two \ud800")
    found = body(sent)
    assert found["input"][1:] == [{"role": "user", "content": "one\n\ntwo \ufffd"}]
    assert found["instructions"] == "x\ufffd"


def test_what_is_known_is_encoded_again_where_it_would_differ() -> None:
    """A tool of the same name but another schema, and items whose storing changed, are not taken from the cache."""
    one, cache = encoder(origin="http://a"), dict[Any, Any]()
    said = message("user", "x")
    for schema, is_strict in (({}, False), (CLOSED, True)):
        sent = one.encode(request(said, tools=(ToolDefinition("g", "", schema),), cache=cache))
        assert strict_json(sent)["tools"][0]["strict"] is is_strict
    bare = replied({"type": "reasoning", "id": "rs_1", "summary": []}, CALL)
    assert len(strict_json(one.encode(request(bare, cache=cache)))["input"]) == 1
    assert len(strict_json(one.encode(request(bare, cache=cache, settings={"store": True})))["input"]) == 2
