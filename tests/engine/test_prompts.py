"""What a person is asked about a call, what they may answer, and what the tool gets of it."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.engine.deciding import Says
from tests.engine.helpers import engine_of, events_of, requests_of, result_texts, until_event
from tests.scenarios.common import over
from tests.scenarios.threads import waiting
from turnstate import (
    ApprovalRequested,
    Ask,
    Call,
    CallAnswered,
    Client,
    InvalidInput,
    MemoryStore,
    Option,
    Prompt,
    Question,
    Refused,
    SQLiteStore,
    Tool,
    ToolContext,
    tool,
)
from turnstate.states import Decision
from turnstate.testing import call, crashes

Clock = trio.testing.MockClock
HOW = Prompt(
    "How shall it be sent?",
    (
        Option("post", "allow-once", "By post", "slow"),
        Option("mail", "allow-always", "By mail, from now on"),
        Option("not", "reject-once", "Not at all"),
        Option("later", "_later", "Later"),
    ),
    freeform=True,
)
FORM = Prompt(
    "Where to?",
    display="questions",
    questions=(
        Question("town", "Which town?", (Option("bonn", label="Bonn"), Option("kiel", label="Kiel"))),
        Question("extras", "What else?", (Option("box"), Option("bow")), multiple=True),
        Question("note", "Anything to add?", freeform=True),
    ),
    dismissible=True,
)


class Post:
    """A tool that keeps what a person said about its calls."""

    def __init__(self, prompt: Any = None, *, approval: bool = True, **options: Any) -> None:
        self.decisions: list[Decision | None] = []

        @tool(prompt=prompt, approval=approval, **options)
        async def send(ctx: ToolContext[Any], to: str = "ann") -> str:
            self.decisions.append(ctx.decision)
            return f"sent to {to}"

        self.tool: Tool[..., Any] = send


@pytest.mark.trio
async def test_a_person_is_asked_as_the_tool_says() -> None:
    """The request holds the prompt with its options; what is chosen and written reaches the tool and the record."""
    post = Post(HOW)
    async with engine_of(call("send"), "done", tools=[post.tool]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            asked = (await until_event(session, ApprovalRequested)).call
            assert asked.prompt == HOW
            assert [option.label for option in asked.prompt.options][:2] == ["By post", "By mail, from now on"]
            await session.answer(asked, option="post", text="wrap it", by="bob", reason="she waits")
            await turn.result()
        (decision,) = post.decisions
        assert decision is not None
        assert (decision.verdict, decision.option, decision.text) == ("approve", "post", "wrap it")
        assert (decision.by, decision.reason, decision.for_session) == ("bob", "she waits", False)
        answered = (await until_event(session, CallAnswered)).call.decision
        assert answered == decision


@pytest.mark.trio
async def test_questions_and_their_answers() -> None:
    """Typed answers to several questions reach the tool as they were given."""
    answers = {"town": {"options": ["kiel"]}, "extras": {"options": ["bow", "box"]}, "note": {"text": "soon"}}
    post = Post(FORM)
    async with engine_of(call("send"), "done", tools=[post.tool]) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        async with session.resume() as turn:
            await session.answer(*result.waiting, answers=answers)
            await turn.result()
    assert [found and found.answers for found in post.decisions] == [answers]


@pytest.mark.trio
@pytest.mark.parametrize("how", ["plain", "text", "function", "function of some", "function that gives nothing"])
async def test_the_forms_of_a_prompt(how: str) -> None:
    """A prompt is a question, a Prompt, or a function with some of the tool's parameters that gives one, or nothing."""

    def by_arguments(to: str) -> Prompt:
        return Prompt(f"To {to}?", (Option("y"),))

    def nothing(to: str) -> None:
        return None

    prompts: dict[str, tuple[Any, Prompt | None]] = {
        "plain": (None, None),
        "text": ("Really?", Prompt("Really?")),
        "function": (by_arguments, Prompt("To eve?", (Option("y"),))),
        "function of some": (lambda: "Sure?", Prompt("Sure?")),
        "function that gives nothing": (nothing, None),
    }
    prompt, expected = prompts[how]
    post = Post(prompt)
    async with engine_of(call("send", to="eve"), tools=[post.tool]) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
    assert asked.prompt == expected


@pytest.mark.trio
async def test_a_prompt_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A function that cannot say how to ask does not keep the call from being asked about; its trouble is logged."""

    def ask(to: str) -> str:
        raise KeyError(to)

    post = Post(ask)
    with caplog.at_level(logging.ERROR, "turnstate"):
        async with engine_of(call("send", to="eve"), "done", tools=[post.tool]) as engine:
            session = engine.session("s")
            (asked,) = (await session.run("go", check=False)).waiting
            assert asked.prompt is None
            async with session.resume() as turn:
                await session.approve(asked)
                await turn.result()
    assert "the prompt of tool send failed" in caplog.text
    assert len(post.decisions) == 1


@pytest.mark.trio
async def test_an_option_that_holds_for_the_session() -> None:
    """An option that allows always is also an approval for the session; calls that it covers have no decision of their
    own."""
    post = Post(HOW)
    script = [[call("send"), call("send")], call("send"), call("send", to="eve")]
    async with engine_of(*script, tools=[post.tool]) as engine:
        session = engine.session("s")
        first, _ = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.answer(first, option="mail")
            (left,) = (await turn.result(check=False)).waiting
        assert left.arguments == {"to": "eve"}
        (grant,) = await session.grants()
        assert (grant.tool, grant.arguments) == ("send", {"to": "ann"})
    assert [(found.option, found.for_session) for found in post.decisions if found] == [("mail", True)]
    assert len(post.decisions) == 3


@pytest.mark.trio
async def test_an_option_that_denies() -> None:
    """An option that rejects denies; a word of the host's own decides nothing by itself, and is kept beside the
    verdict."""
    post = Post(HOW)
    async with engine_of([call("send", to="a"), call("send", to="b")], "done", tools=[post.tool]) as engine:
        session = engine.session("s")
        first, second = (await session.run("go", check=False)).waiting
        with pytest.raises(InvalidInput, match="say approve or deny beside it"):
            await session.answer(second, option="later")
        async with session.resume() as turn:
            await session.answer(first, option="not", reason="no stamps")
            await session.answer(second, option="later", verdict="deny", text="tomorrow")
            await turn.result()
        log = await events_of(session, until=over())
        decisions = [event.call.decision for event in log if isinstance(event, CallAnswered)]
        assert [(found.verdict, found.option, found.text) for found in decisions if found] == [
            ("deny", "not", ""),
            ("deny", "later", "tomorrow"),
        ]
        assert result_texts(requests_of(engine)[1]) == ["tool denied: no stamps", "tool denied: the user declined"]
    assert post.decisions == []


@pytest.mark.trio
async def test_a_dismissal() -> None:
    """A prompt that allows it is closed without an answer: the model reads that, and the tool does not run."""
    post = Post(FORM)
    async with engine_of(call("send"), "done", tools=[post.tool]) as engine:
        session = engine.session("s")
        (asked,) = (await session.run("go", check=False)).waiting
        async with session.resume() as turn:
            await session.answer(asked, verdict="dismiss", by="bob")
            result = await turn.result()
        assert [found.status for found in result.calls] == ["denied"]
        assert result_texts(requests_of(engine)[1]) == ["tool denied: the user dismissed the question"]
    assert post.decisions == []


@pytest.mark.trio
async def test_the_policy_asks_in_its_own_words() -> None:
    """A policy that asks says how, in place of the tool; without words of its own the tool's prompt stands."""
    own = Prompt("The policy asks: really?", (Option("y"),), dismissible=True)
    asks: dict[str, Ask] = {"a": Ask(prompt=own), "b": Ask("too far", prompt="Really?"), "c": Ask("hm")}

    def say(asked: Call) -> Ask:
        return asks[str(asked.arguments["to"])]

    post = Post(HOW, approval=False)
    script = [call("send", to=name) for name in asks]
    async with engine_of(script, "done", tools=[post.tool], policy=Says(say)) as engine:
        session = engine.session("s")
        first, second, third = (await session.run("go", check=False)).waiting
        assert (first.prompt, first.reason) == (own, "")
        assert (second.prompt, second.reason) == (Prompt("Really?"), "too far")
        assert (third.prompt, third.reason) == (HOW, "hm")
        async with session.resume() as turn:
            await session.answer(first, option="y")
            await session.approve(second)
            await session.answer(third, option="post")
            await turn.result()
    assert sorted(found.option for found in post.decisions if found) == ["", "post", "y"]


@pytest.mark.trio
async def test_a_request_that_nobody_answers(autojump_clock: Clock) -> None:
    """A prompt expires at its deadline, which is told with it: the call is denied, and an answer after it is refused;
    one just before it counts."""
    post = Post(HOW, expires=60)
    async with engine_of([call("send", to="a"), call("send", to="b")], "done", tools=[post.tool]) as engine:
        session = engine.session("s")
        async with session.turn("go") as turn:
            first, second = (await turn.result(check=False)).waiting
            info = await session.info()
            assert info.deadline == first.expires_at == second.expires_at
            await trio.sleep(59)
            await session.answer(first, option="post")
            await trio.sleep(2)
            with pytest.raises(Refused) as refused:
                await session.answer(second, option="post")
            assert refused.value.code == "stale"
            assert (await turn.result()).text == "done"
        assert result_texts(requests_of(engine)[1]) == ["sent to a", "tool denied: the approval request expired"]
    assert len(post.decisions) == 1


@pytest.mark.trio
async def test_a_deadline_that_passed_while_nobody_drove(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that was posted in time counts, though nobody applied it before the deadline; a client that answers after
    it is refused at once."""
    post, store = Post(HOW, expires=60), MemoryStore()
    async with engine_of(call("send"), tools=[post.tool], store=store) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
    async with Client(store) as client:
        handle = client.session("s")
        await handle.answer(asked, option="post", id="in time")
        began = time.time()
        monkeypatch.setattr(time, "time", lambda: began + 100)
        with pytest.raises(Refused) as refused:
            await handle.answer(asked, option="post", id="late")
        assert refused.value.code == "stale"
    async with engine_of("done", tools=[post.tool], store=store) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            assert (await turn.result()).text == "done"
        assert result_texts(requests_of(engine)[0]) == ["sent to ann"]
    assert [found and found.option for found in post.decisions] == ["post"]


@pytest.mark.trio
async def test_prompts_outlive_the_process(tmp_path: Path) -> None:
    """A prompt is stored with its request: the next process, a client and a list show it as it was asked, even where
    the tool asks otherwise by then; what was answered reaches the tool there."""
    path = tmp_path / "turns.db"
    async with engine_of(call("send"), tools=[Post(HOW).tool], store=SQLiteStore(path)) as engine:
        (asked,) = (await engine.session("s").run("go", check=False)).waiting
    async with Client(SQLiteStore(path)) as client:
        (listed,) = [info async for info in client.sessions(waiting=True)]
        assert [found.prompt for found in listed.waiting] == [HOW]
        view = await client.session("s").thread()
        assert [found.prompt for found in view.waiting] == [HOW]
        with pytest.raises(InvalidInput):
            await client.session("s").answer(asked, option="raven")
        await client.session("s").answer(asked, option="post", text="please", by="bob")
    post = Post("Otherwise?")
    async with engine_of("done", tools=[post.tool], store=SQLiteStore(path)) as engine:
        session = engine.session("s")
        async with session.resume() as turn:
            await turn.result()
        assert await waiting(session) == []
    (decision,) = post.decisions
    assert decision is not None
    assert (decision.option, decision.text, decision.by) == ("post", "please", "bob")


@pytest.mark.trio
async def test_a_decision_that_was_made_before_a_crash_reaches_the_tool() -> None:
    """Wherever the process dies, a tool that runs sees the decision that a person made about its call."""
    post = Post(HOW, on_crash="rerun")
    agent = engine_of(call("send"), "done", tools=[post.tool]).agent
    rounds = 0
    async for crash in crashes(agent, "go"):
        post.decisions.clear()
        assert (await crash.finish()).calls[0].status == "ok"
        assert post.decisions
        assert all(found is not None and found.verdict == "approve" for found in post.decisions)
        rounds += 1
    assert rounds > 6


CHANGED = '\n(a person changed the arguments of this call to {"to": "eve"})'


@pytest.mark.trio
async def test_calls_that_nobody_was_asked_about() -> None:
    """A tool whose call nobody decided on sees no decision; edited arguments and the decision come together."""
    free, asked = Post(approval=False), Post(HOW)
    renamed = tool(name="ask_first", approval=True, prompt=HOW)(asked.tool.function)
    async with engine_of([call("send"), call("ask_first")], "done", tools=[free.tool, renamed]) as engine:
        session = engine.session("s")
        result = await session.run("go", check=False)
        async with session.resume() as turn:
            await session.approve(*result.waiting, arguments={"to": "eve"}, by="bob")
            await turn.result()
        assert result_texts(requests_of(engine)[1]) == ["sent to ann", "sent to eve" + CHANGED]
    assert free.decisions == [None]
    assert [found and found.by for found in asked.decisions] == ["bob"]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Prompt(options=(Option("a"), Option("a"))), "options"),
        (lambda: Prompt(questions=(Question("a", "?"), Question("a", "!"))), "questions"),
        (lambda: Option("a", "perhaps"), "kind"),
        (lambda: Option("a", "_"), "kind"),
        (lambda: Ask(prompt=3), "prompt"),  # type: ignore[arg-type]
    ],
)
def test_prompts_that_make_no_sense(make: Any, word: str) -> None:
    """A prompt whose ids are not unique, or an option of an unknown kind, is refused where it is made."""
    with pytest.raises(InvalidInput, match=word):
        make()
