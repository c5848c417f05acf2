"""What a running tool knows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic

from typing_extensions import TypeVar

from turnstate_states import checks
from turnstate_states.transcript import Usage
from turnstate_states.turn import Decision, Nested, Permissions

__all__ = ["ToolContext"]

D = TypeVar("D", default=Any)


class ToolContext(Generic[D]):
    """What a running tool knows; a parameter annotated with it is filled in and the model does not see it.

    ``permissions`` are what the policy's verdict gives this call: a tool that reaches further must look at them.
    ``decision`` is what a person said about it, with what they chose or wrote; None where nobody was asked.
    ``nested`` and ``engine`` are for tools that run an agent.
    ``idempotency_key`` is the same each time this call is begun, also after a crash. ``cancelled`` becomes true when the
    turn ends or the call times out: a function in a thread should look at it, since nobody can end a thread.
    """

    def __init__(
        self,
        deps: D,
        *,
        session_id: str,
        turn_id: str,
        call_id: str,
        tool: str,
        progress: Callable[[object], None] = lambda value: None,
        life: str = "",
    ) -> None:
        self.deps = deps
        self.session_id = session_id
        self.turn_id = turn_id
        self.call_id = call_id
        self.tool = tool
        self._life = life
        self.permissions = Permissions()
        self.decision: Decision | None = None
        self.nested: tuple[Nested, ...] = ()
        self.engine: Any = None
        self.usage: dict[str, Usage] = {}
        self._progress = progress
        self._cancelled = threading.Event()

    @property
    def idempotency_key(self) -> str:
        """Unique for ever, and equal each time this call is begun: a random word of the session's and the call's id.

        In sessions from before format 2 the session's id stands in the place of that word, as it did then.
        """
        return f"{self._life or self.session_id}/{self.call_id}"

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Say that nobody waits any more. The engine does it."""
        self._cancelled.set()

    def count_usage(self, model: str, usage: Usage) -> None:
        """Count what a model of the tool's own used; it is in the turn's and the session's usage, under that name."""
        from ..models.base import check_usage

        checks.text("model", model)
        self.usage[model] = self.usage.get(model, Usage()) + check_usage("usage", usage)

    def progress(self, value: object) -> None:
        """Tell subscribers how far it is; from any thread. ``value`` is anything that they can use; it is not stored."""
        self._progress(value)
