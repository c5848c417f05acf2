"""Answers of Gemini that no recording has: filters, failures, errors, odd parts and odd framing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.models.decoding import Delta, decoded, failure
from turnstate.models.base import Reply
from turnstate.models.gemini.decode import GeminiDecoder
from turnstate.models.gemini.errors import response_error
from turnstate.models.gemini.usage import read_usage
from turnstate_states.content import Audio, Citation, File, Hosted, Image, Reasoning, Text, ToolCall
from turnstate_states.errors import ModelError

USAGE = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}


def response(*parts: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    candidate.update(more.pop("candidate", {}))
    return {"candidates": [candidate], "usageMetadata": USAGE, "modelVersion": "gemini-9", **more}


def stream(*responses: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\r\n\r\n" for one in responses)


def decode(data: bytes, size: int = 0) -> tuple[Reply, list[Delta]]:
    size = size or len(data) or 1
    pieces = (data[start : start + size] for start in range(0, len(data), size))
    return decoded(lambda on_delta: GeminiDecoder("asked", on_delta), pieces)


def reply(*responses: Any) -> Reply:
    return decode(stream(*responses))[0]


def fails(*responses: Any) -> ModelError:
    return failure(lambda: decode(stream(*responses)))


def test_texts_and_thoughts() -> None:
    """Neighbouring pieces of one kind are one part; usage and model are the last that were told."""
    data = stream(
        response({"text": "h", "thought": True}),
        response({"text": "m", "thought": True}, {"text": "He"}),
        response({"text": "llo"}, usageMetadata={"trafficType": "ON_DEMAND"}),
        response({"text": ""}, finish="STOP", usageMetadata={**USAGE, "thoughtsTokenCount": 3}, responseId="r1"),
    )
    found, deltas = decode(data)
    assert [(type(part), getattr(part, "text", "")) for part in found.parts] == [(Reasoning, "hm"), (Text, "Hello")]
    assert deltas == [("reasoning", "h", 0), ("reasoning", "m", 0), ("text", "He", 0), ("text", "llo", 0)]
    assert (found.stop, found.raw_stop, found.model, found.metadata["id"]) == ("stop", "STOP", "gemini-9", "r1")
    assert (found.usage.input, found.usage.output, found.usage.reasoning) == (5, 5, 3)


def test_signed_parts_stay_alone() -> None:
    """Case 31: a part with a signature is neither joined nor lost, though its text is empty."""
    signed = [{"text": "b", "thoughtSignature": "s1"}, {"text": "", "thoughtSignature": "s2"}]
    found = reply(response({"text": "a"}, signed[0], {"text": "c"}, signed[1], finish="STOP"))
    assert [(part.text, part.provider) for part in found.parts if isinstance(part, Text)] == [
        ("a", {}),
        ("b", {"gemini": {"thoughtSignature": "s1"}}),
        ("c", {}),
        ("", {"gemini": {"thoughtSignature": "s2"}}),
    ]


def test_calls() -> None:
    """Calls finish with STOP; arguments are JSON text, ``{}`` where there are none; ids are kept where there are any."""
    calls = [
        {"functionCall": {"name": "f", "args": {"a": 1.0, "b": "é"}, "id": "x1"}, "thoughtSignature": "s"},
        {"functionCall": {"name": "g"}},
        {"functionCall": {"name": "g", "args": None}},
    ]
    found, deltas = decode(stream(response(*calls, finish="STOP")))
    made = [part for part in found.parts if isinstance(part, ToolCall)]
    assert [(call.name, call.arguments, call.provider_id) for call in made] == [
        ("f", '{"a":1.0,"b":"é"}', "x1"),
        ("g", "{}", ""),
        ("g", "{}", ""),
    ]
    assert [call.provider["gemini"] for call in made] == [{"thoughtSignature": "s"}, {}, {}]
    assert found.stop == "tool-calls"
    assert deltas[:3] == [("call", "f", 0), ("arguments", made[0].arguments, 0), ("call", "g", 1)]


def piece(path: str, going: bool = False, **value: Any) -> dict[str, Any]:
    return {"jsonPath": path, **value, **({"willContinue": True} if going else {})}


def part(*pieces: Any, going: bool = True, **fields: Any) -> dict[str, Any]:
    call = {**fields, **({"partialArgs": list(pieces)} if pieces else {}), **({"willContinue": True} if going else {})}
    return {"functionCall": call}


def test_arguments_in_pieces() -> None:
    """Pieces are put where their path says: texts joined while they go on, also when two of them alternate."""
    found = reply(
        response(part(name="f", args={"z": 0}) | {"thoughtSignature": "s"}),
        response(part(piece("$.a[0].b", True, stringValue="x"), piece("$['q.r']", True, stringValue="1"))),
        response(part(piece("$.a[0].b", stringValue="y"), piece('$["s"]', stringValue="t"))),
        response(part(piece("$['q.r']", stringValue="2"), piece("$.a[1].n", numberValue=2.0))),
        response(part(piece("$.a[2]", boolValue=True), piece("$.a[4]", nullValue="NULL_VALUE"))),
        response(part(piece("$.f", numberValue=1.5))),
        response({"functionCall": {}}),
        response(part(name="g", going=False), {"functionCall": {}}, finish="STOP"),
    )
    first, second = found.parts
    assert isinstance(first, ToolCall)
    assert json.loads(first.arguments) == {
        "z": 0,
        "a": [{"b": "xy"}, {"n": 2}, True, None, None],
        "q.r": "12",
        "s": "t",
        "f": 1.5,
    }
    assert first.provider == {"gemini": {"thoughtSignature": "s"}}
    assert isinstance(second, ToolCall)
    assert (second.name, second.arguments) == ("g", "{}")


@pytest.mark.parametrize("path", ["", "$", "a", "$.a[", "$[0]", "$.a[5000]", "$.t.u", "$" + ".x" * 200])
def test_pieces_for_places_that_cannot_be(path: str) -> None:
    """A path that makes no sense is a typed error."""
    error = fails(response(part(piece("$.t", stringValue="x"), piece(path, stringValue="x"), name="f")))
    assert (error.kind, error.retryable) == ("protocol", True)


def test_a_call_that_was_not_finished() -> None:
    """A call that should go on is an error where the answer stops, and kept unrun where it was cut short."""
    opened = response(part(piece("$.a", True, stringValue="x"), name="f"))
    assert fails(opened, response(finish="STOP")).kind == "protocol"
    found = reply(opened, response(finish="MAX_TOKENS"))
    assert found.stop == "length"
    assert [part.arguments for part in found.parts if isinstance(part, ToolCall)] == ['{"a":"x"}']


def test_media_and_hosted_parts() -> None:
    """Pictures, sound and files become what they are; code, its result and unknown parts are kept verbatim."""
    code = {"executableCode": {"language": "PYTHON", "code": "1+1"}, "thoughtSignature": "s"}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
    future = {"hologram": {"x": [1]}, "thought": True}
    found = reply(
        response(
            {"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thoughtSignature": "p"},
            {"inlineData": {"mimeType": "audio/wav", "data": "AA==", "displayName": "d"}},
            {"fileData": {"mimeType": "application/pdf", "fileUri": "https://x/f", "displayName": "f.pdf"}},
            code,
            result,
            future,
            {},
            finish="STOP",
        )
    )
    assert found.parts == (
        Image("data:image/png;base64,AA==", "image/png", provider={"gemini": {"thoughtSignature": "p"}}),
        Audio("data:audio/wav;base64,AA==", "audio/wav", provider={"gemini": {"inlineData": {"displayName": "d"}}}),
        File("https://x/f", "f.pdf", "application/pdf", provider={"gemini": {"fileData": {"displayName": "f.pdf"}}}),
        Hosted("executableCode", "1+1", provider={"gemini": code}),
        Hosted("codeExecutionResult", "2", provider={"gemini": result}),
        Hosted("hologram", provider={"gemini": future}),
    )


def test_citations() -> None:
    """Sources belong to the text that holds the quoted words, without such words to the last text."""
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://a", "title": "A"}}, {"retrievedContext": {"title": "doc"}}, {}],
        "groundingSupports": [{"segment": {"text": "one"}, "groundingChunkIndices": [0, 2, 9, "x"]}],
    }
    cited = {"citations": [{"uri": "https://c", "startIndex": 1}, {"license": "MIT"}]}
    more = {"groundingMetadata": grounding, "citationMetadata": cited}
    code = {"executableCode": {"code": "1"}}
    found = reply(response({"text": "one"}, code, {"text": "two"}, finish="STOP", candidate=more))
    first, _, last = found.parts
    assert isinstance(first, Text)
    assert isinstance(last, Text)
    assert first.citations == (Citation("https://a", "A", "one"),)
    assert last.citations == (Citation("doc", "doc"), Citation("https://c"))
    assert found.metadata["groundingMetadata"] == grounding


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        *((word, "content-filter") for word in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")),
        *((f"IMAGE_{word}", "content-filter") for word in ("SAFETY", "RECITATION", "PROHIBITED_CONTENT", "OTHER")),
        ("MAX_TOKENS", "length"),
        ("LANGUAGE", "other"),
        ("OTHER", "other"),
        ("TOO_MANY_TOOL_CALLS", "other"),
        ("NO_IMAGE", "other"),
        ("SOMETHING_NEW", "other"),
    ],
)
def test_finish_reasons(reason: str, stop: str) -> None:
    """Cases 27 and 94: filters, limits and unknown reasons are no ``stop``, with content or without, also with a call."""
    for last in (response(finish=reason), {"candidates": [{"finishReason": reason}], "usageMetadata": USAGE}):
        found = reply(response({"text": "a"}), response({"functionCall": {"name": "f"}}), last)
        assert (found.stop, found.raw_stop, found.text) == (stop, reason, "a")
        assert found.usage.input == 5
    empty = reply({"candidates": [{"content": {}, "finishReason": reason}]})
    assert (empty.parts, empty.stop) == ((), stop)


@pytest.mark.parametrize(
    ("reason", "kind", "retryable"),
    [
        ("MALFORMED_FUNCTION_CALL", "protocol", True),
        ("UNEXPECTED_TOOL_CALL", "protocol", True),
        ("MALFORMED_RESPONSE", "protocol", True),
        ("MISSING_THOUGHT_SIGNATURE", "invalid-request", False),
    ],
)
def test_failures_told_as_finish_reason(reason: str, kind: str, retryable: bool) -> None:
    """Case 26: an answer that the provider calls broken is a typed error, with a call in it, with {}, or without content."""
    call: dict[str, Any] = {"functionCall": {"name": "f", "args": {}}}
    shapes: list[dict[str, Any]] = [
        response(call, finish=reason),
        {"candidates": [{"content": {}, "finishReason": reason}]},
        {"candidates": [{"finishReason": reason, "finishMessage": "print(f\n(1))"}]},
    ]
    errors = [fails(response({"text": "a"}), shape) for shape in shapes]
    assert {(error.kind, error.retryable, reason in str(error)) for error in errors} == {(kind, retryable, True)}
    assert "print(f (1))" in str(errors[-1])


def test_a_blocked_prompt() -> None:
    """Case 27: a blocked prompt is a filtered reply with its usage, not an error that is tried again."""
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 4}}
    for data in (stream(blocked), json.dumps(blocked).encode()):
        found, _ = decode(data)
        assert (found.parts, found.stop, found.raw_stop) == ((), "content-filter", "PROHIBITED_CONTENT")
        assert found.usage.input == 4
    assert reply({"promptFeedback": {"safetyRatings": []}}, response({"text": "a"}, finish="STOP")).stop == "stop"


def test_answers_without_candidates_and_cut_answers() -> None:
    """Cases 8 and 26: without a candidate or a finish reason nothing is complete; a half event says nothing."""
    for data in (stream({"usageMetadata": USAGE}), b"{}", b"[]", b'{"candidates":[]}'):
        with pytest.raises(ModelError, match="no candidate") as caught:
            decode(data)
        assert (caught.value.kind, caught.value.retryable) == ("protocol", True)
    unspecified = response({"text": "a"}, finish="FINISH_REASON_UNSPECIFIED")
    whole = json.dumps([response({"text": "a"}, finish="STOP")]).encode()
    for data in (b"", stream(unspecified), stream(response({"text": "a"})) + b'data: {"cand', whole[:-1], whole[:30]):
        with pytest.raises(ModelError) as caught:
            decode(data)
        assert (caught.value.kind, caught.value.retryable) == ("cut", True)
    with pytest.raises(ModelError, match="web page"):
        decode(b"<!doctype html><title>x</title>")


ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize(
    "begin", [b"", stream(response({"text": "a"})), stream(response({"text": "a"}, finish="STOP"))]
)
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\r\n"])
def test_errors_inside_a_good_answer(begin: bytes, end: bytes, size: int) -> None:
    """Case 101: an error with status 200 is that error: as an event, as bare JSON on many lines, in an array."""
    pretty = json.dumps(ERROR, indent=2).encode()
    lines = pretty.split(b"\n")
    forms = [b"data: " + json.dumps(ERROR).encode(), b"event: error\ndata: " + json.dumps(ERROR).encode()]
    forms += [pretty, pretty.replace(b"\n", b"\r\n"), b"[" + pretty + b"]", b"data: " + pretty]
    forms += [b"\n".join(b"data: " + line for line in lines), b"data: " + json.dumps([ERROR]).encode()]
    for form in forms:
        with pytest.raises(ModelError) as caught:
            decode(begin + form + end, size)
        error = caught.value
        assert (error.kind, error.retryable, error.status) == ("overloaded", True, 503)
        assert str(error) == "The model is overloaded."


def fault(code: int, status: str = "", message: str = "no", *details: Any) -> ModelError:
    body = {"error": {"code": code, "message": message, "status": status, "details": list(details)}}
    told = response_error(code, {}, json.dumps(body).encode(), "http://h")
    assert fails(body).kind == told.kind
    return told


@pytest.mark.parametrize(
    ("code", "status", "message", "kind", "retryable"),
    [
        (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", "authentication", False),
        (400, "INVALID_ARGUMENT", "token is not allowed here", "invalid-request", False),
        (400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number", "context-overflow", False),
        (500, "INTERNAL", "Your input context is too long", "context-overflow", False),
        (400, "FAILED_PRECONDITION", "User location is not supported", "permission", False),
        (401, "UNAUTHENTICATED", "no token", "authentication", False),
        (403, "PERMISSION_DENIED", "no", "permission", False),
        (404, "NOT_FOUND", "no such model", "not-found", False),
        (429, "RESOURCE_EXHAUSTED", "slow down", "rate-limit", True),
        (499, "CANCELLED", "gone", "server", True),
        (500, "INTERNAL", "oops", "server", True),
        (501, "UNIMPLEMENTED", "no", "invalid-request", False),
        (503, "UNAVAILABLE", "busy", "overloaded", True),
        (504, "DEADLINE_EXCEEDED", "late", "timeout", True),
        (503, "", "busy", "overloaded", True),
    ],
)
def test_error_table(code: int, status: str, message: str, kind: str, retryable: bool) -> None:
    """Cases 98 and 101: Google's status decides, whatever carries it; a word like token alone is no overflow."""
    error = fault(code, status, message)
    assert (error.kind, error.retryable, error.status) == (kind, retryable, code)
    assert message in str(error)


def test_waits_and_quotas() -> None:
    """Case 100: the delay of the details counts, odd delays do not, and a quota of the day is not tried again."""
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}
    assert fault(429, "RESOURCE_EXHAUSTED", "no", wait).retry_after == 17.0
    for odd in ("-5s", "abc", "0s", 17, None, "17", "9" * 400 + "s"):
        assert fault(429, "RESOURCE_EXHAUSTED", "no", {"retryDelay": odd}, "x").retry_after is None
    daily = {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}, 3]}
    error = fault(429, "RESOURCE_EXHAUSTED", "no", daily, wait)
    assert (error.kind, error.retryable, error.retry_after) == ("rate-limit", False, 17.0)
    assert fault(400, "", "no", {"reason": "API_KEY_INVALID"}).kind == "authentication"
    header = response_error(503, {"retry-after": "3"}, b"", "http://h")
    assert (header.retry_after, header.kind) == (3.0, "overloaded")


def test_errors_in_odd_clothes() -> None:
    """An error inside an error's message, a page, an empty body and a redirect are told in one clear line."""
    wrapped = {"error": {"code": 429, "message": json.dumps(ERROR)}}
    assert fails(wrapped).kind == "overloaded"
    assert str(fails({"error": "plain"})) == "plain"
    assert str(response_error(502, {}, b"<html><title>Bad\n gateway</title>", "http://h")) == "Bad gateway (502)"
    assert "base_url" in str(response_error(404, {}, b"", "http://h"))
    assert "base_url" in str(response_error(302, {}, b"", "http://h"))
    assert "GEMINI_API_KEY" in str(response_error(403, {}, b"{}", "http://h", with_key=False))


def test_other_candidates_and_unknown_fields_are_skipped() -> None:
    """Case 23: only the first candidate counts; unknown fields, comments and empty events mean nothing."""
    second = {"content": {"parts": [{"text": "x"}]}, "index": 1, "finishReason": "STOP"}
    first = response({"text": "a"}, future={"a": 1})
    first["candidates"].append(second)
    data = b": ping\r\n\r\nid: 3\r\ndata:\r\n\r\n" + stream(first, response(finish="STOP"))
    assert decode(data)[0].text == "a"
    assert decode(stream(response({"text": "a"}, finish="STOP")) + b"data: [DONE]\n\n")[0].text == "a"


def test_text_that_looks_like_a_stream_stays_text() -> None:
    """Case 11: content is never read as framing, and a finish in the same response as text loses neither."""
    text = 'data: [DONE]\n\n: ping\n{"error": 1}'
    assert reply(response({"text": text}, finish="STOP")).text == text


def test_odd_json() -> None:
    """Lone surrogates and numbers that are not finite are mended; arguments with them are still JSON."""
    args = b'{"content": "\\ud800", "n": NaN}'
    data = b'data: {"candidates":[{"content":{"parts":[{"text":"a\\udfff"},{"functionCall":{"name":"f","args":'
    found, _ = decode(data + args + b'}}]},"finishReason":"STOP"}]}\n\n')
    assert found.text == "a\ufffd"
    [call] = [part for part in found.parts if isinstance(part, ToolCall)]
    assert json.loads(call.arguments) == {"content": "\ufffd", "n": None}


ODD: list[Any] = [
    3,
    {"candidates": 3},
    {"candidates": [3]},
    {"candidates": [{"content": 3}]},
    {"candidates": [{"content": {"parts": {}}}, {"content": {"parts": 3}}]},
    response(3),
    response({"text": 3}),
    response({"functionCall": 3}),
    response({"functionCall": {"name": 3}}),
    response({"functionCall": {"name": "f", "partialArgs": 3}}),
    response({"functionCall": {"name": "f", "partialArgs": [{}]}}),
    {"candidates": [{"finishReason": 3}]},
]


@pytest.mark.parametrize("odd", ODD)
def test_misfits(odd: Any) -> None:
    """Case 24: a value of a type that makes no sense is a typed error."""
    assert fails(odd).kind in ("protocol", "cut")


def test_usage_that_is_unknown() -> None:
    """Case 13: missing, null and odd counts are unknown, which is not 0; a total tells what thoughts cost."""
    for usage in (None, {}, {"promptTokenCount": None, "candidatesTokenCount": "3", "totalTokenCount": True}):
        found = read_usage(usage)
        assert (found.input, found.output, found.reasoning) == (None, None, None)
    assert read_usage({"promptTokenCount": 4, "totalTokenCount": 9}).output == 5
    cached = read_usage({"promptTokenCount": 4, "cachedContentTokenCount": 3, "toolUsePromptTokenCount": 2})
    assert (cached.input, cached.cached) == (6, 3)


def test_patience() -> None:
    """Nothing says that the end has come, so once complete the rest may take seconds only, fewer with usage."""
    decoder = GeminiDecoder("m", lambda kind, text, slot: None)
    decoder.feed(stream(response({"text": "a"})))
    assert decoder.patience is None
    decoder.feed(stream({"candidates": [{"finishReason": "STOP"}]}))
    first = decoder.patience
    decoder.feed(stream({"usageMetadata": USAGE}))
    assert first is not None
    assert decoder.patience is not None
    assert 0 < decoder.patience < first < 10


def test_a_finish_reason_with_every_piece() -> None:
    """Some servers tell a finish reason with every piece; the last one wins, and the wait is not cut short for them."""
    data = stream(response({"text": "a"}, finish="STOP"), response({"text": "b"}, finish="MAX_TOKENS"))
    decoder = GeminiDecoder("m", lambda kind, text, slot: None)
    decoder.feed(data)
    assert decoder.patience is None
    found, _ = decode(data)
    assert (found.text, found.stop) == ("ab", "length")


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "STOP", "f", "$.a[0]", "\ud800"])
WORDS = (
    "candidates content parts text thought thoughtSignature functionCall name id args partialArgs jsonPath stringValue "
    "numberValue willContinue inlineData fileData mimeType data fileUri finishReason index usageMetadata executableCode "
    "promptTokenCount groundingMetadata groundingChunks groundingSupports segment web uri error code message status "
    "details retryDelay violations quotaId promptFeedback blockReason citationMetadata citations modelVersion"
)
NAMES = st.sampled_from(WORDS.split())
JSON = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5))
CALLS: list[dict[str, Any]] = [{"text": "a"}, part(name="f"), {"functionCall": {}}]
PART = st.dictionaries(NAMES, JSON, max_size=3) | st.sampled_from(CALLS)


def with_parts(parts: list[Any]) -> Any:
    return response(*parts)


def with_finish(reason: str) -> Any:
    return response(finish=reason)


CHUNK = (
    st.builds(with_parts, st.lists(PART, max_size=3))
    | st.builds(with_finish, st.sampled_from(["STOP", "SAFETY", "MAX_TOKENS", "NEW"]))
    | st.dictionaries(NAMES, JSON, max_size=3)
    | JSON
)


@examples(300)
@given(chunks=st.lists(CHUNK, max_size=5), junk=st.binary(max_size=8), size=st.integers(1, 40), array=st.booleans())
def test_nothing_but_model_errors(chunks: list[Any], junk: bytes, size: int, array: bool) -> None:
    """Whatever comes, it is a reply or a ModelError, and the same one however it is cut."""
    data = (json.dumps(chunks).encode() if array else stream(*chunks)) + junk
    found: list[Any] = []
    for cut in (0, size):
        try:
            found.append(repr(decode(data, cut)))
        except ModelError as error:
            found.append((error.kind, str(error)))
    assert found[0] == found[1]


@examples(200)
@given(data=st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Bytes of any kind give nothing but a ModelError."""
    with pytest.raises(ModelError):
        decode(data)


def test_deep_nesting() -> None:
    """Nesting without end is a typed error."""
    for data in (b"[" * 100_000, b"data: " + b'{"candidates":' * 50_000 + b"\n\n"):
        with pytest.raises(ModelError):
            decode(data)
