"""Anthropic Messages answers: blocks, calls, endings, errors, usage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.models.decoding import Delta, decoded, failure
from turnstate.models.anthropic import PROTOCOL
from turnstate.models.anthropic.decode import MessageDecoder
from turnstate.models.anthropic.usage import read_usage
from turnstate.models.base import Reply
from turnstate.models.wire.errors import response_error
from turnstate_states.content import Citation, Hosted, Reasoning, Text, ToolCall
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Usage


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n"


def opened(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def piece(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def closed(index: int) -> bytes:
    return event("content_block_stop", index=index)


def text(index: int, *pieces: str) -> bytes:
    return opened(index, "text", text="") + b"".join(piece(index, "text_delta", text=said) for said in pieces)


def tool(index: int, *pieces: str, name: str = "f", **fields: Any) -> bytes:
    start = opened(index, "tool_use", id=f"toolu_{index}", name=name, **{"input": {}, **fields})
    return start + b"".join(piece(index, "input_json_delta", partial_json=part) for part in pieces) + closed(index)


def stop(reason: Any = "end_turn", usage: Any = None, **fields: Any) -> bytes:
    return event("message_delta", delta={"stop_reason": reason, **fields}, usage=usage or {"output_tokens": 9}) + LAST


USAGE = {"input_tokens": 25, "output_tokens": 1}
START = event("message_start", message={"id": "msg_1", "model": "claude-1", "content": [], "usage": USAGE})
LAST = event("message_stop")
PING = event("ping")
OVERLOADED = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'


def decode(*pieces: bytes) -> tuple[Reply, list[Delta]]:
    return decoded(lambda on_delta: MessageDecoder("claude", on_delta), pieces, to_the_end=True)


def fails(*pieces: bytes) -> ModelError:
    return failure(lambda: decode(*pieces))


def calls(reply: Reply) -> list[tuple[str, str, str]]:
    return [(part.provider_id, part.name, part.arguments) for part in reply.parts if isinstance(part, ToolCall)]


def test_text_is_joined_and_told() -> None:
    """Pieces of text are the reply's text and are told one by one; pings may come anywhere."""
    reply, deltas = decode(START, PING, text(0, "Hel", "", "lo"), PING, closed(0), stop(), PING)
    assert (reply.text, reply.stop, reply.raw_stop, reply.model) == ("Hello", "stop", "end_turn", "claude-1")
    assert deltas == [("text", "Hel", 0), ("text", "lo", 0)]
    assert reply.usage == Usage(25, 9)
    assert reply.metadata == {"id": "msg_1", "usage": {"input_tokens": 25, "output_tokens": 9}}


def test_text_where_a_block_is_opened_counts() -> None:
    """Text that comes with the start of its block is told, too."""
    reply, deltas = decode(START, opened(0, "text", text="a"), piece(0, "text_delta", text="b"), stop())
    assert (reply.text, [said for _, said, _ in deltas]) == ("ab", ["a", "b"])


def test_thinking_keeps_its_signature() -> None:
    """Case 29: a signature is set, not appended; it belongs to exactly this text, also to an empty one."""
    signed = [piece(0, "signature_delta", signature="old"), piece(0, "signature_delta", signature="sig")]
    reply, deltas = decode(
        START,
        opened(0, "thinking", thinking="", signature=""),
        piece(0, "thinking_delta", thinking="hm"),
        *signed,
        closed(0),
        opened(1, "thinking", thinking="", signature="s2"),
        closed(1),
        opened(2, "redacted_thinking", data="secret"),
        closed(2),
        opened(3, "thinking", thinking="unsigned"),
        stop(),
    )
    thoughts = [part for part in reply.parts if isinstance(part, Reasoning)]
    kept = [part.provider.get(PROTOCOL, {}) for part in thoughts]
    assert [part.text for part in thoughts] == ["hm", "", "", "unsigned"]
    assert [fields.get("signature") or fields.get("data") for fields in kept] == ["sig", "s2", "secret", None]
    assert ("reasoning", "hm", 0) in deltas


def test_arguments_are_kept_byte_for_byte() -> None:
    """The pieces of a call's input are joined as they came, whether they are JSON or not."""
    reply, deltas = decode(START, tool(0, '{ "a"', ": 1.0 }"), tool(1, '{"cut": ', name="g"), stop("tool_use"))
    assert calls(reply) == [("toolu_0", "f", '{ "a": 1.0 }'), ("toolu_1", "g", '{"cut": ')]
    assert reply.stop == "tool-calls"
    assert deltas[0] == ("call", "f", 0)
    assert deltas[-2:] == [("call", "g", 1), ("arguments", '{"cut": ', 1)]


@pytest.mark.parametrize("block", [tool(0), tool(0, ""), tool(0, input=None)])
def test_a_call_without_arguments(block: bytes) -> None:
    """Case 20: no piece, an empty piece and no ``input`` are all the empty text, which means no arguments."""
    reply, deltas = decode(START, block, stop("tool_use"))
    assert calls(reply) == [("toolu_0", "f", "")]
    assert deltas == [("call", "f", 0)]


def test_a_whole_input_where_a_block_is_opened() -> None:
    """Some servers send the whole input with the start of the block; pieces come before it."""
    reply, deltas = decode(START, tool(0, input={"a": 1}), tool(1, "{}", input={"a": 1}), stop("tool_use"))
    assert [arguments for _, _, arguments in calls(reply)] == ['{"a": 1}', "{}"]
    assert ("arguments", '{"a": 1}', 0) in deltas


def test_pieces_find_their_block() -> None:
    """Case 24: pieces of several blocks in turn go to the blocks that their index names."""
    starts = [opened(n, "tool_use", id=f"i{n}", name=f"f{n}") for n in (1, 2)]
    parts = [piece(n, "input_json_delta", partial_json=part) for part in ('{"n":', "7}") for n in (1, 2)]
    reply, deltas = decode(START, text(0, "a"), *starts, *parts, closed(2), closed(1), stop("tool_use"))
    assert calls(reply) == [("i1", "f1", '{"n":7}'), ("i2", "f2", '{"n":7}')]
    for slot in (0, 1):
        assert "".join(said for kind, said, n in deltas if kind == "arguments" and n == slot) == '{"n":7}'


@pytest.mark.parametrize(
    "pieces",
    [
        [tool(0), piece(0, "text_delta", text="a")],
        [text(0, "a"), piece(0, "input_json_delta", partial_json="{}")],
        [text(0, "a"), piece(0, "thinking_delta", thinking="a")],
        [text(0, "a"), piece(0, "signature_delta", signature="a")],
        [opened(0, "thinking", thinking=""), piece(0, "citations_delta", citation={})],
        [opened(0, "redacted_thinking", data="x"), piece(0, "text_delta", text="a")],
        [piece(0, "input_json_delta", partial_json="{}")],
        [text(0), piece(0, "text_delta", text=7)],
        [opened(0, 7)],  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        [event("content_block_start", index="x", content_block={"type": "text"})],
        [event("content_block_start", index=0)],
        [event("message_delta", delta={"stop_reason": 7})],
        [b"data: 7\n\n"],
    ],
)
def test_what_does_not_fit_is_a_typed_error(pieces: list[bytes]) -> None:
    """Case 24: a piece that does not fit its block, and a field of a wrong type, are protocol errors."""
    error = fails(START, *pieces, stop())
    assert (error.kind, error.retryable) == ("protocol", True)


def test_servers_that_leave_something_out() -> None:
    """Text without the start of its block, events without an index and a missing ``message_start`` do no harm."""
    reply, _ = decode(piece(0, "text_delta", text="a"), piece(0, "text_delta", text="b"), stop())
    assert (reply.text, reply.model) == ("ab", "claude")
    unnumbered = event("content_block_start", content_block={"type": "text"})
    said = event("content_block_delta", delta={"type": "text_delta", "text": "c"})
    assert decode(START, unnumbered, said, event("content_block_stop"), stop())[0].text == "c"
    named = b'event: message_stop\ndata: {"x": 1}\n\n'
    assert decode(START, text(0, "d"), b"data: [DONE]\n\n", named)[0].text == "d"


def test_unknown_things_are_skipped_or_kept() -> None:
    """Case 23: unknown events and deltas are skipped, an unknown block is kept verbatim."""
    block = {"type": "future", "data": {"a": [1, None]}, "x": "y"}
    reply, deltas = decode(
        START,
        event("future", a=1),
        event("content_block_start", index=0, content_block=block),
        piece(0, "future_delta", a=1),
        closed(0),
        text(1, "a"),
        piece(1, "future_delta", a=1),
        stop(),
    )
    hosted, said = reply.parts
    assert isinstance(hosted, Hosted)
    assert hosted.kind == "future"
    assert hosted.provider[PROTOCOL]["block"] == block
    assert said == Text("a")
    assert deltas == [("text", "a", 0)]


def test_what_the_provider_ran() -> None:
    """Server tools and their results are kept as they came, with the input that came in pieces."""
    found = [{"type": "web_search_result", "url": "http://a", "title": "A", "encrypted_content": "zz"}]
    reply, deltas = decode(
        START,
        opened(0, "server_tool_use", id="srv_1", name="web_search", input={}),
        piece(0, "input_json_delta", partial_json='{"query": "x"}'),
        closed(0),
        opened(1, "web_search_tool_result", tool_use_id="srv_1", content=found),
        closed(1),
        opened(2, "compaction", content=None),
        piece(2, "compaction_delta", content="summary"),
        opened(3, "mcp_tool_use", id="m", name="n", input={}),
        piece(3, "input_json_delta", partial_json='{"cut'),
        stop("pause_turn"),
    )
    parts = [part for part in reply.parts if isinstance(part, Hosted)]
    blocks = [part.provider[PROTOCOL]["block"] for part in parts]
    assert blocks[0] == {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
    assert blocks[1]["content"] == found
    assert blocks[2]["content"] == "summary"
    assert blocks[3]["input"] == {"_raw": '{"cut'}
    assert [part.text for part in parts[:3]] == ['web_search {"query": "x"}', "A\nhttp://a", "summary"]
    assert (reply.stop, deltas) == ("pause", [])


def test_citations() -> None:
    """Citations are read, and kept verbatim for the way back."""
    web = {
        "type": "web_search_result_location",
        "url": "http://a",
        "title": "A",
        "cited_text": "q",
        "encrypted_index": "e",
    }
    page = {"type": "page_location", "document_title": "D", "document_index": 0, "cited_text": "r"}
    nameless = {"type": "char_location", "document_title": None, "document_index": 3, "cited_text": "s"}
    pieces = [piece(0, "citations_delta", citation=item) for item in (web, page, nameless)]
    [said] = decode(START, text(0, "a"), *pieces, stop())[0].parts
    assert isinstance(said, Text)
    assert said.citations == (Citation("http://a", "A", "q"), Citation("D", "D", "r"), Citation("document 3", "", "s"))
    assert said.provider[PROTOCOL]["citations"] == [web, page, nameless]


@pytest.mark.parametrize(
    ("reason", "stopped"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "pause"),
        ("compaction", "pause"),
        ("refusal", "refusal"),
        ("something_new", "other"),
        (None, "stop"),
    ],
)
def test_stop_reasons(reason: Any, stopped: str) -> None:
    """Each stop reason has its meaning and is kept as it came."""
    reply, _ = decode(START, text(0, "a"), stop(reason))
    assert (reply.stop, reply.raw_stop) == (stopped, reason or "")


def test_a_refusal_without_a_block() -> None:
    """Case 27: a refusal may hold nothing at all; it is its own ending, with usage and the provider's reason."""
    details = {"type": "refusal", "category": "cyber"}
    reply, deltas = decode(START, PING, stop("refusal", stop_details=details))
    assert (reply.stop, reply.parts, deltas) == ("refusal", (), [])
    assert reply.usage.output == 9
    assert reply.metadata["stop_details"] == details


def test_tool_use_without_a_call_is_an_error() -> None:
    """Case 22: an answer that stops for a call and holds none is reported; calls with ``end_turn`` are calls."""
    error = fails(START, text(0, "a"), stop("tool_use"))
    assert (error.kind, error.retryable) == ("protocol", True)
    assert decode(START, tool(0), stop("end_turn"))[0].stop == "tool-calls"
    assert decode(START, tool(0), stop("max_tokens"))[0].stop == "length"


@pytest.mark.parametrize(
    "before", [[], [text(0, "a")], [text(0, "a"), tool(1, "{}")], [tool(0, "{}"), stop()[: -len(LAST)]]]
)
@pytest.mark.parametrize("end", [b"", b"event: message_st", b'event: message_stop\ndata: {"type":"mess'])
def test_an_end_without_message_stop_is_a_cut(before: list[bytes], end: bytes) -> None:
    """Case 8: nothing but ``message_stop`` makes an answer complete, not even the stop reason."""
    error = fails(START, *before, end)
    assert (error.kind, error.retryable) == ("cut", True)


def test_message_stop_ends_at_once() -> None:
    """``message_stop`` is enough without a blank line at the end of the body; whatever follows it is ignored."""
    decoder = MessageDecoder("m", lambda kind, text, slot: None)
    assert decoder.feed(START + text(0, "a")) is False
    assert decoder.feed(stop() + OVERLOADED) is True
    assert decoder.feed(OVERLOADED) is True
    decoder.end()
    assert decoder.reply().text == "a"
    assert decode(START, text(0, "b"), stop()[:-2])[0].text == "b"


def test_a_second_message_start() -> None:
    """A start that comes twice changes nothing; blocks that begin again at index 0 are further blocks."""
    assert decode(START, START, text(0, "a"), stop())[0].text == "a"
    reply, deltas = decode(START, text(0, "a"), closed(0), START, text(0, "b", "c"), stop())
    assert [part.text for part in reply.parts if isinstance(part, Text)] == ["a", "bc"]
    assert [said for _, said, _ in deltas] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "before", [[], [START, text(0, "a")], [START, tool(0, "{}")], [START, tool(0, "{}"), stop()[:-40]]]
)
def test_errors_inside_a_stream(before: list[bytes]) -> None:
    """Cases 5 and 101: an error told inside a stream ends the attempt, classified by its type."""
    error = fails(*before, OVERLOADED, stop())
    assert (str(error), error.kind, error.retryable) == ("Overloaded", "overloaded", True)


@pytest.mark.parametrize(
    ("name", "kind", "retryable"),
    [
        ("overloaded_error", "overloaded", True),
        ("rate_limit_error", "rate-limit", True),
        ("api_error", "server", True),
        ("timeout_error", "timeout", True),
        ("invalid_request_error", "invalid-request", False),
        ("authentication_error", "authentication", False),
        ("permission_error", "permission", False),
        ("billing_error", "permission", False),
        ("not_found_error", "not-found", False),
        ("request_too_large", "context-overflow", False),
    ],
)
def test_classes_of_errors(name: str, kind: str, retryable: bool) -> None:
    """Case 101: the same type is the same class, as an event, as data without a name, and as a body with status 200."""
    told = {"type": "error", "error": {"type": name, "message": "x"}, "request_id": "r"}
    data = json.dumps(told).encode()
    for stream in (b"event: error\ndata: " + data + b"\n\n", b"data: " + data + b"\n\n", data):
        error = fails(stream)
        assert (error.kind, error.retryable, error.status) == (kind, retryable, None)


RESPONSES = [
    (429, "rate_limit_error", "slow down", "rate-limit", True),
    (529, "overloaded_error", "Overloaded", "overloaded", True),
    (500, "api_error", "oops", "server", True),
    (504, "timeout_error", "late", "timeout", True),
    (400, "invalid_request_error", "bad field", "invalid-request", False),
    (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", "context-overflow", False),
    (
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "context-overflow",
        False,
    ),
    (401, "authentication_error", "invalid x-api-key, check your token", "authentication", False),
    (402, "billing_error", "pay", "permission", False),
    (403, "permission_error", "no", "permission", False),
    (404, "not_found_error", "model: x", "not-found", False),
    (413, "request_too_large", "Request exceeds the maximum size", "context-overflow", False),
]


@pytest.mark.parametrize(("status", "name", "text", "kind", "retryable"), RESPONSES)
def test_classes_of_responses(status: int, name: str, text: str, kind: str, retryable: bool) -> None:
    """Case 98: each status with the API's body is one class of error, and its text is kept."""
    body = json.dumps({"type": "error", "error": {"type": name, "message": text}}).encode()
    error = response_error(status, {"retry-after": "3"}, body, "http://s/v1/messages")
    assert (error.kind, error.retryable, error.status, error.retry_after) == (kind, retryable, status, 3.0)
    assert text in str(error)


@pytest.mark.parametrize(
    ("start", "deltas", "usage"),
    [
        ({"input_tokens": 25, "output_tokens": 1}, [{"output_tokens": 15}], Usage(25, 15)),
        (
            {"input_tokens": 25, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 5, "output_tokens": 1},
            [{"input_tokens": 25, "cache_read_input_tokens": 10, "output_tokens": 15}],
            Usage(40, 15, 10, 5),
        ),
        ({"input_tokens": 25, "output_tokens": 1}, [{"output_tokens": n} for n in (5, 9, 15)], Usage(25, 15)),
        ({}, [{"output_tokens": None}], Usage()),
        ({"input_tokens": None}, [{"input_tokens": "7", "output_tokens": 3.0}], Usage(None, 3)),
        (
            {"input_tokens": 1},
            [{"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}],
            Usage(1, 9, reasoning=4),
        ),
    ],
)
def test_usage_is_cumulative(start: Any, deltas: list[Any], usage: Usage) -> None:
    """Case 105: the last count of a field wins, what is left out keeps its value, and nothing is summed."""
    begun = event("message_start", message={"usage": start})
    said = [event("message_delta", delta={}, usage=counts) for counts in deltas]
    assert decode(begun, text(0, "a"), *said, stop(usage={"x": 1}))[0].usage == usage
    assert decode(begun, text(0, "a"), *said, stop(usage={"x": 1}))[0].metadata["usage"]["x"] == 1


def test_usage_of_messages_adds_up() -> None:
    """Case 105: usage of two messages is summed, each counted once."""
    one = read_usage({"input_tokens": 25, "output_tokens": 15})
    assert one + one == Usage(50, 30)


def test_an_answer_that_is_not_streamed() -> None:
    """An answer in one piece, however it is cut, is the same reply; calls keep their input as JSON text."""
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "é", "citations": None},
        {"type": "tool_use", "id": "x", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "y", "name": "g", "input": {}},
    ]
    whole: dict[str, Any] = {
        "type": "message",
        "model": "claude-2",
        "content": content,
        "stop_reason": "tool_use",
        "usage": USAGE,
    }
    body = json.dumps(whole).encode()
    for pieces in ([body], [body[n : n + 1] for n in range(len(body))], [b"\n", body]):
        reply, deltas = decode(*pieces)
        assert calls(reply) == [("x", "f", '{"a": 1}'), ("y", "g", "{}")]
        assert (reply.text, reply.stop, reply.model, reply.usage) == ("é", "tool-calls", "claude-2", Usage(25, 1))
        assert deltas[0] == ("reasoning", "hm", 0)
    assert fails(body[:-5]).kind == "cut"
    assert fails(b"{}").kind == fails(b'{"content": 7}').kind == fails(b"[7]").kind == "protocol"


def test_what_is_no_answer_at_all() -> None:
    """A web page, broken JSON and nothing are typed errors."""
    page = fails(b"<html>hi</html>")
    assert (page.kind, page.retryable, "base_url" in str(page)) == ("protocol", False, True)
    assert fails(START, b"data: {broken\n\n").kind == "protocol"
    assert fails().kind == fails(b"", b"\n\n").kind == "cut"


def test_surrogates_are_replaced_or_joined() -> None:
    """Halves of a pair in two pieces are joined; lone ones become U+FFFD, in text, arguments, names and blocks."""

    def raw(index: int, kind: str, field: str, value: str) -> bytes:
        event = {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: "@"}}
        return b"data: " + json.dumps(event).replace("@", value).encode() + b"\n\n"

    reply, deltas = decode(
        START,
        text(0),
        raw(0, "text_delta", "text", "a\\ud83d"),
        raw(0, "text_delta", "text", "\\ude00b\\ud800"),
        opened(1, "tool_use", id="\ud800", name="f\ud800"),
        raw(1, "input_json_delta", "partial_json", "\\udc00"),
        opened(2, "future", x={"y": ["\ud800"]}),
        raw(2, "future_delta", "text", "\\ud800"),
        stop("tool_use"),
    )
    assert reply.text == "a😀b\ufffd" == "".join(said for kind, said, _ in deltas if kind == "text")
    assert calls(reply) == [("\ufffd", "f\ufffd", "\ufffd")]
    hosted = reply.parts[2]
    assert isinstance(hosted, Hosted)
    assert hosted.provider[PROTOCOL]["block"]["x"] == {"y": ["\ufffd"]}


def test_a_cut_anywhere_gives_the_same_pieces() -> None:
    """Cases 1 and 3: neither the line ends nor where the bytes are cut changes what comes out."""
    stream = START + text(0, "é日", "🌍") + closed(0) + tool(1, '{"a":', '"日"}') + stop("tool_use")
    wanted = decode(stream)
    for ends in (b"\n", b"\r\n", b"\r"):
        data = stream.replace(b"\n", ends)
        assert decode(*(data[n : n + 1] for n in range(len(data)))) == wanted
        for place in range(0, len(data), 7):
            assert decode(data[:place], data[place:]) == wanted


FIELDS = """type index delta content_block message text thinking signature partial_json input id name usage stop_reason
error content citations citation model tool_use_id data"""
WORDS = """message_start content_block_start content_block_delta content_block_stop message_delta message_stop ping error
text thinking redacted_thinking tool_use server_tool_use future text_delta thinking_delta input_json_delta signature_delta
citations_delta compaction compaction_delta"""
NAMES = st.sampled_from(sorted(FIELDS.split()))
KINDS = st.sampled_from(sorted(WORDS.split()))
SCALARS = st.none() | st.booleans() | st.integers(-1, 2) | st.floats(allow_nan=False) | st.text(max_size=3) | KINDS
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
OBJECTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(NAMES, SCALARS, max_size=3)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """What looks like an event: a block or a delta of any type, with any fields."""
    inner = draw(OBJECTS) | {"type": draw(KINDS)}
    fields = draw(st.sampled_from([{"content_block": inner}, {"delta": inner}, draw(OBJECTS)]))
    return {"type": draw(KINDS), "index": draw(st.integers(0, 2)), **fields}


@examples()
@given(st.lists(events() | JSON, max_size=8), st.integers(0, 500))
def test_nothing_but_model_errors(values: list[Any], place: int) -> None:
    """Whatever events a server sends, however they are cut, only a model error is raised, and both ways alike."""
    data = START + b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values) + stop()
    outcomes: list[object] = []
    for pieces in ([data], [data[:place], data[place:]], [data.replace(b"\n", b"\r\n")]):
        try:
            outcomes.append(decode(*pieces))
        except ModelError as error:
            outcomes.append((str(error), error.kind))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@examples()
@given(st.lists(JSON, max_size=3), JSON)
def test_nothing_but_model_errors_for_documents(content: list[Any], value: Any) -> None:
    """Whatever a whole answer holds, only a model error is raised."""
    for document in ({"content": content}, value, [value], {"content": content, "usage": value, "stop_reason": value}):
        try:
            decode(json.dumps(document).encode())
        except ModelError:
            pass


@examples()
@given(st.binary(max_size=60))
def test_nothing_but_model_errors_for_bytes(data: bytes) -> None:
    """Whatever bytes a server sends, only a model error is raised."""
    for stream in (data, b"data: " + data + b"\n\n", b'data: {"type":"content_block_delta","delta":' + data):
        with pytest.raises(ModelError):
            decode(stream)
