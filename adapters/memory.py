"""This process only: the reference model as a store."""

from __future__ import annotations

import threading
import time

from pyslot.errors import StoreError
from pyslot.loader import Call
from pyslot.model import Model, WrongArguments


class MemoryStore:
    """Runs scripts on the model. Every limiter made from a URL of its own has data of its own."""

    cluster = False

    def __init__(self, model: Model | None = None) -> None:
        self.model = model or Model(lambda: time.time_ns() // 1_000_000)
        self._lock = threading.Lock()

    def run(self, call: Call) -> list[int]:
        with self._lock:
            try:
                return self.model.run(call.script.name, call.keys, call.head + call.permits)
            except WrongArguments as error:
                raise StoreError(str(error)) from None

    def close(self) -> None: ...

    def after_fork(self) -> None:
        """What another thread was about to do when the process forked, nobody does here."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "<MemoryStore>"


class AsyncMemoryStore:
    """The same for `AsyncLimiter`; a call never waits."""

    cluster = False

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def run(self, call: Call) -> list[int]:
        return self._store.run(call)

    async def aclose(self) -> None: ...

    def blocking(self) -> MemoryStore:
        return self._store

    def after_fork(self) -> None:
        self._store.after_fork()

    def __repr__(self) -> str:
        return "<AsyncMemoryStore>"


def open_sync(target: object, deadline: float) -> MemoryStore:  # noqa: ARG001  # the adapters' common signature
    return MemoryStore()


def open_async(target: object, deadline: float) -> AsyncMemoryStore:  # noqa: ARG001  # the adapters' common signature
    return AsyncMemoryStore(MemoryStore())
