"""``turnstate chat``: a conversation in a terminal, or through a pipe."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import trio

from turnstate_states.errors import TurnstateError
from turnstate_states.events import Event

from ..agent import Agent, Limits
from ..engine import Engine, check_id
from ..models.base import Model
from ..models.naming import is_model_name, resolve
from ..models.openai_chat import OpenAIChat
from ..stores.sqlite import SQLiteStore
from .chat_opening import print_opening
from .chat_talk import Given, Item, Talk
from .chat_tools import TOOLS, Folder
from .chat_view import View
from .history import read_history
from .lines import LineReader
from .places import chosen_db
from .terminal import Terminal

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
    again: str
    """The command that goes on with this session."""


def chat(arguments: argparse.Namespace) -> int:
    """Talk.

    Raises:
        TurnstateError: without a terminal, the last turn failed.
    """
    model = _model(arguments)
    named = arguments.session is not None
    session = check_id(arguments.session) if named else time.strftime("%Y%m%d-%H%M%S")
    again = _again(arguments, session)
    instructions = INSTRUCTIONS if arguments.instructions is None else arguments.instructions
    options = Options(model, chosen_db(arguments.db), session, instructions, not arguments.no_tools, again)
    return trio.run(_chat, options)


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


async def _chat(options: Options) -> int:
    lines = LineReader()
    view = View(Terminal(), interactive=lines.is_tty)
    limits = Limits(attempts=ATTEMPTS)
    tools = TOOLS if options.tools else ()
    agent: Agent[Folder] = Agent(options.model, instructions=options.instructions, tools=tools, limits=limits)
    folder = Folder(Path.cwd().resolve())
    store = SQLiteStore(options.db)
    async with Engine(agent, store, deps=lambda info: folder, grace=GRACE) as engine:
        session = engine.session(options.session)
        history = await read_history(store, options.session)
        await engine.drive(options.session)
        talk = Talk(session, view, os.environ.get("USER") or "terminal")
        print_opening(view, options.model.name, options.session, history)
        if history is not None:
            talk.begin(history)
        after = 0 if history is None else history.checkpoint.events
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async with session.events(after=after) as events:
                await _converse(talk, lines, events, signals)
        view.leave()
        if talk.working and view.interactive:
            view.note("The turn has not ended; it goes on when you come back.")
    if view.interactive:
        view.note(f"Come back with: {options.again}")
    if talk.failed is not None and not view.interactive:
        raise TurnstateError(f"{talk.failed.reason} (session {options.session} keeps what was said)")
    return 130 if talk.interrupted else 1 if talk.failed is not None else 0


async def _converse(talk: Talk, lines: LineReader, events: AsyncIterator[Event], signals: AsyncIterator[int]) -> None:
    """Take lines, signals and events as they come, until it is time to leave."""
    send, receive = trio.open_memory_channel[Item](0)
    ask, asked = trio.open_memory_channel[None](1)

    async def take_lines() -> None:
        while True:
            # Through a pipe all lines are there at once, and each is for the moment at which one is needed.
            if not lines.is_tty:
                await asked.receive()
            line = await lines.line()
            await send.send(Given.END if line is None else line)

    async def take_signals() -> None:
        async for _ in signals:
            await send.send(Given.INTERRUPT)

    async def take_events() -> None:
        async for event in events:
            await send.send(event)

    async with trio.open_nursery() as nursery:
        for task in (take_lines, take_signals, take_events):
            nursery.start_soon(task)
        talk.ask()
        outstanding = False
        while not talk.done:
            if talk.wants_line and not outstanding and not lines.is_tty:
                ask.send_nowait(None)
                outstanding = True
            item = await receive.receive()
            if isinstance(item, str) or item is Given.END:
                outstanding = False
            await talk.take(item)
        nursery.cancel_scope.cancel()
