"""What ``turnstate chat`` says first: where one is, and what was found in the session."""

from __future__ import annotations

from .chat_view import View
from .history import History
from .listing import counted
from .terminal import moment, one_line, short, since

__all__ = ["print_opening"]

KEYS = "A line typed while it works joins the turn. Ctrl-C interrupts it, Ctrl-D leaves."
SHOWN = 300


def print_opening(view: View, model: str, session: str, history: History | None) -> None:
    """Print it. Without a terminal only what was found is told."""
    if view.interactive:
        view.note(f"turnstate chat with {one_line(model)}, session {session}{'' if history else ' (new)'}", "bold")
        view.note(KEYS)
    if history is None:
        return
    if view.interactive:
        _print_last(view, history)
    for text in _found(history):
        view.note(text, "yellow")


def _print_last(view: View, history: History) -> None:
    """What was said last, so that one knows where one is."""
    view.note(
        f"{counted(len(history.messages), 'message')} so far, the last from {moment(history.messages[-1].created_at)}:"
    )
    for role, label in (("user", "you"), ("assistant", "model")):
        last = next((message for message in reversed(history.messages) if message.role == role and message.text), None)
        if last is not None:
            view.terminal.labelled(label, short(last.text, SHOWN), "dim", column=9)


def _found(history: History) -> list[str]:
    """What is open."""
    checkpoint, turn = history.checkpoint, history.checkpoint.turn
    found: list[str] = []
    if history.waiting:
        found.append(f"{counted(len(history.waiting), 'approval')} open {since(history.waiting_since)}")
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
