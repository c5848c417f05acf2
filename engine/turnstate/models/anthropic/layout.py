"""Lays messages out as the API wants them: turns in alternation, every tool use with its result right after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from turnstate_states.content import ToolResult

from ..wire.encoding import EMPTY
from .encode_parts import Sent, result_block, text_block
from .used_ids import UsedIds

__all__ = ["GO_ON", "Exchange", "Layout", "Turn"]

GO_ON = "(continue)"
"""What a person is made to say where the last word is the model's: models refuse to go on with a text of theirs."""

_MISSING = ToolResult("", "not run: no result was recorded", "not-run")


@attrs.frozen
class Turn:
    """One message on the wire; ``results`` tells how many results a user's turn begins with."""

    role: str
    blocks: list[Sent]
    results: int = 0

    def encoded(self, mark: bytes = b"", unmarked: int = 0) -> bytes:
        """The turn as bytes.

        Args:
            mark: ends the last block that takes one.
            unmarked: how many blocks at the end take none.
        """
        blocks = [block.data for block in self.blocks]
        last = len(blocks) - 1 - unmarked
        if mark and last >= 0:
            blocks[last] = blocks[last][:-1] + mark
        return b'{"role":"%b","content":[%b]}' % (self.role.encode(), b",".join(blocks))


@attrs.frozen
class Exchange:
    """Turns that nothing is added to: what the model said and what was answered.

    ``end`` is the number of messages up to there.
    """

    turns: list[Turn]
    end: int


class Layout:
    """Takes messages in order and merges neighbours; results come first in the user's turn after their calls.

    Args:
        ids: those that are in use; the layout adds to them.
        begun: whether exchanges come before what is laid out here.
    """

    def __init__(self, ids: UsedIds, *, begun: bool) -> None:
        self.closed: list[Exchange] = []
        self._ids = ids
        self._begun = begun
        self._said: list[Sent] = []
        self._open: dict[str, str] = {}
        self._found: dict[str, bytes] = {}
        self._content: list[Sent] = []

    def before_assistant(self, number: int) -> None:
        """Close the exchange if it was answered; ``number`` is how many messages come before what the model says next."""
        if self._open or self._content:
            self.closed.append(Exchange(self._rest([]), number))
            self._said, self._open, self._found, self._content = [], {}, {}, []

    def assistant(self, blocks: Iterable[Sent], ids: Mapping[str, str], number: int) -> None:
        """Add what the model said in the message of this number, with the ids of its calls."""
        self._said += (block for block in blocks if not block.hosted or self._ids.fits(block.use, block.answer, number))
        self._open.update(ids)

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
        turns = [turn for exchange in self.closed for turn in exchange.turns] + self._rest(added)
        if self._ids.unanswered:
            turns = self._paired(turns)
        last = turns[-1]
        if last.role == "assistant" and not last.blocks[-1].hosted:
            turns.append(Turn("user", [text_block(GO_ON)]))
        return turns

    def _rest(self, added: list[Sent]) -> list[Turn]:
        """The turns that are not closed yet."""
        content = self._content + added
        turns: list[Turn] = []
        first = not self._begun and not self.closed
        if self._said or self._open or (content and not first):
            turns.append(Turn("assistant", _sound(self._said)))
        results = [Sent(self._found.get(call) or result_block(_MISSING, id)) for call, id in self._open.items()]
        if results or content:
            turns.append(Turn("user", results + content, len(results)))
        if first and (not turns or turns[0].role != "user"):
            turns.insert(0, Turn("user", [text_block(EMPTY)]))
        return turns

    def _paired(self, turns: list[Turn]) -> list[Turn]:
        """Without uses that the provider never answered, but with those that it has yet to answer."""
        rest = turns[-2:]
        waiting = rest[-1].role == "assistant" or len(rest[-1].blocks) == rest[-1].results
        last = next((turn for turn in reversed(rest) if turn.role == "assistant"), None) if waiting else None
        return [turn if turn is last else self.answered(turn) for turn in turns]

    def answered(self, turn: Turn) -> Turn:
        """The turn without uses that the provider never answered."""
        kept = [block for block in turn.blocks if not block.use or block.use in self._ids.answers]
        return turn if len(kept) == len(turn.blocks) else Turn("assistant", _sound(kept))


def _sound(blocks: list[Sent]) -> list[Sent]:
    """The blocks of a turn of the model, which must not be empty and must not end with thinking."""
    return [*blocks, text_block(EMPTY)] if not blocks or blocks[-1].thinking else blocks
