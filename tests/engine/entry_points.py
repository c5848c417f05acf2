"""Everything public that takes a value, found by looking: a new name is among it without anybody adding it."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import attrs

from tests.engine.nasty import hints
from turnstate import Agent, Allow, Client, Engine, MemoryStore, Session, SessionFilter, SessionHandle, Text
from turnstate.middleware.base import CommandContext, StepContext, TurnContext
from turnstate.policy import Rule
from turnstate.testing import ScriptedModel
from turnstate_states.events import EventBase

__all__ = ["READ", "REQUIRED", "Entry", "constructors", "methods", "required"]

MODULES = ("", ".models", ".tools", ".middleware", ".policy", ".stores", ".testing")

READ: Mapping[str, str] = {
    "CallDisplay Call Failure Grant Message MessageDisplay MessageView Receipt Result": "read, not made",
    "SessionInfo SessionPage ThreadView Usage": "read, not made; what is counted is checked where it is given",
    "Session SessionHandle Turn CrashRun Crashes": "made by an engine, a client or a function",
    "CommandContext PolicyContext StepContext ToolContext TurnContext ModelRequest": "made by the engine",
    "Cursor InboxItem Listing Owner StoredCommit StoredRow StoredSession": "given to stores by the engine",
    "ToolSet ScriptedCall": "made by Agent and call()",
    "Middleware Model Policy Store": "base classes without parameters",
    "SessionFilter": "keywords of sessions()",
    "tool": "hands everything to Tool",
}
"""Public names that nobody makes from values of his own, with the reason."""

INTERNAL = frozenset(
    {
        *(
            "below",
            "answered",
            "call_ends",
            "forget_below",
            "drive",
            "driven",
            "forget",
            "start",
            "deps_for",
        ),  # the engine's
        *("set_reply", "effects"),  # the engine calls them
        "serve",  # it has tests of its own, since it does not return
    }
)
"""Methods without an underscore that only other parts of the package call."""


class Entry(NamedTuple):
    """A function or a class with one parameter to be given values."""

    name: str
    call: Callable[..., Any]
    parameter: inspect.Parameter
    hint: Any
    others: tuple[inspect.Parameter, ...]

    def __str__(self) -> str:
        return f"{self.name}-{self.parameter.name}"

    def arguments(self, value: Any, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with this value, and what is required besides."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in (*self.others, self.parameter):
            found = value if parameter is self.parameter else given[parameter.name]
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                positional.append(found)
            else:
                named[parameter.name] = found
        return positional, named


async def _double(a: int) -> int:
    return 2 * a


REQUIRED: Mapping[str, Callable[[], Any]] = {
    "agent": lambda: Agent(ScriptedModel([])),
    "body": lambda: {"messages": []},
    "call": lambda: "m1.0#0",
    "calls": lambda: "m2.0#0",
    "condition": lambda: "a*",
    "content": lambda: "words",
    "data": lambda: b'{"messages": []}',
    "directories": lambda: "/srv",
    "description": lambda: "Do it.",
    "feedback": lambda: "again",
    "function": lambda: _double,
    "id": lambda: "any",
    "labels": lambda: {"a": "b"},
    "message": lambda: "m1",
    "metadata": lambda: {"a": 1},
    "model": lambda: ScriptedModel(["x"]),
    "name": lambda: "any",
    "parameters": lambda: {"type": "object"},
    "parts": lambda: (Text("x"),),
    "path": lambda: pathlib.Path(tempfile.gettempdir()) / "never-opened.db",
    "reason": lambda: "enough",
    "sandbox": lambda: "none",
    "script": lambda: ["x"],
    "session": lambda: "s",
    "store": MemoryStore,
    "summary": lambda: "what was said",
    "target": lambda: "any",
    "text": lambda: "words",
    "title": lambda: "words",
    "tool": lambda: "any",
    "high": lambda: 2,
    "hosts": lambda: "example.com",
    "low": lambda: 1,
    "patterns": lambda: "ls",
    "values": lambda: 1,
    "grant": lambda: "g1",
    "url": lambda: "https://example.org/a.png",
    "usage": lambda: attrs.NOTHING,
    "verdict": lambda: Allow(),
    "window": lambda: 100_000,
    "rules": lambda: Rule("*", Allow()),
    "models": lambda: ScriptedModel(["x"]),
}
"""A value that works for each parameter that must be given, by its name."""


def required(entry: Entry) -> dict[str, Any]:
    """Values for the other parameters that must be given."""
    return {parameter.name: REQUIRED[parameter.name]() for parameter in entry.others}


def _entries(name: str, call: Callable[..., Any], also: tuple[str, ...] = ()) -> Iterator[Entry]:
    parameters = [one for one in inspect.signature(call).parameters.values() if one.name != "self"]
    known = hints(call)
    needed = [one for one in parameters if _needed(one) or one.name in also or one.kind is one.VAR_POSITIONAL]
    for one in parameters:
        if one.kind is one.VAR_KEYWORD:
            continue
        others = tuple(other for other in needed if other is not one)
        yield Entry(name, call, one, known.get(one.name, Any), others)


def _needed(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def constructors() -> list[Entry]:
    """The parameters of every public class and function."""
    exempt = {name for names in READ for name in names.split()}
    found: list[Entry] = []
    seen: set[int] = set()
    for module in map(importlib.import_module, (f"turnstate{name}" for name in MODULES)):
        for name in (
            *cast("list[str]", vars(module)["__all__"]),
            *(["Text"] if module.__name__ == "turnstate" else []),
        ):
            made: Any = getattr(module, name)
            wanted = inspect.isfunction(made) or (
                inspect.isclass(made) and not issubclass(made, (Exception, EventBase))
            )
            if not wanted or name in exempt or id(made) in seen:
                continue
            seen.add(id(made))
            found += _entries(name, made, ("sandbox",) if name == "shell" else ())
    return found


HOLDERS = (Session, SessionHandle, Engine, Client, StepContext, TurnContext, CommandContext)


def methods() -> list[Entry]:
    """The parameters of every public method of what a host holds; ``call`` is the plain function."""
    found: list[Entry] = []
    for holder in HOLDERS:
        for name, method in inspect.getmembers(holder, inspect.isfunction):
            if not name.startswith("_") and name not in INTERNAL:
                found += _entries(f"{holder.__name__}.{name}", method)
                if any(one.kind is one.VAR_KEYWORD for one in inspect.signature(method).parameters.values()):
                    found += _of_filter(f"{holder.__name__}.{name}", method)
    return found


def _of_filter(name: str, method: Callable[..., Any]) -> Iterator[Entry]:
    """The keywords of a list of sessions."""
    import typing

    for key, hint in typing.get_type_hints(SessionFilter).items():
        yield Entry(name, method, inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY), hint, ())
