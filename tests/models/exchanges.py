"""One exchange with a model, as the tests of adapters need it."""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
import trio

from tests.models.requests import message, request
from turnstate.models.base import Model, ModelRequest, OnDelta, Reply
from turnstate_states.errors import ModelError

CANARY = "sk-canary-0123456789"
"""A key that must never be seen."""

M = TypeVar("M", bound=Model)


def hello() -> ModelRequest:
    """A person says hi."""
    return request(message("user", "hi"))


def ignore(kind: str, text: str, slot: int) -> None:
    """Told pieces that do not matter."""


@asynccontextmanager
async def opened(model: M) -> AsyncGenerator[M]:
    """The model, closed at the end."""
    try:
        yield model
    finally:
        with trio.CancelScope(shield=True):
            await model.aclose()


async def reply_of(model: Model, on_delta: OnDelta = ignore) -> Reply:
    """What the model says to :func:`hello`."""
    async with opened(model):
        return await model.respond(hello(), on_delta)


async def failure_of(model: Model) -> ModelError:
    """The error that saying :func:`hello` to the model ends with, its text one line."""
    with pytest.raises(ModelError) as caught:
        await reply_of(model)
    assert "\n" not in str(caught.value)
    return caught.value


def everything_told(error: BaseException) -> str:
    """All that a log may hold of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(getattr(error, "__cause__", ""))
