"""A policy of rules: patterns of tools, and conditions on their arguments."""

from __future__ import annotations

import fnmatch
import logging
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import attrs
import trio

from turnstate_states import checks
from turnstate_states.errors import InvalidInput
from turnstate_states.turn import Call

from .base import Allow, Ask, Deny, Policy, PolicyContext, Verdict
from .conditions import Condition, as_condition
from .order import disputed

__all__ = ["Rule", "RuleOrderWarning", "Rules"]

log = logging.getLogger("turnstate")

Values = Mapping[str, Any]


class RuleOrderWarning(UserWarning):
    """The outcome of a list of rules depends on their order, and nobody said that it should."""


def _tool(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{field.name}: expected a pattern of names (text), got {checks.shown(value)}")


def _arguments(arguments: Mapping[str, str | Condition]) -> Mapping[str, str | Condition]:
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"arguments: expected conditions by argument, got {type(arguments).__name__}")
    for name, condition in arguments.items():
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"arguments: expected names of arguments (text), got {name!r}")
        as_condition(condition, f"arguments: {name}")
    return MappingProxyType(dict(arguments))


def _verdict(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, (Allow, Ask, Deny)):
        raise InvalidInput(f"{field.name}: expected Allow(), Ask() or Deny(), got {checks.shown(value)}")


@attrs.frozen(repr=False, hash=False)
class Rule:
    """A verdict for calls of some tools with some arguments.

    ``tool`` is a pattern of names. ``arguments`` has a condition by argument: a pattern, or a
    :class:`~turnstate.policy.Condition`. Patterns have ``*``, ``?`` and ``[...]``, as in file names; case counts. A value
    that is not text is compared as JSON.

    Conditions see the values that the tool gets, after defaults and conversions, as JSON has them. They may be unable to
    tell, which also holds for all of them where the arguments cannot be read. A rule that allows needs to know that it
    fits; one that denies or asks counts as fitting unless it is known not to, and also if only a part of the value fits. An
    argument that the tool does not have does not fit; one that it has and the call leaves out cannot be told.

    >>> Rule("read_*", Allow()).fits(Call("m1.0", "read_file", proposed='{"path": "a"}'))
    True
    >>> Rule("*", Deny("no"), {"path": "/etc/*"}).fits(Call("m1.0", "read_file", proposed='{"path": "a"}'))
    False

    Raises:
        InvalidInput: a field is not of its type.
    """

    tool: str = attrs.field(validator=_tool)
    verdict: Verdict = attrs.field(validator=_verdict)
    arguments: Mapping[str, str | Condition] = attrs.field(factory=dict[str, "str | Condition"], converter=_arguments)
    conditions: Mapping[str, Condition] = attrs.field(init=False, eq=False)
    """``arguments``, with each pattern as the condition that it stands for."""

    @conditions.default  # pyright: ignore[reportAttributeAccessIssue, reportUntypedFunctionDecorator, reportUnknownMemberType]
    def _conditions(self) -> Mapping[str, Condition]:
        return {name: as_condition(value, name) for name, value in self.arguments.items()}

    def __repr__(self) -> str:
        arguments = f", {dict(self.arguments)!r}" if self.arguments else ""
        return f"Rule({self.tool!r}, {self.verdict!r}{arguments})"

    @property
    def strictness(self) -> int:
        """0 for a rule that allows, 1 for one that asks, 2 for one that denies."""
        return strictness(self.verdict)

    @property
    def blocking(self) -> bool:
        """Whether a condition waits for something."""
        return any(condition.blocking for condition in self.conditions.values())

    def fits(self, call: Call, parameters: Values | None = None) -> bool | None:
        """Whether the rule fits the whole call; None if it cannot tell.

        ``parameters`` is the JSON Schema of the tool's arguments, which says what an argument that is left out means.
        """
        return self.judge(call.tool, values_of(call), parameters)[1]

    def judge(self, tool: str, values: Values | None, parameters: Values | None) -> tuple[bool | None, bool | None]:
        """Whether the rule touches a call, and whether it fits all of it; the values are None if they cannot be read."""
        if not fnmatch.fnmatchcase(tool, self.tool):
            return False, False
        touches: bool | None = True
        fits: bool | None = True
        for name, condition in self.conditions.items():
            if values is None or name not in values:
                partly = wholly = None if values is None or _may_have(parameters, name) else False
            else:
                partly, wholly = _ask(condition.touches, values[name]), _ask(condition.fits, values[name])
            touches, fits = _both(touches, partly), _both(fits, wholly)
        return touches, fits


def strictness(verdict: Verdict) -> int:
    """0 for a verdict that allows, 1 for one that asks, 2 for one that denies."""
    return 2 if isinstance(verdict, Deny) else int(isinstance(verdict, Ask))


def values_of(call: Call) -> Values | None:
    """The arguments of a call, or None if they cannot be read."""
    try:
        return call.arguments
    except Exception:
        return None


def _may_have(parameters: Values | None, name: str) -> bool:
    """Whether a tool may have an argument of this name, as its schema says; a schema of another kind may mean anything."""
    if parameters is None or not isinstance(parameters.get("properties", {}), Mapping):
        return True
    return name in parameters.get("properties", {}) or not parameters.keys().isdisjoint(OTHER_SCHEMAS)


OTHER_SCHEMAS = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}


def _ask(question: Any, value: object) -> bool | None:
    try:
        answer = question(value)
    except Exception:
        log.exception("the condition %r failed, so it cannot tell", getattr(question, "__self__", question))
        return None
    return answer if isinstance(answer, bool) else None


def _both(one: bool | None, other: bool | None) -> bool | None:
    return False if one is False or other is False else None if one is None or other is None else True


class Rules(Policy[Any]):
    """Rules decide on a call; where none fits, the tool's own declaration does, or ``otherwise`` if it is given.

    With ``order="first"`` the first rule that fits decides. With ``order="strictest"`` one that denies goes before one that
    asks, and that before one that allows; among equals the first decides. Permissions are those of the one rule that
    decides, they are never joined.

    Without ``order`` it is the first. If a call may then be allowed or asked about by a rule although a later one is
    stricter, a :class:`~turnstate.policy.RuleOrderWarning` names the two: the later one would have no say. Either order
    silences it. It is a warning because such a list is not wrong: ``Rule("read_*", Allow())`` before ``Rule("*", Deny())``
    makes an exception. It cannot always be known that no call fits two rules; then they are named as well.

    A rule that cannot tell whether it fits never makes the outcome milder. One that denies does so. One that asks does so,
    unless a later one denies. Where one that would allow cannot tell, the rules after it decide, but if they allow the call
    something that it would not have allowed, a person is asked.

    Rules judge what a call says it will do. They are no sandbox: what the call does may differ from what it says, and the
    world may change in between.

    Args:
        rules: in order.
        order: which of several rules that fit decides.
        otherwise: the verdict where none fits.

    Raises:
        InvalidInput: an argument cannot be used.
    """

    def __init__(
        self,
        *rules: Rule,
        order: Literal["first", "strictest"] | None = None,
        otherwise: Allow | Ask | Deny | None = None,
    ) -> None:
        for rule in rules:
            if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidInput(f"rules: expected Rule objects, got {type(rule).__name__}")
        if order is not None and not (isinstance(order, str) and order in ("first", "strictest")):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"order: expected 'first' or 'strictest', got {checks.shown(order)}")
        if otherwise is not None and not isinstance(otherwise, (Allow, Ask, Deny)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"otherwise: expected Allow(), Ask() or Deny(), got {checks.shown(otherwise)}")
        self.rules = rules
        self.order = order or "first"
        self.otherwise = otherwise
        strict = order == "strictest"
        self._ranked = sorted(rules, key=lambda rule: -rule.strictness) if strict else list(rules)
        if order is None and (pair := disputed(rules)):
            warnings.warn(
                f"the outcome depends on the order of these rules: {pair[0]} comes before {pair[1]}, which is stricter and "
                "may fit the same call; put the stricter one first, or say order='first' or order='strictest'",
                RuleOrderWarning,
                stacklevel=2,
            )

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        parameters = ctx.definition.parameters
        if any(rule.blocking for rule in self.rules):
            # A file system may hang. Nothing is changed, so a thread that is left behind does no harm.
            found = await trio.to_thread.run_sync(self._possible, call, parameters, abandon_on_cancel=True)
        else:
            found = self._possible(call, parameters)
        verdicts, sure = found
        if not sure:
            if self.otherwise is not None:
                verdicts.append(self.otherwise)
            elif not any(map(strictness, verdicts)):  # a declaration cannot deny
                verdicts.append(ctx.declared)
        return _strictest(verdicts)

    def _possible(self, call: Call, parameters: Values) -> tuple[list[Verdict], bool]:
        """The verdicts that may be the call's, in order, and whether the last is that of a rule that surely fits."""
        values = values_of(call)
        verdicts: list[Verdict] = []
        for rule in self._ranked:
            touches, fits = rule.judge(call.tool, values, parameters)
            if (fits if isinstance(rule.verdict, Allow) else touches) is False:
                continue
            verdicts.append(rule.verdict)
            if fits or isinstance(rule.verdict, Deny):
                return verdicts, True
        return verdicts, False


def _strictest(verdicts: list[Verdict]) -> Verdict:
    """What is at least as strict as each of these, of which the last one is sure if the others are not."""
    strict = max(verdicts, key=strictness)  # the first of equals
    if not isinstance(strict, Allow):
        return strict
    *doubtful, last = verdicts
    assert isinstance(last, Allow), "the strictest verdict allows"
    if all(_within(last, other) for other in doubtful if isinstance(other, Allow)):
        return last
    return Ask("it cannot be told whether a rule fits that would allow less", network=last.network, write=last.write)


def _within(one: Allow, other: Allow) -> bool:
    """Whether a verdict gives no permission that the other does not give."""
    return (not one.network or other.network) and set(one.write) <= set(other.write)
