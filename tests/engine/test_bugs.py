"""What reaches whoever runs the program when something breaks that nothing was prepared for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.engine.helpers import engine_of
from turnstate import MemoryStore, Model, ModelRequest, Reply, StoreError, TurnFailed
from turnstate.agent import Agent
from turnstate.engine import Engine
from turnstate.models.base import OnDelta
from turnstate.states import Text
from turnstate.stores import StoredCommit


class BrokenStore(MemoryStore):
    """A store with a bug."""

    async def commit(self, commit: StoredCommit) -> None:
        raise AssertionError


class SilentModel(Model):
    """An adapter that gives no reply."""

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        return cast(Reply, None)


class Named:
    """A name that breaks where it is read."""

    def __get__(self, instance: object, owner: object) -> str:
        return cast("dict[str, str]", {})["name"] if instance is not None else ""


class BrokenModel(Model):
    """An adapter that breaks where nobody expects it."""

    name = cast(Any, Named())

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        return Reply((Text("x"),))


@pytest.mark.trio
async def test_a_bug_where_a_session_is_driven_says_so() -> None:
    """An exception without a text arrives with its type, and with what to do."""
    async with engine_of("x", store=BrokenStore()) as engine:
        with pytest.raises(
            StoreError, match=r"session s stopped: AssertionError; this is a bug .* report it"
        ) as raised:
            await engine.session("s").run("go")
        assert isinstance(raised.value.__cause__, AssertionError)


@pytest.mark.trio
async def test_a_bug_in_an_activity_says_so() -> None:
    """The turn fails with the type of what was raised, and with what to do."""
    async with Engine(Agent(BrokenModel()), MemoryStore()) as engine:
        with pytest.raises(TurnFailed, match=r"KeyError; this is a bug .* report it"):
            await engine.session("s").run("go")


@pytest.mark.trio
async def test_an_adapter_that_gives_no_reply_is_named() -> None:
    """What is no Reply fails the turn with the adapter's name."""
    async with Engine(Agent(SilentModel()), MemoryStore()) as engine:
        with pytest.raises(TurnFailed, match=r"SilentModel.respond\(\) gave NoneType, not a Reply"):
            await engine.session("s").run("go")
