"""Run a model server in this process until the process that started it is gone.

``python serve.py llama PORT MODEL.gguf`` is llama.cpp's own server, ``python serve.py llmock PORT`` one that breaks on
demand; both come from PyPI. ``python serve.py aimock PORT PROGRAM FOLDER KEY`` becomes npm's aimock, which plays what the
FOLDER holds and wants the KEY. None of them is ours.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
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


def _aimock(port: int, program: str, folder: str, key: str) -> None:
    options = {"host": "127.0.0.1", "port": str(port), "fixtures": folder, "log-level": "warn"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    os.execve(program, [program, *words], {**os.environ, "AIMOCK_API_KEYS": key})


def _die_with_parent(parent: int) -> None:
    """Have the kernel end this process, whatever program it becomes, when the one that started it ends."""
    set_death_signal = 1
    if ctypes.CDLL(None).prctl(set_death_signal, int(signal.SIGKILL)) or os.getppid() != parent:
        sys.exit("cannot tell when the parent ends")


if __name__ == "__main__":
    kind, port, *arguments = sys.argv[1:]
    if kind == "aimock":
        _die_with_parent(os.getppid())
        _aimock(int(port), *arguments)
    threading.Thread(target=_leave_with_parent, args=(os.getppid(),), daemon=True).start()
    if kind == "llama":
        _llama(int(port), *arguments)
    else:
        _llmock(int(port))
