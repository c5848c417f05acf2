"""A model that is several: the next one is asked where one cannot answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, get_args

import attrs

from turnstate_states import checks
from turnstate_states.errors import InvalidInput, ModelError, ModelErrorKind

from .base import DeltaKind, Model, ModelRequest, OnDelta, Reply

__all__ = ["FALLBACK_ON", "Fallback"]

FALLBACK_ON: frozenset[ModelErrorKind] = frozenset(
    {"connection", "timeout", "cut", "overloaded", "server", "rate-limit", "not-found"}
)
"""Kinds of errors that say nothing about the request, so that another model may well answer it."""


class Fallback(Model):
    """Asks the first model; on given errors the next one, and so on, as long as nothing of an answer was shown.

    The reply names the model that answered. An error of a kind that is not given, or after the first piece, is raised as
    it is. Where all fail, the last error is raised, or an earlier one if only that may be retried; its notes tell the
    others.

    Args:
        models: at least one, in the order in which they are asked. They are closed together.
        on: kinds of errors, see :data:`~turnstate.ModelErrorKind`.

    Raises:
        InvalidInput: there is no model, or a kind does not exist.
    """

    def __init__(self, *models: Model, on: Iterable[ModelErrorKind] = FALLBACK_ON) -> None:
        if not models:
            raise InvalidInput("models: expected at least one")
        self.models = checks.array("models", models, Model, "turnstate.models adapters")
        kinds = checks.items("on", on, "a list of kinds of errors")
        self.on = frozenset(checks.choice("on", kind, get_args(ModelErrorKind)) for kind in kinds)
        self.name = models[0].name
        told = {model.tells_cost for model in models}
        self.tells_cost = told.pop() if len(told) == 1 else False if False in told else None

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self.models))})"

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        """Ask one model after the other; see :meth:`Model.respond`."""
        shown = False

        def show(kind: DeltaKind, text: str, slot: int) -> None:
            nonlocal shown
            shown = True
            on_delta(kind, text, slot)

        failed: list[tuple[str, ModelError]] = []
        for model in self.models:
            try:
                reply = await model.respond(request, show)
            except ModelError as error:
                if shown or error.kind not in self.on:
                    raise
                failed.append((model.name, error))
            else:
                return reply if reply.model else attrs.evolve(reply, model=model.name)
        raise _chosen(failed)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Settings of a turn must be ones that every model knows; see :meth:`Model.check_settings`."""
        for model in self.models:
            model.check_settings(settings)

    async def aclose(self) -> None:
        """Close every model, also where one of them fails to."""
        async with AsyncExitStack() as stack:
            for model in reversed(self.models):
                stack.push_async_callback(model.aclose)


def _chosen(failed: list[tuple[str, ModelError]]) -> ModelError:
    last = failed[-1][1]
    chosen = last if last.retryable else next((error for _, error in failed if error.retryable), last)
    for name, error in failed:
        if error is not chosen:
            chosen.add_note(f"{name or 'another model'} failed, too: {error}")
    return chosen
