"""The ids that a conversation holds already, which no later message may bring again."""

from __future__ import annotations

import attrs

__all__ = ["UsedIds"]


@attrs.define
class UsedIds:
    """Ids with the number of the message that brought them, in this order.

    ``calls`` are those that were sent for calls, ``uses`` and ``answers`` those of tools that the provider runs. ``dropped``
    are uses that were left out for good, for want of an answer; ``late`` tells that one of these was answered after all.
    """

    calls: dict[str, int] = attrs.field(factory=dict[str, int])
    uses: dict[str, int] = attrs.field(factory=dict[str, int])
    answers: dict[str, int] = attrs.field(factory=dict[str, int])
    dropped: dict[str, int] = attrs.field(factory=dict[str, int])
    late: bool = False

    def cut(self, messages: int) -> None:
        """Keep only what so many messages brought.

        >>> ids = UsedIds({"a": 1, "b": 4})
        >>> ids.cut(4)
        >>> ids.calls
        {'a': 1}
        """
        self.late = False
        for brought in (self.calls, self.uses, self.answers, self.dropped):
            while brought and next(reversed(brought.values())) >= messages:
                brought.popitem()

    def fits(self, use: str, answer: str, number: int) -> bool:
        """Whether a hosted block of this message may stand there: a use once, an answer once and after its use."""
        if use:
            brought, fits = self.uses, use not in self.uses
        elif answer:
            self.late = self.late or answer in self.dropped
            brought, fits = self.answers, answer in self.uses and answer not in self.answers
        else:
            return True
        if fits:
            brought[use or answer] = number
        return fits

    @property
    def unanswered(self) -> bool:
        """Whether there are uses without an answer."""
        return len(self.uses) > len(self.answers)
