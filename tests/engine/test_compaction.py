"""Compaction: when it comes, what it keeps, and what is left for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from tests.engine.compacting import Reader, Summariser, compaction, engine_with, last_page, log_of, of, page, starts
from tests.engine.helpers import StrictModel, said, strict
from turnstate import Agent, Compacted, Engine, Image, InvalidInput, MemoryStore, Message, ModelRequest, Reply, Usage
from turnstate.middleware import Compaction
from turnstate.middleware.measuring import cut_for, estimate, measured, tokens_of
from turnstate.middleware.summarizing import prompt_of
from turnstate.models import OpenAIChat
from turnstate.reading import load, read_events
from turnstate.states import Text, ToolCall, ToolResult
from turnstate.testing import StrictServer, call

# When


@pytest.mark.parametrize(
    ("window", "trigger", "keep", "expected"),
    [
        (128_000, None, 20_000, (111_616, 20_000)),
        (128_000, 50_000, 20_000, (50_000, 20_000)),
        (128_000, 30_000, 20_000, (30_000, 15_000)),
        (128_000, 120_000, 0, (111_616, 0)),
        (16_384, None, 20_000, (1, 0)),
        (8_192, 9_000, 20_000, (1, 0)),
    ],
)
def test_trigger_arithmetic(window: int, trigger: int | None, keep: int, expected: tuple[int, int]) -> None:
    """The trigger is the configured one, at most the window less 16,384 and at least 1; keep is at most half (W12)."""
    made = Compaction(window=window, trigger=trigger, keep=keep)
    assert (made.trigger, made.keep) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 0},
        {"window": "big"},
        {"window": 9000.5},
        {"window": True},
        {"window": 9000, "trigger": 0},
        {"window": 9000, "keep": -1},
        {"window": 9000, "instructions": " "},
        {"window": 9000, "model": "gpt"},
    ],
)
def test_bad_arguments(wrong: dict[str, Any]) -> None:
    """An argument that makes no sense is refused by name."""
    with pytest.raises(InvalidInput, match=list(wrong)[-1]):
        Compaction(**wrong)


@pytest.mark.trio
async def test_below_the_trigger_nothing_happens() -> None:
    """A conversation that fits is left alone, and nobody is asked for a summary."""
    model, summariser = Reader(3), Summariser()
    async with engine_with(model, compaction(summariser, trigger=5000)) as engine:
        await engine.session("s").run("go")
    assert (len(model.requests), summariser.requests) == (4, [])


@pytest.mark.trio
async def test_by_estimate() -> None:
    """By four bytes a token: the older part is summarised, the newer is kept, calls with their results."""
    summariser = Summariser()
    model = Reader(4)
    async with engine_with(model, compaction(summariser)) as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert result.text == "done after 4"
        assert [starts(request) for request in model.requests] == ["go"] * 4 + ["summary 1"]
        assert [message.role for message in model.requests[-1].messages] == ["user", "assistant", "tool"]
        assert "[user] go" in summariser.prompt(0)
        assert "page 3" in summariser.prompt(0)
        assert "page 4" not in summariser.prompt(0)


@pytest.mark.trio
async def test_by_usage() -> None:
    """What the provider counted for the last request, with its reply and what came since, is believed where it is more."""
    summariser = Summariser()
    lines: list[Reply | str] = [
        Reply((ToolCall("", "page", '{"n": 1}'),), "tool-calls", usage=Usage(input=300, output=10)),
        Reply((ToolCall("", "page", '{"n": 2}'),), "tool-calls", usage=Usage(input=350, output=10)),
        Reply((ToolCall("", "page", '{"n": 3}'),), "tool-calls", usage=Usage(input=200, output=10)),
        "done",
    ]
    model = StrictModel(lines)
    async with engine_with(model, compaction(summariser, trigger=460)) as engine:
        await engine.session("s").run("go")
    assert [starts(request) for request in model.requests] == ["go", "go", "summary 1", "summary 1"]


@pytest.mark.trio
async def test_usage_of_an_earlier_turn_counts() -> None:
    """The first request of a turn is measured by the last one of the turn before."""
    summariser = Summariser()
    model = StrictModel(
        [Reply((Text("hello"),), usage=Usage(input=900)), Reply((Text("again"),), usage=Usage(input=9))]
    )
    async with engine_with(model, compaction(summariser)) as engine:
        session = engine.session("s")
        await session.run("hi")
        await session.run("more")
        assert said(model.requests[1])[1:] == ["more"]
        assert starts(model.requests[1]) == "summary 1"


def test_measuring_after_a_summary() -> None:
    """What was counted before the last summary says nothing about what is left; what was counted since does."""
    summary = Message("m4", "m3", "t1", "system", (Text("so far"),), 0.0, keeps="m2")
    kept = [
        Message("m2", "m1", "t1", "assistant", (ToolCall("m2.0", "f", "{}"),), 0.0, usage=Usage(900, 1)),
        Message("m3", "m2", "t1", "tool", (ToolResult("m2.0", "r"),), 0.0),
    ]
    fresh = Message("m5", "m4", "t1", "assistant", (Text("x"),), 0.0, usage=Usage(50, 5))
    said = Message("m6", "m5", "t1", "user", (Text("12345678"),), 0.0)
    assert measured(kept) == 902
    assert measured([summary, *kept]) == 0
    assert measured([summary, *kept, fresh, said]) == 57
    assert measured([summary, fresh]) == 55
    assert measured([]) == 0


def test_estimating_counts_each_message_once() -> None:
    """The estimate of a conversation that grew counts only what is new, and equals that of a fresh look."""
    messages = [Message(f"m{at}", None, "t1", "user", (Text("é½" * at),), 0.0) for at in range(1, 60)]
    messages.append(Message("m60", None, "t1", "user", (Image("data:image/png;base64," + "A" * 99_999),), 0.0))
    cache: dict[Any, Any] = {}
    for count in range(1, 61):
        request = ModelRequest("s", "a", "be brief", tuple(messages[:count]), cache=cache)
        fresh = ModelRequest("s", "a", "be brief", tuple(messages[:count]))
        assert tokens_of(request) == tokens_of(fresh) == estimate(messages[:count]) + 2
    assert estimate(messages[59:]) == 1500
    other = ModelRequest("s", "a", "be brief", tuple(messages[30:]), cache=cache)
    assert tokens_of(other) == estimate(messages[30:]) + 2


# What is kept


@pytest.mark.parametrize("keep", range(0, 700, 50))
def test_a_cut_keeps_parallel_calls_with_their_outputs(keep: int) -> None:
    """Whatever fits, the kept part begins with a person's or a model's message, and holds at most what it may (W12)."""
    messages = [Message("m1", None, "t1", "user", (Text("go"),), 0.0)]
    for step in range(4):
        calls = tuple(ToolCall(f"{step}.{at}", "page", "{}") for at in range(3))
        messages.append(Message(f"a{step}", None, "t1", "assistant", calls, 0.0))
        messages += [Message(f"r{c.id}", None, "t1", "tool", (ToolResult(c.id, "x" * 200),), 0.0) for c in calls]
    at = cut_for(messages, keep)
    assert at is not None
    assert messages[at].role == "assistant"
    strict([messages[0], *messages[at:]])
    assert estimate(messages[at:]) <= keep or at == 13
    assert at == 1 or estimate(messages[at - 4 :]) > keep


def test_nothing_to_cut() -> None:
    """One message, or a summary and one message, have nothing that could be summarised."""
    one = Message("m1", None, "t1", "user", (Text("go"),), 0.0)
    summary = Message("m2", "m1", "t1", "user", (Text("so far"),), 0.0, keeps="")
    assert cut_for([], 0) is None
    assert cut_for([one], 0) is None
    assert cut_for([summary, one], 0) is None
    assert cut_for([one, summary], 0) == 1


@pytest.mark.trio
@pytest.mark.parametrize("budget", range(1, 9))
async def test_case_43_every_budget(budget: int) -> None:
    """Calls alone and in twos, cut at every budget, more than twice: each request is one that a strict provider takes,
    and so is each request for a summary (case 43)."""
    summariser = Summariser()
    model = Reader(41, twos=True)
    async with engine_with(model, compaction(summariser, keep=110 * budget, trigger=220 * budget)) as engine:
        session = engine.session("s")
        result = await session.run("go")
        assert result.text == "done after 41"
        assert len(summariser.requests) >= 2
        assert [m.text.split(":")[0] for m in await session.messages() if m.role == "tool"] == [
            f"page {n}" for n in range(1, 42)
        ]


def over_the_wire(body: Mapping[str, Any]) -> Any:
    """What a server says: a summary where it is given no tools, otherwise the next pages, one or two at a time."""
    if not body.get("tools"):
        return "what was read so far"
    read = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    at = int(read[-1].split()[1].rstrip(":")) if read else 0
    if at >= 12:
        return "done"
    return [call("page", n=at + 1), call("page", n=at + 2)] if at % 3 == 0 else call("page", n=at + 1)


@pytest.mark.trio
@pytest.mark.parametrize("budget", range(1, 7))
async def test_case_43_over_the_wire(budget: int) -> None:
    """A strict server takes every request, those for a summary by the same model too, at every budget (case 43)."""
    async with StrictServer(over_the_wire) as server:
        agent = Agent[None](
            OpenAIChat("any", base_url=server.url, api_key="none"),
            instructions="Read on.",
            tools=[page],
            middleware=[compaction(keep=60 * budget, trigger=120 * budget)],
        )
        async with Engine(agent, MemoryStore()) as engine:
            session = engine.session("s")
            assert (await session.run("go")).text == "done"
            assert (await session.run("and now?")).text == "done"
            told = of(Compacted, await read_events(engine.store, "s", 0))
    assert server.refused == []
    assert len([body for body in server.requests if not body.get("tools")]) == len(told) >= 2


# What it does


@pytest.mark.trio
async def test_the_history_stays() -> None:
    """People see all that was said and each summary where it was made; it is told once, live and in replay (W11)."""
    summariser = Summariser()
    async with engine_with(Reader(7), compaction(summariser)) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            live = [event async for event in turn if isinstance(event, Compacted)]
            result = await turn.result()
        log = await log_of(session)
        assert of(Compacted, log) == live
        shown = await session.messages()
        assert [m.text.split(":")[0] for m in shown if m.role == "tool"] == [f"page {n}" for n in range(1, 8)]
        assert [m for m in shown if m.role == "system"] == [event.message for event in live]
        assert shown[0].text == "go"
        assert list(result.messages) == list(shown)
        loaded = await load(engine.store, "s")
        assert loaded is not None
        assert loaded[0].epoch == len(live) == len(summariser.requests) >= 2


@pytest.mark.trio
async def test_the_earlier_summary_is_folded_in() -> None:
    """The second summary is made from the first and what was said since, and takes its place."""
    summariser = Summariser()
    model = Reader(7)
    async with engine_with(model, compaction(summariser)) as engine:
        await engine.session("s").run("go")
    first, second = summariser.prompt(0), summariser.prompt(1)
    assert "earlier-summary" not in first
    assert second.startswith("<earlier-summary>\nsummary 1\n</earlier-summary>")
    assert "[user] go" not in second
    assert starts(model.requests[-1]) == "summary 2"


@pytest.mark.trio
async def test_usage_is_counted_apart() -> None:
    """What the summary used counts for the turn and under the name of its model, once."""
    summariser = Summariser()
    async with engine_with(Reader(4), compaction(summariser)) as engine:
        result = await engine.session("s").run("go")
        loaded = await load(engine.store, "s")
    assert loaded is not None
    usage = loaded[0].usage
    assert usage["sum"] == Usage(input=100, output=10)
    assert set(usage) == {"sum", "reader"}
    assert result.usage == usage["sum"] + usage["reader"]


@pytest.mark.trio
async def test_by_the_agents_own_model() -> None:
    """Without a model of its own it asks the agent's, without tools, settings and instructions of the agent."""

    def script(request: ModelRequest) -> Any:
        if not request.tools:
            return "short"
        return call("page", n=last_page(request) + 1) if last_page(request) < 4 else "done"

    model = StrictModel(script)
    async with engine_with(model, compaction()) as engine:
        assert (await engine.session("s").run("go")).text == "done"
    (asked,) = [request for request in model.requests if not request.tools]
    assert (asked.settings, asked.attempt) == ({}, "t1.5.1.summary")
    assert asked.instructions.startswith("You summarise")
    assert starts(model.requests[-1]) == "short"


@pytest.mark.trio
async def test_own_instructions() -> None:
    """A host may say how to summarise."""
    summariser = Summariser()
    middleware = Compaction(summariser, window=100_000, trigger=450, keep=150, instructions="Be very brief.")
    async with engine_with(Reader(4), middleware) as engine:
        await engine.session("s").run("go")
    assert summariser.requests[0].instructions == "Be very brief."


def test_the_prompt_is_bounded() -> None:
    """Results and arguments are capped at 2,000 characters, and of a history that is too long the newest is given."""
    stored = [
        Message("m1", None, "t1", "user", (Text("look"), Image("https://example.org/a.png")), 0.0),
        Message("m2", None, "t1", "assistant", (Text("so"), ToolCall("m2.0", "page", "a" * 3000)), 0.0),
        Message("m3", None, "t1", "tool", (ToolResult("m2.0", "r" * 3000, "error"),), 0.0),
    ]
    prompt = prompt_of(stored, 100_000)
    assert "[user] look\n[user] (image)" in prompt
    assert f"[assistant calls page] {'a' * 2000} ... (1000 characters left out)" in prompt
    assert f"[result, error] {'r' * 2000} ... (1000 characters left out)" in prompt
    summary = Message("m9", None, "t1", "user", (Text("s" * 50_000),), 0.0, keeps="")
    for room in (0, 10, 1000, 20_000):
        long = prompt_of([summary, *stored * 50], room)
        assert len(long) < room * 2 + 400
        assert "earlier messages left out" in long


def test_it_is_public() -> None:
    """The middleware and its event are where the reference says."""
    import turnstate
    import turnstate.middleware

    assert "Compaction" in turnstate.middleware.__all__
    assert "Compacted" in turnstate.__all__
    assert cast(Any, Compaction).makes_room is True
