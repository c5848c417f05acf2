"""What the suites for models send, hear and check."""

from __future__ import annotations

import json
from typing import Any, get_args

import attrs
import trio

from turnstate.models.base import ModelRequest, Reply, ToolDefinition
from turnstate_states.content import (
    Audio,
    Citation,
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
from turnstate_states.errors import ModelError, ModelErrorKind
from turnstate_states.transcript import Message, Role, Usage
from turnstate_states.turn import Stop

__all__ = [
    "TOOL",
    "Heard",
    "check_body",
    "check_deltas",
    "check_error",
    "check_reply",
    "every_kind_of_part",
    "question",
]


@attrs.define
class Heard:
    """What ``on_delta`` was told."""

    deltas: list[tuple[str, str, int]] = attrs.field(factory=list[tuple[str, str, int]])
    first: trio.Event = attrs.field(factory=trio.Event)

    def __call__(self, kind: str, text: str, slot: int) -> None:
        trio.lowlevel.current_task()
        self.deltas.append((kind, text, slot))
        self.first.set()

    def joined(self, kind: str, slot: int = 0) -> str:
        """All the pieces of a kind."""
        return "".join(text for told, text, number in self.deltas if told == kind and number == slot)


def every_kind_of_part() -> tuple[Message, ...]:
    """A history that holds every kind of part, of no provider and of unknown ones, in a valid order."""
    kept: dict[str, Any] = {"provider": {"a_protocol_that_nobody_has": {"signature": "s", "id": "i"}}}
    picture, data = Image("data:image/png;base64,iVBORw0KGgo="), "data:{};base64,aGk="
    said: tuple[Part, ...] = (
        Reasoning("hm", **kept),
        Hosted("search_call", "q", **kept),
        Text("é🌍", citations=(Citation("http://h/", "t", "q"),), **kept),
        Refusal("no", **kept),
        ToolCall("m2.0", "add", '{"a": 1}', provider_id="x.y", **kept),
        ToolCall("m2.1", "no such tool", '{"a": ', provider_id="x.y"),
        ToolCall("m2.2", "add", ""),
    )
    asked: tuple[Part, ...] = (
        *(Text("hi"), Text(" ")),
        *(picture, Image("https://h/a.png")),
        *(File(data.format("application/pdf"), "a.pdf"), File(data.format("text/plain"))),
        Audio(data.format("audio/wav")),
    )
    history: list[tuple[Role, tuple[Part, ...]]] = [
        ("user", asked),
        ("assistant", said),
        ("tool", (ToolResult("m2.0", "1", images=(picture,)),)),
        ("tool", (ToolResult("m2.1", "", "error"),)),
        ("tool", (ToolResult("m2.2", "nobody knows", "unknown"),)),
        ("assistant", (Reasoning("only thought"),)),
        ("system", (Text("a note"),)),
        ("user", (Text("a"),)),
        ("assistant", (Text("\n"),)),
        ("user", (Text("b"),)),
    ]
    return tuple(
        Message(f"m{number}", f"m{number - 1}" if number > 1 else None, "t1", role, parts, 0.0)
        for number, (role, parts) in enumerate(history, 1)
    )


TOOL = ToolDefinition("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})


def question(**more: Any) -> ModelRequest:
    """A request that any model can answer; ``more`` are further fields of it."""
    asked = Message("m1", None, "t1", "user", (Text("hi"),), 0.0)
    return ModelRequest("s", "t1.1.1", "Be brief.", (asked,), (TOOL,), **more)


def check_error(error: ModelError, *transient: ModelErrorKind) -> None:
    """A typed error with one line; if kinds are given, one of them that may be retried."""
    assert error.kind in (transient or get_args(ModelErrorKind)), str(error)
    assert error.retryable or not transient
    assert str(error).strip()
    assert "\n" not in str(error)
    str(error).encode()


def check_body(body: bytes) -> None:
    """The body is UTF-8, and JSON without NaN and without lone surrogates."""

    def no(name: str) -> Any:
        raise AssertionError(f"{name} is on the wire")

    json.dumps(json.loads(body.decode(), parse_constant=no), ensure_ascii=False).encode()


def check_reply(reply: Reply) -> None:
    """A complete reply: why it stopped, usage that adds up, and nothing in it that is no JSON."""
    assert reply.stop in get_args(Stop)
    assert reply.stop, "a complete reply has a reason to stop"
    assert isinstance(reply.usage, Usage)  # pyright: ignore[reportUnnecessaryIsInstance]
    for name in ("input", "output", "cached", "cache_written", "reasoning"):
        count = getattr(reply.usage, name)
        assert count is None or (isinstance(count, int) and count >= 0), name
    assert (reply.usage.cached or 0) <= (reply.usage.input or reply.usage.cached or 0)
    for part in reply.parts:
        if isinstance(part, ToolCall):
            assert part.id == "", "the engine gives calls their ids"
        kept = getattr(part, "provider", {})
        json.dumps(kept, allow_nan=False, ensure_ascii=False).encode()
    json.dumps(dict(reply.metadata), allow_nan=False, ensure_ascii=False).encode()


def check_deltas(reply: Reply, heard: Heard) -> None:
    """The pieces that were told, joined, are the reply."""
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    assert heard.joined("text") == reply.text
    assert heard.joined("reasoning") == "".join(part.text for part in reply.parts if isinstance(part, Reasoning))
    for slot, call in enumerate(calls):
        assert heard.joined("call", slot) == call.name
        assert heard.joined("arguments", slot) == call.arguments
    assert {slot for kind, _, slot in heard.deltas if kind in ("call", "arguments")} == set(range(len(calls)))
