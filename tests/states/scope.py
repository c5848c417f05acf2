"""What a search through the lives of a session may choose from."""

from __future__ import annotations

import attrs

from turnstate_states.asking import Option, Prompt
from turnstate_states.rules import Limits, Rules, ToolSpec
from turnstate_states.turn import Stop

Action = tuple[str, ...]
"""What happens: a name and its choices."""

EDITED = '{"n": 2}'
CHOICE = Prompt("May it?", (Option("once"), Option("__proto__", "allow-always"), Option("own", "_own")))


def _choice(_: str) -> Prompt:
    return CHOICE


TOOLS = {
    spec.name: spec
    for spec in (
        ToolSpec("plain"),
        ToolSpec("danger", approval="always", exclusive=True, on_crash="rerun", expires=60.0),
        ToolSpec("checked", approval="policy", on_crash="check"),
        ToolSpec("wait", ends_on_input=True),
        ToolSpec("nap", ends_on_input=True, on_crash="rerun"),
        ToolSpec("outside", outside=True, expires=90.0),
        ToolSpec("gated", approval="always", outside=True, exclusive=True),
        ToolSpec("sub", on_crash="rerun", agent=True),
        ToolSpec("choose", approval="always", prompt=_choice),
    )
}
LIMITS = Limits(steps=3, attempts=2, resumptions=1, queue=2, grants=1, calls=4)
PLAIN = Rules(tools=TOOLS, limits=LIMITS, delay=1.0, commands={"note": True, "idle": False})
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
    "nap": (("nap", "plain"), "tool-calls"),
    "unknown": (("missing", "plain"), "tool-calls"),
    "several": (("plain", "danger", "checked"), "tool-calls"),
    "dangers": (("danger", "danger"), "tool-calls"),
    "cut": (("plain", "danger"), "length"),
    "many": (("plain",) * 5, "tool-calls"),
    "outside": (("outside",), "tool-calls"),
    "outsides": (("outside", "gated", "plain"), "tool-calls"),
    "sub": (("sub",), "tool-calls"),
    "subs": (("sub", "danger"), "tool-calls"),
    "choose": (("choose", "choose"), "tool-calls"),
}


@attrs.frozen
class Scope:
    """Which of all the possible actions a search tries.

    ``changes`` are those of the thread, ``provides`` results from outside, ``suspends`` for what a call may wait;
    ``imported``: the session begins with a thread from elsewhere.
    """

    rules: Rules = PLAIN
    replies: tuple[str, ...] = ("text", "several", "cut")
    answers: tuple[str, ...] = ("approve", "session", "deny-end")
    sends: tuple[str, ...] = ("queue", "steer")
    hooks: tuple[str, ...] = ("ok",)
    verdicts: tuple[str, ...] = ("allow", "deny", "ask")
    changes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ("old", "new", "bad")
    provides: tuple[str, ...] = ()
    suspends: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    imported: bool = False
    races: bool = True
    turns: int | None = None
