"""What a host gives an adapter to open a server with is seen by that server only."""

from __future__ import annotations

import base64
import copy
import gc
import html
import json
import logging
import pickle
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import attrs
import pytest

from tests.depth import rotated
from tests.models.exchanges import everything_told, failure_of
from turnstate import Agent, Engine, Limits, Retrying, SQLiteStore, TurnEnded, TurnFailed
from turnstate.middleware import Compaction
from turnstate.models import Anthropic, Fallback, Gemini, HTTPOptions, OpenAIChat, OpenAIResponses
from turnstate.models.wire import endpoint
from turnstate.models.wire.redaction import PIECE, Redactor, chain_of
from turnstate.models.wire.secret_words import redactor_of
from turnstate.policy import Reviewer
from turnstate.testing.byte_server import head, serving

Adapter = type[OpenAIChat | OpenAIResponses | Anthropic | Gemini]
ADAPTERS: list[Adapter] = [OpenAIChat, OpenAIResponses, Anthropic, Gemini]
every_adapter = pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)

SECRET = 'sk/Canary+"Q9<&7%3D'
"""With characters that servers write in other ways."""

CODED = quote(SECRET, safe="")

SHOWN = ["sk/canary", "canary+"]
"""Pieces of it, as short as one might see them."""


def given(way: str, url: str = "http://127.0.0.1:9") -> dict[str, Any]:
    """The arguments of an adapter that gets the secret in one of the ways there are."""
    login = base64.b64encode(f"someone:{SECRET}".encode()).decode()
    ways: Mapping[str, dict[str, Any]] = {
        "api_key": {"api_key": SECRET},
        "function": {"api_key": lambda: SECRET},
        "bearer": {"headers": {"Authorization": f"Bearer {SECRET}"}},
        "basic": {"headers": {"Authorization": f"Basic {login}"}},
        "basic, no padding": {"headers": {"Authorization": f"basic  {login.rstrip('=')}"}},
        "x-api-key": {"headers": {"X-API-Key": SECRET}},
        "cookie": {"headers": {"Cookie": f"theme=dark; session={SECRET}; a=b"}},
        "proxy auth": {"headers": {"Proxy-Authorization": f"Bearer {SECRET}"}},
        "custom header": {"headers": {"X-Tenant": f"tenant={SECRET}"}},
        "query": {"base_url": f"{url}/v1?code={CODED}"},
        "user": {"base_url": f"{url.replace('//', f'//{CODED}@')}/v1"},
        "password": {"base_url": f"{url.replace('//', f'//someone:{CODED}@')}/v1"},
        "body": {"extra_body": {"servers": [{"type": "mcp", "headers": {"Authorization": f"Bearer {SECRET}"}}]}},
        "body, by name": {"extra_body": {"mcp_servers": [{"authorization_token": SECRET}]}},
        "proxy": {"http": HTTPOptions(proxy=url.replace("//", f"//someone:{CODED}@"))},
    }
    return {"base_url": f"{url}/v1", "api_key": "", **ways[way]} if url else ways[way]


WAYS = """api_key|function|bearer|basic|basic, no padding|x-api-key|cookie|proxy auth|custom header|query|user|password
|body|body, by name|proxy""".replace("\n", "").split("|")
every_way = pytest.mark.parametrize("way", WAYS)


def shown(text: str) -> list[str]:
    """The pieces of the secret that a text shows, however they are written."""
    text = text.lower()
    return [piece for piece in SHOWN if piece in text or quote(piece, safe="").lower() in text]


def answers() -> dict[str, list[bytes]]:
    """Answers that repeat the secret: in each place of an answer, written in each way, whole and cut off."""
    written = {
        "plain": SECRET,
        "shouted": SECRET.upper(),
        "percent": quote(SECRET, safe=""),
        "html": html.escape(SECRET),
        "json": json.dumps(SECRET)[1:-1],
        "tail": SECRET[2:],
        # Where texts are cut: the last characters that are kept are the first ones of the secret.
        **{f"cut at {cut}-{kept}": "x" * (cut - kept) + SECRET for cut in (40, 80, 500, 2000) for kept in (5, 7, 12)},
        "cut, after blanks": "x" + " " * 1990 + SECRET,
    }
    found: dict[str, list[bytes]] = {}
    for name, text in written.items():
        error = json.dumps({"error": {"message": f"{text}", "code": "bad", "status": text}}).encode()
        stream = [b"Content-Type: text/event-stream"]
        found |= {
            f"{name}: status": answer("401 Unauthorized", error),
            f"{name}: text": answer("500 Internal Server Error", text.encode()),
            f"{name}: page": answer("502 Bad Gateway", f"<html><title>{text}</title></html>".encode()),
            f"{name}: stream": answer("200 OK", b"event: error\ndata: " + error + b"\n\n", *stream),
            f"{name}: broken stream": answer("200 OK", b"data: {" + text.encode() + b"\n\n", *stream),
            f"{name}: broken body": answer("200 OK", b"{" + text.encode()),
            f"{name}: no HTTP": [text.encode() + b"\r\n\r\n"],
            f"{name}: packed": answer("200 OK", b"{}", b"Content-Encoding: " + text.encode()[:200]),
        }
    return found


def answer(status: str, body: bytes, *fields: bytes) -> list[bytes]:
    """An answer in one piece."""
    return [head(len(body), status, *(field.decode() for field in fields)) + body]


def log_everything(caplog: pytest.LogCaptureFixture) -> None:
    """Take all lines of the log but httpcore's own of how it reads and writes: it shows headers as a server sent them."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, logger="httpcore")


@pytest.mark.parametrize(("way", "adapter"), rotated(WAYS, ADAPTERS), ids=repr)
async def test_what_a_server_repeats_is_hidden(adapter: Adapter, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """However a secret is given and repeated, the error, what led to it and the log do not show it."""
    log_everything(caplog)
    every = way in ("bearer", "password")
    scripts = {name: script for name, script in answers().items() if every or name.startswith(("plain", "percent"))}
    async with serving(*scripts.values()) as server:
        for name in scripts:
            error = await failure_of(adapter("m", **given(way, server.url)))
            assert not shown(everything_told(error)), name
            assert "sk/c" not in str(error).lower(), name
            assert not any(getattr(cause, "_request", None) for cause in chain_of(error)), name
    assert len(server.requests) == len(scripts)
    assert not shown(caplog.text)


@pytest.mark.parametrize("way", ["function", "bearer", "cookie", "query", "password"])
async def test_nothing_secret_is_stored(way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the file of the store nor an event, a result or an exception of a failed turn shows it."""
    log_everything(caplog)
    scripts = answers()
    asked = [scripts["plain: text"], scripts["plain: status"]]
    async with (
        serving(*asked) as server,
        Engine(
            Agent(OpenAIChat("m", **given(way, server.url)), limits=Limits(attempts=2)),
            SQLiteStore(tmp_path / "turns.db"),
        ) as engine,
    ):
        session = engine.session("a")
        with pytest.raises(TurnFailed) as caught:
            await session.run("hello")
        events: list[object] = []
        async with session.events(after=0) as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, TurnEnded):
                    break
        stored = stored_in(tmp_path)
    assert len(server.requests) == 2
    assert "***" in str(caught.value)
    assert "***" in stored
    assert any(isinstance(event, Retrying) for event in events)
    told = everything_told(caught.value) + repr(events) + repr(caught.value.result) + stored + caplog.text
    assert not shown(told)


def stored_in(folder: Path) -> str:
    """What is in the files of a store."""
    return b"".join(path.read_bytes() for path in folder.iterdir()).decode("latin-1")


async def test_a_key_that_changes_is_hidden_each_time() -> None:
    """The key that a function gives for an attempt is the one that is hidden in that attempt's error."""
    keys = iter(["first-key-0123", "second-key-4567"])
    echo = answer("401 Unauthorized", b"first-key-0123 second-key-4567 Bearer")
    async with serving(echo) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=lambda: next(keys))
        for hidden in ("first-key-0123", "second-key-4567"):
            error = await failure_of(model)
            assert hidden not in str(error)
            assert "Bearer" in str(error)


async def test_notes_of_a_fallback_are_clean() -> None:
    """What a fallback notes of the models that failed first does not show their keys either."""
    async with serving(answer("500 Internal Server Error", SECRET.encode())) as server:
        model = Fallback(*(OpenAIChat(name, **given("bearer", server.url)) for name in "ab"))
        error = await failure_of(model)
    assert error.__notes__
    assert not shown(everything_told(error))


def test_ordinary_words_stay() -> None:
    """Schemes, short dummies, harmless headers and ordinary words are left in what a server says."""
    headers = {
        "Authorization": "Bearer EMPTY",
        "Content-Type": "application/json",
        "X-Title": "Support assistant",
        "X-Env": "production env",
        "HTTP-Referer": "https://localhost:3000",
    }
    redactor = redactor_of(
        "x", headers, ["http://someone:pw@localhost:8000?api-version=2024-10-21"], [], environment=False
    )
    text = "Bearer token: application/json assistant production on localhost, 2024-10-21, xylophone, someone's pw"
    assert redactor.clean(text) == text
    assert redactor.clean("is EMPTY") == "is ***"


@pytest.mark.parametrize("cut", range(30))
def test_a_cut_comes_after_cleaning(cut: int) -> None:
    """Wherever a text is cut, no piece of a secret is left, nor of one that a server cut in turn."""
    redactor = Redactor([SECRET])
    assert "sk" not in redactor.clean(f"bad key {SECRET}, again", cut)
    for kept in range(PIECE, len(SECRET)):
        assert redactor.clean(SECRET[:kept]) == redactor.clean(SECRET[-kept:]) == "***"


def holders(way: str) -> Iterable[object]:
    """What may hold the secret."""
    for adapter in ADAPTERS:
        model = adapter("m", **given(way))
        yield from (
            model,
            Fallback(model),
            Reviewer(model),
            Agent(model),
            Agent(model, middleware=[Compaction(model, window=1000)]),
        )
    if way == "proxy":
        yield given(way)["http"]


@every_way
def test_no_repr_and_no_pickle_shows_it(way: str) -> None:
    """What holds an adapter cannot be pickled; its repr, ``vars()`` and attrs' fields do not show the secret."""
    for holder in holders(way):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(holder)
        fields = dict(vars(holder)) if hasattr(holder, "__dict__") else {}
        if attrs.has(type(holder)):
            fields |= attrs.asdict(cast("attrs.AttrsInstance", holder), recurse=False)
        assert not shown(repr(holder) + repr(fields))


@every_adapter
def test_nothing_in_it_is_the_secret(adapter: Adapter) -> None:
    """Nothing that can be reached from an adapter by its attributes is, or holds, a key, a header or a URL with one."""
    for way in ("api_key", "bearer", "x-api-key", "cookie", "query", "password", "proxy"):
        seen: dict[int, object] = {}
        waiting: list[object] = [adapter("m", **given(way))]
        while waiting:
            current = waiting.pop()
            if id(current) in seen or callable(current):
                continue
            seen[id(current)] = current
            assert not (isinstance(current, str) and shown(current)), way
            waiting += gc.get_referents(current) if type(current).__module__ != "builtins" else contents(current)


def contents(value: object) -> list[object]:
    """What a container holds."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType, reportUnknownVariableType]
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


@every_adapter
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
async def test_copies_work(adapter: Adapter, copied: Callable[[Any], Any]) -> None:
    """A copy of an adapter, and of an agent with one, asks the server with the same key."""
    async with serving(answer("401 Unauthorized", b"no")) as server:
        model = adapter("m", base_url=server.url, api_key="canary-0123")
        await failure_of(copied(model))
        await failure_of(copied(Agent(model)).model)
    assert all(b"canary-0123" in request for request, _ in server.requests)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("url", "options", "warned"),
    [
        ("http://model.invalid/v1", {"api_key": "canary-0123"}, True),
        ("http://MODEL.invalid:8000/v1", {"api_key": lambda: "canary-0123"}, True),
        ("http://10.255.255.1/v1", {"headers": {"Authorization": "Bearer x"}}, True),
        ("http://someone:word@model.invalid/v1", {"api_key": ""}, True),
        ("http://model.invalid/v1", {"api_key": "EMPTY"}, False),
        ("http://model.invalid/v1", {"api_key": "", "headers": {"X-Title": "a title"}}, False),
        ("https://model.invalid/v1", {"api_key": "canary-0123"}, False),
        ("http://localhost:9/v1", {"api_key": "canary-0123"}, False),
        ("http://127.0.0.2:9/v1", {"api_key": "canary-0123"}, False),
    ],
)
async def test_a_key_over_plain_http_is_warned_of_once(
    url: str, options: dict[str, Any], warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A key that leaves the machine readable is one line of the log for each host, which names the host and nothing else."""
    monkeypatch.setattr(endpoint, "_warned", set[str]())
    async with serving(answer("401 Unauthorized", b"no")) as proxy:
        http = HTTPOptions(proxy=proxy.url)
        for _ in range(2):
            await failure_of(OpenAIChat("m", base_url=url, http=http, **options))
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [("plain http" in line, "canary" in line, "word" in line) for line in lines] == [
        (True, False, False)
    ] * warned
