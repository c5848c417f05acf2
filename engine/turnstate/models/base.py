"""What a model is to the engine: one coroutine that turns a request into a complete reply."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import attrs

from turnstate_states import checks
from turnstate_states.content import Part, text_of
from turnstate_states.errors import InvalidInput, ModelError
from turnstate_states.transcript import Message, Usage
from turnstate_states.turn import Stop
from turnstate_states.values import Value

from ..failures import describe

__all__ = ["DeltaKind", "Model", "ModelRequest", "OnDelta", "Reply", "ToolDefinition"]

log = logging.getLogger("turnstate")

DeltaKind = Literal["text", "reasoning", "call", "arguments"]
"""``call``: a call opened, the text is its tool's name; ``arguments``: a piece of the arguments of the call in ``slot``."""

OnDelta = Callable[[DeltaKind, str, int], None]
"""``on_delta(kind, text, slot)``: a plain function, to be called in the model's task for every piece as it arrives.

``slot`` numbers the calls of the reply from 0; it is 0 for text and reasoning.
"""


@attrs.frozen(eq=False, repr=False)
class ToolDefinition(Value):
    """A tool as a model is told of it; ``parameters`` is a JSON Schema of type object."""

    name: str = attrs.field(validator=checks.validator(checks.instance, kind=str, expected="text"))
    description: str = attrs.field(validator=checks.validator(checks.instance, kind=str, expected="text"))
    parameters: Mapping[str, Any] = attrs.field(validator=checks.validator(checks.mapping))


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


STOP: Any = checks.validator(checks.choice, choices=get_args(Stop))


def _parts(value: Iterable[Part]) -> tuple[Part, ...]:
    return checks.array("Reply.parts", value, get_args(Part), "parts of a message")


def check_usage(where: str, usage: object) -> Usage:
    """Counts that can be added up: each is None or a number from 0."""
    counted = checks.instance(where, usage, Usage, "Usage")
    for name in ("input", "output", "cached", "cache_written", "reasoning"):
        checks.optional(checks.integer, f"{where}.{name}", getattr(counted, name), least=0, expected="None or a number")
    if counted.cost is not None and checks.number(f"{where}.cost", counted.cost, least=0) == math.inf:
        raise InvalidInput(f"{where}.cost: expected None or a number, got inf")
    return counted


@attrs.frozen(eq=False, repr=False)
class Reply(Value):
    """A complete reply. Its tool calls have no ``id`` yet: the engine gives them theirs.

    ``stop`` is why the model stopped, in one vocabulary for all providers; ``raw_stop`` the provider's own word.

    Raises:
        InvalidInput: a value is of another type, or ``metadata`` is not plain JSON; the text names it.
    """

    parts: tuple[Part, ...] = attrs.field(converter=_parts)
    stop: Stop = attrs.field(default="stop", validator=STOP)
    raw_stop: str = attrs.field(default="", validator=checks.validator(checks.text))
    usage: Usage = attrs.field(factory=Usage, validator=checks.validator(check_usage))
    model: str = attrs.field(default="", validator=checks.validator(checks.text))
    metadata: Mapping[str, Any] = attrs.field(factory=dict[str, Any], validator=checks.validator(checks.json_object))

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
    """Any exception of an adapter as a :class:`ModelError`, its cause attached; its text is in the log alone."""
    if isinstance(error, ModelError):
        return error
    log.error("a model raised", exc_info=error)
    wrapped = ModelError(describe(error), kind="other")
    wrapped.__cause__ = error
    return wrapped
