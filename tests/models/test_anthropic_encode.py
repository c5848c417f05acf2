"""Requests to servers of Anthropic Messages: what is on the wire."""

from __future__ import annotations

import base64
from types import MappingProxyType
from typing import Any

import pytest

from tests.models.anthropic_rules import check
from tests.models.requests import TOOL, blank_history, call, message, request, result
from turnstate.models.anthropic.encode import MessageEncoder
from turnstate.models.anthropic.layout import GO_ON
from turnstate.models.anthropic.settings import check_messages_settings
from turnstate.models.base import ModelRequest, ToolDefinition
from turnstate.models.wire.encoding import EMPTY
from turnstate_states.content import Audio, File, Hosted, Image, Part, Reasoning, Refusal, Text
from turnstate_states.transcript import Message

PNG = "data:image/png;base64,AAAA"


def encoder(model: str = "claude", **more: Any) -> MessageEncoder:
    settings = check_messages_settings(more.pop("settings", {}))
    return MessageEncoder(model, settings=settings, extra_body=more.pop("extra_body", {}))


def body(sent: ModelRequest, **more: Any) -> dict[str, Any]:
    return check(encoder(**more).encode(sent))


def turns(*given: Message, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(request(*given, **more))["messages"]
    return found


def texts(turn: dict[str, Any]) -> list[str]:
    return [block["text"] for block in turn["content"]]


def test_the_body_of_a_request() -> None:
    """Model, instructions, messages, tools, settings and a number of tokens are in the body."""
    sent = request(message("user", "hi"), instructions="be brief", tools=(TOOL,))
    assert body(sent, settings={"temperature": 0.5}, extra_body={"x": 3}) == {
        "model": "claude",
        "max_tokens": 16_384,
        "system": [{"type": "text", "text": "be brief"}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "tools": [{"name": "f", "description": "does it", "input_schema": dict(TOOL.parameters)}],
        "stream": True,
        "temperature": 0.5,
        "x": 3,
    }


SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"stop": "x"}, {"stop_sequences": ["x"]}),
    ({"stop": ["x", "y"]}, {"stop_sequences": ["x", "y"]}),
    ({"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
    ({"tool_choice": {"type": "tool", "name": "f"}}, {"tool_choice": {"type": "tool", "name": "f"}}),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, {"tool_choice": {"type": "tool", "name": "f"}}),
    ({"parallel_tool_calls": False}, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ({"parallel_tool_calls": False, "tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
    (
        {"thinking_budget": 2000},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 18_384},
    ),
    ({"thinking": {"type": "adaptive"}, "max_tokens": 5}, {"thinking": {"type": "adaptive"}, "max_tokens": 5}),
    ({"reasoning_effort": "low"}, {"output_config": {"effort": "low"}}),
    (
        {"response_format": {"type": "json_schema", "schema": {}}},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}}}},
        {"output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}}},
    ),
    ({"user": "u", "metadata": {"a": "b"}}, {"metadata": {"a": "b", "user_id": "u"}}),
    ({"service_tier": "auto", "top_k": 4, "top_p": 0.5}, {"service_tier": "auto", "top_k": 4, "top_p": 0.5}),
]


@pytest.mark.parametrize(("settings", "fields"), SETTINGS)
def test_settings_on_the_wire(settings: dict[str, Any], fields: dict[str, Any]) -> None:
    """Each setting is sent in the API's own form, whether the model or the turn has it."""
    sent = request(message("user", "hi"), tools=(TOOL,))
    found = body(sent, settings=settings)
    assert {name: found[name] for name in fields} == fields
    sent.settings = settings
    assert body(sent) == found


def test_settings_of_the_turn_come_first() -> None:
    """A turn's setting replaces the model's, and None takes it back; extra fields replace both."""
    sent = request(message("user", "hi"), settings={"temperature": 1, "top_k": None})
    found = body(
        sent, settings={"temperature": 0, "top_k": 4, "user": "u"}, extra_body={"metadata": None, "max_tokens": 7}
    )
    assert (found["temperature"], found["max_tokens"]) == (1, 7)
    assert not {"top_k", "metadata"} & set(found)


def test_tools() -> None:
    """Hosted tools come after the tools, strict schemas are asked for, and settings about tools need one."""
    search = {"type": "web_search_20250305", "name": "web_search"}
    tools = (TOOL, ToolDefinition("g", " ", MappingProxyType({})))
    found = body(request(message("user", "x"), tools=tools), settings={"hosted_tools": [search], "strict_tools": True})
    assert [tool["name"] for tool in found["tools"]] == ["f", "g", "web_search"]
    assert found["tools"][1] == {"name": "g", "strict": True, "input_schema": {"type": "object"}}
    assert not {"tools", "tool_choice"} & set(body(request(message("user", "x")), settings={"tool_choice": "auto"}))


def test_what_is_no_json_costs_only_its_block() -> None:
    """Case 34: a number that is not finite, or half a character, in what a provider gave is left out with its block."""
    odd = {"anthropic_messages": {"block": {"type": "x", "a": float("nan")}, "citations": ["\ud800"]}}
    [_, said, _] = turns(message("user", "x"), message("assistant", Hosted("x", provider=odd), Text("a", provider=odd)))
    assert said["content"] == [{"type": "text", "text": "a"}]


def test_user_content() -> None:
    """Texts, pictures and files are blocks; blank text is left out."""
    pdf = File("data:application/pdf;base64,AAAA", "a.pdf")
    plain = File("data:text/csv,a%2Cb", "a.csv")
    remote: list[Part] = [Image("https://h/a.png"), File("https://h/a.pdf")]
    [turn] = turns(message("user", "look", "\n", Image(PNG), pdf, plain, *remote))
    assert turn["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}, "title": "a.csv"},
        {"type": "image", "source": {"type": "url", "url": "https://h/a.png"}},
        {"type": "document", "source": {"type": "url", "url": "https://h/a.pdf"}},
    ]


def test_what_the_api_does_not_take_becomes_a_note() -> None:
    """Recordings, odd picture types, broken data and unknown schemes are told to the model in words."""
    odd: list[Part] = [
        Audio("data:audio/wav;base64,AAAA"),
        Image("data:image/tiff;base64,AAAA"),
        Image("data:image/png;base64,A"),
        Image("file:///x"),
        File("data:application/zip;base64,AAAA", "a.zip"),
        File("data:text/plain,%20", media_type="text/plain"),
    ]
    [turn] = turns(message("user", *odd))
    assert texts(turn)[0] == "(a recording of type audio/wav that cannot be shown)"
    assert texts(turn)[4] == "(a file a.zip of type application/zip that cannot be shown)"
    assert len(texts(turn)) == len(odd)


def test_own_fields_of_media() -> None:
    """A part may name a file that the provider has, or ask for citations."""
    own = {"anthropic_messages": {"source": {"type": "file", "file_id": "f1"}, "citations": {"enabled": True}}}
    more = {"anthropic_messages": {"citations": {"enabled": True}}}
    url = "data:text/plain;base64," + base64.b64encode(b"hi").decode()
    [turn] = turns(message("user", File("x:", provider=own), File(url, provider=more)))
    assert turn["content"][0] == {"type": "document", **own["anthropic_messages"]}
    assert turn["content"][1]["citations"] == {"enabled": True}


def test_results_come_first_in_one_turn() -> None:
    """Cases 35 and 40: all results of a batch are in one user's turn, in call order, before what a person said."""
    asked = message("assistant", "a", call("m1.0", provider_id="x"), call("m1.1", provider_id="y"), call("m1.2"))
    found = turns(
        message("user", "go"),
        asked,
        message("user", "steer"),
        result("m1.2", images=(Image(PNG),)),
        result("m1.0", "no", status="error"),
        result("m1.0", "late"),
        result("m9.9", "of nobody"),
        message("user", "more"),
    )
    assert [turn["role"] for turn in found] == ["user", "assistant", "user"]
    first, second, third, *rest = found[2]["content"]
    assert first == {"type": "tool_result", "tool_use_id": "x", "content": "no", "is_error": True}
    assert (second["tool_use_id"], second["is_error"]) == ("y", True)
    assert [block["type"] for block in third["content"]] == ["text", "image"]
    assert [block["text"] for block in rest] == ["steer", "more"]


def test_calls_without_a_result_get_one() -> None:
    """Case 35: a history that ends with calls, or goes on without their results, is one that the API accepts."""
    found = turns(message("user", "a"), message("assistant", call("m1.0")), message("assistant", call("m2.0")))
    assert [turn["role"] for turn in found] == ["user", "assistant", "user", "assistant", "user"]
    assert "not run" in found[2]["content"][0]["content"]


def test_neighbours_are_merged() -> None:
    """Messages of one role after the other are one turn; the first turn is a person's."""
    found = turns(message("assistant", "a"), message("assistant", "b"), message("user", "c"), message("system", "d"))
    assert [(turn["role"], texts(turn)) for turn in found] == [
        ("user", [EMPTY]),
        ("assistant", ["a", "b"]),
        ("user", ["c", "d"]),
    ]
    assert texts(turns()[0]) == [EMPTY]
    leading = body(request(message("system", "s"), message("user", "c"), instructions="i"))
    assert [block["text"] for block in leading["system"]] == ["i", "s"]


def test_ids_are_valid_and_unique() -> None:
    """An id of a provider is used where it is valid and the first of its name in the request, ours otherwise."""
    calls = [
        call("m1.0", provider_id="a"),
        call("m1.1", provider_id="a"),
        call("m1.2", provider_id="b.c"),
        call("m1.3"),
    ]
    found = turns(
        message("user", "x"),
        message("assistant", *calls),
        *(result(made.id) for made in calls),
        message("assistant", call("m2.0", provider_id="a"), call("m2.1", provider_id="m2_0")),
        result("m2.0"),
        result("m2.1"),
    )
    ids = [[block["id"] for block in turn["content"]] for turn in found if turn["role"] == "assistant"]
    assert ids == [["a", "m1_1", "m1_2", "m1_3"], ["m2_0", "m2_1"]]


def test_made_up_tool_names_are_made_valid() -> None:
    """A name that the API would refuse for ever is changed."""
    names = ["a b", "", "x" * 200]
    found = turns(
        message("user", "x"), message("assistant", *(call(f"m1.{n}", name=name) for n, name in enumerate(names)))
    )
    assert [block["name"] for block in found[1]["content"]] == ["a_b", "unnamed", "x" * 64]


def test_no_blank_text_is_sent() -> None:
    """Case 45: blank replies, results and additions never become blank text, and every turn keeps its place."""
    history = [*blank_history(), message("assistant", Reasoning("hm"))]
    found = turns(*history, instructions=" \n", additions=["", " "])
    assert [turn["role"] for turn in found] == ["user", "assistant"] * 3 + ["user"]
    assert [texts(found[n]) for n in (1, 3)] == [[EMPTY], [EMPTY]]
    assert found[6]["content"][0]["content"] == EMPTY


def test_the_last_word_is_never_text_of_the_model() -> None:
    """A history that ends with what the model said is gone on with by a person's turn, since models refuse a prefill."""
    found = turns(message("user", "a"), message("assistant", "b "))
    assert [texts(turn) for turn in found] == [["a"], ["b "], [GO_ON]]


def test_what_another_provider_said() -> None:
    """Text and refusals of another provider go as text; its reasoning, hosted items and signatures are left out."""
    other = {"openai_responses": {"encrypted_content": "x"}}
    parts = (
        Reasoning("hm", provider=other),
        Hosted("web_search_call", "x", provider=other),
        Text("a", provider=other),
        Refusal("b"),
        Image(PNG),
    )
    assert texts(turns(message("user", "x"), message("assistant", *parts), message("user", "y"))[1]) == ["a", "b"]


def test_additions_come_last() -> None:
    """Additions are the last text of a person in this request, after results and without their own turn."""
    sent = request(message("user", "a"), message("assistant", call("m1.0")), result("m1.0"))
    sent.add("one")
    sent.add("two \ud800")
    last = body(sent)["messages"][-1]["content"]
    assert [block["type"] for block in last] == ["tool_result", "text"]
    assert last[1]["text"] == "one\n\ntwo \ufffd"


@pytest.mark.parametrize(("cache", "mark"), [(True, {}), ("5m", {}), ("1h", {"ttl": "1h"})])
def test_marks_for_the_cache(cache: Any, mark: dict[str, str]) -> None:
    """With ``cache`` the ends of tools, instructions and the last two turns of a person are marked, not additions."""
    history = [message("user", "a"), message("assistant", "b"), message("user", "c", "d"), message("assistant", "e")]
    sent = request(*history, message("user", "f"), instructions="i", tools=(TOOL, TOOL), additions=["now"])
    found = body(sent, settings={"cache": cache})
    wanted = {"type": "ephemeral", **mark}
    assert [tool.get("cache_control") for tool in found["tools"]] == [None, wanted]
    assert found["system"][0]["cache_control"] == wanted
    marks = [[block.get("cache_control") for block in turn["content"]] for turn in found["messages"]]
    assert marks == [[None], [None], [None, wanted], [None], [wanted, None]]
    assert b"cache_control" not in encoder(settings={"cache": False}).encode(sent)


def test_old_models_get_fewer_tokens() -> None:
    """A default that an old model would refuse is not sent to it."""
    sent = request(message("user", "x"))
    counts = [
        body(sent, model=name)["max_tokens"]
        for name in ("claude-3-haiku-20240307", "claude-3-5-haiku", "claude-opus-5")
    ]
    assert counts == [4096, 8192, 16_384]
