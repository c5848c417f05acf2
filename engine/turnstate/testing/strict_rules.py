"""What a strict provider demands of a Chat Completions request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from turnstate_states import checks

from ..models.wire.json_values import is_dict, is_list

__all__ = ["broken_rule"]

Json = Mapping[str, Any]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def broken_rule(body: Json, *, alternate: bool = False) -> str:
    """The first rule that a request breaks, in words; empty if it breaks none.

    Each call has exactly one result, right after the message that made it, in the order of the calls. Ids of calls are
    unique. No text is blank, no message empty. Arguments are JSON objects. The last message is not the model's. System
    messages stand at the beginning. The answer is to be streamed.

    Args:
        body: the request.
        alternate: also demand that the user and the assistant take turns; results do not count.

    >>> broken_rule({"model": "m", "stream": True, "messages": [{"role": "user", "content": " "}]})
    'messages[0]: blank text'
    """
    checks.instance("body", body, Mapping, "the body of a request")
    checks.flag("alternate", alternate)
    if not _text(body.get("model")):
        return "model: expected a name"
    if body.get("stream") is not True:
        return "stream: this server only streams"
    messages: object = body.get("messages")
    if not is_list(messages) or not messages:
        return "messages: expected at least one message"
    return _Rules(alternate).check(messages) or _broken_tools(body)


class _Rules:
    def __init__(self, alternate: bool) -> None:
        self._alternate = alternate
        self._open: list[str] = []
        self._seen: set[str] = set()
        self._last = ""

    def check(self, messages: Sequence[object]) -> str:
        for at, message in enumerate(messages):
            if not is_dict(message):
                return f"messages[{at}]: expected an object"
            wrong = self._message(message)
            if wrong:
                return f"messages[{at}]: {wrong}"
        if self._open:
            return f"the calls {self._open} have no result"
        return "the last message is the assistant's" if self._last == "assistant" else ""

    def _message(self, message: Json) -> str:
        role = message.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            return f"unknown role {role!r}"
        if role == "tool":
            return self._result(message)
        if self._open:
            return f"expected the result of call {self._open[0]!r} before a message of the {role}"
        if role in ("system", "developer"):
            return _broken_content(message) if self._last in ("", "system") else "a system message after others"
        if self._alternate and role == self._last:
            return f"two messages of the {role} in a row"
        self._last = str(role)
        return self._assistant(message) if role == "assistant" else _broken_content(message)

    def _result(self, message: Json) -> str:
        id = message.get("tool_call_id")
        if not self._open:
            return f"a result of call {id!r}, which no message before it made or which has one already"
        if id != self._open[0]:
            return f"expected the result of call {self._open[0]!r}, got that of {id!r}"
        self._open.pop(0)
        self._last = "tool"
        return _broken_content(message)

    def _assistant(self, message: Json) -> str:
        calls = message.get("tool_calls")
        if calls is None:
            return _broken_content(message)
        if not is_list(calls) or not calls:
            return "tool_calls: expected at least one call, or no such field"
        for call in calls:
            wrong = self._call(call if is_dict(call) else {})
            if wrong:
                return wrong
        return "" if message.get("content") is None else _broken_content(message)

    def _call(self, call: Json) -> str:
        function = call.get("function")
        id, inner = call.get("id"), function if is_dict(function) else {}
        if not _text(id) or call.get("type") != "function":
            return "a call without an id or of another type than 'function'"
        if id in self._seen:
            return f"the call id {id!r} was used before"
        if not _NAME.fullmatch(str(inner.get("name"))):
            return f"call {id!r}: bad tool name {inner.get('name')!r}"
        if not _is_object(inner.get("arguments")):
            return f"call {id!r}: the arguments are no JSON object"
        self._seen.add(str(id))
        self._open.append(str(id))
        return ""


def _broken_content(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return "" if content.strip() else "blank text"
    if not is_list(content) or not content:
        return "no content"
    for block in content:
        if is_dict(block) and block.get("type") == "text" and not _text(block.get("text")):
            return "blank text"
    return ""


def _broken_tools(body: Json) -> str:
    if "tools" not in body:
        return ""
    tools: object = body["tools"]
    if not is_list(tools) or not tools:
        return "tools: expected at least one tool, or no such field"
    names = [_tool_name(tool) for tool in tools]
    bad = [name for name in names if not _NAME.fullmatch(name)]
    if bad:
        return f"tools: bad name {bad[0]!r}"
    return "tools: two of one name" if len(set(names)) < len(names) else ""


def _tool_name(tool: object) -> str:
    function = tool.get("function") if is_dict(tool) else None
    return str(function.get("name")) if is_dict(function) else ""


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_object(text: object) -> bool:
    if not isinstance(text, str):
        return False

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        return isinstance(json.loads(text, parse_constant=refuse), dict)
    except (ValueError, RecursionError):
        return False
