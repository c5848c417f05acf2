"""One reader of a call's arguments: what is shown, judged, stored and run is one value, or the call is an error."""

from __future__ import annotations

import datetime
import enum
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pytest

from tests.depth import counted, pick
from tests.engine.helpers import engine_of, requests_of, result_texts
from turnstate import Agent, Allow, Call, Deny, Engine, InvalidInput, MemoryStore, ToolContext, tool
from turnstate.policy import Policy, PolicyContext, Rule, Rules, Verdict
from turnstate.testing import ScriptedModel, call
from turnstate_states.arguments import DEPTH, DIGITS, SIZE, read_arguments
from turnstate_states.codec import decode_events, encode_events
from turnstate_states.events import ApprovalRequested

TEXTS = 1_000_000
PIECES = [
    *'{}[]":,\\ \n\t\0', "true", "false", "null", "NaN", "Infinity", "-Infinity", "-0", "1e3", "1.0", "1E400", "-1e-9", "0x1",
    "\\ud800", "\\udfff", "\\ud83d\\ude00", "\\u0000", "\\u002e", "\ufeff", "\ud800", "\u2028", "'", "//", "/*", "9" * 30,
    "9" * (DIGITS + 1), "9007199254740993", "18446744073709551616", '"path"', '"Path"', '"path":"a"', '"limit"', '"/etc/x"',
    '"n":1', '"x":{"n":1}', '{"a":1}', "[[]]", "0.1", "01", "+1", "1.", ".5", "\u0661", '"2020-01-01"',
]  # fmt: skip


class Colour(enum.Enum):
    """An enumeration as a parameter."""

    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Place:
    """A class with a default as a parameter."""

    city: str
    floor: int = 0


@tool
def every(
    path: Any = "here",
    limit: Decimal = Decimal("1.50"),
    day: datetime.date = datetime.date(2020, 1, 1),
    colour: Colour = Colour.RED,
    tags: frozenset[str] = frozenset(),
    place: Place | None = None,
    ratio: float = 1.0,
    ids: dict[int, str] | None = None,
) -> str:
    """A tool with a parameter of each kind."""
    return "ok"


def texts(dice: random.Random, number: int) -> Iterator[str]:
    """Arguments that are JSON, nearly JSON, and two things at once."""
    sound = [
        '{"path": "/etc/passwd", "ratio": 2}',
        '{"limit": 0.1, "day": "2024-02-29", "colour": "blue", "tags": ["a", "a"]}',
        '{"place": {"city": "Rome"}, "ids": {"1": "a"}}',
        '{"path": [[1, {"a": null}], "x"], "limit": "1e3"}',
        "{}",
    ]
    for _ in range(number):
        text = dice.choice(sound)
        for _ in range(dice.randint(0, 4)):
            at, end = sorted(dice.randint(0, len(text)) for _ in range(2))
            piece = dice.choice(PIECES) * dice.choice((1, 1, 1, 2, DEPTH + 1))
            how = dice.random()
            text = text[:at] + piece + text[at if how < 0.6 else end :] if how < 0.9 else text[:at]
        yield text


@pytest.mark.parametrize("seed", range(pick(1, 4)))
def test_every_reader_sees_the_same_value(seed: int) -> None:
    """Over very many texts: the reader refuses one before any policy is asked, or the question, the rules, the stored
    event, every other JSON parser and the tool itself see one value."""
    number = pick(20_000, TEXTS // 4)
    context: ToolContext[None] = ToolContext(None, session_id="s", turn_id="t", call_id="c", tool="every")
    read = 0
    for text in texts(random.Random(seed), number):
        bound = every.spec.bind(text)
        asked = Call("m1.0", "every", proposed=text, filled=bound.filled)
        if bound.fault:
            continue
        read += 1
        shown = asked.arguments
        given = read_arguments(text)
        assert given == (json.loads(text) if text.strip() else {})
        assert text.strip() == "" or msgspec.json.decode(text) == given
        assert {name: shown[name] for name in given if name not in json.loads(bound.filled or "{}")} == {
            name: value for name, value in given.items() if name not in json.loads(bound.filled or "{}")
        }
        run = every.bind(text, context)
        assert msgspec.to_builtins(run, str_keys=True) == shown, text
        for name, value in shown.items():
            pattern = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
            denied, _ = Rule("every", Deny(), {name: _literal(pattern)}).judge("every", shown, None)
            assert denied, (text, name)
    counted("texts of arguments", number)
    assert number * 0.9 > read > number * 0.1


def _literal(text: str) -> str:
    """A pattern that fits just this text."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


def test_a_stored_question_shows_what_was_asked() -> None:
    """A question that is read back, by a client that knows no tool, shows the same values."""
    text = '{"colour": "blue", "ratio": 2}'
    asked = Call("m1.0", "every", "asked", proposed=text, filled=every.spec.bind(text).filled)
    stored = encode_events([ApprovalRequested(asked, number=1, at=0.0)])
    (event,) = decode_events(stored, lambda _: None)
    assert isinstance(event, ApprovalRequested)
    shown = attrs.evolve(event.call, proposed=text).arguments
    assert shown == asked.arguments
    assert (shown["limit"], shown["day"], shown["colour"], shown["ratio"]) == ("1.50", "2020-01-01", "blue", 2.0)


BAD = {
    "nested lists": '{"path": "/etc/x", "size": %s}' % ("[" * 9992 + "]" * 9992),
    "digits": '{"path": "/etc/x", "limit": %s}' % ("1" * 4301),
    "a name twice": '{"path": "/etc/x", "path": "/srv/x"}',
    "a name twice, escaped": '{"path": "/etc/x", "\\u0070ath": "/srv/x"}',
    "twice, deep": '{"path": "/etc/x", "size": {"a": 1, "a": 2}}',
    "NaN": '{"path": "/etc/x", "size": NaN}',
    "out of range": '{"path": "/etc/x", "size": 1e999}',
    "half a pair": '{"path": "/etc/x", "size": "\\ud800"}',
    "too long": '{"path": "/etc/x", "size": "%s"}' % ("x" * SIZE),
    "no object": '["/etc/x"]',
    "more": '{"path": "/etc/x"} {}',
}


@pytest.mark.trio
@pytest.mark.parametrize("name", BAD)
async def test_what_cannot_be_read_in_one_way_never_meets_a_policy(name: str) -> None:
    """A Deny rule for a path cannot be walked around by arguments that one parser reads and another does not: such a call
    is an error result, no rule is asked, and the tool does not run."""
    ran: list[str] = []
    asked: list[str] = []

    @tool
    def read_file(path: str, size: Any = None, limit: Decimal | None = None) -> str:
        ran.append(path)
        return path

    class Watched(Rules):
        async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
            asked.append(call.id)
            return await super().authorize(call, ctx)

    policy = Watched(Rule("*", Deny("no"), {"path": "/etc/*"}), Rule("read_*", Allow()))
    part = attrs.evolve(call("read_file"), arguments=BAD[name])
    async with engine_of(part, "done", tools=[read_file], policy=policy) as engine:
        result = await engine.session("s").run("go")
        (text,) = result_texts(requests_of(engine)[1])
    assert text.startswith("bad arguments for read_file:")
    assert (ran, asked) == ([], [])
    with pytest.raises(InvalidInput):
        _ = result.calls[0].arguments


@pytest.mark.trio
async def test_rules_see_defaults_and_conversions() -> None:
    """A rule on a parameter fits also where the model left it out, or wrote the same value otherwise."""

    @tool
    def make(size: str = "huge", count: float = 1.0) -> str:
        return "made"

    rules = Rules(Rule("make", Deny("too big"), {"size": "huge"}), Rule("make", Deny("too many"), {"count": "1000.0"}))
    calls = [call("make"), call("make", size="small", count=1000), call("make", size="small")]
    async with engine_of(calls, "done", tools=[make], policy=rules) as engine:
        await engine.session("s").run("go")
        assert result_texts(requests_of(engine)[1]) == ["tool denied: too big", "tool denied: too many", "made"]


@pytest.mark.trio
async def test_an_edit_goes_back_to_the_policy() -> None:
    """What a person changed the arguments to is judged: a denial stands, and the permissions are those of the new verdict;
    the record and the model say what ran, and who decided."""
    seen: dict[str, Any] = {}

    class PerPath(Policy[Any]):
        async def authorize(self, call: Call, ctx: PolicyContext[Any], /) -> Verdict:
            path = call.arguments["path"]
            if path == "/etc/x":
                return Deny("not there")
            from turnstate import Ask

            return Ask("sure?", write=[path])

    @tool
    async def write(path: str, ctx: ToolContext[None]) -> str:
        seen[path] = ctx.permissions.write
        return f"wrote {path}"

    model = ScriptedModel([[call("write", path="/a"), call("write", path="/b")], "done"])
    async with Engine(Agent(model, tools=[write], policy=PerPath()), MemoryStore()) as engine:
        session = engine.session("s")
        first, second = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.approve(first, arguments={"path": "/etc/x"}, by="bob")
            await session.approve(second, arguments={"path": "/c"}, by="bob", for_session=True)
            result = await turn.result()
        (grant,) = await session.grants()
    assert result_texts(model.requests[1]) == [
        "tool denied: not there",
        'wrote /c\n(a person changed the arguments of this call to {"path": "/c"})',
    ]
    assert seen == {"/c": ("/c",)}
    assert (grant.arguments, grant.permissions and grant.permissions.write) == ({"path": "/c"}, ("/c",))
    denied, ran = result.calls
    assert (denied.status, denied.reason, denied.arguments) == ("denied", "not there", {"path": "/etc/x"})
    assert (ran.proposed, ran.edited, ran.arguments) == ('{"path": "/b"}', '{"path": "/c"}', {"path": "/c"})
    assert ran.decision is not None
    assert (ran.decision.verdict, ran.decision.by, ran.grant) == ("approve", "bob", grant.id)
    assert ran.permissions is not None
    assert ran.permissions.write == ("/c",)
