"""Answers of a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from turnstate import Agent, Engine, InvalidInput, MemoryStore, ModelError, TurnFailed
from turnstate.models import OpenAIChat
from turnstate.outputs import OutputType
from turnstate.testing import ScriptedModel, StrictServer


@dataclass
class River:
    """A river."""

    name: str
    km: int


async def answer(text: str, output: type[Any], *, check: bool = True) -> Any:
    """The output of a turn whose model answers with a text."""
    async with Engine(Agent(ScriptedModel([text])), MemoryStore()) as engine:
        return (await engine.session("a").run("go", output=output, check=check)).output


@pytest.mark.parametrize(
    ("text", "output", "value"),
    [
        ('{"value": 4}', int, 4),
        ('{"value": [1, 2]}', list[int], [1, 2]),
        ('{"name": "Elbe", "km": 1094}', River, River("Elbe", 1094)),
        ('```json\n{"name": "Elbe", "km": 1094}\n```', River, River("Elbe", 1094)),
        ("just text", str, "just text"),
    ],
)
async def test_an_answer_has_the_type_that_was_asked_for(text: str, output: type[Any], value: Any) -> None:
    """The output is the value that the answer's JSON holds; a plain type travels in an object."""
    assert await answer(text, output) == value


async def test_an_answer_of_another_type_fails() -> None:
    """An answer that is not of the type raises TurnFailed with what is wrong, or gives no output where that is wanted."""
    with pytest.raises(TurnFailed, match=r"the answer is not River.*km") as caught:
        await answer('{"name": "Elbe", "km": "long"}', River)
    assert isinstance(caught.value.__cause__, ModelError)
    assert caught.value.result.text == '{"name": "Elbe", "km": "long"}'
    assert await answer("no JSON", River, check=False) is None


def test_a_type_that_json_cannot_give_is_refused() -> None:
    """A type without a schema is refused before anything is sent."""
    with pytest.raises(InvalidInput, match="output: complex"):
        OutputType(complex)


async def test_the_model_is_asked_for_the_schema() -> None:
    """The request carries the schema in the provider's words, with no other fields allowed."""
    async with StrictServer(['{"name": "Elbe", "km": 1094}']) as server:
        agent = Agent(OpenAIChat("m", base_url=server.url, api_key="x"))
        async with Engine(agent, MemoryStore()) as engine:
            result = await engine.session("a").run("A river?", output=River)
    assert result.output.km == 1094
    form = server.requests[0]["response_format"]["json_schema"]
    assert form["schema"]["properties"] == {"name": {"type": "string"}, "km": {"type": "integer"}}
    assert (form["strict"], form["schema"]["additionalProperties"]) == (True, False)
