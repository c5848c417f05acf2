"""Every public entry, with values that nobody expects: it works, or InvalidInput names the parameter."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import pytest
import trio

from tests.depth import pick
from tests.engine.entry_points import READ, REQUIRED, Entry, constructors, methods, required
from tests.engine.nasty import NASTY, Evil, fits
from turnstate import (
    Agent,
    Client,
    Engine,
    InvalidInput,
    Limits,
    MemoryStore,
    Middleware,
    ModelRequest,
    Policy,
    Prompt,
    Refused,
    SessionInUse,
    Tool,
    TurnIncomplete,
    Usage,
    command,
    tool,
)
from turnstate.middleware.base import CommandContext, StepContext, TurnContext
from turnstate.testing import ScriptedModel, call

CALLED: dict[str, str] = {
    "content": "message",
    "edits": "edits|message",
    "id": "id",
    "session": "session id",
    "name": "command",
    "data": "JSON|thread",
}
"""What an error calls a parameter where that is not its name."""


def some(entry: Entry) -> list[tuple[str, Callable[[], Any]]]:
    """The nasty values: all of them, or in a quick run every eighth, other ones for each parameter."""
    step = pick(8, 1)
    return list(NASTY.items())[zlib.crc32(str(entry).encode()) % step :: step]


def named(entry: Entry, error: InvalidInput) -> bool:
    """Whether an error says which parameter it is about."""
    text = str(error)
    return any(
        word in text for word in (entry.parameter.name, *CALLED.get(entry.parameter.name, "").split("|")) if word
    )


def failed(entry: Entry, what: str, value: Any, raised: BaseException | None) -> str:
    """What is wrong with what came of giving a value, or nothing."""
    if raised is None:
        return "" if fits(value, entry.hint) else f"{what}: taken in silence"
    if isinstance(raised, InvalidInput):
        return "" if named(entry, raised) else f"{what}: the parameter is not named: {raised}"
    if isinstance(raised, (Refused, SessionInUse, TurnIncomplete)) and fits(value, entry.hint):
        return ""
    return f"{what}: {type(raised).__name__}: {'' if isinstance(value, Evil) else raised}"


CONSTRUCTORS = constructors()
METHODS = methods()


def test_what_is_public_is_looked_at() -> None:
    """The names that are left out exist, and the list of entries is not empty."""
    import turnstate.models
    import turnstate.policy
    import turnstate.stores
    import turnstate.testing
    import turnstate.tools

    places = (turnstate, turnstate.models, turnstate.stores, turnstate.testing, turnstate.tools, turnstate.policy)
    unknown = [name for names in READ for name in names.split() if not any(hasattr(place, name) for place in places)]
    assert unknown == []
    assert len(CONSTRUCTORS) > 100
    assert len(METHODS) > 100


@pytest.mark.parametrize("entry", CONSTRUCTORS, ids=str)
def test_constructors(entry: Entry) -> None:
    """A constructor or function takes a value of the annotated type or refuses it by the parameter's name, and never takes
    one of another type."""
    wrong: list[str] = []
    for what, make in some(entry):
        value = make()
        positional, named_ones = entry.arguments(value, required(entry))
        raised: BaseException | None = None
        try:
            made = entry.call(*positional, **named_ones)
        except Exception as error:
            raised = error
        else:
            if inspect.iscoroutine(made):
                made.close()
        if found := failed(entry, what, value, raised):
            wrong.append(found)
    assert wrong == []


@pytest.mark.parametrize("entry", {entry.name: entry for entry in CONSTRUCTORS}.values(), ids=lambda entry: entry.name)
def test_an_unknown_keyword_is_a_type_error(entry: Entry) -> None:
    """An option that there is none of is a TypeError that names it, as Python's own, whoever is called."""
    if entry.name == "call":
        return  # it takes any arguments
    given = required(entry)
    value = "openai:any" if entry.name == "resolve" else REQUIRED.get(entry.parameter.name, lambda: None)()
    positional, named_ones = entry.arguments(value, given)
    if entry.parameter.default is not entry.parameter.empty:
        del named_ones[entry.parameter.name]
    with pytest.raises((TypeError, InvalidInput), match="no_such_option"):
        entry.call(*positional, **named_ones, no_such_option=1)


@pytest.mark.trio
async def test_an_unknown_filter_is_a_type_error(held: dict[str, Any]) -> None:
    """A list of sessions names itself and the nearest filter."""
    for holder in ("Engine", "Client"):
        with pytest.raises(TypeError, match=r"^sessions\(\) got an unexpected keyword argument 'label'.*'labels'"):
            held[holder].sessions(label={})
        with pytest.raises(TypeError, match=r"^sessions\(\) got an unexpected keyword argument 'label'.*'labels'"):
            await held[holder].session_page(label={})


def agent_with(made: Any) -> Agent[None] | None:
    """An agent that uses what was made, if agents use such a thing."""
    model = ScriptedModel(lambda request: call("it", a=1) if len(request.messages) == 1 else "done")
    it = tool(name="it")(ask.function)
    if isinstance(made, Agent):
        return cast("Agent[None]", made)
    if isinstance(made, Tool):
        return Agent(ScriptedModel([call(made.name, a=1), "done"]), tools=[cast("Tool[..., Any]", made)])
    if isinstance(made, Limits):
        return Agent(model, tools=[it], limits=made)
    if isinstance(made, Middleware):
        return Agent(model, tools=[it], middleware=[cast("Middleware[None]", made)])
    if isinstance(made, Policy):
        return Agent[None](model, tools=[it], middleware=[], policy=cast("Policy[None]", made))
    if isinstance(made, Prompt):
        return Agent(model, tools=[tool(name="it", approval=True, prompt=made)(ask.function)])
    if isinstance(made, ScriptedModel):
        return Agent(made, tools=[it])
    return None


@pytest.mark.trio
@pytest.mark.parametrize("entry", CONSTRUCTORS, ids=str)
async def test_what_is_taken_runs(entry: Entry, autojump_clock: object) -> None:
    """What was taken by an agent, a tool, a middleware and so on runs a turn, which ends or waits, and no bug is told."""
    for what, make in some(entry):
        positional, named_ones = entry.arguments(make(), required(entry))
        try:
            made = entry.call(*positional, **named_ones)
            agent = agent_with(made)
        except InvalidInput:
            continue
        if agent is None:
            return
        async with Engine(agent, MemoryStore()) as engine:
            with trio.fail_after(1000):
                result = await engine.session("s").run("go", check=False)
        told = "script" in result.reason  # a function gave no reply, or there were no more
        assert result.outcome in ("completed", "waiting", "limit") or told, (what, result.reason)


@tool(approval=True)
async def ask(a: int) -> str:
    """Do it."""
    return str(a)


@tool(outside=True)
def wait() -> None:
    """Wait for somebody."""


class Owner(Middleware[None]):
    """Carries out one command."""

    @command("any", active=True)
    async def any(self, ctx: CommandContext[None], arguments: Mapping[str, Any]) -> None:
        """Do nothing."""


@pytest.fixture
async def held() -> Any:
    """An engine with a session that waits for a decision and for a result, and what else a host holds."""
    store = MemoryStore()
    model = ScriptedModel(lambda request: [call("ask", a=1), call("wait")] if len(request.messages) == 1 else "done")
    async with (
        Engine(Agent[None](model, tools=[ask, wait], middleware=[Owner()]), store) as engine,
        Client(store) as client,
    ):
        session = engine.session("s")
        await session.run("go", check=False)
        request = ModelRequest("s", "t1.1.1", "", tuple(await session.messages()))
        mine: dict[str, Any] = {
            "Session": session,
            "SessionHandle": client.session("s"),
            "Engine": engine,
            "Client": client,
            "StepContext": StepContext(
                None, session_id="s", turn_id="t1", step=1, attempt=1, hook_pass=1, request=request, model=model
            ),
            "TurnContext": TurnContext(
                None,
                session_id="s",
                turn_id="t1",
                outcome="completed",
                reason="",
                error=None,
                usage=Usage(),
                model=model,
                title="",
                titled="",
                turns=1,
                messages=lambda: [],
            ),
            "CommandContext": CommandContext(
                None, session_id="s", command_id="c", name="any", model=model, messages=lambda: []
            ),
        }
        yield mine


async def carried_out(made: Any) -> None:
    """Wait for what a method gave, as far as it comes by itself."""
    if isinstance(made, AbstractAsyncContextManager):
        async with made:
            return
    if inspect.isasyncgen(made):
        async for _ in made:
            break
        await made.aclose()
    elif inspect.isawaitable(made):
        await made


@pytest.mark.trio
@pytest.mark.parametrize("entry", METHODS, ids=str)
async def test_methods(entry: Entry, held: dict[str, Any]) -> None:
    """A method takes a value of the annotated type, or refuses it by the parameter's name; it never hangs, never takes one
    of another type, and whatever it took, the session can be read and goes on."""
    holder, _, name = entry.name.partition(".")
    wrong: list[str] = []
    for what, make in some(entry):
        value = make()
        given = required(entry) | {"usage": Usage(), "model": "any"}
        positional, named_ones = entry.arguments(value, given)
        raised: BaseException | None = None
        with trio.move_on_after(5) as limit:
            try:
                await carried_out(getattr(held[holder], name)(*positional, **named_ones))
            except Exception as error:
                raised = error
        if limit.cancelled_caught:
            wrong.append(f"{what}: it hangs")
        elif found := failed(entry, what, value, raised):
            wrong.append(found)
    assert wrong == []
    engine: Engine[None] = held["Engine"]
    session = engine.session("s")
    await session.thread()
    await session.info()
    await session.interrupt()
    assert (await engine.session("other").run("go", check=False)).outcome == "waiting"
