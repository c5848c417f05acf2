"""The ``turnstate`` command."""

from __future__ import annotations

from .app import main
from .streams import Streams

__all__ = ["Streams", "main"]
