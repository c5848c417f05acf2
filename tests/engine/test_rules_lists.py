"""When a list of rules says that its order matters."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.engine.judging import ORDERS, Failing, judge, kind
from turnstate import Allow, Ask, Call, Deny
from turnstate.policy import Between, Host, Not, OneOf, Rule, RuleOrderWarning, Rules, ShellCommand, Under
from turnstate.policy.order import globs_meet

ALLOW, ASK, DENY = Allow(), Ask(), Deny()
ALIKE: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {"path": "/etc/*"}, True),
    ({"path": "/etc/*"}, {}, True),
    ({"path": "/srv/*"}, {"path": "/etc/*"}, False),
    ({"path": "*/a"}, {"path": "/etc/*"}, True),
    ({"path": "/srv/*"}, {"n": "1"}, True),
    ({"path": "/srv/*", "n": "1"}, {"path": "/srv/*", "n": "2"}, False),
    ({"n": OneOf(1, 2)}, {"n": OneOf(3)}, False),
    ({"n": OneOf(1, 2)}, {"n": OneOf("a")}, True),
    ({"n": OneOf(1, 2)}, {"n": Between(2, 3)}, True),
    ({"n": OneOf("a")}, {"n": "b*"}, False),
    ({"n": "b*"}, {"n": OneOf("a")}, False),
    ({"n": "*"}, {"n": OneOf("a")}, True),
    ({"n": "b*"}, {"n": OneOf(5)}, True),
    ({"path": "[[]*"}, {"path": "/etc/*"}, True),
    ({"path": "{*b}"}, {"path": "/etc/*"}, True),
    ({"n": "1*"}, {"n": OneOf("a")}, True),
    ({"n": Between(0, 1)}, {"n": Between(2, None)}, False),
    ({"n": Between(0, 2)}, {"n": Between(2, None)}, True),
    ({"n": Between(0, 2)}, {"n": Not(Between(0, 2))}, False),
    ({"n": Not(Between(0, 2))}, {"n": Between(0, 2)}, False),
    ({"n": Not(Between(0, 2))}, {"n": Between(0, 3)}, True),
    ({"path": Under("/srv")}, {"path": Under("/etc", "/var")}, False),
    ({"path": Under("/srv")}, {"path": Under("/srv/secret")}, True),
    ({"path": Under("/srv", base="/srv")}, {"path": Under("/etc")}, True),
    ({"path": Under("/srv")}, {"path": "/etc/*"}, True),
    ({"url": Host("*.a.com")}, {"url": Host("a.com", "*.b.com")}, False),
    ({"url": Host("*.a.com")}, {"url": Host("x.a.com")}, True),
    ({"url": Host("*.a.com")}, {"url": Host("*.b.a.com")}, True),
    ({"command": ShellCommand("ls *")}, {"command": ShellCommand("rm *")}, False),
    ({"command": ShellCommand("git log -n *")}, {"command": ShellCommand("rm *")}, True),
    ({"command": ShellCommand("git log *")}, {"command": ShellCommand("rm *")}, False),
    ({"command": ShellCommand("make all")}, {"command": ShellCommand("rm *")}, True),
    ({"command": ShellCommand("ls a *")}, {"command": ShellCommand("ls * b")}, True),
    ({"command": ShellCommand("ls a")}, {"command": ShellCommand("ls b *")}, False),
    ({"path": Failing(True)}, {"path": Failing(False)}, True),
]


@pytest.mark.parametrize(("earlier", "later", "matters"), ALIKE)
def test_when_the_order_matters(earlier: dict[str, Any], later: dict[str, Any], matters: bool) -> None:
    """A list says that its order matters if a milder rule comes before a stricter one that may fit the same call."""
    for mild, strict in ((ALLOW, ASK), (ALLOW, DENY), (ASK, DENY)):
        listed = [Rule("read_*", mild, earlier), Rule("*_file", strict, later)]
        if matters:
            with pytest.warns(RuleOrderWarning) as caught:
                Rules(*listed)
            (warned,) = caught
            assert all(repr(rule) in str(warned.message) for rule in listed)
            assert warned.filename == __file__
        else:
            Rules(*listed)
        for order in ORDERS:
            Rules(*listed, order=order)
        Rules(*reversed(listed))
        Rules(Rule("read_*", mild, earlier), Rule("delete_*", strict, later))
        Rules(Rule("*", strict, earlier), Rule("*", strict, later))


CONDITIONS: dict[str, list[Any]] = {
    "path": ["/srv/*", "/etc/*", "*", Under("/srv"), Under("/etc"), Not(Under("/srv")), Not("/etc/*"), OneOf("/srv/a")],
    "n": ["1*", OneOf(1, 2), OneOf("a"), Between(0, 10), Between(5, None), Not(Between(0, 10)), Not(OneOf(1))],
    "command": ["ls *", *(ShellCommand(text) for text in ("ls *", "rm *", "git log *", "ls a"))],
    "url": ["https://*", Host("*.a.com"), Host("a.com", "b.com"), Not(Host("*.a.com"))],
}
VALUES: dict[str, list[Any]] = {
    "path": ["/srv/a", "/etc/a", "/srv/../etc/a", "a", 5, ["/srv/a", "/etc/b"], None, "~"],
    "n": [1, 2, 7, 11, "1", "a", 1.0, True, None, [1]],
    "command": ["ls a", "ls; rm b", "git log", "rm", "ls $x", "env rm", None],
    "url": ["https://x.a.com", "https://a.com/", "https://b.com", "http://a@b", "b.com", 5],
}
RULES = st.builds(
    Rule,
    st.sampled_from(["*", "read_*", "*_file", "read_file", "delete_?ile"]),
    st.sampled_from([Allow(), Allow(network=True), Ask("1"), Ask("2", write=["/a"]), Deny("1"), Deny("2")]),
    st.sampled_from(sorted(CONDITIONS)).flatmap(
        lambda name: st.dictionaries(st.just(name), st.sampled_from(CONDITIONS[name]), max_size=1)
    ),
)
LISTS = st.lists(RULES, max_size=4)
CALLS = st.tuples(
    st.sampled_from(["read_file", "delete_file", "other"]),
    st.none() | st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}),
)


@examples(500)
@given(listed=LISTS, made=CALLS)
async def test_without_a_warning_both_orders_agree(listed: list[Rule], made: tuple[str, dict[str, Any] | None]) -> None:
    """A list that says nothing about its order decides alike with either, on every call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plain = Rules(*listed)
    name, values = made
    verdicts = [await judge(rules, values, name=name) for rules in (plain, Rules(*listed, order="strictest"))]
    assert verdicts[0] == await judge(Rules(*listed, order="first"), values, name=name)
    assert caught or kind(verdicts[0]) == kind(verdicts[1])
    assert kind(verdicts[0]) <= kind(verdicts[1])


TOKENS = st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[]]", "[", "]", "!"]), max_size=5).map("".join)


@examples(500)
@given(one=TOKENS, other=TOKENS, text=st.text("ab[]!", max_size=5))
def test_patterns_that_meet(one: str, other: str, text: str) -> None:
    """Two patterns that a text fits meet."""
    rules = [Rule(pattern, Allow()) for pattern in (one or "x", other or "x")]
    if text and all(rule.fits(Call("m1.0", text)) for rule in rules):
        assert globs_meet(rules[0].tool, rules[1].tool)
