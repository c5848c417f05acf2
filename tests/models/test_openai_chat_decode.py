"""Chat Completions answers: dialects, calls, endings, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.models.decoding import Delta, decoded, failure
from turnstate.models.base import Reply
from turnstate.models.openai_chat.decode import ChatDecoder
from turnstate.models.wire.errors import response_error, stream_error
from turnstate.models.wire.http_errors import retry_after
from turnstate_states.content import Reasoning, Refusal, Text, ToolCall
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Usage


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> bytes:
    body: dict[str, Any] = {
        "id": "c1",
        "model": "m-1",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
        **more,
    }
    return raw(body)


def raw(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def tool(*calls: dict[str, Any], finish: Any = None) -> bytes:
    return chunk({"tool_calls": list(calls)}, finish)


DONE = b"data: [DONE]\n\n"
STOP = chunk({}, "stop") + DONE
CALLED = chunk({}, "tool_calls") + DONE


def decode(*pieces: bytes) -> tuple[Reply, list[Delta]]:
    return decoded(lambda on_delta: ChatDecoder("asked", on_delta), pieces, to_the_end=True)


def fails(*pieces: bytes) -> ModelError:
    return failure(lambda: decode(*pieces))


def calls(*pieces: bytes) -> list[tuple[str, str, str]]:
    reply, deltas = decode(*pieces)
    found = [part for part in reply.parts if isinstance(part, ToolCall)]
    told = {slot: [name, ""] for kind, name, slot in deltas if kind == "call"}
    for kind, text, slot in deltas:
        if kind == "arguments":
            told[slot][1] += text
    assert [told[slot] for slot in sorted(told)] == [[call.name, call.arguments] for call in found]
    return [(call.provider_id, call.name, call.arguments) for call in found]


def test_text_is_joined_and_told() -> None:
    """Text arrives piece by piece and is whole in the reply, with the server's model and finish reason."""
    reply, deltas = decode(
        chunk({"role": "assistant", "content": ""}), chunk({"content": "a"}), chunk({"content": "b"}), STOP
    )
    assert reply.parts == (Text("ab"),)
    assert (reply.stop, reply.raw_stop, reply.model) == ("stop", "stop", "m-1")
    assert deltas == [("text", "a", 0), ("text", "b", 0)]


def test_every_field_of_a_chunk_counts() -> None:
    """Case 11: text, finish reason and usage of one chunk all count."""
    reply, _ = decode(chunk({"content": "."}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 1}))
    assert (reply.text, reply.stop, reply.usage) == (".", "stop", Usage(3, 1))


def test_text_that_looks_like_sse_is_text() -> None:
    """Case 11: what looks like an event, inside a JSON string, stays text."""
    texts = ["data: [DONE]", ": ping", "event: error\n\n", "[DONE]"]
    assert decode(*(chunk({"content": text}) for text in texts), STOP)[0].text == "".join(texts)


def test_chunks_without_choices_are_legal_anywhere() -> None:
    """Cases 12 and 13: such chunks are skipped, and usage after the finish reason still counts."""
    empty = raw({"choices": []}) + raw({"id": "x"}) + raw({"choices": None})
    usage = raw({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    reply, _ = decode(empty, chunk({"content": "a"}), empty, chunk({}, "stop"), empty, usage, DONE)
    assert (reply.text, reply.usage) == ("a", Usage(5, 2))


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": None, "completion_tokens": None}, 7, {"prompt_tokens": "9"}]
)
def test_unknown_usage_is_unknown(usage: Any) -> None:
    """Case 13: usage that is null, empty or without counts reads as unknown, not as 0."""
    assert decode(chunk({"content": "a"}, "stop", usage=usage), DONE)[0].usage == Usage()


def test_the_last_usage_wins() -> None:
    """Usage that comes in many chunks is never summed."""
    pieces = [chunk({"content": "a"}, usage={"prompt_tokens": 9, "completion_tokens": n}) for n in range(1, 5)]
    assert decode(*pieces, STOP)[0].usage == Usage(9, 4)


def test_usage_details() -> None:
    """Cached and reasoning tokens are parts of the counts, wherever a server puts them; a cost is taken over."""
    details = {
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.5, **details}
    assert decode(chunk({}, "stop", usage=usage))[0].usage == Usage(9, 3, 4, 1, 2, 0.5)
    assert decode(chunk({}, "stop", usage={"prompt_cache_hit_tokens": 3}))[0].usage == Usage(cached=3)
    assert decode(chunk({}, "stop", x_groq={"usage": {"prompt_tokens": 2}}))[0].usage == Usage(2)


def test_calls_without_an_index_stay_apart() -> None:
    """Case 14: without an index, or with null, a new id with a name opens a call, in one chunk or in several."""
    a = {"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}
    b = {"index": None, "id": "b", "function": {"name": "g", "arguments": "{}"}}
    c = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    expected = [("a", "f", '{"x":1}'), ("b", "g", "{}"), ("c", "f", "{}")]
    assert calls(tool(a, b, c), CALLED) == calls(tool(a), tool(b), tool(c), CALLED) == expected


def test_fragments_without_an_index_find_their_call() -> None:
    """Case 14: without an index a known id continues its call, and a fragment without id and name the last one."""
    opened = (
        tool({"id": "a", "function": {"name": "f", "arguments": "{"}}),
        tool({"id": "b", "function": {"name": "g"}}),
    )
    rest = tool({"function": {"arguments": "{}"}}), tool({"id": "a", "function": {"arguments": "}"}})
    assert calls(*opened, *rest, CALLED) == [("a", "f", "{}"), ("b", "g", "{}")]


def test_named_calls_without_index_and_id_stay_apart() -> None:
    """Case 14: where neither index nor id tell calls apart, a name after a whole call opens the next."""
    f, g = ({"function": {"name": name, "arguments": '{"n":1}'}} for name in "fg")
    assert [name for _, name, _ in calls(tool(f), tool(g), tool(g), CALLED)] == ["f", "g", "g"]


def test_a_known_index_continues_its_call() -> None:
    """Case 24: interleaved fragments reach the call of their index, with the id absent, empty, repeated or changed."""
    pieces = [
        tool({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}),
        tool({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{"}}),
        tool({"index": 0, "id": "", "function": {"arguments": "{"}}, {"index": 1, "function": {"arguments": "}"}}),
        tool({"index": 0, "id": "a", "function": {"name": "f", "arguments": '"x":'}}),
        tool({"index": 0, "id": "other", "function": {"arguments": "1}"}}),
    ]
    assert calls(*pieces, CALLED) == [("a", "f", '{"x":1}'), ("b", "g", "{}")]


def test_calls_that_all_have_index_zero_stay_apart() -> None:
    """A known index with a new id and a name is a new call."""
    pieces = [tool({"index": 0, "id": id, "function": {"name": "f", "arguments": "{}"}}) for id in "abc"]
    assert [id for id, _, _ in calls(*pieces, CALLED)] == ["a", "b", "c"]


@pytest.mark.parametrize("times", [1, 2, 4])
def test_a_name_that_is_sent_again_is_not_appended(times: int) -> None:
    """Case 17: the name is set once."""
    again = tool({"index": 0, "id": "a", "function": {"name": "read", "arguments": ""}})
    assert calls(*[again] * times, tool({"index": 0, "function": {"name": "read", "arguments": "{}"}}), CALLED) == [
        ("a", "read", "{}")
    ]


def test_null_means_no_change() -> None:
    """Case 18: ``function: null``, an empty list and a null id change nothing; the name may come later."""
    pieces = [
        tool({"id": "x", "index": 0, "function": None}),
        tool(),
        tool({"id": None, "index": 0, "function": {"name": "W", "arguments": "{"}}),
        tool({"index": 0, "function": {"name": None, "arguments": None}}),
        tool({"index": 0, "function": {"arguments": "}"}}),
    ]
    assert calls(*pieces, CALLED) == [("x", "W", "{}")]


def test_arguments_before_the_name_are_told_after_it() -> None:
    """Case 18: a call is told before its arguments, and one that is never named still is a call."""
    assert calls(
        tool({"index": 0, "function": {"arguments": "{"}}),
        tool({"index": 0, "id": "a", "function": {"name": "f", "arguments": "}"}}),
        CALLED,
    ) == [("a", "f", "{}")]
    assert calls(tool({"index": 0, "id": "a", "function": {"arguments": "{}"}}), CALLED) == [("a", "", "{}")]


@pytest.mark.parametrize("arguments", ["", " ", "{}", None])
def test_empty_arguments_are_kept_as_they_came(arguments: Any) -> None:
    """Case 20: a call without arguments is a call, its text unchanged."""
    assert calls(tool({"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}), CALLED) == [
        ("a", "f", arguments or "")
    ]


def test_arguments_as_an_object_become_text() -> None:
    """A server that sends arguments as an object is understood."""
    assert calls(tool({"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}), CALLED) == [
        ("a", "f", '{"x": 1}')
    ]


def test_the_old_function_call_is_a_call() -> None:
    """The protocol's older form of a call is understood."""
    pieces = chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": "{}"}})
    assert calls(*pieces, chunk({}, "function_call")) == [("", "f", "{}")]


def test_stop_with_calls_means_tool_calls() -> None:
    """Calls are real whatever the finish reason says, unless it says that the reply was cut short."""
    call = tool({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}})
    assert decode(call, STOP)[0].stop == "tool-calls"
    assert decode(call, chunk({}, "length"), DONE)[0].stop == "length"


@pytest.mark.parametrize("text", ["", "I will call"])
def test_tool_calls_without_a_call_is_an_error(text: str) -> None:
    """Case 22: a tool finish without a call is not a reply."""
    error = fails(chunk({"content": text}), CALLED)
    assert (error.kind, error.retryable) == ("protocol", True)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "content-filter"),
        ("end_turn", "stop"),
        ("brand_new", "other"),
    ],
)
def test_finish_reasons(reason: str, stop: str) -> None:
    """Cases 26 and 27: each reason has one meaning, the raw word is kept, and an unknown one is never ``stop``."""
    reply, _ = decode(chunk({"content": "a"}), chunk({}, reason), DONE)
    assert (reply.stop, reply.raw_stop) == (stop, reason)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("error", "server"),
        ("insufficient_system_resource", "overloaded"),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "protocol"),
    ],
)
def test_finish_reasons_that_mean_failure(reason: str, kind: str) -> None:
    """Case 26: a finish reason that says that something broke is an error that may be retried."""
    error = fails(tool({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}), chunk({}, reason), DONE)
    assert (error.kind, error.retryable) == (kind, True)


def test_a_refusal_is_its_own_ending() -> None:
    """Case 27: refusal deltas make a refusal, and are told as visible text."""
    reply, deltas = decode(chunk({"refusal": "I "}), chunk({"refusal": "won't"}), STOP)
    assert (reply.parts, reply.stop) == ((Refusal("I won't"),), "refusal")
    assert deltas == [("text", "I ", 0), ("text", "won't", 0)]


@pytest.mark.parametrize(
    "pieces",
    [[], [chunk({"content": "a"})], [tool({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}})]],
)
@pytest.mark.parametrize("end", [b"", b'data: {"choices":[{"ind', DONE])
def test_an_end_without_a_finish_reason_is_a_cut(pieces: list[bytes], end: bytes) -> None:
    """Case 8: a body that ends before the finish reason, within an event too, was cut."""
    error = fails(*pieces, end)
    assert (error.kind, error.retryable) == ("cut", True)


def test_a_finish_reason_is_enough() -> None:
    """The end of the stream after a finish reason completes the reply, with or without ``[DONE]`` or its line end."""
    for end in (b"", DONE, b"data: [DONE]", b"data:[DONE]\r\n"):
        assert decode(chunk({"content": "a"}, "stop"), end)[0].text == "a"
    assert decode(chunk({"content": "a"}), chunk({}, "stop").rstrip())[0].text == "a"


def test_a_server_without_finish_reasons() -> None:
    """Text that a closing usage chunk and ``[DONE]`` follow is complete; a call then is not trusted."""
    usage = raw({"choices": [], "usage": {"prompt_tokens": 1}})
    assert decode(chunk({"content": "a"}), usage, DONE)[0].stop == "stop"
    assert fails(chunk({"content": "a"}), usage).kind == "cut"
    assert fails(tool({"id": "a", "function": {"name": "f", "arguments": "{}"}}), usage, DONE).kind == "cut"


def test_done_ends_at_once() -> None:
    """``[DONE]`` needs nothing after it, and what comes after it is not read; before it, patience is bounded."""
    decoder = ChatDecoder("m", lambda kind, text, slot: None)
    usage = raw({"choices": [], "usage": {"prompt_tokens": 1}})
    patience = list[float | None]()
    for piece in (chunk({"content": "a"}), chunk({}, "stop"), usage):
        assert not decoder.feed(piece)
        patience.append(decoder.patience)
    assert patience == [None, 5.0, 0.5]
    assert decoder.feed(DONE + b"data: nonsense\n\n")
    decoder.end()
    assert decoder.reply().text == "a"


@pytest.mark.parametrize("before", [[], [chunk({"content": "a"})], [chunk({"content": "a"}, "stop")]])
@pytest.mark.parametrize("form", ["data", "event", "chunk", "choice"])
def test_errors_inside_a_stream(before: list[bytes], form: str) -> None:
    """Cases 5 and 101: an error in any form, also after the finish reason, ends the attempt with its class."""
    error = {"message": "busy", "code": "server_is_overloaded"}
    event = {
        "data": raw({"error": error}),
        "event": b"event: error\n" + raw({"error": error}),
        "chunk": chunk({"content": "b"}, error=error),
        "choice": raw({"choices": [{"index": 0, "delta": {}, "error": error, "finish_reason": "error"}]}),
    }[form]
    caught = fails(*before, event, DONE)
    assert (caught.kind, caught.retryable, str(caught)) == ("overloaded", True, "busy")


STREAM_ERRORS: list[tuple[Any, str, bool]] = [
    ({"type": "service_unavailable_error", "message": "x"}, "overloaded", True),
    ({"code": 529, "message": "x"}, "overloaded", True),
    ({"code": "429", "message": "x"}, "rate-limit", True),
    ({"code": 400, "message": "Token limit reached"}, "invalid-request", False),
    ({"code": "context_length_exceeded", "message": "x"}, "context-overflow", False),
    ({"type": "invalid_request_error", "message": "x"}, "invalid-request", False),
    ({"type": "invalid_request_error", "code": "tool_use_failed", "status_code": 400}, "protocol", True),
    ({"message": "boom"}, "server", True),
    ("boom", "server", True),
    ({}, "server", True),
    ([{"error": {"code": 503}}], "overloaded", True),
    ({"error": {"error": {"type": "rate_limit_error"}}}, "rate-limit", True),
    (17, "server", True),
]


@pytest.mark.parametrize(("error", "kind", "retryable"), STREAM_ERRORS)
def test_classes_of_stream_errors(error: Any, kind: str, retryable: bool) -> None:
    """Case 101: code and type decide first, then a status in the error; without either the server is at fault."""
    found = stream_error(error)
    assert (found.kind, found.retryable) == (kind, retryable)
    assert str(found)


RESPONSE_ERRORS: list[tuple[int, Any, str, bool]] = [
    (
        400,
        {"error": {"message": "This model's maximum context length is 8192 tokens. However"}},
        "context-overflow",
        False,
    ),
    (400, {"error": {"type": "exceed_context_size_error", "message": "x", "code": 400}}, "context-overflow", False),
    (413, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, "context-overflow", False),
    (400, {"error": {"code": "context_length_exceeded", "type": "invalid_request_error"}}, "context-overflow", False),
    (
        400,
        {"object": "error", "message": "maximum context length is 5", "type": "BadRequestError"},
        "context-overflow",
        False,
    ),
    (401, {"error": {"message": "invalid token; the maximum context length"}}, "authentication", False),
    (404, {"error": {"message": "no model with this context window", "code": "model_not_found"}}, "not-found", False),
    (
        400,
        {"error": {"message": "max_tokens is too large: it supports 16384 completion tokens"}},
        "invalid-request",
        False,
    ),
    (400, {"error": {"code": "content_filter", "message": "filtered"}}, "content-filter", False),
    (401, {"detail": "Invalid API Key"}, "authentication", False),
    (402, {}, "permission", False),
    (403, {}, "permission", False),
    (408, {}, "timeout", True),
    (409, {}, "server", True),
    (418, {}, "invalid-request", False),
    (429, {"error": {"code": "insufficient_quota"}}, "rate-limit", False),
    (429, {}, "rate-limit", True),
    (500, {"error": {"type": "server_error"}}, "server", True),
    (501, {}, "server", False),
    (503, {}, "overloaded", True),
    (529, {}, "overloaded", True),
]


@pytest.mark.parametrize(("status", "body", "kind", "retryable"), RESPONSE_ERRORS)
def test_classes_of_responses(status: int, body: Any, kind: str, retryable: bool) -> None:
    """Case 98: overflow is told by code, type or wording, never by a word alone; an unknown 4xx is not retried."""
    error = response_error(status, {}, json.dumps(body).encode(), "http://x/v1")
    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)
    assert str(error)


def test_texts_of_responses() -> None:
    """An error's text is one line that says what the server said, or what to look at if it said nothing."""

    def text(status: int, body: bytes, **more: Any) -> str:
        return str(response_error(status, more.pop("headers", {}), body, "http://x/v1", **more))

    assert text(401, b'{"error":{"message":"bad\\nkey"}}') == "the server refused the API key (401): bad key"
    assert "set OPENAI_API_KEY" in text(401, b"", with_key=False, variable="OPENAI_API_KEY")
    assert text(404, b'{"error":{"message":"no such model"}}') == "no such model (404)"
    assert text(404, b"<html><title>x</title>", headers={}) == "x (404)"
    assert text(404, b"") == "http://x/v1 does not exist on the server (404); is base_url right?"
    assert text(502, b"Bad Gateway") == "Bad Gateway (502)"
    assert text(307, b"") == "http://x/v1 redirects elsewhere (307); set base_url to the final address"
    assert len(text(500, b"x" * 5000)) < 600


def test_the_server_may_decide_about_retries() -> None:
    """``x-should-retry`` comes before what the status says."""
    assert response_error(500, {"x-should-retry": "false"}, b"", "u").retryable is False
    assert response_error(400, {"x-should-retry": "true"}, b"", "u").retryable is True


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "abc"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1_0"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "0", "retry-after": "1"}, 1.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, None),
        ({"retry-after": "Xyz, 99 Foo"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """Case 100: every form is read, a date rounded up, and what is no positive time counts as absent."""
    assert retry_after(headers, now=40.2) == seconds


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_vendor_reasoning(field: str) -> None:
    """Reasoning under each vendor's name becomes reasoning, once, before the text."""
    reply, deltas = decode(chunk({field: "h"}), chunk({field: "m", "content": None}), chunk({"content": "a"}), STOP)
    assert reply.parts == (Reasoning("hm"), Text("a"))
    assert deltas[0] == ("reasoning", "h", 0)


def test_reasoning_under_two_names_counts_once() -> None:
    """A server that sends the same piece under both names does not double it."""
    assert decode(chunk({"reasoning": "h", "reasoning_content": "h"}), STOP)[0].parts == (Reasoning("h"),)


def test_reasoning_details_are_kept() -> None:
    """Reasoning details are kept for the server, text pieces joined, everything else as it came."""
    details = [
        {"type": "reasoning.text", "text": "a", "index": 0, "format": "f", "signature": None},
        {"type": "reasoning.text", "text": "b", "index": 0, "signature": "S"},
        {"type": "reasoning.encrypted", "data": "x", "index": 0},
        {"type": "reasoning.encrypted", "data": "y", "index": 0},
    ]
    reply, _ = decode(*(chunk({"reasoning_details": [detail]}) for detail in details), chunk({"content": "t"}), STOP)
    thought = reply.parts[0]
    assert isinstance(thought, Reasoning)
    assert thought.text == "ab"
    joined = {"type": "reasoning.text", "text": "ab", "index": 0, "format": "f", "signature": "S"}
    assert thought.provider["openai_chat"]["reasoning_details"] == [joined, details[2], details[3]]
    encrypted, _ = decode(chunk({"content": "t", "reasoning_details": [details[2]]}), STOP)
    assert [type(part) for part in encrypted.parts] == [Reasoning, Text]


def test_content_as_a_list() -> None:
    """Content blocks give reasoning and text in their order; unknown blocks are skipped."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reply, _ = decode(
        chunk({"content": [thinking]}),
        chunk({"content": [{"type": "new", "x": 1}, {"type": "text", "text": "a"}]}),
        STOP,
    )
    assert reply.parts == (Reasoning("hm"), Text("a"))


def test_only_the_first_choice_counts() -> None:
    """Other choices are not mixed in."""
    other = {"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}
    assert fails(raw({"choices": [other]}), chunk({"content": "a"})).kind == "cut"
    assert decode(raw({"choices": [other]}), chunk({"content": "a"}), STOP)[0].text == "a"


def test_unknown_fields_and_events_are_skipped() -> None:
    """Case 23: what the adapter does not know is never fatal."""
    future = b"event: future\n" + chunk({"content": "a", "novel": [1]}, None, extra={"x": 1})
    assert decode(future, raw({"type": "ping"}), chunk(None), STOP)[0].text == "a"


def test_surrogates_are_replaced_or_joined() -> None:
    """An escaped lone surrogate becomes U+FFFD, and a pair that was cut between two chunks is whole again."""
    reply, deltas = decode(
        chunk({"content": "a\ud800b"}), chunk({"content": "\ud83d"}), chunk({"content": "\ude00!"}), STOP
    )
    assert reply.text == "a\ufffdb😀!" == "".join(text for _, text, _ in deltas)
    pieces = [
        tool({"index": 0, "id": "a", "function": {"name": "f", "arguments": text}})
        for text in ('{"x":"\ud83d', '\ude00"}')
    ]
    assert calls(*pieces, CALLED) == [("a", "f", '{"x":"😀"}')]
    assert decode(chunk({"content": "end\ud83d"}), STOP)[0].text == "end\ufffd"


def test_numbers_that_are_not_finite_do_no_harm() -> None:
    """Case 34: NaN and huge numbers from a server are read as null."""
    usage = b'"usage":{"cost":NaN,"prompt_tokens":1e999}'
    stream = chunk({"content": "a"}, "stop", x=1).replace(b'"x": 1', usage)
    assert decode(stream)[0].usage == Usage()


def test_a_chunk_that_is_not_json_is_an_error() -> None:
    """Broken JSON in a chunk is a protocol error that may be retried."""
    error = fails(chunk({"content": "a"}), b"data: {oops\n\n")
    assert (error.kind, error.retryable) == ("protocol", True)
    assert fails(b"data: " + b"[" * 100_000 + b"\n\n").kind == "protocol"


def test_an_answer_that_is_a_page_is_an_error() -> None:
    """An answer that is no stream at all says what to look at, and is not retried."""
    error = fails(b"<!DOCTYPE html>\n<html></html>\n")
    assert (error.kind, error.retryable) == ("protocol", False)
    assert "base_url" in str(error)


CALLS = [
    {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    {"id": "", "type": "function", "function": {"name": "f", "arguments": ""}},
]
WHOLE = {
    "model": "m-2",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": "a", "tool_calls": CALLS},
        }
    ],
    "usage": {"prompt_tokens": 3},
}


def test_an_answer_that_is_not_streamed() -> None:
    """A server that ignores the wish for a stream is understood, byte by byte too."""
    body = json.dumps(WHOLE, indent=1).encode()
    for pieces in ([body], [body[n : n + 1] for n in range(len(body))], [b"\n", body]):
        reply, deltas = decode(*pieces)
        assert [call.provider_id for call in reply.parts[1:] if isinstance(call, ToolCall)] == ["x", ""]
        assert (reply.text, reply.stop, reply.model, reply.usage) == ("a", "tool-calls", "m-2", Usage(3))
        assert deltas[0] == ("text", "a", 0)
    assert fails(body[:-5]).kind == "cut"
    assert fails(b'{"error":{"code":"model_not_found","message":"x"}}').kind == "not-found"
    assert fails(b'{"detail":"x"}').kind == fails(b"{}").kind == "protocol"


FIELDS = [
    "choices",
    "delta",
    "message",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "index",
    "text",
    "finish_reason",
    "usage",
    "error",
    "code",
    "type",
    "reasoning_details",
    "thinking",
    "model",
    "x_groq",
]
NAMES = st.sampled_from(FIELDS)
SCALARS = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.text(max_size=3) | st.just("stop")
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


@examples()
@given(st.lists(JSON, max_size=4))
def test_nothing_but_model_errors(values: list[Any]) -> None:
    """Whatever JSON a server sends, in a stream, in a choice, in a delta or whole, only a model error is raised."""
    streams = [
        b"".join(raw(value) for value in values) + STOP,
        b"".join(raw({"choices": [value]}) for value in values) + STOP,
        b"".join(chunk(value) for value in values) + STOP,
        json.dumps(values).encode(),
        b"".join(b"event: error\n" + raw(value) for value in values),
    ]
    for stream in streams:
        try:
            decode(stream)
        except ModelError:
            pass


@examples()
@given(st.binary(max_size=60))
def test_nothing_but_model_errors_for_bytes(data: bytes) -> None:
    """Whatever bytes a server sends, only a model error is raised."""
    for stream in (data, b"data: " + data + b"\n\n", b'data: {"choices":' + data):
        with pytest.raises(ModelError):
            decode(stream)
