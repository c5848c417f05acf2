"""A thread as ``turnstate chat`` and ``turnstate show`` print it: who said what, and which branch of how many it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from turnstate_states.errors import Refused

from ..states import Hosted, Message, Quote, Refusal, Text, ToolCall
from .history import History
from .terminal import Terminal, styled
from .text import display_width, plain, short, shown_call, visible

__all__ = [
    "brief",
    "is_reference",
    "last_said",
    "position",
    "print_branches",
    "print_end",
    "print_messages",
    "resolve",
    "who",
]

WHO = {"user": "you", "assistant": "model", "system": "note", "tool": "result"}
BRIEF = 300
LONG = 4000


def who(message: Message) -> str:
    """Who said it."""
    return "note" if "from" in message.metadata else WHO[message.role]


def brief(message: Message, history: History) -> str:
    """What a message says, on one line."""
    said: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            said.append(f"→ {shown_call(history.call(part))}")
        elif isinstance(part, (Text, Refusal)):
            said.append(part.text)
        elif isinstance(part, Quote):
            said.append(f"> {part.text}")
        elif part.tag not in ("reasoning", "result"):
            said.append(f"[{part.kind if isinstance(part, Hosted) else part.tag}]")
    return short(" ".join(said), BRIEF)


def position(message: Message, history: History) -> str:
    """Which of how many branches it is (``2/3``); nothing where it is the only one."""
    branches = history.transcript.branches(message.id)
    return f"{branches.index(message.id) + 1}/{len(branches)}" if len(branches) > 1 else ""


# ---- naming a message


def is_reference(word: str, history: History) -> bool:
    """Whether a word names a message: its id, or the number in its id."""
    return word in history.transcript or re.fullmatch(r"m?\d+", word) is not None


def resolve(word: str, history: History) -> str:
    """The id of the message that a word names.

    Raises:
        Refused: there is none.
    """
    for name in (word, f"m{word}"):
        if name in history.transcript:
            return name
    raise Refused("gone", f"there is no message {word} here; /history lists them")


def last_said(history: History) -> Message:
    """The last visible message of the person.

    Raises:
        Refused: there is none.
    """
    for message in reversed(history.messages):
        if who(message) == "you":
            return message
    raise Refused("gone", "you said nothing yet")


# ---- printing


def print_messages(terminal: Terminal, messages: Iterable[Message], history: History) -> None:
    """Print each message on a line: its id, who said it, which branch it is, what it says."""
    _print_rows(terminal, [_row(message, history) for message in messages])


def _row(message: Message, history: History, mark: str = " ") -> tuple[str, ...]:
    return mark, visible(message.id), who(message), position(message, history), brief(message, history)


def _print_rows(terminal: Terminal, rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max((display_width(row[place]) for row in rows), default=0) for place in range(4)]
    for row in rows:
        cells = [cell + " " * (width - display_width(cell)) for cell, width in zip(row[:4], widths, strict=True)]
        head = f"  {'  '.join(cell for cell, width in zip(cells, widths, strict=True) if width)}  "
        room = max(20, terminal.width - display_width(head))
        text = (head + short(row[4], room)).rstrip()
        terminal.line(styled(text, "bold") if row[0] == "→" else text)


def print_branches(terminal: Terminal, history: History) -> bool:
    """Print the branches at each message of the visible path that has some; whether there are any."""
    found = False
    for message in history.messages:
        branches = history.transcript.branches(message.id)
        if len(branches) < 2:
            continue
        found = True
        where = "where it begins" if message.parent is None else f"after {visible(message.parent)}"
        terminal.line(styled(f"  {len(branches)} branches {where}:", "dim"))
        shown = ((history.transcript[name], "→" if name == message.id else " ") for name in branches)
        _print_rows(terminal, [_row(branch, history, mark) for branch, mark in shown])
    return found


def print_end(terminal: Terminal, history: History, *, whole: bool = False) -> None:
    """Print the end of the visible path: the person's last message, and what the model said to it last.

    With ``whole`` the answer is printed as it was, up to a length, otherwise its beginning on one line.
    """
    messages = history.messages
    at = next((place for place in reversed(range(len(messages))) if who(messages[place]) == "you"), -1)
    said = next((message for message in reversed(messages[at + 1 :]) if who(message) == "model" and message.text), None)
    last = [message for message in (messages[at] if at >= 0 else None, said) if message is not None]
    labels = [f"{who(message)} {visible(message.id)} {position(message, history)}".rstrip() for message in last]
    column = max((len(label) for label in labels), default=0) + 4
    for label, message in zip(labels, last, strict=True):
        text = _shown(message.text) if whole and message is said else brief(message, history)
        terminal.labelled(label, text, "dim", column=column)


def _shown(text: str) -> str:
    text = plain(text.strip())
    return text if len(text) <= LONG else f"{text[:LONG]}… ({len(text)} characters; `turnstate show` prints them all)"
