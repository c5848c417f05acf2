"""Going on from a stored session: what each stored state means when the process that made it is gone."""

from __future__ import annotations

import attrs

from . import texts
from .calls import again, bind, covering_grant, decide, request_result, settle
from .events import StepEnded
from .steps import end, enter_attempt, finish_ending, limit_reached
from .subject import changes, definition, subject_of
from .turn import Call, Failure, Permissions
from .work import Work

__all__ = ["not_happened", "recover"]

AFTER_RESTART = "after restart"
OTHER_TOOL = "after restart, as its tool is another one now"


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
    """What an open call means now: a decision holds for the tool that it was made on, and for no other."""
    if call.status in ("started", "checking"):
        _recover_begun(work, call)
        return
    wrong = bind(work, call).fault
    if wrong and call.began:
        settle(work, call, "unknown", texts.unknown(wrong), AFTER_RESTART)
    elif wrong:
        settle(work, call, "error", wrong)
    elif call.began:
        _recover_waiting(work, call)
    elif call.status == "allowed" and call.decision is not None:
        _recover_approved(work, call)
    elif call.status == "asked" and not _changed(work, call):
        work.asked_before.add(call.id)
    elif call.status == "proposed" and not (call.decision is not None and _changed(work, call)):
        decide(work, call)
    elif call.status != "allowed" or _tightened(work, call):
        most = call.permissions if call.status == "asked" else call.permissions or Permissions()
        decide(work, attrs.evolve(again(call), permissions=most))


def _recover_begun(work: Work, call: Call) -> None:
    """A call that ran: what its tool declares decides, as long as it is the same tool."""
    spec = work.rules.tools.get(call.tool)
    if spec is not None and spec.on_crash == "check" and spec.kind == "plain" and call.wants != "nested":
        work.put_call(attrs.evolve(call, status="checking"))
        work.checking[call.id] = None
    elif spec is not None and spec.on_crash == "rerun" and _same_tool(work, call) and not bind(work, call).fault:
        work.put_call(attrs.evolve(call, status="allowed"))
    else:
        settle(work, call, "unknown", texts.unknown(AFTER_RESTART), AFTER_RESTART)


def _recover_waiting(work: Work, call: Call) -> None:
    """A call that may have had effects and waits: for a result from outside, for answers below, or to run again."""
    spec = work.rules.tools[call.tool]
    if call.wants == "nested":
        goes_on = spec.agent
    elif call.wants == "result":
        goes_on = spec.outside
    else:
        goes_on = call.status == "allowed" and _same_tool(work, call)
    if not goes_on:
        settle(work, call, "unknown", texts.unknown(OTHER_TOOL), OTHER_TOOL)
    elif call.wants == "result" and _changed(work, call):
        request_result(work, attrs.evolve(call, began=call.began - 1, prompt=None), spec)


def _recover_approved(work: Work, call: Call) -> None:
    """A call that a person approved and that has not begun: asked again if it is another one now, judged again if not."""
    if _changed(work, call):
        decide(work, again(call))
    elif work.rules.tools[call.tool].approval == "policy":
        work.put_call(attrs.evolve(call, status="proposed"))


def not_happened(work: Work, call: Call) -> None:
    """A check showed that a call did not take place: it runs, or is decided anew where its tool is another one now."""
    if _same_tool(work, call):
        work.put_call(attrs.evolve(call, status="allowed", began=0))
    else:
        decide(work, attrs.evolve(again(call), began=0, definition=""))


def _same_tool(work: Work, call: Call) -> bool:
    """Whether the tool is declared as it was when the call was started; unknown of calls from before format 2."""
    spec = work.rules.tools.get(call.tool)
    return not call.definition or (spec is not None and call.definition == definition(spec))


def _changed(work: Work, call: Call) -> bool:
    """Whether the tool is declared otherwise than when a person was asked; unknown of questions from before format 2."""
    if call.subject is None:
        return False
    now = subject_of(call, work.rules.tools[call.tool])
    return bool({"kind", "schema", "crash", "version"} & {*changes(call.subject, now)})


def _tightened(work: Work, call: Call) -> bool:
    """Whether what is declared now asks for a person, or a policy, where the call was allowed before."""
    spec = work.rules.tools[call.tool]
    return spec.approval != "never" and covering_grant(work, call) is None
