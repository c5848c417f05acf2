"""What holds for the encoders of all protocols, each with its own form of the body."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from tests.models import anthropic_rules, gemini_rules
from tests.models.requests import TOOL, call, message, request, result, strict_json
from turnstate.models.anthropic.encode import MessageEncoder
from turnstate.models.base import ToolDefinition
from turnstate.models.gemini.encode import GeminiEncoder
from turnstate.models.openai_chat.encode import ChatEncoder
from turnstate.models.openai_responses.encode import ResponsesEncoder
from turnstate_states.errors import InvalidInput
from turnstate_states.transcript import Message

AnyEncoder = ChatEncoder | ResponsesEncoder | MessageEncoder | GeminiEncoder


@attrs.frozen
class Wire:
    """Where a protocol's body has what these tests look for; ``check`` reads a body by the protocol's rules."""

    kind: type[AnyEncoder]
    check: Callable[[bytes], Any]
    tools: Callable[[Any], list[dict[str, Any]]]
    said: Callable[[Any], str]
    arguments: Callable[[str], str]
    bare_tool: dict[str, Any]

    def encoder(self) -> AnyEncoder:
        """An encoder without settings."""
        return self.kind("m", settings={}, extra_body={})


OBJECT = {"type": "object"}
WIRES = {
    "chat": Wire(
        ChatEncoder,
        strict_json,
        tools=lambda body: [tool["function"] for tool in body["tools"]],
        said=lambda body: body["messages"][0]["content"],
        arguments=lambda text: f'"arguments":{json.dumps(text)}}}',
        bare_tool={"name": "f", "parameters": OBJECT},
    ),
    "responses": Wire(
        ResponsesEncoder,
        strict_json,
        tools=lambda body: body["tools"],
        said=lambda body: body["input"][0]["content"],
        arguments=lambda text: f'"arguments":{json.dumps(text)}}}',
        bare_tool={"type": "function", "name": "f", "parameters": OBJECT, "strict": False},
    ),
    "messages": Wire(
        MessageEncoder,
        anthropic_rules.check,
        tools=lambda body: body["tools"],
        said=lambda body: body["messages"][0]["content"][0]["text"],
        arguments=lambda text: f'"input":{text}}}',
        bare_tool={"name": "f", "input_schema": OBJECT},
    ),
    "gemini": Wire(
        GeminiEncoder,
        gemini_rules.check,
        tools=lambda body: body["tools"][0]["functionDeclarations"],
        said=lambda body: body["contents"][0]["parts"][0]["text"],
        arguments=lambda text: f'"args":{text}}}',
        bare_tool={"name": "f", "parametersJsonSchema": OBJECT},
    ),
}
every_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)


@every_wire
def test_numbers_that_are_not_finite_never_reach_the_wire(wire: Wire) -> None:
    """Case 34: a tool whose schema holds NaN is refused, and a mapping of any kind is written."""
    odd, plain = {"maximum": float("nan")}, MappingProxyType(OBJECT)
    with pytest.raises(InvalidInput, match="tools"):
        wire.encoder().encode(request(message("user", "x"), tools=(ToolDefinition("f", "", odd),)))
    data = wire.encoder().encode(request(message("user", "x"), tools=(ToolDefinition("f", " ", plain),)))
    assert wire.tools(wire.check(data)) == [wire.bare_tool]


@every_wire
@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ('{"a": 1.0,  "a": 2}', '{"a": 1.0,  "a": 2}'),
        ("", "{}"),
        (" \n", "{}"),
        ('{"a": ', '{"_raw":"{\\"a\\": "}'),
        ("[1]", '{"_raw":"[1]"}'),
        ('{"a": NaN}', '{"_raw":"{\\"a\\": NaN}"}'),
        ('{"a": "\\ud800"}', '{"_raw":"{\\"a\\": \\"\\\\ud800\\"}"}'),
        ("[" * 50_000, '{"_raw":"' + "[" * 50_000 + '"}'),
    ],
)
def test_arguments_on_the_wire_are_an_object(wire: Wire, sent: str, wanted: str) -> None:
    """Cases 20, 34 and 94: arguments that are no JSON object are wrapped, all others go back byte for byte."""
    history = (message("user", "x"), message("assistant", call("m1.0", sent)), result("m1.0"))
    data = wire.encoder().encode(request(*history))
    assert wire.arguments(wanted) in data.decode()
    wire.check(data)


@every_wire
def test_a_step_encodes_only_what_is_new(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was encoded for one request is reused by the next, unless a message with its id is another object."""
    one, cache = wire.encoder(), dict[Any, Any]()
    history = [message("assistant", f"text {n}", id=f"m{n}") for n in range(5)]
    before = one.encode(request(*history, tools=(TOOL,), cache=cache))
    seen: list[str] = []
    original: Callable[..., Any] = vars(wire.kind)["_message"]

    def watched(self: AnyEncoder, message: Message, *rest: Any) -> Any:
        seen.append(message.id)
        return original(self, message, *rest)

    monkeypatch.setattr(wire.kind, "_message", watched)
    assert one.encode(request(*history, tools=(TOOL,), cache=cache)) == before
    assert not seen
    history[3] = message("assistant", "other", id="m3")
    history.append(message("assistant", "new", id="m9"))
    assert b"other" in one.encode(request(*history, tools=(TOOL,), cache=cache))
    assert seen == ["m3", "m9"]
    other = one.encode(request(*history, tools=(ToolDefinition("g", "", {}),), cache=cache))
    assert wire.tools(wire.check(other))[0]["name"] == "g"


@every_wire
def test_text_is_sent_as_utf8(wire: Wire) -> None:
    """Text of every script arrives as it was; NUL and quotes are escaped."""
    text = 'é日🌍\u2028\x00"\\'
    data = wire.encoder().encode(request(message("user", text)))
    assert "é日🌍".encode() in data
    assert wire.said(wire.check(data)) == text
