"""The arguments that the command takes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, NoReturn

from .places import default_db, home_short
from .streams import Console

__all__ = ["Ended", "make_parser"]

Run = Callable[[argparse.Namespace, Console], int]

ABOUT = """\
Run LLM agent turns that survive a crash.

Start with `turnstate demo`: it needs no network and no key. Then talk to a model
server of your own with `turnstate chat`.
"""
CODES = "Exit codes: 0 done, 1 failed, 2 used wrongly, 130 interrupted."

DEMO = """\
An agent in a process of its own charges a card. You answer for it, its process is
killed in the middle of the charge, and a new process goes on with the same file.
Everything is real but the model, which follows a script.
"""
CHAT = """\
Talk to a model: behind any server that speaks Chat Completions, or at OpenAI, Anthropic
or Google. It may list and read files below the current directory; it asks you before it
reads one that may hold a secret, such as .env, and before it writes one.

A line typed while it works joins the running turn. Ctrl-C interrupts the turn, a second
one leaves; Ctrl-D leaves. Everything said is stored: come back with --session.

A line that begins with a slash is a command: /edit says a message otherwise, /retry has
one answered again, /branch shows the other branches, /fork and /open go to another
session; /help lists them all.
"""
CHAT_MORE = """\
Without a terminal each line of the input is a message, or the answer where the model
needs approval; at its end what is still asked is denied.

examples:
  turnstate chat --base-url http://localhost:8000/v1 --model qwen3
  echo "Which files are here?" | turnstate chat --base-url http://localhost:8000/v1 --model qwen3
"""
DECODE = """\
Read recorded bodies of a provider, streamed or not, and print what each of them says: one
JSON object a line, with text, refusal, reasoning, calls (arguments as the model sent them),
stop, raw_stop, usage and error.
"""
DECODE_MORE = """\
Exit codes: 0 each is a reply, 1 at least one is an error (or cannot be read), 2 used wrongly.

examples:
  turnstate decode chat answer.sse
  curl -sN https://... | turnstate decode gemini -
"""


class Ended(Exception):
    """There is nothing to run, only a text to print: help with code 0, a line that says what is wrong with code 2."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class _Parser(argparse.ArgumentParser):
    """Prints nothing itself; says what is wrong in one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(add_help=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self.color = False  # newer versions of Python would write codes of their own
        self.add_argument("-h", "--help", action=_Print, text=self.format_help, help="show this help message and exit")

    def error(self, message: str) -> NoReturn:
        raise Ended(2, f"turnstate: {message} (see {self.prog} --help)")


class _Print(argparse.Action):
    """An option that prints a text in place of running a command."""

    def __init__(self, option_strings: Sequence[str], dest: str, text: Callable[[], str], help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)
        self._text = text

    def __call__(self, *given: object) -> NoReturn:
        raise Ended(0, self._text())


def make_parser() -> argparse.ArgumentParser:
    """The parser; each command sets ``run``, a function of the parsed arguments and the console that gives the exit code.

    Parsing raises `Ended` where there is nothing to run.
    """
    parser = _Parser(prog="turnstate", description=ABOUT, epilog=CODES)
    parser.add_argument(
        "--version",
        action=_Print,
        text=lambda: f"turnstate {version('turnstate')}\n",
        help="show program's version number and exit",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands")
    _add_demo(commands)
    _add_chat(commands)
    _add_sessions(commands)
    _add_show(commands)
    _add_diagram(commands)
    _add_decode(commands)
    return parser


def _command(commands: Any, name: str, brief: str, about: str, run: Run, epilog: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=brief,
        description=about,
        epilog=epilog,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def _add_demo(commands: Any) -> None:
    def run(arguments: argparse.Namespace, console: Console) -> int:
        from .demo import demo

        return demo(arguments, console)

    parser = _command(commands, "demo", "see a turn survive SIGKILL, offline", DEMO, run)
    parser.add_argument("--yes", "-y", action="store_true", help="answer by itself (as it does without a terminal)")
    parser.add_argument(
        "--crash", action="store_true", help="stop after the kill; the next `turnstate demo` goes on from there"
    )
    parser.add_argument("--source", action="store_true", help="print the program that runs, and end")
    parser.add_argument("--keep", action="store_true", help="keep the files and say where they are")
    parser.add_argument("--db", metavar="FILE", help="use this SQLite file and keep it (default: a temporary one)")


MODEL_HELP = """its name on a server that speaks Chat Completions; or openai:NAME (Responses), anthropic:NAME, gemini:NAME,
http://HOST:PORT/v1#NAME"""
URL_HELP = """where the server is, such as http://localhost:8000/v1 (default: the provider's variable, such as
$OPENAI_BASE_URL, then the provider's own)"""
KEY_HELP = "default: the provider's variable, such as $OPENAI_API_KEY; without one none is sent"


def _add_chat(commands: Any) -> None:
    def run(arguments: argparse.Namespace, console: Console) -> int:
        from .chat import chat

        return chat(arguments, console)

    parser = _command(commands, "chat", "talk to a model in this terminal", CHAT, run, CHAT_MORE)
    parser.add_argument("--model", metavar="NAME", required=True, help=MODEL_HELP)
    parser.add_argument("--base-url", metavar="URL", help=URL_HELP)
    parser.add_argument("--api-key", metavar="KEY", help=KEY_HELP)
    parser.add_argument("--session", metavar="ID", help="go on with this session, or give a new one its name")
    parser.add_argument(
        "--import", metavar="FILE", dest="imported", help="begin a new session with what /export wrote to this file"
    )
    parser.add_argument("--instructions", metavar="TEXT", help="what the model is told first")
    parser.add_argument("--no-tools", action="store_true", help="for servers that refuse tools")
    _add_db(parser)


def _add_sessions(commands: Any) -> None:
    def run(arguments: argparse.Namespace, console: Console) -> int:
        from .listing import sessions

        return sessions(arguments, console)

    parser = _command(commands, "sessions", "list the stored sessions", "List the stored sessions.", run)
    parser.add_argument("--waiting", action="store_true", help="only those in which a person must answer")
    parser.add_argument("--unfinished", action="store_true", help="only those with a turn that has not ended")
    parser.add_argument("--search", metavar="TEXT", default="", help="only those with this text in their title")
    parser.add_argument("--archived", action="store_true", help="those that are archived, in place of the others")
    parser.add_argument("--recent", action="store_true", help="what changed last comes first")
    _add_db(parser)


def _add_show(commands: Any) -> None:
    def run(arguments: argparse.Namespace, console: Console) -> int:
        from .show import show

        return show(arguments, console)

    about = "Print a session: what was said, where it stands, what is open, what it used."
    parser = _command(commands, "show", "print one session", about, run)
    parser.add_argument("session", metavar="SESSION", help="its id, see `turnstate sessions`")
    _add_db(parser)


def _add_diagram(commands: Any) -> None:
    def run(arguments: argparse.Namespace, console: Console) -> int:
        from .diagram import diagram

        return diagram(arguments.format, console)

    about = "Print the diagram of a turn's states, drawn from the machine that runs."
    parser = _command(commands, "diagram", "print the state machine", about, run)
    parser.add_argument(
        "--format", choices=["mermaid", "svg"], default="mermaid", help="default: mermaid; svg needs Graphviz"
    )


def _add_decode(commands: Any) -> None:
    def run(arguments: argparse.Namespace, console: Console) -> int:
        from .decode import decode

        return decode(arguments, console)

    parser = _command(commands, "decode", "read a recorded answer of a provider", DECODE, run, DECODE_MORE)
    # The names are written here because reading them from the decoders would load these for every command.
    parser.add_argument("protocol", metavar="PROTOCOL", choices=["chat", "responses", "messages", "gemini"])
    parser.add_argument("files", metavar="FILE", nargs="+", help="a recorded body; - for the standard input")


def _add_db(parser: argparse.ArgumentParser) -> None:
    shown = home_short(default_db()).replace("%", "%%")
    parser.add_argument("--db", metavar="FILE", help=f"the SQLite file (default: {shown})")
