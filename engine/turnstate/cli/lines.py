"""Lines that a person types, or that come through a pipe."""

from __future__ import annotations

import os

import trio

__all__ = ["LineReader"]


class LineReader:
    """Reads lines without a thread that could not be ended, and without taking more than it was asked to hand out.

    Args:
        fd: the file descriptor of a terminal, a pipe or a file.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_tty = os.isatty(fd)
        self._data = bytearray()
        self._ended = False

    async def line(self) -> str | None:
        """The next line without its end; None when the input has ended."""
        while b"\n" not in self._data and not self._ended:
            await self._more()
        head, newline, rest = self._data.partition(b"\n")
        if not newline and not head:
            # A terminal can go on after its end was typed.
            self._ended = not self.is_tty
            return None
        self._data = rest
        if self.is_tty:
            self._ended = False
        return head.removesuffix(b"\r").decode(errors="replace")

    async def _more(self) -> None:
        try:
            await trio.lowlevel.wait_readable(self.fd)
        except OSError:
            # Files and /dev/null cannot be waited for; reading them does not block.
            await trio.lowlevel.checkpoint()
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            # The terminal is gone.
            data = b""
        self._data += data
        self._ended = not data
