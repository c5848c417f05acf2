"""Which of several rules decides, also where they cannot tell."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.engine.helpers import engine_of, requests_of, result_texts
from tests.engine.judging import ORDERS, Failing, Order, judge, kind
from turnstate import Allow, Ask, Deny, InvalidInput
from turnstate.policy import Between, Condition, Not, OneOf, Rule, Rules, ShellCommand, Under, Verdict
from turnstate.testing import call as scripted
from turnstate.tools import Tool, shell, tool
from turnstate_states.turn import Permissions


@pytest.mark.trio
async def test_the_order() -> None:
    """The first rule that fits decides, or the strictest, and the first among equals; permissions are not joined."""
    listed = [
        Rule("t", Allow(write=["/a"])),
        Rule("t", Allow(network=True, write=["/b"])),
        Rule("t", Ask("one", network=True), {"n": "1"}),
        Rule("t", Ask("two", write=["/c"]), {"n": "[12]"}),
        Rule("*", Deny("never"), {"n": "2"}),
    ]
    expected: dict[Order, list[Verdict]] = {
        "first": [Allow(write=["/a"])] * 3,
        "strictest": [Allow(write=["/a"]), Ask("one", network=True), Deny("never")],
    }
    for order in ORDERS:
        rules = Rules(*listed, order=order)
        assert (rules.order, rules.rules) == (order, tuple(listed))
        assert [await judge(rules, {"n": n}) for n in (0, 1, 2)] == expected[order]
    assert await judge(Rules(*listed[:2]), {}) == Allow(write=["/a"])


@pytest.mark.trio
@pytest.mark.parametrize("order", ORDERS)
async def test_a_rule_that_cannot_tell(order: Order) -> None:
    """A rule that cannot tell whether it fits denies or asks if it would; one that would allow never does (P1)."""
    unknown = {"path": OneOf("a")}
    doubtful: list[dict[str, Any] | None] = [None, {"path": 5}, {"path": ["a"]}, {}]
    for values in doubtful:
        denies = Rules(Rule("t", Deny("no"), unknown), Rule("t", Allow()), order=order)
        assert await judge(denies, values) == Deny("no")
        asks = Rules(Rule("t", Ask("sure?", write=["/a"]), unknown), Rule("t", Allow()), order=order)
        assert await judge(asks, values) == Ask("sure?", write=["/a"])
        allows = Rules(Rule("t", Allow(), unknown), order=order, otherwise=Deny("rest"))
        assert await judge(allows, values) == Deny("rest")
        assert await judge(Rules(Rule("t", Allow(), unknown), order=order), values, declared=Ask("d")) == Ask("d")
        both = Rules(Rule("t", Ask(), unknown), Rule("t", Deny("no"), {"path": Not("z")}), order=order)
        assert await judge(both, values) == Deny("no")
    others: list[dict[str, Any]] = [{"path": "b"}, {"path": None}]
    for values in others:
        denies = Rules(Rule("t", Deny("no"), unknown), Rule("t", Allow()), order=order)
        assert await judge(denies, values) == Allow()


@pytest.mark.trio
@pytest.mark.parametrize("order", ORDERS)
async def test_a_narrower_permission_in_doubt(order: Order) -> None:
    """Where a rule that cannot tell would have allowed less than what fits after it, a person is asked."""
    narrow = Rule("t", Allow(write=["/a"]), {"path": OneOf("a")})
    for wide in (Allow(network=True), Allow(write=["/a", "/b"])):
        for rules in (Rules(narrow, Rule("t", wide), order=order), Rules(narrow, order=order, otherwise=wide)):
            verdict = await judge(rules, {"path": 5})
            assert isinstance(verdict, Ask)
            assert (verdict.network, verdict.write) == (wide.network, wide.write)
            assert await judge(rules, {"path": "b"}) == wide
            assert await judge(rules, {"path": "a"}) == narrow.verdict
    for wide in (Allow(), Allow(write=["/a"])):
        assert await judge(Rules(narrow, Rule("t", wide), order=order), {"path": 5}) == wide


@pytest.mark.trio
async def test_part_of_a_value() -> None:
    """What asks about a part of a call leaves the rest to the rules after it, if one of them denies."""
    command = {"command": "git push; rm a"}
    rules = Rules(
        Rule("t", Ask("git"), {"command": ShellCommand("git push")}),
        Rule("t", Deny("rm"), {"command": ShellCommand("rm *")}),
        Rule("t", Allow()),
        order="first",
    )
    assert await judge(rules, command) == Deny("rm")
    assert await judge(rules, {"command": "git push"}) == Ask("git")
    assert await judge(rules, {"command": "git push; ls"}) == Ask("git")
    assert await judge(rules, {"command": "ls"}) == Allow()
    few, more = ShellCommand("ls *"), ShellCommand("ls *", "rm *")
    rules = Rules(Rule("t", Allow(), {"command": few}), Rule("t", Allow(network=True), {"command": more}))
    assert await judge(rules, {"command": "ls; rm a"}) == Allow(network=True)
    assert await judge(rules, {"command": "ls; ls"}) == Allow()


@pytest.mark.trio
async def test_arguments_that_are_left_out() -> None:
    """A rule on an argument is about tools that have it: left out, it cannot be told what it is, not even by a pattern."""
    for condition in ("/etc/*", Not("/srv/*"), OneOf("a"), Under("/etc")):
        rules = Rules(Rule("*", Deny("no"), {"path": condition}), otherwise=Allow())
        assert await judge(rules, {"path": "/etc/a"}) != Allow() or condition == OneOf("a")
        for names, verdict in ((["path"], Deny("no")), (["to"], Allow()), ([], Allow())):
            properties: dict[str, Any] = {name: {} for name in names}
            schema: dict[str, Any] = {"type": "object", "properties": properties}
            assert await judge(rules, {}, parameters=schema) == verdict
            assert await judge(rules, {}, parameters={**schema, "anyOf": []}) == Deny("no")
        assert await judge(rules, {}, parameters={"properties": True}) == Deny("no")
        assert await judge(rules, {}, parameters={"type": "object"}) == Allow()


@pytest.mark.trio
@pytest.mark.parametrize("answer", [ValueError("x"), RecursionError(), NotImplementedError(), "yes", 1, None])
async def test_a_condition_that_fails(answer: Any) -> None:
    """A condition that raises or answers nonsense cannot tell."""
    for condition in (Failing(answer), Not(Failing(answer))):
        denies = Rules(Rule("t", Deny("no"), {"path": condition}), otherwise=Allow())
        assert await judge(denies, {"path": "a"}) == Deny("no")
        allows = Rules(Rule("t", Allow(), {"path": condition}), otherwise=Deny("rest"))
        assert await judge(allows, {"path": "a"}) == Deny("rest")


@pytest.mark.trio
async def test_what_waits_runs_in_a_thread() -> None:
    """A condition that looks at the disk does so in a thread, also inside another one; others run where the policy does."""
    seen: list[str] = []

    class Where(Condition):
        def fits(self, value: Any) -> bool:
            seen.append(threading.current_thread().name)
            return True

    class Waits(Where):
        blocking = True

    here = threading.current_thread().name
    for condition, inside in ((Where(), True), (Waits(), False), (Not(Not(Waits())), False)):
        seen.clear()
        assert await judge(Rules(Rule("t", Ask(), {"path": condition})), {"path": "a"}) == Ask()
        assert [name == here for name in seen] == [inside] * 2
    assert Under("/srv").blocking


@pytest.mark.trio
async def test_declarations() -> None:
    """A declaration is asked for only where it matters, and one that fails is the policy's failure."""
    broken = ValueError("broken")
    assert await judge(Rules(Rule("t", Ask("x"), {"path": OneOf("a")})), {"path": 5}, declared=broken) == Ask("x")
    assert await judge(Rules(Rule("t", Deny("x"), {"path": OneOf("a")})), {"path": 5}, declared=broken) == Deny("x")
    with pytest.raises(ValueError, match="broken"):
        await judge(Rules(Rule("t", Allow(), {"path": OneOf("a")})), {"path": 5}, declared=broken)


class Known(Condition):
    """A condition whose answer is written down."""

    def __init__(self, answer: bool | None) -> None:
        self.answer = answer

    def fits(self, value: Any) -> bool | None:
        return self.answer


def resolved(rules: Iterable[tuple[Verdict, bool | None]]) -> Iterable[list[tuple[Verdict, bool]]]:
    """The rules in each way in which what they cannot tell may be."""
    listed = list(rules)
    for answers in itertools.product(*[[answer] if answer is not None else [True, False] for _, answer in listed]):
        yield [(verdict, answer) for (verdict, _), answer in zip(listed, answers, strict=True)]


@pytest.mark.parametrize("order", ORDERS)
@examples(500)
@given(
    listed=st.lists(
        st.tuples(
            st.sampled_from(
                [Allow(), Allow(network=True), Allow(write=["/a"]), Ask("1"), Ask("2"), Deny("1"), Deny("2")]
            ),
            st.sampled_from([True, False, None]),
        ),
        max_size=5,
    ),
    otherwise=st.sampled_from([None, Allow(), Allow(network=True), Ask("o"), Deny("o")]),
)
async def test_doubt_never_makes_it_milder(
    order: Order, listed: list[tuple[Verdict, bool | None]], otherwise: Verdict | None
) -> None:
    """Whatever is in truth the answer of a rule that cannot tell, the outcome is at least as strict as it would be then."""

    async def decide(rules: Iterable[tuple[Verdict, bool | None]]) -> Verdict:
        made = [Rule("t", verdict, {"path": Known(answer)}) for verdict, answer in rules]
        return await judge(Rules(*made, order=order, otherwise=otherwise), {"path": "a"})

    outcome = await decide(listed)
    for certain in resolved(listed):
        would = await decide(certain)
        assert kind(outcome) >= kind(would)
        if isinstance(outcome, Allow):
            assert isinstance(would, Allow)
            assert (outcome.network, set(outcome.write)) <= (would.network, set(would.write))
            assert not outcome.network or would.network
    if all(answer is not None for _, answer in listed):
        fitting = [verdict for verdict, answer in listed if answer]
        best = max(fitting, key=kind, default=None) if order == "strictest" else next(iter(fitting), None)
        assert outcome == (best or otherwise or Allow())


@pytest.mark.parametrize(
    ("kind", "arguments", "options"),
    [
        *[(Rules, (), {"order": "last"}), (Rules, (), {"order": True}), (Rules, ([Rule("*", Allow())],), {})],
        *[
            (Rules, (), {"otherwise": Allow}),
            (Rules, ("read_*",), {}),
            (Rule, ("", Allow()), {}),
            (Rule, (None, Allow()), {}),
        ],
        *[
            (Rule, ("*", None), {}),
            (Rule, ("*", Allow), {}),
            (Rule, ("*", "allow"), {}),
            (Rule, ("*", Permissions()), {}),
        ],
        *[
            (Rule, ("*", Allow(), arguments), {})
            for arguments in (None, "path", {"": "a"}, {1: "a"}, {"path": 1}, [("a", "b")])
        ],
        *[(Rule, ("*", Allow(), {"path": value}), {}) for value in (Under, ["a"], None)],
        *[(Allow, (), {"write": write}) for write in ([""], [5], None, 5, b"/a", "/a", ["/a\x00"], [None])],
        *[(Ask, (), {"write": write}) for write in ([""], None)],
    ],
)
def test_rules_that_make_no_sense(kind: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """A rule, a list of rules or a verdict that cannot be used is refused where it is written (A4)."""
    with pytest.raises(InvalidInput):
        kind(*arguments, **options)


def test_a_rule_does_not_change() -> None:
    """A rule keeps the conditions that it was made with, and shows how it is written."""
    arguments: dict[str, str | Condition] = {"path": "a"}
    rule = Rule("t", Deny("no"), arguments)
    arguments["path"] = "*"
    assert rule == Rule("t", Deny("no"), {"path": "a"})
    assert repr(rule) == "Rule('t', Deny(reason='no'), {'path': 'a'})"
    with pytest.raises(TypeError):
        rule.arguments["path"] = "*"  # type: ignore[index]


@tool
async def pay(to: str, amount: int = 500) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def delete_file(path: str) -> str:
    """Delete a file."""
    Path(path).unlink()
    return "deleted"


async def told(policy: Rules, tools: list[Tool[..., Any]], *calls: Any) -> list[str]:
    """What the model reads of its calls."""
    async with engine_of(list(calls), "ok", tools=tools, policy=policy) as engine:
        await engine.session("s").run("go")
        return result_texts(requests_of(engine)[1])


@pytest.mark.trio
async def test_numbers_in_a_turn() -> None:
    """Rules judge the numbers of a turn's calls; what is left out counts with its default, or cannot be told."""
    few = Rules(Rule("pay", Allow(), {"amount": Between(1, 100)}), otherwise=Deny("too much"))
    calls = [scripted("pay", to="a", amount=amount) for amount in (100, 101, -5)]
    assert await told(few, [pay], *calls, scripted("pay", to="a")) == ["paid 100", *["tool denied: too much"] * 3]
    much = Rules(Rule("pay", Deny("too much"), {"amount": Between(400, None)}), otherwise=Allow())
    assert await told(much, [pay], *calls[:2], scripted("pay", to="a")) == [
        "paid 100",
        "paid 101",
        "tool denied: too much",
    ]


@pytest.mark.trio
async def test_paths_in_a_turn(tmp_path: Path) -> None:
    """A file is deleted where a rule allows it, and no other by ``..`` or a link (A1)."""
    (tmp_path / "data").mkdir()
    (tmp_path / "secret").mkdir()
    kept, gone = tmp_path / "secret" / "key", tmp_path / "data" / "old"
    (tmp_path / "data" / "link").symlink_to(tmp_path / "secret")
    for path in (kept, gone):
        path.write_text("x")
    policy = Rules(Rule("delete_file", Allow(), {"path": Under(tmp_path / "data")}), otherwise=Deny("not there"))
    paths = ["data/old", "data/../secret/key", "data/link/key", "data/link"]
    calls = [scripted("delete_file", path=f"{tmp_path}/{path}") for path in paths]
    assert await told(policy, [delete_file], *calls) == ["deleted", *["tool denied: not there"] * 3]
    assert (kept.exists(), gone.exists(), (tmp_path / "data" / "link").is_symlink()) == (True, False, True)


@pytest.mark.trio
async def test_commands_in_a_turn(tmp_path: Path) -> None:
    """A shell runs the command lines that consist of allowed commands, and no others."""
    policy = Rules(Rule("shell", Allow(), {"command": ShellCommand("echo *", "wc -w")}), otherwise=Deny("no"))
    lines = ["echo a b | wc -w", "echo a; touch new", "echo $(touch new)", "echo a > new", "echo ${x:-$(touch new)}"]
    tools = [shell(cwd=tmp_path, sandbox="none")]
    texts = await told(policy, tools, *[scripted("shell", command=line) for line in lines])
    assert texts == ["exit code 0\n2", *["tool denied: no"] * 4]
    assert os.listdir(tmp_path) == []
