"""Summaries: what a model is shown from then on, what people still see, and a request that was too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.states.ledger import check_pairs
from tests.states.scene import BROKEN, Scene, wants
from turnstate_states.checkpoint import Checkpoint
from turnstate_states.content import Text, ToolCall, ToolResult
from turnstate_states.events import Compacted, MessageAdded, Retrying, StepEnded, Warned
from turnstate_states.reports import Effects, Summary
from turnstate_states.rules import Limits, ToolSpec
from turnstate_states.submissions import Resume
from turnstate_states.transcript import Conversation, Message, Role, Transcript, Usage
from turnstate_states.turn import Failure

PLAIN = ToolSpec("plain")
TOO_LONG = Failure("context-overflow", "the prompt is too long", status=400)


def compacting(*tools: ToolSpec, limits: Limits | None = None) -> Scene:
    """A session with a hook before requests that can make room, at its first request."""
    scene = Scene.of(*tools, before_model=True, makes_room=True, limits=limits or Limits())
    scene.say("hi")
    scene.prepared()
    return scene


def summary(keeps: str = "", text: str = "so far") -> Effects:
    """The effects of a hook that summarises."""
    return Effects(summary=Summary(text, keeps))


def message(number: int, role: Role, *parts: Text | ToolCall | ToolResult, keeps: str | None = None) -> Message:
    """A message below the one with the number before."""
    parent = f"m{number - 1}" if number > 1 else None
    return Message(f"m{number}", parent, "t1", role, parts, 0.0, keeps=keeps)


def history(batches: list[int]) -> list[Message]:
    """A question, replies with so many calls each, and their results, the last ones first."""
    made = [message(1, "user", Text("go"))]
    for count in batches:
        base = len(made) + 1
        calls = [ToolCall(f"m{base}.{at}", "f", "{}") for at in range(count)]
        made.append(message(base, "assistant", Text("so"), *calls))
        for at, call in enumerate(reversed(calls), base + 1):
            made.append(message(at, "tool", ToolResult(call.id, "r")))
    return made


def check_whole(transcript: Transcript, stored: list[Message]) -> None:
    """The path goes from the first message to the head, and people see all of it."""
    assert [item.id for item in transcript.path] == [item.id for item in stored]
    assert [item.parent for item in stored] == [None, *(item.id for item in stored[:-1])]
    assert {item.id for item in transcript.visible()} == {item.id for item in stored}
    assert transcript.copy().conversation.messages() == transcript.conversation.messages()
    assert transcript.copy().visible() == transcript.visible()


# The conversation (case 43)


@pytest.mark.parametrize("batches", [[0], [1], [3], [1, 2], [2, 0, 3], [3, 1, 2, 1]])
def test_wherever_it_is_cut_twice_calls_and_results_pair(batches: list[int]) -> None:
    """Cut before every message, twice, with more said in between: each call has its result, none is alone (case 43)."""
    first = history(batches)
    places = [item.id for item in first]
    for keeps in (*places, "", "m99"):
        once = [*first, message(len(first) + 1, "system", Text("so far"), keeps=keeps)]
        base = len(once) + 1
        once.append(message(base, "assistant", ToolCall(f"m{base}.0", "f", "{}")))
        once.append(message(base + 1, "tool", ToolResult(f"m{base}.0", "r")))
        for again in (*places, once[-3].id, once[-2].id, once[-1].id, ""):
            stored = [*once, message(len(once) + 1, "system", Text("again"), keeps=again)]
            transcript = Transcript(stored, stored[-1].id)
            check_pairs(transcript.conversation.messages())
            check_whole(transcript, stored)


def test_a_summary_takes_the_place_of_what_was_before() -> None:
    """The model starts with the newest summary as a person's message, then what that keeps, then what came since."""
    stored = history([1, 2])
    conversation = Conversation()
    for item in stored:
        conversation.add(item)
    conversation.add(message(7, "system", Text("so far"), keeps="m4"))
    conversation.add(message(8, "user", Text("and now?")))
    assert [item.id for item in conversation.messages()] == ["m7", "m4", "m6", "m5", "m8"]
    assert (conversation.messages()[0].role, conversation.messages()[0].text) == ("user", "so far")
    conversation.add(message(9, "system", Text("all of it"), keeps="m8"))
    assert [item.text for item in conversation.messages()] == ["all of it", "and now?"]


@pytest.mark.parametrize("keeps", ["m1", "m3", "m5", "m9", "nonsense"])
def test_a_summary_that_cannot_cut_there_changes_nothing(keeps: str) -> None:
    """Before a result, at the first message or at one that is not there, the conversation stays as it was (case 43)."""
    stored = history([1, 2])
    plain = Transcript(stored, stored[-1].id)
    cut = Transcript([*stored, message(7, "system", Text("so far"), keeps=keeps)], "m7")
    assert cut.conversation.messages() == plain.conversation.messages()


def test_another_branch_is_not_summarised() -> None:
    """A path without the summary is shown as it is: what was summarised is still there."""
    stored = [*history([1]), message(4, "system", Text("so far"), keeps="m2")]
    assert [item.id for item in Transcript(stored, "m4").conversation.messages()] == ["m4", "m2", "m3"]
    assert [item.id for item in Transcript(stored, "m3").conversation.messages()] == ["m1", "m2", "m3"]


STEPS = st.lists(st.one_of(st.integers(0, 3), st.tuples(st.integers(1, 40), st.booleans())), max_size=12)


@examples(300)
@given(STEPS)
def test_after_any_number_of_compactions_it_pairs(steps: list[int | tuple[int, bool]]) -> None:
    """Replies with calls, and summaries that keep anything at all, in any order; also copied at any point (case 43)."""
    transcript = Transcript()
    stored: list[Message] = []

    def add(role: Role, *parts: Text | ToolCall | ToolResult, keeps: str | None = None) -> None:
        stored.append(message(len(stored) + 1, role, *parts, keeps=keeps))
        transcript.append(stored[-1])
        check_pairs(transcript.conversation.messages())

    add("user", Text("go"))
    for step in steps:
        if isinstance(step, int):
            calls = [ToolCall(f"m{len(stored) + 1}.{at}", "f", "{}") for at in range(step)]
            add("assistant", Text("so"), *calls)
            for call in reversed(calls):
                add("tool", ToolResult(call.id, "r"))
        else:
            add("system", Text("so far"), keeps=f"m{step[0]}" if step[1] else "")
            assert len(transcript.conversation.messages()) <= len(stored)
    check_whole(transcript, stored)
    assert Transcript(stored, stored[-1].id).conversation.messages() == transcript.conversation.messages()


# In a turn


def test_a_hook_summarises_before_a_request() -> None:
    """It is one message, one event and one epoch, told once live and once in replay; the usage in force is reset (W11)."""
    scene = compacting(PLAIN)
    scene.reply(*wants("plain"), usage=Usage(input=900))
    scene.done(0)
    assert scene.turn.last_usage == Usage(input=900)
    scene.prepared(effects=Effects(summary=Summary("so far", "m2"), messages=("mind",), usage={"s": Usage(7)}))
    assert scene.shown == [("user", "so far"), ("assistant", ""), ("tool", "a result"), ("user", "mind")]
    (told,) = scene.told(Compacted)
    assert (told.message.role, told.message.keeps, told.message.parent) == ("system", "m2", "m3")
    assert scene.core.checkpoint.epoch == 1
    assert not scene.turn.last_usage
    assert (scene.core.checkpoint.usage["s"], scene.turn.usage.input) == (Usage(7), 907)
    assert [item.id for item in scene.core.transcript.visible()] == ["m1", "m2", "m3", "m4", "m5"]
    restored = scene.restored()
    assert restored.transcript.conversation.messages() == scene.core.transcript.conversation.messages()
    assert restored.transcript.visible() == scene.core.transcript.visible()


def test_a_summary_that_cannot_cut_is_told_and_dropped() -> None:
    """A hook that names a result, or nothing there is, changes nothing, and people are told (case 43)."""
    scene = compacting(PLAIN)
    scene.reply(*wants("plain"))
    scene.done(0)
    before = scene.shown
    scene.prepared(effects=summary("m3"))
    assert (scene.shown, scene.core.checkpoint.epoch, len(scene.told(Warned))) == (before, 0, 1)
    assert scene.turn.state == "streaming"


@pytest.mark.parametrize("how", ["stop", "error"])
def test_a_later_hook_ends_the_turn(how: str) -> None:
    """A summary of a hook that was done stands when a later one stops the turn or fails; then the turn goes on (W3, W10)."""
    scene = compacting(PLAIN)
    scene.reply(*wants("plain"))
    scene.done(0)
    ended = {"stop": "enough"} if how == "stop" else {"error": Failure("hook", "enough")}
    scene.prepared(effects=summary("m2"), **ended)
    assert scene.turn.final
    assert scene.core.checkpoint.epoch == 1
    scene.submit(Resume("resume"))
    scene.prepared()
    assert scene.shown == [("user", "so far"), ("assistant", ""), ("tool", "a result")]


def test_who_spoke_last_is_not_the_summary() -> None:
    """Going on after a summary asks the model to go on, if the last word before it was the model's."""
    scene = compacting()
    scene.reply(Text("wait"), stop="pause")
    scene.prepared(effects=summary("m2"), stop="enough")
    scene.submit(Resume("resume"))
    scene.prepared()
    assert [role for role, _ in scene.shown] == ["user", "assistant", "user"]


def test_hooks_that_run_again_drop_the_summary() -> None:
    """A steer while hooks run has them summarise again: of the first pass only usage is kept."""
    scene = compacting(PLAIN)
    scene.reply(*wants("plain"))
    scene.done(0)
    scene.say("quick", "steer")
    scene.prepared(effects=Effects(summary=Summary("one", "m2"), usage={"s": Usage(7)}))
    assert (scene.turn.state, scene.core.checkpoint.epoch) == ("before-model", 0)
    scene.prepared(effects=Effects(summary=Summary("two", "m2"), usage={"s": Usage(7)}))
    assert [text for _, text in scene.shown] == ["two", "", "a result", "quick"]
    assert scene.core.checkpoint.usage["s"] == Usage(14)


def test_only_hooks_before_a_request_summarise() -> None:
    """A summary from another hook is left out, because calls may be open then."""
    scene = Scene.started(PLAIN, after_model=True, turn_ended=True)
    scene.reply(*wants("plain"))
    scene.reviewed(effects=summary())
    scene.done(0)
    scene.reply()
    scene.reviewed(effects=summary())
    scene.closed(effects=summary())
    assert scene.told(Compacted) == []


def test_a_summary_costs_the_checkpoint_nothing() -> None:
    """However often a session is compacted, its checkpoint does not grow with it."""
    scene = compacting(PLAIN, limits=Limits(steps=None))
    for number in range(60):
        scene.reply(*wants("plain"))
        scene.done(0)
        scene.prepared(effects=summary(scene.core.transcript.path[-2].id, f"summary {number}" * 20))
        assert len(scene.shown) == 3
    assert scene.core.checkpoint.epoch == 60
    assert len(scene.stored) < 1500
    assert len(scene.core.transcript.visible()) == 1 + 3 * 60


# A request that was too long


def test_too_long_is_tried_again_with_a_summary() -> None:
    """The hooks make room before the same step's next attempt, at once; neither a step nor a try is counted for it."""
    scene = compacting(PLAIN, limits=Limits(steps=2, attempts=1))
    scene.reply(*wants("plain"))
    scene.done(0)
    scene.prepared()
    scene.fail(TOO_LONG)
    assert (scene.turn.state, scene.turn.overflow, scene.core.deadline) == ("before-model", TOO_LONG, None)
    assert scene.told(Retrying)[0].delay == 0
    scene.prepared(effects=summary("m2"))
    assert (scene.turn.attempt_id, scene.turn.overflow) == ("t1.2.2", None)
    scene.reply()
    assert (scene.turn.outcome, scene.turn.steps, scene.turn.attempts) == ("completed", 2, 3)
    assert [event.outcome for event in scene.told(StepEnded)] == ["completed", "retrying", "completed"]


def test_too_long_again_fails_the_turn() -> None:
    """It is done once in a step; the second time the turn fails with the provider's error. The next step may again."""
    scene = compacting(PLAIN)
    for _ in range(2):
        scene.reply(*wants("plain"))
        scene.done(0)
        scene.prepared()
        scene.fail(TOO_LONG)
        scene.prepared(effects=summary(scene.core.transcript.path[-2].id))
    scene.fail(TOO_LONG)
    assert (scene.turn.outcome, scene.turn.error, scene.turn.overflow) == ("failed", TOO_LONG, None)
    assert (scene.core.checkpoint.epoch, len(scene.told(Retrying))) == (2, 2)


def test_without_a_summary_it_is_not_tried_again() -> None:
    """Hooks that made no room, or a place that cannot be cut, fail the turn with the provider's error."""
    for effects in (Effects(messages=("sorry",)), summary("m9")):
        scene = compacting()
        scene.fail(TOO_LONG)
        scene.prepared(effects=effects)
        assert (scene.turn.outcome, scene.turn.error, scene.turn.attempts) == ("failed", TOO_LONG, 1)
        assert len(scene.told(MessageAdded)) == len(effects.messages)


def test_nobody_makes_room() -> None:
    """Without middleware for it, a request that was too long fails the turn at once (case 98)."""
    scene = Scene.of(before_model=True)
    scene.say("hi")
    scene.prepared()
    scene.fail(TOO_LONG)
    assert (scene.turn.outcome, scene.turn.error) == ("failed", TOO_LONG)


def test_other_failures_are_counted_beside_it() -> None:
    """A connection that breaks after the summary is retried as ever, and the hooks are not asked for room again."""
    scene = compacting(limits=Limits(attempts=2))
    scene.reply(stop="pause")
    scene.prepared()
    scene.fail(TOO_LONG)
    scene.prepared(effects=summary("m2"))
    scene.fail(BROKEN)
    scene.wait(60)
    assert scene.turn.overflow is None
    scene.prepared()
    scene.fail(TOO_LONG)
    assert (scene.turn.outcome, scene.turn.error) == ("failed", TOO_LONG)


def test_a_crash_before_there_is_room() -> None:
    """A process that dies while room is made leaves it to the next one: it is still known that it is needed."""
    scene = compacting()
    scene.reply(stop="pause")
    scene.prepared()
    scene.fail(TOO_LONG)
    scene.crash()
    assert (scene.turn.overflow, scene.key.kind) == (TOO_LONG, "prepare")
    scene.prepared(effects=summary("m2"))
    scene.crash()
    assert (scene.turn.overflow, scene.turn.overflowed) == (None, True)
    scene.prepared()
    scene.fail(TOO_LONG)
    assert scene.turn.outcome == "failed"


def test_limits_and_interrupts_come_first() -> None:
    """A turn at its limit, or one that was told to end, is not tried again for being too long."""
    scene = compacting(limits=Limits(tokens=5))
    scene.fail(TOO_LONG, usage=Usage(input=9))
    assert scene.turn.outcome == "limit"
    scene = compacting()
    key = scene.key
    scene.interrupt()
    assert scene.core.stopping
    scene.running = key
    scene.fail(TOO_LONG)
    assert (scene.turn.outcome, scene.turn.error, scene.turn.overflow) == ("interrupted", None, None)
    assert scene.told(Retrying) == []


def test_old_checkpoints_have_no_epoch() -> None:
    """A session that was never compacted writes nothing about it."""
    scene = Scene.started()
    assert b"epoch" not in scene.stored
    assert b"overflow" not in scene.stored
    assert Checkpoint("s", 0.0).epoch == 0
