"""A request to a server of Anthropic Messages as bytes. Nothing here does I/O.

What a message became is kept in the request's cache, so a step encodes only what is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, cast

import attrs

from turnstate_states.content import ToolCall
from turnstate_states.transcript import Message

from ..base import ModelRequest, ToolDefinition
from ..wire.encoding import added_text, own_id, tool_head
from ..wire.json_values import to_json
from .encode_parts import Sent, assistant_blocks, result_block, text_block, user_blocks
from .layout import Layout, Turn, joined
from .parts import family_of
from .settings import cache_mark, check_messages_settings, messages_fields

__all__ = ["MessageEncoder"]

_ONLY_WITH_TOOLS = "tool_choice"


@attrs.frozen
class _Encoded:
    """What a message became; it counts only for the very same message object."""

    source: object
    blocks: tuple[Sent, ...] = ()
    ids: Mapping[str, str] = attrs.field(factory=dict[str, str])
    wires: frozenset[str] = frozenset()
    results: Mapping[tuple[str, str], bytes] = attrs.field(factory=dict[tuple[str, str], bytes])


@attrs.define
class _Progress:
    """How far a conversation is laid out: its messages so far, and the ids that are in use."""

    messages: tuple[Message, ...] = ()
    layout: Layout = attrs.field(factory=Layout)
    system: list[bytes] = attrs.field(factory=list[bytes])
    used: set[str] = attrs.field(factory=set[str])
    leading: bool = True


class MessageEncoder:
    """Encodes requests for one model.

    Args:
        model: the model's name on the server.
        settings: checked settings; those of a request come before them.
        extra_body: further fields of the body; they come before everything else.
    """

    def __init__(self, model: str, *, settings: Mapping[str, Any], extra_body: Mapping[str, Any]) -> None:
        self._model = model
        self._family = family_of(model)
        self._settings = settings
        self._extra = extra_body

    def encode(self, request: ModelRequest) -> bytes:
        """The body of the request.

        Raises:
            InvalidInput: a setting of the request, or a tool's parameters, cannot be sent.
        """
        settings = self._settings
        if request.settings:
            # Checked together, because some settings must fit each other.
            settings = check_messages_settings({**settings, **check_messages_settings(request.settings)})
        mark = cache_mark(settings)
        progress = self._layout(request)
        additions = added_text(request)
        turns = progress.layout.turns([text_block(additions)] if additions else [])
        instructions = [text_block(request.instructions).data] if request.instructions.strip() else []
        system = instructions + progress.system
        tools = self._tools(request, settings)
        body = [b'{"messages":[', b",".join(_messages(turns, mark, bool(additions))), b"]"]
        if system:
            body += [b',"system":[', b",".join(_marked(system, mark)), b"]"]
        if tools:
            body += [b',"tools":[', b",".join(_marked(tools, mark)), b"]"]
        body += [b",", self._fields(settings, bool(tools), turns)[1:]]
        return b"".join(body)

    def _fields(self, settings: Mapping[str, Any], tools: bool, turns: list[Turn]) -> bytes:
        fields: dict[str, Any] = {
            "model": self._model,
            "stream": True,
            **messages_fields(settings, self._model, tools=tools),
        }
        if fields.get("thinking", {}).get("type") == "enabled" and _begun_without_thinking(turns):
            # Such a loop came from elsewhere; the API cannot begin to think in the middle of it.
            del fields["thinking"]
        fields |= self._extra
        if not tools:
            fields.pop(_ONLY_WITH_TOOLS, None)
        return to_json({name: value for name, value in fields.items() if value is not None}, "settings")

    def _tools(self, request: ModelRequest, settings: Mapping[str, Any]) -> list[bytes]:
        hosted: Any = settings.get("hosted_tools") or ()
        strict = bool(settings.get("strict_tools"))
        source = (request.tools, tuple(hosted), strict)
        known = request.cache.get((self, "tools"))
        if known is None or known[0] != source:
            made = [to_json(_tool(tool, strict), "tools") for tool in request.tools]
            known = request.cache[self, "tools"] = (
                source,
                [*made, *(to_json(tool, "hosted_tools") for tool in hosted)],
            )
        return cast("list[bytes]", known[1])

    def _layout(self, request: ModelRequest) -> _Progress:
        """All messages laid out, going on where the last request with this cache ended."""
        progress: _Progress | None = request.cache.get((self, "layout"))
        if progress is None or request.messages[: len(progress.messages)] != progress.messages:
            progress = request.cache[self, "layout"] = _Progress()
        names = frozenset(tool.name for tool in request.tools)
        for message in request.messages[len(progress.messages) :]:
            self._add(message, progress, request.cache, names)
        progress.messages = request.messages
        return progress

    def _add(self, message: Message, progress: _Progress, cache: dict[Any, Any], names: Set[str]) -> None:
        known: _Encoded | None = cache.get((self, message.id))
        if known is None or known.source is not message or not progress.used.isdisjoint(known.wires):
            known = cache[self, message.id] = self._message(message, names, progress.used)
        layout = progress.layout
        progress.leading = progress.leading and message.role == "system"
        if progress.leading:
            progress.system += [block.data for block in known.blocks]
        elif message.role == "assistant":
            progress.used |= known.wires
            layout.assistant(known.blocks, known.ids)
        elif message.role == "tool":
            self._results(message, known, layout)
        else:
            layout.user(known.blocks)

    def _results(self, message: Message, known: _Encoded, layout: Layout) -> None:
        for result in message.results:
            id = layout.wire_id(result.call)
            if id is None:
                continue
            data = known.results.get((result.call, id))
            if data is None:
                data = result_block(result, id)
                cast("dict[tuple[str, str], bytes]", known.results)[result.call, id] = data
            layout.result(result.call, data)

    def _message(self, message: Message, names: Set[str], used: Set[str]) -> _Encoded:
        match message.role:
            case "assistant":
                ids = _wire_ids(message.calls, used)
                blocks = assistant_blocks(message.parts, ids, names, self._family)
                return _Encoded(message, blocks, ids, frozenset(ids.values()))
            case "tool":
                return _Encoded(message)
            case "system":
                return _Encoded(message, (text_block(message.text),) if message.text.strip() else ())
            case "user":
                return _Encoded(message, user_blocks(message.parts))


def _wire_ids(calls: tuple[ToolCall, ...], used: Set[str]) -> dict[str, str]:
    """For each call's own id the one that is sent, unique in the request: the provider's if possible."""
    ids, taken = dict[str, str](), set[str]()
    for call in calls:
        id = call.provider_id
        if not id or id in used or id in taken or own_id(id) != id:
            id = base = own_id(call.id)
            number = 1
            while id in used or id in taken:
                number += 1
                id = f"{base}_{number}"
        taken.add(id)
        ids[call.id] = id
    return ids


def _tool(tool: ToolDefinition, strict: bool) -> dict[str, Any]:
    strictness = {"strict": True} if strict else {}
    return {**tool_head(tool), **strictness, "input_schema": {"type": "object", **tool.parameters}}


def _begun_without_thinking(turns: list[Turn]) -> bool:
    """Whether the last turn holds results of calls that were made without thinking."""
    return turns[-1].results > 0 and not any(block.thinking for block in turns[-2].blocks)


def _marked(blocks: list[bytes], mark: bytes) -> list[bytes]:
    return [*blocks[:-1], blocks[-1][:-1] + mark] if mark else blocks


def _messages(turns: list[Turn], mark: bytes, added: bool) -> list[bytes]:
    """The turns as bytes; the ends of the last two turns of a person are marked, as a later request finds them again."""
    made = [turn.encoded() for turn in turns]
    if mark:
        asked = [number for number in range(len(turns)) if turns[number].role == "user"][-2:]
        for number in asked:
            blocks = [block.data for block in turns[number].blocks]
            # What only this request has is not worth keeping.
            extra = [blocks.pop()] if added and number == asked[-1] else []
            if blocks:
                made[number] = joined("user", _marked(blocks, mark) + extra)
    return made
