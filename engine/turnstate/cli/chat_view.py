"""What ``turnstate chat`` prints of a turn."""

from __future__ import annotations

from turnstate_states.events import (
    CallSettled,
    CallStarted,
    Event,
    Lagged,
    MessageTaken,
    PreliminaryResult,
    ReasoningDelta,
    Replied,
    Retrying,
    TextDelta,
    TurnEnded,
    Warned,
)

from ..states import Call, text_of
from .terminal import Terminal, styled
from .text import one_line, short, shown_call, value_text, visible

__all__ = ["View"]

STOPS = {
    "length": "the reply was cut off at the model's length limit",
    "content-filter": "the reply was stopped by the server's content filter",
    "refusal": "the model refused",
}
MARKS = {"ok": "✓", "unknown": "?"}


class View:
    """Prints events as they come; knows where the line stands and what of the reply was printed.

    ``prompted``: a prompt stands there.

    Args:
        terminal: where to print.
        interactive: whether a person types at the other end, so that prompts make sense.
    """

    def __init__(self, terminal: Terminal, *, interactive: bool) -> None:
        self.terminal = terminal
        self.interactive = interactive
        self._open = False
        self.prompted = False
        self._printed = ""
        self._attempt: str = ""
        self._thinking = False

    # ---- lines

    def note(self, text: str, *styles: str) -> None:
        """Print something that is not the model's."""
        self._new_line()
        self.terminal.wrapped(text.replace("\n", " "), *(styles or ("dim",)))

    def prompt(self, text: str = "") -> None:
        """Ask for a line: the answer to ``text``, or the next message."""
        self._new_line()
        if not self.interactive:
            return
        if not text:
            self.terminal.line()
            text = "you> "
        self.terminal.write(styled(text, "bold"))
        self.prompted = True

    def typed(self) -> None:
        """A line was typed: the terminal stands at the start of the next one."""
        if self.interactive:
            self._open = self.prompted = False

    def cut(self) -> None:
        """Ctrl-C was typed: the terminal stands behind what it shows of that."""
        self._open, self.prompted = self.interactive, False

    def leave(self) -> None:
        """Nothing more comes on this line."""
        self._new_line()

    def _new_line(self) -> None:
        if self._open or self.prompted:
            self.terminal.line()
        self._open = self.prompted = False

    def _text(self, text: str, *styles: str) -> None:
        if not text:
            return
        if self.prompted:
            self._new_line()
        self.terminal.write(styled(text, *styles))
        self._open = not text.endswith("\n")

    # ---- events

    def show(self, event: Event) -> None:
        """Print an event."""
        match event:
            case TextDelta(text, attempt):
                self._begin(attempt)
                self._text(text if self._printed else text.lstrip())
                self._printed += text
            case ReasoningDelta(attempt=attempt):
                self._begin(attempt)
                if self.interactive and not self._thinking:
                    self.note("(thinking)")
                self._thinking = True
            case Replied(message):
                self._reply(message.text)
            case Retrying():
                self._retry(event)
            case MessageTaken(message=message):
                self.note(f"(joined: {short(text_of(message.parts), 60)})")
            case CallStarted(call):
                self._call("→", shown_call(call), "cyan")
            case CallSettled(call, message):
                self._settled(call, message.results[0].given)
            case PreliminaryResult(call, value):
                self._call(
                    "…", f"{visible(call.tool)} so far: {value if isinstance(value, str) else value_text(value)}", "dim"
                )
            case Warned(text):
                self.note(f"warning: {one_line(text)}", "yellow")
            case Lagged():
                self._printed = ""
            case _:
                pass

    def _begin(self, attempt: str) -> None:
        if attempt != self._attempt:
            self._attempt, self._printed, self._thinking = attempt, "", False

    def _reply(self, text: str) -> None:
        """A reply is complete: print what of it was not seen as it came."""
        if text.startswith(self._printed):
            rest = text[len(self._printed) :]
            self._text(rest if self._printed else rest.lstrip())
        else:
            self.note("(some of it was missed; the whole reply:)")
            self._text(text)
        if text.strip():
            self._new_line()
        self._printed = ""

    def _retry(self, event: Retrying) -> None:
        void = "what came so far is void; " if self._printed.strip() else ""
        self.note(f"({one_line(event.error.message)}; {void}trying again in {event.delay:.1f} s)", "yellow")
        self._printed = ""

    def _call(self, mark: str, text: str, style: str) -> None:
        self._new_line()
        self.terminal.line("  ", styled(short(f"{mark} {text}", self.terminal.width - 2), style))

    def _settled(self, call: Call, text: str) -> None:
        style = {"ok": "green", "unknown": "yellow"}.get(call.status, "red")
        self._call(MARKS.get(call.status, "✗"), f"{visible(call.tool)}: {one_line(text) or '(nothing)'}", style)

    def ended(self, event: TurnEnded, more: str = "") -> None:
        """Print how a turn ended, and what can be done."""
        self._new_line()
        plain_end = event.outcome == "superseded" or event.reason in ("", event.outcome)
        reason = "" if plain_end else f": {one_line(event.reason)}"
        if event.outcome == "completed":
            if event.stop in STOPS:
                self.note(f"({STOPS[event.stop]})", "yellow")
        elif event.outcome == "failed":
            # Without a terminal a failure is told as the command's own.
            if self.interactive:
                self.note(f"failed{reason}", "red")
                if more:
                    self.note(f"({more})")
        else:
            self.note(f"({event.outcome}{reason}{f'; {more}' if more else ''})", "yellow")
