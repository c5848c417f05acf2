"""``turnstate show``."""

from __future__ import annotations

import argparse

import attrs
import trio

from turnstate_states.errors import TurnstateError

from ..engine import check_id
from ..states import Checkpoint, Hosted, Message, Quote, Reasoning, Refusal, Text, ToolCall, ToolResult, Usage
from ..stores.sqlite import SQLiteStore
from .history import History, read_history
from .listing import counted
from .moments import moment
from .places import existing_db, home_short
from .streams import Console
from .terminal import Terminal
from .text import call_text, one_line, plain, short, shown_call, visible
from .thread import brief, position

__all__ = ["show"]

WHO = {"user": "you", "assistant": "model", "system": "note"}
MARKS = {"ok": "✓", "error": "✗", "denied": "✗", "not-run": "✗", "unknown": "?"}
LONG = 1500


def show(arguments: argparse.Namespace, console: Console) -> int:
    """Print a session.

    Raises:
        TurnstateError: there is none of that name.
    """
    session = check_id(arguments.session)
    path = existing_db(arguments.db)
    history = None if path is None else trio.run(_read, path, session)
    if history is None:
        where = home_short(path) if path else "the default file, which does not exist yet"
        raise TurnstateError(f"there is no session {session!r} in {where}; `turnstate sessions` lists them")
    terminal = console.out
    for message in history.messages:
        _print_message(terminal, message, history)
    if history.messages:
        terminal.line()
    _print_state(terminal, history)
    return 0


async def _read(path: str, session: str) -> History | None:
    async with SQLiteStore(path) as store:
        return await read_history(store, session)


def _print_message(terminal: Terminal, message: Message, history: History) -> None:
    label = WHO.get(message.role, "")
    _print_others(terminal, message, history)
    for part in message.parts:
        if isinstance(part, ToolResult):
            _print_result(terminal, part, history)
        elif isinstance(part, ToolCall):
            call = history.call(part)
            terminal.labelled(label, shown_call(call), "cyan")
            if call.edited is not None:
                asked = shown_call(attrs.evolve(call, edited=None))
                terminal.labelled("", f"(changed by a person; the model wanted {asked})", "dim")
        elif isinstance(part, (Text, Refusal)):
            mark = " [cut short]" if message.status == "incomplete" else ""
            terminal.labelled(label, plain(part.text.strip()) + mark)
        elif isinstance(part, Reasoning):
            terminal.labelled(label, f"(thought: {short(part.text, 200)})", "dim")
        else:
            about = part.text if isinstance(part, (Hosted, Quote)) else part.url
            about = about or (part.kind if isinstance(part, Hosted) else "")
            terminal.labelled(label, f"[{part.tag}: {short(about, 200)}]")
        label = ""


def _print_others(terminal: Terminal, message: Message, history: History) -> None:
    """Which branch a message is, where there are several, and what the others begin with."""
    branches = history.transcript.branches(message.id)
    if len(branches) > 1:
        others = [history.transcript[name] for name in branches if name != message.id]
        beside = ", ".join(f'{visible(other.id)} "{short(brief(other, history), 60)}"' for other in others)
        terminal.labelled("", f"({visible(message.id)} is branch {position(message, history)}, beside {beside})", "dim")


def _print_result(terminal: Terminal, result: ToolResult, history: History) -> None:
    call = history.calls.get(result.call)
    tool = "" if call is None else visible(call.tool)
    text = plain(result.given.strip())
    if len(text) > LONG:
        text = f"{text[:LONG]}… ({len(result.given)} characters)"
    style = {"ok": "green", "unknown": "yellow"}.get(result.status, "red")
    terminal.labelled("", f"{MARKS[result.status]} {tool}: {text}", style)


def _print_state(terminal: Terminal, history: History) -> None:
    checkpoint = history.checkpoint
    name = visible(checkpoint.session) + (f'  "{short(checkpoint.title, 60)}"' if checkpoint.title else "")
    terminal.labelled("session", name)
    terminal.labelled("state", _state_text(checkpoint))
    for call in history.waiting:
        terminal.labelled(
            "open", f"{shown_call(call)}  asked {moment(history.asked_since(call))}, call {visible(call.id)}", "yellow"
        )
    _print_queue(terminal, history)
    for grant in checkpoint.grants:
        covers = "any arguments" if grant.arguments is None else call_text(grant.tool, grant.arguments)
        terminal.labelled("allowed", f"{covers} ({visible(grant.id)})")
    used = sum(checkpoint.usage.values(), Usage())
    names = ", ".join(name for name in checkpoint.usage if name)
    terminal.labelled("usage", _usage_text(used) + (f" ({one_line(names)})" if names else ""))
    terminal.labelled("stored", f"{counted(len(history.transcript), 'message')}, {counted(checkpoint.events, 'event')}")


def _state_text(checkpoint: Checkpoint) -> str:
    turn = checkpoint.turn
    if turn is None:
        return "idle"
    since = moment(checkpoint.updated_at)
    if turn.outcome is None:
        ending = f", told to end ({visible(turn.ending.outcome)})" if turn.ending is not None else ""
        return f"{visible(turn.state)}, turn {visible(turn.id)}, step {turn.step}{ending}, since {since}"
    reason = f" ({one_line(turn.reason)})" if turn.reason else ""
    stop = f", stop: {visible(turn.stop)}" if turn.stop not in ("", "stop") else ""
    counts = f"{counted(turn.steps, 'step')}, {counted(turn.calls_made, 'call')}"
    return f"{visible(turn.state)}: {visible(turn.outcome)}{reason}{stop}, turn {visible(turn.id)}, {counts}, {since}"


def _print_queue(terminal: Terminal, history: History) -> None:
    held = "held until you go on: " if history.checkpoint.held else ""
    for text in history.queued:
        terminal.labelled("waits", f'{held}"{short(text, 200)}"')


def _usage_text(usage: Usage) -> str:
    if usage.input is None and usage.output is None:
        return "not told by the model"
    parts = [f"{usage.input or 0:,} tokens in", f"{usage.output or 0:,} out"]
    if usage.cached:
        parts.append(f"{usage.cached:,} cached")
    if usage.cost is not None:
        parts.append(f"cost {usage.cost:g}")
    return ", ".join(parts)
