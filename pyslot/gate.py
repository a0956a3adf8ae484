"""An admission gate for one process: at most so many at work, so many waiting, for so long."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pyslot.errors import PyslotError, UsageError

_WEIGHT = 0.1
"""Of the newest stay in the mean of stays."""


class Overloaded(PyslotError):
    """The gate has no place. `retry_after` says in how many seconds there may be one."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"too many requests in this process; try again in {retry_after:.3g} s")
        self.retry_after = retry_after


class Gate:
    """Keeps one process from taking on more than it can do: a request that would only add to a heap is turned away.

    It looks at nothing but its own process, and no server is asked. Waiters are served in order of arrival.
    """

    def __init__(self, in_flight: int, *, waiting: int = 0, patience: float = 1.0) -> None:
        """At most `in_flight` requests at a time, and `waiting` more that wait for up to `patience` seconds."""
        if type(in_flight) is not int or in_flight < 1 or type(waiting) is not int or waiting < 0:
            raise UsageError(f"a gate needs in_flight of at least 1, waiting of at least 0: {in_flight!r}, {waiting!r}")
        self.in_flight = 0
        """Requests at work."""
        self._most = in_flight
        self._queue: deque[asyncio.Future[None]] = deque()
        self._room = waiting
        self._patience = patience
        self._stay = 0.0

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._queue)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place for the time of an `async with` block; raises `Overloaded` where there is none."""
        if self.in_flight >= self._most or self._queue:
            await self._wait()
        else:
            self.in_flight += 1
        began = time.monotonic()
        try:
            yield
        finally:
            stay = time.monotonic() - began
            self._stay += (stay - self._stay) * (_WEIGHT if self._stay else 1.0)
            self._leave()

    async def _wait(self) -> None:
        if len(self._queue) >= self._room:
            raise Overloaded(self._estimate())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._leave()  # the place was given in the very moment of leaving
            else:
                with suppress(ValueError):  # passed over already by who left
                    self._queue.remove(turn)
            if isinstance(error, TimeoutError):
                raise Overloaded(self._estimate()) from None
            raise

    def _leave(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)  # the place goes from hand to hand
                return
        self.in_flight -= 1

    def _estimate(self) -> float:
        """Seconds until those ahead are through, at the pace of late; at least one."""
        return max(1.0, self._stay * (len(self._queue) + 1) / self._most)
