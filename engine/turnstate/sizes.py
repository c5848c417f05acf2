"""How large what people and clients send may be; the same for engines and clients, before anything is stored.

Everything that is sent is kept in the session's log and goes through memory whole, so there is a size that no message of
a person has, above which it is refused and not stored.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnstate_states.content import Audio, File, Image, Part, ToolCall, ToolResult
from turnstate_states.errors import InvalidInput
from turnstate_states.submissions import Submission
from turnstate_states.thread import Thread, read_thread

__all__ = ["MAX_IMPORT", "MAX_TEXT", "MAX_WITH_MEDIA", "check_encoded", "check_parts", "read_import"]

MB = 1024 * 1024
MAX_TEXT = 8 * MB
"""Bytes that a submission may have as JSON, ``data:`` URLs of media aside."""

MAX_WITH_MEDIA = 64 * MB
"""Bytes that a submission may have as JSON in all."""

MAX_IMPORT = 512 * MB
"""Bytes that an exported thread may have."""


def check_parts(what: str, parts: Iterable[Part]) -> int:
    """Look at the size of a message's parts, at little cost.

    Returns:
        The bytes of its media.

    Raises:
        InvalidInput: they are too large.
    """
    text = media = 0
    for part in parts:
        if isinstance(part, (Image, File, Audio)):
            media += len(part.url)
        elif isinstance(part, ToolCall):
            text += len(part.arguments)
        else:
            text += len(part.text)
            media += sum(len(image.url) for image in part.images) if isinstance(part, ToolResult) else 0
    _check(what, text, text + media)
    return media


def check_encoded(submission: Submission, encoded: bytes, media: int) -> None:
    """Look at the size of a submission as it would be stored.

    Raises:
        InvalidInput: it is too large.
    """
    _check(submission.tag, len(encoded) - media, len(encoded))


def _check(what: str, text: int, size: int) -> None:
    if text > MAX_TEXT:
        raise InvalidInput(
            f"{what}: it has {text / MB:.1f} MB besides media, and at most {MAX_TEXT // MB} are taken; put what is long into "
            "a file or a store of your own that a tool reads"
        )
    if size > MAX_WITH_MEDIA:
        raise InvalidInput(
            f"{what}: it has {size / MB:.1f} MB with its media, and at most {MAX_WITH_MEDIA // MB} are taken; send an "
            "http(s) URL of what is large"
        )


def read_import(data: bytes) -> Thread:
    """An exported thread, held to the sizes that what is sent has; it takes a while, so run it in a thread.

    Raises:
        InvalidInput: it is too large, or no such thread.
    """
    if len(data) > MAX_IMPORT:
        raise InvalidInput(f"thread: it has {len(data) / MB:.1f} MB, and at most {MAX_IMPORT // MB} are taken")
    thread = read_thread(data)
    for message in thread.messages:
        check_parts(f"message {message.id}", message.parts)
    return thread
