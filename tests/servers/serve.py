"""Run a model server in this process until the process that started it is gone.

``python serve.py llama PORT MODEL.gguf`` is llama.cpp's own server, ``python serve.py llmock PORT`` one that breaks on
demand. Neither is ours: both come from PyPI.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from typing import Any


def _leave_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _llama(port: int, model: str) -> None:
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 0  # as many as the model has
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.use_jinja = True
    params.endpoint_slots = True
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


def _llmock(port: int) -> None:
    cli: Any = importlib.import_module("llmock.cli")
    cli.app(["serve", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"])


if __name__ == "__main__":
    threading.Thread(target=_leave_with_parent, args=(os.getppid(),), daemon=True).start()
    if sys.argv[1] == "llama":
        _llama(int(sys.argv[2]), sys.argv[3])
    else:
        _llmock(int(sys.argv[2]))
