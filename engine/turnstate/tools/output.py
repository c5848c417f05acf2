"""What a tool returned, as the model reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from turnstate_states import checks
from turnstate_states.content import Image, check_url, clean_text
from turnstate_states.errors import ToolError
from turnstate_states.values import Value

from ..failures import OwnWords

__all__ = ["Output", "as_output", "result_text", "shorten"]


MOST_KEPT = 8 * 1024 * 1024
"""Characters of JSON that the value and the artifact of a result may each have."""


def _images(images: Iterable[Image]) -> tuple[Image, ...]:
    given = checks.array("Output.images", list(images) if isinstance(images, Iterator) else images, Image, "Image")
    for place, image in enumerate(given):
        check_url(f"Output.images[{place}]", image.url)
    return given


@attrs.frozen(eq=False, repr=False)
class Output(Value):
    """What a tool may return where model and person are to see different things.

    Args:
        value: the result, as JSON; see :func:`~turnstate.tool` for what becomes JSON.
        text: what the model reads in its place; by default the value itself.
        images: what the model sees besides.
        artifact: plain JSON for user interfaces; no model sees it.

    Raises:
        InvalidInput: ``text`` is no text, or ``images`` are not :class:`~turnstate.Image` objects with URLs that a server
            can open.
    """

    value: Any = None
    text: str | None = attrs.field(default=None, validator=checks.validator(checks.optional_text))
    images: tuple[Image, ...] = attrs.field(default=(), converter=_images)
    artifact: Any = None


BYTES = (bytes, bytearray, memoryview)


def as_output(value: object, limit: int) -> tuple[str, dict[str, Any]]:
    """What a tool returned: the text for the model, and the other fields of a report.

    Raises:
        TypeError: something in it is not JSON; the text names the type.
        ToolError: its value or artifact is too large to be kept.
    """
    if not isinstance(value, Output):
        return _with_kind(value, limit)
    text, more = _with_kind(value.value if value.text is None else value.text, limit)
    kept = None if value.text is None else _plain(value.value)
    return text, {"images": value.images, "value": kept, "artifact": _plain(value.artifact), **more}


def _with_kind(value: object, limit: int) -> tuple[str, dict[str, Any]]:
    """The text for the model, and that it is JSON where it is: not text of the tool's own, and not cut."""
    if isinstance(value, str):
        return result_text(value, limit), {}
    whole = _json_text(value)
    text = shorten(clean_text(whole), limit)
    return text, {"json": True} if text == whole else {}


def _plain(value: Any) -> Any:
    """A value as plain JSON data, which is stored whole and so must not be too large."""
    if value is None:
        return None
    text = _json_text(value)
    if len(text) > MOST_KEPT:
        raise ToolError(
            f"the tool's value or artifact has {len(text)} characters, and at most {MOST_KEPT} are kept; "
            "it may have taken effect"
        )
    return json.loads(text)


def result_text(value: object, limit: int) -> str:
    """What a tool returned, as the model reads it: text as it is, other values as JSON, cut to ``limit`` bytes.

    Raises:
        TypeError: it is not JSON; the text names the type.
    """
    return shorten(clean_text(value if isinstance(value, str) else _json_text(value)), limit)


def _json_text(value: object) -> str:
    import msgspec

    try:
        # Bytes would become base64, which no model reads and which nobody asked for.
        data = msgspec.to_builtins(value, str_keys=True, builtin_types=BYTES)
        return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        advice = (
            "; return text (bytes.decode()), or a picture in Output(images=...)"
            if any(kind.__name__ in str(error) for kind in BYTES)
            else ""
        )
        raise OwnWords(f"the tool returned {type(value).__name__}, which is not JSON ({error}){advice}") from None


def shorten(text: str, limit: int) -> str:
    """Text of at most about ``limit`` bytes, its head and tail kept.

    >>> shorten("a" * 50 + "z" * 50, 20)
    'aaaaaaaaaa…80 characters left out…zzzzzzzzzz'
    """
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    half = limit // 2
    head = data[:half].decode(errors="ignore")
    tail = data[-half:].decode(errors="ignore")
    return f"{head}…{len(text) - len(head) - len(tail)} characters left out…{tail}"
