"""Fixtures that any test may use."""

from tests.servers.fixtures import llama_server, llmock_process, llmock_server

__all__ = ["llama_server", "llmock_process", "llmock_server"]
