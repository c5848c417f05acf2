"""The thread of a session: a tree of messages, the path of it that is visible, and what a model is shown of that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .conversation import Conversation
from .errors import CheckpointError
from .message import Message, MessageStatus, Role, Timing, Usage
from .tree import Tree

__all__ = ["Conversation", "Message", "MessageStatus", "Role", "Timing", "Transcript", "Usage"]


class Transcript:
    """All messages of a session by id, and the path from the first to ``head``.

    Messages that follow the same one are branches. The path shows one of them; which of them it shows below a message
    that it does not go through is remembered (``chosen``), by default the newest. ``conversation`` is what a model is
    shown of the path.

    Args:
        messages: as they were written, records of changes included.
        head: the last message of the path.
        chosen: for a message (``""`` for the beginning) the one that is shown after it, where that is not the newest.

    Raises:
        CheckpointError: messages do not form a tree, or ``head`` is not among them.
    """

    def __init__(
        self, messages: Iterable[Message] = (), head: str | None = None, chosen: Mapping[str, str] | None = None
    ) -> None:
        self._tree = Tree(messages, chosen or {})
        self._show_path(head)

    def copy(self) -> Transcript:
        """An independent copy; the messages in it are shared."""
        other = Transcript.__new__(Transcript)
        other._tree = self._tree.copy()
        other.head = self.head
        other.path = list(self.path)
        other.conversation = other._history = self.conversation.copy()
        if self._history is not self.conversation:
            other._history = self._history.copy()
        return other

    def _show_path(self, head: str | None) -> None:
        self.head = head
        self.path: list[Message] = list(self._walk(head))
        self.conversation = self._history = Conversation()
        for message in self.path:
            self._show(message)

    def _show(self, message: Message) -> None:
        """Add a message of the path to the conversation, and to the whole history once that is something else."""
        if message.keeps is not None and self._history is self.conversation:
            self._history = self.conversation.copy(whole=True)
        self.conversation.add(message)
        if self._history is not self.conversation:
            self._history.add(message)

    def _walk(self, head: str | None) -> Iterator[Message]:
        found: list[Message] = []
        by_id = self._tree.by_id
        while head is not None:
            message = by_id.get(head)
            if message is None:
                raise CheckpointError(f"messages: {head} is on the path of the head but is not stored")
            found.append(message)
            if len(found) > len(by_id):
                raise CheckpointError(f"messages: the path of {self.head} goes in a circle")
            head = message.parent
        return reversed(found)

    # ---- reading

    @property
    def chosen(self) -> Mapping[str, str]:
        """The message that is shown after another one, where that is not the newest."""
        return self._tree.chosen

    def __getitem__(self, message: str) -> Message:
        return self._tree.by_id[message]

    def get(self, message: str) -> Message | None:
        """The message with this id, or None."""
        return self._tree.by_id.get(message)

    def __contains__(self, message: object) -> bool:
        return message in self._tree.by_id

    def __len__(self) -> int:
        return len(self._tree.by_id)

    def all(self) -> tuple[Message, ...]:
        """All messages in the order they were written, so that each stands behind the one that it follows."""
        return tuple(self._tree.by_id.values())

    def visible(self) -> Sequence[Message]:
        """The whole path, summaries and what they stand for included, with the results of each batch in call order."""
        by_id = self._tree.by_id
        return [by_id.get(message.id, message) for message in self._history.messages()]

    def branches(self, message: str) -> tuple[str, ...]:
        """The messages that follow the same one as this one does, itself included, oldest first.

        >>> first, other = (Message(id, None, "t1", "user", (), 0.0) for id in ("m1", "m2"))
        >>> Transcript([first, other], "m1").branches("m1")
        ('m1', 'm2')
        """
        return tuple(self._tree.children(self[message].parent))

    def followers(self, message: str | None) -> tuple[str, ...]:
        """The messages that follow this one, oldest first; with None those that begin a path."""
        return tuple(self._tree.children(message))

    def batch(self, message: str) -> tuple[str, ...]:
        """The message and, if it holds calls, the results that follow it on its path: what belongs together."""
        found = [message]
        due = {call.id for call in self[message].calls}
        while due:
            after = self._tree.shown_after(found[-1])
            results = () if after is None or self[after].role != "tool" else self[after].results
            if after is None or not results:
                break
            found.append(after)
            due -= {result.call for result in results}
        return tuple(found)

    def path_to(self, message: str | None) -> tuple[Message, ...]:
        """The messages from the first to this one."""
        return tuple(self._walk(message))

    def cut_at(self, message: str) -> bool:
        """Whether a conversation may end after this message: not between a call and its results."""
        here: Message | None = self[message]
        answered: set[str] = set()
        while here is not None and here.role == "tool":
            answered |= {result.call for result in here.results}
            here = None if here.parent is None else self.get(here.parent)
        return here is None or answered >= {call.id for call in here.calls}

    # ---- changing

    def append(self, message: Message) -> None:
        """Add a message below the head and move the head to it, or apply the change that it records."""
        if message.changes:
            self._change(message)
            return
        if message.parent != self.head or message.id in self._tree.by_id:
            raise AssertionError(f"{message.id} does not follow {self.head}")
        self._tree.add(message)
        self.head = message.id
        self.path.append(message)
        self._show(message)

    def _change(self, record: Message) -> None:
        gone = self._tree.change(record)
        head = self.head
        if head in gone:
            while head is not None and head in gone:
                head = gone[head]
            head = self._tree.leaf(head)
        changed = set(record.changes)
        if head != self.head or any(message.id in changed for message in self.path):
            self._show_path(head)

    def move(self, head: str | None) -> None:
        """Move the head to a message, or before all of them: what is written next follows it."""
        self._tree.choose_path(message.id for message in self.path_to(head))
        self._show_path(head)

    def switch(self, message: str) -> None:
        """Show the path through this message, and below it what was shown there last."""
        self._tree.choose_path(found.id for found in self.path_to(message))
        self._show_path(self._tree.leaf(message))
