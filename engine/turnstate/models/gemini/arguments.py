"""Arguments of a call that come in pieces, each with the JSON Path of where it belongs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from turnstate_states.errors import ModelError

from ..wire.json_values import as_dict, as_list, is_dict, is_list, misfit
from ..wire.redaction import foreign

__all__ = ["PartialArguments"]

MAX_GAP = 1000
"""How many places of lists may be skipped in all."""

MAX_DEPTH = 100
"""How deep a piece may belong."""

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""", re.DOTALL)


class PartialArguments:
    """Puts pieces together: texts for one place are joined while it goes on, everything else is set.

    >>> arguments = PartialArguments({})
    >>> arguments.feed([{"jsonPath": "$.a[0].b", "stringValue": "x", "willContinue": True}])
    >>> arguments.feed([{"jsonPath": "$.a[0].b", "stringValue": "y"}, {"jsonPath": "$.n", "numberValue": 2}])
    >>> arguments.value
    {'a': [{'b': 'xy'}], 'n': 2}
    """

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value
        self._gap = 0
        self._texts: dict[str, tuple[list[Any] | dict[str, Any], str | int, list[str]]] = {}

    def feed(self, pieces: object) -> None:
        """Take the pieces of one fragment.

        Raises:
            ModelError: a piece does not make sense.
        """
        for piece in as_list(pieces, "partialArgs"):
            self._piece(as_dict(piece, "a partial argument"))

    def close(self) -> dict[str, Any]:
        """The arguments, all texts joined."""
        for path in tuple(self._texts):
            self._join(path)
        return self.value

    def _piece(self, piece: Mapping[str, Any]) -> None:
        path = piece.get("jsonPath")
        if not isinstance(path, str):
            raise misfit("jsonPath", path)
        text, going = piece.get("stringValue"), self._texts.get(path)
        if going is not None and isinstance(text, str):
            going[2].append(text)
        else:
            value = _value(piece)
            holder, key = self._place(path)
            self._set(holder, key, value, path)
            if isinstance(value, str):
                self._texts[path] = (holder, key, [value])
        if not piece.get("willContinue"):
            self._join(path)

    def _set(self, holder: list[Any] | dict[str, Any], step: str | int, value: Any, path: str) -> None:
        """Set a value. All gaps of the arguments count together, or short pieces would make long lists."""
        if isinstance(step, int):
            self._gap += max(0, step - len(holder))
            if self._gap > MAX_GAP:
                raise _nonsense(path)
        _put(holder, step, value)

    def _join(self, path: str) -> None:
        if (going := self._texts.pop(path, None)) is not None:
            holder, key, texts = going
            if len(texts) > 1:
                _put(holder, key, "".join(texts))

    def _place(self, path: str) -> tuple[list[Any] | dict[str, Any], str | int]:
        steps = _steps(path)
        holder: list[Any] | dict[str, Any] = self.value
        for step, following in pairwise(steps):
            inner: Any = _get(holder, step, path)
            if inner is None:
                inner = _empty(following)
                self._set(holder, step, inner, path)
            if not (is_dict(inner) or is_list(inner)):
                raise _nonsense(path)
            holder = inner
        _get(holder, steps[-1], path)
        return holder, steps[-1]


def _empty(key: str | int) -> Any:
    return [] if isinstance(key, int) else {}


def _value(piece: Mapping[str, Any]) -> Any:
    for name in ("stringValue", "numberValue", "boolValue"):
        value = piece.get(name)
        if isinstance(value, (str, int, float)):
            return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
    return None


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    place = 1 if path[:1] == "$" else -1
    while 0 < place < len(path) and len(steps) < MAX_DEPTH:
        match = _STEP.match(path, place)
        if match is None:
            break
        name, index, *quoted = match.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(name if name is not None else _unquoted(quoted[0] if quoted[0] is not None else quoted[1]))
        place = match.end()
    if not steps or place < len(path):
        raise _nonsense(path)
    return steps


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def _get(holder: list[Any] | dict[str, Any], step: str | int, path: str) -> Any:
    if isinstance(holder, dict) and isinstance(step, str):
        return holder.get(step)
    if isinstance(holder, list) and isinstance(step, int) and step <= len(holder) + MAX_GAP:
        return holder[step] if step < len(holder) else None
    raise _nonsense(path)


def _put(holder: list[Any] | dict[str, Any], step: str | int, value: Any) -> None:
    if isinstance(holder, dict):
        holder[str(step)] = value
    elif isinstance(step, int):
        holder.extend([None] * (step + 1 - len(holder)))
        holder[step] = value


def _nonsense(path: str) -> ModelError:
    text = f"the server sent an argument for a place that cannot be: {foreign(path, 80)}"
    return ModelError(text, kind="protocol", retryable=True)
