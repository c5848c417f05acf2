"""Threads between sessions: exported, read, begun with, forked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.states.scene import Scene, wants
from tests.states.strategies import JSON, of
from tests.states.trees import check_tree, reads, same
from turnstate_states.checkpoint import Checkpoint
from turnstate_states.codec import converter, decode_checkpoint, encode_checkpoint
from turnstate_states.content import Part, Text, ToolCall, ToolResult
from turnstate_states.errors import InvalidInput, Refused
from turnstate_states.events import Imported, TurnStarted, Warned
from turnstate_states.rules import ToolSpec
from turnstate_states.thread import Thread, begin_session, export_thread, fork_thread, read_thread
from turnstate_states.transcript import Message, Role, Transcript

PLAIN = ToolSpec("plain")
ASKED = ToolSpec("asked", approval="always")
EMPTY = Checkpoint("s", 0.0)


def said(name: str, parent: str | None = None, *parts: Part, role: Role = "user", **more: Any) -> Message:
    """A message; its text is its id unless there are other parts."""
    return Message(name, parent, more.pop("turn", "t1"), role, parts or (Text(name),), 0.0, **more)


def exported(*messages: Message, **fields: Any) -> bytes:
    """A file with these messages."""
    unstructure = converter().unstructure
    return json.dumps({"messages": [unstructure(message) for message in messages], **fields}).encode()


def ids(thread: Thread) -> list[str]:
    """The messages in it."""
    return [message.id for message in thread.messages]


def begun(thread: Thread, **more: Any) -> Transcript:
    """What a session that begins with a thread holds."""
    commit = begin_session("b", thread, now=5.0, **more)
    assert decode_checkpoint(encode_checkpoint(commit.checkpoint)) == commit.checkpoint
    return Transcript(commit.messages, commit.checkpoint.head, commit.checkpoint.chosen)


M1, M2, M3, M4 = said("m1"), said("m2", "m1", role="assistant"), said("m3", "m1", role="assistant"), said("m4", "m2")


@st.composite
def trees(draw: st.DrawFn) -> Transcript:
    """Any tree with batches of calls, some of which are cut, with any branch shown."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 6))):
        parent = draw(st.none() | st.sampled_from(messages)) if messages else None
        name = f"m{len(messages) + 1}"
        above = None if parent is None else parent.id
        if draw(st.booleans()):
            messages.append(said(name, above))
            continue
        calls = tuple(ToolCall(f"{name}.{at}", "f", "{}") for at in range(draw(st.integers(0, 2))))
        messages.append(said(name, above, Text(name), *calls, role="assistant"))
        for call in calls[: draw(st.integers(0, 2))]:
            result = said(f"m{len(messages) + 1}", messages[-1].id, ToolResult(call.id, "r"), role="tool")
            messages.append(result)
    transcript = Transcript(messages)
    for message in draw(st.lists(st.sampled_from(messages), max_size=3)):
        transcript.switch(message.id)
    if draw(st.booleans()):
        transcript.move(draw(st.none() | st.sampled_from(messages).map(lambda message: message.id)))
    return transcript


@examples(200)
@given(trees(), st.randoms(use_true_random=False), st.text(max_size=5))
def test_what_was_exported_reads_back(transcript: Transcript, random: Any, title: str) -> None:
    """Export, read and begin give the same tree, head, choice and visible path, in whatever order messages stand."""
    data = export_thread(Checkpoint("s", 0.0, title=title), transcript)
    thread = read_thread(data)
    assert (thread.title, thread.warnings) == (title, ())
    same(begun(thread), transcript)
    fields = json.loads(data)
    random.shuffle(fields["messages"])
    again = read_thread(json.dumps(fields).encode())
    assert again.head == transcript.head
    assert sorted(ids(again)) == sorted(ids(thread))
    other = begun(again)
    check_tree(other)
    assert reads(other, other.head) == reads(transcript, transcript.head)


@examples(150)
@given(trees())
def test_forks_of_any_tree(transcript: Transcript) -> None:
    """At each message a fork is its path, and nothing else; between a call and its results it is refused."""
    for message in transcript.all():
        open_calls: set[str] = set()
        for step in transcript.path_to(message.id):
            open_calls = {call.id for call in step.calls} if step.role != "tool" else open_calls
            open_calls -= {result.call for result in step.results}
        if open_calls and message.role != "user":
            with pytest.raises(Refused) as caught:
                fork_thread(EMPTY, transcript, message.id)
            assert caught.value.code == "stale"
            continue
        thread = fork_thread(EMPTY, transcript, message.id)
        assert thread.messages == transcript.path_to(message.id)
        fork = begun(thread)
        check_tree(fork)
        assert (fork.head, dict(fork.chosen)) == (message.id, {})
    last = fork_thread(EMPTY, transcript, None)
    assert list(last.messages) == transcript.path[: len(last.messages)]
    assert last.head is None or transcript.cut_at(last.head)
    with pytest.raises(Refused, match="no message x"):
        fork_thread(EMPTY, transcript, "x")


# Files that are not quite right


def test_orphans_are_left_out_with_all_that_follows_them() -> None:
    """What follows a missing message cannot be shown; the warning names all of it, and the log tells it."""
    thread = read_thread(exported(M1, M2, M4, said("m5", "gone"), said("m6", "m5"), head="m2"))
    assert ids(thread) == ["m1", "m2", "m4"]
    assert thread.warnings == ("left out, because what they follow is missing: m5, m6",)
    commit = begin_session("b", thread, now=5.0)
    assert [type(event) for event in commit.events] == [Imported, Warned]
    assert [event.number for event in commit.events] == [1, 2]
    assert commit.checkpoint.events == 2


def test_circles_are_left_out() -> None:
    """Messages that follow each other hang on nothing."""
    thread = read_thread(exported(M1, said("a", "b"), said("b", "a"), said("c", "c"), said("d", "c")))
    assert ids(thread) == ["m1"]
    assert "a, b, c, d" in thread.warnings[0]


def test_children_before_their_parents() -> None:
    """Messages may stand in any order; branches keep the order of the file."""
    thread = read_thread(exported(M4, M3, M2, M1, head="m4"))
    assert ids(thread) == ["m1", "m3", "m2", "m4"]
    assert begun(thread).branches("m2") == ("m3", "m2")


@pytest.mark.parametrize(
    ("fields", "head", "warned"),
    [
        ({}, "m4", False),
        ({"head": None}, None, False),
        ({"head": "m2"}, "m2", False),
        ({"head": "gone"}, "m4", True),
        ({"head": "m5"}, "m4", True),
        ({"head": 7}, "m4", True),
    ],
)
def test_a_head_that_is_not_there(fields: dict[str, Any], head: str | None, warned: bool) -> None:
    """Without a head the newest leaf is shown; with one that was lost too, and that is told; null shows nothing."""
    thread = read_thread(exported(M1, M2, M3, M4, said("m5", "gone"), **fields))
    assert thread.head == head
    assert len(thread.warnings) == 1 + warned
    check_tree(begun(thread))


@pytest.mark.parametrize(
    ("chosen", "head", "kept"),
    [
        ({"m1": "m2"}, "m4", {"m1": "m2"}),
        ({"m1": "m2"}, "m3", {}),
        ({"m1": "m3"}, "m3", {}),
        ({"m1": "m3"}, "m4", {"m1": "m2"}),
        ({"m1": "m4", "m4": "m1", "x": "m1", "": "m1", "m2": 7, "m3": None}, "m3", {}),
        (["m1"], "m3", {}),
        ("m1", "m3", {}),
    ],
)
def test_a_choice_that_does_not_fit(chosen: Any, head: str, kept: dict[str, str]) -> None:
    """What is shown leads to the head, whatever else the file says; a choice of what is not there is dropped."""
    thread = read_thread(exported(M1, M2, M3, M4, head=head, chosen=chosen))
    assert dict(thread.chosen) == kept
    check_tree(begun(thread))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "thread: not JSON"),
        (b"{", "thread: not JSON"),
        (b"[" * 100_000, "thread: not JSON"),
        (b"\xff", "thread: not JSON"),
        (b"null", "messages: expected an array"),
        (b"[]", "messages: expected an array"),
        (b'{"messages": {}}', "messages: expected an array"),
        (b'{"messages": [], "format": 2}', "format: expected 1, got 2; another version"),
        (b'{"messages": [], "format": "1"}', "format"),
        (b'{"messages": [7]}', r"messages\[0\]"),
        (b'{"messages": [{}]}', r"messages\[0\]: .*id"),
        (exported(said("")), r"messages\[0\]: expected a message with an id"),
        (exported(M1, M1), "messages: 2 have the id m1"),
        (exported(M1, said("r", changes=("m1",), status="deleted")), r"messages\[1\]: .*record of a change"),
        (exported(M1, said("r", changes=("m1",))), r"messages\[1\]: .*record of a change"),
        (exported(M1, said("r", status="deleted")), r"messages\[1\]: .*record of a change"),
        (exported(said("m" + "9" * 16)), r"messages\[0\]: the number in the id m9"),
        (exported(said("x", turn="t" + "9" * 5000)), r"messages\[0\]: the number in the id t9"),
    ],
)
def test_what_is_no_thread(data: bytes, match: str) -> None:
    """The error says what is wrong and where; nothing is half read."""
    with pytest.raises(InvalidInput, match=match):
        read_thread(data)


PIECES = st.sampled_from(["m1", "m2", "m3", "x", "", "t9", "m9999999999999999", "\u0661"])
LOOSE = st.fixed_dictionaries(
    {"id": PIECES, "turn": PIECES, "role": st.sampled_from(["user", "assistant", "tool"]), "created_at": st.just(0.0)},
    optional={"parent": st.none() | PIECES, "parts": st.just([]), "changes": st.just([]), "keeps": PIECES},
)
GARBAGE = st.fixed_dictionaries(
    {"messages": st.lists(LOOSE | of(Message).map(converter().unstructure) | JSON, max_size=5)},
    optional={
        "head": st.none() | PIECES | JSON,
        "chosen": st.dictionaries(PIECES, PIECES) | JSON,
        "format": st.sampled_from([1, 1, 1, 2, "1", None]),
        "title": JSON,
    },
)


FILES = st.binary(max_size=50) | (JSON | GARBAGE).map(lambda value: json.dumps(value).encode())


@examples(300)
@given(FILES)
def test_whatever_is_read(data: bytes) -> None:
    """Any bytes are a thread with which a session can begin, or InvalidInput."""
    try:
        thread = read_thread(data)
    except InvalidInput:
        return
    transcript = begun(thread)
    check_tree(transcript)
    assert transcript.head == thread.head
    again = read_thread(export_thread(EMPTY, transcript))
    assert again.warnings == ()
    same(begun(again), transcript)


# What begins with it


def test_nothing_else_comes_with_it() -> None:
    """No approval, no waiting message, no running turn and no label of the source is in the new session."""
    scene = Scene.calling(ASKED, PLAIN)
    scene.answer("approve", 0, for_session=True)
    scene.say("later")
    data = export_thread(scene.core.checkpoint, scene.core.transcript)
    commit = begin_session("b", read_thread(data), now=2000.0, source="s", metadata={"k": 1})
    checkpoint = commit.checkpoint
    assert (checkpoint.grants, checkpoint.queue, checkpoint.steers, checkpoint.turn) == ((), (), (), None)
    assert (checkpoint.session, checkpoint.title, checkpoint.metadata) == ("b", "hi", {"k": 1})
    (event,) = commit.events
    assert event == Imported(2, "m2", "s", number=1, at=2000.0)
    fork = Scene.beginning(commit, ASKED)
    fork.say("again")
    assert fork.shown[1:] == [
        ("assistant", ""),
        ("tool", "not run: no result was recorded"),
        ("tool", "not run: no result was recorded"),
        ("user", "again"),
    ]
    fork.reply(*wants("asked"))
    assert fork.statuses == ["asked"]


@pytest.mark.parametrize(
    ("names", "turn", "following"),
    [
        (["m1", "m2"], "t1", "m3"),
        (["m7"], "t1", "m8"),
        (["a", "b", "c"], "t1", "m4"),
        (["m007", "m\u0661"], "x", "m8"),
        (["m999999999999999"], "t3", "m1000000000000000"),
        (["m-1", "m1.5", "xm9"], "t2", "m4"),
    ],
)
def test_later_ids_are_new(names: list[str], turn: str, following: str) -> None:
    """Counters go on behind whatever the messages and turns were called."""
    thread = read_thread(exported(*[said(name, turn=turn) for name in names]))
    scene = Scene.beginning(begin_session("b", thread, now=1000.0), PLAIN)
    scene.say("go")
    assert scene.last().id == following
    assert scene.told(TurnStarted)[-1].turn not in {turn}
    scene.reply(*wants("plain"))
    scene.done(0)
    scene.reply()
    scene.crash()
    scene.check_restored()


def test_a_thread_from_elsewhere_goes_on_in_every_way() -> None:
    """Imported branches can be switched to, edited, answered again and deleted like those that were written here."""
    messages = (M1, M2, M3, M4)
    scene = Scene.beginning(begin_session("b", Thread(messages, "m4", {"m1": "m2"}), now=1000.0), PLAIN)
    scene.switch("m3")
    assert scene.core.transcript.head == "m3"
    scene.regenerate("m3")
    scene.reply()
    scene.edit("m4", "otherwise")
    scene.reply()
    scene.delete("m2")
    scene.crash()
    scene.check_restored()
    assert scene.core.transcript.branches("m3") == ("m3", "m4", "m5", "m6")


def test_an_empty_thread() -> None:
    """A session may begin with nothing."""
    thread = read_thread(exported())
    assert (thread.messages, thread.head, dict(thread.chosen)) == ((), None, {})
    scene = Scene.beginning(begin_session("b", thread, now=1000.0))
    scene.say("go")
    assert scene.last().id == "m1"


def test_titles() -> None:
    """A thread without a title takes the first words that a person said; a title that is no text is none."""
    assert begin_session("b", Thread((M2, M1)), now=0.0).checkpoint.title == "m1"
    assert begin_session("b", Thread((M1,), title=" a\n b "), now=0.0).checkpoint.title == "a b"
    assert read_thread(exported(M1, title=7)).title == ""


def test_a_fork_of_what_is_shown_stops_before_open_calls() -> None:
    """Without a message named, the fork ends at the last place where a conversation may be cut."""
    scene = Scene.calling(PLAIN, ASKED)
    scene.done(0)
    thread = fork_thread(scene.core.checkpoint, scene.core.transcript, None)
    assert ids(thread) == ["m1"]
    assert (thread.head, thread.title) == ("m1", "hi")
