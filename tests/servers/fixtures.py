"""The model servers as fixtures: real HTTP, real streams, no network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.servers.launch import LlamaServers, LLMock, need, served

__all__ = ["llama_server", "llmock_process", "llmock_server"]


@pytest.fixture(scope="session")
def llama_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServers]:
    """llama.cpp's own server, with a tiny model of each taste."""
    need("xllamacpp")
    with ExitStack() as stack:
        yield LlamaServers(tmp_path_factory.mktemp("llama"), stack)


@pytest.fixture(scope="session")
def llmock_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLMock]:
    """The process behind ``llmock_server``."""
    need("llmock")
    log = tmp_path_factory.mktemp("llmock") / "llmock.log"
    with served("llmock", "/_llmock/scenario", log) as address:
        yield LLMock(address)


@pytest.fixture
def llmock_server(llmock_process: LLMock) -> LLMock:
    """A server that breaks on demand, with nothing scripted yet."""
    llmock_process.reset()
    return llmock_process
