"""Threads between sessions: exported, imported, forked.

The export is one JSON object: ``format`` (1), ``session``, ``title``, ``head``, ``chosen`` and ``messages``, each message
behind the one that it follows. Reading it is forgiving where a person could do nothing about it: messages may stand in
any order, those whose parent is missing are left out and told, a head that is not there becomes the newest leaf.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from .checkpoint import Checkpoint, Commit
from .codec import converter, fields_of, json_bytes, parse, structure
from .errors import CheckpointError, InvalidInput, Refused
from .events import Imported, NumberedEvent, Warned
from .message import Message
from .transcript import Transcript
from .tree import Tree
from .values import Value
from .work import short_title

__all__ = ["EXPORT_FORMAT", "Thread", "begin_session", "export_thread", "fork_thread", "read_thread"]

EXPORT_FORMAT = 1
COUNTED = re.compile(r"([mt])([0-9]+)\Z")
DIGITS = 15
"""How many the number in an id may have, so that counting on from it stays exact everywhere."""


@attrs.frozen(eq=False, repr=False)
class Thread(Value):
    """Messages to begin a session with. ``warnings`` says what was left out or mended when they were read."""

    messages: tuple[Message, ...]
    head: str | None = None
    chosen: Mapping[str, str] = attrs.field(factory=dict[str, str])
    title: str = ""
    warnings: tuple[str, ...] = ()


def export_thread(checkpoint: Checkpoint, transcript: Transcript) -> bytes:
    """All branches of a session as JSON; what runs and what waits is not in it."""
    unstructure = converter().unstructure
    return json_bytes(
        {
            "format": EXPORT_FORMAT,
            "session": checkpoint.session,
            "title": checkpoint.title,
            "head": transcript.head,
            "chosen": dict(transcript.chosen),
            "messages": [unstructure(message) for message in transcript.all()],
        }
    )


def read_thread(data: bytes) -> Thread:
    """A thread from what :func:`export_thread` gave, or something like it.

    Raises:
        InvalidInput: it is not JSON, of a newer format, or a message is not one; the text names it.
    """
    fields = _fields(data)
    messages = [_message(at, item) for at, item in enumerate(fields.get("messages", ()))]
    by_id = {message.id: message for message in messages}
    for name, times in Counter(message.id for message in messages).items():
        if times > 1:
            raise InvalidInput(f"messages: {times} have the id {name}")
    kept = _in_order(messages)
    warnings: list[str] = []
    lost = [name for name in by_id if name not in kept]
    if lost:
        warnings.append(f"left out, because what they follow is missing: {', '.join(lost)}")
    title = fields.get("title")
    tree = Tree(kept.values(), {})
    head = _head(fields, messages, tree, warnings)
    _choose(fields.get("chosen"), tree)
    tree.choose_path(message.id for message in Transcript(kept.values(), head).path)
    return Thread(tuple(kept.values()), head, tree.chosen, title if isinstance(title, str) else "", tuple(warnings))


def _fields(data: bytes) -> dict[str, Any]:
    try:
        fields = fields_of(parse("thread", data))
    except CheckpointError as error:
        raise InvalidInput(str(error)) from None
    if not isinstance(fields.get("messages"), list):
        raise InvalidInput("messages: expected an array; this is not an exported thread")
    if fields.get("format", EXPORT_FORMAT) != EXPORT_FORMAT:
        raise InvalidInput(f"format: expected {EXPORT_FORMAT}, got {fields.get('format')!r}; another version wrote it")
    return fields


def _message(at: int, item: Any) -> Message:
    try:
        message: Message = structure(f"messages[{at}]", item, Message)
    except CheckpointError as error:
        raise InvalidInput(str(error)) from None
    if not message.id or message.changes or message.status == "deleted":
        raise InvalidInput(f"messages[{at}]: expected a message with an id, not the record of a change")
    for name in (message.id, message.turn):
        found = COUNTED.match(name)
        if found is not None and len(found[2]) > DIGITS:
            raise InvalidInput(f"messages[{at}]: the number in the id {name[:20]}... has more than {DIGITS} digits")
    return message


def _in_order(messages: Sequence[Message]) -> dict[str, Message]:
    """Those that can be reached from a beginning, each behind the one that it follows, otherwise in the order given."""
    children: dict[str, list[Message]] = {}
    for message in messages:
        children.setdefault(message.parent or "", []).append(message)
    reached: set[str] = set()
    todo = [message.id for message in children.get("", ())]
    while todo:
        name = todo.pop()
        reached.add(name)
        todo += [message.id for message in children.get(name, ())]
    kept: dict[str, Message] = {}
    waiting: dict[str, Message] = {}
    for message in messages:
        if message.id not in reached:
            continue
        waiting[message.id] = message
        if message.parent is None or message.parent in kept:
            _let_in(message, waiting, children, kept)
    return kept


def _let_in(
    message: Message, waiting: dict[str, Message], children: Mapping[str, Sequence[Message]], kept: dict[str, Message]
) -> None:
    """Take a message, and then those that came before it and follow it."""
    todo = [message]
    while todo:
        here = todo.pop()
        kept[here.id] = waiting.pop(here.id)
        todo += [child for child in reversed(children.get(here.id, ())) if child.id in waiting]


def _head(fields: Mapping[str, Any], messages: Sequence[Message], tree: Tree, warnings: list[str]) -> str | None:
    head = fields.get("head")
    if head is None and "head" in fields:
        return None
    if isinstance(head, str) and head in tree.by_id:
        return head
    newest = next((message.id for message in reversed(messages) if message.id in tree.by_id), None)
    leaf = None if newest is None else tree.leaf(newest)
    if head is not None:
        warnings.append(f"the head {head} is not there; {leaf} is shown")
    return leaf


def _choose(given: Any, tree: Tree) -> None:
    """Show what the file says is shown, as far as it is there."""
    for parent, child in fields_of(given).items():
        if child in tree.children(parent):
            tree.choose(parent, child)


def fork_thread(checkpoint: Checkpoint, transcript: Transcript, message: str | None) -> Thread:
    """The path up to and with a message, or up to the last place where a conversation may be cut.

    Raises:
        Refused: the message is not there, or it is between a call and its results.
    """
    if message is not None and message not in transcript:
        raise Refused("gone", f"there is no message {message} in this session")
    path = list(transcript.path_to(transcript.head if message is None else message))
    if message is None:
        while path and not transcript.cut_at(path[-1].id):
            path.pop()
    elif not transcript.cut_at(message):
        raise Refused("stale", f"message {message} is between a call and its result; fork before or after both")
    return Thread(tuple(path), path[-1].id if path else None, {}, checkpoint.title)


def begin_session(
    session: str,
    thread: Thread,
    *,
    now: float,
    source: str = "",
    metadata: Mapping[str, Any] | None = None,
    life: str = "",
) -> Commit:
    """The first commit of a session that begins with a thread.

    Nothing else of its source comes with it: no approvals, nothing that waits.

    >>> begin_session("b", Thread(()), now=0.0).checkpoint.sequence
    1
    """
    checkpoint = Checkpoint(session, now, sequence=1, updated_at=now, head=thread.head, life=life)
    checkpoint.chosen = dict(thread.chosen)
    checkpoint.metadata = dict(metadata or {})
    title = short_title(thread.title)
    checkpoint.title, checkpoint.titled = title or _first_words(thread.messages), "person" if title else ""
    names = [name for message in thread.messages for name in (message.id, message.turn)]
    counts = {"m": len(thread.messages), "t": 0}
    for found in filter(None, map(COUNTED.match, names)):
        counts[found[1]] = max(counts[found[1]], int(found[2]))
    checkpoint.messages, checkpoint.turns = counts["m"], counts["t"]
    events: list[NumberedEvent] = [Imported(len(thread.messages), thread.head, source, number=1, at=now)]
    events += [Warned(text, number=at, at=now) for at, text in enumerate(thread.warnings, 2)]
    checkpoint.events = len(events)
    return Commit(0, checkpoint, list(thread.messages), events, [], [], [], [])


def _first_words(messages: Iterable[Message]) -> str:
    return next((short_title(message.text) for message in messages if message.role == "user"), "")
