"""A call's life, from the reply that proposes it to its one result."""

from __future__ import annotations

from typing import Any

import attrs

from . import texts
from .authorization import Authorization
from .content import ResultStatus, ToolCall, ToolResult
from .events import ApprovalRequested, CallAnswered, CallProposed, CallSettled, CallStarted, ResultRequested
from .rules import Bound, ToolSpec
from .stepping import Facts
from .subject import canonical_arguments, changes, definition, digest_of, subject_of
from .turn import Call, Grant, Nested, Permissions
from .work import Work

__all__ = [
    "advance_calls",
    "again",
    "ask",
    "ask_again",
    "bind",
    "covering_grant",
    "decide",
    "expire",
    "facts",
    "propose",
    "propose_rest",
    "request_result",
    "settle",
    "settle_open",
    "suspend",
]

NOTHING_KNOWN = Authorization()


def propose_rest(work: Work) -> None:
    """Put the calls of a stored reply that ends its turn into the turn, so that each gets its result."""
    for part in work.transcript[work.turn.reply].calls:
        if part.id not in work.turn.calls:
            propose(work, part)


def ask_again(work: Work, grant: Grant) -> None:
    """An approval for the session is gone: what it allowed and has not started needs another."""
    for call in () if work.active is None else tuple(work.turn.calls.values()):
        if call.status == "allowed" and call.grant == grant.id and call.decision is None and not call.began:
            decide(work, attrs.evolve(call, status="proposed", grant=""))


def propose(work: Work, part: ToolCall) -> Call:
    """Put a call of the reply into the turn."""
    call = Call(part.id, part.name, proposed=part.arguments)
    filled = bind(work, call).filled
    if filled:
        call = attrs.evolve(call, filled=filled)
    work.put_call(call)
    work.turn.calls_made += 1
    work.tell(CallProposed, call)
    return call


def bind(work: Work, call: Call) -> Bound:
    """The arguments of a call as it stands, held against its tool."""
    spec = work.rules.tools.get(call.tool)
    if spec is None:
        return Bound(texts.unknown_tool(call.tool, list(work.rules.tools)))
    known = work.bound.get(call.id)
    if known is not None and known[0] == call.arguments_json:
        return known[1]
    bound = spec.bind(call.arguments_json)
    work.bound[call.id] = (call.arguments_json, bound)
    return bound


def again(call: Call) -> Call:
    """A call as one about which nothing was decided yet; what was asked before is kept, to say what changed."""
    return attrs.evolve(call, status="proposed", decision=None, grant="", prompt=None, expires_at=None, reason="")


def decide(work: Work, call: Call) -> None:
    """Bring a proposed call as far as what is declared says."""
    bound = bind(work, call)
    if bound.fault:
        settle(work, call, "error", bound.fault)
        return
    if bound.filled != call.filled:
        call = attrs.evolve(call, filled=bound.filled)
    spec = work.rules.tools[call.tool]
    if spec.approval == "policy":
        if work.turn.calls[call.id] != call:
            work.put_call(call)
    elif spec.approval == "always" or call.subject is not None:  # what was asked once is not let through by a deploy
        ask(work, call, spec)
    else:
        work.put_call(attrs.evolve(call, status="allowed"))


def ask(work: Work, call: Call, spec: ToolSpec, reason: str = "") -> None:
    """Ask a person, unless an approval for the session covers the call."""
    grant = covering_grant(work, call)
    if grant is not None:
        work.put_call(attrs.evolve(call, status="allowed", grant=grant.id))
        return
    prompt = call.prompt or spec.prompt(call.arguments_json)
    asked = attrs.evolve(
        _about(work, call, spec),
        status="asked",
        wants="decision",
        reason=reason,
        decision=None,
        expires_at=_expiry(work, spec),
        prompt=prompt,
    )
    work.put_call(asked)
    work.tell(ApprovalRequested, asked)


def _about(work: Work, call: Call, spec: ToolSpec) -> Call:
    """The call with what a question about it is about, and what is different from the last one."""
    subject = subject_of(call, spec)
    work.asked_before.discard(call.id)
    digest = digest_of(work.checkpoint.life, call, subject)
    return attrs.evolve(call, subject=subject, digest=digest, changed=changes(call.subject, subject))


def _expiry(work: Work, spec: ToolSpec) -> float | None:
    return None if spec.expires is None else work.now + spec.expires


def request_result(work: Work, call: Call, spec: ToolSpec) -> None:
    """Ask somebody outside for the result of a call; from now on it may have had effects there."""
    asked = attrs.evolve(
        _about(work, call, spec),
        status="asked",
        wants="result",
        began=call.began + 1,
        decision=None,
        expires_at=_expiry(work, spec),
        prompt=call.prompt or spec.prompt(call.arguments_json),
    )
    work.put_call(asked)
    work.tell(ResultRequested, asked)


def suspend(work: Work, call: Call, nested: tuple[Nested, ...]) -> None:
    """Have a call wait for answers to calls nested in it; each is told."""
    known = {inner.id: inner for inner in call.nested if inner.late or inner.decision is None}
    nested = tuple(late if (late := known.get(inner.id)) is not None and late.late else inner for inner in nested)
    if any(inner.late for inner in nested) or not nested:
        work.put_call(attrs.evolve(call, status="allowed", wants="nested", nested=nested, expires_at=None))
    else:
        times = [inner.expires_at for inner in nested if inner.expires_at is not None]
        expires = min(times, default=None)
        work.put_call(attrs.evolve(call, status="asked", wants="nested", nested=nested, expires_at=expires))
    for inner in nested:
        if inner.id not in known:
            work.tell(ApprovalRequested if inner.wants == "decision" else ResultRequested, call.view(inner))


def covering_grant(work: Work, call: Call) -> Grant | None:
    """The approval for the session that covers a call and the permissions that its verdict asks for, if there is one."""
    spec = work.rules.tools.get(call.tool)
    if spec is None or not work.checkpoint.grants:
        return None
    wanted, mark, arguments = call.permissions or Permissions(), definition(spec), canonical_arguments(call)
    for grant in work.checkpoint.grants:
        fits = (grant.tool, grant.definition) == (call.tool, mark) and grant.arguments_json in (None, arguments)
        if fits and wanted.within(grant.permissions or Permissions()):
            return grant
    return None


def allow_covered(work: Work, cause_grant: Grant) -> None:
    """Allow the other asked calls that a new approval for the session covers."""
    for call in tuple(work.turn.calls.values()):
        if call.status == "asked" and call.wants == "decision" and covering_grant(work, call) == cause_grant:
            allowed = attrs.evolve(call, status="allowed", grant=cause_grant.id)
            work.put_call(allowed)
            work.tell(CallAnswered, allowed)


def settle(work: Work, call: Call, status: ResultStatus, text: str, reason: str = "", **more: Any) -> None:
    """Give a call its one result; ``more`` are other fields of it."""
    if call.edited is not None and status in ("ok", "error", "unknown"):
        text += texts.edited(call.edited)
        more["json"] = False
    known = _authorization(call, reason or call.reason)
    message = work.add_message("tool", (ToolResult(call.id, text, status, authorization=known, **more),))
    settled = attrs.evolve(call, status=status, reason=reason or call.reason, result=message.id, nested=())
    work.put_call(settled)
    if status != "ok":
        work.turn.calls_failed += 1
    work.tell(CallSettled, settled, message)


def _authorization(call: Call, reason: str) -> Authorization | None:
    known = Authorization(call.decision, call.edited, call.filled, call.permissions, call.grant, reason)
    return None if known == NOTHING_KNOWN else known


def settle_open(work: Work, reason: str, not_begun: tuple[str, ...] = ()) -> None:
    """Settle every open call of a turn that ends: what may have happened is unknown, the rest was not run."""
    for call in tuple(work.turn.calls.values()):
        if call.settled:
            continue
        rights = call.began - (call.id in not_begun)
        if rights:
            settle(work, call, "unknown", texts.unknown(reason), reason)
        else:
            settle(work, call, "not-run", texts.not_run(reason), reason)


def _exclusive(work: Work, call: Call) -> bool:
    spec = work.rules.tools.get(call.tool)
    return spec is not None and spec.exclusive


def startable(work: Work) -> list[Call]:
    """The allowed calls that no barrier holds back, in call order."""
    found: list[Call] = []
    unsettled = False
    for call in work.turn.calls.values():
        if call.settled:
            continue
        exclusive = _exclusive(work, call)
        if call.status == "allowed" and not (exclusive and unsettled):
            found.append(call)
        unsettled = True
        if exclusive:
            break
    return found


def expire(work: Work) -> None:
    """Close the requests whose deadline has passed."""
    for call in tuple(work.turn.calls.values()):
        if call.status != "asked" or call.expires_at is None or call.expires_at > work.now:
            continue
        if call.wants == "nested":  # it begins again and sees to it
            work.put_call(attrs.evolve(call, status="allowed", expires_at=None))
        elif call.wants == "result":
            settle(work, call, "unknown", texts.unknown("no result came in time"), "expired")
        else:
            settle(work, call, "denied", texts.denied("the approval request expired"), "expired")


def start(work: Work, call: Call) -> None:
    """Give a call the right to run, here or outside."""
    spec = work.rules.tools.get(call.tool)
    if spec is not None and spec.outside:
        request_result(work, call, spec)
        return
    nested = tuple(attrs.evolve(inner, late=False) for inner in call.nested)
    mark = "" if spec is None else definition(spec)
    started = attrs.evolve(call, status="started", began=call.began + 1, nested=nested, definition=mark)
    work.put_call(started)
    work.begun[call.id] = None
    work.tell(CallStarted, started)


def facts(work: Work) -> Facts:
    """What the guards need to know of the calls."""
    calls = work.turn.calls.values()
    settled = all(call.settled for call in calls)
    moves = settled or any(call.status in ("started", "checking", "proposed") for call in calls)
    return Facts(all_settled=settled, can_move=moves or bool(startable(work)))


def end_on_input(work: Work) -> None:
    """A steer waits: if all that runs, or would now, is willing to be ended by input, end it."""
    tools = work.rules.tools
    calls = [call for call in work.turn.calls.values() if not call.settled]
    willing = [call for call in calls if (spec := tools.get(call.tool)) is not None and spec.ends_on_input]
    running = [call for call in calls if call.status in ("started", "checking")] + startable(work)
    if not running or not all(call in willing for call in running):
        return
    for call in willing:
        if call.status == "asked":
            continue
        if call.began:
            settle(work, call, "unknown", texts.unknown("after active input"), "active input")
        else:
            settle(work, call, "not-run", texts.not_run("newer input came"), "active input")


def advance_calls(work: Work) -> None:
    """Start what may start."""
    if work.checkpoint.steers:
        end_on_input(work)
    for call in startable(work):
        start(work, call)
