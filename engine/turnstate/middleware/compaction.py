"""Summarising a conversation before it outgrows its model."""

from __future__ import annotations

from typing import Any, ClassVar

from turnstate_states import checks
from turnstate_states.errors import InvalidInput, ModelError
from turnstate_states.transcript import Message

from ..models.base import Model
from .base import Middleware, StepContext
from .measuring import BYTES_PER_TOKEN, cut_for, estimate, tokens_of
from .summarizing import INSTRUCTIONS, ask_for_summary, prompt_of, with_preface

__all__ = ["Compaction"]

RESERVE = 16_384
"""Tokens of the window that stay free for the reply."""
KEEP = 20_000


class Compaction(Middleware[Any]):
    """Before a conversation outgrows its model, has the older part of it summarised, and the model go on from there.

    It looks before each request. A request counts what the provider counted of the last one and what came since, or a token
    for every four bytes, whichever is more. From ``trigger`` tokens on, all but the most recent part is given to a model,
    together with the earlier summary, and its answer takes their place. The history stays as it is for people. A call is
    never parted from its results. When a provider refuses a request as too long, that is done once and the request is
    tried again.

    If the summary fails or is empty, nothing changes, people are told by :class:`~turnstate.Warned`, and the turn goes on,
    unless the provider refuses it as too long.

    Args:
        model: who summarises; by default the agent's own. What it uses is counted under its name.
        window: the tokens that the agent's model can take, request and reply together.
        trigger: tokens of a request from which on to summarise, at most ``window - 16,384``, which is the default.
        keep: about how many of the most recent tokens to keep as they are, at most half of ``trigger``.
        instructions: what the model that summarises is told.

    Raises:
        InvalidInput: an argument cannot be used.

    >>> Compaction(window=128_000).trigger
    111616
    """

    makes_room: ClassVar[bool] = True

    def __init__(
        self,
        model: Model | None = None,
        *,
        window: int,
        trigger: int | None = None,
        keep: int = KEEP,
        instructions: str = INSTRUCTIONS,
    ) -> None:
        if model is not None and not isinstance(model, Model):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"model: expected a turnstate.models adapter, got {checks.shown(model)}")
        for name, value, least in (("window", window, 1), ("trigger", trigger, 1), ("keep", keep, 0)):
            if value is not None or name != "trigger":
                checks.integer(name, value, least=least, expected="a number of tokens")
        checks.text("instructions", instructions, filled=True, expected="what to tell the model that summarises")
        room = window - RESERVE
        self.model = model
        self.window = window
        self.trigger = max(1, room if trigger is None else min(trigger, room))
        self.keep = min(keep, self.trigger // 2)
        self.instructions = instructions

    async def before_model(self, ctx: StepContext[Any], /) -> None:
        """Summarise if it is time to, or if the request was refused as too long."""
        if ctx.overflow is None and tokens_of(ctx.request) < self.trigger:
            return
        messages = ctx.request.messages
        at = self._cut(messages, folding=ctx.overflow is not None)
        if at is None:
            if ctx.overflow is not None:
                ctx.warn("the conversation is too long for the model, and there is nothing that could be summarised")
            return
        summary = await self._summarise(ctx, messages[:at])
        if summary:
            ctx.compact(with_preface(summary), keeps=messages[at].id if at < len(messages) else "")

    async def aclose(self) -> None:
        if self.model is not None:
            await self.model.aclose()

    def _cut(self, messages: tuple[Message, ...], *, folding: bool) -> int | None:
        """The index of the first message to keep, None if there is nothing to summarise.

        With ``folding``, calls at the end that fill half of the window by themselves are summarised with the rest.
        """
        at = cut_for(messages, self.keep)
        if folding and messages and messages[-1].role == "tool":
            last = cut_for(messages, 0)
            if estimate(messages if last is None else messages[last:]) >= self.window // 2:
                return len(messages)
        return at

    async def _summarise(self, ctx: StepContext[Any], messages: tuple[Message, ...]) -> str:
        """A summary, or nothing and a warning."""
        model = ctx.model if self.model is None else self.model
        prompt = prompt_of(messages, self.window * BYTES_PER_TOKEN // 2)
        try:
            reply = await ask_for_summary(model, ctx.session_id, ctx.request.attempt, self.instructions, prompt)
        except ModelError as error:
            ctx.warn(f"the conversation was not summarised: {error}")
            return ""
        ctx.count_usage(reply.model or model.name, reply.usage)
        if reply.stop in ("refusal", "content-filter") or not reply.text.strip():
            ctx.warn("the conversation was not summarised: the model gave no summary")
            return ""
        return reply.text.strip()
