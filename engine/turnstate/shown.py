"""Which questions a handle has shown: an answer by a bare id is on what was shown under it last."""

from __future__ import annotations

from collections.abc import Iterable

from turnstate_states.events import ApprovalRequested, Event, ResultRequested
from turnstate_states.turn import Call

__all__ = ["Shown"]

KEPT = 1000
"""Questions that are remembered; the oldest goes out."""


class Shown:
    """The digests of the questions that a handle gave to its user, by the ids of their calls."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def note(self, calls: Iterable[Call]) -> None:
        """These were shown."""
        for call in calls:
            self._digests.pop(call.id, None)
            self._digests[call.id] = call.digest
        while len(self._digests) > KEPT:
            del self._digests[next(iter(self._digests))]

    def note_event(self, event: Event) -> None:
        """An event was shown, perhaps a question."""
        if isinstance(event, (ApprovalRequested, ResultRequested)):
            self.note((event.call,))

    def digest(self, call: str) -> str | None:
        """The digest of the question that was shown last about a call; None if none was."""
        return self._digests.get(call)
