"""The parts of messages: what they refuse and what they mend."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from turnstate_states.content import (
    File,
    Image,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    as_parts,
    clean_text,
    text_of,
)
from turnstate_states.errors import InvalidInput

ANY_TEXT = st.text(st.characters())


@pytest.mark.parametrize(
    "make",
    [
        Text,
        Refusal,
        Reasoning,
        Image,
        File,
        partial(ToolCall, "m1.0", arguments="{}"),
        partial(ToolCall, "m1.0", "f"),
        partial(ToolResult, "m1.0"),
    ],
)
def test_text_is_checked_when_a_part_is_made(make: Any) -> None:
    """Half of a surrogate pair, or what is no text at all, is refused before any state moves (case 116)."""
    for bad in ("a\ud800", "\udfff", None, 3, b"x"):
        with pytest.raises(InvalidInput, match=r"lone surrogate|expected text"):
            make(bad)
    make("\U0001f600 \u4e2d\u6587")


def test_the_place_of_a_lone_surrogate_is_named() -> None:
    """The error says where it is and what to do."""
    with pytest.raises(InvalidInput, match=r"U\+D800 at position 2.*errors='replace'"):
        Text("ab\ud800")


@examples()
@given(ANY_TEXT)
def test_cleaned_text_is_accepted(text: str) -> None:
    """Text from tools and models can be stored once it is cleaned; text without fault is left alone."""
    cleaned = clean_text(text)
    assert Text(cleaned).text == cleaned
    try:
        text.encode()
    except UnicodeEncodeError:
        assert cleaned != text
    else:
        assert cleaned == text
    assert clean_text(cleaned) == cleaned


def test_two_halves_that_belong_together_are_joined() -> None:
    """A pair that was cut into two code points becomes the character that it was."""
    assert clean_text("\ud83d\ude00") == "\U0001f600"


@pytest.mark.parametrize("content", ["", " ", "\n\t", (), (Text(""),), (Text(" "), Text("\n"))])
def test_an_empty_message_is_refused(content: Any) -> None:
    """Blank text alone is no message (case 45)."""
    with pytest.raises(InvalidInput, match="empty"):
        as_parts(content)


@pytest.mark.parametrize(
    "part", [ToolCall("m1.0", "f", "{}"), ToolResult("m1.0", "r"), Reasoning("hm"), Refusal("no"), "text", 3]
)
def test_a_person_cannot_send_what_is_a_models(part: Any) -> None:
    """Only text, images and files are a person's; the error names the type."""
    with pytest.raises(InvalidInput, match=type(part).__name__):
        as_parts([part])


def test_text_and_parts_are_taken_as_they_are() -> None:
    """A string becomes one part; parts stay, in order."""
    parts = (Text("look"), Image("https://example.org/a.png"), File("data:,x", "x.txt"))
    assert as_parts("hi") == (Text("hi"),)
    assert as_parts(iter(parts)) == parts
    assert as_parts(parts[1:2]) == parts[1:2]


def test_the_visible_text() -> None:
    """Text and refusals are visible, reasoning and calls are not."""
    assert text_of((Reasoning("hm"), Text("a"), ToolCall("m1.0", "f", "{}"), Refusal("b"))) == "ab"
