"""A policy of rules: patterns of tools and arguments, the first that fits decides."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from typing import Any

import attrs

from turnstate_states.errors import InvalidInput
from turnstate_states.turn import Call

from .base import Allow, Ask, Deny, Policy, PolicyContext, Verdict

__all__ = ["Rule", "Rules"]


def _patterns(arguments: Mapping[str, str]) -> Mapping[str, str]:
    for name, pattern in arguments.items():
        if not isinstance(pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"arguments: {name}: expected a pattern (text), got {type(pattern).__name__}")
    return dict(arguments)


def _verdict(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, (Allow, Ask, Deny)):
        raise InvalidInput(f"{field.name}: expected Allow(), Ask() or Deny(), got {value!r}")


@attrs.frozen
class Rule:
    """A verdict for calls of some tools with some arguments.

    ``tool`` is a pattern of names and ``arguments`` one of patterns by argument, with ``*``, ``?`` and ``[...]`` as in file
    names; case counts. A value that is not text is compared as JSON. An argument that the call does not have does not fit.

    >>> Rule("read_*", Allow()).fits(Call("m1.0", "read_file", proposed='{"path": "a"}'))
    True
    >>> Rule("*", Deny("no"), {"path": "/etc/*"}).fits(Call("m1.0", "read_file", proposed='{"path": "a"}'))
    False
    """

    tool: str
    verdict: Verdict = attrs.field(validator=_verdict)
    arguments: Mapping[str, str] = attrs.field(factory=dict[str, str], converter=_patterns)

    def fits(self, call: Call) -> bool:
        """Whether the rule is about this call."""
        if not fnmatch.fnmatchcase(call.tool, self.tool):
            return False
        values = call.arguments
        return all(
            name in values and fnmatch.fnmatchcase(_text(values[name]), pattern)
            for name, pattern in self.arguments.items()
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


class Rules(Policy[Any]):
    """The first rule that fits decides; where none does, the tool's own declaration, or ``otherwise`` if it is given.

    A pattern of arguments sees what the model wrote, not what it means: ``a/../b`` is not ``b``. Deny by default what must
    not happen, and allow what you know.
    """

    def __init__(self, *rules: Rule, otherwise: Allow | Ask | Deny | None = None) -> None:
        for rule in rules:
            if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidInput(f"rules: expected Rule objects, got {type(rule).__name__}")
        if otherwise is not None and not isinstance(otherwise, (Allow, Ask, Deny)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"otherwise: expected Allow(), Ask() or Deny(), got {otherwise!r}")
        self.rules = rules
        self.otherwise = otherwise

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        for rule in self.rules:
            if rule.fits(call):
                return rule.verdict
        return ctx.declared if self.otherwise is None else self.otherwise
