"""What the tests of rules share: calls with given values, and the verdict on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from turnstate import Allow, Ask, Call, Deny, InvalidInput
from turnstate.models.base import ToolDefinition
from turnstate.policy import Condition, PolicyContext, Rules, Verdict

KINDS: Mapping[type[Any], int] = {Allow: 0, Ask: 1, Deny: 2}
Order = Literal["first", "strictest"]
ORDERS: tuple[Order, ...] = get_args(Order)
PROPERTIES: dict[str, Any] = {name: {} for name in ("path", "n", "command", "url", "other")}


class Given(Call):
    """A call with given values for its tool, or with arguments that cannot be read."""

    values: Mapping[str, Any] | None

    @property
    def arguments(self) -> Mapping[str, Any]:
        if self.values is None:
            raise InvalidInput("the arguments cannot be read")
        return self.values


def given_call(tool: str, values: Mapping[str, Any] | None) -> Call:
    """A call of a tool with these values."""
    made = Given("m1.0", tool)
    object.__setattr__(made, "values", values)
    return made


async def judge(
    rules: Rules,
    values: Mapping[str, Any] | None,
    *,
    name: str = "t",
    declared: Allow | Ask | Exception | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Verdict:
    """The verdict of rules on a call with these values."""

    def say() -> Allow | Ask:
        if isinstance(declared, Exception):
            raise declared
        return declared or Allow()

    context = PolicyContext(
        None,
        session_id="s",
        turn_id="t1",
        call_id="m1.0",
        tool=name,
        declared=say,
        definition=ToolDefinition(name, "", parameters or {"type": "object", "properties": PROPERTIES}),
        messages=list,
    )
    return await rules.authorize(given_call(name, values), context)


def kind(verdict: Verdict) -> int:
    """How strict a verdict is."""
    return KINDS[type(verdict)]


class Failing(Condition):
    """A condition that raises, or gives no answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def fits(self, value: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
