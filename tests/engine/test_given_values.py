"""Values that people and hosts give to a session: kept as they are, or refused by the path of what is wrong."""

from __future__ import annotations

import datetime
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.engine.helpers import engine_of
from turnstate import Audio, File, Image, InvalidInput, MemoryStore, SessionHandle, Text
from turnstate.testing import call
from turnstate_states import checks
from turnstate_states.content import as_parts


def nested(depth: int) -> dict[str, Any]:
    """A mapping that is so deep."""
    made: dict[str, Any] = {}
    for _ in range(depth - 1):
        made = {"a": made}
    return made


def cycle() -> dict[str, Any]:
    """A mapping that holds itself."""
    made: dict[str, Any] = {}
    made["a"] = [made]
    return made


BAD: list[tuple[Any, str]] = [
    (float("nan"), "x: nan"),
    (math.inf, "x: inf"),
    (b"bytes", "x: bytes"),
    ({1, 2}, "x: set"),
    (datetime.date(2026, 1, 1), "x: date"),
    ({"y": [{1: 2}]}, r"x\.y\[0\]: expected text as keys, got 1"),
    ({"y": [0, {"z": float("nan")}]}, r"x\.y\[1\]\.z: nan"),
    ("\ud800", "x: lone surrogate"),
    ({"\ud800": 1}, "lone surrogate"),
    (10**5000, "x: an integer"),
    (object(), "x: object"),
    (nested(20_000), "nested more than"),
    (cycle(), "nested more than"),
]
GOOD: list[Any] = [None, True, 0, -(2**70), 1.5, "", "a\0b", [], [None], {"": {}}, nested(199)]

Give = Callable[[SessionHandle, Any], Awaitable[Any]]
WHERE: dict[str, Give] = {
    "arguments": lambda s, v: s.approve("m2.0", arguments={"x": v}),
    "arguments of a command": lambda s, v: s.command("any", {"x": v}),
    "answers": lambda s, v: s.answer("m2.0", answers={"x": v}),
    "result": lambda s, v: s.provide("m2.0", {"x": v}),
    "artifact": lambda s, v: s.provide("m2.0", artifact={"x": v}),
    "metadata": lambda s, v: s.annotate("m1", {"x": v}),
    "settings": lambda s, v: s.regenerate(settings={"x": v}),
    "provider": lambda s, v: s.send([Text("a", provider={"x": v})]),
}


@pytest.mark.trio
@pytest.mark.parametrize("where", WHERE)
async def test_what_is_not_json_is_refused_by_its_path(where: str) -> None:
    """Wherever data is given, what is not plain JSON raises InvalidInput with the path, and nothing changes."""

    async def it(a: int) -> int:
        return a

    async with engine_of(call("it", a=1), tools=[it]) as engine:
        session = engine.session("s")
        await session.run("go", check=False)
        before = await session.info()
        for value, text in BAD:
            with pytest.raises(InvalidInput, match=text) as raised:
                await WHERE[where](session, value)
            assert len(str(raised.value)) < 300
            assert where.split()[0] in str(raised.value)
        assert await session.info() == before


@pytest.mark.trio
async def test_what_is_json_is_kept_as_it_is() -> None:
    """Metadata that is plain JSON reads back equal, however deep, and shares nothing with what was given."""
    store = MemoryStore()
    async with engine_of("hi", store=store) as engine:
        session = engine.session("s")
        await session.run("go")
        given = {str(place): value for place, value in enumerate(GOOD)} | {"list": [1]}
        kept = {name: value for name, value in given.items() if value is not None}
        await session.annotate("m1", given)
        given["list"].append(2)
        (first, _) = await session.messages()
        assert first.metadata == kept | {"list": [1]}


def test_data_may_be_200_deep() -> None:
    """Data may be nested as deep as is said, and one more is refused; a cycle is."""
    assert checks.json_value("x", nested(200)) == nested(200)
    for value in (nested(201), cycle()):
        with pytest.raises(InvalidInput, match="nested more than 200 deep"):
            checks.json_value("x", value)


@pytest.mark.parametrize(
    "url",
    [
        "file:///x",
        "FILE:x",
        "/pictures/x.png",
        "x.png",
        "C:\\x.png",
        "",
        " ",
        "~/a",
        "data:image/png;base64",
        "http:",
        "https://",
    ],
)
@pytest.mark.parametrize("kind", [Image, File, Audio])
def test_a_path_is_no_url(kind: Any, url: str) -> None:
    """A path, a file: URL and an incomplete URL are refused when they are sent, with what to do instead."""
    with pytest.raises(InvalidInput, match=rf"message\[1\]: {kind.__name__}.url: .*(data:|host)"):
        as_parts([Text("look"), kind(url)])


@pytest.mark.parametrize(
    "url", ["https://example.org/a.png", "data:,x", "data:image/png;base64,AA==", "gs://b/c", "HTTP://h"]
)
def test_other_urls_pass(url: str) -> None:
    """URLs that a provider may read are left alone."""
    assert as_parts([Image(url)]) == (Image(url),)


UNLISTED: list[tuple[Callable[[SessionHandle], Awaitable[Any]], str]] = [
    (lambda s: s.rename("a\0b"), "title"),
    (lambda s: s.rename(" "), "title"),
    (lambda s: s.label({"a\0": "b"}), "labels"),
    (lambda s: s.label({"a": "b\0"}), r"labels\.a"),
    (lambda s: s.send("x", id="a\0"), "id"),
    (lambda s: s.send("x", id=""), "id"),
    (lambda s: s.send("x", id="a" * 201), "id"),
    (lambda s: s.fork(id="a\0"), "id"),
    (lambda s: s.deny("m2.0", by="a\0"), "by"),
]


@pytest.mark.trio
@pytest.mark.parametrize(
    ("give", "field"),
    UNLISTED,
)
async def test_what_a_list_cannot_hold_is_refused(give: Callable[[SessionHandle], Awaitable[Any]], field: str) -> None:
    """U+0000 in an id, a title or a label is refused where it is given: a store may be unable to hold it in a list."""
    async with engine_of("one", "two") as engine:
        session = engine.session("s")
        await session.run("go")
        with pytest.raises(InvalidInput, match=field):
            await give(session)
        assert (await session.run("go")).text == "two"


@pytest.mark.trio
async def test_a_message_may_hold_what_a_title_cannot() -> None:
    """U+0000 stays in a message, whose JSON escapes it, and is left out of the title that is made of it."""
    async with engine_of("one") as engine:
        session = engine.session("s")
        await session.run("a\0b")
        assert ((await session.messages())[0].text, (await session.info()).title) == ("a\0b", "a b")
