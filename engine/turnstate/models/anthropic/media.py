"""Pictures and files as blocks of Anthropic Messages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from turnstate_states.content import Audio, File, Image, clean_text

from . import PROTOCOL

__all__ = ["media_block"]

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_TEXTS = ("application/json", "application/xml", "application/x-yaml", "application/yaml", "application/javascript")


def media_block(part: Image | File | Audio) -> dict[str, Any]:
    """A block for something that is no text; what the API does not take becomes a note, so that the model knows of it.

    Fields that the part's ``provider`` has for this protocol (a ``source`` with a ``file_id``, ``citations``, ...) come
    before the others.
    """
    given = part.provider.get(PROTOCOL)
    own = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {}
    kind = "image" if isinstance(part, Image) else "document"
    if "source" in own:
        return {"type": kind, **own}
    block = None if isinstance(part, Audio) else _image(part) if isinstance(part, Image) else _document(part)
    return _note(part) if block is None else {**block, **own}


def _image(part: Image) -> dict[str, Any] | None:
    if not part.url.startswith("data:"):
        return _remote("image", part.url)
    media, data = _data(part.url)
    media = (part.media_type or media).lower().replace("image/jpg", "image/jpeg")
    if media not in _IMAGES or not data:
        return None
    return {"type": "image", "source": _base64(media, data)}


def _document(part: File) -> dict[str, Any] | None:
    title = {"title": clean_text(part.name)} if part.name.strip() else {}
    if not part.url.startswith("data:"):
        remote = _remote("document", part.url)
        return {**remote, **title} if remote else None
    media, data = _data(part.url)
    media = (part.media_type or media).lower()
    if not data:
        return None
    if media in _IMAGES:
        return {"type": "image", "source": _base64(media, data)}
    if media == "application/pdf":
        return {"type": "document", "source": _base64(media, data), **title}
    text = data.decode("utf-8", "replace")
    if not (media.startswith("text/") or media in _TEXTS) or not text.strip():
        return None
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **title}


def _remote(kind: str, url: str) -> dict[str, Any] | None:
    return {"type": kind, "source": {"type": "url", "url": url}} if url.startswith(("http:", "https:")) else None


def _base64(media: str, data: bytes) -> dict[str, Any]:
    return {"type": "base64", "media_type": media, "data": base64.b64encode(data).decode()}


def _data(url: str) -> tuple[str, bytes]:
    """Media type and content of a ``data:`` URL; no content if it is broken."""
    head, _, body = url[5:].partition(",")
    media, *rest = head.split(";")
    try:
        data = unquote_to_bytes(body)
        return media, base64.b64decode(data) if "base64" in rest else data
    except (binascii.Error, ValueError):
        return media, b""


def _note(part: Image | File | Audio) -> dict[str, Any]:
    what = {Image: "picture", File: "file", Audio: "recording"}[type(part)]
    name = f" {clean_text(part.name)}" if isinstance(part, File) and part.name.strip() else ""
    kind = part.media_type or (part.url[5:].split(";")[0].split(",")[0] if part.url.startswith("data:") else "")
    return {
        "type": "text",
        "text": f"(a {what}{name}{f' of type {clean_text(kind)}' if kind else ''} that cannot be shown)",
    }
