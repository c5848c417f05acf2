"""The texts that a model reads in place of a result."""

from __future__ import annotations

__all__ = ["denied", "edited", "not_run", "unknown", "unknown_tool"]

SHOWN = 2000
"""Characters of changed arguments that a model is told."""


def denied(reason: str) -> str:
    """For a call that a person or a policy denied."""
    return f"tool denied: {reason or 'the user declined'}"


def edited(arguments: str) -> str:
    """For a call whose arguments a person changed; stands behind what it gave.

    >>> edited('{"n": 2}')
    '\\n(a person changed the arguments of this call to {"n": 2})'
    """
    shown = arguments if len(arguments) <= SHOWN else f"{arguments[:SHOWN]}... ({len(arguments)} characters)"
    return f"\n(a person changed the arguments of this call to {shown})"


def not_run(reason: str) -> str:
    """For a call that certainly had no effect."""
    return f"not run: {reason}"


def unknown(reason: str) -> str:
    """For a call that may have had its effect."""
    return f"execution interrupted; result unknown: {reason}"


def unknown_tool(name: str, available: list[str]) -> str:
    """For a call of a tool that does not exist."""
    return f"unknown tool {name}; available: {', '.join(sorted(available)) or 'none'}"
