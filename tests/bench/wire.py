"""What the wire costs: decoding streams beside the official SDKs, where they are installed, and encoding one more step."""

from __future__ import annotations

import importlib
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from turnstate import Message, ModelRequest, Text
from turnstate.models import Anthropic, Gemini, OpenAIChat, OpenAIResponses
from turnstate.states import Part, Role, ToolCall, ToolResult

from .measure import Figure

PIECES = 3000
READ = 1400
TEXT500 = "lorem ipsum " * 42
SIZES = (10, 100, 1000, 5000)
MORE_STEPS = 20


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


# Of any type, since what is measured is inside of the adapters.
MODELS: dict[str, Any] = {
    "chat": OpenAIChat("m", base_url="http://localhost:9/v1", api_key="x"),
    "responses": OpenAIResponses("m", base_url="http://localhost:9/v1", api_key="x"),
    "messages": Anthropic("m", base_url="http://localhost:9", api_key="x"),
    "gemini": Gemini("m", base_url="http://localhost:9", api_key="x"),
}
STREAMS: dict[str, Callable[[], bytes]] = {
    "chat": chat_stream,
    "responses": responses_stream,
    "messages": messages_stream,
    "gemini": gemini_stream,
}


def _decode(model: Any, body: bytes) -> None:
    decoder = model._make_decoder(_ignore)
    for start in range(0, len(body), READ):
        decoder.feed(body[start : start + READ])
    decoder.end()
    if not decoder.reply().text:
        raise RuntimeError("the reply is empty")


def _client(body: bytes, package: str) -> Any:
    """A client of the HTTP library that an SDK uses (newer ones have httpx2), which answers with the recording."""
    name = "httpx2" if importlib.util.find_spec("httpx2") and package in ("anthropic", "google.genai") else "httpx"
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


def _sdk_gemini(body: bytes) -> None:
    # This SDK reads every chunk into its types, and leaves it to the caller to put them together.
    options = {"httpx_client": _client(body, "google.genai")}
    client = importlib.import_module("google.genai").Client(api_key="x", http_options=options)
    texts = [chunk.text for chunk in client.models.generate_content_stream(model="m", contents="x")]
    if len(texts) <= PIECES or not "".join(texts):
        raise RuntimeError("the reply is empty")


SDKS: dict[str, tuple[str, Callable[[bytes], None]]] = {
    "chat": ("openai", _sdk_chat),
    "responses": ("openai", _sdk_responses),
    "messages": ("anthropic", _sdk_messages),
    "gemini": ("google.genai", _sdk_gemini),
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
    """Decoding a stream of 3,000 pieces of text; what stands for the floor is the provider's own SDK on the same bytes."""
    figures: list[Figure] = []
    for name, make_body in STREAMS.items():
        body = make_body()
        ours = _best(lambda body=body, name=name: _decode(MODELS[name], body))  # type: ignore[misc]
        sdk = _sdk_seconds(name, body)
        what = f"decode {name}" if sdk is None else f"decode {name} beside {SDKS[name][0]}"
        for unit, amount in (("MB/s", len(body) / 1e6), ("1000/s", body.count(b"data: ") / 1e3)):
            more = "" if unit == "MB/s" else ", events"
            figures.append(Figure(what + more, amount / ours, unit, None if sdk is None else amount / sdk))
    return figures


def _sdk_seconds(name: str, body: bytes) -> float | None:
    package, work = SDKS[name]
    try:
        importlib.import_module(package)
    except ImportError:
        return None
    return _best(lambda: work(body))


def _history(size: int) -> tuple[Message, ...]:
    """A question and a loop of calls and results."""
    return tuple(_message(number) for number in range(size))


def _message(number: int) -> Message:
    role: Role = "tool" if number and not number % 2 else "assistant" if number else "user"
    parts: dict[Role, tuple[Part, ...]] = {
        "user": (Text(TEXT500),),
        "assistant": (Text(TEXT500[:300]), ToolCall(f"m{number}.0", "work", f'{{"n":{number}}}', f"call_{number}")),
        "tool": (ToolResult(f"m{number - 1}.0", TEXT500),),
    }
    return Message(f"m{number}", f"m{number - 1}" if number else None, "t1", role, parts[role], 0.0)


def _one_more_step(model: Any, size: int) -> tuple[float, float]:
    """Seconds to encode the request of one more step behind ``size`` messages, and to join as many bytes."""
    history = _history(size + 1 + 2 * MORE_STEPS)
    cache: dict[Any, Any] = {}
    model._encode(ModelRequest("s", "a", "", history[: size + 1], cache=cache))
    steps: list[float] = []
    joins: list[float] = []
    for end in range(size + 3, len(history) + 1, 2):
        request = ModelRequest("s", "a", "", history[:end], cache=cache)
        start = time.perf_counter()
        body = model._encode(request)
        steps.append(time.perf_counter() - start)
        length = len(body) // end
        pieces = [body[at : at + length] for at in range(0, len(body), length)]
        start = time.perf_counter()
        b",".join(pieces)
        joins.append(time.perf_counter() - start)
    return statistics.median(steps), statistics.median(joins)


async def bench_encode() -> list[Figure]:
    """The request of one more step, behind messages that were encoded before; the floor joins as many bytes."""
    figures: list[Figure] = []
    for name, model in MODELS.items():
        for size in SIZES:
            step, join = _one_more_step(model, size)
            figures.append(Figure(f"encode {name} behind {size}", step * 1e3, "ms", join * 1e3))
    return figures
