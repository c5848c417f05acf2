"""What people outside say to calls: whether they may run, and what they gave."""

from __future__ import annotations

import json
from typing import Any

import attrs

from . import texts
from .arguments import read_arguments
from .asking import meaning
from .calls import again, allow_covered, ask, bind, covering_grant, settle
from .codec import plain, same_json
from .content import ResultStatus, ToolResult, clean_text
from .errors import InvalidInput, Refused
from .events import CallAnswered, GrantAdded, GrantRevoked, PreliminaryResult, TurnStopping
from .reports import PolicyDecided
from .steps import tell_to_end
from .subject import arguments_digest, canonical_arguments, definition
from .submissions import Answer, Provide
from .turn import Call, Decision, Ending, Grant, Nested, Permissions, TurnState
from .work import Work

__all__ = ["answer", "confirm", "provide"]


def answer(work: Work, said: Answer) -> None:
    """Apply a person's answer to calls; all that is named is checked before anything is changed.

    Raises:
        Refused: a call does not wait for it (any more).
        InvalidInput: it makes no sense.
    """
    turn = _turn(work)
    if not said.calls:
        raise InvalidInput("calls: name at least one call to answer")
    if said.end_turn and said.verdict != "deny":
        raise InvalidInput("end_turn: only a denial ends the turn; interrupt the turn to end it otherwise")
    names = tuple(dict.fromkeys(said.calls))
    for name in names:
        call = _find(turn, name)
        _check_subject(call, said.digests.get(name, ""))
        if call.decision is None:
            _check_waits(call, _given_at(work, said))
    edited = _edited(work, turn, said)
    fresh = [found for name in names if (found := _answerable(work, turn, name, said, edited)) is not None]
    for call, decision in fresh:
        _note(work, call, decision, edited)
    for call, decision in fresh:
        _apply(work, call.id, decision, edits=edited is not None)
    if fresh and said.end_turn:
        work.tell(TurnStopping, said.reason or "denied")
        tell_to_end(work, Ending("denied", said.reason or "denied", said.id))


def _turn(work: Work) -> TurnState:
    turn = work.active
    if turn is None or turn.ending is not None:
        raise Refused("stale", "no call waits for an answer: the turn is over or is ending")
    return turn


def _find(turn: TurnState, name: str) -> Call:
    """A call of the turn, or one nested in a call as a call of this session."""
    outer, below, inner = name.partition("/")
    call = turn.calls.get(outer)
    if call is not None and not below:
        return call
    nested = None if call is None else _nested(call, inner)
    if call is None or nested is None:
        raise Refused("stale", f"call {name} is not open")
    return call.view(nested)


def _nested(call: Call, name: str) -> Nested | None:
    return next((nested for nested in call.nested if nested.id == name), None)


def _edited(work: Work, turn: TurnState, said: Answer) -> str | None:
    if said.arguments is None:
        return None
    if said.verdict not in ("approve", "") or len(set(said.calls)) != 1:
        raise InvalidInput("arguments: give them with an approval of exactly one call")
    try:
        read_arguments(said.arguments)
    except InvalidInput as error:
        raise InvalidInput(f"arguments: {error}") from None
    call = turn.calls.get(said.calls[0])
    spec = None if call is None else work.rules.tools.get(call.tool)
    wrong = "" if spec is None else spec.bind(said.arguments).fault
    if wrong:
        raise InvalidInput(f"arguments: {wrong}")
    return said.arguments


def _given_at(work: Work, said: Answer | Provide) -> float:
    """When it was given: what was given in time counts, however late it is applied."""
    return work.now if said.given is None else min(said.given, work.now)


def _check_subject(call: Call, digest: str) -> None:
    """An answer is on what was shown, not on a name."""
    if digest and digest != call.digest:
        what = f" ({', '.join(call.changed)} changed)" if call.changed else ""
        raise Refused(
            "stale", f"what is asked about call {call.id} is not what was answered{what}; look at the question again"
        )


def _decision(work: Work, call: Call, said: Answer) -> Decision:
    verdict, for_session, reason = meaning(call.prompt, said)
    if for_session and verdict != "approve":
        raise InvalidInput("for_session: only an approval can hold for the session")
    return Decision(
        verdict,
        _given_at(work, said),
        said.by,
        said.reason or reason,
        for_session,
        said.end_turn,
        said.option,
        said.text,
        plain(said.answers),
    )


def _answerable(
    work: Work, turn: TurnState, name: str, said: Answer, edited: str | None
) -> tuple[Call, Decision] | None:
    """The call with the decision, if it waits for this answer; None if it has the same answer already."""
    call = _find(turn, name)
    decision = _decision(work, call, said)
    if call.decision is not None:
        same = attrs.evolve(call.decision, at=decision.at, by=decision.by) == decision
        if same and (edited is None or call.edited == edited):
            return None
        raise Refused("conflict", f"call {name} was answered before, and otherwise ({call.decision.verdict})")
    if call.wants == "result" and decision.verdict == "approve":
        raise InvalidInput(f"verdict: call {name} waits for a result; provide one, or deny it")
    if call.wants == "nested":
        raise InvalidInput(f"calls: answer the calls nested in {name}: {', '.join(c.id for c in call.waiting)}")
    return call, decision


def _check_waits(call: Call, at: float) -> None:
    if call.status != "asked":
        raise Refused("stale", f"call {call.id} does not wait for an answer ({call.status})")
    if call.expires_at is not None and call.expires_at <= at:
        raise Refused("stale", f"the request about call {call.id} has expired")


def _note(work: Work, call: Call, decision: Decision, edited: str | None, provided: Any = None) -> None:
    """Keep the decision with its call."""
    outer, _, inner = call.id.partition("/")
    if not inner:
        call = attrs.evolve(work.turn.calls[outer], decision=decision)
        if edited is not None:
            call = attrs.evolve(call, edited=edited)
            call = attrs.evolve(call, filled=bind(work, call).filled)
        work.put_call(call)
        return
    holder = work.turn.calls[outer]
    late = holder.status != "asked" and holder.status != "allowed"
    given = {"decision": decision, "edited": edited, "provided": provided, "late": late}
    answered = tuple(attrs.evolve(nested, **given) if nested.id == inner else nested for nested in holder.nested)
    work.put_call(attrs.evolve(holder, nested=answered))


def _apply(work: Work, name: str, decision: Decision, *, edits: bool) -> None:
    outer, _, inner = name.partition("/")
    call = work.turn.calls[outer]
    if inner:
        _let_go_on(work, call, inner)
    elif call.status != "asked":
        return  # an approval for the session has allowed it meanwhile
    elif decision.verdict == "deny":
        work.tell(CallAnswered, attrs.evolve(call, status="denied"))
        settle(work, call, "denied", texts.denied(decision.reason), decision.reason or "the user declined")
    elif _policy_is_due(work, call, edits=edits):
        # What was judged is not what is to run: the decision is kept, and the policy has the last word.
        work.put_call(attrs.evolve(call, status="proposed"))
        work.tell(CallAnswered, work.turn.calls[call.id])
    else:
        _allow(work, call, decision)


def _policy_is_due(work: Work, call: Call, *, edits: bool) -> bool:
    """Whether the policy has to judge an approved call: its arguments were edited, or an earlier process asked."""
    spec = work.rules.tools.get(call.tool)
    return spec is not None and spec.approval == "policy" and (edits or call.id in work.asked_before)


def _edited_since(call: Call) -> bool:
    """Whether a person changed the arguments since the call was asked about: they know what they wrote."""
    asked = "" if call.subject is None else call.subject.arguments
    return call.edited is not None and asked != arguments_digest(call)


def confirm(work: Work, call: Call, decision: Decision, report: PolicyDecided) -> None:
    """The policy has judged a call that a person approved: a denial stands, anything else counts as answered.

    A call that reaches further than what the person was shown, and one on which the policy failed, is asked about again.
    """
    wanted = report.permissions or Permissions()
    if report.verdict == "deny":
        settle(work, call, "denied", texts.denied(report.reason), report.reason)
    elif report.failed or not (_edited_since(call) or wanted.within(call.permissions or Permissions())):
        asked = attrs.evolve(again(call), permissions=wanted, covers=report.covers, prompt=report.prompt)
        ask(work, asked, work.rules.tools[call.tool], report.reason)
    else:
        call = attrs.evolve(call, permissions=wanted, covers=report.covers)
        work.put_call(call)
        _allow(work, call, decision, told=True)


def _let_go_on(work: Work, holder: Call, inner: str) -> None:
    """A call nested in another one was answered: that one begins again, and takes the answer down."""
    nested = _nested(holder, inner)
    assert nested is not None, "an answer to a nested call reaches a call that has it"
    work.tell(CallAnswered, holder.view(nested))
    if holder.status == "asked":
        work.put_call(attrs.evolve(holder, status="allowed", expires_at=None))


def _allow(work: Work, call: Call, decision: Decision, *, told: bool = False) -> None:
    grant = _grant(work, call, decision.by) if decision.for_session else None
    allowed = attrs.evolve(call, status="allowed", grant="" if grant is None else grant.id)
    work.put_call(allowed)
    if not told:
        work.tell(CallAnswered, allowed)
    if grant is not None:
        allow_covered(work, grant)


def _grant(work: Work, call: Call, by: str) -> Grant:
    known = covering_grant(work, call)
    if known is not None:
        return known
    checkpoint = work.checkpoint
    checkpoint.grant_count += 1
    spec = work.rules.tools.get(call.tool)
    arguments = None if call.covers == "tool" else canonical_arguments(call)
    mark = "" if spec is None else definition(spec)
    grant = Grant(f"g{checkpoint.grant_count}", call.tool, arguments, by, call.permissions, mark)
    kept = checkpoint.grants
    for old in kept[: max(0, len(kept) + 1 - work.rules.limits.grants)]:
        work.tell(GrantRevoked, old)
    checkpoint.grants = (*kept, grant)[-work.rules.limits.grants :]
    work.tell(GrantAdded, grant)
    return grant


def provide(work: Work, said: Provide) -> None:
    """Apply a result from outside. Any value is a result, also false, 0, an empty text and null.

    Raises:
        Refused: the call does not wait for it (any more).
        InvalidInput: it makes no sense.
    """
    turn = _turn(work)
    call = _find(turn, said.call)
    _check_subject(call, said.digest)
    if call.decision is not None:
        if _provided(work, call, said):
            return
        raise Refused("conflict", f"call {said.call} was answered before, and otherwise ({call.decision.verdict})")
    _check_waits(call, _given_at(work, said))
    if call.wants == "nested":
        raise InvalidInput(f"call: provide results to the calls nested in {said.call}")
    if said.preliminary:
        work.tell(PreliminaryResult, call, plain(said.result))
        return
    decision = Decision("provide", _given_at(work, said), said.by)
    outer, _, inner = call.id.partition("/")
    if inner:
        _note(work, call, decision, None, _fields(said))
        _let_go_on(work, work.turn.calls[outer], inner)
        return
    _note(work, call, decision, None)
    result = result_of(said)
    more: dict[str, Any] = {"value": result.value, "artifact": result.artifact, "json": result.json}
    settle(work, work.turn.calls[outer], result.status, result.text, "", **more)


def _fields(said: Provide) -> dict[str, Any]:
    return {"result": plain(said.result), "text": said.text, "error": said.error, "artifact": plain(said.artifact)}


def result_of(said: Provide) -> ToolResult:
    """What a result from outside is in the history."""
    text, result = said.text, plain(said.result)
    is_json = text is None and not isinstance(result, str)
    if text is None:
        text = json.dumps(result, ensure_ascii=False) if is_json else result
    value = result if said.text is not None else None
    status: ResultStatus = "error" if said.error else "ok"
    return ToolResult(said.call, clean_text(text), status, (), value, plain(said.artifact), is_json)


def _provided(work: Work, call: Call, said: Provide) -> bool:
    """Whether this very result was provided before."""
    outer, _, inner = call.id.partition("/")
    if call.decision is None or call.decision.verdict != "provide" or said.preliminary:
        return False
    if inner:
        nested = _nested(work.turn.calls[outer], inner)
        return nested is not None and same_json(nested.provided, _fields(said))
    if not call.result:
        return False
    (known,), result = work.transcript[call.result].results, result_of(said)
    changed = "" if call.edited is None else texts.edited(call.edited)
    same = known.status == result.status and _reads_same(known.text.removesuffix(changed), said, result.text)
    return same and same_json([known.value, known.artifact], [result.value, result.artifact])


def _reads_same(known: str, said: Provide, text: str) -> bool:
    """Whether a text is what the model would read of this result; equal JSON may be written otherwise."""
    if known == text or said.text is not None or isinstance(said.result, str):
        return known == text
    try:
        return same_json(json.loads(known), said.result)
    except (ValueError, RecursionError):
        return False
