"""``turnstate chat``: a conversation in a terminal, or through a pipe."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from turnstate_states.errors import InvalidInput, TurnstateError
from turnstate_states.events import Warned

from ..agent import Agent, Limits
from ..engine import Engine, check_id
from ..models import OpenAIChat
from ..models.base import Model
from ..models.naming import is_model_name, resolve
from ..reading import read_events
from ..stores.sqlite import SQLiteStore
from .chat_files import Folder
from .chat_opening import print_opening
from .chat_talk import Given, Item, Talk
from .chat_tools import TOOLS
from .chat_view import View
from .history import read_history
from .lines import LineReader
from .places import chosen_db
from .streams import Console, interrupts
from .text import one_line, visible

__all__ = ["chat"]

INSTRUCTIONS = (
    "You help a person in a terminal. Answer in plain text, briefly. Your tools work on the person's current directory."
)
GRACE = 3.0
"""Seconds that running tools get when the person leaves."""
ATTEMPTS = 3
"""Somebody sits and waits, so a server that is away is told of soon."""


@attrs.frozen
class Options:
    """What the person chose."""

    model: Model
    db: str
    session: str
    instructions: str
    tools: bool
    again: Callable[[str], str]
    """The command that goes on with a session."""
    thread: bytes | None = None
    """An exported thread to begin with."""


def chat(arguments: argparse.Namespace, console: Console) -> int:
    """Talk.

    Raises:
        TurnstateError: without a terminal, the last turn failed.
    """
    model = _model(arguments)
    named = arguments.session is not None
    session = check_id(arguments.session) if named else time.strftime("%Y%m%d-%H%M%S")
    again = partial(_again, arguments)
    thread = None if arguments.imported is None else _exported(arguments.imported)
    instructions = INSTRUCTIONS if arguments.instructions is None else arguments.instructions
    options = Options(model, chosen_db(arguments.db), session, instructions, not arguments.no_tools, again, thread)
    return trio.run(_chat, options, console)


def _exported(path: str) -> bytes:
    """What a file holds that /export wrote."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"{path} cannot be read: {reason}") from error


def _model(arguments: argparse.Namespace) -> Model:
    """The model: one that its name says how to reach, or one behind Chat Completions."""
    options: dict[str, Any] = {"base_url": arguments.base_url, "api_key": arguments.api_key}
    options = {name: value for name, value in options.items() if value is not None}
    if is_model_name(arguments.model):
        return resolve(arguments.model, **options)
    return OpenAIChat(arguments.model, **options)


def _again(arguments: argparse.Namespace, session: str) -> str:
    command = ["turnstate", "chat"]
    for name, value in (
        ("--base-url", arguments.base_url),
        ("--model", arguments.model),
        ("--db", arguments.db),
        ("--session", session),
    ):
        command += [] if value is None else [name, value]
    return shlex.join(command)


async def _chat(options: Options, console: Console) -> int:
    lines = LineReader(console.stdin.fileno())
    view = View(console.out, interactive=lines.is_tty)
    limits = Limits(attempts=ATTEMPTS)
    tools = TOOLS if options.tools else ()
    agent: Agent[Folder] = Agent(options.model, instructions=options.instructions, tools=tools, limits=limits)
    folder = Folder(Path.cwd().resolve(), Path(options.db))
    store = SQLiteStore(options.db)
    async with Engine(agent, store, deps=lambda info: folder, grace=GRACE) as engine:
        if options.thread is not None:
            await engine.import_session(options.session, options.thread)
            for event in await read_events(store, options.session, 0):
                if isinstance(event, Warned):
                    view.note(f"warning: {one_line(event.text)}", "yellow")
        with interrupts() as signals:
            talk = await Chat(engine, view, lines, signals).run(options.session)
        view.leave()
        if talk.working and view.interactive:
            view.note("The turn has not ended; it goes on when you come back.")
    if view.interactive:
        view.note(f"Come back with: {visible(options.again(talk.session.id))}")
    if talk.failed is not None and not view.interactive:
        raise TurnstateError(f"{talk.failed.reason} (session {talk.session.id} keeps what was said)")
    return 130 if talk.interrupted else 1 if talk.failed is not None else 0


class Chat:
    """Takes lines, signals and events as they come, for the session that is open, until it is time to leave.

    Args:
        engine: drives the sessions.
        view: where to print.
        lines: what the person types.
        signals: tells of each Ctrl-C.
    """

    def __init__(self, engine: Engine[Any], view: View, lines: LineReader, signals: AsyncIterator[int]) -> None:
        self._engine = engine
        self._view = view
        self._lines = lines
        self._signals = signals
        self._following = trio.CancelScope()
        self._send, self._receive = trio.open_memory_channel[Item](0)
        self._ask, self._asked = trio.open_memory_channel[None](1)

    async def run(self, session: str) -> Talk:
        """Talk in this session, and in those that the person goes to; where they left.

        Raises:
            TurnstateError: the session cannot be opened.
        """
        async with trio.open_nursery() as nursery:
            talk = await self._open(session, nursery, first=True)
            nursery.start_soon(self._take_lines)
            nursery.start_soon(self._take_signals)
            talk.ask()
            outstanding = False
            while not talk.done:
                if talk.wants_line and not outstanding and not self._lines.is_tty:
                    self._ask.send_nowait(None)
                    outstanding = True
                item = await self._receive.receive()
                if isinstance(item, str) or item is Given.END:
                    outstanding = False
                await talk.take(item)
                if talk.opens:
                    talk = await self._open(talk.opens, nursery, leaves=talk)
                    talk.ask()
            nursery.cancel_scope.cancel()
        return talk

    async def _open(self, id: str, nursery: trio.Nursery, *, first: bool = False, leaves: Talk | None = None) -> Talk:
        """Open a session, in the place of the one that is open."""
        engine, view = self._engine, self._view
        self._following.cancel()
        if leaves is not None and leaves.working:
            does = "waits for an answer" if leaves.asks else "goes on"
            view.note(f"(the turn in {visible(leaves.session.id)} {does})")
        running = engine.driven(id) is not None
        history = await read_history(engine.store, id)
        await engine.drive(id)
        talk = Talk(engine, engine.session(id), view, os.environ.get("USER") or "terminal")
        head = (
            f"turnstate chat with {one_line(engine.agent.model.name)}, session {visible(id)}"
            if first
            else f"session {visible(id)}"
        )
        print_opening(view, f"{head}{'' if history else ' (new)'}", history, first=first, running=running)
        if history is not None:
            talk.begin(history)
        self._following = trio.CancelScope()
        after = 0 if history is None else history.checkpoint.events
        nursery.start_soon(self._take_events, talk, after, self._following)
        return talk

    async def _take_lines(self) -> None:
        while True:
            # Through a pipe all lines are there at once, and each is for the moment at which one is needed.
            if not self._lines.is_tty:
                await self._asked.receive()
            line = await self._lines.line()
            await self._send.send(Given.END if line is None else line)

    async def _take_signals(self) -> None:
        async for _ in self._signals:
            await self._send.send(Given.INTERRUPT)

    async def _take_events(self, talk: Talk, after: int, scope: trio.CancelScope) -> None:
        with scope:
            async with talk.session.events(after=after) as events:
                async for event in events:
                    await self._send.send(event)
