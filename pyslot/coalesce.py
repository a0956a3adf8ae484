"""Calls that wait for the same thing leave together: the fewer writes and scripts, the more permits a second.

A call on an idle limiter goes straight out. While one is in flight, calls that differ in their permits alone join and
leave as one script call when it has landed; calls over different keys that are ready together share one pipeline. So
nobody waits for company: batches form by themselves, out of what would have queued anyway.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, TypeAlias

from pyslot.adapters.base import AsyncStore, PipelineStore
from pyslot.errors import PyslotError, StoreUnavailable
from pyslot.hooks import Guarded
from pyslot.loader import Call

FLIGHTS = 2
"""Pipelines in flight at once: the server works on one while the other's replies are read and its successor made."""
PERMITS = 256
"""Permits in one script call, at most: more would save nothing, and hold the server for longer."""
KEYED = 1024
"""Permits times keys in one script call, at most; about a millisecond of the server's time."""
CALLS = 64
"""Script calls in one pipeline, at most."""

Key: TypeAlias = tuple[str, tuple[bytes, ...], tuple[bytes, ...]]
Reply: TypeAlias = Sequence[int]


class _Lane:
    """Calls of one script with the same keys and rules: one in flight, the others waiting in order of arrival."""

    __slots__ = ("call", "key", "most", "waiting")

    def __init__(self, key: Key, call: Call) -> None:
        self.key = key
        self.call = call
        self.most = max(1, min(PERMITS, KEYED // len(call.keys)))
        self.waiting: deque[tuple[asyncio.Future[Reply], tuple[bytes, ...]]] = deque()


class _Leg(NamedTuple):
    """What one lane sends in one flight."""

    lane: _Lane
    call: Call
    waiters: list[asyncio.Future[Reply]]

    def land(self, reply: Reply | BaseException) -> None:
        """Hand everybody their part of the reply; who has left by now is passed over."""
        if isinstance(reply, BaseException):
            for waiter in self.waiters:
                if not waiter.done():
                    if isinstance(reply, Exception):
                        waiter.set_exception(_own(reply))
                    else:
                        waiter.cancel()
            return
        size = len(reply) // len(self.waiters)
        at = 0
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(reply[at : at + size])
            at += size


class Coalescer:
    """Runs script calls of many tasks on one store, in as few round trips as their arrival allows."""

    def __init__(self, store: AsyncStore, deadline: float, hooks: Guarded | None = None) -> None:
        """deadline: seconds each caller waits at most, the time in which its call has not left yet included."""
        self._store = store
        self._run = store.run
        self._many = store.run_many if isinstance(store, PipelineStore) and not store.cluster else None
        self._deadline = deadline
        self._hooks = hooks
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begin(None)

    def _begin(self, loop: asyncio.AbstractEventLoop | None) -> None:
        # What an earlier loop left unfinished ended with it: nobody waits for that any more.
        self._loop = loop
        self._lanes: dict[Key, _Lane] = {}
        """Those with a call in flight or waiting."""
        self._ready: deque[_Lane] = deque()
        """Those with calls waiting and none in flight."""
        self._flying = 0
        self._departing = False
        self._flights: set[asyncio.Task[None]] = set()
        self._due: deque[tuple[float, asyncio.Future[Reply]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def run(self, call: Call) -> Awaitable[Reply]:
        """Run one call, alone or in company: the reply is its own part. To be awaited at once."""
        script, keys, head, permits = call
        if not permits:
            return self._run(call)
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._begin(loop)
        key = (script.name, keys, head)
        lane = self._lanes.get(key)
        if lane is None:
            lane = _Lane(key, call)
            if not self._flying or self._many is None:
                return self._run_alone(lane, call)
            self._lanes[key] = lane
            self._ready.append(lane)
            self._depart_soon()
        waiter: asyncio.Future[Reply] = loop.create_future()
        lane.waiting.append((waiter, permits))
        due, now = self._due, loop.time()
        while due and due[0][1].done():
            due.popleft()
        due.append((now + self._deadline, waiter))
        if self._timer is None:
            self._timer = loop.call_at(now + self._deadline, self._expire)
        return waiter

    async def _run_alone(self, lane: _Lane, call: Call) -> Reply:
        loop = self._loop
        self._lanes[lane.key] = lane
        self._flying += 1
        if self._hooks:
            self._hooks.batch(1)
        try:
            return await self._run(call)
        finally:
            if loop is self._loop:
                self._landed((lane,))

    async def run_late(self, call: Call) -> Reply:
        """Run a call of the clean-up, behind what is in flight now: an undo is not to overtake what it undoes."""
        if self._flights and self._loop is asyncio.get_running_loop():
            await asyncio.wait(self._flights, timeout=self._deadline)
        return await self._run(call)

    async def aclose(self) -> None:
        """Let what is in flight land; the store bounds how long that takes."""
        if self._flights:
            await asyncio.wait(self._flights)

    def _depart_soon(self) -> None:
        # Not at once: whoever the same landing has woken asks next, and shall come along.
        if not self._departing and self._loop and (self._many is None or self._flying < FLIGHTS):
            self._departing = True
            self._loop.call_soon(self._depart)

    def _depart(self) -> None:
        self._departing = False
        calls = 1 if self._many is None else CALLS
        while self._ready and (self._many is None or self._flying < FLIGHTS):
            legs: list[_Leg] = []
            while self._ready and len(legs) < calls:
                lane = self._ready.popleft()
                if (leg := _leg(lane)) is None:
                    del self._lanes[lane.key]
                else:
                    legs.append(leg)
            if legs and self._loop:
                self._flying += 1
                flight = self._loop.create_task(self._fly(legs), name="pyslot-flight")
                self._flights.add(flight)
                flight.add_done_callback(self._flights.discard)

    async def _fly(self, legs: list[_Leg]) -> None:
        replies: Sequence[Reply | BaseException]
        if self._hooks:
            for leg in legs:
                self._hooks.batch(len(leg.waiters))
        try:
            if len(legs) == 1 or self._many is None:
                replies = [await self._run(leg.call) for leg in legs]
            else:
                replies = await self._many([leg.call for leg in legs])
        except BaseException as error:
            replies = [error] * len(legs)
            if not isinstance(error, Exception):
                raise
        finally:
            for leg, reply in zip(legs, replies, strict=True):
                leg.land(reply)
            self._landed([leg.lane for leg in legs])

    def _landed(self, lanes: Sequence[_Lane]) -> None:
        self._flying -= 1
        for lane in lanes:
            if lane.waiting:
                self._ready.append(lane)
            else:
                del self._lanes[lane.key]
        if self._ready:
            self._depart_soon()

    def _expire(self) -> None:
        """All wait equally long, so those who came first are due first, and one timer serves all."""
        self._timer = None
        loop, due = self._loop, self._due
        while due and loop:
            at, waiter = due[0]
            if not waiter.done():
                if at > loop.time():
                    self._timer = loop.call_at(at, self._expire)
                    return
                waiter.set_exception(StoreUnavailable(f"{self._store!r}: no answer within {self._deadline:g} s"))
            due.popleft()


def _leg(lane: _Lane) -> _Leg | None:
    """The next call of a lane, for as many of those who wait as one call may take."""
    waiters: list[asyncio.Future[Reply]] = []
    permits: list[bytes] = []
    while lane.waiting and len(waiters) < lane.most:
        waiter, figures = lane.waiting.popleft()
        if not waiter.done():
            waiters.append(waiter)
            permits += figures
    return _Leg(lane, lane.call._replace(permits=tuple(permits)), waiters) if waiters else None


def _own(error: Exception) -> Exception:
    """An error for one of many: each is raised in a task of its own and gathers a traceback of its own."""
    if not isinstance(error, PyslotError):
        return error
    own = type(error)(*error.args)
    own.__cause__ = error.__cause__ or error
    return own
