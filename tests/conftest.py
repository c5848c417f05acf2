"""Fixtures that any test may use."""

import pytest

# Before anything imports them: their assertions are to explain themselves.
pytest.register_assert_rewrite("turnstate.testing")

from tests.servers.fixtures import (  # noqa: E402
    aimock_process,
    aimock_server,
    llama_server,
    llmock_process,
    llmock_server,
    quick_clock,
)

__all__ = ["aimock_process", "aimock_server", "llama_server", "llmock_process", "llmock_server", "quick_clock"]
