"""A condition on the host of a URL, for URLs that every program reads in the same way."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from turnstate_states.errors import InvalidInput

from .conditions import Condition

__all__ = ["Host"]

_URL = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://)?(?P<host>\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?(?:/.*)?",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_SPECIAL = {"ftp", "file", "http", "https", "ws", "wss"}


LONGEST = 8192
"""Characters; a longer URL is not read."""


class Host(Condition):
    """A URL, or just a host with or without a port, whose host is one of these.

    ``*.example.com`` stands for all hosts below ``example.com``, at any depth, and not for itself. Case, the port and a dot
    at the end do not count. Names are not looked up: ``localhost`` and ``127.0.0.1`` are two hosts.

    Programs disagree on unusual URLs, so this reads only the usual form. These cannot be told: user names and passwords,
    backslashes, white space, hosts that are not ASCII or have ``%`` or ``_``, a ``?`` or ``#`` right after the host, schemes
    without ``//``, and IP addresses other than ``1.2.3.4`` and ``[2001:db8::1]`` (``127.1``, ``0x7f000001``, IPv4 addresses
    in IPv6 ones).

    >>> Host("*.example.com").fits("https://api.example.com/v1"), Host("example.com").fits("https://evil.com/example.com")
    (True, False)
    >>> Host("example.com").fits("https://example.com@evil.com/") is None
    True

    Raises:
        InvalidInput: there is no host, or one that is not written in the usual form.
    """

    def __init__(self, *hosts: str) -> None:
        if not hosts:
            raise InvalidInput("Host: hosts: expected at least one host")
        self.hosts = tuple(_checked(host) for host in hosts)

    def fits(self, value: Any) -> bool | None:
        host = host_of(value) if isinstance(value, str) else None
        return None if host is None else any(_is(host, pattern) for pattern in self.hosts)

    def __repr__(self) -> str:
        return f"Host({', '.join(map(repr, self.hosts))})"


def _is(host: str, pattern: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def host_of(text: str) -> str | None:
    """The host of a URL, in lower case and without a dot at its end; None if programs could disagree on it."""
    found = _URL.fullmatch(text) if len(text) <= LONGEST else None
    if found is None or not text.isprintable() or "\\" in text or " " in text:
        return None
    scheme, port = found["scheme"], found["port"]
    host = found["host"].lower()
    if port is not None and (int(port) > 65535 or (scheme is None and host in _SPECIAL)):
        return None
    if (scheme or "").lower() == "file":
        return None
    return _canonical(host)


def _canonical(host: str) -> str | None:
    if host.startswith("["):
        return _ipv6(host[1:-1])
    host = host.removesuffix(".")
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return None
    # Programs take a name whose last part looks like a number for an IPv4 address, or not.
    if labels[-1].isdecimal() or re.fullmatch(r"0x[0-9a-f]*", labels[-1]):
        return _ipv4(host)
    return host


def _ipv4(text: str) -> str | None:
    try:
        return str(ipaddress.IPv4Address(text))  # takes four decimal numbers without leading zeros, and nothing else
    except ValueError:
        return None


def _ipv6(text: str) -> str | None:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    if "." in text or address.ipv4_mapped or address.sixtofour or address.teredo:
        return None
    # ::1.2.3.4 and the prefix of NAT64 hold an IPv4 address as well; :: and ::1 do not.
    if 1 < int(address) < 1 << 32 or int(address) >> 32 == 0x64FF9B << 64:
        return None
    return f"[{address.compressed}]"


def _checked(host: object) -> str:
    if not isinstance(host, str):
        raise InvalidInput(f"Host: hosts: expected text, got {type(host).__name__}")
    star = "*." if host.startswith("*.") else ""
    name = host.removeprefix("*.").lower()
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    found = _URL.fullmatch(name)
    plain = None if found is None or found["host"] != name else _canonical(name)
    if plain is None or (star and (plain.startswith("[") or plain.rpartition(".")[2].isdecimal())):
        raise InvalidInput(
            f"Host: hosts: {host!r} is not a host: write one like 'example.com', '*.example.com', '192.0.2.1' or "
            "'2001:db8::1', without a port, and names that are not ASCII in their xn-- form"
        )
    return star + plain
