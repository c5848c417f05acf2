"""A session for examples: say what happens in a line each; every commit is checked on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, TypeVar

import attrs
import pytest

from tests.states.hosted import Hosted
from tests.states.ledger import Ledger
from turnstate_states.checkpoint import Commit
from turnstate_states.codec import encode_checkpoint
from turnstate_states.content import Part, Text, ToolCall
from turnstate_states.core import SessionCore
from turnstate_states.errors import InvalidInput, RefusalCode, Refused
from turnstate_states.events import EventBase
from turnstate_states.reports import (
    Activity,
    AttemptFailed,
    AttemptReplied,
    CallChecked,
    CallDone,
    CallSuspended,
    Closed,
    CommandDone,
    PolicyDecided,
    Prepared,
    Report,
    Reviewed,
    Stopped,
)
from turnstate_states.rules import Rules, ToolSpec
from turnstate_states.submissions import (
    Annotate,
    Answer,
    Command,
    Delete,
    Delivery,
    Edit,
    Interrupt,
    Provide,
    Receipt,
    Regenerate,
    Send,
    Submission,
    Switch,
    Verdict,
)
from turnstate_states.transcript import Message, Transcript, Usage
from turnstate_states.turn import Call, CallStatus, Failure, Nested, Stop, TurnState

E = TypeVar("E", bound=EventBase)

BROKEN = Failure("cut", "the connection broke", retryable=True)


def rules(*tools: ToolSpec, **more: Any) -> Rules:
    """Rules with these tools."""
    return Rules(tools={tool.name: tool for tool in tools}, **more)


def wants(*names: str, arguments: str = "{}") -> tuple[Part, ...]:
    """The parts of a reply that calls these tools."""
    return tuple(ToolCall("", name, arguments) for name in names)


@attrs.define(eq=False)
class Scene(Hosted):
    """A session in which you are the client, the model, the tools and the clock."""

    count: int = 0

    @classmethod
    def of(cls, *tools: ToolSpec, **more: Any) -> Scene:
        """A new session under rules with these tools."""
        declared = rules(*tools, **more)
        scene = cls(declared, SessionCore.new("s", declared, now=1000.0), Ledger(declared.tools))
        scene.stored = encode_checkpoint(scene.core.checkpoint)
        return scene

    @classmethod
    def started(cls, *tools: ToolSpec, **more: Any) -> Scene:
        """A session whose first request is with the model."""
        scene = cls.of(*tools, **more)
        scene.say("hi")
        return scene

    @classmethod
    def calling(cls, *tools: ToolSpec, **more: Any) -> Scene:
        """A session whose model has called each of these tools once, in order."""
        scene = cls.started(*tools, **more)
        scene.reply(*wants(*(tool.name for tool in tools)))
        return scene

    @classmethod
    def beginning(cls, commit: Commit, *tools: ToolSpec, **more: Any) -> Scene:
        """A session that begins with a commit that is no answer to anything."""
        declared = rules(*tools, **more)
        transcript = Transcript(commit.messages, commit.checkpoint.head, commit.checkpoint.chosen)
        core = SessionCore(commit.checkpoint.copy(), transcript, declared)
        scene = cls(declared, core, Ledger(declared.tools))
        scene._write(commit)
        return scene

    @property
    def turn(self) -> TurnState:
        """The current or last turn."""
        assert self.core.turn is not None
        return self.core.turn

    @property
    def calls(self) -> list[Call]:
        """The calls of the batch, in order."""
        return list(self.turn.calls.values())

    @property
    def statuses(self) -> list[CallStatus]:
        """Their statuses."""
        return [call.status for call in self.calls]

    @property
    def held(self) -> bool:
        """Whether waiting messages stay."""
        return self.core.checkpoint.held

    @property
    def queued(self) -> list[str]:
        """The ids of the messages that wait for a turn."""
        return [item.id for item in self.core.checkpoint.queue]

    @property
    def steers(self) -> list[str]:
        """The ids of the messages that wait for this turn's next request."""
        return [item.id for item in self.core.checkpoint.steers]

    @property
    def shown(self) -> list[tuple[str, str]]:
        """The roles and texts that a model would be shown now."""
        return [(message.role, message.text) for message in self.core.transcript.conversation.messages()]

    def told(self, kind: type[E]) -> list[E]:
        """The events of a kind."""
        return [event for event in self.log if isinstance(event, kind)]

    def last(self) -> Message:
        """The newest message."""
        return self.core.transcript.path[-1]

    def result(self, call: str) -> str:
        """What the model reads as the result of a call."""
        for message in self.core.transcript.path:
            for result in message.results:
                if result.call == call:
                    return result.text
        raise AssertionError(f"{call} has no result")

    # Clients

    def submit(self, submission: Submission, known: Receipt | None = None) -> Receipt:
        """Submit, and drive on."""
        receipt = self.core.submit(submission, now=self.now, known=known)
        self.drive()
        return receipt

    def say(self, text: str, delivery: Delivery = "queue", **more: Any) -> Receipt:
        """Send a message; their ids are send1, send2, ..."""
        self.count += 1
        return self.submit(Send(f"send{self.count}", (Text(text),), delivery, **more))

    def call_id(self, at: int | str) -> str:
        """The id of the call at a place: ``1``, or ``"1/m1.0"`` for one nested in it."""
        place, _, inner = str(at).partition("/")
        return self.calls[int(place)].id + (f"/{inner}" if inner else "")

    def answer(self, verdict: Verdict, *at: int | str, **more: Any) -> Receipt:
        """Answer the calls at these places."""
        self.count += 1
        return self.submit(Answer(f"answer{self.count}", tuple(map(self.call_id, at)), verdict, **more))

    def provide(self, at: int | str, result: Any = None, **more: Any) -> Receipt:
        """Give the result of the call at a place."""
        self.count += 1
        return self.submit(Provide(f"provide{self.count}", self.call_id(at), result, **more))

    def edit(self, message: str, text: str, **more: Any) -> Receipt:
        """Say a message otherwise."""
        self.count += 1
        return self.submit(Edit(f"edit{self.count}", message, (Text(text),), **more))

    def regenerate(self, message: str, **more: Any) -> Receipt:
        """Have a message answered again."""
        self.count += 1
        return self.submit(Regenerate(f"regenerate{self.count}", message, **more))

    def switch(self, message: str) -> Receipt:
        """Show the path through a message."""
        self.count += 1
        return self.submit(Switch(f"switch{self.count}", message))

    def delete(self, message: str) -> Receipt:
        """Take a message out."""
        self.count += 1
        return self.submit(Delete(f"delete{self.count}", message))

    def annotate(self, message: str, **metadata: Any) -> Receipt:
        """Lay metadata over a message's."""
        self.count += 1
        return self.submit(Annotate(f"annotate{self.count}", message, metadata))

    def command(self, name: str, **arguments: Any) -> Receipt:
        """Have a command carried out."""
        self.count += 1
        return self.submit(Command(f"command{self.count}", name, arguments))

    def refuse(self, submission: Submission, code: RefusalCode) -> None:
        """This is refused with this code and changes nothing."""
        with self.nothing_changes(), pytest.raises(Refused) as caught:
            self.core.submit(submission, now=self.now + 5)
        assert caught.value.code == code

    def invalid(self, submission: Submission, match: str) -> None:
        """This makes no sense and changes nothing; the error names the field."""
        with self.nothing_changes(), pytest.raises(InvalidInput, match=f"^{match}"):
            self.core.submit(submission, now=self.now + 5)

    def ignored(self, report: Report) -> None:
        """This report does not count and changes nothing."""
        with self.nothing_changes():
            assert not self.core.report(report, now=self.now)

    @contextlib.contextmanager
    def nothing_changes(self) -> Generator[None]:
        """What happens inside changes neither state nor history."""
        before, messages = encode_checkpoint(self.core.checkpoint), self.core.transcript.all()
        yield
        assert encode_checkpoint(self.core.checkpoint) == before
        assert self.core.transcript.all() == messages
        assert self.core.commit(self.now + 5) is None

    def interrupt(self, **more: Any) -> Receipt:
        """Interrupt whichever turn runs."""
        self.count += 1
        return self.submit(Interrupt(f"interrupt{self.count}", **more))

    # Activities

    @property
    def key(self) -> Activity:
        """The key of the running activity."""
        assert self.running is not None
        return self.running

    def report(self, report: Report) -> None:
        """Report something that counts, from an activity that is over with it, and drive on."""
        assert self.core.report(report, now=self.now)
        if not isinstance(report, (CallDone, CallSuspended, CallChecked, PolicyDecided, CommandDone)):
            self.running = None
        self.drive()

    def reply(self, *parts: Part, stop: Stop | None = None, usage: Usage | None = None) -> None:
        """The model replies; with no parts, a text."""
        said = parts or (Text("done"),)
        calls = any(isinstance(part, ToolCall) for part in said)
        reason: Stop = stop or ("tool-calls" if calls else "stop")
        self.report(AttemptReplied(self.key, said, reason, usage=usage or Usage(), model="m"))

    def fail(self, failure: Failure = BROKEN, *parts: Part, usage: Usage | None = None) -> None:
        """The attempt breaks."""
        self.report(AttemptFailed(self.key, failure, parts, usage or Usage(), "m"))

    def done(self, at: int, text: str = "a result") -> None:
        """A call returns."""
        call = self.calls[at].id
        self.ledger.effects[call] = 1
        self.report(CallDone(self.key, call, "ok", text))

    def suspend(self, at: int, *nested: Nested) -> None:
        """A call waits for calls nested in it."""
        call = self.calls[at].id
        self.ledger.effects[call] = 1
        self.ledger.suspended.add(call)
        del self.working[call]
        self.report(CallSuspended(self.key, call, nested))

    def commanded(self, command: str, **more: Any) -> None:
        """A command was carried out."""
        self.report(CommandDone(command, **more))

    def decide(self, at: int, verdict: str, reason: str = "") -> None:
        """The policy decides on a call."""
        chosen: Any = verdict
        self.report(PolicyDecided(self.key, self.calls[at].id, chosen, reason))

    def prepared(self, **more: Any) -> None:
        """The hooks before the request are done."""
        self.report(Prepared(self.key, **more))

    def reviewed(self, **more: Any) -> None:
        """The hooks after the reply are done."""
        self.report(Reviewed(self.key, **more))

    def closed(self, **more: Any) -> None:
        """The hooks after the turn are done."""
        self.report(Closed(self.key, **more))

    def stopped(self, *parts: Part, not_begun: tuple[str, ...] = (), usage: Usage | None = None) -> None:
        """The cancelled activity is gone."""
        self.report(Stopped(self.turn.id, parts, not_begun, usage or Usage(), "m"))

    # Time and death

    def wait(self, seconds: float) -> None:
        """Let time pass, ticking at each deadline on the way."""
        end = self.now + seconds
        while self.core.deadline is not None and self.core.deadline <= end:
            deadline = self.core.deadline
            self.now = max(self.now, deadline)
            self.core.tick(self.now)
            self.drive()
            assert self.core.deadline is None or self.core.deadline > deadline, "the tick did nothing"
        self.now = end

    def crash(self, seconds: float = 1.0, rules: Rules | None = None) -> None:
        """The process dies; after some seconds another one goes on, maybe under other rules."""
        self.running = None
        self.working = {}
        self.now += seconds
        self.rules = rules or self.rules
        self.core = self.restored()
        self.core.resume(self.now)
        if self.core.deadline is not None and self.core.deadline <= self.now:
            self.core.tick(self.now)
        self.drive()
