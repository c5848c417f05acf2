"""Which message follows which, and which of several is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from .message import Message

__all__ = ["Tree"]

ROOT = ""
"""What stands for the place before all messages; ids of messages are never empty."""


class Tree:
    """Messages by id in the order they were written, their followers, and the choice between those.

    Who follows whom is worked out when it is first needed: most sessions are never branched. Nothing here recurses, so
    that threads may be long.
    """

    def __init__(self, messages: Iterable[Message], chosen: Mapping[str, str]) -> None:
        self.by_id: dict[str, Message] = {}
        self.chosen: dict[str, str] = dict(chosen)
        self._children: dict[str, list[str]] | None = None
        self._written: dict[str, int] | None = None
        records: list[Message] = []
        for message in messages:
            if message.changes:
                records.append(message)
            else:
                self.by_id[message.id] = message
        for record in records:
            self._apply(record)

    def copy(self) -> Tree:
        """An independent copy."""
        other = Tree((), self.chosen)
        other.by_id = dict(self.by_id)
        if self._children is not None:
            other._children = {parent: list(found) for parent, found in self._children.items()}
        return other

    def children(self, parent: str | None) -> list[str]:
        """Those that follow a message, oldest first."""
        return self._followers().get(parent or ROOT, [])

    def _followers(self) -> dict[str, list[str]]:
        if self._children is None:
            found: dict[str, list[str]] = {}
            for message in self.by_id.values():
                found.setdefault(message.parent or ROOT, []).append(message.id)
            self._children = found
        return self._children

    def shown_after(self, parent: str | None) -> str | None:
        """The one of its followers that is shown."""
        followers = self.children(parent)
        if not followers:
            return None
        return self.chosen.get(parent or ROOT, followers[-1])

    def leaf(self, message: str | None) -> str | None:
        """The end of the path that is shown through a message."""
        while (below := self.shown_after(message)) is not None:
            message = below
        return message

    def choose_path(self, path: Iterable[str]) -> None:
        """Show each of these after the one before it."""
        parent = ROOT
        for message in path:
            self.choose(parent, message)
            parent = message

    def choose(self, parent: str, message: str) -> None:
        """Show one of those that follow a message."""
        if self.children(parent)[-1] == message:
            self.chosen.pop(parent, None)
        else:
            self.chosen[parent] = message

    def add(self, message: Message) -> None:
        """Add a message; it is shown after the one that it follows."""
        parent = message.parent or ROOT
        self.by_id[message.id] = message
        self.chosen.pop(parent, None)
        if self._children is not None:
            self._children.setdefault(parent, []).append(message.id)
        if self._written is not None:
            self._written[message.id] = len(self._written)

    def change(self, record: Message) -> Mapping[str, str | None]:
        """Apply a record of a change.

        Returns:
            For each message that it deleted, the one that it followed.
        """
        if record.status != "deleted":
            self._apply(record)
            return {}
        shown = {parent: self.shown_after(parent) for parent in self._choosers(record)}
        parents = {name: self.by_id[name].parent for name in record.changes if name in self.by_id}
        self._apply(record)
        for parent, child in shown.items():
            while child in record.changes:
                child = shown.get(child)  # what was shown after a deleted message stands in its place
            if parent in record.changes:
                continue
            self.chosen.pop(parent, None)
            if child is not None:
                self.choose(parent, child)
        for name in record.changes:
            self.chosen.pop(name, None)
        return parents

    def _choosers(self, record: Message) -> list[str]:
        """The deleted messages, and those that they follow."""
        parents = [self.by_id[name].parent or ROOT for name in record.changes if name in self.by_id]
        return [*record.changes, *parents]

    def _apply(self, record: Message) -> None:
        for name in record.changes:
            message = self.by_id.get(name)
            if message is None:
                continue
            if record.status == "deleted":
                self._delete(message)
            else:
                laid = {**message.metadata, **record.metadata}
                metadata = {key: value for key, value in laid.items() if value is not None}
                self.by_id[name] = attrs.evolve(message, metadata=metadata)

    def _place(self, message: str) -> int:
        """Where a message stands among all that were written; deleted ones keep their place."""
        if self._written is None:
            self._written = {name: at for at, name in enumerate(self.by_id)}
        return self._written[message]

    def _delete(self, message: Message) -> None:
        """Take a message out; its followers take its place, and branches stay in the order they were written."""
        followers = self._followers()
        parent = message.parent or ROOT
        moved = followers.pop(message.id, [])
        del self.by_id[message.id]
        for name in moved:
            self.by_id[name] = attrs.evolve(self.by_id[name], parent=message.parent)
        rest = [name for name in followers[parent] if name != message.id] + moved
        if moved and len(rest) > len(moved):
            rest.sort(key=self._place)
        if rest:
            followers[parent] = rest
        else:
            del followers[parent]
