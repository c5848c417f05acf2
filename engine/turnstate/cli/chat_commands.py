"""The commands of ``turnstate chat``: lines that begin with a slash."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import attrs

from turnstate_states.errors import InvalidInput, Refused

from ..engine import check_id
from .history import History, read_history
from .listing import counted, print_sessions
from .text import short, visible
from .thread import is_reference, last_said, print_branches, print_messages, resolve

if TYPE_CHECKING:
    from .chat_talk import Talk

__all__ = ["command_of", "run_command"]

Run = Callable[["Talk", str], Awaitable[None]]
LISTED = 20


@attrs.frozen
class Command:
    """A command: how it is written, what it does in one line, and the function that does it."""

    usage: str
    about: str
    run: Run


COMMANDS: dict[str, Command] = {}


def command(usage: str, about: str) -> Callable[[Run], Run]:
    """Make a function a command; its name is the first word of ``usage``."""

    def mark(run: Run) -> Run:
        COMMANDS[usage.split()[0]] = Command(usage, about, run)
        return run

    return mark


def command_of(line: str) -> tuple[str, str] | None:
    """The name and the rest of a line that is a command; None for anything else, such as a path.

    >>> command_of("/edit  m1 hello"), command_of("/etc/passwd is what?")
    (('edit', 'm1 hello'), None)
    """
    found = re.fullmatch(r"/([A-Za-z]+|\?)(?:\s+(.*))?", line, re.DOTALL)
    return None if found is None else (found[1].lower(), (found[2] or "").strip())


async def run_command(talk: Talk, name: str, rest: str) -> None:
    """Carry a command out.

    Raises:
        InvalidInput: there is no such command, or it cannot be used like that.
        Refused: it cannot be carried out now.
    """
    known = COMMANDS.get("help" if name == "?" else name)
    if known is None:
        raise InvalidInput(f"there is no command /{name}; /help lists them (to say it to the model, write //{name})")
    await known.run(talk, rest)


def _misused(name: str) -> InvalidInput:
    return InvalidInput(f"write /{COMMANDS[name].usage}")


async def _history(talk: Talk) -> History:
    history = await read_history(talk.engine.store, talk.session.id)
    if history is None:
        raise Refused("gone", "nothing was said yet")
    return history


# ---- the thread


@command("edit [MESSAGE] TEXT", "say your last message otherwise, or another")
async def _edit(talk: Talk, rest: str) -> None:
    history = await _history(talk)
    word, _, text = rest.partition(" ")
    if is_reference(word, history):
        target, text = resolve(word, history), text.strip()
    else:
        target, text = last_said(history).id, rest
    if not text:
        raise _misused("edit")
    await talk.began(await talk.session.edit(target, text))


@command("retry [MESSAGE]", "have it answered again")
async def _retry(talk: Talk, rest: str) -> None:
    history = await _history(talk)
    await talk.began(await talk.session.regenerate(resolve(rest, history) if rest else ""))


@command("branch [MESSAGE|next|prev]", "list the branches, or show another")
async def _branch(talk: Talk, rest: str) -> None:
    history = await _history(talk)
    if not rest:
        talk.view.leave()
        if not print_branches(talk.view.terminal, history):
            talk.view.note("(there is one branch only; /edit and /retry make others)")
        return
    target = _beside(history, rest) if rest in ("next", "prev") else resolve(rest, history)
    await talk.changed(await talk.session.switch(target))


def _beside(history: History, way: str) -> str:
    """The branch before or after the one that is shown, at the last place where there are several."""
    for message in reversed(history.messages):
        branches = history.transcript.branches(message.id)
        if len(branches) > 1:
            at = branches.index(message.id) + (1 if way == "next" else -1)
            if not 0 <= at < len(branches):
                raise Refused("gone", f"{message.id} is the {'last' if way == 'next' else 'first'} of {len(branches)}")
            return branches[at]
    raise Refused("gone", "there is one branch only; /edit and /retry make others")


@command("history [COUNT|all]", "list the messages, with their ids")
async def _list(talk: Talk, rest: str) -> None:
    count = None if rest == "all" else int(rest or LISTED) if (rest or "0").isdecimal() else -1
    if count == -1:
        raise _misused("history")
    history = await _history(talk)
    messages = [message for message in history.messages if message.role != "tool"]
    shown = messages if count is None else messages[max(0, len(messages) - count) :]
    talk.view.leave()
    if len(shown) < len(messages):
        talk.view.note(f"({len(messages) - len(shown)} more before these)")
    print_messages(talk.view.terminal, shown, history)


@command("delete MESSAGE", "take a message out of the thread")
async def _delete(talk: Talk, rest: str) -> None:
    if not rest:
        raise _misused("delete")
    target = resolve(rest, await _history(talk))
    receipt = await talk.session.delete_message(target)
    talk.view.note(f"({target} is gone)")
    await talk.changed(receipt)


# ---- sessions


@command("fork [MESSAGE]", "go on in a new session, from here or a message")
async def _fork(talk: Talk, rest: str) -> None:
    history = await _history(talk)
    target = resolve(rest, history) if rest else None
    forked = await talk.session.fork(target)
    talk.view.note(f"(forked from {visible(talk.session.id)}, which stays as it is)")
    talk.opens = forked.id


@command("sessions [TEXT]", "list the sessions, or search their titles")
async def _sessions(talk: Talk, rest: str) -> None:
    page = await talk.engine.session_page(limit=LISTED, order="recent", search=rest)
    talk.view.leave()
    if not page.sessions:
        talk.view.note(f'(no title holds "{short(rest, 60)}")' if rest else "(no session is stored yet)")
        return
    print_sessions(talk.view.terminal, page.sessions, here=talk.session.id)
    if page.next is not None:
        talk.view.note("(there are more; /sessions TEXT looks for a text in the titles)")


@command("open SESSION", "go to another session")
async def _open(talk: Talk, rest: str) -> None:
    if not rest:
        raise _misused("open")
    if check_id(rest) == talk.session.id:
        raise Refused("stale", f"you are in {rest}")
    if await read_history(talk.engine.store, rest) is None:
        raise Refused("gone", f"there is no session {rest!r}; /sessions lists them")
    await talk.engine.drive(rest)  # what keeps it from being opened is told while this one is still open
    talk.opens = rest


@command("rename TITLE", "give the session another title")
async def _rename(talk: Talk, rest: str) -> None:
    if not rest:
        raise _misused("rename")
    await talk.session.rename(rest)
    talk.view.note(f'(its title is "{short(rest, 60)}" now)')


@command("archive", "take the session off the list, or put it back")
async def _archive(talk: Talk, rest: str) -> None:
    if rest:
        raise _misused("archive")
    archived = not (await talk.session.info()).archived
    await talk.session.archive(archived)
    talk.view.note("(archived: /sessions does not list it any more)" if archived else "(it is listed again)")


@command("export FILE", "write all branches to a file, for chat --import")
async def _export(talk: Talk, rest: str) -> None:
    if not rest:
        raise _misused("export")
    history = await _history(talk)
    data = await talk.session.export()
    _write(rest, data)
    talk.view.note(f"(wrote {counted(len(history.transcript), 'message')} to {visible(rest)})")


def _write(path: str, data: bytes) -> None:
    try:
        with open(os.path.expanduser(path), "xb") as file:
            file.write(data)
    except FileExistsError:
        raise Refused("conflict", f"{path} exists already; name another file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"{path} cannot be written: {reason}") from error


# ---- questions


@command("deny [REASON]", "at a question: no")
async def _deny(talk: Talk, rest: str) -> None:
    await talk.answer(talk.form().deny(rest))


@command("dismiss", "at a question: no answer, if it can be closed")
async def _dismiss(talk: Talk, rest: str) -> None:
    if rest:
        raise _misused("dismiss")
    await talk.answer(talk.form().dismiss())


@command("help", "this list")
async def _help(talk: Talk, rest: str) -> None:
    terminal = talk.view.terminal
    talk.view.leave()
    column = max(len(known.usage) for known in COMMANDS.values()) + 5
    for known in COMMANDS.values():
        terminal.labelled(f"/{known.usage}", known.about, column=column)
    talk.view.note("MESSAGE is an id that /history shows, or the number in it; without one the last is meant.")
    talk.view.note("To say a line that begins with a slash, begin it with two.")
