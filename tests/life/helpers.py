"""What the tests of life and outage share."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyslot.adapters.memory import MemoryStore
from pyslot.loader import Call
from pyslot.model import Model
from tests.contract.wire import step

ROOT = Path(__file__).parents[2]


def until(done: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for what goes on in the background."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def python(code: str, *args: str) -> subprocess.Popen[str]:
    """Another process with the library; its output is text."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", code, *args], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    line = process.stdout.readline().strip()
    if not line and process.stderr:
        raise AssertionError(process.stderr.read())
    return line


class Tapped(MemoryStore):
    """The model, with a hook before and after each call."""

    def __init__(self, model: Model | None = None) -> None:
        super().__init__(model)
        self.calls: list[Call] = []
        self.before: Callable[[Call], object] = lambda _: None
        self.after: Callable[[Call], object] = lambda _: None

    def run(self, call: Call) -> list[int]:
        self.calls.append(call)
        self.before(call)
        reply = super().run(call)
        self.after(call)
        return reply

    def names(self) -> list[str]:
        return [step(call) for call in self.calls]


class AsyncTapped:
    """The same for an event loop."""

    cluster = False

    def __init__(self, store: Tapped | None = None) -> None:
        self.store = store or Tapped()
        self.wait: Callable[[Call], Any] | None = None
        """Awaited after each call has had its effect."""

    async def run(self, call: Call) -> Sequence[int]:
        reply = self.store.run(call)
        if self.wait is not None and (pending := self.wait(call)) is not None:
            await pending
        return reply

    def blocking(self) -> MemoryStore:
        return self.store

    async def aclose(self) -> None: ...
