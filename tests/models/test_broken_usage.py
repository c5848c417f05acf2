"""What a server counted before an attempt broke, in every protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.models.test_handover import make
from turnstate import Message, ModelError, ModelRequest, Text
from turnstate.testing.byte_server import head, serving

ERROR: dict[str, Any] = {"type": "error", "error": {"type": "overloaded_error", "message": "busy", "code": 503}}
TOLD: dict[str, list[dict[str, Any]]] = {
    "chat": [{"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3}}, ERROR],
    "responses": [
        {"type": "response.failed", "response": {"status": "failed", "usage": {"input_tokens": 11, "output_tokens": 3},
         "error": {"code": "server_error", "message": "busy"}}},
    ],
    "messages": [
        {"type": "message_start", "message": {"role": "assistant", "content": [],
         "usage": {"input_tokens": 11, "output_tokens": 3}}},
        ERROR,
    ],
    "gemini": [
        {"candidates": [{"content": {"parts": [{"text": "x"}]}}],
         "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 3}},
        {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("protocol", TOLD)
async def test_usage_comes_with_the_error(protocol: str) -> None:
    """Case 91: the error of a broken attempt carries what the server had counted, whatever the protocol."""
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in TOLD[protocol])
    script = [head(len(body), "200 OK", "Content-Type: text/event-stream") + body]
    request = ModelRequest("s", "a", "", (Message("m1", None, "t1", "user", (Text("hi"),), 0.0),))
    async with serving(script) as server:
        model = make(protocol, server.url)
        with pytest.raises(ModelError, match="busy") as caught:
            await model.respond(request, lambda kind, text, slot: None)
        await model.aclose()
    assert caught.value.usage is not None
    assert (caught.value.usage.input, caught.value.usage.output) == (11, 3)
