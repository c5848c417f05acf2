"""The servers themselves: that they run, and do what the tests of the engine rely on."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.servers.launch import LlamaServer, LlamaServers, LLMock, need, wait_until

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
    response = httpx.post(url + "/chat/completions", json=body, timeout=20, trust_env=False)
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
        ask(llmock_server.base_url)
    assert ask(llmock_server.base_url)["choices"]
    assert [request["status"] for request in llmock_server.requests()] == [429, 200]


def test_a_missing_server_is_a_failure_where_everything_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its package a server's tests are skipped at home and fail in the project's check."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not installed"):
        need("no_such_server")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="not installed"):
        need("no_such_server")
