"""The messages of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from .content import Part, ToolCall, ToolResult, text_of
from .values import Value

__all__ = ["Message", "MessageStatus", "Role", "Source", "Timing", "Usage"]

Role = Literal["user", "assistant", "tool", "system"]
MessageStatus = Literal["complete", "incomplete", "deleted"]
Source = Literal["", "agent", "hook", "engine"]
"""Who wrote what stands in a message, where that is not who its role says."""


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

    A message with ``changes`` is no message of the thread but the record of a change to these earlier ones: with the
    status ``deleted`` they are gone and what followed them follows their parents; otherwise its metadata is laid over theirs
    (None takes a key away).

    ``source`` says who wrote it where the role does not: of the messages with role ``user`` those without a source are a
    person's own words, ``agent`` is the task that an agent above gives, ``hook`` and ``engine`` are words of the program.
    ``origin`` is the sender's own id of a person's message.
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
    changes: tuple[str, ...] = ()
    source: Source = ""
    origin: str = ""

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
