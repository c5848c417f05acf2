"""A world around one session: driver, store, clients, tools and clock, in which every step can be chosen.

:class:`World` enumerates what may happen next and checks the invariants after every commit. Searches walk through it.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from tests.states.ledger import Ledger
from tests.states.scope import EDITED, REPLIES, Action, Scope
from tests.states.thread_acts import ThreadActs
from turnstate_states.codec import (
    encode_checkpoint,
)
from turnstate_states.content import Part, Reasoning, Text, ToolCall
from turnstate_states.core import SessionCore
from turnstate_states.errors import Refused
from turnstate_states.reports import (
    AttemptFailed,
    AttemptReplied,
    CallChecked,
    CallDone,
    Closed,
    Effects,
    PolicyDecided,
    Prepared,
    Reviewed,
    Stopped,
    Summary,
)
from turnstate_states.submissions import (
    Answer,
    Delivery,
    EditQueued,
    Interrupt,
    RemoveQueued,
    Resume,
    RevokeGrant,
    Send,
)
from turnstate_states.thread import Thread, begin_session
from turnstate_states.transcript import Message, Transcript, Usage
from turnstate_states.turn import Call, Failure, TurnState

ELSEWHERE = Thread(
    (
        Message("a", None, "t1", "user", (Text("from"),), 0.0),
        Message("m2", "a", "t1", "assistant", (ToolCall("x.0", "plain", "{}"), Text("else")), 0.0),
        Message("m3", "a", "t1", "assistant", (Text("where"),), 0.0),
    ),
    "m2",
    {"a": "m2"},
)


@attrs.define(eq=False)
class World(ThreadActs):
    """A session with everything around it."""

    @classmethod
    def new(cls, scope: Scope) -> World:
        """A world in which nothing has happened."""
        core = SessionCore.new("s", scope.rules, now=1000.0)
        world = cls(scope.rules, core, Ledger(scope.rules.tools), scope=scope)
        world.stored = encode_checkpoint(core.checkpoint)
        if scope.imported:
            commit = begin_session("s", ELSEWHERE, now=1000.0)
            transcript = Transcript(commit.messages, commit.checkpoint.head, commit.checkpoint.chosen)
            world.core = SessionCore(commit.checkpoint.copy(), transcript, scope.rules)
            world._write(commit)
        return world

    def copy(self) -> World:
        """An independent copy."""
        other = attrs.evolve(self)
        other.core = self.core.copy()
        other.ledger = self.ledger.copy()
        for name in ("log", "messages", "receipts", "written", "working", "provided"):
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
                batches += [(report, ("change", kind, "old")) for kind in self.scope.changes]
                if "supersede" in self.scope.sends:
                    batches.append((report, ("send", "supersede")))
            batches.append((("crash", "after"), ("interrupt", "now")))
        return batches

    def _reports(self) -> list[Action]:
        turn = self.core.turn
        found: list[Action] = self.command_reports()
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
            if call.status == "started" and call.id in self.working:
                found += [("done", str(at), "ok"), ("done", str(at), "error"), *self.suspensions(str(at), call)]
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
        found += self.thread_submissions(over)
        for at, call in enumerate(() if turn is None else turn.calls.values()):
            if call.nested:
                found += self.nested_submissions(str(at), call)
            elif call.status == "asked":
                found += [("answer", str(at), how) for how in self.scope.answers]
            elif call.decision is not None:
                found += [("answer", str(at), how) for how in ("same", "other")]
            if not call.nested:
                found += self.outside_submissions(str(at), call)
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

    def _do_send(self, how: str) -> None:
        name = self.new_id("send")
        delivery: Delivery = "steer" if how == "steer" else "supersede" if how == "supersede" else "queue"
        self.say(Send(name, (Text(f"say {how}"),), delivery))

    def _do_edit(self) -> None:
        checkpoint = self.core.checkpoint
        target = (*checkpoint.steers, *checkpoint.queue)[0].id
        assert self.say(EditQueued(self.new_id("edit"), target, (Text("say it otherwise"),)))

    def _do_remove(self) -> None:
        checkpoint = self.core.checkpoint
        target = (*checkpoint.steers, *checkpoint.queue)[-1].id
        assert self.say(RemoveQueued(self.new_id("remove"), target))
        assert not self.say(RemoveQueued(self.new_id("remove"), target))

    def _do_resume(self) -> None:
        self.say(Resume(self.new_id("resume")))

    def _do_revoke(self) -> None:
        assert self.say(RevokeGrant(self.new_id("revoke"), self.core.checkpoint.grants[0].id))

    def _do_interrupt(self, how: str) -> None:
        turn = self.core.turn
        active = turn is not None and not turn.final
        name = None if how == "now" else "t0"
        before = encode_checkpoint(self.core.checkpoint)
        stopping = self.core.stopping
        assert self.say(Interrupt(self.new_id("interrupt"), name)) == (active and how == "now")
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

        self.unchanged(again)
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
            self.unchanged(lambda: self.refuse(last))
        for call in self.working:
            self.unchanged(lambda call=call: self.refuse(CallChecked(self.key(), call, None)))  # type: ignore[misc]

    def _do_answer(self, at: str, how: str) -> None:
        name = self.new_id("answer")
        if at == "x":
            assert not self.say(Answer(name, ("m0.0",), "approve"))
            return
        call = self.call(at)
        if call.decision is not None:
            self._answer_again(name, call, how)
            return
        expired = call.expires_at is not None and call.expires_at <= self.now
        deny = how.startswith("deny")
        answer = Answer(
            name,
            (call.id,),
            "deny" if deny else "" if how in ("option", "text") else "approve",
            arguments=EDITED if how == "edited" else None,
            for_session=how == "session",
            end_turn=how == "deny-end",
            option="__proto__" if how == "option" else "",
            text="yes" if how == "text" else "",
        )
        fits = call.wants != "nested" and (call.wants == "decision" or deny) and how != "text"
        fits = fits and (how != "option" or call.prompt is not None)
        self.expect(answer, self.open() and call.status == "asked" and not expired and fits)

    def _answer_again(self, name: str, call: Call, how: str) -> None:
        old = call.decision
        assert old is not None
        answer = Answer(
            name,
            (call.id,),
            "deny" if old.verdict == "deny" else "approve",
            arguments=None if old.verdict == "deny" else call.edited,
            for_session=old.for_session,
            reason=old.reason if how == "same" else "for another reason",
            end_turn=old.end_turn,
            by="someone else",
            option=old.option,
        )
        accepted = self.open() and how == "same" and old.verdict != "provide"
        self.unchanged(lambda: self.expect(answer, accepted))

    def _do_prepared(self, how: str) -> None:
        effects = Effects()
        if how == "message":
            effects = Effects(messages=("mind this",), usage={"hook": Usage(1, 1)})
        elif how == "compact":
            shown = self.core.transcript.conversation.messages()
            places = [message.id for message in shown[1:] if message.role != "tool"]
            effects = Effects(summary=Summary("so far", places[-1] if places else ""))
        failure = Failure("hook", "it broke") if how == "error" else None
        self.report(Prepared(self.key(), effects, "enough" if how == "stop" else None, failure))

    def _do_reply(self, name: str) -> None:
        tools, stop = REPLIES[name]
        parts: list[Part] = [Reasoning("hm"), Text("done")]
        parts += [ToolCall("", tool, '{"n": 1}', "same") for tool in tools]
        key = self.key()
        self.report(AttemptReplied(key, tuple(parts), stop, usage=Usage(2, 1), model="m"), ends=False)
        if not self.scope.rules.after_model or self.core.stopping:
            self.running = None

    def _do_fail(self, how: str) -> None:
        kind = "context-overflow" if how == "overflow" else "cut"
        failure = Failure(kind, "the connection broke", retryable=how == "retryable")
        parts = (Text("half"), ToolCall("", "plain", "{"))
        self.report(AttemptFailed(self.key(), failure, parts, Usage(1), "m"))

    def _do_reviewed(self, how: str) -> None:
        again = "once more" if how == "again" else None
        stop = "enough" if how == "stop" else None
        failure = Failure("hook", "it broke") if how == "error" else None
        effects = Effects(messages=("note",)) if how == "message" else Effects()
        self.report(Reviewed(self.key(), effects, again, stop, failure))

    def _do_closed(self, how: str) -> None:
        self.report(Closed(self.key(), Effects(messages=("bye",)) if how == "message" else Effects()))

    def _do_done(self, at: str, status: str) -> None:
        call = self.call(at)
        self.happen([call.id])
        self.report(CallDone(self.key(), call.id, "ok" if status == "ok" else "error", "a result"), ends=False)

    def _do_look(self, at: str) -> None:
        """Look after a call at whatever the world says."""
        call = self.call(at)
        happened = bool(self.ledger.effects.get(call.id))
        if not happened:
            self.ledger.cleared.add(call.id)
        self.report(CallChecked(self.key(), call.id, "found" if happened else None), ends=False)

    def _do_policy(self, at: str, verdict: str) -> None:
        call = self.call(at)
        report = PolicyDecided(self.key(), call.id, verdict, "says the policy")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        if self.core.stopping:
            self.unchanged(lambda: self.refuse(report))
        else:
            self.report(report, ends=False)

    def _do_stopped(self, how: str) -> None:
        """The cancelled activity is gone; its calls had begun, or none of them had."""
        turn = self.core.turn
        assert turn is not None
        not_begun = tuple(self.working) if how == "not" else ()
        if how == "begun":
            self.happen(self.working)
        parts = (Text("seen so far"),)
        if self.core.stopping:
            self.report(Stopped(turn.id, parts, not_begun, Usage(1), "m"))

    def _do_tick(self) -> None:
        deadline = self.core.deadline
        assert deadline is not None
        self.now = max(self.now, deadline)
        self.core.tick(self.now)

    def _do_crash(self, effects: str) -> None:
        """The process dies, after or before the effects of the calls that it may have begun; another one goes on."""
        if effects == "after":
            self.happen(self.working)
        self.working = {}
        self.running = None
        self.last_report = None
        self.core = self.restored()
        self.now += 1.0
        self.core.resume(self.now)

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
            answer = self.ordinary_answer(str(at), call, turn)
            if answer is not None:
                return answer
        return ("tick",) if self.core.deadline is not None else None

    def finish(self, bound: int = 60) -> None:
        """Go on until the turn has ended."""
        turn = self.core.turn
        first = "" if turn is None else turn.id
        for _ in range(bound):
            if not self.advance() or self.core.turn is None or self.core.turn.id != first:
                return
        raise AssertionError(f"{first} did not end")
