"""Where the words of a Gemini answer come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from turnstate_states.content import Citation, Part, Text

from ..wire.json_values import is_dict, is_list

__all__ = ["add_citations"]


def add_citations(
    parts: list[Part], grounding: list[Mapping[str, Any]], citations: list[Mapping[str, Any]]
) -> list[Part]:
    """The parts, each text with the sources of its words.

    A source belongs to the text that holds the words it is quoted for; without such words to the last text.
    """
    found = list(dict.fromkeys([*_grounded(grounding), *_cited(citations)]))
    places = [place for place, part in enumerate(parts) if isinstance(part, Text) and part.text]
    if not found or not places:
        return parts
    by_place: dict[int, list[Citation]] = {}
    for citation in found:
        by_place.setdefault(_place(parts, places, citation.quote), []).append(citation)
    return [
        attrs.evolve(part, citations=tuple(by_place[place])) if place in by_place and isinstance(part, Text) else part
        for place, part in enumerate(parts)
    ]


def _place(parts: list[Part], places: list[int], quote: str) -> int:
    for place in places:
        part = parts[place]
        if quote and isinstance(part, Text) and quote in part.text:
            return place
    return places[-1]


def _grounded(grounding: list[Mapping[str, Any]]) -> Iterator[Citation]:
    for data in grounding:
        sources = [_source(chunk) for chunk in _dicts(data, "groundingChunks")]
        used: set[int] = set()
        for support in _dicts(data, "groundingSupports"):
            segment = support.get("segment")
            quote = _text(segment, "text") if is_dict(segment) else ""
            indices = support.get("groundingChunkIndices")
            for index in indices if is_list(indices) else []:
                if isinstance(index, int) and 0 <= index < len(sources) and (source := sources[index]) is not None:
                    used.add(index)
                    yield attrs.evolve(source, quote=quote)
        yield from (source for index, source in enumerate(sources) if source is not None and index not in used)


def _source(chunk: Mapping[str, Any]) -> Citation | None:
    """A chunk holds one object, named by its kind: ``web``, ``retrievedContext``, ``maps``, ``image``."""
    for inner in chunk.values():
        if is_dict(inner):
            title = _text(inner, "title")
            names = ("uri", "sourceUri", "imageUri", "documentName", "fileSearchStore", "placeId")
            source = next(filter(None, (_text(inner, name) for name in names)), title)
            return Citation(source, title) if source else None
    return None


def _cited(citations: list[Mapping[str, Any]]) -> Iterator[Citation]:
    for data in citations:
        for citation in (*_dicts(data, "citations"), *_dicts(data, "citationSources")):
            title = _text(citation, "title")
            if source := _text(citation, "uri") or title:
                yield Citation(source, title)


def _dicts(fields: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value = fields.get(name)
    return [item if is_dict(item) else {} for item in value] if is_list(value) else []


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
