"""Options of a tool, whichever way it is made."""

from __future__ import annotations

import inspect
import typing
from typing import Any, cast

import attrs
import pytest

from tests.engine.helpers import engine_of, requests_of
from turnstate import Prompt, Tool, tool
from turnstate.testing import call
from turnstate_states.rules import ToolSpec


async def _checked(amount: int) -> str | None:
    return None


OTHER: dict[str, Any] = {
    "name": "other",
    "description": "Something else.",
    "approval": True,
    "exclusive": True,
    "timeout": 3.0,
    "on_crash": _checked,
    "ends_on_input": True,
    "expires": 60.0,
    "output_limit": 7,
    "outside": True,
    "prompt": Prompt("Pay?"),
    "version": "2",
    "errors": "text",
}
"""A value other than the default for each option."""


def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


SPEC = [field.name for field in attrs.fields(ToolSpec) if field.eq]


def _options() -> list[str]:
    parameters = inspect.signature(cast(Any, Tool)).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _declared(made: Tool[..., Any]) -> dict[str, Any]:
    """Everything that a tool holds, but for what compares by identity."""
    held = {name: value for name, value in vars(made).items() if name not in ("_inputs", "spec")}
    return held | {name: getattr(made.spec, name) for name in SPEC}


@pytest.mark.parametrize("option", _options())
def test_an_option_counts_in_both_forms(option: str) -> None:
    """`tool(function, option=...)` makes what `@tool(option=...)` makes, and not what `@tool` makes."""
    options = {option: OTHER[option]}
    called, decorated = tool(pay, **options), tool(**options)(pay)
    assert _declared(called) == _declared(decorated)
    assert _declared(called) != _declared(tool(pay))


def test_both_forms_are_typed_with_every_option() -> None:
    """Each overload of `tool` names exactly the options that a tool takes."""
    for overload in typing.get_overloads(tool):
        parameters = inspect.signature(overload).parameters.values()
        names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        assert names == _options()


@pytest.mark.trio
async def test_a_tool_marked_for_approval_in_a_call_waits_for_a_person() -> None:
    """What `tool(function, approval=True)` makes does not run before a person says so."""
    paid: list[int] = []

    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    async with engine_of(call("pay", amount=3), "done", tools=[tool(pay, approval=True)]) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        assert (result.outcome, paid, len(requests_of(engine))) == ("waiting", [], 1)
        async with session.resume() as turn:
            await session.approve(*turn.waiting)
            assert (await turn.result()).text == "done"
    assert paid == [3]
