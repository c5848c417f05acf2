"""What the scenarios of the thread share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnstate import Call, Message, SessionHandle, ThreadView, Tool, tool

__all__ = ["Desk", "ids", "lines", "status", "waiting"]


class Desk:
    """A tool of each kind: it runs here, a person allows it, a person does it, or allows it and does it then."""

    def __init__(self) -> None:
        self.did: list[str] = []

        @tool
        async def look(at: str = "") -> str:
            self.did.append(f"look {at}".strip())
            return f"saw {at}".strip()

        @tool(approval=True)
        async def pay(amount: int = 1) -> str:
            self.did.append(f"pay {amount}")
            return f"paid {amount}"

        @tool(outside=True)
        def ask(question: str = "") -> None: ...

        @tool(outside=True, approval=True)
        def sign(paper: str = "") -> None: ...

        self.tools: list[Tool[..., Any]] = [look, pay, ask, sign]


def status(view: ThreadView) -> str:
    """What is shown of the last message of a model: ``complete/stop``."""
    shown = [found.display for found in view.messages if found.display is not None]
    return f"{shown[-1].status}/{shown[-1].reason}"


def lines(view: ThreadView) -> list[str]:
    """A thread as a person sees it: who said what, and which of how many branches it is where there are several."""
    found: list[str] = []
    for shown in view.messages:
        place = f" ({shown.position + 1}/{len(shown.branches)})" if len(shown.branches) > 1 else ""
        found.append(f"{shown.message.role}: {shown.message.text}{place}")
    return found


def ids(messages: Sequence[Message]) -> list[str]:
    """The ids of messages."""
    return [message.id for message in messages]


async def waiting(session: SessionHandle) -> list[Call]:
    """The calls that wait for a person."""
    return list((await session.info()).waiting)
