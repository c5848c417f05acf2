"""Asking a person about a call, and understanding the answer."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from turnstate_states.errors import InvalidInput

from ..states import Call
from .terminal import Piece, Terminal, styled
from .text import display_width, value_text, visible

__all__ = ["Row", "Said", "described", "edited", "understood"]

Row = tuple[Piece, ...]
"""A line in pieces."""

Verdict = Literal["yes", "no", "edit", "always"]
WORDS: Mapping[str, Verdict] = {
    "y": "yes", "yes": "yes", "n": "no", "no": "no", "e": "edit", "edit": "edit", "a": "always", "always": "always",
}  # fmt: skip
NAME_COLUMN = 26


@attrs.frozen
class Said:
    """An answer: what, and what follows it on the line (why not, or the new arguments)."""

    verdict: Verdict
    rest: str = ""


def understood(line: str) -> Said | None:
    """A line as an answer to a request for approval; None if it is none.

    >>> understood("n, too much"), understood("what?")
    (Said(verdict='no', rest='too much'), None)
    """
    found = re.fullmatch(r"([a-z]+)(?:$|[\s,;:]+(.*))", line.strip(), re.IGNORECASE | re.DOTALL)
    verdict = WORDS.get(found[1].lower()) if found else None
    if found is None or verdict is None:
        return None
    rest = (found[2] or "").strip()
    if rest and (verdict in ("yes", "always") or (verdict == "edit" and not rest.startswith("{") and "=" not in rest)):
        return None
    return Said(verdict, rest)


def edited(call: Call, text: str) -> dict[str, Any]:
    """The arguments of a call, changed as a person says: ``name=value`` pairs or a JSON object; what is not named stays.

    >>> edited(Call("m1.0", "pay", proposed='{"to": "Ana", "euros": 120.0}'), "euros=90")
    {'to': 'Ana', 'euros': 90}

    Raises:
        InvalidInput: it is neither.
    """
    current = dict(call.arguments)
    if text.lstrip().startswith("{"):
        try:
            changes: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise InvalidInput(f"this is not JSON: {error}") from None
        return current | changes
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInput(f"this cannot be read ({error}): write name=value, or a JSON object") from None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidInput(f"{word!r} is not name=value: write such pairs, or a JSON object")
        current[name] = value if isinstance(current.get(name), str) else _value(value)
    return current


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def described(terminal: Terminal, call: Call, indent: str = "      ") -> list[Row]:
    """What is asked about a call as rows: its arguments, one below the other, with every character of them, and how far it
    reaches.
    """
    try:
        arguments = call.arguments
    except InvalidInput:
        return [(indent, row) for row in terminal.rows(visible(call.arguments_json), len(indent))]
    return [*_argument_rows(terminal, arguments, indent), *_reach_rows(terminal, call, indent)]


def _reach_rows(terminal: Terminal, call: Call, indent: str) -> list[Row]:
    """Who asks, what the call may reach, what an approval for the session covers, and what changed since it was asked."""
    facts: list[str] = []
    if call.agent:
        facts.append(f"asked by the agent {visible(call.agent)}")
    if call.permissions is not None and call.permissions.network:
        facts.append("may use the network")
    if call.permissions is not None and call.permissions.write:
        facts.append(f"may write below {', '.join(map(visible, call.permissions.write))}")
    if call.covers == "tool":
        facts.append("'always' covers this tool with any arguments")
    if call.changed:
        facts.append(f"changed since it was asked before: {', '.join(call.changed)}")
    return [(indent, styled(row, "dim")) for fact in facts for row in terminal.rows(fact, len(indent))]


def _argument_rows(terminal: Terminal, arguments: Mapping[str, Any], indent: str) -> list[Row]:
    names = {name: visible(name) for name in arguments}
    column = min(max(map(display_width, names.values()), default=0) + 2, NAME_COLUMN)
    found: list[Row] = []
    for name, value in arguments.items():
        shown = names[name]
        rows = _value_rows(terminal, value, len(indent) + column)
        if (width := display_width(shown)) < column:
            found.append((indent, styled(shown, "dim"), " " * (column - width), rows.pop(0)))
        else:
            found += ((indent, styled(row, "dim")) for row in terminal.rows(shown, len(indent)))
        found += ((indent, " " * column, row) for row in rows)
    return found


def _value_rows(terminal: Terminal, value: Any, indent: int) -> list[str]:
    if isinstance(value, str) and "\n" in value.strip():
        rows = value.removesuffix("\n").split("\n")
        return [part for row in rows for part in terminal.rows(visible(row), indent)]
    return terminal.rows(value_text(value), indent)
