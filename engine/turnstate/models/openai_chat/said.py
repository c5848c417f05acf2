"""What people say, as content of a Chat Completions message. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from turnstate_states.content import File, Image, Part, Text

from ..wire.encoding import EMPTY
from . import PROTOCOL

__all__ = ["Content", "content_of", "said"]

Content = str | list[dict[str, Any]]
"""Text alone as a string, because some servers take nothing else; otherwise a list of blocks."""

_json = msgspec.json.Encoder()


def content_of(parts: Iterable[Part]) -> Content:
    """The content of a message with these parts."""
    shown = [
        part for part in parts if isinstance(part, (Image, File)) or (isinstance(part, Text) and part.text.strip())
    ]
    texts = [part.text for part in shown if isinstance(part, Text)]
    if len(texts) == len(shown):
        return "\n".join(texts) or EMPTY
    return [_block(part) for part in shown]


def _block(part: Text | Image | File) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(url):
            return {"type": "image_url", "image_url": {"url": url, **part.provider.get(PROTOCOL, {})}}
        case File(url, name):
            return {"type": "file", "file": {"filename": name or "file", "file_data": url}}


def said(contents: Sequence[Content]) -> bytes:
    """One user message with all of these: many chat templates refuse two in a row.

    >>> said(["a", "b"])
    b'{"role":"user","content":"a\\\\n\\\\nb"}'
    """
    telling = [content for content in contents if content != EMPTY] or [EMPTY]
    texts = [content for content in telling if isinstance(content, str)]
    joined: Content = "\n\n".join(texts)
    if len(texts) < len(telling):
        joined = [
            block
            for content in telling
            for block in ([{"type": "text", "text": content}] if isinstance(content, str) else content)
        ]
    return _json.encode({"role": "user", "content": joined})
