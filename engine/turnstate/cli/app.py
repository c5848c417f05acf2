"""The entry point: parse, run, and say in one line what went wrong."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from turnstate_states.errors import InvalidInput, TurnstateError

from ..failures import only
from .parser import Ended, make_parser
from .streams import Streams

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
    if own:
        _prepare(streams)
    # What a log would say is printed by the commands themselves, where it belongs.
    logging.getLogger("turnstate").addHandler(SILENT)
    try:
        code = _run(sys.argv[1:] if argv is None else argv, streams)
        streams.stdout.flush()
    except BaseException as error:
        known = _explain(only(error), streams)
        if known is None:
            raise
        if known == BROKEN_PIPE and own:
            # Python would flush the stream once more at its end, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), streams.stdout.fileno())
        return known
    return code


def _run(argv: Sequence[str], streams: Streams) -> int:
    parser = make_parser()
    if not argv:
        streams.stderr.write(parser.format_help())
        return USAGE
    try:
        arguments = parser.parse_args(argv)
    except Ended as end:
        (streams.stderr if end.code else streams.stdout).write(end.text)
        return end.code
    return cast(int, arguments.run(arguments, streams))


def _explain(error: BaseException, streams: Streams) -> int | None:
    """Say what went wrong; the exit code, or None for what is no user's doing."""
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, (TurnstateError, OSError)):
        # The terminal may be what is gone.
        with suppress(OSError):
            print(f"turnstate: {' '.join(str(error).split())}", file=streams.stderr, flush=True)
        return USAGE if isinstance(error, InvalidInput) else FAILED
    return None


def _prepare(streams: Streams) -> None:
    """What a terminal cannot show must not end the program."""
    for stream in (streams.stdout, streams.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
