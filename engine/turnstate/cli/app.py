"""The entry point: parse, run, and say in one line what went wrong."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import cast

from turnstate_states.errors import InvalidInput, TurnstateError

from ..failures import only
from .parser import Ended, make_parser
from .streams import Console, Streams

__all__ = ["main"]

OK, FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141
SILENT = logging.NullHandler()


def main(argv: Sequence[str] | None = None, *, streams: Streams | None = None) -> int:
    """Run the command, to its end.

    It may be called in any thread in which no event loop runs, several times at once. Ctrl-C reaches it in the main
    thread only; elsewhere it ends when its input does.

    Args:
        argv: the arguments, by default those of the process.
        streams: what it reads and prints, by default the streams of the process. They are left open.

    Returns:
        The exit code: 0 done, 1 failed, 2 used wrongly, 130 interrupted, 141 nobody reads the output any more.
    """
    own = streams is None
    streams = streams or Streams()
    console = Console.of(streams)
    # What a log would say is printed by the commands themselves, where it belongs.
    logging.getLogger("turnstate").addHandler(SILENT)
    with console.takes_all() if own else nullcontext():
        try:
            return _run(sys.argv[1:] if argv is None else argv, console)
        except BaseException as error:
            known = _explain(only(error), console)
            if known is None and own and isinstance(error, Exception):
                known = _report(error, console)
            if known is None:
                raise
    if known == BROKEN_PIPE and own:
        # Python would flush the stream once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), streams.stdout.fileno())
    return known


def _run(argv: Sequence[str], console: Console) -> int:
    parser = make_parser()
    if not argv:
        console.err.write(parser.format_help())
        return USAGE
    try:
        arguments = parser.parse_args(argv)
    except Ended as end:
        if end.code:
            console.err.line(end.text)
        else:
            console.out.write(end.text)
        return end.code
    return cast(int, arguments.run(arguments, console))


def _explain(error: BaseException, console: Console) -> int | None:
    """Say what went wrong; the exit code, or None for what is no user's doing."""
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, (TurnstateError, OSError)):
        # The terminal may be what is gone.
        with suppress(OSError):
            console.err.line(f"turnstate: {' '.join(str(error).split())}")
        return USAGE if isinstance(error, InvalidInput) else FAILED
    return None


def _report(error: Exception, console: Console) -> int:
    """Print what a fault of the program itself is; Python would print the texts in it as they are."""
    with suppress(OSError):
        console.err.write("".join(traceback.format_exception(error)))
    return FAILED
