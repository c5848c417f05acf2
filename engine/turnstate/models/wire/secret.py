"""A holder for what must not be shown or written down: API keys, headers, URLs with a password."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar, cast

__all__ = ["Secret"]

T = TypeVar("T")


class Secret(Generic[T]):
    """Holds a value that ``reveal()`` alone gives back.

    Its repr, ``vars()`` and ``attrs.asdict`` of what holds it do not show the value, a copy is the secret itself, and it
    cannot be pickled: a pickle is a file or a message that somebody else reads.

    >>> Secret("sk-1"), Secret("sk-1").reveal()
    (Secret('***'), 'sk-1')
    """

    __slots__ = ("reveal",)

    def __init__(self, value: T) -> None:
        # In a closure and not an attribute: tools that walk over objects (error trackers, debuggers) do not look there.
        self.reveal: Callable[[], T] = lambda: value

    def __repr__(self) -> str:
        return "Secret('***')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.reveal() == cast("Secret[object]", other).reveal()

    def __hash__(self) -> int:
        return hash(self.reveal())

    def __copy__(self) -> Secret[T]:
        return self

    def __deepcopy__(self, memo: dict[int, Any], /) -> Secret[T]:
        return self

    def __reduce_ex__(self, protocol: object, /) -> NoReturn:
        raise TypeError("a secret cannot be pickled; make what holds it again where it is needed")
