"""What frozen values have in common, written once: making it anew for each class is most of what importing them costs."""

from __future__ import annotations

from typing import Any

import attrs

__all__ = ["Value"]


class Value:
    """A frozen attrs class: equal to another of its class with equal fields; shows what is not as by default."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _names(type(self)))

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in _names(type(self)))))

    def __repr__(self) -> str:
        shown = (_shown(self, field) for field in _fields(type(self)) if field.repr)
        return f"{type(self).__name__}({', '.join(text for text in shown if text)})"


def _fields(kind: type[Any]) -> tuple[attrs.Attribute[Any], ...]:
    return attrs.fields(kind)  # type: ignore[no-any-return]


def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in _fields(kind) if field.eq)


def _shown(value: object, field: attrs.Attribute[Any]) -> str:
    """``name=value``, or nothing for a default."""
    found = getattr(value, field.name)
    default = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return "" if not found else f"{field.name}={found!r}"
    return "" if default is not attrs.NOTHING and found == default else f"{field.name}={found!r}"
