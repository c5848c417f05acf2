"""Steps, attempts, replies, limits, hooks: sections 3, 4 and 7 of the design."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.states.scene import BROKEN, Scene, rules, wants
from turnstate_states.codec import encode_checkpoint
from turnstate_states.content import Reasoning, Refusal, Text, ToolCall
from turnstate_states.errors import InvalidInput
from turnstate_states.events import (
    CallProposed,
    CallStarted,
    Custom,
    MessageAdded,
    Replied,
    Retrying,
    StepEnded,
    StepStarted,
    TurnEnded,
    Warned,
)
from turnstate_states.reports import Activity, AttemptFailed, AttemptReplied, Effects, Prepared
from turnstate_states.rules import Limits, ToolSpec
from turnstate_states.submissions import RemoveQueued, Resume
from turnstate_states.transcript import Usage
from turnstate_states.turn import Failure, Stop

PLAIN = ToolSpec("plain")
ASKED = ToolSpec("asked", approval="always")
HOOKS: dict[str, bool] = {"before_model": True, "after_model": True, "turn_ended": True}


# Replies


def test_a_plain_turn() -> None:
    """Without calls a reply completes the turn; the last event is its record."""
    scene = Scene.started()
    scene.reply(usage=Usage(input=3, output=1))
    (ended,) = scene.told(TurnEnded)
    assert scene.turn.state == "complete"
    assert (ended.outcome, ended.stop, ended.steps, ended.attempts, ended.calls) == ("completed", "stop", 1, 1, 0)
    assert ended.usage == Usage(input=3, output=1)
    assert not ended.held


def test_a_plain_step_costs_two_commits() -> None:
    """The reply with its calls started is one commit; their results with the next attempt's start another."""
    scene = Scene.started(PLAIN)
    before = scene.core.checkpoint.sequence
    scene.reply(*wants("plain"))
    scene.done(0)
    assert scene.core.checkpoint.sequence == before + 2
    assert scene.turn.state == "streaming"


def test_calls_get_ids_of_their_own() -> None:
    """A call's id is the message and its place among the calls; the provider's id is kept beside it."""
    scene = Scene.started(PLAIN)
    scene.reply(Text("now"), ToolCall("", "plain", "{}", "p"), ToolCall("x", "plain", "", "p", provider={"k": 1}))
    calls = scene.core.transcript["m2"].calls
    assert [(call.id, call.provider_id) for call in calls] == [("m2.0", "p"), ("m2.1", "p")]
    assert calls[1].provider == {"k": 1}


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("length", "not run: the reply was cut off (length)"),
        ("content-filter", "not run: the reply was filtered (content-filter)"),
        ("refusal", "not run: the model refused (refusal)"),
    ],
)
@pytest.mark.parametrize("arguments", ['{"path":"x"', '{"path":"x"}'])
def test_a_cut_reply_runs_none_of_its_calls(stop: Stop, text: str, arguments: str) -> None:
    """A reply cut by length, filter or refusal ends the turn with that reason, and runs nothing (cases 27 and 94)."""
    scene = Scene.started(PLAIN)
    scene.reply(*wants("plain", "missing", arguments=arguments), stop=stop)
    assert [scene.result(f"m2.{at}") for at in range(2)] == [text, text]
    assert scene.told(CallStarted) == []
    assert (scene.turn.state, scene.turn.outcome, scene.turn.stop) == ("complete", "completed", stop)


def test_a_cut_reply_still_hears_a_steer() -> None:
    """A steer that waits makes one more step also after a cut reply."""
    scene = Scene.started(PLAIN)
    scene.say("go on", "steer")
    scene.reply(*wants("plain"), stop="length")
    assert (scene.turn.state, scene.turn.step) == ("streaming", 2)
    assert scene.shown[-1] == ("user", "go on")


def test_a_pause_is_continued() -> None:
    """A model that wants to go on by itself gets another step."""
    scene = Scene.started()
    scene.reply(Text("wait"), stop="pause")
    assert (scene.turn.state, scene.turn.step) == ("streaming", 2)


def test_a_refusal_without_calls_is_one_request() -> None:
    """A refusal is its own end and is not retried (case 27)."""
    scene = Scene.started()
    scene.reply(Refusal("I will not"), stop="refusal", usage=Usage(1, 1))
    assert (scene.turn.outcome, scene.turn.stop, scene.turn.attempts) == ("completed", "refusal", 1)


def test_an_empty_reply_is_not_shown() -> None:
    """A reply without content completes the turn and is left out of the next request (case 45)."""
    scene = Scene.started()
    scene.report(AttemptReplied(scene.key, (), "stop"))
    assert scene.turn.outcome == "completed"
    scene.say("still there?")
    assert scene.shown == [("user", "hi"), ("user", "still there?")]


def test_too_many_calls_end_the_turn() -> None:
    """A reply with more calls than the limit runs none of them, and keeps none; its text is kept, and its usage counted."""
    scene = Scene.started(PLAIN, limits=Limits(calls=2))
    scene.reply(Text("I will"), *wants("plain", "plain", "plain"), usage=Usage(3, 4))
    assert scene.turn.outcome == "limit"
    assert scene.turn.reason == "the reply has more than 2 calls, the limit (Limits.calls)"
    assert not scene.told(CallProposed)
    assert scene.shown == [("user", "hi"), ("assistant", "I will")]
    assert scene.turn.usage == Usage(3, 4)
    scene.submit(Resume("r1"))
    scene.reply(*wants("plain", "plain"))
    assert len(scene.told(CallProposed)) == 2


def test_too_long_a_reply_ends_the_turn() -> None:
    """A reply with more characters than the limit, wherever they are, is not kept; one with just so many is."""
    for part in (Text("xxx"), Reasoning("xxx"), *wants("plain")):
        scene = Scene.started(PLAIN, limits=Limits(characters=2))
        scene.reply(attrs.evolve(part, arguments="{ }") if isinstance(part, ToolCall) else part)
        assert (scene.turn.outcome, scene.shown) == ("limit", [("user", "hi")])
        assert scene.turn.reason == "the reply has more than 2 characters, the limit (Limits.characters)"
    scene = Scene.started(limits=Limits(characters=2))
    scene.reply(Text("xx"))
    assert scene.turn.outcome == "completed"


# Limits


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_exactly_so_many_requests(steps: int) -> None:
    """A limit of n steps makes n requests; the last calls run and are settled; the turn can go on afresh (case 103)."""
    scene = Scene.started(PLAIN, limits=Limits(steps=steps))
    for _ in range(steps):
        scene.reply(*wants("plain"))
        scene.done(0)
    assert len(scene.told(StepStarted)) == steps
    assert (scene.turn.outcome, scene.turn.reason) == ("limit", f"the turn reached its limit of {steps} steps")
    assert scene.turn.steps == steps
    assert scene.held
    scene.submit(Resume("r1"))
    assert (scene.turn.state, scene.turn.steps) == ("streaming", 1)


def test_a_final_answer_in_the_last_step_completes() -> None:
    """The limit does not turn an answer into an error."""
    scene = Scene.started(limits=Limits(steps=1))
    scene.reply()
    assert scene.turn.outcome == "completed"


def test_no_limit_is_explicit() -> None:
    """None means no limit of steps."""
    scene = Scene.started(PLAIN, limits=Limits(steps=None))
    for _ in range(60):
        scene.reply(*wants("plain"))
        scene.done(0)
    assert scene.turn.state == "streaming"


@pytest.mark.parametrize("value", [0, -1, "3", True, float("nan")])
def test_a_senseless_limit_is_invalid(value: Any) -> None:
    """0, -1, text and the like are refused, with the field's name (case 103)."""
    with pytest.raises(InvalidInput, match=r"Limits\.steps"):
        Limits(steps=value)


def test_retries_and_crashes_are_no_steps() -> None:
    """A step that was retried or cut off by a crash counts once; usage of failed attempts is kept (case 91)."""
    scene = Scene.started(PLAIN, limits=Limits(steps=2))
    scene.fail(usage=Usage(5, 1))
    scene.wait(1)
    scene.crash()
    scene.reply(*wants("plain"), usage=Usage(3, 1))
    scene.done(0)
    scene.reply(usage=Usage(2, 2))
    ended = scene.told(TurnEnded)[-1]
    assert (ended.outcome, ended.steps, ended.attempts) == ("completed", 2, 4)
    assert ended.usage == Usage(10, 4)
    assert scene.core.checkpoint.usage == {"m": Usage(10, 4)}


def test_the_limit_of_tokens() -> None:
    """Input and output of all attempts count; the limit forbids the next request."""
    scene = Scene.started(PLAIN, limits=Limits(tokens=10))
    scene.reply(*wants("plain"), usage=Usage(6, 4))
    scene.done(0)
    assert (scene.turn.outcome, scene.turn.reason) == ("limit", "the turn reached its limit of 10 tokens")


def test_the_limit_of_cost() -> None:
    """The costs that the model reports count."""
    scene = Scene.started(PLAIN, limits=Limits(cost=0.5))
    scene.reply(*wants("plain"), usage=Usage(cost=0.5))
    scene.done(0)
    assert scene.turn.reason == "the turn reached its limit of 0.5 in cost"


def test_a_retry_stands_under_the_limits_too() -> None:
    """A failed attempt that used up the tokens is not tried again; its text is kept, as the turn ends with it."""
    scene = Scene.started(limits=Limits(tokens=10))
    scene.fail(BROKEN, Text("half"), usage=Usage(10, 0))
    assert scene.turn.outcome == "limit"
    assert (scene.last().text, scene.last().status) == ("half", "incomplete")


def test_the_limit_of_time_counts_work_only() -> None:
    """Waits for people and downtime are not counted; the turn is stopped when the time at work is over."""
    scene = Scene.started(ASKED, limits=Limits(seconds=10))
    scene.wait(4)
    scene.reply(*wants("asked"))
    scene.wait(1000)
    assert scene.turn.state == "awaiting-approval"
    scene.answer("approve", 0)
    scene.wait(3)
    scene.crash(500)
    assert not scene.core.stopping
    assert scene.core.deadline == pytest.approx(scene.now + 6)  # pyright: ignore[reportUnknownMemberType]
    scene.wait(5.5)
    assert not scene.core.stopping
    scene.wait(1)
    assert scene.core.stopping
    scene.stopped()
    assert (scene.turn.outcome, scene.turn.reason) == ("limit", "the turn reached its limit of 10 seconds")


@pytest.mark.parametrize("limit", [0.1, 0.3, 1 / 3, 7.7, 1e-9])
@pytest.mark.parametrize("start", [0.0, 1764524999.123, 1.7e9 + 0.1])
def test_a_tick_at_the_deadline_is_enough(limit: float, start: float) -> None:
    """The tick at the deadline itself does what the deadline is for, whatever floats round to."""
    scene = Scene.of(limits=Limits(seconds=limit))
    scene.now = start + 1000
    scene.say("hi")
    scene.now += limit / 7
    scene.core.tick(scene.now)
    scene.drive()
    deadline = scene.core.deadline
    if deadline is not None:
        scene.core.tick(deadline)
    assert scene.core.stopping


# Attempts


def test_a_broken_attempt_is_tried_again() -> None:
    """A retryable failure makes a new attempt of the same step after a delay; its output is void."""
    scene = Scene.started()
    scene.fail(BROKEN, Text("half"))
    assert (scene.turn.state, scene.core.activity) == ("before-model", None)
    (retrying,) = scene.told(Retrying)
    assert retrying.attempt == "t1.1.1"
    assert scene.core.deadline == scene.now + retrying.delay
    scene.wait(retrying.delay)
    assert scene.turn.attempt_id == "t1.1.2"
    assert scene.shown == [("user", "hi")]
    assert [event.outcome for event in scene.told(StepEnded)] == ["retrying"]


def test_back_off_doubles_with_jitter_up_to_a_cap() -> None:
    """Delays double from the first, lose up to a quarter to jitter, and stay below the longest."""
    scene = Scene.started(limits=Limits(attempts=8), delay=1.0, longest_delay=8.0)
    for full in (1, 2, 4, 8, 8, 8):
        scene.fail()
        delay = scene.told(Retrying)[-1].delay
        assert full * 0.75 <= delay <= full
        scene.wait(delay)
    assert len({event.delay for event in scene.told(Retrying)[3:]}) == 3


@pytest.mark.parametrize(
    ("retry_after", "least"), [(3.0, 3.0), (59.8, 59.8), (60.0, 60.0), (-5.0, 0.3), (float("nan"), 0.3)]
)
def test_the_server_decides_how_long_at_least(retry_after: float, least: float) -> None:
    """Never less than the server asks for, if it gives a number, and never less than the back-off (case 100)."""
    scene = Scene.started()
    scene.fail(Failure("rate-limit", "slow down", True, 429, retry_after))
    assert scene.told(Retrying)[0].delay >= least


@pytest.mark.parametrize("retry_after", [60.1, 86400.0])
def test_a_server_that_asks_for_too_long_fails_the_turn(retry_after: float) -> None:
    """Above the cap the turn fails at once, with the time in the reason (case 100)."""
    scene = Scene.started()
    scene.fail(Failure("rate-limit", "slow down", True, 429, retry_after))
    assert scene.turn.outcome == "failed"
    assert scene.turn.reason == f"slow down (the server asks to wait {retry_after:g} s)"


def test_attempts_are_bounded() -> None:
    """After the last attempt the turn fails with the error, and what that attempt gave is kept."""
    scene = Scene.started(limits=Limits(attempts=3))
    for _ in range(2):
        scene.fail(BROKEN, Text("half"))
        scene.wait(60)
    scene.fail(BROKEN, Text("most"), Reasoning("hm"), ToolCall("", "plain", "{"))
    assert (scene.turn.outcome, scene.turn.error, scene.turn.attempts) == ("failed", BROKEN, 3)
    assert [(event.message.text, event.message.status) for event in scene.told(Replied)] == [("most", "incomplete")]
    assert len(scene.last().parts) == 1
    assert [event.outcome for event in scene.told(StepEnded)] == ["retrying", "retrying", "failed"]


def test_attempts_are_counted_for_each_step() -> None:
    """A step that succeeded gives the next one all its attempts."""
    scene = Scene.started(PLAIN, limits=Limits(attempts=2))
    scene.fail()
    scene.wait(60)
    scene.reply(*wants("plain"))
    scene.done(0)
    scene.fail()
    assert scene.turn.state == "before-model"


def test_a_fatal_failure_is_not_tried_again() -> None:
    """An error that will not go away fails the turn; bad text in it is mended."""
    scene = Scene.started()
    scene.fail(Failure("authentication", "bad key \ud800"))
    assert (scene.turn.outcome, scene.turn.reason) == ("failed", "bad key \ufffd")


def test_a_steer_joins_the_next_attempt() -> None:
    """A steer that came during a back-off is in the next attempt's request."""
    scene = Scene.started()
    scene.fail()
    scene.say("hurry", "steer")
    scene.wait(60)
    assert scene.shown == [("user", "hi"), ("user", "hurry")]


@pytest.mark.parametrize("key", ["t1.2.1", "t1.1.2", "t2.1.1"])
def test_a_report_of_another_attempt_changes_nothing(key: str) -> None:
    """Only the running attempt's reports count."""
    scene = Scene.started()
    turn, step, attempt = key.split(".")
    stale = Activity("stream", turn, int(step), int(attempt))
    before = encode_checkpoint(scene.core.checkpoint)
    assert not scene.core.report(AttemptReplied(stale, (Text("x"),)), now=scene.now + 9)
    assert not scene.core.report(AttemptFailed(stale, BROKEN), now=scene.now + 9)
    assert not scene.core.report(Prepared(Activity("prepare", "t1", 1, 1, 1)), now=scene.now + 9)
    assert encode_checkpoint(scene.core.checkpoint) == before
    assert scene.core.commit(scene.now + 9) is None


def test_only_the_first_report_of_an_attempt_counts() -> None:
    """A failure after the reply, at the same instant, is too late."""
    scene = Scene.started(after_model=True)
    key = scene.key
    assert scene.core.report(AttemptReplied(key, (Text("x"),)), now=scene.now)
    assert not scene.core.report(AttemptFailed(key, BROKEN), now=scene.now)
    scene.drive()
    assert not scene.core.report(AttemptFailed(key, BROKEN), now=scene.now)


# Hooks


def test_hooks_run_before_each_attempt() -> None:
    """The request waits for the hooks; a retry runs them again."""
    scene = Scene.started(before_model=True)
    assert scene.core.activity == Activity("prepare", "t1", 1, 1, 1)
    scene.prepared()
    assert scene.turn.state == "streaming"
    scene.fail()
    scene.wait(60)
    assert scene.core.activity == Activity("prepare", "t1", 1, 2, 1)


def test_effects_of_hooks_are_committed_with_the_request() -> None:
    """Messages for good, events and usage of the hooks come with the start of the attempt."""
    scene = Scene.started(before_model=True)
    scene.prepared(effects=Effects(messages=("mind this",), events=(("seen", {"n": 1}),), usage={"small": Usage(1, 1)}))
    assert scene.shown == [("user", "hi"), ("user", "mind this")]
    assert scene.told(MessageAdded)[0].message.text == "mind this"
    assert [(event.name, event.data) for event in scene.told(Custom)] == [("seen", {"n": 1})]
    assert scene.core.checkpoint.usage == {"small": Usage(1, 1)}


def test_a_steer_repeats_the_hooks() -> None:
    """Hooks run again for a steer that came meanwhile, a bounded number of times; of a repeated pass only usage stays."""
    scene = Scene.started(before_model=True)
    for expected in (2, 3):
        scene.say("and this", "steer")
        scene.prepared(effects=Effects(messages=("void",), usage={"small": Usage(1)}))
        assert scene.core.activity == Activity("prepare", "t1", 1, 1, expected)
    scene.say("and this", "steer")
    scene.prepared(effects=Effects(messages=("kept",)))
    assert scene.turn.state == "streaming"
    assert [text for _, text in scene.shown] == ["hi", "kept", *["and this"] * 3]
    assert scene.core.checkpoint.usage == {"small": Usage(2)}


def test_a_steer_that_replaces_one_that_the_hooks_saw_repeats_them() -> None:
    """What counts is whether hooks have seen what waits, not how much of it waits."""
    scene = Scene.started(before_model=True)
    scene.prepared()
    scene.say("one", "steer")
    scene.fail()
    scene.wait(60)
    scene.submit(RemoveQueued("r1", "send2"))
    scene.say("two", "steer")
    scene.prepared()
    assert scene.core.activity == Activity("prepare", "t1", 1, 2, 2)


def test_a_hook_may_stop_the_turn() -> None:
    """What the completed hooks did is kept, the turn ends."""
    scene = Scene.started(before_model=True)
    scene.prepared(effects=Effects(messages=("note",)), stop="enough")
    assert (scene.turn.outcome, scene.turn.reason) == ("interrupted", "enough")
    assert scene.last().text == "note"


def test_a_hook_that_breaks_fails_the_turn() -> None:
    """Effects of completed hooks are committed with the failure."""
    scene = Scene.started(before_model=True)
    failure = Failure("hook", "it broke")
    scene.prepared(effects=Effects(messages=("note",)), error=failure)
    assert (scene.turn.outcome, scene.turn.error) == ("failed", failure)
    assert scene.last().text == "note"


def test_hooks_see_the_stored_reply() -> None:
    """The reply is committed before the hooks after it run; its calls start afterwards."""
    scene = Scene.started(PLAIN, after_model=True)
    scene.reply(*wants("plain"))
    assert (scene.turn.state, scene.turn.reply, scene.calls) == ("streaming", "m2", [])
    scene.running = scene.core.activity
    scene.reviewed()
    assert scene.statuses == ["started"]


def test_a_hook_may_ask_for_another_reply() -> None:
    """The reply's calls are not run, the feedback is added, one more step follows; only so often in a row."""
    scene = Scene.started(PLAIN, after_model=True)
    for step in (2, 3):
        scene.reply(*wants("plain"))
        scene.running = scene.core.activity
        scene.reviewed(again="do better")
        assert (scene.turn.state, scene.turn.step) == ("streaming", step)
        assert scene.shown[-2:] == [("tool", "not run: the reply was sent back"), ("user", "do better")]
    scene.reply(*wants("plain"))
    scene.running = scene.core.activity
    scene.reviewed(again="do better")
    assert scene.statuses == ["started"]
    assert "more than 2 times" in scene.told(Warned)[0].text


@pytest.mark.parametrize("how", ["stop", "error"])
def test_a_hook_after_the_reply_may_end_the_turn(how: str) -> None:
    """The reply's calls get results all the same: they were not run."""
    scene = Scene.started(PLAIN, after_model=True)
    scene.reply(*wants("plain", "plain"))
    scene.running = scene.core.activity
    scene.reviewed(**({"stop": "enough"} if how == "stop" else {"error": Failure("hook", "enough")}))
    assert scene.turn.outcome == ("interrupted" if how == "stop" else "failed")
    assert [scene.result(f"m2.{at}") for at in range(2)] == ["not run: enough"] * 2
    assert scene.told(TurnEnded)[0].calls == 2


def test_closing_hooks_come_before_the_end_is_told() -> None:
    """The outcome is committed, the hooks run, their effects and TurnEnded come in one commit, then the next turn."""
    scene = Scene.started(turn_ended=True)
    scene.say("next")
    scene.reply()
    assert scene.turn.state == "complete"
    assert scene.told(TurnEnded) == []
    assert scene.core.activity == Activity("closing", "t1")
    sequence = scene.core.checkpoint.sequence
    scene.closed(effects=Effects(events=(("bye", None),), usage={"small": Usage(1)}), error="one hook broke")
    assert scene.core.checkpoint.sequence == sequence + 1
    assert [type(event).__name__ for event in scene.log[-5:]] == [
        "Custom",
        "Warned",
        "TurnEnded",
        "TurnStarted",
        "StepStarted",
    ]


def test_events_after_a_turn_belong_to_none() -> None:
    """What is told between turns names no turn."""
    scene = Scene.started(before_model=True)
    scene.say("later")
    scene.interrupt()
    scene.stopped()
    scene.submit(RemoveQueued("r1", "send2"))
    assert (scene.log[-2].turn, scene.log[-1].turn) == ("t1", "")


def test_rules_are_not_stored() -> None:
    """Another process may go on under other rules."""
    scene = Scene.started(PLAIN)
    scene.crash(rules=rules(before_model=True))
    assert scene.core.activity == Activity("prepare", "t1", 1, 2, 1)
