"""What the demo prints: the path through the states as it happens, what is said, and what a person is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from turnstate_states.errors import InvalidInput, Refused
from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallProposed,
    CallSettled,
    CallStarted,
    Event,
    MessageQueued,
    MessageTaken,
    Replied,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
)

from ..session_handle import SessionHandle
from ..states import Call, ToolResult, text_of
from .asking import edited, understood
from .demo_path import StatePath
from .lines import LineReader
from .terminal import Piece, Terminal, styled
from .text import shown_call, value_text, visible

__all__ = ["Story"]

SCRIPT: Mapping[str, str] = {"charge_card": "e euros=90", "send_receipt": "y"}
"""How the demo answers by itself."""
DRAWN = (StepStarted, ApprovalRequested, CallStarted, TurnEnded)
MARKS = {"ok": "✓", "unknown": "?"}


@attrs.define
class Story:
    """Tells the events of the demo's session, and answers in it.

    Args:
        terminal: where to print.
        session: the session, as another process holds it.
        lines: where a person answers; None to answer by itself.
    """

    terminal: Terminal
    session: SessionHandle
    lines: LineReader | None
    path: StatePath = attrs.field(factory=StatePath)
    last: int = 0
    parts: int = 0
    ended: TurnEnded | None = None

    def part(self, title: str, why: str) -> None:
        """Begin a part of the story, and say why it matters."""
        self.parts += 1
        self.terminal.line()
        self.terminal.line(styled(f"{self.parts}  {title}", "bold"))
        self.terminal.wrapped(why, "dim", indent="   ")
        self.terminal.line()

    def say(self, label: str, text: str, *styles: str) -> None:
        """Print a line of the story."""
        self.terminal.labelled(label, text, *styles)

    def skip(self, event: Event) -> None:
        """Take an event that was told to somebody before."""
        self.last = event.number or self.last
        self.path.see(event)

    async def tell(self, event: Event) -> None:
        """Print an event, and answer where it asks."""
        self.last = event.number or self.last
        self.path.see(event)
        match event:
            case TurnStarted(message) if message is not None:
                self.say("you", message.text)
            case Replied(message):
                self.say("model", message.text)
            case CallProposed(call):
                self.say("", shown_call(call), "cyan")
            case MessageQueued(parts=parts):
                self.say("steer", text_of(parts))
            case MessageTaken():
                self.say("steer", "it joins the turn, at this request", "dim")
            case CallAnswered(call) if call.status == "allowed":
                self.say("answer", _answer_text(call))
            case CallSettled(call, message):
                self._tell_result(call, message.results[0])
            case TurnEnded():
                self.ended = event
            case _:
                pass
        if isinstance(event, DRAWN) or (isinstance(event, StepEnded) and event.outcome != "completed"):
            self.draw(event)
        if isinstance(event, ApprovalRequested):
            await self._answer(event.call)

    def _tell_result(self, call: Call, result: ToolResult) -> None:
        style = {"ok": "green", "unknown": "yellow"}.get(result.status, "red")
        self.say("result", f"{MARKS.get(result.status, '✗')} {visible(call.tool)}: {result.given}", style)

    def draw(self, event: Event) -> None:
        """Draw the states since the last time, with the step and the event's number."""
        states = self.path.drawn()
        if not states:
            return
        text = " → ".join(states)
        place = f"step {self.path.step} · event {event.number}"
        gap = self.terminal.width - 12 - len(text) - len(place)
        if gap < 1:
            self.say("state", text, "blue")
        else:
            head = styled("  state", "bold"), " " * 5
            self.terminal.line(*head, styled(text, "blue"), " " * gap, styled(place, "dim"))

    # ---- answering

    async def _answer(self, call: Call) -> None:
        while True:
            try:
                if await self._answered(call, await self._line(call)):
                    return
            except InvalidInput as error:
                self.say("", str(error), "red")
            except Refused as error:
                self.say("", f"too late: {error}", "yellow")
                return

    async def _line(self, call: Call) -> str:
        head: tuple[Piece, ...] = styled("  approve?", "bold"), "  "
        for row in self.terminal.rows(shown_call(call), 12):
            self.terminal.line(*head, styled(row, "yellow"))
            head = (" " * 12,)
        question = f"{' ' * 12}[y]es  [n]o, why  [e]dit, such as: {SCRIPT.get(call.tool, 'y')} > "
        self.terminal.write(question)
        if self.lines is None:
            said = SCRIPT.get(call.tool, "y")
            self.terminal.line(f"{said}  ", styled("(by itself)", "dim"))
            return said
        line = await self.lines.line()
        if line is None:
            raise KeyboardInterrupt
        return line

    async def _answered(self, call: Call, line: str) -> bool:
        said = understood(line)
        if said is None or said.verdict == "always":
            self.say("", "answer y, n REASON, or e NAME=VALUE", "red")
            return False
        if said.verdict == "no":
            await self.session.deny(call, reason=said.rest, by="the demo")
        else:
            changed = self._changed(call, said.rest) if said.verdict == "edit" else None
            await self.session.approve(call, arguments=changed, by="the demo")
        return True

    def _changed(self, call: Call, text: str) -> dict[str, Any]:
        if not text:
            raise InvalidInput("say what to change, such as: e euros=90")
        return edited(call, text)


def _answer_text(call: Call) -> str:
    """What a person approved, and what they changed."""
    proposed = attrs.evolve(call, edited=None, filled="").arguments
    changed = {name: value for name, value in call.arguments.items() if proposed.get(name) != value}
    if not changed:
        return "yes"
    wanted = ", ".join(f"{name}={value_text(proposed.get(name))}" for name in changed)
    given = ", ".join(f"{name}={value_text(value)}" for name, value in changed.items())
    return f"yes, with {given} (the model wanted {wanted})"
