"""Unknown keyword arguments, named as Python names them, with the option that was probably meant."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["check_names", "check_options"]


def check_options(caller: str, options: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Refuse options that ``function``, to which ``caller`` hands them on, does not take.

    Raises:
        TypeError: as Python's own for an unknown keyword argument; it names the caller and the nearest option.
    """
    parameters = inspect.signature(function).parameters.values()
    check_names(caller, options, [found.name for found in parameters if found.kind is found.KEYWORD_ONLY])


def check_names(caller: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """The same for the names of options."""
    names = list(known)
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            meant = f". Did you mean {near[0]!r}?" if near else f"; it takes {', '.join(names)}"
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}{meant}")
