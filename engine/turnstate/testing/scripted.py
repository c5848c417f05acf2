"""A model that says what you wrote down."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs
import trio

from turnstate_states import checks
from turnstate_states.content import Part, Text, ToolCall
from turnstate_states.errors import InvalidInput, ModelError
from turnstate_states.transcript import Usage
from turnstate_states.turn import Stop

from ..models.base import Model, ModelRequest, OnDelta, Reply
from ..tools.declaring import is_async

__all__ = ["ScriptedCall", "ScriptedModel", "call"]


@attrs.frozen
class ScriptedCall:
    """A tool call in a script; see :func:`call`."""

    tool: str
    arguments: str


def call(tool: str, /, **arguments: Any) -> ScriptedCall:
    """A tool call for a script.

    >>> call("add", a=1)
    ScriptedCall(tool='add', arguments='{"a": 1}')
    """
    return ScriptedCall(checks.text("tool", tool), json.dumps(checks.json_object("arguments", arguments)))


Line = str | ScriptedCall | Reply | Exception | Iterable["str | ScriptedCall"]
"""One reply: text, a call, several of them, a whole Reply, or an exception to raise."""
Script = Iterable[Line] | Callable[[ModelRequest], Line]
S = TypeVar("S", bound="ScriptedModel")
L = TypeVar("L")


class ScriptUsedUp(ModelError, AssertionError):
    """A script has no reply any more. It is a model's error, so that who runs a test reads its text."""


class ScriptedModel(Model):
    """A model for tests and demos.

    Args:
        script: the replies in order, or a function from the request to the reply. A string is text, :func:`call` a tool
            call, a list several of both, a :class:`~turnstate.Reply` is given as it is, an exception is raised.
        delay: seconds before each reply and between its pieces.

    ``requests`` are those that it was sent. A script that is used up raises :class:`AssertionError`, which fails the turn.

    Text is streamed word by word.
    """

    def __init__(self, script: Script, *, name: str = "scripted", delay: float = 0.0) -> None:
        self.name = checks.text("name", name)
        self.delay = checks.finite("delay", delay, least=0, expected="seconds")
        self.requests: list[ModelRequest] = []
        self._lines: list[Line] = lines_of(script, _kept)
        self._function = script if callable(script) else None
        self._place = 0
        self._repeats = False
        self._step = ""

    def fresh(self: S) -> S:
        """A model that says the same from the beginning, with no requests yet.

        :func:`~turnstate.testing.crashes` uses one in each round. It lives through crashes: a request of a step that it
        replied to already gets that reply again.
        """
        other = copy.copy(self)
        other.requests, other._place, other._repeats, other._step = [], 0, True, ""
        return other

    def shown(self, request: int = -1) -> list[tuple[str, str]]:
        """Role and text of each message that a request showed; by default the last one.

        Raises:
            AssertionError: there was no such request.
        """
        try:
            return [(message.role, message.text) for message in self.requests[request].messages]
        except IndexError:
            raise AssertionError(f"there is no request {request}; there were {len(self.requests)}") from None

    def _next(self, request: ModelRequest) -> Line:
        if self._function is not None:
            return _kept(self._function(request))
        step = request.attempt.rpartition(".")[0]
        if self._repeats and self._step == step and not isinstance(self._lines[self._place - 1], Exception):
            return self._lines[self._place - 1]
        if self._place == len(self._lines):
            raise ScriptUsedUp(f"the script has no reply for request {len(self.requests)}")
        self._place += 1
        self._step = step
        return self._lines[self._place - 1]

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        self.requests.append(request)
        await trio.sleep(self.delay)
        line = self._next(request)
        if isinstance(line, Exception):
            raise line
        if isinstance(line, Reply):
            await self._stream(line.parts, on_delta)
            return line
        parts = tuple(_part(item) for item in ([line] if isinstance(line, (str, ScriptedCall)) else line))
        await self._stream(parts, on_delta)
        stop: Stop = "tool-calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"
        return Reply(parts, stop, usage=_usage(request, parts), model=self.name)

    async def _stream(self, parts: Iterable[Part], on_delta: OnDelta) -> None:
        slot = 0
        for part in parts:
            if isinstance(part, Text):
                for piece in re.findall(r"\s*\S+|\s+$", part.text):
                    on_delta("text", piece, 0)
                    if self.delay:
                        await trio.sleep(self.delay)
            elif isinstance(part, ToolCall):
                on_delta("call", part.name, slot)
                on_delta("arguments", part.arguments, slot)
                slot += 1


def lines_of(script: Iterable[L] | Callable[..., L], keep: Callable[[L], L]) -> list[L]:
    """The lines of a script, each checked and kept; none of a function, which must be a plain one."""
    if callable(script):
        if is_async(script):
            raise InvalidInput("script: expected a list of replies or a plain function, got an async one")
        return []
    return [keep(line) for line in checks.items("script", script, "a list of replies or a function")]


def _kept(line: Line) -> Line:
    """A line that can be said again, also where an iterator was given."""
    if isinstance(line, (str, ScriptedCall)):
        _part(line)
        return line
    if isinstance(line, (Reply, Exception)):
        return line
    if isinstance(line, (bytes, Mapping)) or not isinstance(line, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"script: expected text, call(...), a Reply or an exception, got {checks.shown(line)}")  # pyright: ignore[reportUnknownArgumentType]
    items = tuple(checks.items("script", line, "text, calls"))
    for item in items:
        _part(item)
    return items


def _part(item: object) -> Part:
    if isinstance(item, str):
        return Text(item)
    if isinstance(item, ScriptedCall):
        return ToolCall("", item.tool, item.arguments)
    raise InvalidInput(f"script: expected text, call(...), a Reply or an exception, got {checks.shown(item)}")


def _usage(request: ModelRequest, parts: Iterable[Part]) -> Usage:
    """About a token for each word, so that counts are there to look at."""
    said = sum(len(message.text.split()) for message in request.messages)
    made = sum(len(part.text.split()) if isinstance(part, Text) else 5 for part in parts)
    return Usage(input=said, output=made)
