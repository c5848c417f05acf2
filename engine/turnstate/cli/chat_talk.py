"""The conversation of ``turnstate chat``: what a line, an end of input, a Ctrl-C or an event means at the moment."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import Literal

from turnstate_states.errors import InvalidInput, Refused
from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallSettled,
    Event,
    MessageQueued,
    MessageRemoved,
    MessageTaken,
    TurnEnded,
    TurnStarted,
)

from ..session import Session
from ..states import Call, Receipt
from .asking import Said, edited, understood
from .chat_view import View
from .history import History
from .listing import counted
from .terminal import one_line, plain, short, value_text

__all__ = ["Given", "Item", "Talk"]


class Given(enum.Enum):
    """What a person gives besides lines."""

    END = enum.auto()
    INTERRUPT = enum.auto()


Item = str | Given | Event
NOBODY = "nobody was there to answer: the input had ended"
HINT = "answer y, n REASON, e NAME=VALUE or a (always: this tool with these arguments, in this session)"


class Talk:
    """One conversation. Items are taken one at a time, so nothing here happens at once.

    Args:
        session: the session, driven here.
        view: where to print.
        by: who answers, for the record.

    ``done`` is true when it is time to leave; ``interrupted`` if that was by Ctrl-C; ``failed`` is the last turn's end if
    it failed.
    """

    def __init__(self, session: Session, view: View, by: str) -> None:
        self._session = session
        self._view = view
        self._by = by
        self._active = ""
        self._waiting: set[str] = set()
        self._held = False
        self._asked: dict[str, Call] = {}
        self._asking = ""
        self._own: set[str] = set()
        self._mode: Literal["", "why", "change"] = ""
        self._presses = 0
        self.done = False
        self.interrupted = False
        self.failed: TurnEnded | None = None

    def begin(self, history: History) -> None:
        """Take what is stored as the state to begin in."""
        checkpoint = history.checkpoint
        if checkpoint.turn is not None and not checkpoint.turn.closed:
            self._active = checkpoint.turn.id
        self._waiting = {item.id for item in (*checkpoint.steers, *checkpoint.queue)}
        self._held = checkpoint.held
        self._asked = {call.id: call for call in history.waiting}

    @property
    def working(self) -> bool:
        """Whether a turn runs or is about to."""
        return bool(self._active) or (bool(self._waiting) and not self._held)

    @property
    def wants_line(self) -> bool:
        """Whether a line is needed to go on."""
        return not self.done and (bool(self._asked) or not self.working)

    async def take(self, item: Item) -> None:
        """Take what came, and ask for what is needed next."""
        try:
            if isinstance(item, str):
                self._presses = 0
                self._view.typed()
                await self._line(item.strip())
            elif item is Given.END:
                await self._end()
            elif item is Given.INTERRUPT:
                await self._interrupt()
            else:
                self._event(item)
        except (InvalidInput, Refused) as error:
            self._view.note(one_line(str(error)), "red")
        self.ask()

    def ask(self) -> None:
        """Print the question or the prompt that is due, unless it stands there already."""
        if self.done:
            return
        if self._asked and self._asking not in self._asked:
            self._asking, self._mode = next(iter(self._asked)), ""
            self._view.question(self._asked[self._asking])
        elif self._view.prompted:
            return
        elif self._asked:
            self._ask_again(self._asked[self._asking])
        elif not self.working:
            self._view.prompt()

    def _ask_again(self, call: Call) -> None:
        if self._mode == "why":
            self._view.prompt("  why not? (Enter: no reason) > ")
        elif self._mode == "change":
            name = next(iter(call.arguments), "name")
            given = value_text(call.arguments.get(name, "value"))
            example = f"{plain(name)}={given if len(given) < 30 else '...'}"
            self._view.prompt(f"  change what? (such as {example}; Enter: nothing) > ")
        else:
            self._view.choices()

    # ---- what a person gives

    async def _line(self, text: str) -> None:
        if self._asked:
            await self._answer(self._asked[self._asking], text)
        elif not text:
            await self._go_on()
        elif self.working:
            await self._sent(await self._session.steer(text))
            self._view.note("(it joins at the next step)")
        else:
            await self._sent(await self._session.send(text))

    async def _sent(self, receipt: Receipt) -> None:
        self._active = receipt.turn or self._active
        if not receipt.turn:
            self._waiting.add(receipt.id)
        self._held = False
        self.failed = None

    async def _go_on(self) -> None:
        if not self._held or self.working:
            return
        async with self._session.resume() as turn:
            self._active = turn.id
        self._held = False
        self.failed = None

    async def _answer(self, call: Call, text: str) -> None:
        mode, self._mode = self._mode, ""
        if mode == "why":
            await self._say(call, Said("no", text))
        elif mode == "change":
            if text:
                self._mode = "change"
                await self._say(call, Said("edit", text))
        elif (said := understood(text)) is None:
            self._view.note(f"  {HINT}")
        elif said.verdict == "no" and not said.rest and self._view.interactive:
            self._mode = "why"
        elif said.verdict == "edit" and not said.rest:
            self._mode = "change"
        else:
            await self._say(call, said)

    async def _say(self, call: Call, said: Said) -> None:
        session = self._session
        if said.verdict == "no":
            await self._submit(call, lambda: session.deny(call, reason=said.rest, by=self._by))
        else:
            arguments = edited(call, said.rest) if said.verdict == "edit" else None
            always = said.verdict == "always"
            await self._submit(
                call, lambda: session.approve(call, arguments=arguments, for_session=always, by=self._by)
            )

    async def _submit(self, call: Call, answer: Callable[[], Awaitable[Receipt]]) -> None:
        try:
            receipt = await answer()
        except Refused:
            self._forget(call)
            raise
        self._own.add(receipt.id)
        self._forget(call)

    def _forget(self, call: Call) -> None:
        self._asked.pop(call.id, None)
        self._mode = ""

    async def _end(self) -> None:
        if not self._asked or self._view.interactive:
            self.done = True
            return
        for call in tuple(self._asked.values()):
            await self._say(call, Said("no", NOBODY))

    async def _interrupt(self) -> None:
        self._presses += 1
        self._view.cut()
        if self._presses > 1:
            self.done = self.interrupted = True
        elif not self.working or not await self._session.interrupt():
            self._view.note("(Ctrl-C again leaves; so does Ctrl-D)")

    # ---- what happens

    def _event(self, event: Event) -> None:
        self._view.show(event)
        match event:
            case TurnStarted():
                if event.cause in self._waiting and event.message is not None:
                    self._view.note(f"(next: {short(event.message.text, 60)})")
                self._active = event.turn
                self._waiting.discard(event.cause)
                self._held = False
            case MessageQueued(id):
                self._waiting.add(id)
            case MessageTaken(id) | MessageRemoved(id):
                self._waiting.discard(id)
            case ApprovalRequested(call):
                self._asked[call.id] = call
            case CallAnswered(call) | CallSettled(call):
                if self._asked.pop(call.id, None) is not None and event.cause not in self._own:
                    how = call.status if call.decision is None else call.decision.verdict
                    self._view.note(f"({plain(call.tool)} was decided elsewhere: {how})")
            case TurnEnded():
                self._ended(event)
            case _:
                pass

    def _ended(self, event: TurnEnded) -> None:
        if event.turn == self._active:
            self._active = ""
        self._held = event.held
        self._asked.clear()
        self.failed = event if event.outcome == "failed" else None
        if self.failed is not None:
            self.done = not self._view.interactive
        waits = f" and then with {counted(len(self._waiting), 'waiting message')}" if self._waiting else ""
        self._view.ended(
            event, f"Enter goes on with it{waits}, or say something else" if self._view.interactive else ""
        )
