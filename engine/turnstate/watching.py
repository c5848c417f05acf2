"""Who waits for what a driver does: senders for a receipt, holders of a turn for its end."""

from __future__ import annotations

import attrs
import trio

from turnstate_states.checkpoint import Checkpoint
from turnstate_states.errors import Refused
from turnstate_states.events import MessageRemoved, NumberedEvent, TurnEnded, TurnStarted
from turnstate_states.submissions import Receipt
from turnstate_states.transcript import Conversation, Message, Transcript

from .records import waiting_calls
from .results import Result, calls_in

__all__ = ["Slot", "Watcher", "result_of", "waiting_result"]


class Slot:
    """Where a sender waits for what became of its submission."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self.receipt: Receipt | None = None
        self.error: Exception | None = None

    def resolve(self, receipt: Receipt | None, error: Exception | None = None) -> None:
        """Say what became of it."""
        self.receipt, self.error = receipt, error
        self._done.set()

    async def wait(self) -> Receipt:
        """The receipt, or the error."""
        await self._done.wait()
        if self.error is not None:
            raise self.error
        assert self.receipt is not None, "a slot is resolved with a receipt or an error"
        return self.receipt


@attrs.define(eq=False)
class Watcher:
    """Somebody who waits for a turn: the one that ``cause`` starts (or, with ``next``, whichever starts next).

    ``missed`` says that its holder did not see all events, so that the end may not be among those still to come.
    """

    cause: str
    next: bool = False
    turn: str = ""
    ended: Result[str] | None = None
    last: TurnEnded | None = None
    missed: bool = False
    failed: BaseException | None = None
    error: Exception | None = None
    changed: trio.Event = attrs.field(factory=trio.Event)

    def poke(self) -> None:
        """Have whoever waits look again."""
        self.changed.set()
        self.changed = trio.Event()

    def see(self, event: NumberedEvent, transcript: Transcript, failed: BaseException | None) -> None:
        """Take notice of an event that is durable; ``failed`` is the exception with which the turn failed, if it did."""
        if isinstance(event, TurnStarted):
            if not self.turn and (self.next or event.cause == self.cause):
                self.turn = event.turn
        elif isinstance(event, TurnEnded):
            if self.turn and event.turn == self.turn and self.last is None:
                self.last = event
                self.ended = result_of(event, transcript)
                self.failed = failed if event.outcome == "failed" else None
        elif isinstance(event, MessageRemoved) and not self.turn and event.id == self.cause:
            self.give_up(Refused("gone", f"message {event.id} was taken back before its turn began"))

    def give_up(self, error: Exception) -> None:
        """No end will come."""
        if self.ended is None and self.error is None:
            self.error = error


def result_of(event: TurnEnded, transcript: Transcript) -> Result[str]:
    """The result of a turn that ended."""
    messages = messages_of(event.turn, transcript)
    text = _last_text(messages)
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


def waiting_result(checkpoint: Checkpoint, transcript: Transcript, watcher: Watcher) -> Result[str] | None:
    """The result of a turn that only a person can make go on, as it is stored; None if it is not so.

    Also that of a turn whose message waits behind such a turn, or is held after one that did not complete.
    """
    state = checkpoint.turn
    asking = state is not None and state.state == "awaiting-approval" and state.ending is None
    if not watcher.turn:
        if all(item.id != watcher.cause for item in checkpoint.queue):
            return None
        if asking:
            reason = "the turn before it waits for an answer"
            return Result("", "waiting", "", reason=reason, calls=waiting_calls(checkpoint))
        reason = "its message is held, because the turn before it did not complete; resume the session"
        return Result("", "waiting", "", reason=reason) if checkpoint.held and _over(checkpoint) else None
    if state is None or not asking or state.id != watcher.turn:
        return None
    messages = messages_of(state.id, transcript)
    text = _last_text(messages)
    calls = calls_in(messages, state.calls)
    return Result(state.id, "waiting", text, text, usage=state.usage, calls=calls, messages=messages, steps=state.steps)


def _over(checkpoint: Checkpoint) -> bool:
    return checkpoint.turn is None or checkpoint.turn.closed


def messages_of(turn: str, transcript: Transcript) -> list[Message]:
    """The messages of a turn on the path, the results of each reply's calls in call order."""
    found: list[Message] = []
    for message in reversed(transcript.path):
        if message.turn == turn:
            found.append(message)
        elif found:
            break
    conversation = Conversation(whole=True)
    for message in reversed(found):
        conversation.add(message)
    return [message for message in conversation.messages() if message.id in transcript]


def _last_text(messages: list[Message]) -> str:
    return next((message.text for message in reversed(messages) if message.role == "assistant"), "")
