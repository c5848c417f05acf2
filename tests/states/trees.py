"""What must hold of any transcript, and what a reloaded one has in common with the live one."""

from __future__ import annotations

from turnstate_states.transcript import Message, Transcript


def shown_after(transcript: Transcript, parent: str | None) -> str | None:
    """The one of its followers that is shown."""
    followers = transcript.followers(parent)
    return transcript.chosen.get(parent or "", followers[-1]) if followers else None


def check_tree(transcript: Transcript) -> None:
    """Hold every invariant of the tree, of the choice between branches, and of the path."""
    written = {message.id: at for at, message in enumerate(transcript.all())}
    assert len(written) == len(transcript)
    for message in transcript.all():
        assert transcript[message.id] is message
        assert message.parent is None or written[message.parent] < written[message.id], "each behind its parent"
        branches = transcript.branches(message.id)
        assert branches == transcript.followers(message.parent)
        assert branches.count(message.id) == 1
        assert [written[name] for name in branches] == sorted(written[name] for name in branches)
    for parent, child in transcript.chosen.items():
        followers = transcript.followers(parent or None)
        assert child in followers[:-1], "only a choice that is not the newest is kept"
    _check_path(transcript)


def _check_path(transcript: Transcript) -> None:
    """The head lies on the path that is shown from the beginning."""
    parent: str | None = None
    for message in transcript.path:
        assert message is transcript[message.id]
        assert message.parent == parent
        assert shown_after(transcript, parent) == message.id
        parent = message.id
    assert transcript.head == parent


def reads(transcript: Transcript, head: str | None) -> list[tuple[str, str]]:
    """The roles and texts from the beginning to a message."""
    return [(message.role, message.text) for message in transcript.path_to(head)]


def leaves(transcript: Transcript) -> list[Message]:
    """The ends of all branches, oldest first."""
    return [message for message in transcript.all() if not transcript.followers(message.id)]


def same(one: Transcript, other: Transcript) -> None:
    """Both hold, show and choose the same."""
    assert (one.head, one.path, one.all()) == (other.head, other.path, other.all())
    assert dict(one.chosen) == dict(other.chosen)
    assert one.conversation.messages() == other.conversation.messages()
    assert one.visible() == other.visible()
