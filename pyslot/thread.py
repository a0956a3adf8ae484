"""Flows driven by blocking, and the daemon thread that does so behind a limiter."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from pyslot.adapters.base import Store
from pyslot.ends import Flow
from pyslot.lines import Listen
from pyslot.loader import Call
from pyslot.renewer import Sleep, Upkeep

log = logging.getLogger("pyslot")
T = TypeVar("T")


def listen(step: Listen) -> None:
    cast(threading.Event, step.bell).wait(step.seconds)


def drive(
    flow: Flow[T],
    store: Store,
    sleep: Callable[[float], object],
    listen: Callable[[Listen], object] = listen,
) -> T:
    """Run a flow to its end, blocking."""
    try:
        step = next(flow)
        while True:
            try:
                reply: Sequence[int] = ()
                if isinstance(step, Call):
                    reply = store.run(step)
                elif isinstance(step, Sleep):
                    sleep(step.seconds)
                else:
                    listen(step)
            except BaseException as error:  # noqa: BLE001  # the flow must hear of a cancellation too; it raises again
                step = flow.throw(error)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        result: T = stop.value
        return result


class Worker:
    """The daemon thread behind a limiter; started when there is something to do."""

    def __init__(self, upkeep: Upkeep, store: Store) -> None:
        self._upkeep = upkeep
        self._store = store
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._woken = threading.Event()
        upkeep.wake = self._wake

    def _wake(self) -> None:
        if self._thread is None and not self._stopped:
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(target=self._work, name="pyslot-upkeep", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:  # the interpreter is ending: what is waiting is sent at its exit
                        return
                    self._thread = thread
        self._woken.set()

    def _work(self) -> None:
        drive(self._upkeep.run(lambda: self._stopped), self._store, self._pause)
        drive(self._upkeep.drain(), self._store, self._pause)

    def _pause(self, seconds: float) -> None:
        self._woken.wait(seconds)
        self._woken.clear()

    def stop(self) -> None:
        """Let the thread send what is waiting, and end."""
        self._stopped = True
        self._woken.set()

    def close(self) -> None:
        """Stop, and wait for that; the store bounds how long it takes."""
        self.stop()
        if self._thread is threading.current_thread():
            return  # in a hook, or in on_lost: the thread ends by itself
        if self._thread is not None:
            self._thread.join()
        drive(self._upkeep.drain(), self._store, self._pause)

    def after_fork(self) -> None:
        """Threads don't survive a fork, and locks may have been held."""
        self._thread = None
        self._lock = threading.Lock()
        self._woken = threading.Event()
