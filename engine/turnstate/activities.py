"""The activities of a turn: prepare, attempt, review, closing. Each runs once and gives one report."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from turnstate_states.content import Part
from turnstate_states.errors import HookError, ModelError
from turnstate_states.reports import (
    Activity,
    AttemptFailed,
    AttemptReplied,
    Closed,
    Effects,
    Prepared,
    Reviewed,
    measure,
    over_limit,
)
from turnstate_states.rules import Limits
from turnstate_states.transcript import Message, Timing, Usage
from turnstate_states.turn import Failure, TurnState

from .agent import Agent
from .failures import OwnWords, describe, failure_in
from .feed import Attempt, Feed
from .middleware.base import Again, StepContext, Stop, TurnContext
from .models.base import DeltaKind, ModelRequest, Reply, as_model_error

__all__ = ["attempt", "closing", "failure_of", "prepare", "reply_of", "review"]

log = logging.getLogger("turnstate")
CLOSING_LIMIT = 30.0
"""Seconds that the hooks after a turn may take."""


def merged(*all_effects: Effects) -> Effects:
    """Effects of several hooks as one."""
    usage: dict[str, Usage] = {}
    summary = None
    for effects in all_effects:
        summary = effects.summary or summary
        for model, used in effects.usage.items():
            usage[model] = usage.get(model, Usage()) + used
    return Effects(
        messages=tuple(text for effects in all_effects for text in effects.messages),
        events=tuple(event for effects in all_effects for event in effects.events),
        usage=usage,
        warnings=tuple(text for effects in all_effects for text in effects.warnings),
        summary=summary,
        title=next((effects.title for effects in reversed(all_effects) if effects.title), ""),
    )


def failure_of(error: BaseException, kind: str = "") -> Failure:
    """An exception as data."""
    if isinstance(error, ModelError):
        return Failure(error.kind, str(error), error.retryable, error.status, error.retry_after)
    if isinstance(error, HookError):
        return Failure(kind or "hook", str(error))
    return Failure(kind or "other", describe(error))


async def prepare(agent: Agent[Any], context: StepContext[Any], key: Activity) -> tuple[Prepared, BaseException | None]:
    """Run the hooks before a request; the effects of those that were done stand when a later one fails."""
    done: list[Effects] = []
    for item in agent.hooked("before_model"):
        own = _own_context(context)
        try:
            said: object = await item.before_model(own)
            _expect(said, (Stop,))
        except BaseException as raised:
            error = _hook_error(item, "before_model", raised)
            return Prepared(key, merged(*done), error=failure_of(error, "hook")), error
        done.append(own.effects())
        if isinstance(said, Stop):
            return Prepared(key, merged(*done), stop=said.reason), None
    return Prepared(key, merged(*done)), None


def _expect(said: object, kinds: tuple[type, ...]) -> None:
    if said is not None and not isinstance(said, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise OwnWords(f"expected None or {expected}, got {type(said).__name__}")


def _hook_error(item: object, hook: str, raised: BaseException) -> HookError:
    """What a hook raised, as the error that fails the turn; what is not for the engine to handle passes."""
    cause = failure_in(raised)
    error = HookError(f"{hook} of {type(item).__name__} failed: {describe(cause)}")
    error.__cause__ = cause
    log.error("%s of %s failed", hook, type(item).__name__, exc_info=raised)
    return error


def _own_context(context: StepContext[Any]) -> StepContext[Any]:
    """A context for one hook: its effects count only once it is done."""
    own = StepContext(
        context.deps,
        session_id=context.session_id,
        turn_id=context.turn_id,
        step=context.step,
        attempt=context.attempt,
        hook_pass=context.hook_pass,
        request=context.request,
        model=context.model,
        overflow=context.overflow,
    )
    if context.replied is not None:
        own.set_reply(context.replied)
    return own


async def attempt(
    agent: Agent[Any], request: ModelRequest, key: Activity, running: Attempt, feed: Feed, now: Callable[[], float]
) -> tuple[AttemptReplied | AttemptFailed, BaseException | None]:
    """Ask the model once."""
    feed.begin(running)
    started = now()
    first: list[float] = []
    tell = feed.delta
    told = _Told(agent.limits)

    def on_delta(kind: DeltaKind, text: str, slot: int = 0) -> None:
        if not first:
            first.append(now())
        if feed.attempt is running:  # an adapter that talks on after its attempt is not heard in the next one
            told.count(kind, text)
            tell(kind, text, slot)

    model = agent.model
    try:
        reply = await model.respond(request, on_delta)
        if not isinstance(reply, Reply):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"{type(model).__name__}.respond() gave {type(reply).__name__}, not a Reply", kind="other")
        told.check(reply)
    except _OverLimit as over:
        return _given_up(key, running, over, model.name), None
    except BaseException as raised:
        if told.over is not None:  # whatever the adapter made of it
            failure_in(raised)
            return _given_up(key, running, told.over, model.name), None
        error = as_model_error(failure_in(raised))
        failed = AttemptFailed(key, failure_of(error), running.parts(), error.usage or Usage(), model.name)
        return failed, error
    finally:
        feed.attempt = None
    timing = Timing(started, first[0] if first else None, now())
    name = reply.model or model.name
    parts = tuple(reply.parts)
    return (
        AttemptReplied(key, parts, reply.stop, reply.raw_stop, reply.usage, name, timing, reply.metadata),
        None,
    )


class _OverLimit(ModelError):
    """Raised in the model's task where a reply goes beyond a limit, so that nothing more of it is read."""

    def __init__(self, failure: Failure, kept: tuple[Part, ...] | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.kept = kept


class _Told:
    """How much of a reply was told, held to the limits before anything is made of it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._calls = self._characters = 0
        self.over: _OverLimit | None = None

    def count(self, kind: DeltaKind, text: str) -> None:
        """Count a piece; raises once the reply is beyond a limit, and again for each piece that comes all the same."""
        if kind == "call":
            self._calls += 1
        else:
            self._characters += len(text)
        if self._calls > self._limits.calls or self._characters > self._limits.characters:
            failure = over_limit(self._limits, self._calls, self._characters)
            assert failure is not None, "a limit was passed"
            self.over = self.over or _OverLimit(failure)
            raise self.over

    def check(self, reply: Reply) -> None:
        """Hold a whole reply to the limits, of which no piece need have been told."""
        calls, characters = measure(tuple(reply.parts))
        failure = over_limit(self._limits, calls, characters)
        if self.over is None and failure is not None:
            self.over = _OverLimit(failure, tuple(reply.parts) if characters <= self._limits.characters else None)
        if self.over is not None:
            self.over.usage = reply.usage
            raise self.over


def _given_up(key: Activity, running: Attempt, over: _OverLimit, model: str) -> AttemptFailed:
    """The report on a reply that went beyond a limit."""
    log.warning("the reply of %s was given up: %s", model, over)
    parts = running.parts() if over.kept is None else over.kept
    return AttemptFailed(key, over.failure, parts, over.usage or Usage(), model)


async def review(agent: Agent[Any], context: StepContext[Any], key: Activity) -> tuple[Reviewed, BaseException | None]:
    """Run the hooks after a reply."""
    done: list[Effects] = []
    for item in agent.hooked("after_model"):
        own = _own_context(context)
        try:
            said: object = await item.after_model(own)
            _expect(said, (Again, Stop))
        except BaseException as raised:
            error = _hook_error(item, "after_model", raised)
            return Reviewed(key, merged(*done), error=failure_of(error, "hook")), error
        done.append(own.effects())
        if isinstance(said, Stop):
            return Reviewed(key, merged(*done), stop=said.reason), None
        if isinstance(said, Again):
            return Reviewed(key, merged(*done), again=said.feedback), None
    return Reviewed(key, merged(*done)), None


def reply_of(message: Message, turn: TurnState) -> Reply:
    """A stored reply as the model gave it."""
    usage = message.usage or Usage()
    return Reply(message.parts, turn.stop or "stop", turn.raw_stop, usage, message.model, message.metadata)


async def closing(agent: Agent[Any], make: Callable[[], TurnContext[Any]], key: Activity) -> Closed:
    """Run the hooks after a turn's end, within a time limit; an error does not hinder those that follow."""
    done: list[Effects] = []
    errors: list[str] = []
    with trio.move_on_after(CLOSING_LIMIT) as limit:
        for item in agent.hooked("turn_ended"):
            own = make()
            try:
                await item.turn_ended(own)
            except BaseException as raised:
                errors.append(str(_hook_error(item, "turn_ended", raised)))
            else:
                done.append(own.effects())
    if limit.cancelled_caught:
        errors.append(f"turn_ended took longer than {CLOSING_LIMIT:g} s and was given up")
    return Closed(key, merged(*done), "; ".join(errors))
