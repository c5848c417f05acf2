"""Policies: who may do what. A policy of your own derives from :class:`Policy`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .base import Allow, AllowAll, AsDeclared, Ask, AskAll, Deny, Policy, PolicyContext, Verdict

if TYPE_CHECKING:
    from .reviewer import Reviewer
    from .rules import Rule, Rules

__all__ = [
    "Allow",
    "AllowAll",
    "AsDeclared",
    "Ask",
    "AskAll",
    "Deny",
    "Policy",
    "PolicyContext",
    "Reviewer",
    "Rule",
    "Rules",
    "Verdict",
]

LAZY = {"Reviewer": "reviewer", "Rule": "rules", "Rules": "rules"}


def __getattr__(name: str) -> Any:
    """Import what is large when it is first asked for, so that importing the package is quick."""
    if name in LAZY:
        return getattr(importlib.import_module(f".{LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
