"""Values to bytes and back, and bytes that are not what they should be."""

from __future__ import annotations

import json
import pickle
import sys
from functools import partial
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.states.scene import Scene
from tests.states.strategies import JSON, of
from turnstate_states.checkpoint import FORMAT, Checkpoint, Queued
from turnstate_states.codec import (
    decode_checkpoint,
    decode_events,
    decode_messages,
    decode_submission,
    digest,
    encode_checkpoint,
    encode_events,
    encode_messages,
    encode_submission,
    with_bodies,
)
from turnstate_states.content import Part, Text, ToolCall
from turnstate_states.errors import CheckpointError, InvalidInput
from turnstate_states.events import MessageQueued, NumberedEvent, Replied, TurnStarted
from turnstate_states.rules import ToolSpec
from turnstate_states.submissions import Interrupt, Resume, Send, Submission
from turnstate_states.transcript import Message
from turnstate_states.turn import Call, TurnState

ENVELOPES = (
    '{"type": "call", "id": "m1.0", "name": "rm", "arguments": "{}"}',
    '{"py/object": "os.system", "args": ["true"]}',
    '{"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {}}',
    '{"__class__": "subprocess.Popen"}',
)


# Round trips


@examples(60)
@given(of(Checkpoint))
def test_checkpoints_come_back_equal(checkpoint: Checkpoint) -> None:
    """A checkpoint reads back equal and byte for byte, whatever it holds."""
    data = encode_checkpoint(checkpoint)
    again = decode_checkpoint(data)
    assert again == checkpoint
    assert encode_checkpoint(again) == data
    json.loads(data)


@examples(60)
@given(st.lists(of(Message), max_size=3))
def test_messages_come_back_equal(messages: list[Message]) -> None:
    """Messages with parts of every kind read back equal."""
    assert decode_messages(encode_messages(messages)) == messages


@pytest.mark.parametrize("kind", get_args(NumberedEvent))
@examples(15)
@given(data=st.data())
def test_events_come_back_equal(kind: type, data: st.DataObject) -> None:
    """Every event reads back equal, with the message that it names."""
    event = cast(NumberedEvent, data.draw(of(kind)))
    message = cast("Message | None", getattr(event, "message", None))
    stored = {} if message is None else {message.id: message}
    written = encode_events([event])
    assert message is None or len(message.parts) == 0 or encode_messages([message])[1:-1] not in written
    assert decode_events(written, stored.get) == [event]


@pytest.mark.parametrize("kind", get_args(Submission))
@examples(15)
@given(data=st.data())
def test_submissions_come_back_equal(kind: type, data: st.DataObject) -> None:
    """Every submission reads back equal, and says the same under another id."""
    submission = data.draw(of(kind))
    again = decode_submission(encode_submission(submission))
    assert again == submission
    assert digest(again) == digest(submission)


@pytest.mark.parametrize("kind", get_args(Part))
@examples(10)
@given(data=st.data())
def test_parts_come_back_equal(kind: type, data: st.DataObject) -> None:
    """What a provider needs back stands in a part verbatim."""
    message = Message("m1", None, "t1", "assistant", (data.draw(of(kind)),), 0.0)
    assert decode_messages(encode_messages([message])) == [message]


@examples()
@given(value=JSON)
def test_text_that_looks_like_an_envelope_stays_text(value: Any) -> None:
    """JSON in a person's text or in metadata, whatever tags it bears, is data (case 116)."""
    for text in (*ENVELOPES, json.dumps(value) + "x"):
        message = Message("m1", None, "t1", "user", (Text(text),), 0.0, metadata={"type": "call", "value": value})
        assert decode_messages(encode_messages([message])) == [message]


# What is written


def test_defaults_are_left_out_but_never_the_format() -> None:
    """A new session is small; its format is always written."""
    data = json.loads(encode_checkpoint(Checkpoint("s", 1.0)))
    assert data == {"session": "s", "created_at": 1.0, "format": FORMAT, "sequence": 0}


def test_big_values_are_written_once() -> None:
    """Arguments and waiting bodies stand in messages and events, not in the checkpoint or in events about calls."""
    scene = Scene.started(ToolSpec("asked", approval="always"))
    scene.say("body of a waiting message")
    scene.reply(ToolCall("", "asked", '{"big": "payload"}'))
    stored = encode_checkpoint(scene.core.checkpoint) + encode_events(scene.log)
    assert stored.count(b"payload") == 0
    assert encode_checkpoint(scene.core.checkpoint).count(b"body") == 0


def test_bodies_come_back_from_where_they_stand() -> None:
    """A decoded checkpoint gets its waiting messages and arguments from the events and messages that hold them."""
    message = Message("m1", None, "t1", "assistant", (ToolCall("m1.0", "f", '{"n": 1}'),), 0.0)
    turn = TurnState("t1", "s1", 0.0, "executing-tools", calls={"m1.0": Call("m1.0", "f", proposed='{"n": 1}')})
    queued = Queued("s2", 7, (Text("hi"),), {"a": 1})
    event = MessageQueued("s2", (Text("hi"),), settings={"a": 1}, number=7)
    checkpoint = Checkpoint("s", 0.0, turn=turn, queue=(queued,), steers=(queued,))
    bare = decode_checkpoint(encode_checkpoint(checkpoint))
    assert bare != checkpoint
    assert with_bodies(bare, {"m1": message}.get, {7: event}.get) == checkpoint


def test_a_waiting_message_whose_event_is_missing() -> None:
    """It is an error, not an empty message."""
    checkpoint = Checkpoint("s", 0.0, queue=(Queued("s2", 7),))
    with pytest.raises(CheckpointError, match="event 7"):
        with_bodies(checkpoint, lambda _: None, lambda _: None)


# What is refused


def valid() -> dict[str, Any]:
    """A checkpoint in the middle of a turn, as JSON data."""
    call = Call("m1.0", "f", "asked", began=1)
    turn = TurnState("t1", "s1", 0.0, "executing-tools", calls={"m1.0": call})
    data: dict[str, Any] = json.loads(encode_checkpoint(Checkpoint("s", 0.0, turn=turn, queue=(Queued("q", 1),))))
    return data


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("session",), 3),
        (("session",), None),
        (("sequence",), "3"),
        (("sequence",), 3.0),
        (("sequence",), True),
        (("held",), 1),
        (("created_at",), "now"),
        (("queue",), ""),
        (("queue",), {}),
        (("queue",), "x"),
        (("queue", 0, "event"), "1"),
        (("turn",), []),
        (("turn", "state"), "running"),
        (("turn", "step"), "1"),
        (("turn", "calls"), []),
        (("turn", "calls", "m1.0", "status"), "done"),
        (("turn", "calls", "m1.0", "began"), "1"),
        (("turn", "outcome"), "won"),
        (("usage",), {"m": 3}),
    ],
)
def test_a_field_of_another_type_is_refused_with_its_path(path: tuple[str | int, ...], value: object) -> None:
    """Structuring is strict: 3 is not "3", an object is no list; the error names the field."""
    data = valid()
    target: Any = data
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    with pytest.raises(CheckpointError, match=r"checkpoint: .*\$"):
        decode_checkpoint(json.dumps(data).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"3",
        b'"text"',
        b"{}",
        b'{"format": "1"}',
        b'{"format": true}',
        b'{"format": 0}',
        b'{"format": -1}',
        b'{"format": 1}',
        b'{"format": 1e400}',
        b'{"format": ' + b"9" * 5000 + b"}",
        b'{"format": 1, "session": "s", "created_at": 0, "sequence": 1e999}',
        b"\x00" * 20,
        b'{"format": 1, "session": "\xff", "created_at": 0}',
        b'{"format": 1, "session": "\\ud800", "created_at": 0}',
        b"[" * 10_000 + b"]" * 10_000,
        b'{"format": 1, "session": "s", "created_at": 0, "metadata": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001,
        pickle.dumps(Checkpoint("s", 0.0)),
        *[envelope.encode() for envelope in ENVELOPES],
    ],
    ids=range(24),
)
def test_bytes_that_are_no_checkpoint_are_refused(data: bytes) -> None:
    """Hostile or broken bytes give a CheckpointError and import nothing (case 116)."""
    modules = set(sys.modules)
    with pytest.raises(CheckpointError, match="checkpoint"):
        decode_checkpoint(data)
    assert {name for name in set(sys.modules) - modules if not name.startswith(("encodings", "pickle"))} == set()


def test_a_newer_format_is_refused_with_both_numbers() -> None:
    """What a newer version wrote is not guessed at."""
    with pytest.raises(CheckpointError, match=rf"format {FORMAT + 1}; this one reads up to {FORMAT}"):
        decode_checkpoint(json.dumps(valid() | {"format": FORMAT + 1, "session": {"new": 1}}).encode())


@pytest.mark.parametrize("tag", ['"nothing"', "null", "3", "[]", '"__class__"'])
def test_an_unknown_tag_is_refused(tag: str) -> None:
    """A union is read by its tag alone; one that is unknown names those that are known."""
    data = f'{{"type": {tag}, "id": "x"}}'.encode()
    with pytest.raises(CheckpointError, match=r"type: expected one of .*answer.*interrupt"):
        decode_submission(data)
    with pytest.raises(CheckpointError, match=r"type: expected one of .*call-started"):
        decode_events(b"[" + data + b"]", lambda _: None)


@pytest.mark.parametrize("message", ['"m9"', "{}", "3", "true", '["m1"]', '{"id": "m1"}'])
def test_an_event_names_a_message_that_is_stored(message: str) -> None:
    """An event whose message is missing, or is not a name, is an error."""
    for tag in ("replied", "turn-started"):
        data = f'[{{"type": "{tag}", "number": 3, "message": {message}}}]'.encode()
        with pytest.raises(CheckpointError, match="number 3"):
            decode_events(data, lambda _: None)


def test_an_event_without_its_message_is_refused() -> None:
    """A reply is nothing without the message; a turn may begin without one."""
    with pytest.raises(CheckpointError):
        decode_events(b'[{"type": "replied", "number": 3, "message": null}]', lambda _: None)
    with pytest.raises(CheckpointError):
        decode_events(b'[{"type": "replied", "number": 3}]', lambda _: None)
    assert decode_events(b'[{"type": "turn-started", "number": 3}]', lambda _: None) == [TurnStarted(number=3)]


@examples(200)
@given(st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    """No reader raises anything but CheckpointError."""
    nothing: dict[str, Message] = {}
    readers: list[Any] = [
        decode_checkpoint,
        decode_messages,
        decode_submission,
        partial(decode_events, find=nothing.get),
    ]
    for read in readers:
        try:
            read(data)
        except CheckpointError:
            pass


@pytest.mark.parametrize("submission", [Resume("\ud800"), Interrupt("i", reason="\udcff"), Resume("x" * 10)])
def test_text_that_no_encoder_accepts(submission: Submission) -> None:
    """Half a surrogate pair in what a client says is invalid input; other text has a digest of 32 digits."""
    if submission == Resume("x" * 10):
        assert len(digest(submission)) == 32
        return
    with pytest.raises(InvalidInput):
        digest(submission)


def test_the_digest_tells_content_apart() -> None:
    """Equal content has one digest, whatever the id and the order of keys; other content, or another kind, has another."""
    first = Send("a", (Text("x"),), settings={"a": 1, "b": {"c": 1, "d": 2}})
    same = Send("b", (Text("x"),), settings={"b": {"d": 2, "c": 1}, "a": 1})
    others = (Send("a", (Text("x"),)), Send("a", (Text("y"),), settings=first.settings), Resume("a"), Interrupt("a"))
    assert digest(first) == digest(same)
    assert len({digest(other) for other in (first, *others)}) == 5


def test_a_reply_is_told_by_name() -> None:
    """The event names its message; the text stands in the message alone."""
    message = Message("m1", None, "t1", "assistant", (Text("many words"),), 0.0)
    assert b"many words" not in encode_events([Replied(message, number=1)])
