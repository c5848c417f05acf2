"""What is declared about tools and limits: given when a session is opened, never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from . import checks
from .arguments import read_arguments
from .asking import Prompt
from .errors import InvalidInput
from .values import Value

__all__ = ["Bound", "Kind", "Limits", "OnCrash", "Rules", "ToolSpec"]

Kind = Literal["plain", "outside", "agent"]
"""Who does what a call asks for: a function here, somebody outside, or an agent below."""

OnCrash = Literal["report", "rerun", "check"]
"""What happens to a call that had started when its process died: tell the model that the outcome is unknown, run it again
(the tool is idempotent), or ask a function that looks at the world."""


@attrs.frozen(eq=False, repr=False)
class Bound(Value):
    """Arguments held against a tool's parameters.

    ``fault`` is what is wrong with them, for the model, or empty. ``filled`` is JSON text: what defaults and conversions
    added or changed.
    """

    fault: str = ""
    filled: str = ""


def _as_given(arguments: str) -> Bound:
    try:
        read_arguments(arguments)
    except InvalidInput as error:
        return Bound(str(error))
    return Bound()


def _no_prompt(_: str) -> Prompt | None:
    return None


@attrs.frozen(eq=False, repr=False)
class ToolSpec(Value):
    """What the machine knows about a tool.

    ``bind`` takes a call's arguments (JSON text) and holds them against the tool's parameters.
    ``approval`` is ``policy`` where something outside of the machine must decide. ``outside``: there is no function to run,
    somebody else says what a call gives; ``agent``: an agent below does it. ``prompt`` takes the arguments as well and says
    how a person is asked. ``schema`` stands for the parameters with their defaults (a digest), and ``version`` for what the
    author says that it is: an approval holds for a tool whose name, kind, schema, crash rule and version are the same.
    """

    name: str
    approval: Literal["never", "always", "policy"] = "never"
    exclusive: bool = False
    on_crash: OnCrash = "report"
    ends_on_input: bool = False
    expires: float | None = None
    outside: bool = False
    agent: bool = False
    schema: str = ""
    version: str = ""
    prompt: Callable[[str], Prompt | None] = attrs.field(default=_no_prompt, eq=False, repr=False)
    bind: Callable[[str], Bound] = attrs.field(default=_as_given, eq=False, repr=False)

    @property
    def kind(self) -> Kind:
        """Who does what a call asks for."""
        return "outside" if self.outside else "agent" if self.agent else "plain"


def _count(least: int, *, none: bool = False) -> Callable[[Any, Any, Any], None]:
    return _limit(none, checks.integer, least=least)


def _amount(least: float) -> Callable[[Any, Any, Any], None]:
    return _limit(True, checks.number, least=least)


def _limit(none: bool, check: Callable[..., Any], **more: Any) -> Callable[[Any, Any, Any], None]:
    expected = "None or a number" if none else "a number"
    checked = checks.validator(check, expected=expected, **more)

    def validate(owner: object, field: attrs.Attribute[Any], value: object) -> None:
        if value is not None or not none:
            checked(owner, field, value)

    return validate


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Limits(Value):
    """When a turn ends by itself, with outcome ``limit``; it can be resumed with fresh counts.

    Args:
        steps: requests to the model in one turn (retries of a step are not counted); None for no limit.
        calls: tool calls in one reply. A reply with more is given up as soon as that shows, and none of them is kept.
        characters: characters of text, reasoning and arguments in one reply; one with more is given up as well.
        tokens: input and output tokens of the turn. Looked at before each request, with what those before it used: the one
            that goes over it is made, and the turn ends before the next.
        seconds: time that the turn was at work: without waits for people and without downtime.
        cost: the sum of the costs that the model reported, looked at in the same way. An agent refuses it with a model that
            never tells its costs (Anthropic, Gemini) unless middleware may count them; where a model of another kind tells
            none, people are told by :class:`~turnstate.Warned`.
        attempts: attempts of one step before the turn fails.
        resumptions: how often a step may be cut off by the end of its process before the turn fails.
        grants: approvals for the session that are kept; the oldest goes out.
        queue: messages that may wait.

    Raises:
        InvalidInput: a value is not a number or too small.

    >>> Limits(steps=5).calls
    128
    """

    steps: int | None = attrs.field(default=50, validator=_count(1, none=True))
    calls: int = attrs.field(default=128, validator=_count(1))
    characters: int = attrs.field(default=16_000_000, validator=_count(1))
    tokens: int | None = attrs.field(default=None, validator=_count(1, none=True))
    seconds: float | None = attrs.field(default=None, validator=_amount(0))
    cost: float | None = attrs.field(default=None, validator=_amount(0))
    attempts: int = attrs.field(default=5, validator=_count(1))
    resumptions: int = attrs.field(default=3, validator=_count(0))
    grants: int = attrs.field(default=64, validator=_count(1))
    queue: int = attrs.field(default=256, validator=_count(1))


def _no_tools() -> Mapping[str, ToolSpec]:
    return {}


def _no_commands() -> Mapping[str, bool]:
    return {}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Rules(Value):
    """Everything that is declared: tools by name, limits, and which hooks there are.

    ``commands`` are those that middleware carries out, by name; whether one may run while a turn does.
    ``makes_room``: a hook before requests can summarise a conversation that was too long for the model.
    ``delay`` and ``longest_delay`` shape the back-off between attempts, in seconds: the first delay, doubled each time, at
    most the longest. A server that asks for more than ``longest_wait`` seconds fails the turn instead.
    """

    tools: Mapping[str, ToolSpec] = attrs.field(factory=_no_tools)
    limits: Limits = attrs.field(factory=Limits)
    commands: Mapping[str, bool] = attrs.field(factory=_no_commands)
    before_model: bool = False
    after_model: bool = False
    turn_ended: bool = False
    makes_room: bool = False
    passes: int = 3
    agains: int = 2
    delay: float = 0.5
    longest_delay: float = 8.0
    longest_wait: float = 60.0
