"""What the tests of compaction share: a model that reads pages, one that summarises, and small numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.engine.helpers import StrictModel, events_of
from turnstate import (
    Agent,
    Engine,
    Limits,
    MemoryStore,
    Middleware,
    ModelError,
    ModelRequest,
    Reply,
    Session,
    Store,
    TurnEnded,
    Usage,
    tool,
)
from turnstate.middleware import Compaction
from turnstate.states import Text
from turnstate.testing import call

PAGE = 400


def too_long() -> ModelError:
    """How a provider refuses a request as too long."""
    return ModelError("the prompt is too long", kind="context-overflow", status=400)


@tool
async def page(n: int) -> str:
    """Read a page."""
    return f"page {n}: " + "x" * PAGE


def last_page(request: ModelRequest) -> int:
    """The page that the model has read last, by what it is shown."""
    read = [message.text for message in request.messages if message.text.startswith("page ")]
    return int(read[-1].split()[1].rstrip(":")) if read else 0


class Reader(StrictModel):
    """A model that reads so many pages one after another, some of them in twos, then is done."""

    def __init__(self, pages: int, *, twos: bool = False, trouble: Sequence[Exception] = ()) -> None:
        self.trouble = list(trouble)

        def script(request: ModelRequest) -> Any:
            at = last_page(request)
            if at >= pages:
                return self.trouble.pop(0) if self.trouble else f"done after {at}"
            if twos and at % 3 == 0:
                return [call("page", n=at + 1), call("page", n=at + 2)]
            return call("page", n=at + 1)

        super().__init__(script, name="reader")


class Summariser(StrictModel):
    """A model that gives numbered summaries, unless it was told to give something else first."""

    def __init__(self, *first: Any) -> None:
        lines = list(first)

        def script(request: ModelRequest) -> Any:
            if lines:
                return lines.pop(0)
            return Reply((Text(f"summary {len(self.requests)}"),), usage=Usage(input=100, output=10), model="sum")

        super().__init__(script, name="sum")

    def prompt(self, at: int) -> str:
        """What it was given to summarise."""
        return self.requests[at].messages[0].text


def compaction(model: StrictModel | None = None, *, trigger: int = 450, keep: int = 150) -> Compaction:
    """Compaction with small numbers."""
    return Compaction(model, window=100_000, trigger=trigger, keep=keep)


def engine_with(
    model: StrictModel, *middleware: Middleware[Any], tools: Sequence[Any] = (page,), store: Store | None = None
) -> Engine[None]:
    """An engine whose agent has this middleware."""
    agent = Agent[None](model, tools=tools, middleware=middleware, limits=Limits(steps=None))
    return Engine(agent, store or MemoryStore())


async def log_of(session: Session) -> list[Any]:
    """The events of a session up to its last turn's end."""
    return list(await events_of(session, until=lambda event: isinstance(event, TurnEnded)))


def of(kind: type[Any], log: Sequence[Any]) -> list[Any]:
    """The events of a kind."""
    return [event for event in log if isinstance(event, kind)]


def starts(request: ModelRequest) -> str:
    """The last words of the first message."""
    return request.messages[0].text.rpartition("\n\n")[2]
