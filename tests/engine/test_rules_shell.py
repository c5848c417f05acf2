"""Conditions on shell commands, checked against shells."""

from __future__ import annotations

import shutil
import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st

from tests.depth import examples
from turnstate import InvalidInput
from turnstate.policy import ShellCommand
from turnstate.policy.programs import GIT, OPTIONS, RUNNERS, base_name
from turnstate.policy.words import commands

SHELLS = [shell for name in ("bash", "dash", "zsh", "ksh") if (shell := shutil.which(name))]

# Everything a text could be made of that means something to a shell, and words to mean it with.
NASTY = [
    *" \t\n\r;&|<>()$`\\\"'!*?[]{}~#=%^,:@+-./_\x00\x0b\x0c\x1b\x7f\u00a0\u2028\u3000\uff1b\uff04\u200b\u0430é",
    *[
        "echo",
        "rm",
        "a",
        "b",
        "1",
        "2",
        "x",
        "in",
        "do",
        "env",
        "eval",
        "time",
        "$(",
        "${",
        "$((",
        "))",
        "$'",
        "<<",
        "<(",
    ],
    *['"`rm b`"', '"$(rm b)"', '"\\', "[a]", '"$x"', "'$x'", "?", "*"],
    *["&&", "||", ";;", "|&", ">&", ">|", "!!", "[[", "]]", "'a b'", '"a b"', "echo ", " echo ", "; echo ", "| echo "],
    *[
        "&& echo ",
        "A=1 ",
        "PATH=. ",
        "a=b",
        "-n",
        "-e",
        "\\n",
        "\r\n",
        "+(a)",
        "@(a)",
        "{a,b}",
        "~/a",
        "=ls",
        "coproc ",
    ],
]
HARMLESS = [
    *["echo", "echo ", " ", "  ", ";", "; ", " ;", "&&", " && ", "|", " | ", "; echo ", " | echo ", "&&echo ", "'a b'"],
    *[
        '"c;d"',
        "'|'",
        "'&'",
        '"#"',
        "'~'",
        "'*'",
        '"{a,b}"',
        "'>x'",
        "''",
        '""',
        "a",
        "a=b",
        "-n",
        "=",
        "%1",
        "1",
        "/",
        ".",
    ],
    *["^", ":", "@", "+", ",", "'\"'", '"\'"', "'(' ", "in", "do", "time", "'['"],
]
# A third is made of what is allowed, a third of anything, and a third is the one with something of the other in it.
TEXTS = st.one_of(
    st.lists(st.sampled_from(HARMLESS), max_size=14).map("".join),
    st.lists(st.sampled_from(NASTY), max_size=14).map("".join),
    st.tuples(
        st.lists(st.sampled_from(HARMLESS), max_size=8).map("".join),
        st.sampled_from(NASTY) | st.characters(codec="utf-8"),
        st.lists(st.sampled_from(HARMLESS), max_size=8).map("".join),
    ).map("".join),
).map(lambda text: f"echo {text}")


def traced(shell: str, text: str, folder: Path) -> list[list[str]] | None:
    """The commands that a shell runs for a text, each by its words; None if it prints anything, a complaint for example.

    There is no program to find, and ``echo`` is a function that notes what it is given, words and commands separated by
    characters that no text has.
    """
    note = folder / "noted"
    for path in (note, folder / "a", folder / "x"):  # for wildcards
        path.write_bytes(b"")
    # One write for each command, as those of a pipe run side by side.
    program = f"echo () {{ printf '%s\\037' echo \"$@\" '\x1e' >>{note}; }}\n{text}"
    options = ["--norc", "--noprofile"] if shell.endswith("bash") else ["-f"] if shell.endswith("zsh") else []
    done = subprocess.run(
        [shell, *options, "-c", program, "sh"],
        env={"PATH": "/nowhere", "HOME": "/nowhere", "LC_ALL": "C.UTF-8"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    if done.stderr or done.stdout:
        return None
    return [command.split("\x1f")[:-1] for command in note.read_bytes().decode().split("\x1e\x1f")[:-1]]


@pytest.mark.parametrize("shell", SHELLS)
@examples(600, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_a_shell_runs_what_was_read(shell: str, tmp_path: Path, text: str) -> None:
    """What fits ``echo *`` makes a real shell run just those commands with just those words, and nothing else."""
    if not ShellCommand("echo *").fits(text):
        return
    read = [[word.text for word in command] for command in commands(text) or []]
    ran = traced(shell, text, tmp_path)
    assert ran is not None
    assert sorted(ran) == sorted(read)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "noted", "x"]
    event("fits")


def test_the_tracing_sees_what_is_hidden(tmp_path: Path) -> None:
    """The comparison with a shell would show each way to run or write something else."""
    for shell in SHELLS:
        ran = traced(shell, "echo a 'b c' | echo d; echo", tmp_path) or []
        assert sorted(ran) == [["echo"], ["echo", "a", "b c"], ["echo", "d"]]
        for text in ("echo $(rm b)", "echo ${x:-$(rm b)}", "echo `rm b`", "rm b", "echo a &\nrm", "FOO=1 rm"):
            assert traced(shell, text, tmp_path) is None
        assert traced(shell, "echo a\\ b", tmp_path) == [["echo", "a b"]]
        traced(shell, ">new", tmp_path)
        assert (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "text",
    [
        *[
            f"echo {quote}{text}{quote}"
            for quote in "'\""
            for text in ("`b`", "$(b)", "a\\b", "\\", "!!", "a\nb", "\t", "é", "\x1b")
        ],
        *['echo ""=ls', "echo ''=ls", "''=ls", "echo '=ls'", "echo " + "a" * 40_000],
        *[
            "echo ${x:-$(rm b)}",
            "echo $(rm b)",
            "echo `rm b`",
            "echo $x",
            'echo "$x"',
            "echo '$x'",
            "echo $'a'",
            'echo $"a"',
        ],
        *[
            "echo a > b",
            "echo a >> b",
            "echo < b",
            "echo a 2>&1",
            "cat <<E",
            "echo <(rm b)",
            "echo >(rm b)",
            "echo a &",
        ],
        *[
            "echo a || rm b",
            "echo a |& rm b",
            "echo a\nrm b",
            "echo a\rrm b",
            "echo\ta",
            "echo a # b",
            "echo a\\",
            "echo \\a",
        ],
        *[
            "A=1 echo",
            "A= echo",
            "PATH=/tmp echo a",
            '"A=1" echo',
            "a+=1 echo",
            "echo *",
            "echo ?",
            "echo [a]",
            "echo ~",
        ],
        *["echo {a,b}", "(echo a)", "{ echo a; }", "! echo a", "echo !!", "echo a;;", "; echo a", "echo a | | echo b"],
        *[
            "echo a &&",
            "&& echo a",
            "| echo",
            "",
            " ",
            "''",
            "'' a",
            "'echo",
            'echo "a',
            "%1",
            "=echo",
            "echo =ls",
            "-a",
        ],
        *[
            "echo a\x00b",
            "echo\u00a0a",
            "echo a\uff1b rm b",
            "\u0435cho a",
            "echo 'é'",
            "echo a\x0bb",
            "echo \x1b[0m",
            "echo a\x7f",
        ],
        *[
            "if true",
            "f() { rm b; }",
            "[[ -n a ]]",
            "((1))",
            "echo a; # b",
            "'ec\nho' a",
            "echo 'a\nb'",
            "echo \\a",
            "echo a\x7f",
        ],
    ],
)
def test_what_is_not_read(text: str) -> None:
    """Whatever is outside the few forms that are read cannot be told, for what allows and for what denies."""
    check = ShellCommand("echo *", "rm *", "true", "cat *")
    if text not in ("if true",):  # a word of the shell's language is read, and named by no pattern
        assert commands(text) is None
        assert (check.fits(text), check.touches(text)) == (None, None)
    assert check.fits(text) is not True
    assert check.touches(text) is not False


def test_every_character() -> None:
    """A character that is not named as allowed makes a text unreadable, alone and in quotes."""
    plain = set(string.ascii_letters + string.digits + "-_./:=,+@%")
    quoted = plain | set(" #&()*;<>?[]^{|}~")
    for code in (*range(0x3100), 0xFEFF, 0xFF04, 0xFF1B, 0xD800, 0x1F600, 0x10FFFF):
        character = chr(code)
        if character not in " ;|'\"":
            assert (commands(f"echo a{character}b") is not None) == (character in plain)
        for quote, other in ("'\"", "\"'"):
            if character != quote:
                assert (commands(f"echo {quote}a{character}b{quote}") is not None) == (character in quoted | {other})
    assert [
        commands(f"echo a{operator}echo b") is not None for operator in (";", "&&", "|", "&", "||", "|&", "&;")
    ] == [
        *[True] * 3,
        *[False] * 4,
    ]


@pytest.mark.parametrize("value", [None, True, 5, ["echo", "a"], {"echo": "a"}])
def test_what_is_no_text(value: object) -> None:
    """A value that is not text is no command line that could be told."""
    assert (ShellCommand("echo *").fits(value), ShellCommand("echo *").touches(value)) == (None, None)


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        (
            "git status",
            ["git status", "git  status ", "'git' \"status\";", "git st'at'us"],
            ["git status -s", "git", "Git status"],
        ),
        ("ls *", ["ls", "ls -l a", "ls '*'", "ls; ls a"], ["lsof", "/bin/ls", "./ls", "ls a && rm b", "env ls"]),
        ("ls *.py *", ["ls a.py", "ls a.py b", "ls '.py'"], ["ls", "ls b a.py", "ls a.pyc"]),
        ("cp * /srv/*", ["cp a /srv/b", "cp a /srv/"], ["cp a b", "cp a b /srv/c", "cp -t /srv/a"]),
        ("'ls' '*'", ["ls '*'"], ["ls a", "ls"]),
        ("make test", ["make test"], ["make", "make test all"]),
        (
            "find * -name *",
            ["find . -name a", "find a -name '*.py'"],
            ["find . -exec rm", "find . -name a -delete"],
        ),
        (
            "git log --oneline *",
            ["git log --oneline", "git log --oneline a b"],
            ["git log --oneline --output=a", "git -c a log"],
        ),
        ("sort -u *", ["sort -u a"], ["sort -u --compress-program=rm a", "sort -u -o a b"]),
        ("a.b/c-d *", ["a.b/c-d e"], ["aXb/c-d e"]),
    ],
)
def test_patterns(pattern: str, fitting: list[str], others: list[str]) -> None:
    """A pattern is compared word by word, case counts, and a wildcard of a program that runs others takes no options."""
    check = ShellCommand(pattern)
    assert [text for text in fitting if check.fits(text) is not True] == []
    assert [text for text in others if check.fits(text) is not False] == []


def test_any_part_of_a_command_line() -> None:
    """What denies sees each command of a line, and cannot tell what is hidden in one that runs others."""
    check = ShellCommand("rm *")
    assert check.touches("cd /tmp; rm a") is True
    assert check.touches("ls | wc -l && rm") is True
    for text in ("ls -l; wc a", "git log main | sort", "find ."):
        assert check.touches(text) is False
    for text in (
        "env rm a",
        "find . -delete",
        "/bin/rm a",
        "./rm a",
        "python3.11 -c a",
        "git x",
        "ls; sudo rm a",
        "ENV a",
    ):
        assert check.touches(text) is None


def test_what_runs_other_programs_is_named_whole() -> None:
    """No wildcard for arguments of what runs other programs, by whatever path, version and case it is called."""
    for program in RUNNERS:
        _named_whole(program)


def _named_whole(program: str) -> None:
    names = [program, f"/usr/bin/{program}", f"{program}3.11", program.upper()]
    for name in names:
        with pytest.raises(InvalidInput):
            ShellCommand(f"{name} *")
        with pytest.raises(InvalidInput):
            ShellCommand(f"{name} a*")
        assert ShellCommand("ls *").touches(f"{name} a") is None
    if commands(program):
        assert ShellCommand(f"{program} a").fits(f"{program} a") is True
        assert ShellCommand(f"{program} a").fits(f"{program} b") is False


def test_what_runs_other_programs_by_an_option() -> None:
    """A wildcard stands for no option of what runs other programs by one, and for all the rest."""
    for program in OPTIONS - {"git"}:
        _without_options(program)


def _without_options(program: str) -> None:
    check = ShellCommand(f"{program} *")
    assert check.fits(f"{program} a b") is True
    assert check.fits(f"{program} a -x b") is False
    assert check.fits(f"{program} a '-x' b") is False
    assert ShellCommand(f"{program} *a").fits(f"{program} -a") is False
    assert ShellCommand(f"{program} -x* *").fits(f"{program} -xa b") is True


def test_the_lists_are_apart() -> None:
    """Each program is in one list, and in the form in which it is looked up."""
    assert not RUNNERS & OPTIONS
    for name in RUNNERS | OPTIONS:
        assert base_name(name) == name
    for name in ("bisect", "submodule", "config", "difftool", "mergetool", "filter-branch", "rebase", "c", "hook"):
        assert name not in GIT


@pytest.mark.parametrize(
    "pattern",
    [
        *[
            "",
            " ",
            "*",
            "* a",
            "l*",
            "echo $x",
            "echo > a",
            "echo a; echo b",
            "echo a;",
            "echo a | wc",
            "A=1 *",
            "echo [a]",
        ],
        *[
            "echo 'a",
            "~/a",
            "echo\ta",
            "éa",
            "git *",
            "git -c *",
            "git g*",
            "git bisect *",
            "git lg *",
            "''",
            "echo a\n",
        ],
    ],
)
def test_patterns_that_make_no_sense(pattern: str) -> None:
    """A pattern that could never fit, or would allow everything, is refused where it is written."""
    with pytest.raises(InvalidInput, match="ShellCommand"):
        ShellCommand(pattern)
