"""Which parts of what a host gives an adapter are secret: keys, headers, URLs, fields of a body."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from .json_values import is_dict, is_list
from .redaction import Redactor

__all__ = ["bears_secret", "redactor_of", "secrets_in_body"]

_TELLING = re.compile(r"auth|key|token|secret|passw|pwd|cookie|session|cred|signature|jwt|bearer", re.IGNORECASE)
"""In the name of a header or field whose value is secret."""

_NAMES = """
accept accept-encoding accept-language alt anthropic-beta anthropic-version api-version cache-control connection
content-length content-type host http-referer idempotency-key max_tokens openai-beta origin prompt_cache_key referer
user-agent x-title
"""
_HARMLESS = frozenset(_NAMES.split())
"""Names of headers and fields whose values are not secret, and words that a server may well use in an explanation."""

_SCHEMES = frozenset(["apikey", "api-key", "basic", "bearer", "digest", "dpop", "key", "negotiate", "ntlm", "token"])
_SEPARATORS = re.compile(r"[\s=:;,\"]+")
_ORDINARY = 16
"""From this length on, letters alone make no ordinary word any more."""


def redactor_of(
    key: str, headers: Mapping[str, str], urls: Iterable[str], fields: Iterable[str], *, environment: bool
) -> Redactor:
    """What takes a request's secrets out of texts.

    Args:
        key: the API key, or nothing.
        headers: those that the host gave.
        urls: where the request goes, and by which proxy.
        fields: further secrets, see :func:`secrets_in_body`.
        environment: whether the environment's proxies may have been used.
    """
    from urllib.request import getproxies  # here, since it imports much and few requests fail

    words = {key, *_words(key, telling=True), *fields}
    phrases: set[str] = set()
    for name, value in headers.items():
        if name.lower() not in _HARMLESS:
            words |= _words(value, telling=bool(_TELLING.search(name)))
            phrases.add(value.strip())
    for url in (*urls, *(getproxies().values() if environment else ())):
        words |= set(_secrets_of_url(url))
    return Redactor(words - {""}, phrases - {""})


def bears_secret(key: str, headers: Mapping[str, str], url: str) -> bool:
    """Whether a request carries something that nobody else may read. Keys of a few characters are dummies."""
    telling = any(_TELLING.search(name) and name.lower() not in _HARMLESS for name in headers)
    return len(key) >= 8 or telling or any(_secrets_of_url(url))


def secrets_in_body(value: object, *, telling: bool = False) -> Iterator[str]:
    """Texts in a body's fields whose name says that they are secret, such as the headers of a hosted MCP server."""
    if isinstance(value, str):
        if telling:
            yield from _words(value, telling=True)
    elif is_dict(value):
        for name, item in value.items():
            secret = name.lower() not in _HARMLESS and (name.lower() == "headers" or bool(_TELLING.search(name)))
            yield from secrets_in_body(item, telling=telling or secret)
    elif is_list(value):
        for item in value:
            yield from secrets_in_body(item, telling=telling)


def _words(value: str, *, telling: bool) -> set[str]:
    """The secret words of a value: all that are no ordinary words, and one that stands alone or after a scheme."""
    value = value.strip()
    scheme, _, rest = value.partition(" ")
    if rest.strip() and scheme.lower() in _SCHEMES:
        return _words(rest, telling=True) | (_of_basic(rest) if scheme.lower() == "basic" else set())
    parts = _parts(value)
    if len(parts) <= 1:
        # "production" as the whole of a header that nobody need know is not worth blanking out a server's words.
        return {value} if telling or not _ordinary(value) or len(value) >= 8 else set()
    whole = {value} if telling and not any(map(str.isspace, value)) else set[str]()
    return whole | {part for part in parts if not _ordinary(part) or (telling and len(part) >= 8)}


def _parts(value: str) -> list[str]:
    return [part for part in _SEPARATORS.split(value) if part]


def _ordinary(word: str) -> bool:
    """Whether a word may well be one of a language.

    >>> [word for word in ("Bearer", "prod", "c9f0f895", "correct-horse") if _ordinary(word)]
    ['Bearer', 'prod']
    """
    one_case = word.islower() or word.isupper() or word.istitle()
    return word.lower() in _SCHEMES or (word.isalpha() and one_case and len(word) < _ORDINARY)


def _of_basic(coded: str) -> set[str]:
    try:
        text = base64.b64decode(coded.strip() + "==", validate=False).decode()
    except (binascii.Error, ValueError):
        return set()
    return set(_of_login(*text.partition(":")[::2]))


def _of_login(user: str, password: str) -> Iterator[str]:
    """A user's name is secret where there is no password: some servers take a token in its place."""
    if password:
        yield password
    if user and (not password or not _ordinary(user)):
        yield user


def _secrets_of_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        user, password = parts.username or "", parts.password or ""
    except ValueError:
        return
    if user or password:
        for one, other in ((user, password), (unquote(user), unquote(password))):
            yield from _of_login(one, other)
            yield base64.b64encode(f"{one}:{other}".encode()).decode()
    for name, value in parse_qsl(parts.query):
        if name.lower() not in _HARMLESS:
            yield from _words(value, telling=bool(_TELLING.search(name)))
