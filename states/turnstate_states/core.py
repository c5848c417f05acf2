"""The one place where everything about a session is decided, as plain synchronous code."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from . import texts
from .answering import confirm
from .branching import apply_pending
from .calls import advance_calls, ask, expire, facts, settle, suspend
from .checkpoint import Checkpoint, Commit
from .codec import digest
from .errors import InvalidInput, Refused
from .events import Warned
from .message import Usage
from .recovery import not_happened, recover
from .reports import (
    Activity,
    AttemptFailed,
    AttemptReplied,
    CallChecked,
    CallDone,
    CallsBroken,
    CallSuspended,
    Closed,
    CommandDone,
    PolicyDecided,
    Prepared,
    Report,
    Reviewed,
    Stopped,
)
from .routing import end_command, route, start_waiting
from .rules import Rules
from .steps import (
    after_reply,
    close,
    enter_step,
    finish_ending,
    prepared,
    record_failure,
    record_reply,
    request,
    review,
    seconds_end,
    seconds_reached,
    tell_to_end,
)
from .submissions import Command, Receipt, Submission
from .transcript import Transcript
from .turn import CallStatus, Ending, Permissions, TurnState
from .work import Work

__all__ = ["SessionCore"]


EXPECTED: Mapping[type, tuple[CallStatus, ...]] = {
    CallDone: ("started", "checking"),
    CallSuspended: ("started",),
    CallChecked: ("checking",),
    PolicyDecided: ("proposed",),
}
"""The statuses of a call in which a report on it counts."""


class SessionCore:
    """A session's state and its rules: inputs in, one commit out.

    :meth:`resume`, :meth:`submit`, :meth:`report` and :meth:`tick` record what came; :meth:`commit` then decides what
    follows from all of it and gives the one :class:`Commit` to write, or None if nothing changed. So what an activity
    finished and what people said in the same instant are seen together: record reports first, then submissions, interrupts
    before others. There is no I/O, no clock and no randomness in it: the same inputs give the same commits.

    An input that raises changed nothing. Times are in seconds since the epoch.

    >>> from turnstate_states.submissions import Send
    >>> from turnstate_states.content import Text
    >>> core = SessionCore.new("alice", Rules(), now=0.0)
    >>> core.submit(Send("s1", (Text("hi"),)), now=0.0).turn
    't1'
    >>> commit = core.commit(now=0.0)
    >>> commit.checkpoint.turn.state, core.activity.kind
    ('streaming', 'stream')
    """

    def __init__(self, checkpoint: Checkpoint, transcript: Transcript, rules: Rules) -> None:
        self.rules = rules
        self._work = Work(checkpoint, transcript, rules)
        self._prepared: Prepared | None = None

    @classmethod
    def new(cls, session: str, rules: Rules, *, now: float, parent: str = "", life: str = "") -> SessionCore:
        """A session to which nothing was submitted.

        ``parent`` is the one above it, if there is one; ``life`` a random word of its own.
        """
        return cls(Checkpoint(session, now, updated_at=now, parent=parent, life=life), Transcript(), rules)

    def copy(self) -> SessionCore:
        """An independent copy, for looking ahead; take it between commits."""
        other = SessionCore(self.checkpoint.copy(), self.transcript.copy(), self.rules)
        other._work.asked_before |= self._work.asked_before
        return other

    @property
    def checkpoint(self) -> Checkpoint:
        """The state now; it changes with each input, take ``commit.checkpoint`` to keep one."""
        return self._work.checkpoint

    @property
    def transcript(self) -> Transcript:
        """The messages."""
        return self._work.transcript

    @property
    def turn(self) -> TurnState | None:
        """The current or last turn."""
        return self._work.checkpoint.turn

    @property
    def stopping(self) -> bool:
        """Whether the turn was told to end and waits for :class:`Stopped`."""
        turn = self._work.active
        return turn is not None and turn.ending is not None

    @property
    def activity(self) -> Activity | None:
        """What is to be done now, or None: nothing, until someone says something or the deadline passes."""
        turn = self.turn
        if turn is None or turn.ending is not None:
            return None
        if turn.final:
            return Activity("closing", turn.id) if self.rules.turn_ended and not turn.closed else None
        if turn.state == "before-model":
            if turn.not_before or not self.rules.before_model:
                return None
            return Activity("prepare", turn.id, turn.step, turn.attempt, turn.hook_pass)
        if turn.state == "streaming":
            return Activity("stream", turn.id, turn.step, turn.attempt)
        return Activity("execute", turn.id, turn.step) if turn.state == "executing-tools" else None

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands that middleware has to carry out, in order."""
        return self._work.checkpoint.commands

    @property
    def deadline(self) -> float | None:
        """When :meth:`tick` has something to do, if nothing comes before."""
        turn = self._work.active
        if turn is None or turn.ending is not None:
            return None
        times = [
            call.expires_at for call in turn.calls.values() if call.status == "asked" and call.expires_at is not None
        ]
        if turn.not_before:
            times.append(turn.not_before)
        limit = self.rules.limits.seconds
        if limit is not None and turn.clock is not None:
            times.append(seconds_end(turn, turn.clock, limit))
        return min(times, default=None)

    def resume(self, now: float) -> None:
        """Go on from a stored checkpoint. Call it once, first, before anything runs."""
        self._work.at(now)
        recover(self._work)

    def submit(self, submission: Submission, *, now: float, known: Receipt | None = None, keep: bool = True) -> Receipt:
        """Apply what a client said.

        Args:
            submission: what was said.
            now: the time.
            known: the stored receipt of the same id, if there is one.
            keep: store the receipt; needless where nobody else knows the id and could send it again.

        Returns:
            The receipt. It counts once the commit is durable. For a submission that was accepted before, the first one.

        Raises:
            Refused: the session cannot accept it now, or the id was used for something else.
            InvalidInput: it makes no sense.
        """
        work = self._work
        mark = digest(submission)
        for earlier in work.receipts:
            if earlier.id == submission.id and not earlier.refused:
                known = earlier
        if known is not None and not known.refused:
            if known.digest != mark:
                raise Refused("conflict", f"the id {submission.id} was used for another submission; use a new one")
            return attrs.evolve(known, duplicate=True)
        cause = work.cause
        work.at(now, submission.id)
        try:
            receipt = Receipt(submission.id, mark, route(work, submission))
        except (Refused, InvalidInput):
            work.cause = cause
            raise
        if keep:
            work.receipts.append(receipt)
        return receipt

    def settle_inbox(self, item: str, refused: Receipt | None = None) -> None:
        """Note that an inbox submission was dealt with; one that was refused leaves its receipt for the sender."""
        self._work.taken.append(item)
        if refused is not None:
            self._work.receipts.append(refused)

    def report(self, report: Report, *, now: float) -> bool:
        """Record what an activity did.

        Returns:
            Whether it counted. A report of an activity that does not run any more changes nothing.
        """
        self._work.at(now)
        match report:
            case CallDone() | CallSuspended() | CallChecked() | PolicyDecided():
                return self._report_call(report)
            case CommandDone():
                return self._report_command(report)
            case CallsBroken():
                return self._fail(report)
            case Stopped():
                counts = self.stopping and report.turn == self._work.turn.id
                if counts:
                    finish_ending(self._work, report)
                return counts
            case _:
                return self._report_activity(report)

    def _report_activity(self, report: Prepared | AttemptReplied | AttemptFailed | Reviewed | Closed) -> bool:
        work = self._work
        if not self._runs(report):
            return False
        match report:
            case Prepared():
                work.count_effects(report.effects)
                self._prepared = report
            case AttemptReplied():
                record_reply(work, report)
            case AttemptFailed():
                record_failure(work, report)
            case Reviewed():
                work.count_effects(report.effects)
                if work.turn.ending is None:
                    review(work, report)
            case Closed():
                work.count_effects(report.effects)
                work.apply_effects(report.effects)
                if report.error:
                    work.tell(Warned, report.error)
                close(work)
        return True

    def _runs(self, report: Prepared | AttemptReplied | AttemptFailed | Reviewed | Closed) -> bool:
        """Whether its activity is the running one; one that was told to stop may still report what it finished."""
        turn = self.turn
        if turn is None or report.key.turn != turn.id:
            return False
        match report:
            case Prepared():
                expected = turn.state == "before-model" and not turn.not_before and self._prepared is None
                place = ("prepare", turn.step, turn.attempt, turn.hook_pass)
            case AttemptReplied() | AttemptFailed():
                expected = turn.state == "streaming" and not turn.reply
                place = ("stream", turn.step, turn.attempt, 0)
            case Reviewed():
                expected = turn.state == "streaming" and bool(turn.reply) and not turn.reviewed
                place = ("stream", turn.step, turn.attempt, 0)
            case Closed():
                expected = turn.final and not turn.closed
                place = ("closing", 0, 0, 0)
        key = report.key
        return expected and (key.kind, key.step, key.attempt, key.hook_pass) == place

    def _report_command(self, report: CommandDone) -> bool:
        work = self._work
        command = next((found for found in work.checkpoint.commands if found.id == report.command), None)
        if command is None:
            return False
        work.cause = command.id
        end_command(work, command, report)
        return True

    def _fail(self, report: CallsBroken) -> bool:
        turn = self._work.active
        if turn is None or turn.ending is not None or report.key.turn != turn.id:
            return False
        turn.error = report.failure
        tell_to_end(self._work, Ending("failed", report.failure.message))
        return True

    def _report_call(self, report: CallDone | CallSuspended | CallChecked | PolicyDecided) -> bool:
        work = self._work
        turn = work.active
        call = None if turn is None or turn.id != report.key.turn else turn.calls.get(report.call)
        if turn is None or call is None or call.status not in EXPECTED[type(report)]:
            return False
        if turn.ending is not None and isinstance(report, (PolicyDecided, CallSuspended)):
            self._count(report.usage)  # it could only begin something, but that was used
            return bool(report.usage)
        if isinstance(report, CallDone):
            self._count(report.usage)
            more = {"images": report.images, "value": report.value, "artifact": report.artifact, "json": report.json}
            settle(work, call, report.status, report.text, report.reason, **more)
        elif isinstance(report, CallSuspended):
            self._count(report.usage)
            suspend(work, call, report.nested)
        elif isinstance(report, PolicyDecided):
            self._policy_decided(report)
        elif report.result is not None:
            settle(work, call, "ok", report.result)
        else:
            not_happened(work, call)
        return True

    def _count(self, usage: Mapping[str, Usage]) -> None:
        for model, used in usage.items():
            self._work.count_usage(model, used)

    def _policy_decided(self, report: PolicyDecided) -> None:
        work = self._work
        call = work.turn.calls[report.call]
        self._count(report.usage)
        if report.warning:
            work.tell(Warned, report.warning)
        if call.decision is not None:
            confirm(work, call, call.decision, report)
            return
        permissions = _narrowed(call.permissions, report.permissions)
        call = attrs.evolve(call, permissions=permissions, covers=report.covers, prompt=report.prompt)
        if report.verdict == "allow":
            work.put_call(attrs.evolve(call, status="allowed"))
        elif report.verdict == "deny":
            settle(work, call, "denied", texts.denied(report.reason), report.reason)
        else:
            ask(work, call, work.rules.tools[call.tool], report.reason)

    def tick(self, now: float) -> None:
        """Let time pass: back-offs end, requests expire, the time limit is reached."""
        work = self._work
        work.at(now)
        turn = work.active
        if turn is None or turn.ending is not None:
            return
        if turn.not_before and work.now >= turn.not_before:
            turn.not_before = 0.0
            work.changed = True
        expire(work)
        limit = self.rules.limits.seconds
        if limit is not None and turn.clock is not None and work.now >= seconds_end(turn, turn.clock, limit):
            tell_to_end(work, Ending("limit", seconds_reached(limit)))

    def commit(self, now: float, *, decide: bool = True) -> Commit | None:
        """Decide what follows from all that was recorded, as far as it goes without waiting for anything.

        With ``decide=False`` only what was recorded is kept: nothing new begins. What follows is decided by a later
        commit, or after :meth:`resume`.
        """
        self._work.at(now)
        while decide and self._advance():
            pass
        self._prepared = None
        return self._work.finish()

    def _advance(self) -> bool:
        """Take one step of what follows; False when something has to be waited for."""
        work = self._work
        turn = self.turn
        if turn is None or turn.closed:
            return self._next_turn()
        if turn.final:
            if self.rules.turn_ended:
                return False
            close(work)
            return True
        if turn.ending is not None:
            return self._stop_waiting(turn)
        if turn.state == "before-model":
            return self._before_model(turn)
        if turn.state == "streaming":
            return self._streaming(turn)
        return self._calls(turn)

    def _next_turn(self) -> bool:
        """Go on with what waited for the end of the turn."""
        work, checkpoint = self._work, self._work.checkpoint
        if work.reserved:
            return False
        if checkpoint.pending is not None:
            apply_pending(work)
        elif (checkpoint.queue or checkpoint.steers) and not checkpoint.held:
            start_waiting(work)
        else:
            return False
        return True

    def _stop_waiting(self, turn: TurnState) -> bool:
        """With no activity there is nobody who could report Stopped."""
        if turn.state == "awaiting-approval" or (turn.state == "before-model" and turn.not_before):
            finish_ending(self._work)
            return True
        return False

    def _before_model(self, turn: TurnState) -> bool:
        if turn.not_before:
            return False
        if self._prepared is not None:
            report, self._prepared = self._prepared, None
            prepared(self._work, report)
            return True
        if self.rules.before_model:
            return False
        request(self._work)
        return True

    def _streaming(self, turn: TurnState) -> bool:
        if not turn.reply or (self.rules.after_model and not turn.reviewed):
            return False
        after_reply(self._work)
        return True

    def _calls(self, turn: TurnState) -> bool:
        work = self._work
        now = facts(work)
        if turn.state == "awaiting-approval":
            if not now.can_move:
                return False
            work.step("answer", now)
            turn.clock = work.now
            return True
        advance_calls(work)
        now = facts(work)
        if now.all_settled:
            work.step("settle", now)
            enter_step(work)
            return True
        if not now.can_move:
            work.step("ask", now)
            work.count_time()
            turn.clock = None
        return False


def _narrowed(before: Permissions | None, now: Permissions | None) -> Permissions | None:
    """The permissions of a later verdict on the same call, which never give more than those of an earlier one."""
    if before is None or now is None:
        return now
    return Permissions(before.network and now.network, tuple(path for path in now.write if path in before.write))
