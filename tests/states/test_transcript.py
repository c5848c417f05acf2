"""The tree of messages, and the conversation that a model is shown."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.states.ledger import check_pairs
from turnstate_states.content import Image, Part, Reasoning, Text, ToolCall, ToolResult
from turnstate_states.errors import CheckpointError
from turnstate_states.transcript import Conversation, Message, Role, Transcript, Usage

CALLS = ("a", "b", "c")
MISSING = "not run: no result was recorded"


def message(number: int, role: Role, *parts: Part, parent: str | None = None) -> Message:
    """A message; by default below the one with the number before."""
    above = parent or (f"m{number - 1}" if number > 1 else None)
    return Message(f"m{number}", above, "t1", role, parts, 0.0)


def calls(*names: str) -> tuple[ToolCall, ...]:
    """Calls with these ids."""
    return tuple(ToolCall(name, "f", "{}") for name in names)


def shown(*path: Message) -> list[tuple[str, str]]:
    """What a model is shown of a path: roles and texts."""
    conversation = Conversation()
    for item in path:
        conversation.add(item)
    check_pairs(conversation.messages())
    return [(item.role, item.text) for item in conversation.messages()]


PARTS: st.SearchStrategy[Part] = st.one_of(
    st.text(max_size=3).map(Text),
    st.just(Reasoning("hm")),
    st.just(Image("https://example.org/a.png")),
    st.sampled_from(CALLS).map(lambda name: ToolCall(name, "f", "{}")),
    st.sampled_from(CALLS).map(lambda name: ToolResult(name, "r")),
)


def _once(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Each call at most once in a message: our ids are unique."""
    seen: set[str] = set()
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            if part.id in seen:
                continue
            seen.add(part.id)
        kept.append(part)
    return tuple(kept)


MESSAGES = st.lists(
    st.tuples(st.sampled_from(("user", "assistant", "tool", "system")), st.lists(PARTS, max_size=4).map(_once)),
    max_size=8,
)


@examples(500)
@given(MESSAGES)
def test_whatever_the_history_the_output_pairs(history: list[tuple[Role, tuple[Part, ...]]]) -> None:
    """Each call has exactly one result, right after it, in call order, at every moment; no result stands alone."""
    conversation = Conversation()
    for number, (role, parts) in enumerate(history, 1):
        conversation.add(message(number, role, *parts))
        check_pairs(conversation.messages())
        ids = [item.id for item in conversation.messages()]
        assert len(ids) == len(set(ids)) or any(item.id.endswith("!") for item in conversation.messages())


@examples(100)
@given(MESSAGES, st.integers(0, 8))
def test_a_copy_is_independent(history: list[tuple[Role, tuple[Part, ...]]], at: int) -> None:
    """A copy shows what the original showed, and goes its own way."""
    made = [message(number, role, *parts) for number, (role, parts) in enumerate(history, 1)]
    original = Transcript(made[:at], made[:at][-1].id if made[:at] else None)
    before = original.conversation.messages()
    copy = original.copy()
    for item in made[at:]:
        copy.append(item)
    assert original.conversation.messages() == before
    assert original.head == (made[:at][-1].id if made[:at] else None)
    whole = Transcript(made, made[-1].id if made else None)
    assert copy.conversation.messages() == whole.conversation.messages()
    assert (copy.path, copy.all(), copy.head) == (whole.path, whole.all(), whole.head)


def test_results_are_put_in_call_order() -> None:
    """Results are written as they come and shown in the order of the calls."""
    assert shown(
        message(1, "assistant", *calls("a", "b")),
        message(2, "tool", ToolResult("b", "second")),
        message(3, "tool", ToolResult("a", "first")),
    )[1:] == [("tool", "first"), ("tool", "second")]


def test_a_batch_that_was_cut_is_repaired() -> None:
    """A call without a result gets one that says so, before the message that cut the batch short (cases 35 and 40)."""
    assert shown(
        message(1, "assistant", *calls("a", "b")),
        message(2, "tool", ToolResult("b", "second")),
        message(3, "user", Text("stop")),
        message(4, "tool", ToolResult("a", "late")),
    )[1:] == [("tool", MISSING), ("tool", "second"), ("user", "stop")]


def test_the_first_result_counts() -> None:
    """A second result for one call, and a result of no call, are left out (case 38)."""
    assert shown(
        message(1, "tool", ToolResult("x", "orphan")),
        message(2, "assistant", *calls("a", "b")),
        message(3, "tool", ToolResult("a", "one")),
        message(4, "tool", ToolResult("a", "two")),
        message(5, "tool", ToolResult("b", "three")),
    )[1:] == [("tool", "one"), ("tool", "three")]


def test_several_results_in_one_message_are_shown_apart() -> None:
    """An imported message with many results is shown as one message for each call."""
    assert shown(
        message(1, "assistant", *calls("a", "b")),
        message(2, "tool", ToolResult("b", "two"), ToolResult("a", "one"), ToolResult("x", "orphan")),
    )[1:] == [("tool", "one"), ("tool", "two")]


def test_parts_that_a_role_cannot_hold_are_left_out() -> None:
    """Calls are a model's, results are a tool's."""
    assert shown(
        message(1, "user", Text("hi"), *calls("a")),
        message(2, "assistant", Text("yes"), ToolResult("a", "r")),
        message(3, "system", ToolResult("a", "r")),
    ) == [("user", "hi"), ("assistant", "yes")]


@pytest.mark.parametrize("parts", [(), (Text(""),), (Text("\n\n"), Text(" "))])
def test_blank_replies_are_not_shown(parts: tuple[Part, ...]) -> None:
    """A reply of nothing but blanks is stored and left out (case 45)."""
    assert shown(message(1, "user", Text("hi")), message(2, "assistant", *parts)) == [("user", "hi")]


def test_a_reply_with_nothing_but_calls_is_shown() -> None:
    """It is their place in the conversation (case 45)."""
    assert shown(message(1, "assistant", *calls("a")))[0] == ("assistant", "")


def test_a_result_is_shown_with_its_own_id() -> None:
    """A message that is shown as it was stored keeps its id."""
    conversation = Conversation()
    stored = [message(1, "assistant", *calls("a")), message(2, "tool", ToolResult("a", "r"))]
    for item in stored:
        conversation.add(item)
    assert list(conversation.messages()) == stored


# The tree


def tree() -> list[Message]:
    """A question with two answers, the second of which goes on."""
    return [
        message(1, "user", Text("q")),
        message(2, "assistant", Text("first")),
        message(3, "assistant", Text("second"), parent="m1"),
        message(4, "user", Text("more")),
    ]


@pytest.mark.parametrize(
    ("head", "path"), [("m1", "q"), ("m2", "q first"), ("m3", "q second"), ("m4", "q second more"), (None, "")]
)
def test_the_head_names_the_visible_path(head: str | None, path: str) -> None:
    """The path goes from the first message to the head; the others are still there."""
    transcript = Transcript(tree(), head)
    assert " ".join(item.text for item in transcript.visible()) == path
    assert [item.text for item in transcript.path] == path.split()
    assert len(transcript) == 4
    assert "m2" in transcript
    assert transcript.get("m9") is None


def test_messages_that_form_no_tree_are_refused() -> None:
    """A head, or a parent, that is not stored, or a path in a circle, is an error."""
    with pytest.raises(CheckpointError, match="m9"):
        Transcript(tree(), "m9")
    with pytest.raises(CheckpointError, match="m0 is on the path"):
        Transcript([message(1, "user", parent="m0")], "m1")
    with pytest.raises(CheckpointError, match="circle"):
        Transcript([message(1, "user", parent="m2"), message(2, "user")], "m2")


def test_messages_are_only_added_below_the_head() -> None:
    """The tree grows at its head, with new ids."""
    transcript = Transcript(tree(), "m4")
    transcript.append(message(5, "assistant", Text("more of it")))
    assert transcript.head == "m5"
    for wrong in (message(7, "user"), message(4, "user", parent="m5")):
        with pytest.raises(AssertionError):
            transcript.append(wrong)


def test_unknown_usage_is_not_zero() -> None:
    """What is unknown stays unknown until something is known (case 13)."""
    assert Usage() + Usage() == Usage()
    assert Usage(input=1) + Usage(input=2, cost=0.5) == Usage(input=3, cost=0.5)
    assert Usage(output=0) != Usage()
    assert (Usage().total, Usage(3, 4).total) == (0, 7)
