"""Titles: when a model is asked for one, what is made of its answer, and what happens if it fails."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.helpers import StrictModel, events_of
from turnstate import (
    Agent,
    Engine,
    Image,
    InvalidInput,
    MemoryStore,
    ModelError,
    Reply,
    Session,
    SessionChanged,
    Text,
    TurnEnded,
    Usage,
    Warned,
    tool,
)
from turnstate.middleware import Titles
from turnstate.testing import ScriptedModel, call


def engine_with(titler: ScriptedModel | None, *lines: Any, tools: Any = (), **options: Any) -> Engine[None]:
    """An engine whose agent says the lines, and a model that writes titles."""
    middleware = [Titles(titler, **options)]
    return Engine(Agent[None](StrictModel(list(lines)), tools=tools, middleware=middleware), MemoryStore())


def titler(*lines: Any) -> ScriptedModel:
    """A model that writes these titles."""
    return ScriptedModel(list(lines), name="titler")


async def title_of(session: Session) -> str:
    """The title as a list shows it."""
    return (await session.info()).title


async def warnings_of(session: Session) -> list[str]:
    """What people were told by the end of the first turn."""
    events = await events_of(session, until=lambda event: isinstance(event, TurnEnded))
    return [event.text for event in events if isinstance(event, Warned)]


@pytest.mark.trio
async def test_a_title() -> None:
    """After the first turn the model is shown the first exchange, and its answer is the title from then on."""
    model = titler("River names")
    async with engine_with(model, "Elbe, Oder, Rhine", "Main") as engine:
        session = engine.session("s")
        await session.run("Name three rivers")
        assert await title_of(session) == "River names"
        await session.run("One more")
        assert await title_of(session) == "River names"
    (request,) = model.requests
    assert "[user] Name three rivers\n\n[assistant] Elbe, Oder, Rhine" in request.messages[0].text
    assert (request.tools, len(request.messages)) == ((), 1)


@pytest.mark.trio
async def test_it_is_told_before_the_end() -> None:
    """The new title is told with the events of the turn that it comes from."""
    async with engine_with(titler("Rivers"), "Elbe") as engine:
        session = engine.session("s")
        await session.run("Name a river")
        events = await events_of(session, until=lambda event: isinstance(event, TurnEnded))
    assert [event.title for event in events if isinstance(event, SessionChanged)] == ["Rivers"]
    assert isinstance(events[-1], TurnEnded)


@pytest.mark.trio
async def test_usage_is_counted() -> None:
    """What the title took is counted under its model's name, for the session."""
    model = titler(Reply((Text("Rivers"),), usage=Usage(input=30, output=2)))
    async with engine_with(model, Reply((Text("Elbe"),), usage=Usage(input=10, output=1))) as engine:
        session = engine.session("s")
        await session.run("Name a river")
        assert (await session.info()).usage == Usage(input=40, output=3)


@pytest.mark.trio
async def test_the_agents_model_is_the_default() -> None:
    """Without a model of its own the agent's writes the title."""
    async with engine_with(None, "Elbe", "Rivers", "Oder") as engine:
        session = engine.session("s")
        await session.run("Name a river")
        assert await title_of(session) == "Rivers"
        assert (await session.run("Another")).text == "Oder"


@pytest.mark.trio
async def test_a_title_of_a_person_stays() -> None:
    """Where somebody renamed the session before the turn ended, nobody is asked."""
    model = titler()

    @tool
    async def look() -> str:
        await session.rename("My rivers")
        return "Elbe"

    async with engine_with(model, call("look"), "Elbe", tools=[look]) as engine:
        session = engine.session("s")
        await session.run("Name a river")
        assert await title_of(session) == "My rivers"
    assert model.requests == []


@pytest.mark.trio
async def test_a_turn_that_did_not_complete() -> None:
    """A turn that failed gives no title; the first one that completes does."""
    model = titler("Rivers")
    async with engine_with(model, ModelError("no"), "Elbe") as engine:
        session = engine.session("s")
        await session.run("Name a river", check=False)
        assert (await title_of(session), model.requests) == ("Name a river", [])
        await session.run("Please")
        assert await title_of(session) == "Rivers"


@pytest.mark.trio
async def test_a_fork_keeps_its_title() -> None:
    """A fork has the title of its source, and its first turn is not the first of the conversation."""
    model = titler(ModelError("no"))
    async with engine_with(model, "Elbe", "Oder") as engine:
        session = engine.session("s")
        await session.run("Name a river")
        fork = await session.fork()
        await fork.run("Another")
        assert await title_of(fork) == "Name a river"
    assert len(model.requests) == 1


@pytest.mark.trio
async def test_a_first_message_without_words() -> None:
    """A picture has no words to begin with; the model is told that there was one."""
    model = titler("A cat")
    async with engine_with(model, "I see a cat.") as engine:
        session = engine.session("s")
        await session.run([Image("https://example.org/cat.png")])
        assert await title_of(session) == "A cat"
    assert "[user] (image)" in model.requests[0].messages[0].text


@pytest.mark.trio
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (ModelError("the server is away"), "the session got no title: the server is away"),
        (RuntimeError("oh"), "the session got no title: RuntimeError; the details are in the log"),
        (" \n", "the session got no title: the model gave none"),
        (Reply((Text("I cannot"),), "refusal"), "the session got no title: the model gave none"),
    ],
)
async def test_a_failure_is_a_warning(fault: Any, text: str) -> None:
    """Whatever goes wrong, people are told, the turn is as it was, and it is not tried again."""
    model = titler(fault)
    async with engine_with(model, "Elbe", "Oder") as engine:
        session = engine.session("s")
        assert (await session.run("Name a river")).text == "Elbe"
        assert await title_of(session) == "Name a river"
        assert await warnings_of(session) == [text]
        assert (await session.run("Another")).text == "Oder"
    assert len(model.requests) == 1


@pytest.mark.trio
async def test_usage_of_a_failure_is_counted() -> None:
    """What the server counted for a title that never came is counted."""
    model = titler(ModelError("cut off", usage=Usage(input=7)))
    async with engine_with(model, Reply((Text("Elbe"),), usage=Usage(input=10))) as engine:
        session = engine.session("s")
        await session.run("Name a river")
        assert (await session.info()).usage.input == 17


@pytest.mark.trio
async def test_it_is_bounded_in_time(autojump_clock: trio.testing.MockClock) -> None:
    """A model that takes too long is given up, and the turn ends."""
    model = ScriptedModel(["Rivers"], delay=60)
    async with engine_with(model, "Elbe", timeout=3) as engine:
        session = engine.session("s")
        start = trio.current_time()
        await session.run("Name a river")
        assert trio.current_time() - start == pytest.approx(3, abs=0.5)
        assert await warnings_of(session) == ["the session got no title: the model took longer than 3 s"]


@pytest.mark.trio
@pytest.mark.parametrize(
    ("said", "title"),
    [
        ('"Rivers of Europe."', "Rivers of Europe"),
        ("**Title:** Rivers\n\nI hope this helps.", "Rivers"),
        ("# Rivers", "Rivers"),
        ("Learning C#", "Learning C#"),
        ("«Fleuves»", "Fleuves"),
        ("Rivers \t and\u2028 lakes", "Rivers and"),
        ("word " * 40, "word " * 15 + "word"),
        ("x" * 300, "x" * 80),
    ],
)
async def test_what_is_made_of_an_answer(said: str, title: str) -> None:
    """The title is the first line of the answer, without what models put around it, of at most 80 characters."""
    async with engine_with(titler(said), "Elbe") as engine:
        session = engine.session("s")
        await session.run("Name a river")
        assert await title_of(session) == title


@pytest.mark.trio
async def test_its_own_model_is_closed() -> None:
    """Leaving the engine closes the model that writes titles."""
    closed: list[str] = []

    class Closing(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(self.name)

    async with engine_with(Closing([], name="titler")):
        pass
    assert closed == ["titler"]


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": 26}, {"instructions": " "}, {"model": "gpt"}])
def test_bad_arguments(wrong: dict[str, Any]) -> None:
    """An argument that makes no sense is refused by name."""
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Titles(**wrong)
