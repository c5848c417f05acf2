"""The entry point: parse, run, and say in one line what went wrong."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import TextIO, cast

from turnstate_states.errors import InvalidInput, TurnstateError

from ..failures import only
from .parser import make_parser

__all__ = ["main"]

OK, FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: the arguments, by default those of the process.

    Returns:
        The exit code: 0 done, 1 failed, 2 used wrongly, 130 interrupted.
    """
    _prepare_streams()
    # What a log would say is told by the commands themselves, where it belongs.
    log = logging.getLogger("turnstate")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BaseException as error:
        known = _explain(only(error))
        if known is None:
            raise
        return known
    return code


def _run(argv: Sequence[str]) -> int:
    parser = make_parser()
    if not argv:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:
        return cast(int, end.code or OK)
    return cast(int, arguments.run(arguments))


def _explain(error: BaseException) -> int | None:
    """Say what went wrong; the exit code, or None for what is no user's doing."""
    if isinstance(error, BrokenPipeError):
        # Python would flush the stream once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, (TurnstateError, OSError)):
        print(f"turnstate: {' '.join(str(error).split())}", file=sys.stderr)
        return USAGE if isinstance(error, InvalidInput) else FAILED
    return None


def _prepare_streams() -> None:
    """What a terminal cannot show must not end the program."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(cast(TextIO, stream), "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
