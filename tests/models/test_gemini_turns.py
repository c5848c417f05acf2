"""Whole turns with Gemini: tools, a person's decisions and a restart, against a server that keeps Gemini's rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from tests.models.keep_alive_server import END, HEAD, part, serving
from turnstate import Agent, Engine, SQLiteStore, tool
from turnstate.models import Gemini

CALLS: list[dict[str, Any]] = [
    {"functionCall": {"name": "pay", "args": {"to": "Ana"}, "id": "c1"}, "thoughtSignature": "s1"},
    {"functionCall": {"name": "pay", "args": {"to": "Bob"}, "id": "c2"}},
    {"functionCall": {"name": "look", "id": "c3"}},
]
SIGNED = {"text": "", "thoughtSignature": "s2"}


@tool(approval=True)
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


@tool
async def look() -> str:
    """Look."""
    return "seen"


def answer(*parts: dict[str, Any], finish: str = "STOP") -> list[bytes]:
    candidates: list[Any] = [{"content": {"role": "model", "parts": [one]}} for one in parts]
    candidates.append({"content": {"parts": [{"text": ""}]}, "finishReason": finish})
    events = [b"data: " + json.dumps({"candidates": [one]}).encode() + b"\r\n\r\n" for one in candidates]
    return [HEAD, *map(part, events), END]


@pytest.mark.trio
async def test_decisions_and_a_restart(tmp_path: Path) -> None:
    """Cases 31 and 42: one call approved, one denied, one run, in a new process: parts, signatures and results match."""
    async with serving(
        answer({"text": "I pay."}, *CALLS), answer({"text": "Done."}, SIGNED), answer({"text": "Bye."})
    ) as server:
        agent = Agent(Gemini("gemini-3-pro", base_url=server.url, api_key="k"), tools=[pay, look])
        async with Engine(agent, SQLiteStore(tmp_path / "a.db")) as engine:
            waiting = await engine.session("s").run("Pay Ana and Bob", check=False)
        agent = Agent(Gemini("gemini-3-pro", base_url=server.url, api_key="k"), tools=[pay, look])
        async with Engine(agent, SQLiteStore(tmp_path / "a.db")) as engine:
            session = engine.session("s")
            async with session.resume() as turn:
                await session.approve(waiting.waiting[0])
                await session.deny(waiting.waiting[1])
                assert (await turn.result()).text == "Done."
            assert (await session.run("Thanks")).text == "Bye."
    second, third = (json.loads(sent)["contents"] for _, sent in server.requests[1:])
    assert third[: len(second)] == second
    _, model, results, said, _ = third
    assert model["parts"][:3] == [{"text": "I pay."}, *CALLS[:2]]
    assert model["parts"][3] == {"functionCall": {"name": "look", "args": {}, "id": "c3"}}
    answers = [one["functionResponse"] for one in results["parts"]]
    assert [(one["id"], one["name"], list(one["response"])) for one in answers] == [
        ("c1", "pay", ["output"]),
        ("c2", "pay", ["error"]),
        ("c3", "look", ["output"]),
    ]
    assert said == {"role": "model", "parts": [{"text": "Done."}, SIGNED]}


@pytest.mark.trio
@pytest.mark.parametrize("finish", ["MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"])
async def test_calls_of_a_broken_reply_do_not_run(quick_clock: MockClock, tmp_path: Path, finish: str) -> None:
    """Cases 26, 27 and 94: a call in a reply that was cut, filtered or called malformed is not run."""
    ran: list[str] = []

    @tool
    async def f() -> str:
        """Run."""
        ran.append("f")
        return "ok"

    async with serving(
        answer({"functionCall": {"name": "f", "args": {}}}, finish=finish), answer({"text": "x"})
    ) as server:
        agent = Agent(Gemini("gemini-3-pro", base_url=server.url, api_key="k"), tools=[f])
        async with Engine(agent, SQLiteStore(tmp_path / "a.db")) as engine:
            await engine.session("s").run("go", check=False)
    assert ran == []
