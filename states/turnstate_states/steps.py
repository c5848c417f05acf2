"""Steps of a turn: hooks, attempts, replies, and how a turn ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from . import texts
from .calls import decide, propose, propose_rest, settle, settle_open
from .content import Part, Reasoning, Text, ToolCall
from .events import Replied, Retrying, StepEnded, StepStarted, TurnEnded, TurnStarted, Warned
from .message import Message, Source, Usage
from .reports import OVER_LIMIT, AttemptFailed, AttemptReplied, Prepared, Reviewed, Stopped, measure, over_limit
from .retrying import next_try, why_given_up
from .rules import Limits
from .stepping import Facts
from .turn import Ending, Failure, Outcome, TurnState
from .work import Work, short_title

__all__ = [
    "SUPERSEDED",
    "after_reply",
    "close",
    "end",
    "enter_step",
    "finish_ending",
    "limit_reached",
    "prepared",
    "record_failure",
    "record_reply",
    "request",
    "review",
    "seconds_end",
    "seconds_reached",
    "start_turn",
    "tell_to_end",
]

CUT_SHORT = {
    "length": "the reply was cut off",
    "content-filter": "the reply was filtered",
    "refusal": "the model refused",
}
GO_ON = "Go on."
SUPERSEDED = "superseded by a new message"
ENGINE: Mapping[str, Any] = {"from": "engine"}
KEPT_WAITING: frozenset[Outcome] = frozenset({"interrupted", "failed", "limit", "denied"})
"""Ends after which waiting messages stay until someone says go on."""


def start_turn(
    work: Work,
    parts: tuple[Part, ...] | None,
    cause: str,
    settings: Mapping[str, Any],
    continues: str = "",
    *,
    source: Source = "",
    origin: str = "",
) -> None:
    """Begin a turn, with a person's message or going on from another turn."""
    checkpoint = work.checkpoint
    checkpoint.turns += 1
    turn = checkpoint.turn = TurnState(f"t{checkpoint.turns}", cause, work.now, clock=work.now, continues=continues)
    turn.settings = settings
    checkpoint.held = False
    work.cause = cause
    message = None
    if parts is None and _spoke_last(work):
        message = work.add_message("user", (Text(GO_ON),), metadata=ENGINE, source="engine")
    elif parts is not None:
        message = work.add_message("user", parts, source=source, origin=origin)
        turn.message = message.id
        if not checkpoint.title:
            checkpoint.title = short_title(message.text)
    work.tell(TurnStarted, message, continues, turn.settings)
    work.step("start")
    enter_step(work)


def _spoke_last(work: Work) -> bool:
    """Whether the last word is the model's: providers want one of somebody else before they answer again."""
    last = next((message for message in reversed(work.transcript.path) if message.keeps is None), None)
    return last is not None and last.role == "assistant" and not last.calls


def enter_step(work: Work) -> None:
    """Enter before-model for a new step, or end the turn at a limit."""
    turn = work.turn
    turn.step += 1
    turn.attempt = 0
    turn.tries = turn.resumptions = 0
    turn.reply = ""
    turn.reviewed = turn.again = turn.overflowed = False
    turn.calls = {}
    enter_attempt(work)
    work.count_time()
    reached = limit_reached(work.rules.limits, turn)
    if reached:
        end(work, "limit", reached)


def enter_attempt(work: Work, not_before: float = 0.0) -> None:
    """Make ready for the next attempt of the step."""
    turn = work.turn
    turn.attempt += 1
    turn.hook_pass = 1
    turn.steers_seen = work.checkpoint.events
    turn.not_before = not_before


def limit_reached(limits: Limits, turn: TurnState) -> str:
    """Which limit forbids another request, in words; empty if none does."""
    if limits.steps is not None and turn.steps >= limits.steps and not _counted(turn):
        return f"the turn reached its limit of {limits.steps} steps"
    if limits.tokens is not None and turn.usage.total >= limits.tokens:
        return f"the turn reached its limit of {limits.tokens} tokens"
    if limits.cost is not None and (turn.usage.cost or 0) >= limits.cost:
        return f"the turn reached its limit of {limits.cost:g} in cost"
    if limits.seconds is not None and turn.worked >= limits.seconds:
        return seconds_reached(limits.seconds)
    return ""


def _counted(turn: TurnState) -> bool:
    """Whether the step had a request already, so that the next one is a retry."""
    return bool(turn.tries or turn.resumptions or turn.overflowed)


def seconds_reached(seconds: float) -> str:
    """The words for the time limit."""
    return f"the turn reached its limit of {seconds:g} seconds"


def seconds_end(turn: TurnState, clock: float, limit: float) -> float:
    """When a turn whose clock runs reaches the time limit."""
    return clock + limit - turn.worked


def prepared(work: Work, report: Prepared) -> None:
    """The hooks before a request are done: run them again for a steer that came meanwhile, or go on."""
    turn = work.turn
    if report.error is None and report.stop is None and _steered(work) and turn.hook_pass < work.rules.passes:
        work.step("repeat")
        turn.hook_pass += 1
        turn.steers_seen = work.checkpoint.events
        return
    summary = report.effects.summary
    compacted = summary is not None and work.compact(summary)
    work.apply_effects(report.effects)
    if report.error is not None:
        end(work, "failed", report.error.message, report.error)
    elif report.stop is not None:
        end(work, "interrupted", report.stop)
    elif turn.overflow is not None and not compacted:
        end(work, "failed", turn.overflow.message, turn.overflow)
    else:
        request(work)


def _steered(work: Work) -> bool:
    return any(item.event > work.turn.steers_seen for item in work.checkpoint.steers)


def request(work: Work) -> None:
    """Take the steers into the transcript and begin an attempt."""
    turn = work.turn
    work.take(work.checkpoint.steers)
    work.checkpoint.steers = ()
    work.step("request")
    if not _counted(turn):
        turn.steps += 1
    turn.overflow = None
    turn.attempts += 1
    work.tell(StepStarted, turn.step, turn.attempt_id)


def record_reply(work: Work, report: AttemptReplied) -> None:
    """Store a complete reply; what follows from it is decided later. One beyond a limit is given up, its calls dropped."""
    turn = work.turn
    over = over_limit(work.rules.limits, *(size := measure(report.parts)))
    if over is not None:
        kept = report.parts if size[1] <= work.rules.limits.characters else ()
        record_failure(work, AttemptFailed(report.key, over, kept, report.usage, report.model))
        return
    base = work.next_message()
    parts: list[Part] = []
    number = 0
    for part in report.parts:
        if isinstance(part, ToolCall):
            part = ToolCall(f"{base}.{number}", part.name, part.arguments, part.provider_id, provider=part.provider)
            number += 1
        parts.append(part)
    message = work.add_message(
        "assistant",
        tuple(parts),
        model=report.model,
        usage=report.usage,
        timing=report.timing,
        metadata=report.metadata,
    )
    turn.reply = message.id
    turn.stop, turn.raw_stop = report.stop, report.raw_stop
    turn.last_usage = report.usage
    work.count_usage(report.model, report.usage)
    work.tell(StepEnded, turn.step, turn.attempt_id, "completed", report.usage, report.stop)
    work.tell(Replied, message)
    _warn_of_unknown_usage(work, report.model)


def _warn_of_unknown_usage(work: Work, model: str) -> None:
    """Say once a turn that a limit holds nothing back; a hook after the reply may still say what was used."""
    turn, limits = work.turn, work.rules.limits
    if turn.step != 1 or work.rules.after_model:
        return
    unknown: list[str] = []
    if limits.tokens is not None and turn.usage.input is None and turn.usage.output is None:
        unknown.append("tokens")
    if limits.cost is not None and turn.usage.cost is None:
        unknown.append("cost")
    for what in unknown:
        work.tell(Warned, f"the limit of {what} holds nothing back: {model or 'the model'} does not tell what it used")


def record_failure(work: Work, report: AttemptFailed) -> None:
    """An attempt broke: try again, now or later, or end the turn with what it gave so far kept."""
    turn, failure, limits = work.turn, report.failure, work.rules.limits
    work.count_usage(report.model, report.usage)
    if turn.ending is not None:
        _fail_attempt(work, report)
        end(work, turn.ending.outcome, turn.ending.reason)
        return
    if failure.kind == OVER_LIMIT:
        _fail_attempt(work, report)
        end(work, "limit", failure.message)
        return
    delay = next_try(work, failure)
    work.count_time()
    reached = "" if delay is None else limit_reached(limits, turn)
    if delay is None or reached:
        _fail_attempt(work, report)
        if reached:
            end(work, "limit", reached)
        else:
            end(work, "failed", why_given_up(work.rules, failure), failure)
        return
    work.tell(StepEnded, turn.step, turn.attempt_id, "retrying", report.usage)
    work.tell(Retrying, turn.attempt_id, failure, delay)
    work.step("retry")
    enter_attempt(work, 0.0 if turn.overflow else work.now + delay)


def _fail_attempt(work: Work, report: AttemptFailed) -> None:
    work.tell(StepEnded, work.turn.step, work.turn.attempt_id, "failed", report.usage)
    keep_partial(work, report.parts, report.model)


def keep_partial(work: Work, parts: tuple[Part, ...], model: str) -> None:
    """Keep the text of an attempt in which the turn ends; calls are left out, and reasoning, which is unsigned."""
    kept = tuple(part for part in parts if not isinstance(part, (ToolCall, Reasoning)))
    if any(not isinstance(part, Text) or part.text.strip() for part in kept):
        work.tell(Replied, work.add_message("assistant", kept, status="incomplete", model=model))


def review(work: Work, report: Reviewed) -> None:
    """The hooks after a reply are done."""
    turn = work.turn
    work.apply_effects(report.effects)
    turn.reviewed = True
    work.changed = True
    if report.error is not None:
        end(work, "failed", report.error.message, report.error)
    elif report.stop is not None:
        end(work, "interrupted", report.stop)
    elif report.again is None:
        turn.agains = 0
    elif turn.agains >= work.rules.agains:
        work.tell(
            Warned, f"a hook asked for another reply more than {work.rules.agains} times in a row; the reply stands"
        )
    else:
        turn.agains += 1
        turn.again = True
        _send_back(work, report.again)


def _send_back(work: Work, feedback: str) -> None:
    for part in work.transcript[work.turn.reply].calls:
        settle(
            work, propose(work, part), "not-run", texts.not_run("the reply was sent back"), "the reply was sent back"
        )
    work.add_feedback(feedback)


def after_reply(work: Work) -> None:
    """Decide what follows a stored reply."""
    turn, limits = work.turn, work.rules.limits
    reply = work.transcript[turn.reply]
    cut = CUT_SHORT.get(turn.stop)
    calls = () if turn.again else reply.calls
    if len(calls) > limits.calls:
        reason = f"the reply has {len(calls)} calls; the limit is {limits.calls}"
        end(work, "limit", reason)
        return
    more = not calls and (turn.stop == "pause" or bool(work.checkpoint.steers) or turn.again)
    more = more or (cut is not None and bool(work.checkpoint.steers))
    work.step("reply", Facts(has_calls=bool(calls) and cut is None, more_to_do=more))
    for part in calls:
        call = propose(work, part)
        if cut is None:
            decide(work, call)
        else:
            settle(work, call, "not-run", texts.not_run(f"{cut} ({turn.stop})"), cut)
    if turn.state == "before-model":
        enter_step(work)
    elif turn.state == "complete":
        _ended(work, "completed", "", None)


def end(
    work: Work, outcome: Outcome, reason: str, error: Failure | None = None, not_begun: tuple[str, ...] = ()
) -> None:
    """End the turn now: nothing of it runs any more."""
    if work.turn.state == "streaming" and work.turn.reply:
        propose_rest(work)
    settle_open(work, reason or outcome, not_begun)
    work.step("abort")
    _ended(work, outcome, reason, error)


def _ended(work: Work, outcome: Outcome, reason: str, error: Failure | None) -> None:
    turn, checkpoint = work.turn, work.checkpoint
    turn.outcome, turn.reason, turn.error = outcome, reason, error
    turn.clock = turn.overflow = None
    told, turn.ending = turn.ending, None
    turn.not_before = 0.0
    _keep_waiting(work)
    # Whoever wrote after the turn was told to end knew that, and wants the next one to start.
    written_after = told is not None and any(item.sent > told.event for item in checkpoint.queue)
    checkpoint.held = outcome in KEPT_WAITING and not written_after


def _keep_waiting(work: Work) -> None:
    """Move steers that no request took to the front of the queue.

    A superseding message stands before them; what was to steer after it was sent is meant for its turn, and joins that.
    """
    checkpoint = work.checkpoint
    queue, steers = checkpoint.queue, checkpoint.steers
    first = queue[:1] if queue and queue[0].first else ()
    since = first[0].sent if first else math.inf
    older = tuple(item for item in steers if item.sent < since)
    checkpoint.queue = (*first, *older, *queue[len(first) :])
    checkpoint.steers = tuple(item for item in steers if item.sent >= since)


def close(work: Work) -> None:
    """Tell the turn's end, which is its record."""
    turn = work.turn
    turn.calls = {}
    assert turn.outcome is not None, "a turn is closed only with an outcome"
    work.tell(
        TurnEnded,
        turn.outcome,
        turn.reason,
        turn.error,
        turn.stop,
        turn.steps,
        turn.attempts,
        turn.calls_made,
        turn.calls_failed,
        turn.usage,
        work.checkpoint.held,
    )
    turn.closed = True
    turn.head = work.checkpoint.head


def finish_ending(work: Work, stopped: Stopped | None = None) -> None:
    """End a turn that was told to end, once nothing of it runs; a reply that had become final stands."""
    turn = work.turn
    ending = turn.ending
    assert ending is not None, "only a turn that was told to end is ended so"
    work.cause = ending.cause or turn.cause
    not_begun = () if stopped is None else stopped.not_begun
    if stopped is not None:
        work.count_usage(stopped.model, stopped.usage)
        for model, usage in stopped.used.items():
            work.count_usage(model, usage)
    if turn.state == "streaming" and not turn.reply:
        _drop_attempt(work, stopped)
    elif turn.state == "streaming":
        reply = work.transcript[turn.reply]
        if _is_final(work, reply):
            turn.ending = None
            work.step("reply", Facts())
            _ended(work, "completed", "", None)
            return
    if ending.outcome == "failed":
        settle_open(work, "the turn failed", not_begun)  # what broke in the host's own code is not the model's business
    end(work, ending.outcome, ending.reason, turn.error, not_begun)


def _is_final(work: Work, reply: Message) -> bool:
    turn = work.turn
    if reply.calls or turn.again or turn.stop == "pause" or work.checkpoint.steers:
        return False
    return turn.reviewed or not work.rules.after_model


def _drop_attempt(work: Work, stopped: Stopped | None) -> None:
    turn = work.turn
    usage = Usage() if stopped is None else stopped.usage
    work.tell(StepEnded, turn.step, turn.attempt_id, "interrupted", usage)
    if stopped is not None:
        keep_partial(work, stopped.parts, stopped.model)


def tell_to_end(work: Work, ending: Ending) -> None:
    """Write that the turn is to end; from now on nothing of it starts."""
    work.turn.ending = attrs.evolve(ending, event=work.checkpoint.events)
    work.changed = True
