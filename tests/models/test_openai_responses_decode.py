"""Responses answers: items, dialects, endings, errors."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.models.decoding import Delta, decoded, failure
from turnstate.models.base import Reply
from turnstate.models.openai_responses import PROTOCOL
from turnstate.models.openai_responses.decode import ResponsesDecoder
from turnstate_states.content import Citation, Hosted, Reasoning, Refusal, Text, ToolCall
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Usage

MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "status": "completed"}


def raw(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def event(type: str, **fields: Any) -> bytes:
    return f"event: response.{type}\n".encode() + raw({"type": f"response.{type}", **fields})


def text(*texts: str, item: str = "msg_1", index: Any = 0, **fields: Any) -> bytes:
    kind = "output_text.delta"
    return b"".join(event(kind, item_id=item, output_index=index, content_index=0, delta=t, **fields) for t in texts)


def arguments(*texts: str, item: str = "fc_1", index: Any = 0) -> bytes:
    kind = "function_call_arguments.delta"
    return b"".join(event(kind, item_id=item, output_index=index, delta=t) for t in texts)


def added(item: dict[str, Any], index: int = 0) -> bytes:
    return event("output_item.added", output_index=index, item={**item, "status": "in_progress"})


def done(item: dict[str, Any], index: int = 0) -> bytes:
    return event("output_item.done", output_index=index, item=item)


def said(*texts: str, **more: Any) -> dict[str, Any]:
    return {**MESSAGE, "content": [{"type": "output_text", "text": t, "annotations": []} for t in texts], **more}


def called(arguments: str, **more: Any) -> dict[str, Any]:
    return {**CALL, "arguments": arguments, **more}


def response(status: str = "completed", output: Any = (), **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "model": "m-1", "status": status, "output": list(output), **more}


def end(*output: Any, status: str = "completed", **more: Any) -> bytes:
    return event(status, response=response(status, output, **more))


def decode(*pieces: bytes) -> tuple[Reply, list[Delta]]:
    return decoded(lambda on_delta: ResponsesDecoder("asked", on_delta, "http://a"), pieces)


def fails(*pieces: bytes) -> ModelError:
    return failure(lambda: decode(*pieces))


def shown(deltas: list[Delta], kind: str = "text") -> str:
    return "".join(text for told, text, _ in deltas if told == kind)


def calls(reply: Reply) -> list[tuple[str, str, str]]:
    return [(part.provider_id, part.name, part.arguments) for part in reply.parts if isinstance(part, ToolCall)]


START = event("created", response=response("in_progress")) + event("in_progress", response=response("in_progress"))


def test_text_is_joined_and_told() -> None:
    """Text arrives piece by piece and is whole in the reply, with the server's model, status, usage and id."""
    usage: dict[str, Any] = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }
    reply, deltas = decode(START, added(MESSAGE), text("a", "b"), done(said("ab")), end(said("ab"), usage=usage))
    assert [part.text for part in reply.parts if isinstance(part, Text)] == ["ab"]
    assert (reply.stop, reply.raw_stop, reply.model) == ("stop", "completed", "m-1")
    assert reply.usage == Usage(9, 3, 4, 1, 2)
    assert (reply.metadata["usage"], reply.metadata["id"]) == (usage, "resp_1")
    assert deltas == [("text", "a", 0), ("text", "b", 0)]


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": None, "output_tokens": None}, 7, {"input_tokens": "9"}])
def test_unknown_usage_is_unknown(usage: Any) -> None:
    """Case 13: usage that is null, empty or without counts reads as unknown, not as 0."""
    assert decode(end(said("a"), usage=usage))[0].usage == Usage()


def test_the_last_event_ends_the_answer() -> None:
    """What follows the event that ends the response is not looked at, and nothing has to follow it."""
    decoder = ResponsesDecoder("m", lambda kind, text, slot: None)
    assert not decoder.feed(text("a"))
    assert decoder.feed(end(said("a")) + b"data: nonsense\n\n")
    assert decoder.feed(b"more")
    decoder.end()
    assert decoder.reply().text == "a"


@pytest.mark.parametrize(
    "pieces",
    [[], [START], [text("a")], [added(CALL), arguments("{}"), done(called("{}"))], [text("a"), b"data: [DONE]\n\n"]],
)
def test_an_answer_without_its_last_event_is_cut(pieces: list[bytes]) -> None:
    """Case 8: an answer that ends early is never complete, also not after a whole call or ``[DONE]``."""
    error = fails(*pieces)
    assert (error.kind, error.retryable) == ("cut", True)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", "length"),
        ("content_filter", "content-filter"),
        ("max_messages", "length"),
        ("steered", "length"),
    ],
)
def test_incomplete(reason: str, stop: str) -> None:
    """Cases 27, 32 and 94: an incomplete response is a reply that says why it stopped, with its usage."""
    more: dict[str, Any] = {"incomplete_details": {"reason": reason}, "usage": {"input_tokens": 5, "output_tokens": 2}}
    texts = [text("a"), end(said("a", status="incomplete"), status="incomplete", **more)]
    half = [added(CALL), arguments('{"a'), end(called('{"a', status="incomplete"), status="incomplete", **more)]
    nothing = [end(status="incomplete", **more)]
    for pieces in (texts, half, nothing):
        reply, _ = decode(*pieces)
        assert (reply.stop, reply.raw_stop, reply.usage) == (stop, reason, Usage(5, 2))
    assert calls(decode(*half)[0]) == [("call_1", "f", '{"a')]


def test_a_call_that_was_cut_is_not_a_call_to_run() -> None:
    """Case 94: a call that the server calls incomplete in a complete response stops the reply by its length."""
    assert decode(end(called('{"a": 1}', status="incomplete")))[0].stop == "length"


@pytest.mark.parametrize("more", [{}, {"incomplete_details": None}, {"incomplete_details": {"reason": None}}])
def test_calls_of_an_incomplete_response_do_not_run(more: dict[str, Any]) -> None:
    """Case 94: a response that is incomplete for no reason given was cut off, though the calls in it are whole."""
    reply, _ = decode(end(called("{}"), status="incomplete", **more))
    assert (reply.stop, reply.raw_stop, calls(reply)) == ("length", "incomplete", [("call_1", "f", "{}")])


def test_a_status_counts_more_than_the_name_of_its_event() -> None:
    """A response that says that it is incomplete is, whatever its event is called."""
    reply, _ = decode(event("completed", response=response("incomplete", [said("a")])))
    assert (reply.stop, reply.raw_stop) == ("length", "incomplete")


ERRORS: list[tuple[Any, str, bool]] = [
    ({"code": "server_error", "message": "x"}, "server", True),
    ({"code": "rate_limit_exceeded", "message": "x"}, "rate-limit", True),
    ({"code": "insufficient_quota", "message": "x"}, "rate-limit", False),
    ({"code": "server_is_overloaded", "type": "service_unavailable_error", "message": "x"}, "overloaded", True),
    ({"code": "context_length_exceeded", "message": "x"}, "context-overflow", False),
    ({"code": "invalid_prompt", "message": "x"}, "invalid-request", False),
    ({"code": "vector_store_timeout", "message": "x"}, "timeout", True),
    ({"code": "image_content_policy_violation", "message": "x"}, "content-filter", False),
    ({"code": "image_too_large", "message": "x"}, "invalid-request", False),
    ({"code": None, "message": "your input exceeds the context window"}, "context-overflow", False),
    ({"message": "x"}, "server", True),
]


@pytest.mark.parametrize(("error", "kind", "retryable"), ERRORS)
def test_errors_inside_a_stream(error: Any, kind: str, retryable: bool) -> None:
    """Cases 5, 98 and 101: an error is the same one, nested, flat, alone or as a failed response, also after text."""
    failed = event("failed", response=response("failed", error=error))
    nested = b"event: error\n" + raw({"type": "error", "sequence_number": 2, "error": error})
    flat = b"event: error\n" + raw({"type": "error", "param": None, **{k: v for k, v in error.items() if k != "type"}})
    for pieces in ([failed], [nested], [raw({"type": "error", "error": error})], [flat], [nested, failed]):
        for before in (START, text("a"), added(CALL) + arguments("{}") + done(called("{}"))):
            found = fails(before, *pieces)
            assert (found.kind, found.retryable, str(found)) == (kind, retryable, error["message"])


def test_odd_errors() -> None:
    """An error without a text, as plain text, or outside every event is an error all the same."""
    assert fails(event("failed", response=None)).kind == "server"
    assert fails(event("failed")).retryable
    assert str(fails(b"event: error\ndata: oops\n\n")) == "oops"
    assert fails(raw({"error": {"message": "no", "code": "invalid_api_key"}})).kind == "authentication"
    assert fails(event("cancelled", response=response("cancelled"))).kind == "server"


def test_a_refusal() -> None:
    """Case 27: a refusal is told as text, is a part of its own and the reason why the reply stopped."""
    item: dict[str, Any] = {**MESSAGE, "content": [{"type": "refusal", "refusal": "No way."}]}
    pieces = [
        event("refusal.delta", item_id="msg_1", output_index=0, content_index=0, delta=t) for t in ("No ", "way.")
    ]
    for tail in ([done(item), end(item)], [end()]):
        reply, deltas = decode(added(MESSAGE), *pieces, *tail)
        assert [type(part) for part in reply.parts] == [Refusal]
        assert (reply.stop, reply.text, shown(deltas)) == ("refusal", "No way.", "No way.")


def test_a_call() -> None:
    """A call has the call id, not the item's, and its arguments byte for byte; it is told as it grows."""
    whole = called('{"a" : 1}')
    reply, deltas = decode(added(called("")), arguments('{"a"', " : 1}"), done(whole), end(whole))
    assert (calls(reply), reply.stop) == ([("call_1", "f", '{"a" : 1}')], "tool-calls")
    assert deltas == [("call", "f", 0), ("arguments", '{"a"', 0), ("arguments", " : 1}", 0)]


def test_interleaved_calls_stay_apart() -> None:
    """Case 24: pieces of several calls find their own, by index or by id."""
    items = [called("", id=f"fc_{n}", call_id=f"call_{n}") for n in range(2)]
    by_index = [arguments(t, item="?", index=n) for n, t in ((0, "{"), (1, '{"b":'), (0, "}"), (1, "2}"))]
    by_id = [arguments(t, item=f"fc_{n}", index=None) for n, t in ((0, "{"), (1, '{"b":'), (0, "}"), (1, "2}"))]
    for pieces in (by_index, by_id):
        reply, deltas = decode(*(added(item, n) for n, item in enumerate(items)), *pieces, end())
        assert calls(reply) == [("call_0", "f", "{}"), ("call_1", "f", '{"b":2}')]
        assert [shown([d for d in deltas if d[2] == n], "arguments") for n in range(2)] == ["{}", '{"b":2}']


def test_calls_keep_the_numbers_under_which_they_were_told() -> None:
    """A last event that has the calls in another order does not change which is which."""
    one, two = called("{}", call_id="c1", id="a"), called('{"b":1}', call_id="c2", id="b", name="g")
    reply, deltas = decode(added(one, 0), added(two, 1), done(one, 0), done(two, 1), end(two, one))
    assert [call[0] for call in calls(reply)] == ["c1", "c2"]
    assert [delta for delta in deltas if delta[0] == "call"] == [("call", "f", 0), ("call", "g", 1)]


def test_a_misfit_is_an_error_with_a_name() -> None:
    """Case 24: a piece of text for a call, or a text that is no text, is a protocol error."""
    assert "piece of text" in str(fails(added(CALL), text("a", item="fc_1")))
    assert fails(event("output_text.delta", output_index=0, delta=5)).kind == "protocol"
    assert fails(event("output_text.done", output_index=0, text=[1])).kind == "protocol"
    assert fails(event("output_item.added", item=3)).kind == "protocol"
    assert fails(end(3)).kind == "protocol"
    assert fails(raw([1])).kind == "protocol"
    assert fails(b"data: {nonsense\n\n").kind == "protocol"


def test_item_ids_that_change_on_the_way() -> None:
    """Some servers give an item another id in each event; the output index says which it is."""
    pieces = [text(t, item=f"x{n}") for n, t in enumerate("abc")]
    reply, deltas = decode(
        added({**MESSAGE, "id": "x8"}), *pieces, done(said("abc", id="x9")), end(said("abc", id="x10"))
    )
    assert (reply.text, shown(deltas), len(reply.parts)) == ("abc", "abc", 1)
    rotated = [called("{}", id=f"y{n}") for n in range(3)]
    reply, deltas = decode(added(rotated[0]), arguments("{}", item="z"), done(rotated[1]), end(rotated[2]))
    assert (calls(reply), len(deltas)) == ([("call_1", "f", "{}")], 2)


def test_events_without_an_output_index() -> None:
    """Where a server leaves the index out the item's id says which it is, and without both the last that fits."""
    lines = [
        event("output_item.added", item=MESSAGE),
        event("output_text.delta", item_id="msg_1", delta="a"),
        event("output_item.added", item=CALL),
        event("function_call_arguments.delta", item_id="fc_1", delta="{"),
        event("output_text.delta", item_id="msg_1", delta="b"),
        event("function_call_arguments.delta", delta="}"),
        event("output_text.delta", delta="c"),
    ]
    for tail in (end(), end(said("abc"), called("{}")), event("output_item.done", item=said("abc")) + end()):
        reply, deltas = decode(*lines, tail)
        assert (reply.text, shown(deltas), calls(reply)) == ("abc", "abc", [("call_1", "f", "{}")])


def test_a_server_that_numbers_all_its_items_alike() -> None:
    """An item of another kind, or after one that is done, is a new item though its index is known."""
    other = said("cd", id="msg_2")
    reply, deltas = decode(
        *(added(MESSAGE), text("ab"), done(said("ab")), added(called("")), arguments("{}"), done(called("{}"))),
        *(text("cd", item="msg_2"), done(other), done(said("ef", id="msg_3"))),
        end(),
    )
    assert (reply.text, shown(deltas), calls(reply)) == ("abcdef", "abcdef", [("call_1", "f", "{}")])


def test_whole_texts_replace_pieces() -> None:
    """``done`` counts more than pieces, the item more than that and the response most; shown is what goes on."""
    reply, deltas = decode(text("ab"), event("output_text.done", output_index=0, content_index=0, text="abc"), end())
    assert (reply.text, shown(deltas)) == ("abc", "abc")
    reply, deltas = decode(text("ab"), done(said("xyz")), end())
    assert (reply.text, shown(deltas)) == ("xyz", "ab")
    reply, deltas = decode(text("ab"), done(said("abc")), end(said("abcd")))
    assert (reply.text, shown(deltas)) == ("abcd", "abcd")


def test_events_that_say_only_the_whole() -> None:
    """A server that sends no pieces shows each whole text once."""
    block: dict[str, Any] = {"type": "output_text", "text": "ab", "annotations": []}
    wholes = (
        event("output_text.done", output_index=0, text="ab"),
        event("content_part.done", output_index=0, content_index=0, part=block),
        done(said("ab")),
        end(said("ab")),
    )
    for n in range(len(wholes)):
        reply, deltas = decode(*wholes[n:3], end(said("ab")))
        assert (reply.text, deltas) == ("ab", [("text", "ab", 0)])
    reply, deltas = decode(
        event("function_call_arguments.done", output_index=0, arguments="{}"), done(called("{}")), end()
    )
    assert (calls(reply), deltas) == ([("call_1", "f", "{}")], [("call", "f", 0), ("arguments", "{}", 0)])


def test_a_done_that_forgets_the_text() -> None:
    """What was streamed is not lost where the item comes without its texts."""
    reply, _ = decode(text("ab"), done({**MESSAGE, "content": []}), end())
    assert reply.text == "ab"
    reply, _ = decode(added(called("")), arguments('{"a":1}'), done(called("")), end())
    assert calls(reply) == [("call_1", "f", '{"a":1}')]


def test_reasoning() -> None:
    """A summary's parts are paragraphs, raw reasoning is text, and the item is kept for its server."""
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "encrypted_content": "xyz", "summary": []}
    pieces = [
        event("reasoning_summary_text.delta", item_id="rs_1", output_index=0, summary_index=n, delta=t)
        for n, t in ((0, "on"), (0, "e"), (1, "two"))
    ]
    whole: dict[str, Any] = {**item, "summary": [{"type": "summary_text", "text": t} for t in ("one", "two")]}
    for tail in ([done(whole), end(whole)], [end(whole)], [end()]):
        reply, deltas = decode(added(item), *pieces, *tail)
        [thought] = reply.parts
        assert isinstance(thought, Reasoning)
        assert (thought.text, shown(deltas, "reasoning")) == ("one\n\ntwo", "one\n\ntwo")
        kept = thought.provider[PROTOCOL]
        assert (kept["origin"], kept["item"]["encrypted_content"]) == ("http://a", "xyz")
        assert kept["item"]["summary"] == whole["summary"]
    told = event("reasoning_text.delta", item_id="rs_1", output_index=0, content_index=0, delta="hm")
    reply, deltas = decode(told, end())
    assert ([part.text for part in reply.parts if isinstance(part, Reasoning)], deltas) == (
        ["hm"],
        [("reasoning", "hm", 0)],
    )


def test_encrypted_content_survives_a_last_event_without_it() -> None:
    """What only ``output_item.done`` brought is kept where the whole response has null in its place."""
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"}
    [thought] = decode(done(item), end({**item, "encrypted_content": None}))[0].parts
    assert isinstance(thought, Reasoning)
    assert thought.provider[PROTOCOL]["item"]["encrypted_content"] == "xyz"


def test_a_custom_tool_call() -> None:
    """The input of a custom tool is the text of its call, which need not be JSON."""
    item: dict[str, Any] = {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_1", "name": "sql"}
    piece = event("custom_tool_call_input.delta", item_id="ct_1", output_index=0, delta="SELECT 1")
    for tail in (done({**item, "input": "SELECT 1"}) + end(), end()):
        reply, deltas = decode(added({**item, "input": ""}), piece, tail)
        assert calls(reply) == [("call_1", "sql", "SELECT 1")]
        assert deltas == [("call", "sql", 0), ("arguments", "SELECT 1", 0)]


def test_hosted_and_unknown_items_are_kept() -> None:
    """Case 23: what the server ran, and items and content of unknown types, are parts that hold them verbatim."""
    search: dict[str, Any] = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "cats"}}
    future: dict[str, Any] = {"type": "future_item", "id": "fu_1", "data": {"x": [1, None]}}
    sound: dict[str, Any] = {
        **MESSAGE,
        "content": [{"type": "future_part", "y": 1}, {"type": "output_text", "text": "a"}],
    }
    stream = (
        added(search),
        event("web_search_call.searching", output_index=0, item_id="ws_1"),
        event("future_item.delta", output_index=1, item_id="fu_1", delta="zzz"),
        *(done(item, n) for n, item in enumerate((search, future, sound))),
    )
    for tail in (end(), end(search, future, sound)):
        reply, deltas = decode(*stream, tail)
        one, two, three, four = reply.parts
        assert (one, two) == (
            Hosted("web_search_call", "cats", provider={PROTOCOL: {"origin": "http://a", "item": search}}),
            Hosted("future_item", provider={PROTOCOL: {"origin": "http://a", "item": future}}),
        )
        assert isinstance(three, Hosted)
        assert three.provider[PROTOCOL]["part"] == {"type": "future_part", "y": 1}
        assert isinstance(four, Text)
        assert (reply.text, shown(deltas)) == ("a", "a")


def test_citations() -> None:
    """Annotations are citations, from the item or from their own events; their fields are kept."""
    web: dict[str, Any] = {"type": "url_citation", "url": "http://x", "title": "X", "start_index": 0, "end_index": 1}
    file: dict[str, Any] = {"type": "file_citation", "filename": "a.pdf", "file_id": "f1", "index": 3}
    item: dict[str, Any] = {**MESSAGE, "content": [{"type": "output_text", "text": "a", "annotations": [web, file, 7]}]}
    events = [
        event("output_text.annotation.added", output_index=0, content_index=0, annotation=one) for one in (web, file, 7)
    ]
    for pieces in ([done(item), end()], [text("a"), *events, end()], [end(item)]):
        [part] = decode(*pieces)[0].parts
        assert isinstance(part, Text)
        assert part.citations == (Citation("http://x", "X"), Citation("a.pdf"))
        assert part.provider[PROTOCOL]["part"]["annotations"] == [web, file, 7]


def test_phases_of_messages_are_kept() -> None:
    """A reply may be several messages, each of which says what it is for."""
    one, two = said("a", phase="commentary"), said("b", id="msg_2", phase="final_answer")
    reply, _ = decode(text("a"), text("b", item="msg_2", index=1), end(one, two))
    texts = [part for part in reply.parts if isinstance(part, Text)]
    assert [part.provider[PROTOCOL]["item"]["phase"] for part in texts] == ["commentary", "final_answer"]
    assert reply.text == "ab"


def test_keepalives_obfuscation_and_unknown_events_are_skipped() -> None:
    """Case 23: nothing unknown in an answer changes it."""
    noise = (
        b": ping\n\n"
        + event("keepalive", sequence_number=3)
        + b"event: keepalive\n"
        + raw({"type": "keepalive", "sequence_number": 4})
        + raw({"type": "codex.rate_limits", "x": 1})
        + raw({})
        + raw({"type": None})
        + b"data:  \n\n"
    )
    reply, deltas = decode(noise, text("a", obfuscation="x8f"), noise, text("b", logprobs=[{}]), noise, end(said("ab")))
    assert (reply.text, deltas) == ("ab", [("text", "a", 0), ("text", "b", 0)])


def test_the_type_may_be_only_in_the_event_line() -> None:
    """The name of the event counts where its data has no type."""
    line = b'event: response.output_text.delta\ndata: {"delta":"a","output_index":0}\n\n'
    last = b'event: response.completed\ndata: {"response":{"status":"completed"}}\n\n'
    assert decode(line, last)[0].text == "a"


def test_a_last_event_without_a_response() -> None:
    """What was streamed is the reply where the last event brings nothing."""
    for tail in (event("completed"), event("completed", response=None), event("completed", response={"output": None})):
        reply, _ = decode(text("b", index=1, item="msg_2"), text("a", index=0), tail)
        assert (reply.text, reply.model, reply.stop) == ("ab", "asked", "stop")


def test_text_that_looks_like_sse_is_text() -> None:
    """Case 11: what looks like an event, inside a JSON string, stays text."""
    texts = ["data: [DONE]", ": ping", "event: error\n\n", "[DONE]"]
    assert decode(text(*texts), end())[0].text == "".join(texts)


def test_halves_of_surrogate_pairs() -> None:
    """Case 3: escaped halves in two pieces are one character, a lone half is U+FFFD, and nothing fails."""

    def piece(escaped: str) -> bytes:
        fields = f'"type":"response.output_text.delta","output_index":0,"delta":"{escaped}"'
        return b"data: {" + fields.encode() + b"}\n\n"

    reply, deltas = decode(piece("\\ud83d"), piece("\\ude00!"), piece("\\ud83d"), end())
    assert (reply.text, shown(deltas)) == ("😀!\ufffd", "😀!\ufffd")
    hosted = (
        b'data: {"type":"response.output_item.done","item":{"type":"mcp_call","arguments":"\\ud83d","x":[NaN]}}\n\n'
    )
    [part] = decode(hosted, end())[0].parts
    assert isinstance(part, Hosted)
    assert part.provider[PROTOCOL]["item"] == {"type": "mcp_call", "arguments": "\ufffd", "x": [None]}


def test_an_answer_in_one_piece() -> None:
    """An answer that is JSON in place of a stream is a reply, told item by item."""
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
    whole = json.dumps(response(output=[thought, said("ab"), called("{}")], usage={"input_tokens": 2})).encode()
    for pieces in ([whole], [b" \n" + whole[:9], whole[9:]]):
        reply, deltas = decode(*pieces)
        assert (reply.text, calls(reply), reply.usage.input) == ("ab", [("call_1", "f", "{}")], 2)
        assert deltas == [("reasoning", "hm", 0), ("text", "ab", 0), ("call", "f", 0), ("arguments", "{}", 0)]


def test_answers_in_one_piece_that_are_none() -> None:
    """A body that is an error, another protocol's, not finished, half or a web page is a typed error."""
    assert fails(json.dumps({"error": {"message": "no", "code": "server_error"}}).encode()).kind == "server"
    assert fails(json.dumps(response("failed", error={"code": "invalid_prompt"})).encode()).kind == "invalid-request"
    assert fails(json.dumps(response("queued")).encode()).kind == "server"
    assert fails(b'{"choices": []}').kind == "protocol"
    assert fails(b"[]").kind == "protocol"
    assert fails(b'{"output": [').kind == "cut"
    assert not fails(b"<html>").retryable


def test_line_ends_do_not_count() -> None:
    """Case 1: an answer is the same with LF, CRLF and CR, in one piece and byte by byte."""
    data = START + added(MESSAGE) + text("é", "日🌍") + end(said("é日🌍"))
    wanted = decode(data)
    for line_end in (b"\n", b"\r\n", b"\r"):
        stream = data.replace(b"\n", line_end)
        assert decode(stream) == decode(*(stream[n : n + 1] for n in range(len(stream)))) == wanted


NAMES = st.sampled_from(
    [
        *("created", "completed", "incomplete", "failed", "output_item.added", "output_item.done", "content_part.done"),
        *("output_text.delta", "output_text.done", "refusal.delta", "reasoning_text.delta", "reasoning_text.done"),
        *("reasoning_summary_text.delta", "reasoning_summary_text.done", "function_call_arguments.delta", "future"),
        *("function_call_arguments.done", "custom_tool_call_input.delta", "output_text.annotation.added"),
    ]
)
SMALL = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "a", "msg_1", "\ud83d", "\ude00", "{}"])
TYPES = st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "web_search_call", 5, None, [1]])
BLOCKS = st.lists(
    st.dictionaries(st.sampled_from(["type", "text", "refusal", "annotations"]), SMALL | st.just("output_text")),
    max_size=2,
)
ITEMS = st.fixed_dictionaries(
    {"type": TYPES},
    optional={
        **dict.fromkeys(("id", "call_id", "name", "arguments", "input", "status"), SMALL),
        **dict.fromkeys(("content", "summary"), BLOCKS | SMALL),
    },
)
RESPONSES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "output": st.lists(ITEMS | SMALL, max_size=3) | SMALL,
        "status": st.sampled_from(["completed", "incomplete", "failed", "queued", None, 3]),
        "usage": SMALL | st.dictionaries(st.sampled_from(["input_tokens", "output_tokens_details"]), SMALL),
        "error": SMALL,
        "incomplete_details": SMALL | st.dictionaries(st.just("reason"), SMALL),
    },
)


def made(name: str, fields: dict[str, Any]) -> bytes:
    return raw({"type": f"response.{name}", **fields})


EVENTS = st.builds(
    made,
    NAMES,
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("output_index", "content_index", "summary_index", "item_id", "delta", "text"), SMALL),
            **dict.fromkeys(("arguments", "refusal", "annotation"), SMALL),
            **{"item": ITEMS | SMALL, "response": RESPONSES, "part": st.dictionaries(st.sampled_from(["type"]), SMALL)},
        },
    ),
)


@examples()
@given(st.lists(EVENTS, max_size=8), st.lists(st.integers(0, 2000), max_size=5))
def test_whatever_comes_only_model_errors_are_raised(events: list[bytes], places: list[int]) -> None:
    """Whatever events come, wherever they are cut, the outcome is one reply and one list of deltas, or one typed error."""
    data = b"".join(events) + event("completed")
    cuts = [0, *sorted(place % len(data) for place in places), len(data)]
    outcomes: list[Any] = []
    for pieces in ([data], [data[a:b] for a, b in pairwise(cuts)]):
        try:
            reply, deltas = decode(*pieces)
        except ModelError as error:
            outcomes.append((error.kind, str(error)))
        else:
            json.dumps([reply.metadata, [str(part) for part in reply.parts], deltas]).encode()
            outcomes.append((reply, deltas))
    assert outcomes[0] == outcomes[1]


@examples()
@given(st.binary(max_size=200), st.booleans())
def test_whatever_bytes_come_only_model_errors_are_raised(data: bytes, framed: bool) -> None:
    """Bytes that make no sense are a typed error, with and without an event around them."""
    with pytest.raises(ModelError) as caught:
        decode(b"data: " + data + b"\n\n" if framed else data)
    assert str(caught.value).encode()
