"""What a model is shown of a path of messages."""

from __future__ import annotations

import attrs

from .content import Quote, Reasoning, Text, ToolCall, ToolResult
from .message import Message

__all__ = ["Conversation"]


class Conversation:
    """What a model is shown of a path: every call with exactly one result, right after it, in call order.

    It grows with the path: adding a message costs the same however long the path is. Results wait until their batch is
    complete; a batch that another message cuts short gets a result for each call that has none, so that whatever the
    history holds, the request is one that a strict provider accepts. Results without a call are left out.

    A summary takes the place of all before the message that it keeps, as a person's message, if that is a place where a
    conversation may be cut. With ``whole``, which is for people, it stands where it was written and cuts nothing.

    >>> c = Conversation()
    >>> c.add(Message("m1", None, "t1", "assistant", (ToolCall("m1.0", "f", "{}"),), 0.0))
    >>> c.add(Message("m2", "m1", "t1", "user", (Text("stop"),), 0.0))
    >>> [(m.role, m.text) for m in c.messages()]
    [('assistant', ''), ('tool', 'not run: no result was recorded'), ('user', 'stop')]
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._messages: list[Message] = []
        self._open: dict[str, Message | None] = {}
        self._due = 0
        self._last: Message | None = None

    def copy(self, *, whole: bool | None = None) -> Conversation:
        """An independent copy, with ``whole`` as given; the messages in it are shared."""
        other = Conversation(whole=self._whole if whole is None else whole)
        other._messages = list(self._messages)
        other._open = dict(self._open)
        other._due = self._due
        other._last = self._last
        return other

    def add(self, message: Message) -> None:
        """Add the next message of the path."""
        if message.role == "tool":
            for result in message.results:
                if result.call in self._open and self._open[result.call] is None:
                    self._open[result.call] = _alone(message, result)
                    self._due -= 1
            if self._open and not self._due:
                self._flush()
            return
        self._flush()
        message = _in_place(message)
        if message.keeps is not None and not self._whole:
            self._start_from(message, message.keeps)
        elif _shown(message):
            self._messages.append(message)
        calls = message.calls
        if calls:
            self._last = message
            self._open = {call.id: None for call in calls}
            self._due = len(self._open)

    def _start_from(self, summary: Message, keeps: str) -> None:
        at = self.cut_before(keeps)
        if at is not None and summary.parts:
            self._messages[:at] = [attrs.evolve(summary, role="user")]

    def cut_before(self, keeps: str) -> int | None:
        """How many messages a summary that keeps this message takes the place of; None if it cannot cut there.

        A conversation is cut before a person's or a model's message, never between a call and its results.
        """
        if not keeps:
            return len(self._messages) or None
        for at in range(len(self._messages) - 1, 0, -1):
            if self._messages[at].id == keeps:
                return at if self._messages[at].role in ("user", "assistant") else None
        return None

    def _flush(self) -> None:
        for call, message in self._open.items():
            self._messages.append(message or self._missing(call))
        self._open = {}
        self._due = 0

    def _missing(self, call: str) -> Message:
        assert self._last is not None, "results come after the reply that asked for them"
        text = "not run: no result was recorded"
        return Message(
            f"{call}!",
            self._last.id,
            self._last.turn,
            "tool",
            (ToolResult(call, text, "not-run"),),
            self._last.created_at,
        )

    def messages(self) -> tuple[Message, ...]:
        """All messages so far; a batch that is still open is shown complete, so ask when it is settled."""
        if self._open:
            rest = tuple(message or self._missing(call) for call, message in self._open.items())
            return (*self._messages, *rest)
        return tuple(self._messages)


def _alone(message: Message, result: ToolResult) -> Message:
    """One result as a message of its own: an imported message may hold several."""
    if len(message.parts) == 1:
        return message
    return attrs.evolve(message, id=f"{message.id}!{result.call}", parts=(result,))


def _in_place(message: Message) -> Message:
    """The message as providers take it: calls are a model's, results a tool's, and a quote is text with marks before it."""
    misplaced = (ToolResult,) if message.role == "assistant" else (ToolCall, ToolResult)
    if not any(isinstance(part, (*misplaced, Quote)) for part in message.parts):
        return message
    kept = (part for part in message.parts if not isinstance(part, misplaced))
    return attrs.evolve(message, parts=tuple(part.as_text() if isinstance(part, Quote) else part for part in kept))


def _shown(message: Message) -> bool:
    """Whether there is anything in it that a provider accepts: not an incomplete reply of blanks."""
    if message.role != "assistant":
        return bool(message.parts)
    return any(
        bool(part.text.strip())
        if isinstance(part, Text)
        else not isinstance(part, Reasoning) or message.status == "complete"
        for part in message.parts
    )
