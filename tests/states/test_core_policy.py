"""What a policy's verdict gives a call: permissions, approvals for the session, usage."""

from __future__ import annotations

from typing import Literal

import attrs
import pytest

from tests.states.scene import Scene, rules, wants
from turnstate_states.events import ApprovalRequested, CallStarted, GrantAdded
from turnstate_states.reports import PolicyDecided
from turnstate_states.rules import ToolSpec
from turnstate_states.submissions import RevokeGrant
from turnstate_states.transcript import Usage
from turnstate_states.turn import Permissions

POLICY = ToolSpec("policy", approval="policy")
PLAIN = ToolSpec("plain")
NETWORK = Permissions(network=True, write=("a",))


def asks(scene: Scene, at: int, permissions: Permissions | None) -> None:
    """The policy asks a person about a call."""
    call = scene.calls[at].id
    scene.report(PolicyDecided(scene.key, call, "ask", permissions=permissions))


def approved(permissions: Permissions | None) -> Scene:
    """A session whose person approved a call with these permissions for the session; the same is called again."""
    scene = Scene.calling(POLICY)
    asks(scene, 0, permissions)
    scene.answer("approve", 0, for_session=True)
    scene.crash()
    scene.reply(*wants("policy"))
    return scene


def test_a_grant_keeps_what_was_approved() -> None:
    """An approval for the session names the permissions that the person saw, also after a restart (A1)."""
    scene = approved(NETWORK)
    assert scene.told(GrantAdded)[0].grant.permissions == NETWORK
    assert scene.core.checkpoint.grants[0].permissions == NETWORK


def test_a_grant_covers_no_more_than_was_approved() -> None:
    """A call whose verdict asks for more than the approved call had is asked about; one that asks for less is not (A1)."""
    for had, wanted, covered in (
        (None, None, True),
        (None, Permissions(), True),
        (NETWORK, None, True),
        (NETWORK, NETWORK, True),
        (NETWORK, Permissions(write=("a",)), True),
        (NETWORK, Permissions(write=("b",)), False),
        (NETWORK, Permissions(network=True, write=("a", "b")), False),
        (None, Permissions(network=True), False),
    ):
        scene = approved(had)
        asks(scene, 0, wanted)
        assert scene.turn.state == ("executing-tools" if covered else "awaiting-approval")
        assert len(scene.told(ApprovalRequested)) == (1 if covered else 2)
        assert scene.calls[0].permissions == wanted


def test_a_wider_approval_is_a_grant_of_its_own() -> None:
    """Approving for the session what an earlier approval did not cover adds one, which then covers both."""
    scene = approved(None)
    asks(scene, 0, NETWORK)
    scene.answer("approve", 0, for_session=True)
    assert [grant.permissions for grant in scene.core.checkpoint.grants] == [None, NETWORK]
    scene.done(0)
    scene.reply(*wants("policy"))
    asks(scene, 0, NETWORK)
    assert scene.turn.state == "executing-tools"


def test_a_revoked_grant_asks_the_policy_again() -> None:
    """What a revoked approval allowed and has not started is the policy's to decide anew."""
    scene = Scene.calling(PLAIN, ToolSpec("policy", approval="policy", exclusive=True))
    asks(scene, 1, None)
    scene.answer("approve", 1, for_session=True)
    scene.done(0)
    scene.done(1)
    scene.reply(*wants("plain", "policy"))
    asks(scene, 1, None)
    assert scene.statuses == ["started", "allowed"]
    scene.submit(RevokeGrant("x9", "g1"))

    assert scene.statuses == ["started", "proposed"]


def test_what_deciding_used_counts_after_an_interrupt() -> None:
    """A verdict that comes when the turn was told to end begins nothing, but what it used is counted (A10)."""
    scene = Scene.calling(POLICY)
    scene.interrupt()
    report = PolicyDecided(scene.key, "m2.0", "allow", usage={"reviewer": Usage(7)})
    assert scene.core.report(report, now=scene.now)
    scene.stopped()
    assert scene.core.checkpoint.usage["reviewer"] == Usage(7)
    assert scene.result("m2.0") == "not run: interrupted"


# A verdict that a crash came after

ALONE = ToolSpec("alone", exclusive=True)
NOTHING = Permissions()


def allowed(permissions: Permissions | None = NETWORK, spec: ToolSpec = POLICY) -> Scene:
    """A policy allowed a call that has not started, because a barrier stands before it; then the process dies."""
    scene = Scene.calling(ALONE, spec)
    if spec.approval == "policy":
        scene.report(PolicyDecided(scene.key, "m2.1", "allow", permissions=permissions))
    assert scene.statuses == ["started", "allowed"]
    return scene


def test_an_allowed_call_is_decided_again() -> None:
    """After a crash the policy is asked again about a call that it allowed and that has not started."""
    scene = allowed()
    scene.crash()
    assert scene.statuses == ["unknown", "proposed"]
    assert scene.turn.state == "executing-tools"
    scene.crash()
    assert scene.statuses == ["unknown", "proposed"]
    scene.report(PolicyDecided(scene.key, "m2.1", "allow", permissions=NETWORK))
    assert scene.statuses == ["unknown", "started"]
    assert scene.told(CallStarted)[-1].call.permissions == NETWORK


def test_what_was_allowed_may_be_denied_now() -> None:
    """What the policy says now counts where it is stricter: denied, or left to a person."""
    scene = allowed()
    scene.crash()
    scene.decide(1, "deny", "not any more")
    assert scene.result("m2.1") == "tool denied: not any more"
    assert [event.call.id for event in scene.told(CallStarted)] == ["m2.0"]
    scene = allowed()
    scene.crash()
    asks(scene, 1, NETWORK)
    assert scene.turn.state == "awaiting-approval"


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        (NETWORK, NETWORK, NETWORK),
        (NETWORK, Permissions(network=True, write=("a", "b")), NETWORK),
        (NETWORK, Permissions(write=("b",)), NOTHING),
        (NETWORK, Permissions(write=("a",)), Permissions(write=("a",))),
        (Permissions(write=("a", "b")), NETWORK, Permissions(write=("a",))),
        (NOTHING, NETWORK, NOTHING),
        (None, NETWORK, NOTHING),
        (NETWORK, None, None),
    ],
)
def test_a_verdict_is_never_widened(
    before: Permissions | None, now: Permissions | None, after: Permissions | None
) -> None:
    """A call never gets more than its first verdict gave it, however often the process dies, also through a person."""
    for verdict in ("allow", "ask"):
        scene = allowed(before)
        scene.crash()
        scene.crash()
        decided = PolicyDecided(scene.key, "m2.1", "allow" if verdict == "allow" else "ask", permissions=now)
        scene.report(decided)
        if verdict == "ask":
            scene.answer("approve", 1)
        assert scene.statuses == ["unknown", "started"]
        assert scene.calls[1].permissions == after


def test_what_needed_no_policy_gets_nothing_from_one() -> None:
    """A tool that is declared more strictly now: its call, which was to run without permissions, gets none."""
    plain = attrs.evolve(POLICY, approval="never")
    scene = allowed(None, plain)
    scene.crash(rules=rules(ALONE, POLICY))
    assert scene.statuses == ["unknown", "proposed"]
    scene.report(PolicyDecided(scene.key, "m2.1", "allow", permissions=NETWORK))
    assert scene.calls[1].permissions == NOTHING


@pytest.mark.parametrize("verdict", ["allow", "ask"])
def test_what_a_person_approved_is_not_asked_again(verdict: Literal["allow", "ask"]) -> None:
    """A person's decision stands after a restart, as long as the policy of today does not deny the call."""
    scene = approved_before_a_crash()
    scene.report(PolicyDecided(scene.key, "m2.1", verdict, permissions=NETWORK))
    assert scene.statuses == ["unknown", "started"]
    assert scene.calls[1].permissions == NETWORK
    assert scene.calls[1].decision is not None


def test_a_policy_of_today_can_deny_what_a_person_approved() -> None:
    """A call that was approved before a restart, and has not begun, goes back to the policy, whose denial stands."""
    scene = approved_before_a_crash()
    scene.report(PolicyDecided(scene.key, "m2.1", "deny", "not any more"))
    assert scene.result("m2.1") == "tool denied: not any more"


def test_what_reaches_further_than_what_was_approved_is_asked_again() -> None:
    """Permissions that the person was not shown are asked about, and the question says that they changed."""
    scene = approved_before_a_crash()
    more = Permissions(network=True, write=("/",))
    scene.report(PolicyDecided(scene.key, "m2.1", "ask", permissions=more))
    assert scene.statuses == ["unknown", "asked"]
    assert (scene.calls[1].changed, scene.calls[1].decision) == (("permissions",), None)


def test_a_policy_that_fails_on_what_was_approved_asks_again() -> None:
    """Without a verdict a person is asked, and what they then approve runs."""
    scene = approved_before_a_crash()
    scene.report(PolicyDecided(scene.key, "m2.1", "ask", "it broke", permissions=NETWORK, failed=True))
    assert scene.statuses == ["unknown", "asked"]
    scene.answer("approve", 1)
    assert scene.statuses == ["unknown", "started"]


def approved_before_a_crash() -> Scene:
    """A person approved a call whose policy asked, and it could not begin before the process died."""
    scene = Scene.calling(ALONE, POLICY)
    asks(scene, 1, NETWORK)
    scene.answer("approve", 1)
    scene.crash()
    assert scene.statuses == ["unknown", "proposed"]
    return scene


def test_what_an_approval_for_the_session_covers_is_not_decided_again() -> None:
    """A call that a standing approval covers starts after a crash; once that is revoked, the policy decides anew."""
    for revoked in (False, True):
        scene = Scene.calling(ALONE, POLICY)
        asks(scene, 1, NETWORK)
        scene.answer("approve", 1, for_session=True)
        scene.done(0)
        scene.done(1)
        scene.reply(*wants("alone", "policy"))
        asks(scene, 1, NETWORK)
        assert scene.statuses == ["started", "allowed"]
        if revoked:
            scene.submit(RevokeGrant("x9", "g1"))
        scene.crash()
        assert scene.statuses == ["unknown", "proposed" if revoked else "started"]


def test_what_has_begun_is_never_decided_again() -> None:
    """An idempotent call that began is begun again without asking: to deny it now would say that it did not happen."""
    scene = Scene.calling(attrs.evolve(POLICY, on_crash="rerun"))
    scene.report(PolicyDecided(scene.key, "m2.0", "allow", permissions=NETWORK))
    scene.running, scene.working = None, {}
    scene.core = scene.restored()
    scene.core.resume(scene.now)
    commit = scene.core.commit(scene.now, decide=False)
    assert commit is not None
    scene._write(commit)  # pyright: ignore[reportPrivateUsage]
    assert scene.statuses == ["allowed"]
    scene.crash()
    assert scene.statuses == ["started"]
    assert scene.calls[0].permissions == NETWORK
