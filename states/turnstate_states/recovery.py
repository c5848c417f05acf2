"""Going on from a stored session: what each stored state means when the process that made it is gone."""

from __future__ import annotations

import attrs

from . import texts
from .calls import covering_grant, decide, expire, fault, settle
from .events import StepEnded
from .steps import end, enter_attempt, finish_ending, limit_reached
from .turn import Call, Failure, Permissions
from .work import Work

__all__ = ["recover"]

AFTER_RESTART = "after restart"


def recover(work: Work) -> None:
    """Bring the stored state to one from which the turn goes on."""
    turn = work.active
    if turn is None:
        return
    if turn.clock is not None:
        turn.clock = work.now
        work.changed = True
    if turn.ending is not None:
        finish_ending(work)
    elif turn.state == "before-model":
        turn.hook_pass = 1
        turn.steers_seen = work.checkpoint.events
    elif turn.state == "streaming" and not turn.reply:
        _cut_attempt(work)
    elif turn.state in ("executing-tools", "awaiting-approval"):
        for call in tuple(turn.calls.values()):
            if not call.settled:
                _recover_call(work, call)
        expire(work)


def _cut_attempt(work: Work) -> None:
    turn = work.turn
    work.tell(StepEnded, turn.step, turn.attempt_id, "interrupted")
    turn.resumptions += 1
    if turn.resumptions > work.rules.limits.resumptions:
        text = f"the process ended in {turn.resumptions} attempts of this step"
        end(work, "failed", text, Failure("resumptions", text))
        return
    reached = limit_reached(work.rules.limits, turn)
    if reached:
        end(work, "limit", reached)
        return
    work.step("retry")
    enter_attempt(work)


def _recover_call(work: Work, call: Call) -> None:
    spec = work.rules.tools.get(call.tool)
    on_crash = "report" if spec is None else spec.on_crash
    if call.status in ("started", "checking"):
        if on_crash == "check":
            work.put_call(attrs.evolve(call, status="checking"))
            work.checking[call.id] = None
        elif on_crash == "rerun" and fault(work, call) is None:
            work.put_call(attrs.evolve(call, status="allowed"))
        else:
            settle(work, call, "unknown", texts.unknown(AFTER_RESTART), AFTER_RESTART)
        return
    wrong = fault(work, call)
    if wrong is not None and call.began:
        settle(work, call, "unknown", texts.unknown(wrong), AFTER_RESTART)
    elif wrong is not None:
        settle(work, call, "error", wrong)
    elif call.status == "proposed":
        decide(work, call)
    elif call.status == "allowed" and call.decision is None and not call.began and _tightened(work, call):
        most = call.permissions or Permissions()
        decide(work, attrs.evolve(call, status="proposed", grant="", permissions=most))


def _tightened(work: Work, call: Call) -> bool:
    """Whether what is declared now asks for a person, or a policy, where the call was allowed before."""
    spec = work.rules.tools[call.tool]
    return spec.approval != "never" and covering_grant(work, call) is None
