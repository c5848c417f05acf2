"""What may be declared as a tool, and what is refused when it is."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Literal

import annotated_types
import msgspec
import pytest

from tests.engine.helpers import engine_of, requests_of, result_texts
from turnstate import Image, InvalidInput, Output, Tool, ToolContext, tool
from turnstate.testing import call

Any_ = Callable[..., Any]


@dataclasses.dataclass
class Place:
    """A place in a text."""

    line: int


class Toolbox:
    """An object whose methods are tools."""

    def __init__(self) -> None:
        self.kept = ["a"]

    def take(self, place: Annotated[int, "Counted from 0."]) -> str:
        """Take what is kept there."""
        return self.kept[place]

    async def count(self, ctx: ToolContext) -> int:
        """Count what is kept."""
        return len(self.kept)

    @staticmethod
    def sum(a: int, b: int) -> int:
        """Add."""
        return a + b

    @classmethod
    def name(cls) -> str:
        """Say what it is."""
        return cls.__name__


class Callable_:
    """An object that can be called."""

    async def __call__(self, a: int) -> int:
        """Double it."""
        return a * 2


async def double(a: int, by: int) -> int:
    """Multiply."""
    return a * by


async def answer(made: Any, **arguments: Any) -> str:
    """What the model reads of one call."""
    name = made.name if isinstance(made, Tool) else made.__name__
    async with engine_of(call(name, **arguments), "done", tools=[made]) as engine:
        await engine.session("s").run("go")
        return result_texts(requests_of(engine)[-1])[0]


@pytest.mark.trio
async def test_bound_methods_and_other_callables_are_tools() -> None:
    """A bound method, a static or class method, a partial function and an object with an async __call__ run as tools."""
    box = Toolbox()
    assert await answer(box.take, place=0) == "a"
    assert await answer(tool(box.count, exclusive=True)) == "1"
    assert await answer(box.sum, a=1, b=2) == "3"
    assert await answer(Toolbox.sum, a=1, b=2) == "3"
    assert await answer(box.name) == "Toolbox"
    assert await answer(tool(Callable_(), name="double"), a=2) == "4"
    assert await answer(tool(functools.partial(double, by=3), name="triple"), a=2) == "6"
    assert "self" not in str(tool(box.take).parameters)


def test_a_method_is_refused() -> None:
    """@tool on a method says to make the tool of the bound method."""
    with pytest.raises(InvalidInput, match=r"tool take: parameter self: .* tools=\[toolbox.take\]"):
        tool(Toolbox.take)
    with pytest.raises(InvalidInput, match="bound one"):
        type("Box", (), {"take": tool(name="x")(Toolbox.take)})


def test_annotated_metadata_is_in_the_schema() -> None:
    """Descriptions and constraints of Annotated stand in the schema; metadata of others changes nothing."""

    def find(
        a: Annotated[int, "How many.", msgspec.Meta(ge=1)],
        b: Annotated[str, annotated_types.Len(1, 5)] = "x",
        c: Annotated[float, annotated_types.Interval(gt=0, le=1), object()] | None = None,
        d: list[Annotated[int, "One number.", annotated_types.Ge(0)]] | None = None,
        e: Annotated[Place, "Where it is."] | None = None,
        f: Annotated[int, object(), 3] = 0,
        g: Annotated[Literal["x", "y"], "Which."] = "x",
    ) -> str:
        """Find.

        Args:
            a: not this.
            f: From the docstring.
        """
        return ""

    shown = tool(find).parameters["properties"]
    assert shown["a"] == {"type": "integer", "minimum": 1, "description": "How many."}
    assert shown["b"] == {"type": "string", "minLength": 1, "maxLength": 5, "default": "x"}
    assert shown["c"]["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    assert shown["d"]["anyOf"][0]["items"] == {"type": "integer", "minimum": 0, "description": "One number."}
    assert "Where it is." in str(shown["e"])
    assert shown["f"] == {"type": "integer", "default": 0, "description": "From the docstring."}
    assert shown["g"] == {"enum": ["x", "y"], "default": "x", "description": "Which."}


@pytest.mark.trio
async def test_arguments_are_held_to_constraints() -> None:
    """Arguments that break a constraint of Annotated are an error result, and the function does not run."""
    ran: list[int] = []

    def it(a: Annotated[int, annotated_types.Ge(1)]) -> str:
        ran.append(a)
        return "ran"

    assert "bad arguments for it" in await answer(it, a=0)
    assert await answer(it, a=1) == "ran"
    assert ran == [1]


def gives(hint: Any) -> Any_:
    """A function that says that it returns this."""

    def it() -> Any: ...

    it.__annotations__["return"] = hint
    return it


@pytest.mark.parametrize(
    "hint",
    [
        bytes,
        bytearray,
        memoryview,
        bytes | None,
        list[bytes],
        dict[str, bytes | int],
        AsyncIterator[bytes],
        Annotated[bytes, "x"],
    ],
)
def test_a_function_that_says_bytes_is_refused(hint: Any) -> None:
    """A return annotation with bytes in it is refused when the tool is declared, with what to return instead."""
    with pytest.raises(InvalidInput, match="Output"):
        tool(gives(hint))


@pytest.mark.parametrize("hint", [str, None, Any, Output, Place, list[int], Literal[b"x"], "Unknown"])
def test_other_return_annotations_pass(hint: Any) -> None:
    """Other return annotations are no reason to refuse a tool, but for names that do not exist."""
    if hint == "Unknown":
        with pytest.raises(InvalidInput, match="cannot be resolved"):
            tool(gives(hint))
    else:
        tool(gives(hint))


@pytest.mark.trio
@pytest.mark.parametrize(
    "value", [b"x", bytearray(b"x"), {"a": [b"x"]}, Output(b"x"), Output("x", artifact=b"x")], ids=range(5)
)
async def test_bytes_are_an_error_result(value: Any) -> None:
    """A tool that returns bytes gives an error result that says what to return, not base64 that nobody asked for."""

    def it() -> Any:
        return value

    text = await answer(it)
    assert "bytes" in text
    assert "not JSON" in text


def generator() -> Iterator[int]:
    """A plain generator."""
    yield 1


def _predicate(amount: int) -> bool:
    return True


async def _async_predicate(a: int) -> bool:
    return True


def _other(x: int) -> str:
    return "?"


make: Any = tool
"""For what a type checker refuses as well."""
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a class": (lambda: make(Place), "expected a function"),
    "a text": (lambda: make("x"), "expected a function"),
    "a lambda": (lambda: make(lambda: 1), "name="),
    "a generator": (lambda: make(generator), "generator"),
    "a builtin": (lambda: make(print), "parameter"),
    "a builtin without a signature": (lambda: make(iter), "parameter"),
    "variable arguments": (lambda: make(functools.partial(double), name="x", output_limit=0), "output_limit"),
    "a predicate of other parameters": (lambda: make(double, approval=_predicate), "approval: parameter amount"),
    "an async predicate": (lambda: make(double, approval=_async_predicate), "approval: .*async"),
    "a check that is not async": (lambda: make(double, on_crash=_predicate), "on_crash: .*not async"),
    "a check of other parameters": (lambda: make(double, on_crash=answer), "on_crash: parameter made"),
    "an async prompt": (lambda: make(double, prompt=_async_predicate), "prompt: .*async"),
    "a prompt of other parameters": (lambda: make(double, prompt=_other), "prompt: parameter x"),
    "NaN": (lambda: make(double, timeout=float("nan")), "timeout"),
    "a time that cannot be stored": (lambda: make(double, expires=float("inf")), "expires"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_work_is_refused(what: str) -> None:
    """What could not run, or could not be asked or checked, is refused with the parameter's name."""
    wrong, text = WRONG[what]
    with pytest.raises(InvalidInput, match=text):
        wrong()


def test_an_unknown_option_names_the_nearest() -> None:
    """An unknown option is a TypeError of `tool` that names the option that was probably meant, in both forms."""
    for options in ((double,), ()):
        with pytest.raises(TypeError, match=r"^tool\(\) got an unexpected keyword argument 'aproval'.*'approval'"):
            make(*options, aproval=True)


@pytest.mark.parametrize("images", [["x"], "x", 3, [Image("/pictures/x.png")]], ids=range(4))
def test_what_is_no_picture_is_refused(images: Any) -> None:
    """Output refuses images that are none, and those whose URL no server can open."""
    with pytest.raises(InvalidInput, match=r"Output\.images"):
        Output(images=images)
