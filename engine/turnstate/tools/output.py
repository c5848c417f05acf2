"""What a tool returned, as the model reads it."""

from __future__ import annotations

import json

from turnstate_states.content import clean_text

__all__ = ["result_text", "shorten"]


def result_text(value: object, limit: int) -> str:
    """What a tool returned, as the model reads it: text as it is, other values as JSON, cut to ``limit`` bytes.

    Raises:
        TypeError: it is not JSON; the text names the type.
    """
    if isinstance(value, str):
        return shorten(clean_text(value), limit)
    import msgspec

    try:
        data = msgspec.to_builtins(value, str_keys=True)
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise TypeError(f"the tool returned {type(value).__name__}, which is not JSON ({error})") from None
    return shorten(clean_text(text), limit)


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
