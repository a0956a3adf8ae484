"""For tests of services: limiters in driven time, over a store in memory that can be switched off.

world = World()
limiter = world.limiter()             # or world.async_limiter(); both share one store
world.advance(60)                     # a minute passes, at once
with world.outage():                  # the server that counts is away
    ...
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, cast

from pyslot import task, thread
from pyslot.adapters.memory import MemoryStore
from pyslot.aio import AsyncLimiter
from pyslot.errors import PyslotError, StoreUnavailable
from pyslot.limiter import Limiter
from pyslot.lines import Listen
from pyslot.loader import Call
from pyslot.model import Model
from pyslot.renewer import Sleep, Upkeep

_EPOCH = 1_700_000_000.0
_TURNS = 20
"""Turns of the event loop in which tasks that were woken may go on before time goes on."""


class World:
    """A clock that moves when told, and one store in memory for all limiters made here.

    What limiters do behind a service's back, such as renewing leases, happens while time is advanced, in the test's own
    thread. A synchronous `wait=` moves the clock by itself; an asynchronous one sleeps until somebody advances it.
    """

    def __init__(self) -> None:
        self.away = False
        """True while the server that counts can't be reached."""
        self._now = _EPOCH
        self._model = Model(lambda: int(self._now * 1000))
        self._store = _Switched(self)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def time(self) -> float:
        """Seconds by this world's clock, which limiters take for both the wall's and the monotonic one."""
        return self._now

    def limiter(self, **options: Any) -> Limiter:  # noqa: ANN401 - those of Limiter
        """A `Limiter` in this world, with the options of `Limiter`."""
        return _DrivenLimiter(self, options)

    def async_limiter(self, **options: Any) -> AsyncLimiter:  # noqa: ANN401 - those of AsyncLimiter
        """An `AsyncLimiter` in this world, with the options of `AsyncLimiter`."""
        return _DrivenAsyncLimiter(self, options)

    def advance(self, seconds: float) -> None:
        """Let time pass. What falls due on the way is done when it does, in order."""
        for _ in self._steps(seconds):
            pass

    async def aadvance(self, seconds: float) -> None:
        """The same, with pauses in which tasks that sleep in this world wake and go on."""
        for _ in self._steps(seconds):
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """The server that counts is away for the time of a `with` block."""
        self.away = True
        try:
            yield
        finally:
            self.away = False

    async def sleep(self, seconds: float) -> None:
        """Sleep, in this world's time."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._at(self._now + seconds, lambda: None if done.done() else done.set_result(None))
        await done

    async def listen(self, step: Listen) -> None:
        """Sleep until a bell rings, which it does by itself when the time is over."""
        bell = cast(asyncio.Event, step.bell)
        self._at(self._now + step.seconds, bell.set)
        await bell.wait()

    def _steps(self, seconds: float) -> Iterator[None]:
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} s")
        yield  # whoever was about to fall asleep does so first
        end = self._now + seconds
        while self._due and self._due[0][0] <= end:
            due, _, wake = heapq.heappop(self._due)
            self._now = max(self._now, due)
            wake()
            yield
        self._now = max(self._now, end)
        yield

    def _at(self, due: float, wake: Callable[[], None]) -> None:
        heapq.heappush(self._due, (due, next(self._order), wake))


class _Switched(MemoryStore):
    """The store of a world."""

    def __init__(self, world: World) -> None:
        super().__init__(world._model)
        self._world = world

    def run(self, call: Call) -> list[int]:
        if self._world.away:
            raise StoreUnavailable("switched off by a test")
        return super().run(call)


class _AsyncSwitched:
    cluster = False

    def __init__(self, store: _Switched) -> None:
        self._store = store

    async def run(self, call: Call) -> list[int]:
        return self._store.run(call)

    async def aclose(self) -> None: ...


class _Work:
    """A limiter's upkeep, done as this world's time passes."""

    def __init__(self, world: World, upkeep: Upkeep) -> None:
        self._world = world
        self._upkeep = upkeep
        self._turn = 0
        self._stopped = False
        upkeep.wake = self._wake

    def _wake(self) -> None:
        self._turn += 1
        turn = self._turn
        # Not here and now: it is a limiter that wakes us, in the midst of its own work.
        self._world._at(self._world.time(), lambda: self._go_on(turn))

    def _go_on(self, turn: int) -> None:
        if turn != self._turn or self._stopped:
            return
        steps = self._upkeep.run(lambda: self._stopped)
        pause = _drive(steps, self._world._store)
        self._turn += 1
        again = self._turn
        self._world._at(self._world.time() + pause, lambda: self._go_on(again))

    def stop(self) -> None:
        self._stopped = True

    def after_fork(self) -> None: ...

    def close(self) -> None:
        self.stop()
        _drive(self._upkeep.drain(), self._world._store)

    async def aclose(self) -> None:
        self.close()


class _DrivenLimiter(Limiter):
    def __init__(self, world: World, options: dict[str, Any]) -> None:
        self._world = world
        self._monotonic = self._wall = world.time
        self._sleep = world.advance
        self._listen = lambda step: world.advance(step.seconds)  # nobody else could ring
        super().__init__(world._store, **options)

    def _work(self, upkeep: Upkeep) -> thread.Worker:
        return _Work(self._world, upkeep)  # type: ignore[return-value]  # as far as a limiter is concerned


class _DrivenAsyncLimiter(AsyncLimiter):
    def __init__(self, world: World, options: dict[str, Any]) -> None:
        self._world = world
        self._monotonic = self._wall = world.time
        self._sleep = world.sleep
        self._listen = world.listen
        super().__init__(_AsyncSwitched(world._store), **options)

    def _work(self, upkeep: Upkeep) -> task.Worker:
        return _Work(self._world, upkeep)  # type: ignore[return-value]  # as above


def _drive(steps: Generator[Call | Sleep, Any, None], store: MemoryStore) -> float:
    """Go on until there is nothing to do for a while; returns for how many seconds."""
    try:
        step = next(steps)
        while not isinstance(step, Sleep):
            try:
                reply = store.run(step)
            except PyslotError as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration:
        return 0.0
    steps.close()
    return step.seconds
