"""The forms for the kinds of questions: a decision, one question, several."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnstate_states.asking import KINDS
from turnstate_states.errors import InvalidInput

from ..states import Call, Option, Verdict
from .asking import edited, understood
from .chat_form import Act, Form, Menu, name_of
from .terminal import Terminal
from .text import value_text, visible

__all__ = ["form_for"]

CHOICES = "[y]es  [n]o, why  [e]dit  [a]lways > "
HINT = "answer y, n REASON, e NAME=VALUE or a (always: this tool with these arguments, in this session)"


class Decision(Form):
    """Whether a call may run: yes, no and why, with other arguments, always; or one of the options of its prompt."""

    def __init__(self, call: Call, *, interactive: bool) -> None:
        super().__init__(call, interactive=interactive)
        self._menu = Menu(self.asked.options)
        self._more = ""
        self._option: Option | None = None
        self._text = ""

    def show(self, terminal: Terminal) -> None:
        self._head(terminal, "wants to run")
        self._menu.show(terminal)

    @property
    def _prompt(self) -> str:
        if self._more == "why":
            return "  why not? (Enter: no reason) > "
        if self._more == "change":
            name = next(iter(self.call.arguments), "name")
            given = value_text(self.call.arguments.get(name, "value"))
            example = f"{visible(name)}={given if len(given) < 30 else '...'}"
            return f"  change what? (such as {example}; Enter: nothing) > "
        if self._more == "runs":
            return "  does it run then? [y]es  [n]o > "
        numbers = f"{self._menu.numbers}, or " if self._menu.options else ""
        dismiss = "/dismiss  " if self.asked.dismissible else ""
        return f"  {numbers}{CHOICES.replace('> ', '')}{dismiss}> "

    def _denies(self, line: str) -> bool:
        said = understood(line)
        return said is not None and said.verdict == "no"

    @property
    def _denying(self) -> bool:
        return self._more == "why"

    @property
    def _way_to_deny(self) -> str:
        return "[n]o, why"

    def _take(self, line: str) -> Act | None:
        if self._more == "change" and line:
            return self._changed(line)
        more, self._more = self._more, ""
        if more == "change":
            return None
        if more == "why":
            return self.deny(line)
        if more == "runs":
            return self._run_or_not(line)
        return self._by_number(line) if self._numbered(line) else self._by_word(line)

    def _numbered(self, line: str) -> bool:
        word = line.split(maxsplit=1)[0] if line else ""
        return word.isdecimal() and 0 < int(word) <= len(self._menu.options)

    def _by_number(self, line: str) -> Act | None:
        number, _, rest = line.partition(" ")
        self._option, self._text = self._menu.options[int(number) - 1], rest.strip()
        if self._option.kind not in KINDS:
            self._more = "runs"
            return None
        return self._chosen("")

    def _chosen(self, verdict: Verdict) -> Act:
        option, rest = self._option, self._text
        assert option is not None, "a form of options has the chosen one"
        text, reason = (rest, "") if self.asked.freeform else ("", rest)
        return lambda session, by: session.answer(
            self.call, option=option.id, text=text, reason=reason, verdict=verdict, by=by
        )

    def _run_or_not(self, line: str) -> Act:
        said = understood(line)
        if said is None or said.verdict not in ("yes", "no"):
            self._more = "runs"
            raise InvalidInput("answer y or n")
        return self._chosen("approve" if said.verdict == "yes" else "deny")

    def _by_word(self, line: str) -> Act | None:
        words = re.match(r"(?:y|yes)[\s,;:]+(.+)", line, re.IGNORECASE)
        if words and self.asked.freeform:
            return lambda session, by: session.answer(self.call, verdict="approve", text=words[1], by=by)
        said = understood(line)
        if said is None:
            raise InvalidInput(f"choose {self._menu.numbers}, or {HINT}" if self._menu.options else HINT)
        if said.verdict == "no" and (said.rest or not self.interactive):
            return self.deny(said.rest)
        if said.verdict == "no":
            self._more = "why"
            return None
        if said.verdict == "edit":
            self._more = "" if said.rest else "change"
            return self._changed(said.rest)
        always = said.verdict == "always"
        return lambda session, by: session.approve(self.call, for_session=always, by=by)

    def _changed(self, line: str) -> Act | None:
        """Let it run with other arguments; nothing is said if there are none."""
        if not line:
            return None
        arguments = edited(self.call, line)
        return lambda session, by: session.approve(self.call, arguments=arguments, by=by)


class Question(Form):
    """One question whose answer the tool reads, or is: options, a text, or both."""

    def __init__(self, call: Call, *, interactive: bool) -> None:
        super().__init__(call, interactive=interactive)
        text = self.asked.display != "select"
        options = () if self.asked.display == "decision" else self.asked.options
        self._menu = Menu(options, text or self.asked.freeform)

    def show(self, terminal: Terminal) -> None:
        self._head(terminal, "asks you")
        self._menu.show(terminal)

    @property
    def _prompt(self) -> str:
        return f"  {self._menu.hint}, or {self._way_out} > "

    def _take(self, line: str) -> Act:
        chosen, text = self._menu.read(line)
        option = chosen[0] if chosen else None
        if self.call.wants == "result":
            result = text if option is None else name_of(option)
            return lambda session, by: session.provide(self.call, result, by=by)
        own = option is not None and option.kind not in KINDS
        name = "" if option is None else option.id
        return lambda session, by: session.answer(
            self.call, option=name, text=text, verdict="approve" if own else "", by=by
        )


class Questions(Form):
    """Several questions, one after the other; the answers are given together."""

    def __init__(self, call: Call, *, interactive: bool) -> None:
        super().__init__(call, interactive=interactive)
        self._answers: dict[str, tuple[list[Option], str]] = {}

    @property
    def _menu(self) -> Menu:
        question = self.asked.questions[self.stage]
        return Menu(question.options, question.freeform or not question.options, question.multiple)

    def show(self, terminal: Terminal) -> None:
        if not self.stage:
            self._head(terminal, "asks you")
        text = self.asked.questions[self.stage].text or self.asked.questions[self.stage].id
        terminal.wrapped(f"{self.stage + 1}/{len(self.asked.questions)} {text}", "bold", indent="    ")
        self._menu.show(terminal)

    @property
    def _prompt(self) -> str:
        return f"  {self._menu.hint}, or {self._way_out} > "

    def _take(self, line: str) -> Act | None:
        self._answers[self.asked.questions[self.stage].id] = self._menu.read(line)
        if self.stage + 1 < len(self.asked.questions):
            self.stage += 1
            return None
        if self.call.wants == "result":
            result = self._result()
            return lambda session, by: session.provide(self.call, result, by=by)
        answers = {
            name: {"options": [option.id for option in chosen], "text": text}
            for name, (chosen, text) in self._answers.items()
        }
        return lambda session, by: session.answer(self.call, answers=answers, by=by)

    def _result(self) -> Mapping[str, Any]:
        """The answers as a result that a model reads."""
        multiple = {question.id for question in self.asked.questions if question.multiple}
        found: dict[str, Any] = {}
        for name, (chosen, text) in self._answers.items():
            names = [name_of(option) for option in chosen]
            found[name] = text or (names if name in multiple else names[0])
        return found


def form_for(call: Call, *, interactive: bool) -> Form:
    """The form for a call that waits."""
    display = "decision" if call.prompt is None else call.prompt.display
    if display == "questions" and call.prompt is not None and call.prompt.questions:
        return Questions(call, interactive=interactive)
    if call.wants == "result" or display in ("select", "text"):
        return Question(call, interactive=interactive)
    return Decision(call, interactive=interactive)
