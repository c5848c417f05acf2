"""The servers themselves: that they run, and do what the tests of the engine rely on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.needs import AIMOCK
from tests.servers.launch import AIMock, LlamaServer, LlamaServers, LLMock, need, wait_until
from tests.servers.protocols import KEY

LIGHT = {
    "type": "function",
    "function": {
        "name": "light",
        "description": "Switch a light.",
        "parameters": {
            "type": "object",
            "properties": {"colour": {"type": "string", "enum": ["red", "green"]}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    },
}


def ask(url: str, **more: Any) -> dict[str, Any]:
    """One whole answer to one question."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 40, **more}
    headers = {"Authorization": f"Bearer {KEY}"}
    response = httpx.post(url + "/chat/completions", json=body, headers=headers, timeout=20, trust_env=False)
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


def call_names(server: LlamaServer, seed: int) -> list[str]:
    """The tools that a reply calls if it must."""
    answer = ask(server.base_url, tools=[LIGHT], tool_choice="required", max_tokens=600, seed=seed)
    calls: list[dict[str, Any]] = answer["choices"][0]["message"].get("tool_calls", [])
    return [call["function"]["name"] for call in calls]


def test_llama_writes_words(llama_server: LlamaServers) -> None:
    """The random model answers with some of its words."""
    answer = ask(llama_server.words.base_url, seed=1)
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["usage"]["completion_tokens"] > 0


def test_llama_calls_tools(llama_server: LlamaServers) -> None:
    """A model that must call a tool calls it; another seed makes another taste call several."""
    assert call_names(llama_server.calls, 1) == ["light"]
    assert any(len(call_names(llama_server.many_calls, seed)) > 1 for seed in range(20))


def test_llama_frees_its_slot_when_the_client_hangs_up(llama_server: LlamaServers) -> None:
    """A request that would run for minutes is over as soon as nobody listens."""
    server = llama_server.endless
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
    with httpx.stream(
        "POST", server.base_url + "/chat/completions", json=body, timeout=10, trust_env=False
    ) as response:
        assert response.status_code == 200
        assert wait_until(server.busy, 5)
    assert wait_until(lambda: not server.busy(), 5)


def test_llmock_breaks_once(llmock_server: LLMock) -> None:
    """A scripted fault meets one request, and the next one passes."""
    llmock_server.script({"type": "fail", "status": 429, "retry_after": 1})
    with pytest.raises(httpx.HTTPStatusError, match="429"):
        ask(llmock_server.address + "/v1")
    assert ask(llmock_server.address + "/v1")["choices"]
    assert [request["status"] for request in llmock_server.requests()] == [429, 200]


@pytest.mark.npm
def test_aimock_plays_a_script(aimock_server: AIMock) -> None:
    """An entry with a number meets one request, and the server tells what it was asked and what it answered."""
    aimock_server.script(
        {"match": {"sequenceIndex": 0}, "response": {"error": {"message": "not today"}, "status": 500}},
        {"match": {}, "response": {"content": "hello"}},
    )
    url = aimock_server.address + "/v1"
    with pytest.raises(httpx.HTTPStatusError, match="500"):
        ask(url)
    assert ask(url)["choices"][0]["message"]["content"] == "hello"
    assert [request["response"]["status"] for request in aimock_server.requests()] == [500, 200]


@pytest.mark.npm
def test_aimock_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """A process that is killed leaves no server behind."""
    program = os.environ[AIMOCK]
    code = f"""
import sys, time
from pathlib import Path
from tests.servers.launch import served
with served("aimock", "/health", Path({str(tmp_path / "log")!r}), {program!r}, {str(tmp_path)!r}, "key") as address:
    print(address, flush=True)
    time.sleep(60)
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert httpx.get(address + "/health", timeout=5, trust_env=False).status_code == 200
        finally:
            process.kill()
    port = int(address.rpartition(":")[2])
    assert wait_until(lambda: not listens(port), 5)


def listens(port: int) -> bool:
    """Whether anybody accepts connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_missing_server_is_a_failure() -> None:
    """Where the package of a server is missing its tests fail, and say what to do."""
    with pytest.raises(pytest.fail.Exception, match=r"'no_such_server' is not installed; `pip install '.\[test\]'`"):
        need("no_such_server")
