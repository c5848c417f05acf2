"""Start model servers as processes on loopback, and end them."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs
import httpx
import pytest

from tests.servers.protocols import KEY, Protocol, adapter
from tests.servers.tiny_model import make_model
from turnstate.models import Model

START_SECONDS = 30.0
_SERVE = Path(__file__).with_name("serve.py")

Taste = Literal["words", "endless", "calls", "many-calls"]
_TASTES: Mapping[Taste, Mapping[str, float]] = {
    "words": {},
    "endless": {"end_bias": -30.0},
    "calls": {"call_bias": 1.6, "end_bias": 2.4},
    "many-calls": {"call_bias": 1.6, "end_bias": 1.6},
}


def need(module: str) -> None:
    """Fail the test if a server's package is missing."""
    if importlib.util.find_spec(module) is None:
        pytest.fail(f"the model server {module!r} is not installed; `pip install '.[test]'` brings it")


@contextmanager
def served(kind: Literal["llama", "llmock", "aimock"], ready: str, log: Path, *arguments: str) -> Generator[str]:
    """A server process; gives its address once ``ready`` is answered there, and ends it in the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(_SERVE), kind, str(port), *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        wait_until(lambda: process.poll() is not None or _answers(address + ready), START_SECONDS)
        if process.poll() is not None or not _answers(address + ready):
            tail = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{kind} did not come up (exit code {process.poll()}):\n{tail}")
        yield address
    finally:
        process.kill()  # asked to end, a server would wait for the streams that it was told to stall
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False, verify=False).status_code == 200
    except httpx.HTTPError:
        return False


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Look again and again; whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@attrs.frozen
class LlamaServer:
    """llama.cpp's server with one model and one slot: it answers one request at a time."""

    address: str

    @property
    def base_url(self) -> str:
        """What a client of Chat Completions is given."""
        return self.address + "/v1"

    def busy(self) -> bool:
        """Whether it is at work on a request."""
        slots: list[dict[str, Any]] = httpx.get(self.address + "/slots", timeout=5, trust_env=False).json()
        return any(slot["is_processing"] for slot in slots)


class LlamaServers:
    """One server for each taste of model, started when it is first asked for."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack

    def _start(self, taste: Taste) -> LlamaServer:
        model = make_model(self._directory / f"{taste}.gguf", **_TASTES[taste])
        log = self._directory / f"{taste}.log"
        return LlamaServer(self._stack.enter_context(served("llama", "/health", log, str(model))))

    @cached_property
    def words(self) -> LlamaServer:
        """Writes words for a while."""
        return self._start("words")

    @cached_property
    def endless(self) -> LlamaServer:
        """Writes words and does not stop, for minutes."""
        return self._start("endless")

    @cached_property
    def calls(self) -> LlamaServer:
        """Calls one tool if it must (``tool_choice="required"``), then stops."""
        return self._start("calls")

    @cached_property
    def many_calls(self) -> LlamaServer:
        """Calls one tool or several if it must; which, depends on the seed."""
        return self._start("many-calls")


class LLMock:
    """A server that answers at once, and breaks in the way that it is told to."""

    _PATHS: ClassVar[Mapping[Protocol, str]] = {
        "chat": "/v1",
        "responses": "/v1",
        "messages": "/anthropic",
        "gemini": "/gemini/v1beta",
    }

    def __init__(self, address: str) -> None:
        self.address = address
        self._admin = address + "/_llmock"

    def model(self, protocol: Protocol, **options: Any) -> Model:
        """The adapter of a protocol for this server."""
        return adapter(protocol, self.address + self._PATHS[protocol], **options)

    def reset(self) -> None:
        """Forget what was scripted and what was asked."""
        _post(self._admin + "/reset", {})

    def script(self, *behaviors: Mapping[str, Any]) -> None:
        """What the next requests meet: ``{"type": "fail", "status": 429}``, ``{"type": "stream_fault", ...}``, ..."""
        _post(self._admin + "/scenario", {"behaviors": list(behaviors)})

    def requests(self) -> list[dict[str, Any]]:
        """The requests so far, oldest first."""
        found: list[dict[str, Any]] = _get(self._admin + "/requests")["requests"]
        return found

    def findings(self) -> list[str]:
        """What the server thinks that its client did wrong since the last reset."""
        return [finding["title"] for finding in _get(self._admin + "/verdict")["findings"]]


class AIMock:
    """A server that plays scripted turns in every protocol, and knows what it was asked."""

    _PATHS: ClassVar[Mapping[Protocol, str]] = {"chat": "/v1", "responses": "/v1", "messages": "", "gemini": "/v1beta"}

    def __init__(self, address: str) -> None:
        self.address = address
        self._admin = address + "/__aimock"

    def model(self, protocol: Protocol, **options: Any) -> Model:
        """The adapter of a protocol for this server."""
        return adapter(protocol, self.address + self._PATHS[protocol], **options)

    def reset(self) -> None:
        """Forget what was scripted and what was asked."""
        _post(self._admin + "/reset", {})

    def script(self, *entries: Mapping[str, Any]) -> None:
        """What it answers: ``{"match": {...}, "response": {...}}``; the first that matches a request is taken."""
        _post(self._admin + "/fixtures", {"fixtures": list(entries)})

    def requests(self) -> list[dict[str, Any]]:
        """The requests so far, oldest first; their ``body`` is what the server read, put as one of Chat Completions."""
        found: list[dict[str, Any]] = _get(self._admin + "/journal")
        return found


_AUTHORIZED = {"Authorization": f"Bearer {KEY}"}


def _post(url: str, body: object) -> None:
    response = httpx.post(url, json=body, headers=_AUTHORIZED, timeout=5, trust_env=False, verify=False)
    if response.is_error:
        raise RuntimeError(f"{url} refused the script: {response.text}")


def _get(url: str) -> Any:
    answer = httpx.get(url, headers=_AUTHORIZED, timeout=5, trust_env=False, verify=False)
    return answer.raise_for_status().json()
