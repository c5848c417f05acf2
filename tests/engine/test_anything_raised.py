"""Whatever a host's code raises is the error of that call, hook, attempt or command; the engine and other sessions go on."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.depth import rotated
from turnstate import (
    Agent,
    Allow,
    Engine,
    MemoryStore,
    Middleware,
    Model,
    ModelRequest,
    Policy,
    Reply,
    Text,
    command,
    tool,
)
from turnstate.models import OnDelta
from turnstate.states import ToolCall


def stray_cancelled() -> BaseException:
    """A Cancelled of a scope that is over, as code has it that keeps what it caught."""
    return STRAY[0]


STRAY: list[BaseException] = []


@pytest.fixture(autouse=True)
async def _stray() -> None:
    if not STRAY:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                STRAY.append(error)
                raise


class Odd(BaseException):
    """No Exception."""

    def __str__(self) -> str:
        raise GeneratorExit


ERRORS: dict[str, Callable[[], BaseException]] = {
    "Exception": lambda: ValueError("wrong"),
    "GeneratorExit": GeneratorExit,
    "trio.Cancelled": stray_cancelled,
    "a group with trio.Cancelled": lambda: BaseExceptionGroup("two", [stray_cancelled(), ValueError("wrong")]),
    "a group of GeneratorExit": lambda: BaseExceptionGroup("one", [GeneratorExit()]),
    "asyncio.CancelledError": asyncio.CancelledError,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "RecursionError": RecursionError,
    "MemoryError": MemoryError,
    "BaseException": lambda: BaseException("odd"),
    "one without a text": Odd,
}


@dataclasses.dataclass
class Checked:
    """A parameter that may raise when it is made."""

    text: str = ""

    def __post_init__(self) -> None:
        Places.here("argument")


class Places:
    """Where something is raised, and what; ``reached`` says that the place was come to."""

    place = ""
    error = "Exception"
    reached = 0

    @classmethod
    def here(cls, place: str) -> None:
        """Raise it, if this is the place."""
        if place == cls.place:
            cls.reached += 1
            raise ERRORS[cls.error]()


@tool
async def coroutine() -> str:
    Places.here("tool")
    return "ok"


@tool
def function() -> str:
    Places.here("function in a thread")
    return "ok"


@tool
async def generator() -> Any:
    yield "ok"
    Places.here("generator")


@tool
async def argued(value: Checked) -> str:
    return "ok"


def by_arguments() -> bool:
    Places.here("approval")
    return False


@tool(approval=by_arguments)
async def decided() -> str:
    return "ok"


def how() -> str:
    Places.here("prompt")
    return "Well?"


@tool(approval=True, prompt=how)
async def asked() -> str:
    return "ok"


class Text500:
    """What a tool returns and cannot be written."""

    def __str__(self) -> str:
        raise GeneratorExit


@tool
async def returned() -> Any:
    return Text500()


TOOLS: list[Any] = [coroutine, function, generator, argued, decided, asked, returned]


class Around(Middleware[Any]):
    async def before_model(self, ctx: Any) -> None:
        if ctx.session_id == "bad":
            Places.here("before_model")

    async def after_model(self, ctx: Any) -> None:
        if ctx.session_id == "bad":
            Places.here("after_model")

    async def turn_ended(self, ctx: Any) -> None:
        if ctx.session_id == "bad":
            Places.here("turn_ended")

    async def around_call(self, ctx: Any, call: Any, run: Any) -> Any:
        Places.here("around_call before")
        found = await run()
        Places.here("around_call after")
        return found

    @command("go")
    async def go(self, ctx: Any, arguments: Any) -> str:
        Places.here("command")
        return "ok"

    async def aclose(self) -> None:
        Places.here("aclose")


class Decides(Policy[Any]):
    async def authorize(self, call: Any, ctx: Any) -> Any:
        Places.here("policy")
        return Allow() if call.tool not in ("decided", "asked") else ctx.declared()


class Script(Model):
    """Asks for one tool in the session ``bad``, and answers at once in others."""

    name = "script"

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    async def respond(self, request: ModelRequest, on_delta: OnDelta) -> Reply:
        if request.session != "bad" or request.messages[-1].role == "tool" or not self.wanted:
            return Reply((Text("done"),))
        Places.here("model")
        on_delta("call", self.wanted, 0)
        Places.here("model in the middle")
        arguments = '{"value": {"text": "x"}}' if self.wanted == "argued" else "{}"
        return Reply((ToolCall("", self.wanted, arguments),), "tool-calls")

    async def aclose(self) -> None:
        Places.here("aclose of a model")


ERROR, FAILED, COMPLETED, WAITS = "call is an error", "turn failed", "turn completed", "a person is asked"
PLACES: dict[str, tuple[str, str]] = {
    "tool": ("coroutine", ERROR),
    "function in a thread": ("function", ERROR),
    "generator": ("generator", ERROR),
    "argument": ("argued", ERROR),
    "around_call before": ("coroutine", ERROR),
    "around_call after": ("coroutine", ERROR),
    "approval": ("decided", WAITS),
    "prompt": ("asked", WAITS),
    "policy": ("coroutine", WAITS),
    "before_model": ("", FAILED),
    "after_model": ("", FAILED),
    "turn_ended": ("", COMPLETED),
    "model": ("coroutine", FAILED),
    "model in the middle": ("coroutine", FAILED),
    "deps": ("", FAILED),
    "command": ("", COMPLETED),
    "aclose": ("", COMPLETED),
    "aclose of a model": ("", COMPLETED),
}
"""What the model asks for, and what becomes of it."""


@pytest.mark.trio
@pytest.mark.parametrize(("place", "error"), rotated(PLACES, ERRORS), ids=str)
async def test_whatever_is_raised(
    place: str, error: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the error of what raised it; the same session and others go on, and the engine is left in peace."""
    caplog.set_level(logging.CRITICAL)
    wanted, becomes = PLACES[place]
    monkeypatch.setattr(Places, "error", error)
    monkeypatch.setattr(Places, "reached", 0)

    def deps(info: Any) -> None:
        if info.id == "bad":
            Places.here("deps")

    policy = Decides() if place in ("policy", "approval") else None
    agent = Agent(Script(wanted), tools=TOOLS, middleware=[Around()], policy=policy)
    with trio.fail_after(20):
        async with Engine(agent, MemoryStore(), deps=deps) as engine:
            async with engine.session("other").turn("go") as turn:
                monkeypatch.setattr(Places, "place", place)
                session = engine.session("bad")
                if place == "command":
                    await session.command("go")
                result = await session.run("go", check=False)
                if becomes == ERROR:
                    assert [call.status for call in result.calls] == ["error"]
                    assert result.outcome == "completed"
                elif becomes == WAITS:
                    assert result.outcome == "waiting"
                else:
                    assert result.outcome == becomes.removeprefix("turn ")
                assert (await turn.result()).text == "done"
            if not place.startswith("aclose"):
                monkeypatch.setattr(Places, "place", "")
            if becomes == WAITS:
                await session.approve(*result.waiting)
            assert (await session.run("again", check=False)).outcome in ("completed", "waiting")
    assert Places.reached


@pytest.mark.trio
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", [place for place in PLACES if not place.startswith("aclose")])
async def test_what_ends_the_host(place: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """KeyboardInterrupt and SystemExit come out of the engine as they are, wherever they are raised."""
    monkeypatch.setattr(Places, "error", "host")
    monkeypatch.setitem(ERRORS, "host", error)
    monkeypatch.setattr(Places, "place", place)

    def deps(info: Any) -> None:
        Places.here("deps")

    policy = Decides() if place in ("policy", "approval") else None
    agent = Agent(Script(PLACES[place][0]), tools=TOOLS, middleware=[Around()], policy=policy)
    with pytest.raises(error):  # noqa: PT012 - the engine is what is tested
        async with Engine(agent, MemoryStore(), deps=deps) as engine:
            session = engine.session("bad")
            if place == "command":
                await session.command("go")
            await session.send("go")
            await trio.sleep(20)


@pytest.mark.trio
async def test_what_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    """A value whose text cannot be made is an error of the call."""
    async with Engine(Agent(Script("returned"), tools=TOOLS), MemoryStore()) as engine:
        result = await engine.session("bad").run("go")
    assert [call.status for call in result.calls] == ["error"]


@pytest.mark.trio
@pytest.mark.parametrize("error", ["trio.Cancelled", "a group with trio.Cancelled", "GeneratorExit", "Exception"])
@pytest.mark.parametrize("end", ["interrupt", "timeout", "leave"])
async def test_an_end_is_an_end(end: str, error: str) -> None:
    """What a tool makes of its cancellation changes nothing of it: its outcome is unknown, and the session goes on."""
    begun = trio.Event()

    @tool(timeout=0.1 if end == "timeout" else None)
    async def stubborn() -> str:
        begun.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as own:
            if error == "trio.Cancelled":
                raise
            if error == "a group with trio.Cancelled":
                raise BaseExceptionGroup("two", [own, ValueError("wrong")]) from None
            raise ERRORS[error]() from None

    async with Engine(Agent(Script("stubborn"), tools=[stubborn]), MemoryStore(), grace=0.1) as engine:
        session = engine.session("bad")
        if end == "leave":
            await session.send("go")
            await begun.wait()
            return
        async with session.turn("go") as turn:
            await begun.wait()
            if end == "interrupt":
                await session.interrupt()
            result = await turn.result(check=False)
        assert [call.status for call in result.calls] == ["unknown"]
