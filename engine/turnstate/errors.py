"""The error tree, see :mod:`turnstate_states.errors`, and the two that carry a result."""

from __future__ import annotations

from typing import Any

from turnstate_states.errors import (
    CheckpointError,
    HookError,
    InvalidInput,
    ModelError,
    PolicyError,
    Refused,
    SessionInUse,
    StaleSession,
    StoreError,
    ToolError,
    TurnstateError,
)

from .results import Result

__all__ = [
    "CheckpointError",
    "HookError",
    "InvalidInput",
    "ModelError",
    "PolicyError",
    "Refused",
    "SessionInUse",
    "StaleSession",
    "StoreError",
    "ToolError",
    "TurnFailed",
    "TurnIncomplete",
    "TurnstateError",
]


class TurnIncomplete(TurnstateError):
    """The turn ended otherwise than completed, or waits for a person. ``result`` says how far it came."""

    def __init__(self, result: Result[Any]) -> None:
        super().__init__(f"the turn is {result.outcome}" + (f": {result.reason}" if result.reason else ""))
        self.result = result


class TurnFailed(TurnIncomplete):
    """Something broke and the turn failed; where the error still exists it is the ``__cause__``."""
