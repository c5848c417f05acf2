"""Recorded answers of real servers beside what the provider's own SDK made of them, in a folder outside the project."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.needs import SHARED

_FOLDER = os.environ.get(SHARED, "")


def folder(protocol: str) -> Path:
    """Where the answers of a protocol are."""
    return Path(_FOLDER) / "fixtures" / protocol


def streams(protocol: str) -> list[Path]:
    """The answers that were streamed; none without the folder."""
    return sorted(folder(protocol).glob("*.sse")) if _FOLDER else []


def answers(protocol: str) -> list[Path]:
    """All answers; none without the folder."""
    return streams(protocol) + (sorted(folder(protocol).glob("*.body")) if _FOLDER else [])


def load(file: Path, what: str) -> dict[str, Any]:
    """What is known of an answer: ``json``, how it was recorded, or ``expected.json``, what the SDK made of it."""
    found: dict[str, Any] = json.loads(file.with_name(f"{file.stem}.{what}").read_text())
    return found


def ways(data: bytes, spread: int = 60, small: int = 6000) -> list[list[bytes]]:
    """A body whole, in lines, cut in two at ``spread`` places and, if it is ``small``, byte by byte."""
    found = [[data], data.splitlines(keepends=True)]
    found += [[data[:place], data[place:]] for place in range(1, len(data), max(1, len(data) // spread))]
    if len(data) < small:
        found.append([data[place : place + 1] for place in range(len(data))])
    return found


def events_of(file: Path) -> list[bytes]:
    """The events of a stream, line ends as LF."""
    return file.read_bytes().replace(b"\r\n", b"\n").split(b"\n\n")


def beginnings(events: list[bytes], numbers: Iterable[int]) -> Iterator[bytes]:
    """The stream cut before each of these events, and in the middle of it."""
    for number in numbers:
        before = b"".join(event + b"\n\n" for event in events[:number])
        yield before
        yield before + events[number][: len(events[number]) // 2]
