"""Who reads the text of an exception: model, person, store, log. ``docs/security.md`` has the same table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

import attrs
import pytest
import trio

from tests.engine.helpers import until_event
from turnstate import (
    Agent,
    Call,
    CallStarted,
    CommandContext,
    CommandEnded,
    Engine,
    Limits,
    Middleware,
    Policy,
    SQLiteStore,
    StepContext,
    ToolContext,
    ToolError,
    TurnContext,
    command,
    tool,
)
from turnstate.policy import PolicyContext, Reviewer
from turnstate.testing import ScriptedModel
from turnstate.testing import call as calls
from turnstate_states.errors import ModelError

TEXT = "host=db1 password=canary"
"""What nobody but those who may read everything should see."""


class Broken(Exception):
    """Its type may be read by everybody."""


def fail(*_: object, **__: object) -> NoReturn:
    """Raise what a driver of a database may."""
    raise Broken(TEXT)


def good(**options: Any) -> list[Any]:
    """A tool that works, with these options."""

    async def it() -> str:
        """Do it."""
        return "done"

    return [tool(**options)(it)]


@tool(name="it")
async def broken() -> str:
    """Do it."""
    fail()


@tool(name="it", errors="text")
async def telling() -> str:
    """Do it."""
    fail()


@tool(name="it")
async def saying() -> str:
    """Do it."""
    raise ToolError(TEXT)


async def check() -> str:
    """Whether it was done."""
    fail()


@tool(name="it", on_crash=check)
async def hanging() -> str:
    """Do it."""
    await trio.sleep_forever()
    return ""


@tool(name="it", on_crash=check, errors="text")
async def hanging_telling() -> str:
    """Do it."""
    await trio.sleep_forever()
    return ""


class FaultyPolicy(Policy[Any]):
    """A policy that fails."""

    async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> NoReturn:
        fail()


class Around(Middleware[Any]):
    """Fails around a call."""

    async def around_call(self, ctx: ToolContext[Any], call: Call, run: Any, /) -> NoReturn:
        fail()


class Before(Middleware[Any]):
    """Fails before a request."""

    async def before_model(self, ctx: StepContext[Any], /) -> None:
        fail()


class After(Middleware[Any]):
    """Fails after a reply."""

    async def after_model(self, ctx: StepContext[Any], /) -> None:
        fail()


class Quiet(Middleware[Any]):
    """Does nothing before a request."""

    async def before_model(self, ctx: StepContext[Any], /) -> None:
        """Nothing."""


class Ended(Middleware[Any]):
    """Fails after a turn."""

    async def turn_ended(self, ctx: TurnContext[Any], /) -> None:
        fail()


class Commands(Middleware[Any]):
    """Fails to carry out a command."""

    @command("act")
    async def act(self, ctx: CommandContext[Any], arguments: Mapping[str, Any]) -> NoReturn:
        """Do it."""
        fail()


@attrs.frozen
class Case:
    """What fails, and what is read of it: its text, its type, or nothing. The log has all or nothing."""

    what: str
    model: str
    person: str
    log: str
    agent: dict[str, Any]
    deps: Any = None
    lines: tuple[Any, ...] = (calls("it"), "answer")
    below: Agent[Any] | None = None


def child(*lines: Any, **options: Any) -> Agent[Any]:
    """An agent that is a tool of another."""
    return Agent[Any](ScriptedModel(list(lines), name="below"), **options)


TABLE = [
    Case("a tool", "type", "type", "all", {"tools": [broken]}),
    Case('a tool with `errors="text"`', "text", "text", "all", {"tools": [telling]}),
    Case("a tool, `ToolError`", "text", "text", "nothing", {"tools": [saying]}),
    Case("the check of a tool (`on_crash`)", "type", "type", "all", {"tools": [hanging]}),
    Case('the check of a tool with `errors="text"`', "text", "text", "all", {"tools": [hanging_telling]}),
    Case("`around_call` of a middleware", "type", "type", "all", {"tools": good(), "middleware": [Around()]}),
    Case("`deps`, for a call", "nothing", "type", "all", {"tools": good()}, deps=fail),
    Case("`deps`, for a hook", "nothing", "type", "all", {"middleware": [Quiet()]}, deps=fail, lines=("answer",)),
    Case("a policy", "nothing", "type", "all", {"tools": good(), "policy": FaultyPolicy()}),
    Case("the predicate of a tool (`approval`)", "nothing", "type", "all", {"tools": good(approval=fail)}),
    Case("the prompt of a tool (`prompt`)", "nothing", "nothing", "all", {"tools": good(approval=True, prompt=fail)}),
    Case("`before_model` of a middleware", "nothing", "type", "all", {"middleware": [Before()]}),
    Case("`after_model` of a middleware", "nothing", "type", "all", {"middleware": [After()]}, lines=("answer",)),
    Case(
        "`turn_ended` of a middleware", "nothing", "type", "all", {"middleware": [Ended()]}, lines=("answer", "answer")
    ),
    Case("a command", "nothing", "type", "all", {"middleware": [Commands()]}, lines=("answer",)),
    Case("a model", "nothing", "type", "all", {}, lines=(Broken(TEXT),)),
    Case("a model, `ModelError`", "nothing", "text", "nothing", {}, lines=(ModelError(TEXT),)),
    Case(
        "the model of a reviewer, `ModelError`",
        "nothing",
        "text",
        "nothing",
        {"tools": good(approval=True), "policy": Reviewer(ScriptedModel([ModelError(TEXT)]))},
    ),
    Case("a tool of an agent below", "type", "type", "all", {}, below=child(calls("it"), "no", tools=[broken])),
    Case("a middleware of an agent below", "nothing", "type", "all", {}, below=child("no", middleware=[Before()])),
    Case("the model of an agent below, `ModelError`", "nothing", "text", "nothing", {}, below=child(ModelError(TEXT))),
]


WORDS = ["nothing", "type", "text"]


def seen(text: str) -> str:
    """What a text tells of the exception."""
    return "text" if "canary" in text else "type" if "Broken" in text else "nothing"


async def go(case: Case, agent: Agent[Any], path: Path) -> str:
    """Have it fail; the results that a person sees of it."""
    told: list[object] = []
    again = agent.tools.by_name.get("it") in (hanging, hanging_telling)
    if again:  # the process ends while the call runs
        engine = Engine(agent, SQLiteStore(path))
        engine.grace = 0
        async with engine, engine.session("s").turn("go") as turn:
            async for event in turn:
                if isinstance(event, CallStarted):
                    break
    async with Engine(agent, SQLiteStore(path), deps=case.deps) as engine:
        session = engine.session("s")
        if again:
            async with session.resume() as turn:
                told.append(await turn.result(check=False))
        else:
            told.append(await session.run("go", check=False))
        if agent.commands:
            await session.command("act")
            await until_event(session, CommandEnded)
        if agent.hooked("turn_ended"):
            told.append(await session.run("go on", check=False))
    return repr(told)


@pytest.mark.trio
@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.what)
async def test_who_reads_what(case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The text of an exception reaches those who may read it and nobody else; all of it is in the log."""
    model = ScriptedModel(list(case.lines))
    options = dict(case.agent)
    if case.below is not None:
        options["tools"] = [case.below.as_tool("it", "Do it.")]
        model = ScriptedModel([calls("it", task="do it"), "answer"])
    told = await go(case, Agent[Any](model, limits=Limits(attempts=1), **options), tmp_path / "turns.db")
    asked = [model, *([] if case.below is None else [cast(ScriptedModel, case.below.model)])]
    read = repr(
        [(request.instructions, request.messages, request.additions) for one in asked for request in one.requests]
    )
    assert seen(read) == case.model
    assert max(seen(told), seen(stored_in(tmp_path)), key=WORDS.index) == case.person
    assert seen(told) in ("nothing", case.person)
    assert ("all" if "canary" in caplog.text else "nothing") == case.log


def stored_in(folder: Path) -> str:
    """What is in the files of a store."""
    return b"".join(path.read_bytes() for path in folder.iterdir()).decode("latin-1")


def test_the_docs_say_the_same() -> None:
    """The table in the docs has these rows."""
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    rows = [f"| {case.what} | {case.model} | {case.person} | {case.log} |" for case in TABLE]
    assert "\n".join(rows) in page
