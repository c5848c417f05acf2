"""The loop of one driven session: inputs in, one commit, then what the commit asks for."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import trio

from turnstate_states import codec
from turnstate_states.checkpoint import Commit
from turnstate_states.content import Part
from turnstate_states.core import SessionCore
from turnstate_states.errors import InvalidInput, Refused, StoreError
from turnstate_states.events import CallProgress, NumberedEvent, TurnEnded, TurnStarted
from turnstate_states.reports import Activity, AttemptFailed, Closed, Prepared, Report, Reviewed, Stopped
from turnstate_states.submissions import Interrupt, Receipt, Submission
from turnstate_states.transcript import Message, Transcript

from . import activities
from .calls import CallRunner
from .feed import Attempt, Feed
from .middleware.base import StepContext
from .models.base import ModelRequest
from .records import info_of, stored_commit
from .results import Result, calls_in
from .stores.base import InboxItem

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Driver", "Watcher"]

log = logging.getLogger("turnstate")
BATCH = 64
"""Submissions that are applied before it is decided what follows, so that a flood cannot starve the turn."""


class Slot:
    """Where a sender waits for what became of its submission."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self.receipt: Receipt | None = None
        self.error: Exception | None = None

    def resolve(self, receipt: Receipt | None, error: Exception | None = None) -> None:
        self.receipt, self.error = receipt, error
        self._done.set()

    async def wait(self) -> Receipt:
        await self._done.wait()
        if self.error is not None:
            raise self.error
        assert self.receipt is not None
        return self.receipt


@attrs.define(eq=False)
class Watcher:
    """Somebody who waits for a turn: the one that ``cause`` starts, or the one called ``turn``."""

    cause: str = ""
    turn: str = ""
    started: trio.Event = attrs.field(factory=trio.Event)
    ended: Result[str] | None = None
    error: BaseException | None = None
    changed: trio.Event = attrs.field(factory=trio.Event)

    def poke(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


@attrs.define(eq=False)
class Running:
    """The running prepare, attempt, review or closing."""

    key: Activity
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


@attrs.frozen
class Incoming:
    """A submission on its way: from a sender in this process, or from the inbox."""

    submission: Submission
    slot: Slot | None = None
    explicit: bool = False
    inbox: str = ""


class Driver:
    """Drives one session. Its tasks live in the engine's nursery; it ends when the session is idle or a commit failed."""

    def __init__(self, engine: Engine[Any], session: str) -> None:
        self.engine = engine
        self.session = session
        self.agent = engine.agent
        self.store = engine.store
        self.now: Callable[[], float] = engine.clock.now
        self.gone = trio.Event()
        self.watchers: list[Watcher] = []
        self._reports: deque[tuple[Report, BaseException | None]] = deque()
        self._incoming: deque[Incoming] = deque()
        self._slots: list[tuple[Slot, Receipt]] = []
        self._inbox_seen: set[str] = set()
        self._wake = trio.Event()
        self._running: Running | None = None
        self._cause: BaseException | None = None
        self._deps: Any = None
        self._deps_turn = ""
        self._cache: dict[Any, Any] = {}
        self._request: ModelRequest | None = None
        self._partial: tuple[Part, ...] = ()
        self.leaving = False
        self.core: SessionCore
        self.feed: Feed
        self.calls: CallRunner

    # ---- opening and leaving

    async def open(self) -> None:
        """Claim and load the session.

        Raises:
            SessionInUse: another engine drives it.
            StoreError: it cannot be read.
        """
        await self.store.claim(self.session, self.engine.owner, self.now())
        try:
            await self._load()
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.store.release(self.session, self.engine.owner.id)
            raise

    async def _load(self) -> None:
        rules = self.agent.rules
        stored = await self.store.load(self.session)
        if stored is None:
            self.core = SessionCore.new(self.session, rules, now=self.now())
        else:
            checkpoint = codec.decode_checkpoint(stored.checkpoint)
            messages = [
                message for row in await self.store.messages(self.session) for message in codec.decode_messages(row)
            ]
            transcript = Transcript(messages, checkpoint.head)
            found = {
                item.event: await self._event(item.event, transcript)
                for item in (*checkpoint.steers, *checkpoint.queue)
            }
            codec.with_bodies(checkpoint, transcript.get, found.get)
            self.core = SessionCore(checkpoint, transcript, rules)
            self.core.resume(self.now())
        self.feed = Feed(self.core.checkpoint.events)
        self.calls = CallRunner(self)
        for item in await self.store.inbox([self.session]):
            self.post(item)

    async def _event(self, number: int, transcript: Transcript) -> NumberedEvent | None:
        row = await self.store.row_of(self.session, number)
        if row is None:
            return None
        found = codec.decode_events(row.events, transcript.get)
        return next((event for event in found if event.number == number), None)

    async def run(self) -> None:
        """Drive until there is nothing to do, the engine closes, or a commit fails."""
        failure: BaseException | None = None
        try:
            await self._loop()
        except StoreError as error:
            failure = error
            log.warning("the driver of session %s stopped: %s", self.session, error)
        except Exception as error:
            log.exception("the driver of session %s stopped", self.session)
            failure = StoreError(f"the driver of session {self.session} stopped: {type(error).__name__}: {error}")
            failure.__cause__ = error
        finally:
            self.leaving = True
            self._leave(failure)
            with trio.CancelScope(shield=True):
                try:
                    await self.store.release(self.session, self.engine.owner.id)
                except StoreError as error:
                    log.warning("the claim on session %s was not released: %s", self.session, error)
            self.engine.forget(self)
            self.gone.set()

    def _leave(self, failure: BaseException | None) -> None:
        if self._running is not None:
            self._running.scope.cancel()
        self.calls.cancel_all()
        reason = failure or StoreError(f"the engine closed before session {self.session} could take this")
        error = reason if isinstance(reason, Exception) else StoreError(str(reason))
        for slot, _ in self._slots:
            slot.resolve(None, error)
        for item in self._incoming:
            if item.slot is not None:
                item.slot.resolve(None, error)
        for watcher in self.watchers:
            watcher.error = error
            watcher.poke()
        self.feed.close(failure)

    # ---- what comes in

    def wake(self) -> None:
        """Have the loop look again."""
        self._wake.set()

    def report(self, report: Report, error: BaseException | None = None) -> None:
        """Take what an activity did."""
        self._reports.append((report, error))
        self.wake()

    def submit(self, submission: Submission, *, explicit: bool = False) -> Slot:
        """Take a submission of this process; the slot is resolved when it is durable or refused."""
        slot = Slot()
        self._incoming.append(Incoming(submission, slot, explicit))
        self.wake()
        return slot

    def post(self, item: InboxItem) -> None:
        """Take a submission of another process."""
        if item.id in self._inbox_seen:
            return
        self._inbox_seen.add(item.id)
        try:
            submission = codec.decode_submission(item.body)
        except StoreError as error:
            self.core.settle_inbox(item.id, Receipt(item.id, code="stale", text=str(error)))
        else:
            self._incoming.append(Incoming(submission, explicit=True, inbox=item.id))
        self.wake()

    def progress(self, event: CallProgress) -> None:
        """Tell a running tool's own report."""
        self.feed.tell([event])

    # ---- the loop

    async def _loop(self) -> None:
        core = self.core
        while True:
            self._wake = trio.Event()
            self._record_reports()
            await self._record_submissions()
            self._stop_if_told()
            closing = self.engine.closing
            commit = core.commit(self.now(), decide=not closing)
            if commit is not None:
                await self._write(commit)
                self._tell(commit)
            else:
                self._resolve()
            if closing and self._finished_closing():
                return
            if not closing:
                self._align(commit)
            if self._reports or self._incoming:
                await trio.lowlevel.cancel_shielded_checkpoint()
                continue
            if not await self._wait():
                self.leaving = True
                return

    def _record_reports(self) -> None:
        now = self.now()
        while self._reports:
            report, error = self._reports.popleft()
            if error is not None:
                self._cause = error
            self.core.report(report, now=now)
        deadline = self.core.deadline
        if deadline is not None and deadline <= now:
            self.core.tick(now)
        self.calls.give_up()

    async def _record_submissions(self) -> None:
        taken = [self._incoming.popleft() for _ in range(min(BATCH, len(self._incoming)))]
        taken.sort(key=lambda item: not isinstance(item.submission, Interrupt))
        for item in taken:
            await self._record(item)

    async def _record(self, item: Incoming) -> None:
        known: Receipt | None = None
        if item.explicit:
            stored = await self.store.receipt(self.session, item.submission.id)
            known = None if stored is None else codec.decode_receipt(stored)
        try:
            receipt = self.core.submit(item.submission, now=self.now(), known=known, keep=item.explicit)
        except (Refused, InvalidInput) as error:
            if item.inbox:
                code = error.code if isinstance(error, Refused) else "invalid"
                self.core.settle_inbox(item.inbox, Receipt(item.submission.id, code=code, text=str(error)))
            elif item.slot is not None:
                item.slot.resolve(None, error)
            return
        if item.inbox:
            self.core.settle_inbox(item.inbox)
        elif item.slot is not None:
            self._slots.append((item.slot, receipt))

    def _stop_if_told(self) -> None:
        """Once nothing of a turn that was told to end runs any more, say so."""
        core = self.core
        if not core.stopping or core.turn is None:
            return
        if self._running is not None or self.calls.active:
            return
        parts, self._partial = self._partial, ()
        core.report(
            Stopped(core.turn.id, parts, tuple(self.calls.not_begun), model=self.agent.model.name), now=self.now()
        )

    async def _write(self, commit: Commit) -> None:
        await self.store.commit(stored_commit(commit, self.engine.owner.id))

    def _tell(self, commit: Commit) -> None:
        self._inbox_seen.difference_update(commit.taken)
        self._watch(commit.events)
        self.feed.tell(commit.events)
        self._resolve()

    def _resolve(self) -> None:
        """Tell senders what became of what they sent."""
        slots, self._slots = self._slots, []
        for slot, receipt in slots:
            slot.resolve(receipt)

    def _watch(self, events: list[NumberedEvent]) -> None:
        for event in events:
            if isinstance(event, TurnStarted):
                for watcher in self.watchers:
                    if watcher.cause == event.cause and not watcher.turn:
                        watcher.turn = event.turn
                        watcher.started.set()
            elif isinstance(event, TurnEnded):
                for watcher in self.watchers:
                    if watcher.turn == event.turn:
                        watcher.ended = self.result(event)
                        watcher.error = self._cause
                self._cause = None
        for watcher in self.watchers:
            watcher.poke()

    def result(self, event: TurnEnded) -> Result[str]:
        """The result of a turn that ended."""
        messages = self.messages_of(event.turn)
        text = next((message.text for message in reversed(messages) if message.role == "assistant"), "")
        return Result(
            event.turn,
            event.outcome,
            text,
            text,
            event.reason,
            event.stop,
            event.error,
            event.usage,
            calls_in(messages, {}),
            messages,
            event.steps,
            event.attempts,
        )

    def waiting_result(self, turn: str) -> Result[str] | None:
        """The result of a turn that only waits for a person, or None if it does not."""
        state = self.core.turn
        if state is None or state.id != turn or state.state != "awaiting-approval" or self._incoming:
            return None
        messages = self.messages_of(turn)
        text = next((message.text for message in reversed(messages) if message.role == "assistant"), "")
        calls = calls_in(messages, state.calls)
        return Result(turn, "waiting", text, text, usage=state.usage, calls=calls, messages=messages, steps=state.steps)

    def messages_of(self, turn: str) -> list[Message]:
        """The messages of a turn on the path."""
        found: list[Message] = []
        for message in reversed(self.core.transcript.path):
            if message.turn == turn:
                found.append(message)
            elif found:
                break
        return found[::-1]

    # ---- what a commit asks for

    def _align(self, commit: Commit | None) -> None:
        """Cancel the activity whose key is gone, start the one that is missing, begin the calls that may begin."""
        wanted = self.core.activity
        running = self._running
        if running is not None and running.key != wanted:
            running.scope.cancel()
        self.calls.align(commit)
        if wanted is None or wanted.kind == "execute" or running is not None:
            return
        self._running = Running(wanted)
        self.engine.start(self._run_activity, self._running)

    async def _run_activity(self, running: Running) -> None:
        """One activity in its own scope, and its report."""
        try:
            with running.scope:
                await self._perform(running.key)
        except Exception as error:
            self._fail(running.key, error)
        finally:
            self._running = None
            self.wake()

    async def _perform(self, key: Activity) -> None:
        turn = self.core.turn
        assert turn is not None
        if key.kind == "prepare":
            context = self._context(key)
            self._request = context.request
            self.report(*await activities.prepare(self.agent, context, key))
        elif key.kind == "closing":
            self.report(await activities.closing(self.agent, self.deps(), self.session, turn, key))
        elif turn.reply:
            context = self._context(key)
            context.set_reply(activities.reply_of(self.core.transcript[turn.reply], turn))
            self.report(*await activities.review(self.agent, context, key))
        else:
            await self._attempt(key)

    def _fail(self, key: Activity, error: Exception) -> None:
        """The host's own code raised (its deps): that fails the turn, or is told where the turn is over."""
        log.error("%s of session %s failed", key.kind, self.session, exc_info=error)
        failure = activities.failure_of(error)
        if key.kind == "prepare":
            self.report(Prepared(key, error=failure), error)
        elif key.kind == "closing":
            self.report(Closed(key, error=failure.message))
        elif self.core.turn is not None and self.core.turn.reply:
            self.report(Reviewed(key, error=failure), error)
        else:
            self.report(AttemptFailed(key, failure), error)

    async def _attempt(self, key: Activity) -> None:
        request = self.request(key)
        prepared, self._request = self._request, None
        if prepared is not None and prepared.attempt == request.attempt:
            # What hooks changed in it stands; what they and steers added for good is in the transcript by now.
            prepared.messages = request.messages
            request = prepared
        running = Attempt(request.attempt, key.turn)
        done = False
        try:
            self.report(*await activities.attempt(self.agent, request, key, running, self.feed, self.now))
            done = True
        finally:
            self._partial = () if done else running.parts()

    def request(self, key: Activity) -> ModelRequest:
        """The request for an attempt, as the transcript stands."""
        turn = self.core.turn
        assert turn is not None
        return ModelRequest(
            self.session,
            turn.attempt_id,
            self.agent.instructions,
            self.core.transcript.conversation.messages(),
            self.agent.tools.definitions,
            turn.settings,
            [],
            self._cache,
        )

    def _context(self, key: Activity) -> StepContext[Any]:
        return StepContext(
            self.deps(),
            session_id=self.session,
            turn_id=key.turn,
            step=key.step,
            attempt=key.attempt,
            hook_pass=key.hook_pass,
            request=self.request(key),
        )

    def deps(self) -> Any:
        """The host's dependencies for the current turn."""
        turn = self.core.turn
        if self.engine.make_deps is None or turn is None:
            return None
        if self._deps_turn != turn.id:
            self._deps = self.engine.make_deps(info_of(self.core.checkpoint))
            self._deps_turn = turn.id
        return self._deps

    # ---- waiting

    def _finished_closing(self) -> bool:
        if self._running is not None:
            self._running.scope.cancel()
        return self._running is None and not self.calls.active

    def _idle(self) -> bool:
        return (self.core.turn is None or self.core.turn.closed) and not (
            self._running or self.calls.active or self.watchers or self.feed.watched
        )

    async def _wait(self) -> bool:
        """Wait for something to do; False if the session was idle for long enough to leave it."""
        deadline = self._next_deadline()
        idle = self._idle()
        if idle:
            deadline = min(deadline, trio.current_time() + self.engine.linger)
        with trio.move_on_at(deadline) as scope:
            await self._wake.wait()
        return not (scope.cancelled_caught and idle and self._idle() and not self._wake.is_set())

    def _next_deadline(self) -> float:
        deadline = self.core.deadline
        at = float("inf") if deadline is None else trio.current_time() + max(0.0, deadline - self.now())
        return min(at, self.calls.next_give_up)
