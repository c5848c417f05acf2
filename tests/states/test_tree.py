"""The tree under every sequence of changes, held against a model of it that is as simple as it can be."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.depth import counted, pick, steps_of
from tests.states.trees import check_tree, reads, same, shown_after
from turnstate_states.checkpoint import Checkpoint
from turnstate_states.codec import decode_messages, encode_messages
from turnstate_states.content import Part, Text, ToolCall, ToolResult
from turnstate_states.errors import CheckpointError
from turnstate_states.thread import begin_session, export_thread, fork_thread, read_thread
from turnstate_states.transcript import Message, Role, Transcript

Parents = dict[str, str | None]


@attrs.define
class Model:
    """Who follows whom, oldest first, who is shown after whom, and which message is the last of the path."""

    parents: Parents = attrs.field(factory=Parents)
    shown: dict[str | None, str] = attrs.field(factory=dict[str | None, str])
    metadata: dict[str, dict[str, Any]] = attrs.field(factory=dict[str, dict[str, Any]])
    head: str | None = None

    def children(self, parent: str | None) -> list[str]:
        """Those that follow a message."""
        return [name for name, above in self.parents.items() if above == parent]

    def path(self, name: str | None) -> list[str]:
        """From the first message to this one."""
        found: list[str] = []
        while name is not None:
            found.insert(0, name)
            name = self.parents[name]
        return found

    def leaf(self, name: str | None) -> str | None:
        """The end of what is shown through a message."""
        while name in self.shown:
            name = self.shown[name]
        return name

    def append(self, name: str) -> None:
        """A message below the head."""
        self.parents[name], self.shown[self.head], self.metadata[name] = self.head, name, {}
        self.head = name

    def show(self, name: str | None) -> None:
        """Show the whole path to a message."""
        for step in self.path(name):
            self.shown[self.parents[step]] = step

    def delete(self, gone: tuple[str, ...]) -> None:
        """What followed the deleted ones follows the one before them, and is shown in their place."""
        before, shown = dict(self.parents), dict(self.shown)

        def above(name: str | None) -> str | None:
            while name is not None and name in gone:
                name = before[name]
            return name

        self.parents = {name: above(parent) for name, parent in self.parents.items()}
        for name in gone:
            del self.parents[name], self.metadata[name]
        self.shown = {}
        for parent in (None, *self.parents):
            followers = self.children(parent)
            child = shown.get(parent)
            while child is not None and child in gone:
                child = shown.get(child)
            if followers:
                self.shown[parent] = followers[-1] if child is None else child
        if self.head in gone:
            self.head = self.leaf(above(self.head))


class Trees(RuleBasedStateMachine):
    """A transcript and its model, changed together."""

    def __init__(self) -> None:
        super().__init__()
        counted("lives")
        self.model = Model()
        self.transcript = Transcript()
        self.written: list[Message] = []

    def _write(self, role: Role, *parts: Part, **more: Any) -> str:
        name = f"m{len(self.written) + 1}"
        message = Message(name, self.transcript.head, "t1", role, parts, 0.0, **more)
        self.written.append(message)
        self.transcript.append(message)
        self.model.append(name)
        return name

    def _record(self, changes: tuple[str, ...], **more: Any) -> None:
        record = Message(f"m{len(self.written) + 1}", None, "", "system", (), 0.0, changes=changes, **more)
        self.written.append(record)
        self.transcript.append(record)

    def _any(self, data: st.DataObject) -> str:
        """Any message; those that have several followers, or one beside them, as often as all others together."""
        everything = list(self.model.parents)
        forks = [name for name in everything if len(self.model.children(name)) > 1]
        forks += [name for name in everything if len(self.model.children(self.model.parents[name])) > 1]
        biased: bool = data.draw(st.booleans())
        return data.draw(st.sampled_from(forks if forks and biased else everything))

    @rule(role=st.sampled_from(("user", "assistant")))
    def say(self, role: Role) -> None:
        """A text below the head."""
        self._write(role, Text(f"text {len(self.written)}"))

    @rule(order=st.permutations(range(3)), results=st.integers(0, 3))
    def call(self, order: list[int], results: int) -> None:
        """A batch of calls and their results, in whatever order they come; it may be cut short."""
        base = f"m{len(self.written) + 1}"
        self._write("assistant", *(ToolCall(f"{base}.{at}", "f", "{}") for at in range(3)))
        for at in order[:results]:
            self._write("tool", ToolResult(f"{base}.{at}", f"result {at}"))

    @precondition(lambda self: self.model.head is not None)
    @rule(data=st.data())
    def summarise(self, data: st.DataObject) -> None:
        """A summary that keeps some message of the path, or none."""
        keeps = data.draw(st.sampled_from(["", *self.model.path(self.model.head)]))
        self._write("system", Text("so far"), keeps=keeps)

    @precondition(lambda self: self.model.parents)
    @rule(data=st.data(), role=st.sampled_from(("user", "assistant")))
    def branch(self, data: st.DataObject, role: Role) -> None:
        """Say something below any message."""
        self._move(self._any(data))
        self.say(role)

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        """Go on from any message, or from before all of them."""
        self._move(data.draw(st.sampled_from([None, *self.model.parents])))

    def _move(self, head: str | None) -> None:
        self.transcript.move(head)
        self.model.show(head)
        self.model.head = head

    @precondition(lambda self: self.model.parents)
    @rule(data=st.data())
    def switch(self, data: st.DataObject) -> None:
        """Show another branch."""
        name = self._any(data)
        self.transcript.switch(name)
        self.model.show(name)
        self.model.head = self.model.leaf(name)

    @precondition(lambda self: self.model.parents)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Take a batch out."""
        gone = self.transcript.batch(self._any(data))
        self._record(gone, status="deleted")
        self.model.delete(gone)

    @precondition(lambda self: self.model.parents)
    @rule(data=st.data(), key=st.sampled_from("ab"), value=st.none() | st.integers(0, 2))
    def annotate(self, data: st.DataObject, key: str, value: int | None) -> None:
        """Lay metadata over some messages'."""
        names = tuple(data.draw(st.sets(st.sampled_from(list(self.model.parents)), min_size=1, max_size=2)))
        self._record(names, metadata={key: value})
        for name in names:
            self.model.metadata[name][key] = value
            if value is None:
                del self.model.metadata[name][key]

    @rule(do=st.sampled_from(("fail", "reload", "carry")))
    def other(self, do: str) -> None:
        """What is to change nothing."""
        {"fail": self._fail, "reload": self._reload, "carry": self._carry}[do]()

    def _fail(self) -> None:
        """What cannot be done raises, and changes nothing."""
        before = self.transcript.copy()
        here, known = self.transcript.head, next(iter(self.model.parents), "m1")
        wrong: list[Callable[[], object]] = [
            lambda: self.transcript.switch("x"),
            lambda: self.transcript.move("x"),
            lambda: self.transcript.append(Message("new", "x", "t1", "user", (), 0.0)),
            lambda: self.transcript.branches("x"),
            lambda: self.transcript.batch("x"),
        ]
        if self.model.parents:
            wrong.append(lambda: self.transcript.append(Message(known, here, "t1", "user", (), 0.0)))
        for do in wrong:
            with pytest.raises((CheckpointError, KeyError, AssertionError)):
                do()
        same(self.transcript, before)

    def _reload(self) -> None:
        """Go on with what is read from the store."""
        self.transcript = self._reloaded()

    def _carry(self) -> None:
        """Go on in a session that begins with the exported thread."""
        data = export_thread(Checkpoint("s", 0.0), self.transcript)
        thread = read_thread(data)
        assert thread.warnings == ()
        commit = begin_session("other", thread, now=0.0)
        carried = Transcript(commit.messages, commit.checkpoint.head, commit.checkpoint.chosen)
        same(carried, self.transcript)
        assert export_thread(Checkpoint("s", 0.0), carried) == data

    def _reloaded(self) -> Transcript:
        chosen = json.loads(json.dumps(dict(self.transcript.chosen)))
        return Transcript(decode_messages(encode_messages(self.written)), self.transcript.head, chosen)

    @invariant()
    def holds(self) -> None:
        """The shape is right, the model says the same, and so does what would be read from the store."""
        transcript, model = self.transcript, self.model
        check_tree(transcript)
        assert [message.id for message in transcript.all()] == list(model.parents)
        assert {message.id: message.parent for message in transcript.all()} == model.parents
        assert {message.id: dict(message.metadata) for message in transcript.all()} == model.metadata
        assert transcript.head == model.head
        assert [message.id for message in transcript.path] == model.path(model.head)
        for parent in (None, *model.parents):
            assert transcript.followers(parent) == tuple(model.children(parent))
            assert shown_after(transcript, parent) == model.shown.get(parent)
        same(self._reloaded(), transcript)


TestTrees = Trees.TestCase
TestTrees.settings = steps_of(100, 30)


# By hand


def said(number: int, parent: int | None, *parts: Part, role: Role = "user") -> Message:
    """A message by number; its text is its number unless there are other parts."""
    above = None if parent is None else f"m{parent}"
    return Message(f"m{number}", above, "t1", role, parts or (Text(str(number)),), 0.0)


def record(number: int, *names: str) -> Message:
    """The record that these were deleted."""
    return Message(f"m{number}", None, "", "system", (), 0.0, status="deleted", changes=names)


def test_a_nested_choice_is_remembered() -> None:
    """Switching away and back shows again what was shown below, also after a reload."""
    tree = [said(1, None), said(2, 1), said(3, 1), said(4, 2), said(5, 2), said(6, 4), said(7, 4)]
    transcript = Transcript(tree, "m3")
    transcript.switch("m6")
    assert transcript.head == "m6"
    transcript.switch("m3")
    transcript.switch("m2")
    assert transcript.head == "m6"
    transcript.switch("m3")
    again = Transcript(tree, transcript.head, transcript.chosen)
    again.switch("m2")
    assert again.head == "m6"


def test_branches_stay_in_the_order_they_were_written() -> None:
    """What a deleted message leaves to the one before it stands among its branches by age."""
    transcript = Transcript([said(1, None), said(2, 1), said(3, 2), said(4, 1), said(5, 2), said(6, 1)], "m6")
    transcript.append(record(7, "m2"))
    assert transcript.branches("m4") == ("m3", "m4", "m5", "m6")
    assert transcript.head == "m6"


def test_deleting_what_is_shown_shows_what_followed_it() -> None:
    """The path goes on below a deleted message; at the end of a branch it falls to the newest one that is left."""
    transcript = Transcript(
        [said(1, None), said(2, 1), said(3, 1), said(4, 2), said(5, 2)], "m4", {"m1": "m2", "m2": "m4"}
    )
    transcript.append(record(6, "m2"))
    assert [message.text for message in transcript.path] == ["1", "4"]
    transcript.append(record(7, "m4"))
    assert [message.text for message in transcript.path] == ["1", "5"]
    transcript.append(record(8, "m1"))
    assert [message.text for message in transcript.path] == ["5"]
    assert [message.parent for message in transcript.all()] == [None, None]


def test_what_belongs_to_a_call() -> None:
    """A reply and the results of its calls that follow it, in whatever order they came; nothing behind a cut."""
    two = (ToolCall("m1.0", "f", "{}"), ToolCall("m1.1", "f", "{}"))
    whole = [
        said(1, None, *two, role="assistant"),
        said(2, 1, ToolResult("m1.1", "r"), role="tool"),
        said(3, 2, ToolResult("m1.0", "r"), role="tool"),
        said(4, 3, ToolResult("m9.0", "r"), role="tool"),
    ]
    assert Transcript(whole, "m4").batch("m1") == ("m1", "m2", "m3")
    assert [Transcript(whole, "m4").cut_at(message.id) for message in whole] == [False, False, True, True]
    cut = [*whole[:2], said(3, 2), said(4, 3, ToolResult("m1.0", "late"), role="tool")]
    assert Transcript(cut, "m4").batch("m1") == ("m1", "m2")
    assert Transcript(cut, "m4").batch("m3") == ("m3",)


def test_deleting_everything_leaves_nothing() -> None:
    """The last message may be deleted; the next one begins a path."""
    transcript = Transcript([said(1, None)], "m1")
    transcript.append(record(2, "m1"))
    assert (transcript.head, transcript.path, len(transcript)) == (None, [], 0)
    transcript.append(said(3, None))
    assert transcript.head == "m3"


def test_a_record_of_what_is_not_there_changes_nothing() -> None:
    """Deleting twice is deleting once."""
    transcript = Transcript([said(1, None), said(2, 1)], "m2")
    transcript.append(record(3, "m2"))
    before = transcript.copy()
    transcript.append(record(4, "m2", "x"))
    same(transcript, before)


# Size

WIDE, LONG = 10, pick(2_000, 10_000)


def forest() -> list[Message]:
    """100,000 messages: a path of 10,000, and nine other answers at each place of it."""
    found: list[Message] = []
    for step in range(LONG):
        above = None if step == 0 else (step - 1) * WIDE + 1
        found += [said(step * WIDE + at, above) for at in range(1, WIDE + 1)]
    return found


def test_long_threads() -> None:
    """100,000 messages and a path of 10,000 are built, switched, deleted, exported, read and forked without recursion."""
    messages = forest()
    last, middle = f"m{(LONG - 1) * WIDE + 1}", f"m{LONG // 2 * WIDE + 1}"
    transcript = Transcript(messages)
    transcript.switch("m1")
    transcript.switch(last)
    assert len(transcript.path) == LONG
    for at in range(6):
        transcript.switch(f"m{(LONG - at) * WIDE}")
        transcript.switch(last)
        visible, hidden = f"m{(LONG // 3 + at) * WIDE + 1}", f"m{at * WIDE + 2}"
        for name in (visible, hidden):
            messages.append(record(len(messages) + 1, name))
            transcript.append(messages[-1])
    assert len(transcript.path) == LONG - 6
    again = Transcript(messages, transcript.head, transcript.chosen)
    assert (again.path, len(again)) == (transcript.path, len(transcript))
    thread = read_thread(export_thread(Checkpoint("s", 0.0), transcript))
    assert (thread.messages, thread.head) == (transcript.all(), transcript.head)
    forked = fork_thread(Checkpoint("s", 0.0), transcript, middle)
    assert reads(transcript, middle) == [(message.role, message.text) for message in forked.messages]
    begun = begin_session("other", thread, now=0.0)
    assert begun.checkpoint.messages == LONG * WIDE


def test_many_deleted_messages() -> None:
    """A thread most of which was deleted, one by one, is read in one go."""
    messages = [said(1, None)]
    for number in range(2, 30_000, 3):
        above = max(1, number - 3)
        messages += [said(number, above), said(number + 1, above), said(number + 2, number + 1)]
    records = [record(40_000 + number, f"m{number}") for number in range(3, 30_001, 3)]
    transcript = Transcript([*messages, *records], messages[-3].id)
    assert transcript.branches("m2") == ("m2", "m4")
    assert len(transcript) == 1 + 20_000
    assert len(transcript.path) == 10_000 + 1
