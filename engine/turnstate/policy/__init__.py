"""Policies: who may do what. A policy of your own derives from :class:`Policy`."""

from __future__ import annotations

from .base import Allow, AllowAll, AsDeclared, Ask, AskAll, Deny, Policy, PolicyContext, Verdict
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
