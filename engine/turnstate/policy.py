"""Who may do what: a policy decides each call that its tool does not decide by declaration."""

from __future__ import annotations

from typing import Any, Generic

import attrs
from typing_extensions import TypeVar

from turnstate_states.turn import Call

from .tools import ToolContext

__all__ = ["Allow", "AsDeclared", "Ask", "Deny", "Policy", "Verdict"]

D = TypeVar("D", default=Any)


@attrs.frozen
class Allow:
    """The call may run."""


@attrs.frozen
class Deny:
    """The call may not run; the model is told why."""

    reason: str = ""


@attrs.frozen
class Ask:
    """A person must decide."""

    reason: str = ""


Verdict = Allow | Deny | Ask


class Policy(Generic[D]):
    """Base class: one call, one verdict. An exception, or anything that is not a verdict, asks a person."""

    async def authorize(self, call: Call, ctx: ToolContext[D], /) -> Verdict:
        """Decide on a call."""
        raise NotImplementedError


class AsDeclared(Policy[Any]):
    """The default: what ``approval=`` of the tool says."""
