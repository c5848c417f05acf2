"""Requests to Gemini: what is on the wire, and round trips under a strict checker."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.models.gemini_rules import check
from tests.models.requests import TOOL, blank_history, message, request, result
from turnstate.models.base import ModelRequest, ToolDefinition
from turnstate.models.gemini.decode import GeminiDecoder
from turnstate.models.gemini.encode import GeminiEncoder
from turnstate.models.gemini.encode_parts import UNSIGNED
from turnstate.models.gemini.settings import GEMINI_SETTINGS, check_gemini_body, check_gemini_settings
from turnstate.models.wire.encoding import EMPTY
from turnstate_states.content import (
    Audio,
    File,
    Hosted,
    Image,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
from turnstate_states.errors import InvalidInput
from turnstate_states.transcript import Conversation, Message

PNG = Image("data:image/png;base64,AA==")


def encoder(model: str = "gemini-2.5-flash", **more: Any) -> GeminiEncoder:
    given = check_gemini_settings(more.pop("settings", {}))
    return GeminiEncoder(model, settings=given, extra_body=check_gemini_body(more.pop("extra_body", {})))


def body(sent: ModelRequest, **more: Any) -> Any:
    return check(encoder(**more).encode(sent))


def contents(*given: Message, **more: Any) -> list[dict[str, Any]]:
    wire = {name: more.pop(name) for name in ("model", "settings", "extra_body") if name in more}
    found: list[dict[str, Any]] = body(request(*given, **more), **wire)["contents"]
    return found


def test_the_body_of_a_request() -> None:
    """Instructions, contents, tools and settings are in the body, and a field without content is not."""
    sent = request(message("user", "hi"), instructions="be brief", tools=(TOOL,))
    assert body(sent, settings={"temperature": 0.5}, extra_body={"safetySettings": [{"category": "X"}]}) == {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "f", "description": "does it", "parametersJsonSchema": dict(TOOL.parameters)}
                ]
            }
        ],
        "generationConfig": {"temperature": 0.5},
        "safetySettings": [{"category": "X"}],
    }
    assert body(request(message("user", "hi"))) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


def test_settings_on_the_wire() -> None:
    """Every setting becomes the field that Gemini has for it."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    given = {
        "temperature": 1,
        "top_p": 0.9,
        "top_k": 3,
        "max_tokens": 9,
        "stop": "x",
        "seed": 4,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        "response_modalities": ["TEXT"],
        "media_resolution": "LOW",
        "thinking_budget": -1,
        "include_thoughts": True,
        "cached_content": "cachedContents/1",
        "service_tier": "flex",
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    }
    assert set(given) | {"reasoning_effort"} == set(GEMINI_SETTINGS)
    found = body(request(message("user", "hi"), tools=(TOOL,)), settings=given)
    assert found["generationConfig"] == {
        "temperature": 1,
        "topP": 0.9,
        "topK": 3,
        "maxOutputTokens": 9,
        "stopSequences": ["x"],
        "seed": 4,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "responseMimeType": "application/json",
        "responseJsonSchema": schema,
        "responseModalities": ["TEXT"],
        "mediaResolution": "LOW",
        "thinkingConfig": {"thinkingBudget": -1, "includeThoughts": True},
    }
    assert (found["cachedContent"], found["serviceTier"]) == ("cachedContents/1", "flex")
    assert found["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}
    assert "toolConfig" not in body(request(message("user", "hi")), settings=given)


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "medium", {"thinkingBudget": 8192}),
        ("gemini-2.5-pro", "xhigh", {"thinkingBudget": 24576}),
        ("gemini-3-flash-preview", "Low", {"thinkingLevel": "low"}),
        ("gemini-3.1-pro", "none", {"thinkingBudget": 0}),
    ],
)
def test_effort(model: str, effort: str, thinking: dict[str, Any]) -> None:
    """An effort is a level where the model has levels, and a budget before Gemini 3."""
    found = body(request(message("user", "hi")), model=model, settings={"reasoning_effort": effort})
    assert found["generationConfig"] == {"thinkingConfig": thinking}


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ({"name": "f"}, {"mode": "ANY", "allowedFunctionNames": ["f"]}),
        ({"mode": "VALIDATED"}, {"mode": "VALIDATED"}),
    ],
)
def test_tool_choice(choice: Any, config: dict[str, Any]) -> None:
    """A choice of tools is Gemini's mode."""
    found = body(request(message("user", "hi"), tools=(TOOL,)), settings={"tool_choice": choice})
    assert found["toolConfig"] == {"functionCallingConfig": config}


def test_response_formats() -> None:
    """Plain JSON and a bare JSON Schema are understood; text is nothing to say."""
    schema = {"type": "object"}
    for form, config in (
        ({"type": "json_object"}, {"responseMimeType": "application/json"}),
        (
            {"type": "json_schema", "schema": schema},
            {"responseMimeType": "application/json", "responseJsonSchema": schema},
        ),
        (schema, {"responseMimeType": "application/json", "responseJsonSchema": schema}),
        ({"type": "text"}, None),
    ):
        found = body(request(message("user", "hi")), settings={"response_format": form})
        assert found.get("generationConfig") == config


def test_settings_of_the_turn_and_extra_fields() -> None:
    """A turn's setting replaces the model's, None takes it back; extra fields are merged, hosted tools come besides."""
    sent = request(message("user", "hi"), tools=(TOOL,), settings={"temperature": 1, "seed": None})
    extra: dict[str, Any] = {
        "generationConfig": {"topK": 2, "seed": 5},
        "tools": [{"googleSearch": {}}],
        "labels": None,
    }
    found = body(sent, settings={"temperature": 0, "top_p": 1, "seed": 4}, extra_body=extra)
    assert found["generationConfig"] == {"temperature": 1, "topP": 1, "topK": 2, "seed": 5}
    assert [list(tool) for tool in found["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert body(request(message("user", "hi")), extra_body=extra)["tools"] == [{"googleSearch": {}}]


def test_settings_of_a_turn_are_checked_with_the_models() -> None:
    """What excludes each other is refused also where one comes from the model and one from the turn."""
    with pytest.raises(InvalidInput, match="exclude"):
        body(request(message("user", "x"), settings={"thinking_budget": 5}), settings={"reasoning_effort": "low"})


def test_user_content() -> None:
    """Text, pictures, sound and files are parts; data is sent inside, an address as such; blank text is left out."""
    parts: list[Part | str] = [
        "a",
        " ",
        PNG,
        Audio("data:audio/wav;base64,BB==", "audio/wav"),
        File("data:text/plain,h%20i", "a.txt"),
        File("https://h/a.pdf?x=1"),
        Image("gs://b/c", "image/webp"),
        File("https://h/none"),
    ]
    [found] = contents(message("user", *parts))
    assert found["parts"] == [
        {"text": "a"},
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        {"inlineData": {"mimeType": "audio/wav", "data": "BB=="}},
        {"inlineData": {"mimeType": "text/plain", "data": "aCBp"}},
        {"fileData": {"fileUri": "https://h/a.pdf?x=1", "mimeType": "application/pdf"}},
        {"fileData": {"fileUri": "gs://b/c", "mimeType": "image/webp"}},
        {"fileData": {"fileUri": "https://h/none"}},
    ]


def call(id: str, arguments: str = "{}", provider_id: str = "", name: str = "f", **fields: Any) -> ToolCall:
    provider = {"gemini": fields} if fields or provider_id else {}
    return ToolCall(id, name, arguments, provider_id=provider_id, provider=provider)


def test_results() -> None:
    """Case 42: all results of a reply are in one content, as many and in the order of the calls, with ids where given."""
    calls = (call("m1.0", provider_id="a"), call("m1.1", name="g", thoughtSignature="s"), call("m1.2", provider_id="c"))
    answers = (result("m1.0"), result("m1.1", "no", status="denied"), result("m1.2", " ", status="unknown"))
    user, model, back = contents(message("user", "x"), message("assistant", *calls), *answers)
    assert [part["functionCall"].get("id") for part in model["parts"]] == ["a", None, "c"]
    assert user["role"] == "user"
    assert back["parts"] == [
        {"functionResponse": {"name": "f", "response": {"output": "ok"}, "id": "a"}},
        {"functionResponse": {"name": "g", "response": {"error": "no"}}},
        {"functionResponse": {"name": "f", "response": {"error": EMPTY}, "id": "c"}},
    ]


def test_what_follows_results() -> None:
    """Case 40: text and pictures that follow come after all results; Gemini 3 takes pictures inside the result."""
    asked = message("assistant", call("m1.0"), call("m1.1"))
    history = (message("user", "x"), asked, result("m1.0", images=(PNG,)), result("m1.1"), message("user", "and"))
    old = contents(*history)[2]["parts"]
    assert [next(iter(part)) for part in old] == ["functionResponse", "functionResponse", "inlineData", "text"]
    last = contents(*history[:-1])[2]["parts"]
    assert [next(iter(part)) for part in last] == ["functionResponse", "functionResponse", "inlineData"]
    new = contents(*history, model="gemini-3-pro")[2]["parts"]
    assert new[0]["functionResponse"]["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}]
    assert [next(iter(part)) for part in new] == ["functionResponse", "functionResponse", "text"]


def test_histories_that_were_interrupted() -> None:
    """Cases 35 and 42: whatever the history lost, the checker finds as many results as calls."""
    calls = (call("m2.0", provider_id="a"), call("m2.1", provider_id="b"), call("m2.2", provider_id="c"))
    told = [message("user", "x", id="m1"), message("assistant", *calls, id="m2")]
    for answered in ([], ["m2.1"], ["m2.2", "m2.0"], ["m2.0", "m2.1", "m2.2"]):
        shown = Conversation()
        for one in (*told, *(result(id) for id in answered), message("user", "go on"), message("assistant", "done")):
            shown.add(one)
        found = contents(*shown.messages(), message("user", "more"))
        assert len(found[2]["parts"]) == 4
        compacted = contents(*shown.messages()[1:], message("user", "more"))
        assert compacted[0] == {"role": "user", "parts": [{"text": EMPTY}]}


def test_neighbours_of_one_role_are_one_content() -> None:
    """Roles alternate, whatever the history: neighbours are joined, and the first content is the user's."""
    found = contents(message("assistant", "a"), message("assistant", "b"), message("user", "c"), message("system", "d"))
    assert [(one["role"], [part["text"] for part in one["parts"]]) for one in found] == [
        ("user", [EMPTY]),
        ("model", ["a", "b"]),
        ("user", ["c", "d"]),
    ]
    assert contents() == [{"role": "user", "parts": [{"text": EMPTY}]}]


def test_no_blank_text_is_sent() -> None:
    """Case 45: blank replies, instructions and additions never become blank text."""
    history = [*blank_history(), message("assistant", Reasoning("hm"))]
    history[2] = message("user", " ")
    found = body(request(*history, instructions=" \n", additions=["", " "]))
    assert "systemInstruction" not in found
    assert [part.get("text", EMPTY) for one in found["contents"] for part in one["parts"]] == [
        "a",
        *[EMPTY] * 3,
        "c",
        *[EMPTY] * 3,
    ]


def test_made_up_tool_names_are_made_valid() -> None:
    """A name that Gemini would refuse for ever is changed, in the call and in its result, unless a tool has it."""
    names = ["f g", "1a", "", "x" * 80, "-", "ok.name"]
    calls = [call(f"m1.{n}", name=name) for n, name in enumerate(names)]
    tools = (ToolDefinition("f g", "", {}),)
    _, model, _ = contents(message("assistant", *calls), *(result(one.id) for one in calls), tools=tools)
    wire = [part["functionCall"]["name"] for part in model["parts"]]
    assert wire == ["f g", "_1a", "unnamed", "x" * 64, "_-", "ok.name"]
    assert all(re.fullmatch(r"[A-Za-z_][\w.-]{0,63}", name) for name in wire[1:])


def test_what_other_models_said() -> None:
    """Text, refusals and pictures of other models are sent; their thoughts, hosted items and signatures are not."""
    other = {"anthropic": {"signature": "s"}}
    parts = (
        Reasoning("hm", provider=other),
        Text("a", provider=other),
        Refusal("b"),
        Hosted("web_search_call", "c", provider={"openai_responses": {"id": "w"}}),
        ToolCall("m1.0", "f", "{}", provider_id="toolu_1", provider=other),
    )
    _, model, back = contents(message("assistant", *parts), result("m1.0"))
    assert model["parts"] == [{"text": "a"}, {"text": "b"}, {"functionCall": {"name": "f", "args": {}}}]
    assert "id" not in back["parts"][0]["functionResponse"]


def test_calls_of_other_models_are_declared_unsigned() -> None:
    """Gemini 3 refuses a step without a signature; Google's word for calls of others stands on the first of them."""
    calls = (call("m1.0"), call("m1.1"))
    results = (result("m1.0"), result("m1.1"))
    model = contents(message("assistant", *calls), *results, model="gemini-3-pro")[1]
    assert [part.get("thoughtSignature") for part in model["parts"]] == [UNSIGNED, None]
    signed = message("assistant", call("m1.0", thoughtSignature="s"), calls[1], model="gemini-3-pro")
    [first, _] = contents(signed, *results, model="gemini-3-pro")[1]["parts"]
    assert first["thoughtSignature"] == "s"
    older = message("assistant", call("m1.0", provider_id="a"), calls[1], model="gemini-2.5-flash")
    assert contents(older, *results, model="gemini-3-pro")[1]["parts"][0]["thoughtSignature"] == UNSIGNED


def decoded(*parts: Any) -> tuple[Part, ...]:
    """The parts of a reply, its calls with the ids that the engine gives."""
    decoder = GeminiDecoder("m", lambda kind, text, slot: None)
    for one in parts:
        decoder.feed(b"data: " + json.dumps({"candidates": [{"content": {"parts": [one]}}]}).encode() + b"\r\n\r\n")
    decoder.feed(b'data: {"candidates":[{"finishReason":"STOP"}]}\r\n\r\n')
    decoder.end()
    made = decoder.reply().parts
    return tuple(
        ToolCall(f"m2.{place}", one.name, one.arguments, one.provider_id, provider=one.provider)
        if isinstance(one, ToolCall)
        else one
        for place, one in enumerate(made)
    )


F: dict[str, Any] = {"name": "f", "args": {"a": [1, 2.5, None]}}
SIGNED: list[list[dict[str, Any]]] = [
    [{"functionCall": F, "thoughtSignature": "s"}, {"functionCall": F}, {"functionCall": {**F, "args": {}}}],
    [{"functionCall": {**F, "id": str(n)}, "thoughtSignature": f"s{n}"} for n in range(3)],
    [{"text": "hm", "thought": True}, {"text": "a", "thoughtSignature": "s"}, {"functionCall": F}],
    [{"text": "", "thought": True, "thoughtSignature": "t"}, {"text": "b"}, {"text": "", "thoughtSignature": "s"}],
    [
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"inlineData": {"mimeType": "image/png", "data": "AA==", "displayName": "d"}, "thoughtSignature": "p"},
        {"fileData": {"fileUri": "https://x", "mimeType": "image/png"}},
        {"toolCall": {"id": "1", "toolType": "X"}, "future": {"x": [1]}},
        {"functionCall": {**F, "future": 1}, "partMetadata": {"a": 1}},
    ],
]


@pytest.mark.parametrize("parts", SIGNED)
@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-3-pro"])
def test_replies_go_back_as_they_came(parts: list[dict[str, Any]], model: str) -> None:
    """Case 31: every part goes back in one content, in order, with exactly its signature, after a restart too."""
    from turnstate_states.converter import make_converter

    converter = make_converter(detailed=True)
    asked = message("assistant", *decoded(*parts), id="m2", model="gemini-3-pro")
    stored = converter.structure(json.loads(json.dumps(converter.unstructure(asked, Message))), Message)
    for said in (asked, stored):
        results = [result(one.id, status="ok" if n else "denied") for n, one in enumerate(said.calls)]
        found = contents(message("user", "x"), said, *results, message("user", "y"), model=model)
        assert found[1] == {"role": "model", "parts": parts}


def test_replies_of_pieces_go_back_whole() -> None:
    """Case 31: a call whose arguments came in pieces goes back as one call with its signature."""
    opened = {"functionCall": {"name": "f", "willContinue": True}, "thoughtSignature": "s"}
    piece = {"functionCall": {"partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}], "willContinue": True}}
    said = message("assistant", *decoded(opened, piece, {"functionCall": {}}))
    _, model, _ = contents(message("user", "x"), said, result(said.calls[0].id))
    assert model["parts"] == [{"functionCall": {"name": "f", "args": {"a": "x"}}, "thoughtSignature": "s"}]


def test_additions_come_last() -> None:
    """Additions are the last text of this request, after results too; lone surrogates do not reach the wire."""
    sent = request(message("user", "a"), message("assistant", call("m1.0")), result("m1.0"), instructions="\ud800")
    sent.add("one")
    sent.add("two \ud800")
    found = body(sent)
    assert found["contents"][-1]["parts"][-1] == {"text": "one\n\ntwo \ufffd"}
    assert found["systemInstruction"] == {"parts": [{"text": "\ufffd"}]}


def test_results_that_are_new_know_their_call() -> None:
    """A result that is encoded in a later request has the name and id that the earlier request gave its call."""
    cache, one = dict[Any, Any](), encoder()
    asked = message("assistant", call("m1.0", provider_id="a", name="g"))
    one.encode(request(asked, cache=cache))
    last = check(one.encode(request(asked, result("m1.0"), cache=cache)))["contents"][-1]
    assert last["parts"][0]["functionResponse"] == {"id": "a", "name": "g", "response": {"output": "ok"}}
