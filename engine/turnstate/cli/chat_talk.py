"""The conversation of ``turnstate chat``: what a line, an end of input, a Ctrl-C or an event means at the moment."""

from __future__ import annotations

import enum
from typing import Any

from turnstate_states.errors import CheckpointError, InvalidInput, Refused, SessionInUse
from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallSettled,
    Deleted,
    Event,
    MessageQueued,
    MessageRemoved,
    MessageTaken,
    ResultRequested,
    Switched,
    TurnEnded,
    TurnStarted,
)

from ..engine import Engine
from ..session import Session
from ..states import Call, Receipt
from .chat_commands import command_of, run_command
from .chat_form import Act, Form
from .chat_forms import form_for
from .chat_view import View
from .history import History, read_history
from .listing import counted
from .text import one_line, short, visible
from .thread import print_end

__all__ = ["Given", "Item", "Talk"]


class Given(enum.Enum):
    """What a person gives besides lines."""

    END = enum.auto()
    INTERRUPT = enum.auto()


Item = str | Given | Event
NOBODY = "nobody was there to answer: the input had ended"


class Talk:
    """The conversation in one session. Items are taken one at a time, so nothing here happens at once.

    Args:
        engine: drives the session.
        session: the session.
        view: where to print.
        by: who answers, for the record.

    ``done`` is true when it is time to leave; ``interrupted`` if that was by Ctrl-C; ``opens`` is the session to go to, if
    the person wants to; ``failed`` is the last turn's end if it failed.
    """

    def __init__(self, engine: Engine[Any], session: Session, view: View, by: str) -> None:
        self.engine = engine
        self.session = session
        self.view = view
        self._by = by
        self._active = ""
        self._waiting: set[str] = set()
        self._held = False
        self._asked: dict[str, Call] = {}
        self._form: Form | None = None
        self._shown: tuple[int, bool] | None = None
        self._own: set[str] = set()
        self._seen = 0
        self._shows_end_at = 0
        self._presses = 0
        self.done = False
        self.interrupted = False
        self.opens = ""
        self.failed: TurnEnded | None = None

    def begin(self, history: History) -> None:
        """Take what is stored as the state."""
        checkpoint = history.checkpoint
        self._seen = checkpoint.events
        turn = checkpoint.turn
        self._active = turn.id if turn is not None and not turn.closed else ""
        self._waiting = {item.id for item in (*checkpoint.steers, *checkpoint.queue)}
        self._held = checkpoint.held
        self._asked = {call.id: call for call in history.waiting}

    @property
    def working(self) -> bool:
        """Whether a turn runs or is about to, or the end of the thread is about to be shown."""
        return bool(self._active) or (bool(self._waiting) and not self._held) or bool(self._shows_end_at)

    @property
    def asks(self) -> bool:
        """Whether a question waits for an answer."""
        return bool(self._asked)

    @property
    def wants_line(self) -> bool:
        """Whether a line is needed to go on."""
        return not self.done and (self.asks or not self.working)

    async def take(self, item: Item) -> None:
        """Take what came, and ask for what is needed next."""
        try:
            if isinstance(item, str):
                self._presses = 0
                self.view.typed()
                await self._line(item.strip())
            elif item is Given.END:
                await self._end()
            elif item is Given.INTERRUPT:
                await self._interrupt()
            else:
                await self._event(item)
        except (InvalidInput, Refused, SessionInUse, CheckpointError) as error:
            indent = "  " if self._asked else ""
            self.view.note(indent + one_line(str(error)), "red")
        self.ask()

    def ask(self) -> None:
        """Print the question or the prompt that is due, unless it stands there already."""
        if self.done or self.opens:
            return
        if self._asked:
            self._ask()
        elif not self.view.prompted and not self.working:
            self.view.prompt()

    def _ask(self) -> None:
        form = self.form()
        if (form.stage, form.whole) != self._shown:
            self._shown = (form.stage, form.whole)
            self.view.leave()
            form.show(self.view.terminal)
        if not self.view.prompted:
            self.view.prompt(form.prompt)

    def form(self) -> Form:
        """The question that is due.

        Raises:
            Refused: there is none.
        """
        if not self._asked:
            raise Refused("stale", "nothing is asked now")
        if self._form is None or self._asked.get(self._form.call.id) != self._form.call:
            self._form = form_for(next(iter(self._asked.values())), interactive=self.view.interactive)
            self._shown = None
        return self._form

    # ---- what a person gives

    async def _line(self, text: str) -> None:
        known = command_of(text)
        if known is not None:
            await run_command(self, *known)
            return
        if text.startswith("//"):
            text = text[1:]
        if self._asked:
            said = self.form().take(text)
            if said is not None:
                await self.answer(said)
        elif not text:
            await self._go_on()
        elif self.working:
            await self._sent(await self.session.steer(text))
            self.view.note("(it joins at the next step)")
        else:
            await self._sent(await self.session.send(text))

    async def _sent(self, receipt: Receipt) -> None:
        self._own.add(receipt.id)
        self._active = receipt.turn or self._active
        if not receipt.turn:
            self._waiting.add(receipt.id)
        self._held = False
        self.failed = None

    async def began(self, receipt: Receipt) -> None:
        """Another branch was begun from here, with a turn of its own; what was asked is not any more."""
        self._asked.clear()
        await self._sent(receipt)

    async def changed(self, receipt: Receipt) -> None:
        """The thread was changed from here: once all that was told of it is printed, where it ends is."""
        self._own.add(receipt.id)
        self._asked.clear()
        self._shows_end_at = (await self.session.info()).last_event
        if self._seen >= self._shows_end_at:
            await self._show_end()

    async def _go_on(self) -> None:
        if not self._held or self.working:
            return
        async with self.session.resume() as turn:
            self._active = turn.id
        self._held = False
        self.failed = None

    async def answer(self, said: Act) -> None:
        """Answer the question that is due."""
        await self._answer(self.form().call, said)

    async def _answer(self, call: Call, said: Act) -> None:
        try:
            receipt = await said(self.session, self._by)
        except Refused:
            self._asked.pop(call.id, None)
            raise
        self._own.add(receipt.id)
        self._asked.pop(call.id, None)

    async def _end(self) -> None:
        if not self._asked or self.view.interactive:
            self.done = True
            return
        for call in tuple(self._asked.values()):
            await self._answer(call, form_for(call, interactive=False).deny(NOBODY))

    async def _interrupt(self) -> None:
        self._presses += 1
        self.view.cut()
        if self._presses > 1:
            self.done = self.interrupted = True
        elif self.working and await self.session.interrupt():
            self._asked.clear()
        else:
            self.view.note("(Ctrl-C again leaves; so does Ctrl-D)")

    # ---- what happens

    async def _event(self, event: Event) -> None:
        self.view.show(event)
        self._seen = event.number or self._seen
        self._take_event(event)
        switched = isinstance(event, Switched) and event.why == "switch"
        if (switched or isinstance(event, Deleted)) and event.cause not in self._own:
            self.view.note("(the thread was changed elsewhere; it ends like this now)")
            await self._show_end()
        elif 0 < self._shows_end_at <= self._seen:
            await self._show_end()

    def _take_event(self, event: Event) -> None:
        """Note what it changes."""
        match event:
            case TurnStarted():
                self._announce(event)
                self._active = event.turn
                self._waiting.discard(event.cause)
                self._held = False
            case MessageQueued(id):
                self._waiting.add(id)
            case MessageTaken(id) | MessageRemoved(id):
                self._waiting.discard(id)
            case ApprovalRequested(call) | ResultRequested(call):
                self._asked[call.id] = call
            case CallAnswered(call) | CallSettled(call):
                asked = self._asked.pop(call.id, None) is not None and event.cause not in self._own
                if asked and (how := _decided(call)):
                    self.view.note(f"({visible(call.tool)} {how})")
            case TurnEnded():
                self._ended(event)
            case _:
                pass

    def _announce(self, started: TurnStarted) -> None:
        """Say what a turn answers, where that does not stand right above."""
        message = started.message
        if message is None or "from" in message.metadata or started.cause in self._own - self._waiting:
            return
        how = "next" if started.cause in self._waiting else "said elsewhere"
        self.view.note(f"({how}: {short(message.text, 60)})")

    async def _show_end(self) -> None:
        """Print where the thread ends, and take what is stored as the state."""
        self._shows_end_at = 0
        history = await read_history(self.engine.store, self.session.id)
        if history is None:
            return
        self.view.leave()
        print_end(self.view.terminal, history, whole=True)
        seen = self._seen
        self.begin(history)
        self._seen = seen
        self._held = self._held and (bool(self._waiting) or _shows_last_turn(history))

    def _ended(self, event: TurnEnded) -> None:
        if event.turn == self._active:
            self._active = ""
        self._held = event.held
        self._asked.clear()
        self.failed = event if event.outcome == "failed" else None
        if self.failed is not None:
            self.done = not self.view.interactive
        waits = f" and then with {counted(len(self._waiting), 'waiting message')}" if self._waiting else ""
        offers = self.view.interactive and event.held
        self.view.ended(event, f"Enter goes on with it{waits}, or say something else" if offers else "")


def _decided(call: Call) -> str:
    """What became of a question that was not answered from here; nothing if it ended with its turn."""
    if call.reason == "expired":
        return "was not answered in time"
    return "" if call.decision is None else f"was decided elsewhere: {call.decision.verdict}"


def _shows_last_turn(history: History) -> bool:
    """Whether the visible path ends in the session's last turn."""
    turn, messages = history.checkpoint.turn, history.messages
    return turn is not None and bool(messages) and messages[-1].turn == turn.id
