"""The model servers as fixtures: real HTTP, real streams, no network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from trio.testing import MockClock

from tests.needs import AIMOCK
from tests.servers.launch import AIMock, LlamaServers, LLMock, need, served
from tests.servers.protocols import KEY

__all__ = ["aimock_process", "aimock_server", "llama_server", "llmock_process", "llmock_server", "quick_clock"]


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


@pytest.fixture(scope="session")
def aimock_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AIMock]:
    """The process behind ``aimock_server``; its tests are marked ``npm``."""
    folder = tmp_path_factory.mktemp("aimock")
    (folder / "scripts").mkdir()
    with served("aimock", "/health", folder / "log", os.environ[AIMOCK], str(folder / "scripts"), KEY) as address:
        yield AIMock(address)


@pytest.fixture
def aimock_server(aimock_process: AIMock) -> AIMock:
    """A server that plays scripted turns in every protocol, with nothing scripted yet."""
    aimock_process.reset()
    return aimock_process


@pytest.fixture
def quick_clock() -> MockClock:
    """Time passes ten times as fast for trio, so that waits between attempts are short; the server notices nothing."""
    return MockClock(rate=10)
