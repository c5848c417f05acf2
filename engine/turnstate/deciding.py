"""Asking the policy about a call."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from turnstate_states.reports import Activity, PolicyDecided
from turnstate_states.transcript import Message, Usage
from turnstate_states.turn import Call
from turnstate_states.values import Value

from .agent import Agent
from .failures import describe, failure_in
from .policy import Allow, Ask, Deny, PolicyContext, Verdict
from .policy.base import permissions_of
from .tools import Tool, ToolContext

__all__ = ["Question", "decide"]

log = logging.getLogger("turnstate")


@attrs.frozen(eq=False, repr=False)
class Question(Value):
    """A call to be decided on, with what a policy may look at."""

    key: Activity
    call: Call
    tool: Tool[..., Any]
    context: ToolContext[Any]
    messages: Callable[[], Sequence[Message]]


async def decide(agent: Agent[Any], question: Question) -> PolicyDecided:
    """Ask the agent's policy; whatever goes wrong, a person is asked, and told why."""
    call = question.call
    usage: Mapping[str, Usage] = {}
    try:
        context = _policy_context(question)
        usage = context.usage
        verdict = await agent.policy.authorize(call, context)
    except BaseException as raised:
        error = failure_in(raised)
        log.error("the policy failed for call %s of %s", call.id, call.tool, exc_info=error)
        text = f"the policy failed for {call.tool}, so a person is asked: {describe(error)}"
        return PolicyDecided(question.key, call.id, "ask", describe(error), text, usage=usage, failed=True)
    return _decided(question.key, call, verdict, usage)


def _policy_context(question: Question) -> PolicyContext[Any]:
    context = question.context
    return PolicyContext(
        context.deps,
        session_id=context.session_id,
        turn_id=context.turn_id,
        call_id=context.call_id,
        tool=context.tool,
        declared=functools.partial(_declared, question),
        definition=question.tool.definition,
        messages=question.messages,
    )


def _declared(question: Question) -> Allow | Ask:
    approval = question.tool.approval
    if callable(approval):
        approval = approval(**question.tool.bind_for(approval, question.call.arguments_json, question.context))
    return Ask() if approval else Allow()


def _decided(key: Activity, call: Call, verdict: Verdict, usage: Mapping[str, Usage]) -> PolicyDecided:
    if isinstance(verdict, Allow):
        return PolicyDecided(key, call.id, "allow", permissions=permissions_of(verdict), usage=usage)
    if isinstance(verdict, Deny):
        return PolicyDecided(key, call.id, "deny", verdict.reason, usage=usage)
    if isinstance(verdict, Ask):  # pyright: ignore[reportUnnecessaryIsInstance]
        permissions = permissions_of(verdict)
        return PolicyDecided(
            key,
            call.id,
            "ask",
            verdict.reason,
            permissions=permissions,
            covers=verdict.covers,
            prompt=verdict.prompt,
            usage=usage,
        )
    text = f"the policy gave {type(verdict).__name__} for {call.tool}, which is not a verdict, so a person is asked"
    return PolicyDecided(key, call.id, "ask", text, text, usage=usage, failed=True)
