"""What a question about a call is about: an answer holds for exactly that.

An id names a call, and a name can come to mean something else while a person thinks: after a deploy the tool is another
function, the session was deleted and made anew, the message before was edited. So a question carries a digest over
everything that was shown, and an answer the digest of the question that it is for. What differs is refused as stale, or
asked again, and the new question says what changed.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import attrs

from .arguments import canonical_values
from .errors import InvalidInput
from .rules import Kind, OnCrash, ToolSpec
from .turn import Call, Permissions, Subject

__all__ = ["arguments_digest", "canonical_arguments", "changes", "definition", "digest_of", "subject_of"]

NOTHING = Permissions()


def _hash(parts: Sequence[str], digits: int) -> str:
    text = "\0".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


@functools.lru_cache(maxsize=4096)
def _definition(name: str, kind: Kind, schema: str, on_crash: OnCrash, version: str) -> str:
    return _hash((name, kind, schema, on_crash, version), 16)


def definition(spec: ToolSpec) -> str:
    """What stands for a tool as it is declared: name, kind, schema, crash rule and version, as 16 hexadecimal digits."""
    return _definition(spec.name, spec.kind, spec.schema, spec.on_crash, spec.version)


def subject_of(call: Call, spec: ToolSpec) -> Subject:
    """What a question about this call is about."""
    permissions = call.permissions or NOTHING
    reach = () if permissions == NOTHING else (str(permissions.network), *permissions.write)
    return Subject(
        spec.kind,
        spec.schema,
        spec.on_crash,
        spec.version,
        arguments_digest(call),
        _hash(reach, 16) if reach else "",
    )


def arguments_digest(call: Call) -> str:
    """What stands for the arguments in force, as 16 hexadecimal digits."""
    return _hash((canonical_arguments(call),), 16)


def canonical_arguments(call: Call) -> str:
    """The arguments in force in one form; those that cannot be read as they are written."""
    try:
        return canonical_values(call.arguments)
    except InvalidInput:
        return call.arguments_json


def digest_of(life: str, call: Call, subject: Subject) -> str:
    """What stands for a question, as 32 hexadecimal digits: the session's life, the call and what is asked about it."""
    return _hash((life, call.id, call.tool, *attrs.astuple(subject)), 32)


def changes(before: Subject | None, now: Subject) -> tuple[str, ...]:
    """What is different from what was asked before, as names of :class:`~turnstate.states.Subject`'s fields.

    >>> changes(Subject("plain", version="1"), Subject("plain", version="2"))
    ('version',)
    """
    if before is None:
        return ()
    names = [field.name for field in attrs.fields(Subject)]
    return tuple(name for name in names if getattr(before, name) != getattr(now, name))
