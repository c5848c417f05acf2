"""What a model is to the engine: one coroutine that turns a request into a complete reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from turnstate_states.content import Part, text_of
from turnstate_states.errors import ModelError
from turnstate_states.transcript import Message, Usage
from turnstate_states.turn import Stop
from turnstate_states.values import Value

__all__ = ["DeltaKind", "Model", "ModelRequest", "OnDelta", "Reply", "ToolDefinition"]

DeltaKind = Literal["text", "reasoning", "call", "arguments"]
"""``call``: a call opened, the text is its tool's name; ``arguments``: a piece of the arguments of the call in ``slot``."""

OnDelta = Callable[[DeltaKind, str, int], None]
"""``on_delta(kind, text, slot)``: a plain function, to be called in the model's task for every piece as it arrives.

``slot`` numbers the calls of the reply from 0; it is 0 for text and reasoning.
"""


@attrs.frozen(eq=False, repr=False)
class ToolDefinition(Value):
    """A tool as a model is told of it; ``parameters`` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@attrs.define
class ModelRequest:
    """One request.

    ``messages`` is in the order that providers want: after each assistant message with calls come their results, one for
    each call, in call order, each in a message of its own with role ``tool``. ``additions`` are texts for this request
    only. ``cache`` lives as long as the session is driven; an adapter keeps what it encoded in it, under keys of its own
    (message ids are unique in it). ``attempt`` is the attempt's id, ``settings`` those of the turn.
    """

    session: str
    attempt: str
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    additions: list[str] = attrs.field(factory=list[str])
    cache: dict[Any, Any] = attrs.field(factory=dict[Any, Any], repr=False)

    def add(self, text: str) -> None:
        """Add a text to this request only; it is not stored."""
        self.additions.append(text)


@attrs.frozen(eq=False, repr=False)
class Reply(Value):
    """A complete reply. Its tool calls have no ``id`` yet: the engine gives them theirs.

    ``stop`` is why the model stopped, in one vocabulary for all providers; ``raw_stop`` the provider's own word.
    """

    parts: tuple[Part, ...]
    stop: Stop = "stop"
    raw_stop: str = ""
    usage: Usage = attrs.field(factory=Usage)
    model: str = ""
    metadata: Mapping[str, Any] = attrs.field(factory=dict[str, Any])

    @property
    def text(self) -> str:
        """The visible text."""
        return text_of(self.parts)


class Model(ABC):
    """Base class of adapters."""

    name: str = ""
    """The model's name; usage is counted under it."""

    tells_cost: bool | None = None
    """Whether replies tell what they cost, in ``usage.cost``; None where that is not known before. An agent with
    ``Limits(cost=...)`` refuses a model that never does."""

    @abstractmethod
    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        """Send the request and wait for the whole reply, telling pieces to ``on_delta`` as they arrive.

        Raises:
            ModelError: anything short of a complete reply.
        """

    def check_settings(self, settings: Mapping[str, Any]) -> None:  # noqa: B027 - many models take any
        """Check settings of a turn before it is begun. The default accepts all.

        Raises:
            InvalidInput: the model does not know one of them, or a value does not fit.
        """

    async def aclose(self) -> None:  # noqa: B027 - most models have nothing to close
        """Close connections; an engine does it when it is left. The default has none.

        Other engines may use the model at the same time: what is under way goes on, and a later request connects again.
        """


def as_model_error(error: BaseException) -> ModelError:
    """Any exception of an adapter as a :class:`ModelError`, its cause attached."""
    if isinstance(error, ModelError):
        return error
    wrapped = ModelError(f"{type(error).__name__}: {error}", kind="other")
    wrapped.__cause__ = error
    return wrapped
