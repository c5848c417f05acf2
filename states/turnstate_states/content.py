"""The parts of a message: what people, models and tools say.

Parts are frozen values. Text is checked when a part is made: a lone surrogate (half of a UTF-16 pair, which no encoder
accepts) raises :class:`~turnstate.InvalidInput`. Text that comes from tools and models goes through :func:`clean_text`,
which replaces such code points, because nobody is there who could mend it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import attrs

from . import checks, texts
from .authorization import Authorization
from .errors import InvalidInput
from .values import Value

__all__ = [
    "Audio",
    "Citation",
    "File",
    "Hosted",
    "Image",
    "Part",
    "Quote",
    "Reasoning",
    "Refusal",
    "ResultStatus",
    "Text",
    "ToolCall",
    "ToolResult",
    "UserPart",
    "as_parts",
    "check_part",
    "check_url",
    "clean_text",
    "text_of",
]

ResultStatus = Literal["ok", "error", "denied", "not-run", "unknown"]
"""How a call was settled; everything but ``ok`` is an error result for the model."""


def _no_mapping() -> Mapping[str, Any]:
    return {}


NO_CITATIONS: tuple[()] = ()
_check_text = checks.validator(checks.text)
_check_provider = checks.validator(checks.instance, kind=Mapping, expected="a mapping")


def _text(owner: object, field: attrs.Attribute[str], value: object) -> None:
    if type(value) is not str or not value.isascii():  # parts are made for each message that is read: be quick
        _check_text(owner, field, value)


def _provider(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    if type(value) is not dict:
        _check_provider(owner, field, value)


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD; two halves that belong together are joined.

    >>> clean_text("a\\ud800b")
    'a\\ufffdb'
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


@attrs.frozen(eq=False, repr=False)
class Citation(Value):
    """Where a piece of text comes from: a URL or a document's name, its title, and the words that are quoted."""

    source: str = attrs.field(validator=_text)
    title: str = attrs.field(default="", validator=_text)
    quote: str = attrs.field(default="", validator=_text)


_check_citations = checks.validator(checks.array, kind=Citation, expected="Citation objects")


def _citations(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not NO_CITATIONS:
        _check_citations(owner, field, value)


@attrs.frozen(eq=False, repr=False)
class Text(Value):
    """Plain text. ``provider`` holds what the provider that made it needs back, verbatim, by protocol."""

    tag: ClassVar[str] = "text"
    text: str = attrs.field(validator=_text)
    citations: tuple[Citation, ...] = attrs.field(default=NO_CITATIONS, kw_only=True, repr=False, validator=_citations)
    provider: Mapping[str, Any] = attrs.field(factory=_no_mapping, kw_only=True, repr=False, validator=_provider)


@attrs.frozen(eq=False, repr=False)
class Refusal(Value):
    """The model's own words for why it will not answer."""

    tag: ClassVar[str] = "refusal"
    text: str = attrs.field(validator=_text)
    provider: Mapping[str, Any] = attrs.field(factory=_no_mapping, kw_only=True, repr=False, validator=_provider)


@attrs.frozen(eq=False, repr=False)
class Reasoning(Value):
    """What a model thought before it answered; ``provider`` holds signatures and the like, verbatim."""

    tag: ClassVar[str] = "reasoning"
    text: str = attrs.field(validator=_text)
    provider: Mapping[str, Any] = attrs.field(factory=_no_mapping, kw_only=True, repr=False, validator=_provider)


@attrs.frozen(eq=False, repr=False)
class Image(Value):
    """A picture, as an ``http(s):`` or ``data:`` URL."""

    tag: ClassVar[str] = "image"
    url: str = attrs.field(validator=_text)
    media_type: str = attrs.field(default="", validator=_text)
    provider: Mapping[str, Any] = attrs.field(factory=_no_mapping, kw_only=True, repr=False, validator=_provider)


@attrs.frozen(eq=False, repr=False)
class File(Value):
    """A file, as an ``http(s):`` or ``data:`` URL."""

    tag: ClassVar[str] = "file"
    url: str = attrs.field(validator=_text)
    name: str = attrs.field(default="", validator=_text)
    media_type: str = attrs.field(default="", validator=_text)
    provider: Mapping[str, Any] = attrs.field(factory=_no_mapping, kw_only=True, repr=False, validator=_provider)


@attrs.frozen(eq=False, repr=False)
class Audio(Value):
    """Recorded speech, as a ``data:`` URL."""

    tag: ClassVar[str] = "audio"
    url: str = attrs.field(validator=_text)
    media_type: str = attrs.field(default="", validator=_text)
    provider: Mapping[str, Any] = attrs.field(factory=_no_mapping, kw_only=True, repr=False, validator=_provider)


@attrs.frozen(eq=False, repr=False)
class Quote(Value):
    """Words of an earlier message that a person refers to; they must stand in it exactly. Models read it as quoted text.

    ``message`` is its id.

    >>> Quote("m2", "one\\ntwo").as_text().text
    '> one\\n> two\\n\\n'
    """

    tag: ClassVar[str] = "quote"
    message: str = attrs.field(validator=_text)
    text: str = attrs.field(validator=_text)

    def as_text(self) -> Text:
        """The quote as a model reads it."""
        return Text("".join(f"> {line}\n" for line in self.text.splitlines()) + "\n")


@attrs.frozen(eq=False, repr=False)
class Hosted(Value):
    """Something that the provider ran by itself, or a kind of item that this version does not know.

    ``kind`` is the provider's own word (``web_search_call``, ``code_execution_tool_result``, ...), ``text`` what a person
    may read of it; ``provider`` holds the item verbatim, by protocol. It goes back only to where it came from.
    """

    tag: ClassVar[str] = "hosted"
    kind: str = attrs.field(validator=_text)
    text: str = attrs.field(default="", validator=_text)
    provider: Mapping[str, Any] = attrs.field(factory=_no_mapping, kw_only=True, repr=False, validator=_provider)


@attrs.frozen(eq=False, repr=False)
class ToolCall(Value):
    """A model's wish to run a tool.

    ``id`` is ours (message id and position, ``m12.0``), unique in the session. ``provider_id`` is the provider's name for
    the call, which need not be unique. ``arguments`` is the text exactly as the model sent it; it need not be JSON.
    """

    tag: ClassVar[str] = "call"
    id: str
    name: str = attrs.field(validator=_text)
    arguments: str = attrs.field(validator=_text)
    provider_id: str = ""
    provider: Mapping[str, Any] = attrs.field(factory=_no_mapping, kw_only=True, repr=False, validator=_provider)


@attrs.frozen(eq=False, repr=False)
class ToolResult(Value):
    """The one result of a call: ``text`` is what the model reads, and ``images`` what it sees.

    ``value`` is the result itself where that is not what the model reads; ``artifact`` is for user interfaces only. Both
    are plain JSON values, and no model sees them. ``json``: the text is JSON that the tool gave as a value.
    ``authorization`` says who let the call run, and with what, where there is something to say.
    """

    tag: ClassVar[str] = "result"
    call: str
    text: str = attrs.field(validator=_text)
    status: ResultStatus = "ok"
    images: tuple[Image, ...] = ()
    value: Any = None
    artifact: Any = None
    json: bool = False
    authorization: Authorization | None = attrs.field(default=None, repr=False)

    @property
    def given(self) -> str:
        """What the tool gave: the text without the note, for the model, that a person changed the arguments."""
        changed = None if self.authorization is None else self.authorization.edited
        return self.text if changed is None else self.text.removesuffix(texts.edited(changed))


Part = Text | Refusal | Reasoning | Image | File | Audio | Quote | Hosted | ToolCall | ToolResult
UserPart = Text | Image | File | Audio | Quote
"""What a person may send."""

USER_PARTS = (Text, Image, File, Audio, Quote)
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def as_parts(content: str | Iterable[UserPart]) -> tuple[UserPart, ...]:
    """A person's message as parts; a plain string becomes one :class:`Text`.

    Raises:
        InvalidInput: it is empty or blank, or holds something that a person cannot send.

    >>> as_parts("hi")
    (Text(text='hi'),)
    """
    if isinstance(content, str):
        parts: tuple[UserPart, ...] = (Text(checks.text("message", content)),)
    else:
        given = checks.items("message", content, "text or a list of parts")
        parts = tuple(check_part(f"message[{place}]", part) for place, part in enumerate(given))
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        raise InvalidInput("message: it is empty; write some text or add a part")
    return parts


def check_part(where: str, part: UserPart) -> UserPart:
    """A part that somebody gave, checked beyond what it checks itself when it is made; its ``provider`` is a copy.

    Raises:
        InvalidInput: it is none that a person may send, its URL leads nowhere, or its ``provider`` is not plain JSON.
    """
    if not isinstance(part, USER_PARTS):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"{where}: expected Text, Image, File, Audio or Quote, got {type(part).__name__}")
    if isinstance(part, (Image, File, Audio)):
        check_url(f"{where}: {type(part).__name__}.url", part.url)
    if isinstance(part, Quote) or not part.provider:
        return part
    return attrs.evolve(part, provider=checks.json_object(f"{where}: provider", part.provider))


def check_url(where: str, url: str) -> None:
    """Check that a server can make something of the URL of a picture, a file or a recording.

    Models get the URL as it stands, so a path, or ``file:``, would name a file of the server's. Other schemes pass: which
    of them a provider reads (``gs:``, for one) is its own business.

    Raises:
        InvalidInput: it is a path, a ``file:`` URL, or incomplete.
    """
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if not colon or len(scheme) < 2 or not SCHEME.fullmatch(scheme) or scheme == "file":
        raise InvalidInput(
            f"{where}: expected an http(s): or data: URL, got {checks.shown(url)}; to send a file, read it and give "
            "'data:image/png;base64,' and base64.b64encode(its bytes).decode(), with its own media type"
        )
    if scheme == "data" and "," not in rest:
        raise InvalidInput(f"{where}: a data: URL is data:MEDIA/TYPE;base64,DATA; there is no comma in it")
    if scheme in ("http", "https") and not rest.removeprefix("//").partition("/")[0]:
        raise InvalidInput(f"{where}: expected a URL with a host, got {checks.shown(url)}")


def text_of(parts: Iterable[Part]) -> str:
    """The visible text of some parts, joined.

    >>> text_of([Reasoning("hm"), Text("a"), Text("b")])
    'ab'
    """
    return "".join(part.text for part in parts if isinstance(part, (Text, Refusal)))
