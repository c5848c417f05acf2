"""Asking a person about a call that waits for one: what is printed, what a line means, what the session is told.

A form takes lines until there is something to say. What it gives then is a function that says it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

import attrs

from turnstate_states.errors import InvalidInput

from ..session_handle import SessionHandle
from ..states import Call, Option, Prompt, Receipt
from .asking import described
from .listing import counted
from .terminal import Terminal, styled
from .text import one_line, visible

__all__ = ["Act", "Form", "Menu", "name_of"]

Act = Callable[[SessionHandle, str], Awaitable[Receipt]]
"""Says the answer to the session, in the name of somebody."""
ROWS = 40
"""So many lines of a call are shown to a person before they ask for more: the beginning stays on the screen."""


@attrs.frozen
class Menu:
    """What can be chosen or written in answer to one question."""

    options: Sequence[Option] = ()
    freeform: bool = False
    multiple: bool = False

    def show(self, terminal: Terminal) -> None:
        """Print the options with their numbers."""
        for number, option in enumerate(self.options, 1):
            about = f": {one_line(option.description)}" if option.description else ""
            terminal.wrapped(f"{name_of(option)}{about}", indent="        ", first=f"      {number} ")

    @property
    def numbers(self) -> str:
        """The numbers that can be chosen."""
        last = len(self.options)
        return "1" if last == 1 else f"1-{last}"

    @property
    def hint(self) -> str:
        """How to answer.

        >>> Menu([Option("a"), Option("b")], multiple=True).hint, Menu(freeform=True).hint
        ('1-2, or several such as 1 2', 'your answer')
        """
        if not self.options:
            return "your answer"
        several = ", or several such as 1 2" if self.multiple and len(self.options) > 1 else ""
        return self.numbers + several + (", or your own words" if self.freeform else "")

    def read(self, line: str) -> tuple[list[Option], str]:
        """What was chosen, or what was written.

        >>> Menu([Option("a"), Option("b", label="Two")]).read("two")[0][0].id
        'b'

        Raises:
            InvalidInput: neither.
        """
        chosen = self._chosen(line)
        if len(chosen) > 1 and not self.multiple:
            raise InvalidInput("choose one of them")
        if chosen:
            return chosen, ""
        if not line or (self.options and not self.freeform):
            raise InvalidInput(f"choose {self.hint}" if self.options else "write your answer")
        return [], line

    def _chosen(self, line: str) -> list[Option]:
        for option in self.options:
            if line and line.casefold() in (option.id.casefold(), option.label.casefold()):
                return [option]
        words = re.split(r"[\s,;]+", line.strip(" ,;"))
        if not all(word.isdecimal() and 0 < int(word) <= len(self.options) for word in words):
            return []
        return [self.options[number - 1] for number in dict.fromkeys(map(int, words))]


def name_of(option: Option) -> str:
    """An option as a person calls it."""
    return " ".join((option.label or option.id).split())


class Form(ABC):
    """One call that waits for a person.

    ``stage`` counts the questions in it: when it or ``whole`` changes, there is another one to show. ``whole``: a call that
    is long is shown to its end.

    Args:
        call: the call.
        interactive: whether a person types, who can be asked to say more.
    """

    def __init__(self, call: Call, *, interactive: bool) -> None:
        self.call = call
        self.interactive = interactive
        self.asked = call.prompt or Prompt()
        self.stage: int = 0
        self.whole = not interactive
        self._unseen: int | None = None

    @abstractmethod
    def show(self, terminal: Terminal) -> None:
        """Print the question that is due."""

    @property
    def prompt(self) -> str:
        """What stands before the answer."""
        return f"  [v]iew all first, or {self._way_to_deny} > " if self._unseen and not self._denying else self._prompt

    def take(self, line: str) -> Act | None:
        """What a line says to the session; None if more is to be asked.

        Nothing is approved or answered before all of the call was shown.

        Raises:
            InvalidInput: it is no answer.
        """
        if self._unseen == 0 or self._denying or self._denies(line):
            return self._take(line)
        if line.casefold() in ("v", "view"):
            self.whole = True
            return None
        left = f" ({counted(self._unseen, 'line')} left)" if self._unseen else ""
        raise InvalidInput(f"not all of it was shown yet{left}: v shows all, then answer; or {self._way_to_deny}")

    @property
    @abstractmethod
    def _prompt(self) -> str:
        """What stands before the answer, when all was shown."""

    @abstractmethod
    def _take(self, line: str) -> Act | None:
        """`take`, when all was shown or the line says no."""

    @property
    def _denying(self) -> bool:
        """Whether no was said, and it is asked why."""
        return False

    def _denies(self, line: str) -> bool:
        """Whether a line says no."""
        return False

    @property
    def _way_to_deny(self) -> str:
        return "/deny"

    def deny(self, reason: str) -> Act:
        """Give no answer, and say why not."""
        return lambda session, by: session.deny(self.call, reason=reason, by=by)

    def dismiss(self) -> Act:
        """Close the question without an answer."""
        return lambda session, by: session.answer(self.call, verdict="dismiss", by=by)

    def _head(self, terminal: Terminal, wants: str) -> None:
        call = self.call
        why = f" ({one_line(call.reason)})" if call.reason else ""
        terminal.line("  ", styled(visible(call.tool), "bold", "yellow"), f" {wants}{why}:")
        rows = described(terminal, call)
        self._unseen = 0 if self.whole or len(rows) <= ROWS else len(rows) - ROWS
        for row in rows[: len(rows) - self._unseen]:
            terminal.line(*row)
        if self._unseen:
            terminal.line(styled(f"      … {counted(self._unseen, 'more line')}: v shows all of it", "yellow"))
        if self.asked.text:
            terminal.wrapped(self.asked.text, "bold", indent="    ")

    @property
    def _way_out(self) -> str:
        return "/dismiss" if self.asked.dismissible else "/deny"
