"""The messages of a session: a tree, the path that is visible, and the conversation that a model is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from .content import Part, Reasoning, Text, ToolCall, ToolResult, text_of
from .errors import CheckpointError
from .values import Value

__all__ = ["Conversation", "Message", "MessageStatus", "Role", "Timing", "Transcript", "Usage"]

Role = Literal["user", "assistant", "tool", "system"]
MessageStatus = Literal["complete", "incomplete"]


def _plus(a: float | None, b: float | None) -> Any:
    return b if a is None else a if b is None else a + b


@attrs.frozen(eq=False, repr=False)
class Usage(Value):
    """Tokens of a request or of many, and their cost. ``None`` means unknown, which is not 0.

    ``input`` counts everything that was sent, cached or not; ``cached`` (read from a cache) and ``cache_written`` are
    parts of it. ``output`` counts everything that was made; ``reasoning`` is a part of it. ``cost`` is in the currency of
    whoever sets it.

    >>> Usage(input=3, output=1) + Usage(input=4)
    Usage(input=7, output=1)
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_written: int | None = None
    reasoning: int | None = None
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            _plus(self.input, other.input),
            _plus(self.output, other.output),
            _plus(self.cached, other.cached),
            _plus(self.cache_written, other.cache_written),
            _plus(self.reasoning, other.reasoning),
            _plus(self.cost, other.cost),
        )

    @property
    def total(self) -> int:
        """Input and output tokens together, what is unknown counted as 0."""
        return (self.input or 0) + (self.output or 0)


@attrs.frozen(eq=False, repr=False)
class Timing(Value):
    """When an attempt was sent, gave its first piece and ended; seconds since the epoch."""

    started: float
    first: float | None = None
    ended: float | None = None


@attrs.frozen(eq=False, repr=False)
class Message(Value):
    """One message, never changed once it is written.

    ``id`` is unique in the session (``m12``), ``parent`` the message before it on its path. A tool's result is a message
    of its own with role ``tool``. ``status`` is ``incomplete`` for what was left of a reply when its turn ended.

    A summary of what was said so far has ``keeps``: the first message before it that a model is still shown, empty if
    there is none. From then on a model is shown the summary in the place of all that stands before that message.
    """

    id: str
    parent: str | None
    turn: str
    role: Role
    parts: tuple[Part, ...]
    created_at: float
    status: MessageStatus = "complete"
    model: str = ""
    usage: Usage | None = None
    timing: Timing | None = None
    metadata: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    keeps: str | None = None

    @property
    def text(self) -> str:
        """The visible text; for a tool's result what the model reads."""
        if self.role == "tool":
            return "".join(part.text for part in self.parts if isinstance(part, ToolResult))
        return text_of(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in it, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results in it."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


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
        self._last: Message | None = None

    def copy(self, *, whole: bool | None = None) -> Conversation:
        """An independent copy, with ``whole`` as given; the messages in it are shared."""
        other = Conversation(whole=self._whole if whole is None else whole)
        other._messages = list(self._messages)
        other._open = dict(self._open)
        other._last = self._last
        return other

    def add(self, message: Message) -> None:
        """Add the next message of the path."""
        if message.role == "tool":
            for result in message.results:
                if result.call in self._open and self._open[result.call] is None:
                    self._open[result.call] = _alone(message, result)
            if self._open and None not in self._open.values():
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

    def _missing(self, call: str) -> Message:
        assert self._last is not None
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
    """The message without parts that its role cannot hold: calls are a model's, results a tool's."""
    misplaced = (ToolResult,) if message.role == "assistant" else (ToolCall, ToolResult)
    if not any(isinstance(part, misplaced) for part in message.parts):
        return message
    return attrs.evolve(message, parts=tuple(part for part in message.parts if not isinstance(part, misplaced)))


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


class Transcript:
    """All messages of a session by id, and the path from the first to ``head``.

    ``conversation`` is what a model is shown of the path.

    Raises:
        CheckpointError: messages do not form a tree, or ``head`` is not among them.
    """

    def __init__(self, messages: Iterable[Message] = (), head: str | None = None) -> None:
        self._by_id: dict[str, Message] = {}
        for message in messages:
            self._by_id[message.id] = message
        self.head = head
        self.path: list[Message] = list(self._walk(head))
        self.conversation = self._history = Conversation()
        for message in self.path:
            self._show(message)

    def copy(self) -> Transcript:
        """An independent copy; the messages in it are shared."""
        other = Transcript.__new__(Transcript)
        other._by_id = dict(self._by_id)
        other.head = self.head
        other.path = list(self.path)
        other.conversation = other._history = self.conversation.copy()
        if self._history is not self.conversation:
            other._history = self._history.copy()
        return other

    def _show(self, message: Message) -> None:
        """Add a message of the path to the conversation, and to the whole history once that is something else."""
        if message.keeps is not None and self._history is self.conversation:
            self._history = self.conversation.copy(whole=True)
        self.conversation.add(message)
        if self._history is not self.conversation:
            self._history.add(message)

    def _walk(self, head: str | None) -> Iterator[Message]:
        found: list[Message] = []
        while head is not None:
            message = self._by_id.get(head)
            if message is None:
                raise CheckpointError(f"messages: {head} is on the path of the head but is not stored")
            found.append(message)
            if len(found) > len(self._by_id):
                raise CheckpointError(f"messages: the path of {self.head} goes in a circle")
            head = message.parent
        return reversed(found)

    def append(self, message: Message) -> None:
        """Add a message below the head and move the head to it."""
        if message.parent != self.head or message.id in self._by_id:
            raise AssertionError(f"{message.id} does not follow {self.head}")
        self._by_id[message.id] = message
        self.head = message.id
        self.path.append(message)
        self._show(message)

    def __getitem__(self, message: str) -> Message:
        return self._by_id[message]

    def get(self, message: str) -> Message | None:
        """The message with this id, or None."""
        return self._by_id.get(message)

    def __contains__(self, message: object) -> bool:
        return message in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    def all(self) -> tuple[Message, ...]:
        """All messages in the order they were written."""
        return tuple(self._by_id.values())

    def visible(self) -> Sequence[Message]:
        """The whole path, summaries and what they stand for included, with the results of each batch in call order."""
        return self._history.messages()
