"""A world around one session: driver, store, clients, tools and clock, in which every step can be chosen.

:class:`World` enumerates what may happen next and checks the invariants after every commit. Searches walk through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from tests.states.hosted import Hosted
from tests.states.ledger import Ledger
from tests.states.scope import EDITED, REPLIES, Action, Scope
from turnstate_states.codec import (
    encode_checkpoint,
)
from turnstate_states.content import Part, Reasoning, Text, ToolCall
from turnstate_states.core import SessionCore
from turnstate_states.errors import InvalidInput, Refused
from turnstate_states.reports import (
    Activity,
    AttemptFailed,
    AttemptReplied,
    CallChecked,
    CallDone,
    Closed,
    Effects,
    PolicyDecided,
    Prepared,
    Report,
    Reviewed,
    Stopped,
    Summary,
)
from turnstate_states.submissions import (
    Answer,
    EditQueued,
    Interrupt,
    RemoveQueued,
    Resume,
    RevokeGrant,
    Send,
    Submission,
)
from turnstate_states.transcript import Usage
from turnstate_states.turn import Call, Failure, TurnState


@attrs.define(eq=False)
class World(Hosted):
    """A session with everything around it. ``script`` is what happened so far, batch by batch."""

    scope: Scope = attrs.field(factory=Scope)
    submissions: int = 0
    last_submission: Submission | None = None
    last_report: Report | None = None
    script: tuple[tuple[Action, ...], ...] = ()

    @classmethod
    def new(cls, scope: Scope) -> World:
        """A world in which nothing has happened."""
        core = SessionCore.new("s", scope.rules, now=1000.0)
        world = cls(scope.rules, core, Ledger(scope.rules.tools), scope=scope)
        world.stored = encode_checkpoint(core.checkpoint)
        return world

    def copy(self) -> World:
        """An independent copy."""
        other = attrs.evolve(self)
        other.core = self.core.copy()
        other.ledger = self.ledger.copy()
        for name in ("log", "messages", "receipts", "written", "working"):
            setattr(other, name, getattr(self, name).copy())
        return other

    # What may happen

    def enabled(self) -> list[tuple[Action, ...]]:
        """The batches of inputs that may come next."""
        single = [*self._reports(), *self._submissions(), ("crash", "after")]
        if self.working:
            single.append(("crash", "before"))
        batches: list[tuple[Action, ...]] = [(action,) for action in single]
        if self.scope.races and self.core.activity is not None:
            for report in self._reports():
                batches += [(report, ("interrupt", "now")), (report, ("send", "steer"))]
            batches.append((("crash", "after"), ("interrupt", "now")))
        return batches

    def _reports(self) -> list[Action]:
        turn = self.core.turn
        found: list[Action] = []
        if self.core.deadline is not None:
            found.append(("tick",))
        if turn is None or self.running is None:
            return found
        kind = self.running.kind
        if kind == "prepare":
            found += [("prepared", how) for how in self.scope.hooks if how != "again"]
        elif kind == "closing":
            found += [("closed", how) for how in self.scope.hooks if how in ("ok", "message")]
        elif kind == "stream" and turn.reply:
            found += [("reviewed", how) for how in self.scope.hooks if how != "compact"]
        elif kind == "stream":
            found += [("reply", name) for name in self.scope.replies]
            found += [("fail", how) for how in ("retryable", "fatal")]
            if self.scope.rules.makes_room:
                found.append(("fail", "overflow"))
        else:
            found += self._call_reports(turn)
        if self.core.stopping:
            found += [("stopped", "begun"), ("stopped", "not")] if self.working else [("stopped", "begun")]
        return found

    def _call_reports(self, turn: TurnState) -> list[Action]:
        found: list[Action] = []
        for at, call in enumerate(turn.calls.values()):
            if call.status == "started":
                found += [("done", str(at), "ok"), ("done", str(at), "error")]
            elif call.status == "checking":
                found.append(("look", str(at)))
            elif call.status == "proposed":
                found += [("policy", str(at), verdict) for verdict in self.scope.verdicts]
        return found

    def _submissions(self) -> list[Action]:
        turn, checkpoint = self.core.turn, self.core.checkpoint
        over = turn is not None and self.scope.turns is not None and checkpoint.turns >= self.scope.turns
        found: list[Action] = [("interrupt", "stale"), ("answer", "x", "approve"), ("twice",), ("late",)]
        if turn is None or not turn.final or not over:
            found += [("send", how) for how in self.scope.sends]
            found.append(("resume",))
        found.append(("interrupt", "now"))
        if checkpoint.queue or checkpoint.steers:
            found += [("edit",), ("remove",)]
        if checkpoint.grants:
            found.append(("revoke",))
        for at, call in enumerate(() if turn is None else turn.calls.values()):
            if call.status == "asked":
                found += [("answer", str(at), how) for how in self.scope.answers]
            elif call.decision is not None:
                found += [("answer", str(at), how) for how in ("same", "other")]
        return found

    # What happens

    def apply(self, *batch: Action) -> None:
        """Let some inputs come at the same instant, and drive on."""
        self.script = (*self.script, batch)
        try:
            for name, *choices in batch:
                do: Callable[..., None] = getattr(self, f"_do_{name}")
                do(*choices)
            self.drive()
        except BaseException as error:
            error.add_note(f"after the script {self.script}")
            raise

    def _unchanged(self, do: Callable[[], Any]) -> None:
        """Do something that must change nothing."""
        before = encode_checkpoint(self.core.checkpoint)
        do()
        assert encode_checkpoint(self.core.checkpoint) == before

    def _submit(self, submission: Submission) -> bool:
        """Submit; whether it was accepted."""
        before = encode_checkpoint(self.core.checkpoint)
        try:
            self.core.submit(submission, now=self.now)
        except (Refused, InvalidInput):
            assert encode_checkpoint(self.core.checkpoint) == before
            return False
        self.last_submission = submission
        return True

    def _id(self, kind: str) -> str:
        self.submissions += 1
        return f"{kind}{self.submissions}"

    def _report(self, report: Report, *, ends: bool = True) -> None:
        """Report what is expected; ``ends`` where the activity's task is over with it."""
        assert self.core.report(report, now=self.now), f"{report} did not count"
        self.last_report = report
        if ends:
            self.running = None

    def _key(self) -> Activity:
        assert self.running is not None
        return self.running

    def _call(self, at: str) -> Call:
        turn = self.core.turn
        assert turn is not None
        return list(turn.calls.values())[int(at)]

    def _do_send(self, how: str) -> None:
        name = self._id("send")
        self._submit(Send(name, (Text(f"say {how}"),), "steer" if how == "steer" else "queue"))

    def _do_edit(self) -> None:
        checkpoint = self.core.checkpoint
        target = (*checkpoint.steers, *checkpoint.queue)[0].id
        assert self._submit(EditQueued(self._id("edit"), target, (Text("say it otherwise"),)))

    def _do_remove(self) -> None:
        checkpoint = self.core.checkpoint
        target = (*checkpoint.steers, *checkpoint.queue)[-1].id
        assert self._submit(RemoveQueued(self._id("remove"), target))
        assert not self._submit(RemoveQueued(self._id("remove"), target))

    def _do_resume(self) -> None:
        self._submit(Resume(self._id("resume")))

    def _do_revoke(self) -> None:
        assert self._submit(RevokeGrant(self._id("revoke"), self.core.checkpoint.grants[0].id))

    def _do_interrupt(self, how: str) -> None:
        turn = self.core.turn
        active = turn is not None and not turn.final
        name = None if how == "now" else "t0"
        before = encode_checkpoint(self.core.checkpoint)
        stopping = self.core.stopping
        assert self._submit(Interrupt(self._id("interrupt"), name)) == (active and how == "now")
        if stopping or how == "stale":
            assert encode_checkpoint(self.core.checkpoint) == before

    def _do_twice(self) -> None:
        """The same submission again changes nothing; its id with other content is refused."""
        last = self.last_submission
        known = None if last is None else self.receipts.get(last.id)
        if last is None or known is None:
            return

        def again() -> None:
            receipt = self.core.submit(last, now=self.now, known=known)
            assert receipt == attrs.evolve(known, duplicate=True)

        self._unchanged(again)
        other = RevokeGrant(last.id, "another")
        try:
            self.core.submit(other, now=self.now, known=known)
        except Refused as refused:
            assert refused.code == "conflict"  # noqa: PT017
        else:
            raise AssertionError("an id acted twice")

    def _do_late(self) -> None:
        """The last report again, from an activity that is gone, changes nothing."""
        last = self.last_report
        if last is not None:
            self._unchanged(lambda: self._refuse(last))
        for call in self.working:
            self._unchanged(lambda call=call: self._refuse(CallChecked(self._key(), call, None)))  # type: ignore[misc]

    def _refuse(self, report: Report) -> None:
        assert not self.core.report(report, now=self.now)

    def _do_answer(self, at: str, how: str) -> None:
        name = self._id("answer")
        if at == "x":
            assert not self._submit(Answer(name, ("m0.0",), "approve"))
            return
        call = self._call(at)
        turn = self.core.turn
        assert turn is not None
        can = turn.ending is None and not turn.final
        if call.decision is not None:
            self._answer_again(name, call, how, can)
            return
        if call.expires_at is not None and call.expires_at <= self.now:
            can = False
        deny = how.startswith("deny")
        answer = Answer(
            name,
            (call.id,),
            "deny" if deny else "approve",
            arguments=EDITED if how == "edited" else None,
            for_session=how == "session",
            end_turn=how == "deny-end",
        )
        assert self._submit(answer) == (can and call.status == "asked")

    def _answer_again(self, name: str, call: Call, how: str, can: bool) -> None:
        old = call.decision
        assert old is not None
        answer = Answer(
            name,
            (call.id,),
            "deny" if old.verdict == "deny" else "approve",
            arguments=call.edited,
            for_session=old.for_session,
            reason=old.reason if how == "same" else "for another reason",
            end_turn=old.end_turn,
            by="someone else",
        )
        before = encode_checkpoint(self.core.checkpoint)
        assert self._submit(answer) == (can and how == "same")
        assert encode_checkpoint(self.core.checkpoint) == before

    def _do_prepared(self, how: str) -> None:
        effects = Effects()
        if how == "message":
            effects = Effects(messages=("mind this",), usage={"hook": Usage(1, 1)})
        elif how == "compact":
            shown = self.core.transcript.conversation.messages()
            places = [message.id for message in shown[1:] if message.role != "tool"]
            effects = Effects(summary=Summary("so far", places[-1] if places else ""))
        failure = Failure("hook", "it broke") if how == "error" else None
        self._report(Prepared(self._key(), effects, "enough" if how == "stop" else None, failure))

    def _do_reply(self, name: str) -> None:
        tools, stop = REPLIES[name]
        parts: list[Part] = [Reasoning("hm"), Text("done")]
        parts += [ToolCall("", tool, '{"n": 1}', "same") for tool in tools]
        key = self._key()
        self._report(AttemptReplied(key, tuple(parts), stop, usage=Usage(2, 1), model="m"), ends=False)
        if not self.scope.rules.after_model or self.core.stopping:
            self.running = None

    def _do_fail(self, how: str) -> None:
        kind = "context-overflow" if how == "overflow" else "cut"
        failure = Failure(kind, "the connection broke", retryable=how == "retryable")
        parts = (Text("half"), ToolCall("", "plain", "{"))
        self._report(AttemptFailed(self._key(), failure, parts, Usage(1), "m"))

    def _do_reviewed(self, how: str) -> None:
        again = "once more" if how == "again" else None
        stop = "enough" if how == "stop" else None
        failure = Failure("hook", "it broke") if how == "error" else None
        effects = Effects(messages=("note",)) if how == "message" else Effects()
        self._report(Reviewed(self._key(), effects, again, stop, failure))

    def _do_closed(self, how: str) -> None:
        self._report(Closed(self._key(), Effects(messages=("bye",)) if how == "message" else Effects()))

    def _do_done(self, at: str, status: str) -> None:
        call = self._call(at)
        self._happen([call.id])
        self._report(CallDone(self._key(), call.id, "ok" if status == "ok" else "error", "a result"), ends=False)

    def _do_look(self, at: str) -> None:
        """Look after a call at whatever the world says."""
        call = self._call(at)
        happened = bool(self.ledger.effects.get(call.id))
        if not happened:
            self.ledger.cleared.add(call.id)
        self._report(CallChecked(self._key(), call.id, "found" if happened else None), ends=False)

    def _do_policy(self, at: str, verdict: str) -> None:
        call = self._call(at)
        report = PolicyDecided(self._key(), call.id, verdict, "says the policy")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        if self.core.stopping:
            self._unchanged(lambda: self._refuse(report))
        else:
            self._report(report, ends=False)

    def _do_stopped(self, how: str) -> None:
        """The cancelled activity is gone; its calls had begun, or none of them had."""
        turn = self.core.turn
        assert turn is not None
        not_begun = tuple(self.working) if how == "not" else ()
        if how == "begun":
            self._happen(self.working)
        parts = (Text("seen so far"),)
        if self.core.stopping:
            self._report(Stopped(turn.id, parts, not_begun, Usage(1), "m"))

    def _do_tick(self) -> None:
        deadline = self.core.deadline
        assert deadline is not None
        self.now = max(self.now, deadline)
        self.core.tick(self.now)

    def _do_crash(self, effects: str) -> None:
        """The process dies, after or before the effects of the calls that it may have begun; another one goes on."""
        if effects == "after":
            self._happen(self.working)
        self.working = {}
        self.running = None
        self.last_report = None
        self.core = self.restored()
        self.now += 1.0
        self.core.resume(self.now)

    def _happen(self, calls: Iterable[str]) -> None:
        effects = self.ledger.effects
        for call in calls:
            effects[call] = effects.get(call, 0) + 1

    # Going on

    def advance(self) -> bool:
        """Let the most ordinary thing happen that brings the turn on; False if there is nothing left to do."""
        turn = self.core.turn
        if turn is None or turn.closed:
            return False
        action = self._ordinary(turn)
        assert action is not None, f"the turn hangs in {turn.state}"
        self.apply(action)
        return True

    def _ordinary(self, turn: TurnState) -> Action | None:
        if self.core.stopping:
            return ("stopped", "begun")
        for name in ("prepared", "reviewed", "closed", "reply", "look"):
            for action in self._reports():
                if action[0] == name and action[1] in ("ok", "text", "0", "1", "2", "3"):
                    return action
        for at, call in enumerate(turn.calls.values()):
            if call.status == "started":
                return ("done", str(at), "ok")
            if call.status == "proposed":
                return ("policy", str(at), "allow")
            if call.status == "asked" and turn.state == "awaiting-approval":
                expired = call.expires_at is not None and call.expires_at <= self.now
                return ("tick",) if expired else ("answer", str(at), "approve")
        return ("tick",) if self.core.deadline is not None else None

    def finish(self, bound: int = 60) -> None:
        """Go on until the turn has ended."""
        turn = self.core.turn
        first = "" if turn is None else turn.id
        for _ in range(bound):
            if not self.advance() or self.core.turn is None or self.core.turn.id != first:
                return
        raise AssertionError(f"{first} did not end")
