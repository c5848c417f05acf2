"""Policies: who may do what. A policy of your own derives from :class:`Policy`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .base import Allow, AllowAll, AsDeclared, Ask, AskAll, Deny, Policy, PolicyContext, Verdict

if TYPE_CHECKING:
    from .command import ShellCommand
    from .conditions import Between, Condition, Not, OneOf
    from .hosts import Host
    from .paths import Under
    from .reviewer import Reviewer
    from .rules import Rule, RuleOrderWarning, Rules

__all__ = [
    "Allow",
    "AllowAll",
    "AsDeclared",
    "Ask",
    "AskAll",
    "Between",
    "Condition",
    "Deny",
    "Host",
    "Not",
    "OneOf",
    "Policy",
    "PolicyContext",
    "Reviewer",
    "Rule",
    "RuleOrderWarning",
    "Rules",
    "ShellCommand",
    "Under",
    "Verdict",
]

LAZY = {
    "Between": "conditions",
    "Condition": "conditions",
    "Host": "hosts",
    "Not": "conditions",
    "OneOf": "conditions",
    "Reviewer": "reviewer",
    "Rule": "rules",
    "RuleOrderWarning": "rules",
    "Rules": "rules",
    "ShellCommand": "command",
    "Under": "paths",
}


def __getattr__(name: str) -> Any:
    """Import what is large when it is first asked for, so that importing the package is quick."""
    if name in LAZY:
        return getattr(importlib.import_module(f".{LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
