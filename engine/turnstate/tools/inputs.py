"""The parameters of a function as a JSON Schema, a strict decoder, and keyword arguments."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from turnstate_states.arguments import CUT_OFF, filled_in, read_arguments
from turnstate_states.errors import InvalidInput
from turnstate_states.rules import Bound

from .context import ToolContext
from .declaring import body_of, check_returns
from .metadata import with_metadata

__all__ = ["Inputs", "hints_of", "is_context", "split_doc"]


class Inputs:
    """The parameters of a function as a schema, a decoder and a way to call it."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        hints = hints_of(name, function)
        check_returns(name, hints.get("return"))
        self._context = ""
        self._names: list[str] = []
        fields: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            if is_context(hints.get(parameter.name)):
                self._context = parameter.name
                continue
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise InvalidInput(
                    f"tool {name}: parameter {parameter.name}: only parameters with a name can be filled in"
                )
            self._names.append(parameter.name)
            kind = with_metadata(hints.get(parameter.name, Any))
            required = parameter.default is parameter.empty
            fields.append((parameter.name, kind) if required else (parameter.name, kind, _default(parameter.default)))
        try:
            self._struct = msgspec.defstruct(name.replace("-", "_"), fields, kw_only=True, forbid_unknown_fields=True)
        except TypeError as error:
            raise InvalidInput(f"tool {name}: a parameter has a type that JSON cannot give: {error}") from None

    @property
    def names(self) -> list[str]:
        """The parameters that a model fills in."""
        return list(self._names)

    def decode(self, arguments: str) -> Any:
        """The values of the parameters, from what the one reader of arguments reads."""
        return self._convert(read_arguments(arguments))

    def _convert(self, values: dict[str, Any]) -> Any:
        return msgspec.convert(values, self._struct, str_keys=True)

    def hold(self, arguments: str) -> Bound:
        """A call's arguments held against the parameters: what is wrong, in words for the model, or what is filled in."""
        try:
            given = read_arguments(arguments)
            bound = msgspec.to_builtins(self._convert(given), str_keys=True)
            return Bound(filled=filled_in(given, bound))
        except InvalidInput as error:
            text = str(error)
            return Bound(text if text == CUT_OFF else f"bad arguments for {self._name}: {text}")
        except (msgspec.ValidationError, ValueError, OverflowError, RecursionError) as error:
            return Bound(f"bad arguments for {self._name}: {error}")

    @staticmethod
    def digest(schema: Mapping[str, Any]) -> str:
        """What stands for the parameters with their defaults, as 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:16]

    def bind(self, values: Any, context: ToolContext[Any]) -> dict[str, Any]:
        bound = {name: getattr(values, name) for name in self._names}
        if self._context:
            bound[self._context] = context
        return bound

    def schema(self, about: Mapping[str, str]) -> dict[str, Any]:
        try:
            (_,), components = msgspec.json.schema_components([self._struct], ref_template="#/$defs/{name}")
        except TypeError as error:
            raise InvalidInput(f"tool {self._name}: a parameter has no JSON Schema: {error}") from None
        schema: dict[str, Any] = components.pop(self._struct.__name__)
        schema.pop("title", None)
        for name, text in about.items():
            if name in schema["properties"]:
                schema["properties"][name].setdefault("description", text)
        return schema | ({"$defs": components} if components else {})


def _default(value: Any) -> Any:
    if isinstance(value, (list, dict, set)):
        return msgspec.field(default_factory=functools.partial(copy.copy, cast(Any, value)))
    return value


def hints_of(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    target: Any = body_of(inspect.unwrap(function))
    names = getattr(getattr(target, "__code__", None), "co_freevars", ())
    cells = getattr(target, "__closure__", None) or ()
    local: dict[str, Any] = {
        free: cell.cell_contents for free, cell in zip(names, cells, strict=False) if _filled(cell)
    }
    try:
        return typing.get_type_hints(target, localns=local, include_extras=True)
    except NameError as error:
        raise InvalidInput(
            f"tool {name}: an annotation cannot be resolved ({error}); define its type at module level"
        ) from None
    except Exception as error:
        raise InvalidInput(f"tool {name}: its annotations cannot be read: {type(error).__name__}: {error}") from None


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def is_context(hint: Any) -> bool:
    return hint is ToolContext or typing.get_origin(hint) is ToolContext


def split_doc(doc: str) -> tuple[str, dict[str, str]]:
    """A docstring's text, and what its ``Args:`` section says of each parameter."""
    text, _, rest = doc.partition("\nArgs:\n")
    about: dict[str, str] = {}
    name = ""
    for line in rest.split("\n"):
        found = re.match(r"    (\w+)(?: \([^)]*\))?: (.*)", line)
        if found:
            name, about[found[1]] = found[1], found[2].strip()
        elif line.startswith("      ") and name:
            about[name] += " " + line.strip()
        elif line.strip():
            break
    return text.strip(), about
