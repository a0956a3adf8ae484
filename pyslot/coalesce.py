"""Calls that wait for the same thing leave together: the fewer writes and scripts, the more permits a second.

A call on an idle limiter goes straight out. While one is in flight, calls that differ in their permits alone join and
leave as one script call when it has landed; calls over different keys that are ready together share one pipeline. So
nobody waits for company: batches form by themselves, out of what would have queued anyway.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Sequence
from itertools import chain
from time import monotonic
from typing import TypeAlias

from pyslot.adapters.base import AsyncStore, PipelineStore
from pyslot.errors import PyslotError, StoreUnavailable
from pyslot.hooks import Guarded
from pyslot.loader import Call

FLIGHTS = 4
"""Pipelines in flight at once: the server works on one while the other's replies are read and its successor made."""
PERMITS = 256
"""Permits in one script call, at most: more would save nothing, and hold the server for longer."""
KEYED = 1024
"""Permits times keys in one script call, at most; about a millisecond of the server's time."""
CALLS = 64
"""Script calls in one pipeline, at most."""
WOKEN = 8
"""Callers of one script call that are woken at once. What they ask next is on its way before the next are woken: all
woken together would ask together, and client and server wait for each other in turns, a fifth of the time."""
TURN = 0.002
"""Seconds. Where a turn of the loop takes longer others have work there: all are woken at once then, for the next turn
is far away, and there is no idling to be saved."""
LONG, BUSY = 3, 1.0
"""After so many such turns all are woken at once from the start, for so many seconds."""

Key: TypeAlias = tuple[str, tuple[bytes, ...], tuple[bytes, ...]]
Reply: TypeAlias = Sequence[int]
Waiter: TypeAlias = tuple["Future[Reply]", tuple[bytes, ...], float]
"""Who waits, with what for, since when."""


class _Lane:
    """Calls of one script with the same keys and rules: one in flight, the others waiting in order of arrival."""

    __slots__ = ("call", "flying", "key", "most", "waiting")

    def __init__(self, key: Key, call: Call) -> None:
        self.key = key
        self.call = call
        self.most = max(1, min(PERMITS, KEYED // len(call.keys)))
        self.waiting: list[Waiter] = []
        self.flying: list[Waiter] = []

    def board(self) -> Call | None:
        """The next call, for as many of those who wait as one call may take; None where all have left."""
        there = [waiter for waiter in self.waiting if not waiter[0].done()]
        self.flying, self.waiting = there[: self.most], there[self.most :]
        if not there:
            return None
        return self.call._replace(permits=tuple(chain.from_iterable([waiter[1] for waiter in self.flying])))


class Coalescer:
    """Runs script calls of many tasks on one store and one event loop, in as few round trips as arrival allows.

    Of one loop for good: what an earlier loop left in the air ends on its own books.
    """

    def __init__(
        self, store: AsyncStore, deadline: float, loop: asyncio.AbstractEventLoop, hooks: Guarded | None = None
    ) -> None:
        """deadline: seconds each caller waits at most, the time in which its call has not left yet included."""
        self._store = store
        self._run = store.run
        self._many = store.run_many if isinstance(store, PipelineStore) and not store.cluster else None
        self._deadline = deadline
        self._loop = loop
        self._hooks = hooks
        self._lanes: dict[Key, _Lane] = {}
        """Those with a call in flight or waiting."""
        self._ready: deque[_Lane] = deque()
        """Those with calls waiting and none in flight."""
        self._flying = 0
        self._departing = False
        """True from when the next departure is planned until it is made. Whoever asks meanwhile leaves with it."""
        self._flights: set[asyncio.Task[None]] = set()
        self._waking = 0
        """Crowds of which some are still to be woken."""
        self._long = 0
        self._all_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def run(self, call: Call) -> Awaitable[Reply]:
        """Run one call, alone or in company: the reply is its own part. To be awaited at once."""
        script, keys, head, permits = call
        key = (script.name, keys, head)
        lane = self._lanes.get(key)
        if lane is None:
            if not permits:
                return self._run(call)
            lane = self._lanes[key] = _Lane(key, call)
            if not self._departing and (not self._flying or self._many is None):
                return self._run_alone(lane, call)
            self._ready.append(lane)
            self._depart_soon()
        waiter: Future[Reply] = Future(loop=self._loop)  # create_future adds a function in Python
        lane.waiting.append((waiter, permits, monotonic()))
        if self._timer is None:
            self._timer = self._loop.call_later(self._deadline, self._expire)
        return waiter

    async def _run_alone(self, lane: _Lane, call: Call) -> Reply:
        self._flying += 1
        if self._hooks:
            self._hooks.batch(1)
        try:
            return await self._run(call)
        finally:
            if not self._loop.is_closed():
                self._landed(lane)
                self._ended()

    async def run_late(self, call: Call) -> Reply:
        """Run a call of the clean-up, behind what is in flight now: an undo is not to overtake what it undoes."""
        if self._flights and self._loop is asyncio.get_running_loop():
            await asyncio.wait(self._flights, timeout=self._deadline)
        return await self._run(call)

    async def aclose(self) -> None:
        """Let what is in flight land, and be handed out; the store bounds how long that takes."""
        if self._loop is not asyncio.get_running_loop():
            return
        while self._flights or self._waking:
            if self._flights:
                await asyncio.wait(self._flights)
            await asyncio.sleep(0)

    def _depart_soon(self) -> None:
        # Not at once: whoever the same landing has woken asks next, and shall come along.
        if not self._departing and (self._many is None or self._flying < FLIGHTS):
            self._departing = True
            self._loop.call_soon(self._depart)

    def _depart(self) -> None:
        self._departing = False
        most = 1 if self._many is None else CALLS
        while self._ready and (self._many is None or self._flying < FLIGHTS):
            lanes: list[_Lane] = []
            calls: list[Call] = []
            while self._ready and len(calls) < most:
                lane = self._ready.popleft()
                if (call := lane.board()) is None:
                    del self._lanes[lane.key]
                else:
                    lanes.append(lane)
                    calls.append(call)
                    if self._hooks:
                        self._hooks.batch(len(lane.flying))
            if calls:
                self._flying += 1
                flight = self._loop.create_task(self._fly(lanes, calls), name="pyslot-flight")
                self._flights.add(flight)
                flight.add_done_callback(self._flights.discard)

    async def _fly(self, lanes: list[_Lane], calls: list[Call]) -> None:
        up = dict(enumerate(lanes))

        def land(at: int, reply: Reply | BaseException) -> None:
            lane = up.pop(at)
            flown, lane.flying = lane.flying, []
            if isinstance(reply, BaseException):
                _fail(flown, reply)
            else:
                self._wake(flown, reply)
            self._landed(lane)

        try:
            if len(calls) == 1 or self._many is None:
                land(0, await self._run(calls[0]))
            else:
                await self._many(calls, land)
        except GeneratorExit:
            raise  # forgotten together with its loop: nobody waits there any more
        except BaseException as error:
            for at in list(up):
                land(at, error)
            self._ended()
            if not isinstance(error, Exception):
                raise
        else:
            self._ended()

    def _wake(self, flown: list[Waiter], reply: Reply, first: int = 0, since: float = 0.0) -> None:
        """Hand everybody their part of the reply, to a few in each turn of the loop; who has left is passed over."""
        now = monotonic()
        last = first + WOKEN if now >= self._all_until else len(flown)
        if first:
            self._waking -= 1
            if now - since <= TURN:
                self._long = 0
            else:
                last = len(flown)
                self._long += 1
                if self._long >= LONG:
                    self._all_until = now + BUSY
        size = len(reply) // len(flown)
        at = first * size
        for waiter, _, _ in flown[first:last]:
            if not waiter.done():
                waiter.set_result(reply[at : at + size])
            at += size
        if len(flown) > 1:
            self._depart_soon()  # they ask next: all together, none alone
        if last < len(flown):
            self._waking += 1
            self._loop.call_soon(self._wake, flown, reply, last, now)

    def _landed(self, lane: _Lane) -> None:
        if lane.waiting:
            self._ready.append(lane)
            self._depart_soon()
        else:
            del self._lanes[lane.key]

    def _ended(self) -> None:
        self._flying -= 1
        if self._ready:
            self._depart_soon()

    def _expire(self) -> None:
        """One timer for all; it looks again when the next is due, but not for every one of a crowd."""
        now = monotonic()
        dues = []
        for lane in self._lanes.values():
            for waiter, _, since in (*lane.flying, *lane.waiting):
                if not waiter.done():
                    if since + self._deadline <= now:
                        waiter.set_exception(
                            StoreUnavailable(f"{self._store!r}: no answer within {self._deadline:g} s")
                        )
                    else:
                        dues.append(since + self._deadline)
        self._timer = None
        if dues:
            self._timer = self._loop.call_later(max(min(dues) - now, self._deadline / 50), self._expire)


def _fail(flown: list[Waiter], error: BaseException) -> None:
    for waiter, _, _ in flown:
        if not waiter.done():
            if isinstance(error, Exception):
                waiter.set_exception(_own(error))
            else:
                waiter.cancel()


def _own(error: Exception) -> Exception:
    """An error for one of many: each is raised in a task of its own and gathers a traceback of its own."""
    if not isinstance(error, PyslotError):
        return error
    own = type(error)(*error.args)
    own.__cause__ = error.__cause__ or error
    return own
