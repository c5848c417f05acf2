"""What a policy's verdict gives a call: permissions, approvals for the session, usage."""

from __future__ import annotations

from tests.states.scene import Scene, wants
from turnstate_states.events import ApprovalRequested, GrantAdded
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
