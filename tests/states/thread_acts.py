"""What may happen to the thread of a world, to calls that wait for others, and to commands."""

from __future__ import annotations

import attrs

from tests.states.acting import Acting
from tests.states.scope import Action
from turnstate_states.content import Text
from turnstate_states.reports import CallSuspended, CommandDone, Effects
from turnstate_states.submissions import Annotate, Command, Delete, Edit, Provide, Regenerate, Submission, Switch
from turnstate_states.transcript import Message, Usage
from turnstate_states.turn import Call, Nested, TurnState

VALUES = {"result": {"n": 1}, "falsy": False, "error": "it broke", "preliminary": None}
NESTED = {
    "one": (Nested("m1.0", "rm"),),
    "two": (Nested("m1.0", "rm"), Nested("m1.1", "look", wants="result")),
    "brief": (Nested("m1.0", "rm", expires_at=1030.0),),
}
BEGINNINGS = 3
"""How often a call begins before it does not suspend any more: searches are to come to an end."""


@attrs.define(eq=False)
class ThreadActs(Acting):
    """A session in which branches are made and shown, calls wait for others, and commands are carried out."""

    # What may happen

    def thread_submissions(self, over: bool) -> list[Action]:
        """Changes of the thread, and commands; ``over``: no more turns are to start."""
        found: list[Action] = []
        for kind in self.scope.changes:
            if not (over and kind in ("edit", "regenerate")):
                found += [("change", kind, target) for target in self.scope.targets]
        return [*found, *(("command", name) for name in self.scope.commands)]

    def command_reports(self) -> list[Action]:
        """What middleware may say of a command."""
        return [("commanded", how) for how in ("quiet", "message", "error")] if self.core.commands else []

    def nested_submissions(self, at: str, call: Call) -> list[Action]:
        """What may be said to the calls nested in a call."""
        found: list[Action] = [("answer", at, "approve")] if call.status == "asked" else []
        for inner in call.nested:
            name = f"{at}/{inner.id}"
            if inner.decision is None:
                found += [("answer", name, how) for how in self.scope.answers]
                found += [("provide", name, how) for how in self.scope.provides]
            elif inner.decision.verdict == "provide":
                found += [("provide", name, "again"), ("provide", name, "other")]
            else:
                found += [("answer", name, how) for how in ("same", "other")]
        return found

    def outside_submissions(self, at: str, call: Call) -> list[Action]:
        """What may be said to a call instead of a decision."""
        if call.status == "asked":
            return [("provide", at, how) for how in self.scope.provides]
        if call.decision is not None and call.decision.verdict == "provide":
            return [("provide", at, "again"), ("provide", at, "other")]
        return []

    def suspensions(self, at: str, call: Call) -> list[Action]:
        """For what a running call may wait."""
        if call.tool != "sub" or call.began >= BEGINNINGS or call.id not in self.working:
            return []
        return [("suspend", at, how) for how in self.scope.suspends]

    # What happens

    def _do_change(self, kind: str, target: str) -> None:
        """Change the thread, where that is possible and where it is not."""
        message = self._target(kind, target)
        name = self.new_id("change")
        parts = (Text("otherwise"),)
        changes: dict[str, Submission] = {
            "edit": Edit(name, message, parts),
            "regenerate": Regenerate(name, message),
            "switch": Switch(name, message),
            "delete": Delete(name, message),
            "annotate": Annotate(name, message, {"note": target}),
        }
        known = target != "bad" and message in self.core.transcript
        self.expect(changes[kind], known and (kind == "annotate" or self._free()))

    def _target(self, kind: str, target: str) -> str:
        messages = self.core.transcript.all()
        if target == "bad":
            wrong = [message.id for message in messages if message.role == "tool"]
            return wrong[-1] if wrong and kind in ("edit", "regenerate", "delete") else "m0"
        found = [message.id for message in messages if _fits(message, kind)]
        return "m0" if not found else found[0 if target == "old" else -1]

    def _free(self) -> bool:
        """Whether the thread may be changed: no turn works, and no other change waits."""
        turn = self.core.turn
        rests = turn is None or turn.closed or (turn.state == "awaiting-approval" and turn.ending is None)
        return rests and self.core.checkpoint.pending is None

    def _do_command(self, name: str) -> None:
        turn, rules = self.core.turn, self.rules
        allowed = rules.commands[name] or turn is None or turn.closed
        room = len(self.core.commands) < rules.limits.queue
        self.expect(Command(self.new_id("command"), name, {"n": [1]}), allowed and room)

    def _do_commanded(self, how: str) -> None:
        command = self.core.commands[0]
        messages = ("look at this",) if how == "message" else ()
        effects = Effects(messages=messages, events=(("noted", 1),), usage={"below": Usage(1)}, title="called so")
        report = CommandDone(command.id, {"n": 1}, effects, "it broke" if how == "error" else "")
        self.report(report, ends=False)
        self.unchanged(lambda: self.refuse(report))

    def _do_provide(self, at: str, how: str) -> None:
        call = self.call(at)
        name, before = self.new_id("provide"), self.provided.get(call.id)
        if how in ("again", "other"):
            assert before is not None
            said = attrs.evolve(before, id=name, by="someone else")
            if how == "other":
                said = attrs.evolve(said, result=[said.result])
            self.unchanged(lambda: self.expect(said, self.open() and how == "again"))
            return
        said = Provide(name, call.id, VALUES[how], error=how == "error", preliminary=how == "preliminary")
        expired = call.expires_at is not None and call.expires_at <= self.now
        asked = call.status == "asked" and call.wants != "nested" and call.decision is None
        accepted = self.open() and asked and not expired
        self.expect(said, accepted)
        if accepted and how != "preliminary":
            self.provided[call.id] = said

    def _do_suspend(self, at: str, how: str) -> None:
        """A call that runs waits for others; it may have done something already."""
        call = self.call(at)
        report = CallSuspended(self.key(), call.id, NESTED[how])
        self.happen([call.id])
        del self.working[call.id]
        if self.core.stopping:
            self.unchanged(lambda: self.refuse(report))
            return
        self.ledger.suspended.add(call.id)
        self.report(report, ends=False)
        self.unchanged(lambda: self.refuse(report))
        self.last_report = None  # once the call has begun again, it may suspend for the same

    def ordinary_answer(self, at: str, call: Call, turn: TurnState) -> Action | None:
        """What brings a call on that waits for somebody."""
        if call.status != "asked" or turn.state != "awaiting-approval":
            return None
        if call.expires_at is not None and call.expires_at <= self.now:
            return ("tick",)
        asked = next((inner for inner in call.nested if inner.decision is None), None)
        if call.wants == "nested" and asked is not None:
            return ("provide" if asked.wants == "result" else "answer", f"{at}/{asked.id}", _usual(asked.wants))
        return ("provide" if call.wants == "result" else "answer", at, _usual(call.wants))


def _usual(wants: str) -> str:
    return "result" if wants == "result" else "approve"


def _fits(message: Message, kind: str) -> bool:
    if kind == "edit":
        return message.role == "user"
    if kind == "regenerate":
        return message.role == "user" or (message.role == "assistant" and message.parent is not None)
    return kind != "delete" or message.role != "tool"
