"""A request to a server of Anthropic Messages as bytes. Nothing here does I/O.

What messages became is kept in the request's cache, so a step encodes only what is new.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from turnstate_states.content import ToolCall
from turnstate_states.transcript import Message

from ..base import ModelRequest, ToolDefinition
from ..wire.encoding import added_text, made_once, odd_names, own_id, tool_head
from ..wire.grown_body import GrownBody, grown_body, join_items
from ..wire.json_values import to_json
from .encode_parts import Sent, assistant_blocks, result_block, text_block, user_blocks
from .layout import Layout, Turn
from .parts import family_of
from .settings import cache_mark, check_messages_settings, messages_fields
from .used_ids import UsedIds

__all__ = ["MessageEncoder"]

_ONLY_WITH_TOOLS = "tool_choice"


_UNSETTLED = 2
"""So many closed exchanges are laid out for each request: marks for the cache move along their turns, and the provider may
yet answer uses in them."""


class _Body(GrownBody[None]):
    """Exchanges as bytes, and the ids in the conversation."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names, None)
        self.ids = UsedIds()


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
        body, layout, system = self._layout(request)
        additions = added_text(request)
        turns = layout.turns([text_block(additions)] if additions else [])
        if request.instructions.strip():
            system = [text_block(request.instructions).data, *system]
        tools = self._tools(request, settings)
        end = b"]"
        if system:
            end += b',"system":[' + b",".join(_marked(system, mark)) + b"]"
        if tools:
            end += b',"tools":[' + b",".join(_marked(tools, mark)) + b"]"
        end += b"," + self._fields(settings, bool(tools), turns)[1:]
        return join_items(b'{"messages":[', [*body.pieces, *_messages(turns, mark, bool(additions))], end)

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
        tools = request.tools

        def make() -> list[bytes]:
            own = [to_json(_tool(tool, strict), "tools") for tool in tools]
            return [*own, *(to_json(tool, "hosted_tools") for tool in hosted)]

        return made_once(request.cache, (self, "tools"), (tools, tuple(hosted), strict), make)

    def _layout(self, request: ModelRequest) -> tuple[_Body, Layout, list[bytes]]:
        """All messages: what is settled of them, the rest laid out, and the blocks of those that are instructions."""
        names = made_once(request.cache, (self, "names"), request.tools, lambda: odd_names(request.tools))
        body = grown_body(request.cache, self, names, lambda: _Body(names))
        messages = request.messages
        settled, _ = body.resume(messages)
        leading = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
        body.ids.cut(settled)
        layout = self._laid_out(body, messages, start := max(settled, leading), names)
        if body.ids.late:
            # What was left out for good has to be there after all.
            body.restart()
            body.ids.cut(0)
            layout = self._laid_out(body, messages, start := leading, names)
        _settle(body, layout, messages, start)
        system = [block.data for message in messages[:leading] for block in self._blocks(body, message, {}, names)]
        return body, layout, system

    def _laid_out(self, body: _Body, messages: tuple[Message, ...], start: int, names: frozenset[str]) -> Layout:
        ids = body.ids
        layout = Layout(ids, begun=bool(body.pieces))
        for number, message in enumerate(messages[start:], start):
            if message.role == "assistant":
                layout.before_assistant(number)
                wire_ids = _wire_ids(message.calls, ids.calls)
                layout.assistant(self._blocks(body, message, wire_ids, names), wire_ids, number)
                ids.calls |= dict.fromkeys(wire_ids.values(), number)
            elif message.role == "tool":
                _add_results(body, message, layout)
            else:
                layout.user(self._blocks(body, message, {}, names))
        return layout

    def _blocks(self, body: _Body, message: Message, ids: Mapping[str, str], names: frozenset[str]) -> tuple[Sent, ...]:
        return body.remember((message,), lambda: self._message(message, ids, names), ids)

    def _message(self, message: Message, ids: Mapping[str, str], names: frozenset[str]) -> tuple[Sent, ...]:
        if message.role == "assistant":
            return assistant_blocks(message.parts, ids, names, self._family)
        if message.role == "user":
            return user_blocks(message.parts)
        return (text_block(message.text),) if message.text.strip() else ()


def _add_results(body: _Body, message: Message, layout: Layout) -> None:
    # The first result of a call counts.
    results = {result.call: result for result in reversed(message.results)}
    ids = {call: id for call in results if (id := layout.wire_id(call)) is not None}

    def make() -> dict[str, bytes]:
        return {call: result_block(results[call], id) for call, id in ids.items()}

    for call, data in body.remember((message,), make, ids).items():
        layout.result(call, data)


def _settle(body: _Body, layout: Layout, messages: tuple[Message, ...], start: int) -> None:
    """Settle the exchanges that no later message changes: of the messages from ``start`` on only their bytes are kept.

    An exchange with a use that a later one answers is settled with that, so that both are there or neither is.
    """
    ids, closed = body.ids, layout.closed
    turns: list[Turn] = []
    settled = answered = 0
    for number, exchange in enumerate(closed[:-_UNSETTLED], _UNSETTLED):
        turns += exchange.turns
        answered = max([answered, *(ids.answers.get(use, 0) for use in _uses(exchange.turns))])
        if answered >= exchange.end:
            continue
        ids.dropped |= {use: ids.uses[use] for use in _uses(turns) if use not in ids.answers}
        body.pieces.append(b",".join(layout.answered(turn).encoded() for turn in turns))
        body.settle(exchange.end, None, needs=closed[number].end + 1)
        turns, settled = [], number - _UNSETTLED + 1
    if settled:
        body.forget(messages[start : closed[settled - 1].end])
        del closed[:settled]


def _uses(turns: list[Turn]) -> list[str]:
    return [block.use for turn in turns for block in turn.blocks if block.use]


def _wire_ids(calls: tuple[ToolCall, ...], used: Container[str]) -> dict[str, str]:
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
    asked = [number for number, turn in enumerate(turns) if turn.role == "user"][-2:]
    return [
        # What only this request has is not worth keeping.
        turn.encoded(mark if number in asked else b"", unmarked=int(added and number == asked[-1]))
        for number, turn in enumerate(turns)
    ]
