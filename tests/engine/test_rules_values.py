"""Conditions on values: hosts, numbers, choices, patterns, and their opposites."""

from __future__ import annotations

import ipaddress
import socket
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from tests.depth import examples
from turnstate import InvalidInput
from turnstate.policy import Between, Condition, Host, Not, OneOf, ShellCommand, Under
from turnstate.policy.conditions import Glob
from turnstate.policy.hosts import host_of


@pytest.mark.parametrize(
    ("value", "host"),
    [
        *[
            ("https://example.com", "example.com"),
            ("HTTP://Example.COM:8080/a?b#c", "example.com"),
            ("example.com", "example.com"),
        ],
        *[
            ("example.com:80/a", "example.com"),
            ("example.com./", "example.com"),
            ("https://example.com/@evil.com", "example.com"),
        ],
        *[
            ("https://a.example.com/ü", "a.example.com"),
            ("ws://localhost:1", "localhost"),
            ("https://xn--bcher-kva.example", "xn--bcher-kva.example"),
        ],
        *[
            ("http://127.0.0.1:80/", "127.0.0.1"),
            ("http://[::1]/", "[::1]"),
            ("http://[2001:DB8:0::1]:80", "[2001:db8::1]"),
        ],
        *[
            (f"http://{odd}/", None)
            for odd in ("127.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.01", "1.2.3.4.5", "a.0x1")
        ],
        *[
            (f"http://{odd}/", None)
            for odd in (
                "[::ffff:127.0.0.1]",
                "[::ffff:7f00:1]",
                "[::7f00:1]",
                "[2001:db8::1.2.3.4]",
                "[fe80::1%25eth0]",
                "[64:ff9b::1]",
                "[1]",
            )
        ],
        *[
            (f"http://{odd}/", None)
            for odd in ("a@b", "a:b@c", "a%2ecom", "a_b", "a..b", ".a", "-a", "a-", "bücher.example", "", "a b")
        ],
        *[
            ("http://good.com\\@evil.com", None),
            ("http:\\\\evil.com", None),
            ("http:/evil.com", None),
            ("http:evil.com", None),
        ],
        *[
            ("//evil.com", None),
            ("http://a?@b", None),
            ("http://a#@b", None),
            ("http://a\t.com", None),
            ("http://a.com\n", None),
        ],
        *[
            (" http://a.com", None),
            ("http://a.com:99999", None),
            ("http://a:", None),
            ("http:80", None),
            ("https:80/a", None),
        ],
        *[
            ("file:///etc/passwd", None),
            ("file://a.com/b", None),
            ("mailto:a@b.com", None),
            ("javascript:alert", None),
            ("/a/b", None),
        ],
        *[
            ("http://a．com", None),
            ("http://ⓔxample.com", None),
            ("http://\u212aa.com", None),
            ("", None),
            ("http://a.com/ b", None),
        ],
        *[("http://" + "a" * 64 + ".com", None), ("http://" + "a." * 127 + "com", None), ("http://a.com../", None)],
    ],
)
def test_hosts(value: str, host: str | None) -> None:
    """The host of what every program reads in the same way; of everything else it cannot be told."""
    assert host_of(value) == host
    assert Host("evil.test").fits(value) is (None if host is None else False)
    if host:
        assert Host(host).fits(value) is True


def test_which_hosts_fit() -> None:
    """A star stands for what is below a host, at any depth, and not for the host itself or one that ends alike."""
    check = Host("*.example.com", "::1", "Localhost")
    for value in ("https://a.example.com", "https://a.b.EXAMPLE.com./x", "http://[0:0::1]:80/", "localhost:8000"):
        assert check.fits(value) is True
    for value in (
        "https://example.com",
        "https://badexample.com",
        "https://example.com.evil.com",
        "http://[2001:db8::9]/",
    ):
        assert check.fits(value) is False
    others: list[Any] = [None, 5, ["https://a.example.com"]]
    for value in others:
        assert check.fits(value) is None


ODD = [
    "evil.com",
    "good.com",
    "127.0.0.1",
    "0x7f",
    "[::1]",
    "[2001:db8::1]",
    ".com",
    ":80",
    "/a",
    "@",
    "\\",
    "?",
    "#",
    "ß",
    "。",
]
MORE = [*"ab.:/[]%018 -_\t", "//", "http:", "127.1", "%2e", "xn--a", "\u212a", "."]
HOSTS = st.sampled_from(["good.com", "a.b", "127.0.0.1", "[::1]", "1.2", "A", "0x1"])
RESTS = st.sampled_from(["", "/", ":80", ":80/a", "./a", "?a", "#", "/@evil.com", "/?u=http://evil.com", "/a:b@c"])


def same(one: str, other: str) -> bool:
    """Whether two texts are one host, however an IPv6 address is written."""
    one, other = (text.strip("[]").removesuffix(".").lower() for text in (one, other))
    return one == other or (":" in one and ipaddress.ip_address(one) == ipaddress.ip_address(other))


@examples(1000)
@given(
    scheme=st.sampled_from(["http://", "https://", "HTTP://", "ws://"]),
    rest=st.builds(str.__add__, HOSTS, RESTS)
    | st.builds("{}{}{}".format, HOSTS, st.sampled_from(ODD + MORE), RESTS)
    | st.lists(st.sampled_from(ODD + MORE) | st.characters(codec="utf-8"), max_size=8).map("".join),
)
@example(scheme="http://", rest="good.com\\@evil.com")
def test_url_parsers_agree(scheme: str, rest: str) -> None:
    """Where a host is read from a URL, two other parsers read the same, and a system takes it for no other address."""
    host = host_of(scheme + rest)
    if host is None:
        return
    assert same(urlsplit(scheme + rest).hostname or "", host)
    assert same(httpx.URL(scheme + rest).raw_host.decode(), host)
    try:
        assert socket.inet_ntoa(socket.inet_aton(host)) == host
    except OSError:
        event("a name")


@pytest.mark.parametrize(
    ("condition", "value", "answer"),
    [
        *[(OneOf("a", "b"), "a", True), (OneOf("a"), "A", False), (OneOf("a"), 5, None), (OneOf("a"), None, False)],
        *[
            (OneOf(1), 1.0, True),
            (OneOf(1), True, None),
            (OneOf(1), "1", None),
            (OneOf(True), 1, None),
            (OneOf(None), None, True),
        ],
        *[
            (OneOf(True), False, False),
            (OneOf("a"), ["a"], None),
            (OneOf(1), float("nan"), None),
            (OneOf(None), "a", None),
        ],
        *[
            (Between(0, 10), 10, True),
            (Between(0, 10), -1, False),
            (Between(0, 10), 10.01, False),
            (Between(0, 10), "10.0", True),
        ],
        *[
            (Between(0, 10), True, None),
            (Between(0, 10), "1_0", None),
            (Between(0, 10), " 1", None),
            (Between(0, 10), "٣", None),
        ],
        *[(Between(0, 10), float("nan"), None), (Between(0, 10), float("inf"), None), (Between(0, 10), "NaN", None)],
        *[
            (Between(None, 10), -(10**400), True),
            (Between(0, None), 10**400, True),
            (Between(0, 10), "1e999999999", None),
        ],
        *[
            (Between(0, 10), None, None),
            (Between(0, 10), [1], None),
            (Between(Decimal("0.1"), 1), 0.1, True),
            (Between(0, 1), "1e2", False),
        ],
        *[
            (Not(OneOf("a")), "a", False),
            (Not(OneOf("a")), "b", True),
            (Not(OneOf("a")), 5, None),
            (Not("/etc/*"), "/srv", True),
        ],
        *[(Not(Not(Between(0, 1))), 1, True), (Not("/etc/*"), ["/etc/a"], False), (Not("/etc/*"), ["/srv"], True)],
    ],
)
def test_values(condition: Condition, value: Any, answer: bool | None) -> None:
    """Whether a value is one of some, or a number in between; what is of another type cannot be told."""
    assert condition.fits(value) is answer


@pytest.mark.parametrize(
    ("pattern", "value", "fits", "touches"),
    [
        *[
            ("/etc/*", "/etc/a", True, True),
            ("/etc/*", ["/srv", "/etc/a"], False, True),
            ("/etc/*", {"a": ["/etc/b"]}, False, True),
        ],
        *[("/etc/*", {"/etc/a": 1}, False, True), ("/etc/*", [["/srv"]], False, False), ("*", ["a"], True, True)],
        *[
            ("1000", 1000.0, False, True),
            ("1000.0", 1000.0, False, True),
            ("1000*", 1000.0, True, True),
            ("1000", [1000.0], False, True),
        ],
        *[("true", True, True, True), ("null", None, True, True), ("7", [7], False, True), ("7", 8, False, False)],
    ],
)
def test_patterns_of_other_values(pattern: str, value: Any, fits: bool, touches: bool) -> None:
    """A pattern that denies also sees the texts inside a value, and a number in each way to write it."""
    assert (Glob(pattern).fits(value), Glob(pattern).touches(value)) == (fits, touches)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        *[(Under, ()), (Under, ("srv",)), (Under, ("/a\x00",)), (Under, (5,)), (Under, ("",)), (Under, (["/a"],))],
        *[
            (Host, ()),
            (Host, ("*",)),
            (Host, ("a:80",)),
            (Host, ("https://a",)),
            (Host, ("a/b",)),
            (Host, (5,)),
            (Host, ("",)),
        ],
        *[
            (Host, ("*.1.2.3.4",)),
            (Host, ("127.1",)),
            (Host, ("bücher.example",)),
            (Host, ("a.*",)),
            (Host, ("*.::1",)),
        ],
        *[(OneOf, ()), (OneOf, (["a"],)), (OneOf, (float("nan"),))],
        *[
            (Between, (None, None)),
            (Between, (2, 1)),
            (Between, ("1", 2)),
            (Between, (True, 2)),
            (Between, (0, float("inf"))),
        ],
        *[(Not, (5,)), (Not, (None,)), (ShellCommand, ()), (ShellCommand, (["ls"],))],
    ],
)
def test_conditions_that_make_no_sense(kind: Any, arguments: tuple[Any, ...]) -> None:
    """A condition that cannot be used is refused where it is written."""
    with pytest.raises(InvalidInput, match=kind.__name__):
        kind(*arguments)


def test_a_base_that_makes_no_sense() -> None:
    """A base is an absolute path as well."""
    with pytest.raises(InvalidInput, match="base"):
        Under("/srv", base="a")


def test_the_opposite_of_a_part() -> None:
    """The opposite of a pattern touches a value of which some part does not fit."""
    opposite = Not("/etc/*")
    assert (opposite.fits(["/etc/a", "/srv"]), opposite.touches(["/etc/a", "/srv"])) == (False, True)
    opposite = Not(ShellCommand("ls *"))
    assert (opposite.fits("ls; rm a"), opposite.touches("ls; rm a"), opposite.touches("ls")) == (False, True, False)


def test_conditions_are_values() -> None:
    """Conditions of the same kind with the same arguments are equal, and show how they are written."""
    for text in (
        "Under('/srv', '/a', base='/b')",
        "Host('*.a.com', '[::1]')",
        "OneOf('a', 1, None)",
        "Not(OneOf(True))",
    ):
        assert repr(eval(text)) == text
        assert eval(text) == eval(text)
        assert len({eval(text), eval(text)}) == 1
    assert OneOf("a") != OneOf("b")
    assert OneOf("a") != Host("a")
    assert repr(ShellCommand("ls *", "a")) == "ShellCommand('ls *', 'a')"
    assert ShellCommand("ls *") == ShellCommand("ls *")
