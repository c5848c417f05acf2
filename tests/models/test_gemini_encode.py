"""Requests to Gemini: what is on the wire, round trips under a strict checker, and that nothing is encoded twice."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest

from turnstate.models.base import ModelRequest, ToolDefinition
from turnstate.models.gemini_decode import GeminiDecoder
from turnstate.models.gemini_encode import GeminiEncoder
from turnstate.models.gemini_encode_parts import EMPTY, UNSIGNED
from turnstate.models.gemini_settings import GEMINI_SETTINGS, check_gemini_body, check_gemini_settings
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
    ToolResult,
)
from turnstate_states.errors import InvalidInput
from turnstate_states.transcript import Conversation, Message, Role

COUNTER = iter(range(1_000_000))
TOOL = ToolDefinition("f", "does it", {"type": "object", "properties": {}})
PNG = Image("data:image/png;base64,AA==")


def message(role: Role, *parts: Part | str, id: str = "", **more: Any) -> Message:
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message(id or f"m{next(COUNTER)}", None, "t1", role, made, 0.0, **more)


def request(*messages: Message, instructions: str = "", **more: Any) -> ModelRequest:
    return ModelRequest("s", "t1.1.1", instructions, messages, **more)


def encoder(model: str = "gemini-2.5-flash", **more: Any) -> GeminiEncoder:
    given = check_gemini_settings(more.pop("settings", {}))
    return GeminiEncoder(model, settings=given, extra_body=check_gemini_body(more.pop("extra_body", {})))


def body(sent: ModelRequest, **more: Any) -> Any:
    return strict(encoder(**more).encode(sent))


def strict(data: bytes) -> Any:
    """The body, once it keeps every rule that Gemini answers 400 for."""

    def no(name: str) -> Any:
        raise AssertionError(name)

    found = json.loads(data.decode(), parse_constant=no)
    contents = found["contents"]
    assert contents
    assert contents[0]["role"] == "user"
    roles = [content["role"] for content in contents]
    assert all(role != other for role, other in pairwise(roles))
    assert set(roles) <= {"user", "model"}
    calls: list[Any] = []
    for content in contents:
        parts = content["parts"]
        assert parts
        assert all("thoughtSignature" in part or part.get("text", "x").strip() for part in parts)
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        assert all("functionResponse" in part for part in parts[: len(answers)])
        named = [(answer["name"], answer.get("id")) for answer in answers]
        assert named == [(call["name"], call.get("id")) for call in calls]
        assert all(isinstance(answer["response"], dict) for answer in answers)
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        assert all(isinstance(call["args"], dict) for call in calls)
        assert not calls or content["role"] == "model"
    assert not calls
    return found


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


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"temprature": 1}, "temperature"),
        ({"parallel_tool_calls": False}, "not known"),
        ({"temperature": float("nan")}, "a finite number"),
        ({"max_tokens": 0}, "a positive whole number"),
        ({"stop": ["a", 1]}, "text or a list of texts"),
        ({"tool_choice": "sometimes"}, "required"),
        ({"tool_choice": {}}, "name a tool"),
        ({"response_format": {}}, "json_schema"),
        ({"response_format": {"type": "json_schema"}}, "json_schema"),
        ({"reasoning_effort": "huge"}, "medium"),
        ({"reasoning_effort": "low", "thinking_budget": 5}, "exclude"),
        ({"response_format": {"type": "object", "maximum": float("inf")}}, "response_format"),
    ],
)
def test_bad_settings(settings: dict[str, Any], text: str) -> None:
    """A setting that is not known or does not fit is refused with a text that says what would do."""
    with pytest.raises(InvalidInput, match=text):
        check_gemini_settings(settings)


@pytest.mark.parametrize(
    "fields",
    [
        {"contents": []},
        {"systemInstruction": {}},
        {"tools": {}},
        {"toolConfig": 1},
        {"x": float("nan")},
        {"x": "\ud800"},
    ],
)
def test_bad_extra_body(fields: dict[str, Any]) -> None:
    """Extra fields cannot replace what the adapter makes, and must be JSON."""
    with pytest.raises(InvalidInput, match="extra_body"):
        check_gemini_body(fields)


def test_settings_of_a_turn_are_checked_with_the_models() -> None:
    """What excludes each other is refused also where one comes from the model and one from the turn."""
    with pytest.raises(InvalidInput, match="exclude"):
        body(request(message("user", "x"), settings={"thinking_budget": 5}), settings={"reasoning_effort": "low"})


def test_numbers_that_are_not_finite_never_reach_the_wire() -> None:
    """Case 34: a tool whose schema holds NaN is refused, and a mapping of any kind is written."""
    with pytest.raises(InvalidInput, match="tools"):
        body(request(message("user", "x"), tools=(ToolDefinition("f", "", {"maximum": float("nan")}),)))
    tools = (ToolDefinition("f", " ", MappingProxyType({"type": "object"})),)
    [tool] = body(request(message("user", "x"), tools=tools))["tools"][0]["functionDeclarations"]
    assert tool == {"name": "f", "parametersJsonSchema": {"type": "object"}}


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


def result(call: str, text: str = "ok", **more: Any) -> Message:
    return message("tool", ToolResult(call, text, **more))


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
    history = [
        message("user", "a"),
        message("assistant", "\n\n", status="incomplete"),
        message("user", " "),
        message("assistant"),
        message("user", "c"),
        message("assistant", "\n", call("m1.0")),
        result("m1.0", " "),
        message("assistant", Reasoning("hm")),
    ]
    found = body(request(*history, instructions=" \n", additions=["", " "]))
    assert "systemInstruction" not in found
    assert [part.get("text", EMPTY) for one in found["contents"] for part in one["parts"]] == [
        "a",
        *[EMPTY] * 3,
        "c",
        *[EMPTY] * 3,
    ]


@pytest.mark.parametrize(
    ("sent", "wire"),
    [
        ('{"a": 1.0}', '{"a": 1.0}'),
        ("", "{}"),
        (" \n", "{}"),
        ('{"a": ', '{"_raw":"{\\"a\\": "}'),
        ("[1]", '{"_raw":"[1]"}'),
        ('{"a": NaN}', '{"_raw":"{\\"a\\": NaN}"}'),
        ('{"a": "\\ud800"}', '{"_raw":"{\\"a\\": \\"\\\\ud800\\"}"}'),
        ("[" * 50_000, '{"_raw":"' + "[" * 50_000 + '"}'),
    ],
)
def test_arguments_on_the_wire_are_an_object(sent: str, wire: str) -> None:
    """Cases 20, 34 and 94: what is no JSON object is wrapped, all else goes back byte for byte."""
    data = encoder().encode(request(message("assistant", call("m1.0", sent)), result("m1.0")))
    assert b'"args":' + wire.encode() in data
    strict(data)


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


def test_a_step_encodes_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was encoded for one request is reused by the next, unless a message with its id is another object."""
    one, cache = encoder(), dict[Any, Any]()
    history = [message("user", f"text {n}", id=f"m{n}") for n in range(5)]
    before = one.encode(request(*history, tools=(TOOL,), cache=cache))
    seen: list[str] = []
    original = GeminiEncoder._message  # pyright: ignore[reportPrivateUsage]

    def watched(self: GeminiEncoder, message: Message, *rest: Any) -> Any:
        seen.append(message.id)
        return original(self, message, *rest)

    monkeypatch.setattr(GeminiEncoder, "_message", watched)
    assert one.encode(request(*history, tools=(TOOL,), cache=cache)) == before
    assert not seen
    history[3] = message("user", "other", id="m3")
    assert b"other" in one.encode(request(*history, message("user", "new", id="m9"), tools=(TOOL,), cache=cache))
    assert seen == ["m3", "m9"]
    other = strict(one.encode(request(*history, tools=(ToolDefinition("g", "", {}),), cache=cache)))
    assert other["tools"][0]["functionDeclarations"][0]["name"] == "g"


def test_results_that_are_new_know_their_call() -> None:
    """A result that is encoded in a later request has the name and id that the earlier request gave its call."""
    cache, one = dict[Any, Any](), encoder()
    asked = message("assistant", call("m1.0", provider_id="a", name="g"))
    one.encode(request(asked, cache=cache))
    last = strict(one.encode(request(asked, result("m1.0"), cache=cache)))["contents"][-1]
    assert last["parts"][0]["functionResponse"] == {"id": "a", "name": "g", "response": {"output": "ok"}}


def test_text_is_sent_as_utf8() -> None:
    """Text of every script arrives as it was; NUL and quotes are escaped."""
    text = 'é日🌍\u2028\x00"\\'
    assert contents(message("user", text))[0]["parts"] == [{"text": text}]
