"""What a policy is, what it is given and what it may say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, Literal

import attrs
from typing_extensions import TypeVar

from turnstate_states import checks
from turnstate_states.asking import Prompt
from turnstate_states.errors import InvalidInput
from turnstate_states.transcript import Message
from turnstate_states.turn import Call, Permissions
from turnstate_states.values import Value

from ..models.base import ToolDefinition
from ..paths import paths as check_paths
from ..tools import ToolContext

__all__ = ["Allow", "AllowAll", "AsDeclared", "Ask", "AskAll", "Deny", "Policy", "PolicyContext", "Verdict"]

D = TypeVar("D", default=Any)


def _paths(paths: str | Path | Iterable[str | Path]) -> tuple[str, ...]:
    return check_paths("write", paths)


COVERS: Any = checks.validator(checks.choice, choices=("arguments", "tool"))


def _prompt(prompt: Prompt | str | None) -> Prompt | None:
    if prompt is None or isinstance(prompt, Prompt):
        return prompt
    if not isinstance(prompt, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"prompt: expected a question or a Prompt, got {checks.shown(prompt)}")
    return Prompt(checks.text("prompt", prompt))


@attrs.frozen(eq=False, repr=False)
class Allow(Value):
    """The call may run, and reach the network or write below some paths if that is said.

    Permissions reach the tool's context; :func:`turnstate.tools.shell` enforces them, a plain function must look itself.
    """

    network: bool = attrs.field(default=False, validator=checks.validator(checks.flag), kw_only=True)
    write: tuple[str, ...] = attrs.field(default=(), converter=_paths, kw_only=True)


@attrs.frozen(eq=False, repr=False)
class Deny(Value):
    """The call may not run; the model is told why. No approval for the session helps against it."""

    reason: str = attrs.field(default="", validator=checks.validator(checks.text))


@attrs.frozen(eq=False, repr=False)
class Ask(Value):
    """A person must decide. If they approve, the call gets these permissions.

    ``covers`` is what an approval for the session covers: this tool with equal arguments, or the tool with any. It covers
    a later call only if that one's own verdict asks for no more permissions than the approved call's. ``prompt`` is how the
    person is asked (a question, or a :class:`~turnstate.Prompt`), by default as the tool declares.
    """

    reason: str = attrs.field(default="", validator=checks.validator(checks.text))
    network: bool = attrs.field(default=False, validator=checks.validator(checks.flag), kw_only=True)
    write: tuple[str, ...] = attrs.field(default=(), converter=_paths, kw_only=True)
    covers: Literal["arguments", "tool"] = attrs.field(default="arguments", validator=COVERS, kw_only=True)
    prompt: Prompt | None = attrs.field(default=None, converter=_prompt, kw_only=True)


Verdict = Allow | Deny | Ask


def permissions_of(verdict: Verdict) -> Permissions | None:
    """The permissions that come with a verdict."""
    return None if isinstance(verdict, Deny) else Permissions(verdict.network, verdict.write)


class PolicyContext(ToolContext[D]):
    """What a policy is given besides the call.

    ``definition`` is what the model was told of the tool.
    """

    def __init__(
        self,
        deps: D,
        *,
        session_id: str,
        turn_id: str,
        call_id: str,
        tool: str,
        declared: Callable[[], Allow | Ask],
        definition: ToolDefinition,
        messages: Callable[[], Sequence[Message]],
    ) -> None:
        super().__init__(deps, session_id=session_id, turn_id=turn_id, call_id=call_id, tool=tool)
        self._declared = declared
        self.definition = definition
        self._messages = messages

    @property
    def declared(self) -> Allow | Ask:
        """The verdict of the tool's own declaration; asks its ``approval`` if that is a function, which may raise."""
        return self._declared()

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

    async def aclose(self) -> None:
        """Close connections; an engine does it when it is left. The default has none."""


class AsDeclared(Policy[Any]):
    """The default: what ``approval=`` of the tool says."""

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        return ctx.declared


class AllowAll(Policy[Any]):
    """Everything may run, with these permissions."""

    def __init__(self, *, network: bool = False, write: Iterable[str | Path] = ()) -> None:
        self._verdict = Allow(network=network, write=write)

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        return self._verdict


class AskAll(Policy[Any]):
    """A person decides on every call."""

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
        return Ask()
