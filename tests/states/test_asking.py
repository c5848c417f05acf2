"""What a person is asked beyond yes and no, and what their answers mean: spec 5.3 of the thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.depth import examples
from tests.states.scene import Scene, wants
from tests.states.strategies import JSON, instances
from turnstate_states.asking import Option, Prompt, Question, meaning
from turnstate_states.errors import InvalidInput
from turnstate_states.events import ApprovalRequested, CallStarted, GrantAdded
from turnstate_states.reports import PolicyDecided
from turnstate_states.rules import ToolSpec
from turnstate_states.submissions import Answer

ODD = ("__proto__", "constructor", "toString", "hasOwnProperty", "__class__", "", "0")
OPTIONS = (
    Option("once", "allow-once"),
    Option("always", "allow-always"),
    Option("no", "reject-once"),
    Option("never", "reject-always"),
    Option("later", "_later"),
    Option("__proto__", "allow-once"),
)
DECISION = Prompt("May it?", OPTIONS)
SELECT = Prompt("Which?", OPTIONS, "select")
FREE = Prompt("Which?", OPTIONS, "select", freeform=True)
TEXT = Prompt("Say", (), "text")
CLOSABLE = Prompt("Say", (), "text", dismissible=True)
QUESTIONS = Prompt(
    "Some questions",
    display="questions",
    questions=(
        Question("one", "One?", (Option("a"), Option("b"))),
        Question("many", "Many?", (Option("a"), Option("constructor")), multiple=True, freeform=True),
        Question("__proto__", "Words?"),
    ),
)
ANSWERED: Mapping[str, Any] = {
    "one": {"options": ["a"]},
    "many": {"options": ["a", "constructor"], "text": "and more"},
    "__proto__": {"text": "words"},
}


def said(prompt: Prompt | None, verdict: Any = "", **more: Any) -> tuple[str, bool, str]:
    """What an answer means."""
    return meaning(prompt, Answer("a", ("m1.0",), verdict, **more))


@pytest.mark.parametrize(
    ("prompt", "answer", "verdict", "always"),
    [
        (None, {"verdict": "approve"}, "approve", False),
        (None, {"verdict": "deny"}, "deny", False),
        (None, {"verdict": "approve", "for_session": True}, "approve", True),
        (DECISION, {"verdict": "approve"}, "approve", False),
        (DECISION, {"option": "once"}, "approve", False),
        (DECISION, {"option": "always"}, "approve", True),
        (DECISION, {"option": "no"}, "deny", False),
        (DECISION, {"option": "never"}, "deny", False),
        (DECISION, {"option": "__proto__"}, "approve", False),
        (DECISION, {"option": "once", "verdict": "approve"}, "approve", False),
        (DECISION, {"option": "no", "verdict": "deny"}, "deny", False),
        (DECISION, {"option": "later", "verdict": "approve"}, "approve", False),
        (DECISION, {"option": "later", "verdict": "deny"}, "deny", False),
        (SELECT, {"option": "once"}, "approve", False),
        (FREE, {"text": "another one"}, "approve", False),
        (FREE, {"text": "another one", "option": "no"}, "deny", False),
        (TEXT, {"text": "words"}, "approve", False),
        (TEXT, {"text": "no words", "verdict": "deny"}, "deny", False),
        (TEXT, {"verdict": "deny"}, "deny", False),
        (CLOSABLE, {"verdict": "dismiss"}, "deny", False),
        (QUESTIONS, {"answers": ANSWERED}, "approve", False),
        (QUESTIONS, {"answers": ANSWERED, "verdict": "approve"}, "approve", False),
        (QUESTIONS, {"verdict": "deny"}, "deny", False),
        (attrs.evolve(DECISION, freeform=True), {"text": "because", "verdict": "approve"}, "approve", False),
    ],
)
def test_what_an_answer_means(prompt: Prompt | None, answer: dict[str, Any], verdict: str, always: bool) -> None:
    """A verdict, an option by its kind, or the answer to what was asked."""
    assert said(prompt, **answer)[:2] == (verdict, always)


WRONG: list[Any] = [
    {},
    {"options": []},
    {"options": ["a", "b"]},
    {"options": ["a", "a"]},
    {"options": ["c"]},
    {"options": ["toString"]},
    {"options": "a"},
    {"options": {"a": 1}},
    {"options": [["a"]]},
    {"options": ["a"], "text": "words"},
    {"options": ["a"], "text": None},
    {"text": "words"},
    "a",
    ["a"],
    None,
    0,
]
MISFITS: list[tuple[Prompt | None, dict[str, Any], str]] = [
    (None, {}, "verdict"),
    (None, {"option": "once"}, "option"),
    (None, {"text": "yes"}, "text"),
    (None, {"answers": {"one": {"text": "x"}}}, "answers"),
    (None, {"verdict": "dismiss"}, "verdict"),
    (DECISION, {}, "verdict"),
    (DECISION, {"option": "other"}, "option"),
    *[(DECISION, {"option": name}, "option") for name in ODD if name not in ("__proto__", "")],
    (DECISION, {"option": "once", "verdict": "deny"}, "verdict: the option once means approve"),
    (DECISION, {"option": "never", "verdict": "approve"}, "verdict: the option never means deny"),
    (DECISION, {"option": "later"}, "verdict: the option later is of the kind _later"),
    (DECISION, {"text": "yes"}, "text"),
    (attrs.evolve(DECISION, freeform=True), {"text": "yes"}, "verdict: .* a text alone decides nothing"),
    (SELECT, {}, "verdict"),
    (SELECT, {"text": "another"}, "text"),
    (TEXT, {}, "verdict"),
    (TEXT, {"text": ""}, "verdict"),
    (TEXT, {"answers": ANSWERED}, "answers"),
    (TEXT, {"verdict": "dismiss"}, "verdict"),
    (CLOSABLE, {"verdict": "dismiss", "text": "words"}, "verdict"),
    (QUESTIONS, {}, "verdict"),
    (QUESTIONS, {"verdict": "approve"}, "answers"),
    (QUESTIONS, {"text": "words"}, "text"),
    (QUESTIONS, {"answers": {**ANSWERED, "toString": {"text": "x"}}}, "answers: there is no question 'toString'"),
    (QUESTIONS, {"answers": {"one": ANSWERED["one"]}}, "answers.many: not answered"),
    *[(QUESTIONS, {"answers": {**ANSWERED, "one": wrong}}, r"answers\.one") for wrong in WRONG],
    (QUESTIONS, {"answers": {**ANSWERED, "__proto__": {"text": ""}}}, "answers.__proto__: not answered"),
    (QUESTIONS, {"answers": {**ANSWERED, "__proto__": {"options": ["a"]}}}, "answers.__proto__"),
]


@pytest.mark.parametrize(("prompt", "answer", "match"), MISFITS)
def test_an_answer_that_does_not_fit(prompt: Prompt | None, answer: dict[str, Any], match: str) -> None:
    """The error names the field; nothing but own ids is found, whatever the names of inherited ones are."""
    with pytest.raises(InvalidInput, match=f"^{match}"):
        said(prompt, **answer)


def test_a_dismissal_says_so() -> None:
    """Closing a question is a denial that says what it was."""
    assert said(CLOSABLE, "dismiss")[2] == "the user dismissed the question"


@pytest.mark.parametrize("kind", ["allow", "", "_", "ALLOW-ONCE", "reject"])
def test_a_kind_that_does_not_exist(kind: str) -> None:
    """A kind is one of the four, or a word that begins with an underscore."""
    with pytest.raises(InvalidInput, match=r"^Option\.kind"):
        Option("x", kind)


def test_ids_are_unique() -> None:
    """Two options, or two questions, cannot have the same id."""
    with pytest.raises(InvalidInput, match=r"^Prompt\.options"):
        Prompt(options=(Option("x"), Option("x")))
    with pytest.raises(InvalidInput, match=r"^Prompt\.questions"):
        Prompt(questions=(Question("x", ""), Question("x", "")))


FIELDS = ("verdict", "option", "text", "answers")
NAMES = st.sampled_from(["a", "once", "later", "one", "many", *ODD])
PROMPTS = st.sampled_from([DECISION, SELECT, FREE, TEXT, CLOSABLE, QUESTIONS]) | instances(Prompt)
ONE = st.fixed_dictionaries({}, optional={"options": JSON | st.lists(NAMES | JSON, max_size=2), "text": JSON})
ANSWERS = st.builds(
    Answer,
    st.just("a"),
    st.just(("m1.0",)),
    st.sampled_from(["approve", "deny", "dismiss", ""]),
    for_session=st.booleans(),
    option=NAMES | st.text(max_size=3),
    text=st.text(max_size=3),
    answers=st.dictionaries(NAMES, ONE | JSON, max_size=3),
)


@examples(500)
@given(st.none() | PROMPTS, ANSWERS)
def test_every_answer_means_something_or_is_invalid(prompt: Prompt | None, answer: Answer) -> None:
    """Whatever is asked and answered: a verdict, or InvalidInput; an approval never comes from a text alone."""
    try:
        verdict, always, _ = meaning(prompt, answer)
    except InvalidInput as error:
        assert str(error).partition(":")[0].partition(".")[0] in FIELDS  # noqa: PT017
        return
    assert verdict in ("approve", "deny")
    if answer.verdict in ("approve", "deny"):
        assert verdict == answer.verdict
    elif verdict == "approve" and not answer.option:
        assert prompt is not None
        assert prompt.display != "decision"
    assert not always or answer.for_session or answer.option


# Through the session


def asks(prompt: Prompt, **more: Any) -> Scene:
    """A session in which a call is asked about in this way."""
    return Scene.calling(ToolSpec("asked", approval="always", prompt=lambda _: prompt, **more), ToolSpec("plain"))


def test_the_request_tells_how_to_ask() -> None:
    """The prompt stands in the request, and is there after a restart; a policy's own goes before the tool's."""
    scene = asks(DECISION)
    assert scene.told(ApprovalRequested)[0].call.prompt == DECISION
    scene.crash()
    assert scene.calls[0].prompt == DECISION
    scene = Scene.calling(ToolSpec("policy", approval="policy", prompt=lambda _: TEXT))
    scene.report(PolicyDecided(scene.key, "m2.0", "ask", prompt=SELECT))
    assert scene.calls[0].prompt == SELECT


def test_an_option_may_grant() -> None:
    """An option of the kind allow-always is an approval for the session."""
    scene = asks(DECISION)
    scene.answer("", 0, option="always", by="ann")
    assert scene.statuses == ["started", "started"]
    assert [event.grant.by for event in scene.told(GrantAdded)] == ["ann"]
    scene.done(0)
    scene.done(1)
    scene.reply(*wants("asked"))
    assert scene.statuses == ["started"]


@pytest.mark.parametrize("option", ["no", "never"])
def test_an_option_may_deny(option: str) -> None:
    """An option of a rejecting kind is a denial; it grants nothing."""
    scene = asks(DECISION)
    scene.answer("", 0, option=option)
    assert scene.result("m2.0") == "tool denied: the user declined"
    assert scene.core.checkpoint.grants == ()


def test_an_option_of_another_kind_needs_a_verdict() -> None:
    """What a host's own kind means is for the host to say, beside it."""
    scene = asks(DECISION)
    scene.invalid(Answer("x", ("m2.0",), "", option="later"), "verdict")
    scene.answer("approve", 0, option="later")
    decision = scene.calls[0].decision
    assert decision is not None
    assert (decision.verdict, decision.option) == ("approve", "later")


@pytest.mark.parametrize("prompt", [DECISION, attrs.evolve(DECISION, freeform=True)])
def test_a_text_alone_authorises_nothing(prompt: Prompt) -> None:
    """Words are no decision, whatever they say; nothing runs."""
    scene = asks(prompt)
    scene.invalid(Answer("x", ("m2.0",), "", text="yes, go ahead"), "text|verdict")
    assert [event.call.tool for event in scene.told(CallStarted)] == ["plain"]


def test_nobody_can_grant_with_a_denial() -> None:
    """An option that rejects cannot be for the session."""
    asks(DECISION).invalid(Answer("x", ("m2.0",), "", option="no", for_session=True), "for_session")


def test_a_question_that_is_dismissed() -> None:
    """The call is denied, and the model reads that the question was dismissed."""
    scene = asks(CLOSABLE)
    scene.answer("dismiss", 0)
    assert scene.result("m2.0") == "tool denied: the user dismissed the question"
    scene = asks(CLOSABLE)
    scene.answer("dismiss", 0, reason="not now")
    assert scene.result("m2.0") == "tool denied: not now"


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        (TEXT, {"text": "words"}),
        (SELECT, {"option": "__proto__"}),
        (QUESTIONS, {"answers": ANSWERED}),
        (QUESTIONS, {"answers": {**ANSWERED, "one": {"options": ("b",)}}}),
    ],
)
def test_the_tool_reads_the_answer(prompt: Prompt, answer: dict[str, Any]) -> None:
    """What was said reaches the call that starts; the same again is fine, also after a restart, another conflicts."""
    scene = asks(prompt, exclusive=True)
    scene.answer("", 0, **answer)
    (event, *_) = scene.told(CallStarted)
    decision = event.call.decision
    assert decision is not None
    assert decision.text == answer.get("text", "")
    assert decision.option == answer.get("option", "")
    assert decision.answers.keys() == answer.get("answers", {}).keys()
    for _ in range(2):
        calls = scene.calls
        scene.answer("", 0, **answer)
        assert scene.calls == calls
        assert len(scene.told(CallStarted)) == 1
        scene.running, scene.core = None, scene.restored()
        scene.drive()
    scene.refuse(Answer("x", ("m2.0",), "deny"), "conflict")
    other: dict[str, Any] = {name: "once" if name == "option" else "other" for name in answer if name != "answers"}
    if other:
        scene.refuse(Answer("x", ("m2.0",), "", **other), "conflict")


def test_answers_to_different_prompts() -> None:
    """One answer to several calls must fit each of them."""
    scene = Scene.calling(
        ToolSpec("one", approval="always", prompt=lambda _: DECISION), ToolSpec("two", approval="always")
    )
    scene.invalid(Answer("x", ("m2.0", "m2.1"), "", option="once"), "option")
    scene.answer("approve", 0, 1)
    assert scene.statuses == ["started", "started"]
