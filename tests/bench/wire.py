"""What the wire costs: decoding streams beside the official SDKs, where they are installed, and encoding one more step."""

from __future__ import annotations

import importlib
import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from turnstate import Message, ModelRequest, Text
from turnstate.models import Anthropic, Gemini, Model, OpenAIChat, OpenAIResponses
from turnstate.models.anthropic_decode import MessageDecoder
from turnstate.models.gemini_decode import GeminiDecoder
from turnstate.models.openai_chat_decode import ChatDecoder
from turnstate.models.openai_responses_decode import ResponsesDecoder

from .measure import Figure

PIECES = 3000
READ = 1400
TEXT500 = "lorem ipsum " * 42


def _sse(*events: tuple[str, Any]) -> bytes:
    lines = [(f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events]
    return "".join(lines).encode()


def chat_stream() -> bytes:
    """A long text in Chat Completions."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> tuple[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "", {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    events = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": f" word{n}"}) for n in range(PIECES))]
    return _sse(*events, chunk({}, "stop")) + b"data: [DONE]\n\n"


def responses_stream() -> bytes:
    """A long text in Responses."""
    text = "".join(f" word{n}" for n in range(PIECES))
    part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
    item: dict[str, Any] = {"id": "i", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    base: dict[str, Any] = {"id": "r", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True,
            "tools": [],
            "tool_choice": "auto", "output": [], "status": "in_progress"}  # fmt: skip
    whole: dict[str, Any] = {**item, "status": "completed", "content": [{**part, "text": text}]}
    at = {"item_id": "i", "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": base},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **at, "part": part},
        *({"type": "response.output_text.delta", **at, "delta": f" word{n}", "logprobs": []} for n in range(PIECES)),
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": {**part, "text": text}},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": {**base, "status": "completed", "output": [whole]}},
    ]
    return _sse(*((event["type"], {**event, "sequence_number": n}) for n, event in enumerate(events)))


def messages_stream() -> bytes:
    """A long text in Anthropic Messages."""
    usage = {"input_tokens": 3, "output_tokens": 1}
    start: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
             "stop_reason": None,
             "stop_sequence": None, "usage": usage}  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f" word{n}"}}
            for n in range(PIECES)
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return _sse(*((event["type"], event) for event in events))


def gemini_stream() -> bytes:
    """A long text in Gemini."""

    def chunk(text: str, **more: str) -> tuple[str, Any]:
        content = {"role": "model", "parts": [{"text": text}]}
        return "", {"candidates": [{"content": content, "index": 0, **more}], "modelVersion": "m"}

    return _sse(*(chunk(f" word{n}") for n in range(PIECES)), chunk("", finishReason="STOP")).replace(b"\n", b"\r\n")


def _ignore(kind: str, text: str, slot: int) -> None:
    pass


DECODERS: dict[str, tuple[Callable[[], bytes], Callable[[], Any]]] = {
    "chat": (chat_stream, lambda: ChatDecoder("m", _ignore)),
    "responses": (responses_stream, lambda: ResponsesDecoder("m", _ignore)),
    "messages": (messages_stream, lambda: MessageDecoder("m", _ignore)),
    "gemini": (gemini_stream, lambda: GeminiDecoder("m", _ignore)),
}


def _decode(body: bytes, make: Callable[[], Any]) -> None:
    decoder = make()
    for start in range(0, len(body), READ):
        decoder.feed(body[start : start + READ])
    decoder.end()
    if not decoder.reply().text:
        raise RuntimeError("the reply is empty")


def _client(body: bytes, package: str) -> Any:
    """A client of the HTTP library that an SDK uses (newer ones have httpx2), which answers with the recording."""
    name = "httpx2" if importlib.util.find_spec("httpx2") and package == "anthropic" else "httpx"
    http = importlib.import_module(name)

    def answer(request: object) -> Any:
        pieces = (body[start : start + READ] for start in range(0, len(body), READ))
        return http.Response(200, headers={"content-type": "text/event-stream"}, content=pieces)

    return http.Client(transport=http.MockTransport(answer))


def _sdk_chat(body: bytes) -> None:
    client = importlib.import_module("openai").OpenAI(api_key="x", http_client=_client(body, "openai"))
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "x"}]) as stream:
        stream.get_final_completion()


def _sdk_responses(body: bytes) -> None:
    client = importlib.import_module("openai").OpenAI(api_key="x", http_client=_client(body, "openai"))
    with client.responses.stream(model="m", input="x") as stream:
        stream.get_final_response()


def _sdk_messages(body: bytes) -> None:
    client = importlib.import_module("anthropic").Anthropic(api_key="x", http_client=_client(body, "anthropic"))
    with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}]) as stream:
        stream.get_final_message()


SDKS: dict[str, tuple[str, Callable[[bytes], None]]] = {
    "chat": ("openai", _sdk_chat),
    "responses": ("openai", _sdk_responses),
    "messages": ("anthropic", _sdk_messages),
}


def _best(work: Callable[[], None], runs: int = 5) -> float:
    """CPU seconds of the quickest of some runs, after one that is not counted."""
    work()
    times: list[float] = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


async def bench_decode() -> list[Figure]:
    """Decoding a stream of 3,000 pieces, beside the provider's own SDK on the same bytes."""
    figures: list[Figure] = []
    for name, (make_body, make) in DECODERS.items():
        body = make_body()
        ours = _best(lambda body=body, make=make: _decode(body, make))  # type: ignore[misc]
        sdk = _sdk_seconds(name, body)
        per = None if sdk is None else sdk / PIECES * 1e6
        figures.append(Figure(f"decode {name}, an event", ours / PIECES * 1e6, "us", per))
        rate = None if sdk is None else len(body) / sdk / 1e6
        figures.append(Figure(f"decode {name}", len(body) / ours / 1e6, "MB/s", rate))
    return figures


def _sdk_seconds(name: str, body: bytes) -> float | None:
    if name not in SDKS:
        return None
    package, work = SDKS[name]
    try:
        importlib.import_module(package)
    except ImportError:
        return None
    return _best(lambda: work(body))


def _models() -> Iterator[tuple[str, Model]]:
    yield "chat", OpenAIChat("m", base_url="http://localhost:9/v1", api_key="x")
    yield "responses", OpenAIResponses("m", base_url="http://localhost:9/v1", api_key="x")
    yield "messages", Anthropic("m", base_url="http://localhost:9", api_key="x")
    yield "gemini", Gemini("m", base_url="http://localhost:9", api_key="x")


def _history(size: int) -> tuple[Message, ...]:
    return tuple(
        Message(f"m{n}", None, "t1", "assistant" if n % 2 else "user", (Text(TEXT500),), 0.0) for n in range(size)
    )


async def bench_encode() -> list[Figure]:
    """Encoding the request of one more step, behind histories that were encoded before."""
    figures: list[Figure] = []
    for name, model in _models():
        encode: Callable[[ModelRequest], bytes] = model._encode  # type: ignore[attr-defined]  # pyright: ignore
        for size in (10, 100, 1000, 5000):
            messages = _history(size + 2)
            cache: dict[Any, Any] = {}
            encode(ModelRequest("s", "a", "", messages[:size], cache=cache))
            start = time.process_time()
            encode(ModelRequest("s", "a", "", messages, cache=cache))
            figures.append(Figure(f"encode {name} behind {size}", (time.process_time() - start) * 1e3, "ms"))
    return figures
