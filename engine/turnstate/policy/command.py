"""A condition on shell commands: every program that a command line runs is one that was named."""

from __future__ import annotations

import re
from typing import Any

import attrs

from turnstate_states.errors import InvalidInput

from .conditions import Condition
from .programs import GIT, OPTIONS, RUNNERS, base_name
from .words import Word, commands

__all__ = ["ShellCommand"]


@attrs.frozen
class _Pattern:
    """A simple command with wildcards: a regular expression for each word; ``rest`` is whether more words may follow."""

    words: tuple[Word, ...]
    rest: bool

    def matches(self, command: list[Word]) -> bool:
        given, wanted = command, self.words
        if len(given) < len(wanted) or (len(given) > len(wanted) and not self.rest):
            return False
        careful = base_name(wanted[0].text) in OPTIONS
        return all(_same(one, word.text) for one, word in zip(wanted, given, strict=False)) and not (
            careful and any(word.text.startswith("-") for word in given[len(wanted) :])
        )


def _same(wanted: Word, text: str) -> bool:
    if not wanted.stars:
        return wanted.text == text
    if 0 in wanted.stars and text.startswith("-"):
        return False
    pieces = [
        wanted.text[start + 1 : end] for start, end in zip((-1, *wanted.stars), (*wanted.stars, None), strict=True)
    ]
    return re.fullmatch(".*".join(map(re.escape, pieces)), text) is not None


class ShellCommand(Condition):
    """A command line of which every simple command fits one of these patterns.

    A pattern is a simple command, compared word by word. ``*`` in a word stands for any text, but a word that begins with
    it for no option (``-x``). As the last word it stands for any number of words, options included. So ``git status`` is
    just that, ``ls *`` may have arguments, and ``cp * /srv/*`` has two.

    Only this is read: words of letters, digits and ``- _ . / : = , + @ %``, text in quotes without ``$``, backquotes,
    backslashes and ``!``, and between commands ``;``, ``&&`` or ``|``. Everything else cannot be told: whatever a shell
    replaces, redirections, ``&``, ``||``, assignments, comments, new lines, characters that are not ASCII.

    Of a program that runs other programs (``env``, ``sh``, ``xargs``, ``python``, ``make``) only whole commands can be
    named, without a wildcard: ``make test``. Of a program with options that run programs or write files (``find``, ``git``,
    ``sort``), the last ``*`` stands for none either: ``find * -name *``, ``git log --oneline *``. For git, the command has to
    be named, and has to be one of its own.

    A rule that denies or asks looks at each simple command: ``rm *`` concerns ``cd /tmp; rm a``. It cannot tell what is run
    by the first kind of these programs, by the second if it is given options, or by a program that is called by its path.
    Other programs are taken at their word, so allow what you know rather than deny what you fear. What a program does with
    its arguments is not judged, nor where paths among them lead.

    >>> check = ShellCommand("git diff *", "wc -l")
    >>> check.fits("git diff main | wc -l"), check.fits("git diff; rm a"), check.fits("git diff > a")
    (True, False, None)

    Raises:
        InvalidInput: there is no pattern, or one that could never fit or would allow everything.
    """

    def __init__(self, *patterns: str) -> None:
        if not patterns:
            raise InvalidInput("ShellCommand: patterns: expected at least one pattern")
        self.patterns = patterns
        self._patterns = tuple(_checked(pattern) for pattern in patterns)

    def fits(self, value: Any) -> bool | None:
        found = commands(value) if isinstance(value, str) else None
        return None if found is None else all(map(self._named, found))

    def touches(self, value: Any) -> bool | None:
        found = commands(value) if isinstance(value, str) else None
        if found is None:
            return None
        if any(map(self._named, found)):
            return True
        return None if any(map(_hides, found)) else False

    def _named(self, command: list[Word]) -> bool:
        return any(pattern.matches(command) for pattern in self._patterns)

    def may_touch(self, other: ShellCommand) -> bool:
        """Whether the other may concern a command line that fits this one."""
        return any(
            _hides(list(one.words)) or any(_share(one, two) for two in other._patterns) for one in self._patterns
        )

    def __repr__(self) -> str:
        return f"ShellCommand({', '.join(map(repr, self.patterns))})"


def _share(one: _Pattern, other: _Pattern) -> bool:
    """Whether a command may fit both; in doubt (two wildcards in one word) True."""
    if (len(one.words) < len(other.words) and not one.rest) or (len(other.words) < len(one.words) and not other.rest):
        return False
    pairs = zip(one.words, other.words, strict=False)
    return all((a.stars and b.stars) or _same(a, b.text) or _same(b, a.text) for a, b in pairs)


def _hides(command: list[Word]) -> bool:
    """Whether a command may run another program than the one that it names."""
    program, *arguments = [word.text for word in command]
    name = base_name(program)
    if "/" in program or name in RUNNERS:
        return True
    if name == "git" and (not arguments or arguments[0] not in GIT):
        return True
    return name in OPTIONS and any(text.startswith("-") for text in arguments)


def _checked(pattern: object) -> _Pattern:
    if not isinstance(pattern, str):
        raise InvalidInput(f"ShellCommand: patterns: expected patterns (text), got {type(pattern).__name__}")
    found = commands(pattern, pattern=True)
    if found is None:
        raise InvalidInput(
            f"ShellCommand: patterns: {pattern!r} fits nothing: expected a program's name, then words of letters, digits and "
            "-_./:=,+@%, * for any text, or text in quotes without $ ` \\ !"
        )
    if len(found) > 1 or pattern.rstrip().endswith(";"):
        raise InvalidInput(
            f"ShellCommand: patterns: {pattern!r} is more than one command; give each as a pattern of its own"
        )
    (words,) = found
    _check_program(pattern, words)
    rest = words[-1].text == "*" and words[-1].stars == (0,)
    return _Pattern(tuple(words[:-1] if rest else words), rest)


def _check_program(pattern: str, words: list[Word]) -> None:
    """Refuse wildcards that would allow any program."""
    name = base_name(words[0].text)
    if not any(word.stars for word in words):
        return
    if name in RUNNERS:
        raise InvalidInput(
            f"ShellCommand: patterns: {pattern!r}: {words[0].text} can run any program or change later commands, so this "
            "would allow everything; name the whole command, without *"
        )
    if name == "git" and words[1].text not in GIT:
        raise InvalidInput(
            f"ShellCommand: patterns: {pattern!r}: name one of git's own commands, as in 'git diff *'; options before "
            "it, aliases and commands that run programs can be given without * only"
        )
