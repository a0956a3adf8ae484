"""LiteLLM beside us: its worker in an environment of its own, over the same server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.rounds import Load

PIN = "litellm[proxy]==1.108.0"
PYTHON = Path(os.environ.get("LITELLM_PYTHON", ".venv-litellm/bin/python"))


class Worker:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, **command: object) -> Any:  # noqa: ANN401  # what the worker answers
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(command), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        raise RuntimeError("the litellm worker ended")

    def load(self, what: str, *, tasks: int, seconds: float) -> Load:
        return Load(**self.ask(what=what, tasks=tasks, seconds=seconds))


@contextmanager
def worker(port: int) -> Iterator[Worker | None]:
    """None where there is no such environment: `make bench-litellm` makes it."""
    if not PYTHON.exists():
        yield None
        return
    program = Path(__file__).with_name("litellm_worker.py")
    process = subprocess.Popen(
        [PYTHON, program, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Worker(process)
    finally:
        process.kill()
        process.wait()
