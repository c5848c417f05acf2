"""Who let a call run, with what, and how far it may reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from .values import Value

__all__ = ["Authorization", "Decision", "Permissions"]


@attrs.frozen(eq=False, repr=False)
class Decision(Value):
    """A person's decision on a call: what, who (as the client said), when (seconds since the epoch), why.

    ``option``, ``text`` and ``answers`` are what was said to a :class:`~turnstate.Prompt`; ``provide`` is a result from
    outside.
    """

    verdict: Literal["approve", "deny", "provide"]
    at: float
    by: str = ""
    reason: str = ""
    for_session: bool = False
    end_turn: bool = False
    option: str = ""
    text: str = ""
    answers: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(eq=False, repr=False)
class Permissions(Value):
    """What a call may reach beyond reading: the network, and paths to write below. A sandbox enforces them."""

    network: bool = False
    write: tuple[str, ...] = ()

    def within(self, other: Permissions) -> bool:
        """Whether these reach no further than the others.

        >>> Permissions(write=("a",)).within(Permissions(network=True, write=("a", "b")))
        True
        """
        return self.network <= other.network and set(self.write) <= set(other.write)


@attrs.frozen(eq=False, repr=False)
class Authorization(Value):
    """What is known of a settled call besides its result: the fields of :class:`~turnstate.Call` with these names."""

    decision: Decision | None = None
    edited: str | None = None
    filled: str = ""
    permissions: Permissions | None = None
    grant: str = ""
    reason: str = ""
