"""What the tests of policies share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnstate import (
    ApprovalRequested,
    Call,
    Policy,
    Result,
    Session,
    Tool,
    ToolContext,
    tool,
)
from turnstate.policy import PolicyContext
from turnstate_states.turn import Permissions


class Says(Policy[Any]):
    """A policy made of a function; ``asked`` are the calls that it was asked about."""

    def __init__(self, say: Callable[[Call], Any]) -> None:
        self.say = say
        self.asked: list[str] = []

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Any:
        self.asked.append(call.id)
        return self.say(call)


class Probe:
    """Tools that note what they were allowed."""

    def __init__(self) -> None:
        self.seen: dict[str, Permissions] = {}

    def tool(self, name: str = "it", **options: Any) -> Tool[..., Any]:
        """A tool that notes its permissions under its argument."""

        async def note(ctx: ToolContext[Any], what: str = "") -> str:
            self.seen[what] = ctx.permissions
            return f"did {what}"

        return tool(name=name, **options)(note)


async def answered(session: Session, text: str = "go", **answer: Any) -> Result[str]:
    """Run a turn in which everything that is asked is approved."""
    async with session.turn(text) as turn:
        async for event in turn:
            if isinstance(event, ApprovalRequested):
                await session.approve(event.call, **answer)
        return await turn.result()
