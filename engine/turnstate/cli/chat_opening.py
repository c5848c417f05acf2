"""What ``turnstate chat`` says first: where one is, and what was found in the session."""

from __future__ import annotations

from .chat_view import View
from .history import History
from .listing import counted, waiting_text
from .moments import moment, since
from .text import one_line, short
from .thread import print_end

__all__ = ["print_opening"]

KEYS = "A line typed while it works joins the turn. Ctrl-C interrupts it, Ctrl-D leaves. /help lists the commands."


def print_opening(view: View, head: str, history: History | None, *, first: bool, running: bool = False) -> None:
    """Print it. Without a terminal only what was found is told.

    Args:
        view: where to print.
        head: the first line.
        history: what is stored.
        first: whether it is the first session of this run, so that the keys are told.
        running: whether the session is driven already, so that a turn in it was not cut off.
    """
    if view.interactive:
        view.note(head, "bold")
        if first:
            view.note(KEYS)
    if history is None:
        return
    if view.interactive:
        _print_last(view, history)
    for text in _found(history, running):
        view.note(text, "yellow")


def _print_last(view: View, history: History) -> None:
    """What was said last, so that one knows where one is."""
    messages = history.messages
    if messages:
        view.note(f"{counted(len(messages), 'message')} so far, the last from {moment(messages[-1].created_at)}:")
        print_end(view.terminal, history)


def _found(history: History, running: bool) -> list[str]:
    """What is open."""
    checkpoint, turn = history.checkpoint, history.checkpoint.turn
    found: list[str] = []
    if history.waiting:
        found.append(f"{waiting_text(history.waiting)} open {since(history.waiting_since)}")
    elif running and turn is not None and not turn.closed:
        found.append("a turn is running")
    elif turn is not None and not turn.closed:
        found.append(f"a turn was cut off ({turn.state}, {moment(checkpoint.updated_at)}); it goes on")
    elif checkpoint.held and turn is not None and turn.outcome is not None:
        reason = f": {one_line(turn.reason)}" if turn.reason not in ("", turn.outcome) else ""
        found.append(f"the last turn ended as {turn.outcome}{reason}; Enter goes on with it")
    if history.queued:
        waits = "1 message waits" if len(history.queued) == 1 else f"{len(history.queued)} messages wait"
        found.append(
            f"{waits}{' (held)' if checkpoint.held else ''}: " + "; ".join(short(text, 60) for text in history.queued)
        )
    return found
