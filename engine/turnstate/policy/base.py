"""What a policy is, what it is given and what it may say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, Literal

import attrs
from typing_extensions import TypeVar

from turnstate_states.errors import InvalidInput
from turnstate_states.transcript import Message
from turnstate_states.turn import Call, Permissions

from ..models.base import ToolDefinition
from ..tools import ToolContext

__all__ = ["Allow", "AllowAll", "AsDeclared", "Ask", "AskAll", "Deny", "Policy", "PolicyContext", "Verdict"]

D = TypeVar("D", default=Any)


def _paths(paths: str | Path | Iterable[str | Path]) -> tuple[str, ...]:
    if isinstance(paths, (str, Path)):
        raise InvalidInput(f"write: expected a list of paths, got the one path {str(paths)!r}; put it in a list")
    return tuple(str(path) for path in paths)


@attrs.frozen
class Allow:
    """The call may run, and reach the network or write below some paths if that is said.

    Permissions reach the tool's context; :func:`turnstate.tools.shell` enforces them, a plain function must look itself.
    """

    network: bool = attrs.field(default=False, kw_only=True)
    write: tuple[str, ...] = attrs.field(default=(), converter=_paths, kw_only=True)


@attrs.frozen
class Deny:
    """The call may not run; the model is told why."""

    reason: str = ""


@attrs.frozen
class Ask:
    """A person must decide. If they approve, the call gets these permissions.

    ``covers`` is what an approval for the session covers: this tool with equal arguments, or the tool with any.
    """

    reason: str = ""
    network: bool = attrs.field(default=False, kw_only=True)
    write: tuple[str, ...] = attrs.field(default=(), converter=_paths, kw_only=True)
    covers: Literal["arguments", "tool"] = attrs.field(default="arguments", kw_only=True)


Verdict = Allow | Deny | Ask


def permissions_of(verdict: Verdict) -> Permissions | None:
    """The permissions that come with a verdict."""
    return None if isinstance(verdict, Deny) else Permissions(verdict.network, verdict.write)


class PolicyContext(ToolContext[D]):
    """What a policy is given besides the call.

    ``declared`` is the verdict of the tool's own declaration, ``definition`` what the model was told of the tool,
    ``messages`` the visible conversation.
    """

    def __init__(
        self,
        deps: D,
        *,
        session_id: str,
        turn_id: str,
        call_id: str,
        tool: str,
        declared: Allow | Ask,
        definition: ToolDefinition,
        messages: Callable[[], Sequence[Message]],
    ) -> None:
        super().__init__(deps, session_id=session_id, turn_id=turn_id, call_id=call_id, tool=tool)
        self.declared = declared
        self.definition = definition
        self._messages = messages

    @property
    def messages(self) -> Sequence[Message]:
        """The visible conversation, oldest first."""
        return self._messages()


class Policy(Generic[D]):
    """Base class: one call, one verdict. An exception, or anything that is not a verdict, asks a person.

    A call without a verdict cannot run. A verdict is stored with its call; after a crash a call that has not started may
    be asked about again, but never gets more than before.
    """

    async def authorize(self, call: Call, ctx: PolicyContext[D], /) -> Verdict:
        """Decide on a call, whose arguments were checked."""
        raise NotImplementedError


class AsDeclared(Policy[Any]):
    """The default: what ``approval=`` of the tool says."""

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        return ctx.declared


class AllowAll(Policy[Any]):
    """Everything may run, with these permissions."""

    def __init__(self, *, network: bool = False, write: Iterable[str | Path] = ()) -> None:
        self._verdict = Allow(network=network, write=_paths(write))

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        return self._verdict


class AskAll(Policy[Any]):
    """A person decides on every call."""

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        return Ask()
