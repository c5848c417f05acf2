"""The loop of one driven session: inputs in, one commit, then what the commit asks for."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import trio

from turnstate_states import codec
from turnstate_states.checkpoint import Checkpoint, Commit
from turnstate_states.core import SessionCore
from turnstate_states.errors import InvalidInput, Refused, SessionInUse, StoreError
from turnstate_states.events import CallProgress, CallSettled, NumberedEvent, TurnEnded, TurnStarted
from turnstate_states.reports import PolicyDecided, Report, Stopped
from turnstate_states.submissions import Interrupt, Receipt, Submission
from turnstate_states.transcript import Transcript
from turnstate_states.values import Value

from .activity_runner import ActivityRunner
from .calls import CallRunner
from .commands import CommandRunner
from .failures import bug, failure_in
from .feed import Feed
from .inputs import new_life
from .reading import read_events
from .records import stored_commit
from .results import Result
from .stores.base import InboxItem
from .watching import Slot, Watcher, waiting_result

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Driver"]

log = logging.getLogger("turnstate")
BATCH = 64
"""Submissions that are applied before it is decided what follows, so that a flood cannot starve the turn."""


@attrs.frozen(eq=False, repr=False)
class Incoming(Value):
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
        self._inbox_taken: set[str] = set()
        self._wake = trio.Event()
        self._cause: BaseException | None = None
        self._broken: StoreError | None = None
        self.leaving = False
        self._quiet = False
        self.stored: Checkpoint
        self.core: SessionCore
        self.feed: Feed
        self.calls: CallRunner
        self.activities = ActivityRunner(self)
        self.commands = CommandRunner(self)

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
            await self.calls.end_children(self.calls.left_behind())
        except BaseException:
            await self.release()
            raise

    async def release(self) -> None:
        """Give the claim up; where that fails it lapses."""
        with trio.CancelScope(shield=True):
            try:
                await self.store.release(self.session, self.engine.owner.id)
            except StoreError as error:
                log.warning("the claim on session %s was not released: %s", self.session, error)

    async def _load(self) -> None:
        rules = self.agent.rules
        stored = await self.store.load(self.session)
        if stored is None:
            self.core = SessionCore.new(self.session, rules, now=self.now(), parent=self.engine.parent, life=new_life())
            self.stored = self.core.checkpoint.copy()
        else:
            checkpoint = codec.decode_checkpoint(stored.checkpoint)
            if checkpoint.parent != self.engine.parent:
                raise SessionInUse(
                    f"session {self.session!r} is driven by the call of session {checkpoint.parent!r} that it answers: "
                    "read it or send to it, and answer what it asks there"
                )
            messages = [
                message for row in await self.store.messages(self.session) for message in codec.decode_messages(row)
            ]
            transcript = Transcript(messages, checkpoint.head, checkpoint.chosen)
            found = {
                item.event: await self._event(item.event, transcript)
                for item in (*checkpoint.steers, *checkpoint.queue)
            }
            codec.with_bodies(checkpoint, transcript.get, found.get)
            self.core = SessionCore(checkpoint, transcript, rules)
            self.stored = self.core.checkpoint.copy()
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
        failure: Exception | None = None
        try:
            await self._loop()
        except StoreError as error:
            failure = error
            log.warning("the driver of session %s stopped: %s", self.session, error)
        except BaseException as raised:
            cause = failure_in(raised)  # a host's functions also run in here: checks of arguments, prompts
            log.error("the driver of session %s stopped", self.session, exc_info=raised)
            failure = StoreError(bug(f"the driver of session {self.session} stopped", cause))
            failure.__cause__ = cause
        finally:
            self.leaving = True
            self._leave(failure)
            await self.release()
            self.engine.forget(self)
            self.gone.set()

    def _leave(self, failure: Exception | None) -> None:
        self.activities.cancel()
        self.commands.cancel()
        self.calls.cancel_all()
        error = failure or StoreError(f"the engine closed before session {self.session} could take this")
        for slot, _ in self._slots:
            slot.resolve(None, error)
        for item in self._incoming:
            if item.slot is not None:
                item.slot.resolve(None, error)
        end = failure or StoreError(f"the engine closed; the turn of session {self.session} goes on when it is resumed")
        for watcher in self.watchers:
            watcher.give_up(end)
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

    def stop(self, error: StoreError) -> None:
        """Stop as where a commit failed: that of a session below this one did, and what is stored is the truth."""
        self._broken = error
        self.wake()

    @property
    def holds(self) -> bool:
        """Whether nothing may begin: the engine closes, or the call above was told to end and the turn here soon will be."""
        turn = self.core.turn
        told = self.engine.told_to_end and turn is not None and not turn.final and turn.ending is None
        return self.engine.closing or told

    def decided(self, call: str) -> bool:
        """Whether a verdict on a call came in that was not recorded yet."""
        return any(isinstance(report, PolicyDecided) and report.call == call for report, _ in self._reports)

    def submit(self, submission: Submission, *, explicit: bool = False) -> Slot:
        """Take a submission of this process; the slot is resolved when it is durable or refused."""
        slot = Slot()
        if submission.given is None:
            submission = attrs.evolve(submission, given=self.now())
        self._incoming.append(Incoming(submission, slot, explicit))
        self.wake()
        return slot

    def forget_taken(self) -> None:
        """Forget which inbox submissions were dealt with: a look that begins now does not find them any more."""
        self._inbox_seen -= self._inbox_taken
        self._inbox_taken.clear()

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
            if self._broken is not None:
                raise self._broken
            self._record_reports()
            await self._record_submissions()
            await self._tick()
            self._stop_if_told()
            commit = core.commit(self.now(), decide=not self.holds)
            if commit is not None:
                await self._write(commit)
                self._tell(commit)
            else:
                self._resolve()
            self._align(commit)
            if self.engine.closing and self._finished_closing() and not self._reports:
                return
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
        self.calls.give_up()

    async def _record_submissions(self) -> None:
        taken = [self._incoming.popleft() for _ in range(min(BATCH, len(self._incoming)))]
        waiting = deque(sorted(taken, key=lambda item: not isinstance(item.submission, Interrupt)))
        try:
            while waiting:
                await self._record(waiting[0])
                waiting.popleft()
        finally:
            # Their senders are told by whoever ends the loop.
            self._incoming.extendleft(reversed(waiting))

    async def _tick(self) -> None:
        """Let time pass; what was submitted before a deadline is applied before it, also what another process posted."""
        deadline, now = self.core.deadline, self.now()
        if deadline is None or deadline > now:
            return
        for item in await self.store.inbox([self.session]):
            self.post(item)
        for _ in range(0, len(self._incoming), BATCH):
            await self._record_submissions()
        self.core.tick(now)

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
        if self.activities.active or self.calls.active:
            return
        parts = self.activities.take_partial()
        not_begun, used = tuple(self.calls.not_begun), self.calls.take_used()
        stopped = Stopped(core.turn.id, parts, not_begun, model=self.agent.model.name, used=used)
        core.report(stopped, now=self.now())

    async def _write(self, commit: Commit) -> None:
        await self.store.commit(stored_commit(commit, self.engine.owner.id))
        settled = [event.call for event in commit.events if isinstance(event, CallSettled)]
        await self.calls.end_children(call for call in settled if call.began)

    def _tell(self, commit: Commit) -> None:
        self._inbox_taken.update(commit.taken)
        self.stored = commit.checkpoint
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
            for watcher in self.watchers:
                watcher.see(event, self.core.transcript, self._cause)
            if isinstance(event, TurnEnded):
                self._cause = None

    def waiting_result(self, watcher: Watcher) -> Result[str] | None:
        """The result of a turn that only waits for a person, or None if it does not, or something is still on its way."""
        if not self._quiet or self._incoming or self._reports:
            return None
        return waiting_result(self.stored, self.core.transcript, watcher)

    def runs(self, turn: str) -> bool:
        """Whether this turn is the stored one and its end was not told yet."""
        stored = self.stored.turn
        return stored is not None and stored.id == turn and not stored.closed

    async def find_turn(self, watcher: Watcher, turn: str) -> None:
        """Have a watcher wait for the turn of a submission that was accepted before, or find how it ended in the log."""
        while not watcher.turn:
            pending = () if self.stored.pending is None else (self.stored.pending,)
            if any(item.id == watcher.cause for item in (*self.stored.queue, *self.stored.steers, *pending)):
                return
            if turn and self.runs(turn):
                watcher.turn = turn
                return
            events = await read_events(self.store, self.session, 0)
            for event in events:
                if isinstance(event, TurnStarted) and event.cause == watcher.cause:
                    turn = event.turn
            if not turn:
                raise Refused("gone", f"message {watcher.cause} was taken back before its turn began")
            if any(isinstance(event, TurnEnded) and event.turn == turn for event in events):
                watcher.turn = turn
                watcher.missed = True
                for event in events:
                    watcher.see(event, self.core.transcript, None)

    # ---- what a commit asks for

    def _align(self, commit: Commit | None) -> None:
        """Cancel what is not wanted any more, start what is missing, begin the calls that may begin."""
        self.activities.cancel_other()
        self.calls.align(commit)
        # While the store was waited for an activity may have ended. Until its report is recorded it is done, not missing:
        # begun again, it would be sent to the model twice.
        if not self.holds and not self._reports:
            self.activities.start_missing()
            self.commands.start_next()

    # ---- waiting

    def _finished_closing(self) -> bool:
        self.activities.cancel()
        self.commands.cancel()
        return not (self.activities.active or self.commands.active or self.calls.active)

    def _idle(self) -> bool:
        """Whether the session could be left: nothing runs, nobody looks.

        A worker also leaves one that only waits for a person without a deadline, and takes it up again for the answer.
        """
        turn = self.core.turn
        rests = turn is None or turn.closed or (self.engine.serving and self._waits_long())
        works = self.activities.active or self.commands.active or self.calls.remain
        return rests and not (works or self.watchers or self.feed.watched)

    def _waits_long(self) -> bool:
        turn = self.core.turn
        return turn is not None and turn.state == "awaiting-approval" and self.core.deadline is None

    async def _wait(self) -> bool:
        """Wait for something to do; False if the session was idle for long enough to leave it."""
        deadline = self._next_deadline()
        idle = self._idle()
        if idle:
            deadline = min(deadline, trio.current_time() + self.engine.linger)
        self._quiet = True
        for watcher in self.watchers:
            watcher.poke()
        with trio.move_on_at(deadline) as scope:
            await self._wake.wait()
        self._quiet = False
        return not (scope.cancelled_caught and idle and self._idle() and not self._wake.is_set())

    def _next_deadline(self) -> float:
        deadline = self.core.deadline
        at = float("inf") if deadline is None else trio.current_time() + max(0.0, deadline - self.now())
        return min(at, self.calls.next_give_up)
