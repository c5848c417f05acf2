"""What a search through the lives of a session may choose from."""

from __future__ import annotations

import attrs

from turnstate_states.rules import Limits, Rules, ToolSpec
from turnstate_states.turn import Stop

Action = tuple[str, ...]
"""What happens: a name and its choices."""

EDITED = '{"n": 2}'
TOOLS = {
    spec.name: spec
    for spec in (
        ToolSpec("plain"),
        ToolSpec("danger", approval="always", exclusive=True, on_crash="rerun", expires=60.0),
        ToolSpec("checked", approval="policy", on_crash="check"),
        ToolSpec("wait", ends_on_input=True),
    )
}
LIMITS = Limits(steps=3, attempts=2, resumptions=1, queue=2, grants=1, calls=4)
PLAIN = Rules(tools=TOOLS, limits=LIMITS, delay=1.0)
HOOKED = attrs.evolve(PLAIN, before_model=True, after_model=True, turn_ended=True, passes=2, agains=1)
COMPACTING = attrs.evolve(PLAIN, before_model=True, makes_room=True, passes=2)

REPLIES: dict[str, tuple[tuple[str, ...], Stop]] = {
    "text": ((), "stop"),
    "pause": ((), "pause"),
    "filtered": ((), "content-filter"),
    "plain": (("plain",), "tool-calls"),
    "danger": (("danger",), "tool-calls"),
    "checked": (("checked",), "tool-calls"),
    "wait": (("wait", "wait"), "tool-calls"),
    "unknown": (("missing", "plain"), "tool-calls"),
    "several": (("plain", "danger", "checked"), "tool-calls"),
    "dangers": (("danger", "danger"), "tool-calls"),
    "cut": (("plain", "danger"), "length"),
    "many": (("plain",) * 5, "tool-calls"),
}


@attrs.frozen
class Scope:
    """Which of all the possible actions a search tries."""

    rules: Rules = PLAIN
    replies: tuple[str, ...] = ("text", "several", "cut")
    answers: tuple[str, ...] = ("approve", "session", "deny-end")
    sends: tuple[str, ...] = ("queue", "steer")
    hooks: tuple[str, ...] = ("ok",)
    verdicts: tuple[str, ...] = ("allow", "deny", "ask")
    extras: bool = False
    races: bool = True
    turns: int | None = None
