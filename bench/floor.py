"""The least that calls which travel together cost on an event loop: what is missing up to here is the library's own.

A step is a future and a place in a list; one script call serves all that wait. There are no permits, leases, deadlines,
errors or cancellations, and nobody is told anything. What it sends, and over what, is what pyslot does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pyslot.adapters.resp_direct import AsyncLine
from pyslot.calls import ACQUIRE, RELEASE
from pyslot.coalesce import WOKEN
from pyslot.loader import Call

Waiting = list[tuple[bytes, "asyncio.Future[Sequence[int]]"]]


class Floor:
    """Slots of one gauge."""

    def __init__(self, line: AsyncLine, key: bytes) -> None:
        self._line = line
        self._calls = {
            "take": Call(ACQUIRE, (key,), (b"", b"", b"1000000000", b"60000")),
            "give": Call(RELEASE, (key,), (b"",)),
        }
        self._waiting: dict[str, Waiting] = {"take": [], "give": []}
        self._flights: dict[str, asyncio.Task[None]] = {}
        self._number = 0

    async def __call__(self) -> None:
        self._number += 1
        id = b"floor%x" % self._number
        await self._join("take", id)
        await self._join("give", id)

    def _join(self, what: str, id: bytes) -> asyncio.Future[Sequence[int]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[int]] = asyncio.Future(loop=loop)
        self._waiting[what].append((id, future))
        if not self._flights and len(self._waiting[what]) == 1:
            loop.call_soon(self._depart)
        return future

    def _depart(self) -> None:
        for what, waiting in self._waiting.items():
            if waiting and what not in self._flights:
                self._waiting[what] = []
                self._flights[what] = asyncio.create_task(self._fly(what, waiting))

    async def _fly(self, what: str, boarded: Waiting) -> None:
        reply = await self._line.run(self._calls[what]._replace(permits=tuple([id for id, _ in boarded])))
        del self._flights[what]
        self._wake(boarded, reply, 0)

    def _wake(self, boarded: Waiting, reply: Sequence[int], first: int) -> None:
        """A few at a time, as pyslot does: the next flight leaves while others are still woken."""
        self._depart()
        size = len(reply) // len(boarded)
        for at, (_, future) in enumerate(boarded[first : first + WOKEN], first):
            future.set_result(reply[at * size : (at + 1) * size])
        asyncio.get_running_loop().call_soon(
            *((self._wake, boarded, reply, first + WOKEN) if first + WOKEN < len(boarded) else (self._depart,))
        )
