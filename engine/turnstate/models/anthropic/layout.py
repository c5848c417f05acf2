"""Lays messages out as the API wants them: turns in alternation, every tool use with its result right after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from turnstate_states.content import ToolResult

from ..wire.encoding import EMPTY
from .encode_parts import Sent, result_block, text_block

__all__ = ["GO_ON", "Layout", "Turn", "joined"]

GO_ON = "(continue)"
"""What a person is made to say where the last word is the model's: models refuse to go on with a text of theirs."""

_MISSING = ToolResult("", "not run: no result was recorded", "not-run")


@attrs.define
class Turn:
    """One message on the wire; ``results`` tells how many results a user's turn begins with."""

    role: str
    blocks: list[Sent]
    results: int = 0
    data: bytes = b""

    def encoded(self) -> bytes:
        """The turn as bytes, made once."""
        if not self.data:
            self.data = joined(self.role, [block.data for block in self.blocks])
        return self.data


def joined(role: str, blocks: Iterable[bytes]) -> bytes:
    """A turn as bytes."""
    return b'{"role":"%b","content":[%b]}' % (role.encode(), b",".join(blocks))


class Layout:
    """Takes messages in order and merges neighbours; results come first in the user's turn after their calls.

    It grows with the conversation: what a further message costs does not depend on those before it.
    """

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._said: list[Sent] = []
        self._open: dict[str, str] = {}
        self._found: dict[str, bytes] = {}
        self._content: list[Sent] = []
        self._uses: set[str] = set()
        self._answers: set[str] = set()

    def assistant(self, blocks: Iterable[Sent], ids: Mapping[str, str]) -> None:
        """Add what the model said, with the ids of its calls."""
        if self._open or self._content:
            self._turns += self._rest([])
            self._said, self._open, self._found, self._content = [], {}, {}, []
        for block in blocks:
            if not block.hosted or self._fits(block):
                self._said.append(block)
        self._open.update(ids)

    def _fits(self, block: Sent) -> bool:
        """Whether a hosted block may stand here: a use once, an answer once and after its use."""
        if block.use:
            fits = block.use not in self._uses
            self._uses.add(block.use)
            return fits
        if block.answer:
            fits = block.answer in self._uses and block.answer not in self._answers
            if fits:
                self._answers.add(block.answer)
            return fits
        return True

    def wire_id(self, call: str) -> str | None:
        """The id that was sent for a call whose result is awaited; None if it is not."""
        return None if call in self._found else self._open.get(call)

    def result(self, call: str, data: bytes) -> None:
        """Add the result of an open call."""
        self._found[call] = data

    def user(self, blocks: Iterable[Sent]) -> None:
        """Add what a person said."""
        self._content += blocks

    def turns(self, added: list[Sent]) -> list[Turn]:
        """All turns and what is added to this request only, valid for the API: the first turn is a user's."""
        turns = self._turns + self._rest(added)
        if not turns or turns[0].role != "user":
            turns.insert(0, Turn("user", [text_block(EMPTY)]))
        if self._uses - self._answers:
            turns = self._paired(turns)
        last = turns[-1]
        if last.role == "assistant" and not last.blocks[-1].hosted:
            turns.append(Turn("user", [text_block(GO_ON)]))
        return turns

    def _rest(self, added: list[Sent]) -> list[Turn]:
        """The turns that are not closed yet."""
        content = self._content + added
        turns: list[Turn] = []
        if self._said or self._open or (self._turns and self._turns[-1].role == "user" and content):
            turns.append(Turn("assistant", _sound(self._said)))
        results = [Sent(self._found.get(call) or result_block(_MISSING, id)) for call, id in self._open.items()]
        if results or content:
            turns.append(Turn("user", results + content, len(results)))
        return turns

    def _paired(self, turns: list[Turn]) -> list[Turn]:
        """Without uses that the provider never answered, but with those that it has yet to answer."""
        rest = turns[-2:]
        waiting = rest[-1].role == "assistant" or len(rest[-1].blocks) == rest[-1].results
        last = next((turn for turn in reversed(rest) if turn.role == "assistant"), None) if waiting else None
        return [self._whole(turn, turn is last) for turn in turns]

    def _whole(self, turn: Turn, waiting: bool) -> Turn:
        if turn.role == "user":
            return turn
        kept = [block for block in turn.blocks if not block.use or block.use in self._answers or waiting]
        return turn if len(kept) == len(turn.blocks) else Turn("assistant", _sound(kept))


def _sound(blocks: list[Sent]) -> list[Sent]:
    """The blocks of a turn of the model, which must not be empty and must not end with thinking."""
    return [*blocks, text_block(EMPTY)] if not blocks or blocks[-1].thinking else blocks
