"""Answers of a type: the schema that the model is asked for, and the value that its text holds."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from turnstate_states.errors import InvalidInput, ModelError

from .failures import describe

__all__ = ["OutputType"]

T = TypeVar("T")
WRAPPED = "value"
"""The one field of the object in which a value that is no object travels: providers want an object."""


class OutputType(Generic[T]):
    """A type that an answer is to have: anything that msgspec can decode from JSON.

    Raises:
        InvalidInput: JSON cannot give this type.

    >>> number = OutputType(int)
    >>> number.schema["properties"]
    {'value': {'type': 'integer'}}
    >>> number.parse('{"value": 4}')
    4
    """

    def __init__(self, kind: type[T]) -> None:
        self.name: str = kind.__name__ if isinstance(kind, type) else "the type of the answer"  # pyright: ignore[reportUnnecessaryIsInstance]
        try:
            schema = msgspec.json.schema(kind)
            self._wrapped = not _is_object(schema)
            shape: Any = msgspec.defstruct("Answer", [(WRAPPED, kind)]) if self._wrapped else kind
            self.schema = _closed(schema if not self._wrapped else msgspec.json.schema(shape))
            self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(shape)
        except Exception as error:  # what is no type fails in many ways
            raise InvalidInput(f"output: {self.name} is not a type that JSON can give: {describe(error)}") from None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a turn that asks for it; each adapter says it in its provider's words."""
        form = {"name": "answer", "schema": self.schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": form}}

    def parse(self, text: str) -> T:
        """The value of an answer.

        Raises:
            ModelError: the text does not hold one; kind ``protocol``.
        """
        try:
            value = self._decoder.decode(_unfenced(text))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ModelError(f"the answer is not {self.name}: {error}", kind="protocol") from error
        result: T = getattr(value, WRAPPED) if self._wrapped else value
        return result


def _is_object(schema: dict[str, Any]) -> bool:
    reference = schema.get("$ref", "").rpartition("/")[2]
    root: dict[str, Any] = schema.get("$defs", {}).get(reference, schema)
    return root.get("type") == "object" and "properties" in root


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its root in place, and no other fields than those that are named: providers want both."""
    schema = dict(schema)
    reference = schema.pop("$ref", "").rpartition("/")[2]
    if reference:
        root = dict(schema["$defs"].pop(reference))
        schema = root | ({"$defs": schema["$defs"]} if schema["$defs"] else {})
    schema.pop("title", None)
    for found in (schema, *schema.get("$defs", {}).values()):
        if found.get("type") == "object" and "properties" in found:
            found["additionalProperties"] = False
    return schema


def _unfenced(text: str) -> str:
    """The text without the fence that some models put around JSON."""
    lines = text.strip().split("\n")
    if len(lines) > 2 and lines[0].startswith("```") and lines[-1] == "```":
        return "\n".join(lines[1:-1])
    return text.strip()
