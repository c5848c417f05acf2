"""Where a server is and what opens it: URLs, API keys and headers, checked before anything is sent."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit, urlunsplit

from turnstate_states import checks
from turnstate_states.errors import InvalidInput

__all__ = ["check_headers", "check_key", "check_url", "join_url", "shown_url", "warn_of_plain_http"]

log = logging.getLogger("turnstate")
_warned: set[str] = set()
_MOST_HOSTS = 1000


def check_url(url: str, field: str = "base_url") -> str:
    """The URL without a slash at its end.

    Raises:
        InvalidInput: it is not an ``http:`` or ``https:`` URL with a host.
    """
    url = checks.text(field, url).strip()
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:
        good = False
    if not good or " " in url:
        raise InvalidInput(f"{field}: expected a URL such as http://localhost:8000/v1")
    return url.rstrip("/")


def join_url(base: str, path: str) -> str:
    """The URL of a path below a base, before its query; a base that ends with the path is taken as it is.

    >>> join_url("https://host/deployments/d?api-version=1", "chat/completions")
    'https://host/deployments/d/chat/completions?api-version=1'
    """
    parts = urlsplit(base)
    root = parts.path.rstrip("/")
    if not root.endswith(f"/{path}"):
        root = f"{root}/{path}"
    return urlunsplit(parts._replace(path=root))


def shown_url(url: str) -> str:
    """The URL without what may be secret in it: user, password, query.

    >>> shown_url("http://me:secret@host:1/v1?key=2")
    'http://host:1/v1'
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def check_key(key: str, field: str = "api_key") -> str:
    """The key without the white space around it, which copying adds; empty if there is nothing else.

    Raises:
        InvalidInput: it holds a character that a header cannot carry. The text does not hold the key.
    """
    key = key.strip()
    if not (key.isascii() and key.isprintable()):
        raise InvalidInput(f"{field}: it holds a character that a header cannot carry; copy it again")
    return key


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers as a dict of their own.

    Raises:
        InvalidInput: a name or a value holds a character that a header cannot carry. The text does not hold the value.
    """
    for name, value in headers.items():
        checks.instance(f"headers: {checks.shown(name)}", value, str, "text")
        good = name.isascii() and name.isprintable() and name and not set(name) & set(' :()<>@,;\\"/[]?={}')
        if not good or not (value.isascii() and value.isprintable()):
            raise InvalidInput(f"headers: {name!r} or its value holds a character that a header cannot carry")
    return dict(headers)


def warn_of_plain_http(url: str) -> None:
    """Log, once for each host, that a key goes to another machine where everybody on the way can read it.

    It is a line of the log and not a :class:`Warning`: the address often comes from the environment, so it is for whoever
    runs the program, in production as well, and must not stop a program whose warnings are errors.

    Args:
        url: where a request goes that carries a key or a password.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "http" or _is_local(host) or host in _warned:
        return
    if len(_warned) >= _MOST_HOSTS:
        _warned.clear()
    _warned.add(host)
    log.warning("a key is sent to %s over plain http, where others can read it on its way; use https", host)


def _is_local(host: str) -> bool:
    """Whether what is sent to a host stays on this machine.

    >>> [host for host in ("localhost", "a.localhost", "127.0.0.9", "::1", "10.0.0.1", "gpu") if _is_local(host)]
    ['localhost', 'a.localhost', '127.0.0.9', '::1']
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
