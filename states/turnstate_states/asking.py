"""What a person is asked about a call beyond yes or no, and what their answer means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import attrs

from . import checks
from .content import clean_text
from .errors import InvalidInput
from .submissions import Answer
from .values import Value

__all__ = ["Option", "Prompt", "Question", "meaning"]

Display = Literal["decision", "select", "text", "questions"]
DISPLAY: Any = checks.validator(checks.choice, choices=get_args(Display))
FLAG = checks.validator(checks.flag)
KINDS: Mapping[str, tuple[Literal["approve", "deny"], bool]] = {
    "allow-once": ("approve", False),
    "allow-always": ("approve", True),
    "reject-once": ("deny", False),
    "reject-always": ("deny", False),
}


def _kind(_: object, field: attrs.Attribute[Any], value: object) -> None:
    kind = checks.text("Option.kind", value)
    if kind not in KINDS and not (kind.startswith("_") and len(kind) > 1):
        raise InvalidInput(
            f"Option.kind: expected {', '.join(KINDS)} or a word of yours that begins with _, got {checks.shown(value)}"
        )


def _label(value: str) -> str:
    return _clean("label", value)


def _description(value: str) -> str:
    return _clean("description", value)


def _text(value: str) -> str:
    return _clean("text", value)


def _clean(where: str, value: object) -> str:
    return clean_text(checks.instance(where, value, str, "text"))


@attrs.frozen(eq=False, repr=False)
class Option(Value):
    """One of several answers to choose from.

    ``kind`` says what choosing it means: ``allow-once``, ``allow-always`` (also for the rest of the session),
    ``reject-once``, ``reject-always``; or a word of the host's own that begins with ``_``, which needs an explicit verdict
    beside it.
    """

    id: str = attrs.field(validator=checks.validator(checks.text))
    kind: str = attrs.field(default="allow-once", validator=_kind)
    label: str = attrs.field(default="", converter=_label)
    description: str = attrs.field(default="", converter=_description)


def _options(value: Iterable[Option]) -> tuple[Option, ...]:
    return checks.array("options", value, Option, "Option objects")


@attrs.frozen(eq=False, repr=False)
class Question(Value):
    """One of several questions: options to choose one of (or some, with ``multiple``), or free text."""

    id: str = attrs.field(validator=checks.validator(checks.text))
    text: str = attrs.field(converter=_text)
    options: tuple[Option, ...] = attrs.field(default=(), converter=_options)
    multiple: bool = attrs.field(default=False, validator=FLAG)
    freeform: bool = attrs.field(default=False, validator=FLAG)


def _questions(value: Iterable[Question]) -> tuple[Question, ...]:
    return checks.array("questions", value, Question, "Question objects")


@attrs.frozen(eq=False, repr=False)
class Prompt(Value):
    """How a person is asked about a call.

    Args:
        text: the question.
        options: answers to choose from.
        display: ``decision`` (whether the call may run), or a question whose answer the tool reads: ``select`` an option,
            write a ``text``, answer the ``questions``.
        freeform: a text may be written besides.
        dismissible: it may be closed without an answer.
        questions: for ``display="questions"``.

    Raises:
        InvalidInput: ids are not unique, or a value is of another type; the text names it.
    """

    text: str = attrs.field(default="", converter=_text)
    options: tuple[Option, ...] = attrs.field(default=(), converter=_options)
    display: Display = attrs.field(default="decision", validator=DISPLAY)
    freeform: bool = attrs.field(default=False, validator=FLAG)
    dismissible: bool = attrs.field(default=False, validator=FLAG)
    questions: tuple[Question, ...] = attrs.field(default=(), converter=_questions)

    def __attrs_post_init__(self) -> None:
        for what, things in (("options", self.options), ("questions", self.questions)):
            names = [thing.id for thing in things]
            if len(set(names)) != len(names):
                raise InvalidInput(f"Prompt.{what}: two have the same id")


PLAIN = Prompt()
Meaning = tuple[Literal["approve", "deny"], bool, str]
"""The verdict, whether it holds for the session, and the reason that the answer itself gives."""


def meaning(prompt: Prompt | None, answer: Answer) -> Meaning:
    """What an answer to a prompt means.

    A text alone never authorises anything: it answers a question, and a decision needs a verdict or an option.

    Raises:
        InvalidInput: it does not fit what was asked.

    >>> meaning(Prompt(options=(Option("y", "allow-always"),)), Answer("a1", ("m1.0",), "", option="y"))
    ('approve', True, '')
    """
    asked = prompt or PLAIN
    if answer.verdict == "dismiss":
        return _dismissed(asked, answer)
    verdict, always = _by_option(asked, answer)
    if answer.text:
        _check_text(asked)
    if answer.answers:
        _check_answers(asked, answer.answers)
    if not verdict:
        answered = bool(answer.answers) or (bool(answer.text) and asked.display in ("select", "text"))
        if not answered:
            raise InvalidInput("verdict: say approve or deny, or choose an option; a text alone decides nothing")
        verdict = "approve"
    if verdict == "approve" and asked.display == "questions" and not answer.answers:
        raise InvalidInput("answers: answer the questions, or deny")
    return verdict, always or answer.for_session, ""


def _dismissed(asked: Prompt, answer: Answer) -> Meaning:
    if not asked.dismissible:
        raise InvalidInput("verdict: this request cannot be dismissed; approve or deny it")
    if answer.option or answer.text or answer.answers:
        raise InvalidInput("verdict: a dismissal has no answer")
    return "deny", False, "the user dismissed the question"


def _by_option(asked: Prompt, answer: Answer) -> tuple[Literal["approve", "deny", ""], bool]:
    said: Literal["approve", "deny", ""] = answer.verdict if answer.verdict in ("approve", "deny") else ""
    if not answer.option:
        return said, False
    chosen = next((option for option in asked.options if option.id == answer.option), None)
    if chosen is None:
        raise InvalidInput(f"option: expected one of {_names(asked.options)}, got {answer.option!r}")
    if chosen.kind not in KINDS:
        if not said:
            raise InvalidInput(
                f"verdict: the option {chosen.id} is of the kind {chosen.kind}; say approve or deny beside it"
            )
        return said, False
    verdict, always = KINDS[chosen.kind]
    if said and said != verdict:
        raise InvalidInput(f"verdict: the option {chosen.id} means {verdict}, not {said}")
    return verdict, always


def _names(options: Iterable[Option]) -> str:
    return ", ".join(option.id for option in options) or "none, as there are no options"


def _check_text(asked: Prompt) -> None:
    if asked.display != "text" and not asked.freeform:
        raise InvalidInput("text: no text was asked for")


def _check_answers(asked: Prompt, answers: Mapping[str, Any]) -> None:
    if asked.display != "questions":
        raise InvalidInput("answers: no questions were asked")
    questions = {question.id: question for question in asked.questions}
    for name in answers:
        if name not in questions:
            raise InvalidInput(f"answers: there is no question {name!r}")
    for name, question in questions.items():
        if name not in answers:
            raise InvalidInput(f"answers.{name}: not answered")
        _check_one(question, answers[name])


def _check_one(question: Question, given: Any) -> None:
    where = f"answers.{question.id}"
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where}: expected options or text, got {type(given).__name__}")
    options, text = given.get("options", ()), given.get("text", "")  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    if isinstance(options, str) or not isinstance(options, (list, tuple)) or not isinstance(text, str):
        raise InvalidInput(f"{where}: expected a list of option ids and a text")
    chosen = [str(name) for name in options]  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    known = {option.id for option in question.options}
    if not known.issuperset(chosen) or len(set(chosen)) != len(chosen):
        raise InvalidInput(f"{where}: expected each of {_names(question.options)} at most once")
    if len(chosen) > 1 and not question.multiple:
        raise InvalidInput(f"{where}: choose one option")
    if text and not (question.freeform or not question.options):
        raise InvalidInput(f"{where}: no text was asked for")
    if not chosen and not text:
        raise InvalidInput(f"{where}: not answered")
