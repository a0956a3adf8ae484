"""The least that calls which travel together cost on an event loop: what is missing up to here is the library's own.

A step is a future and a place in a list; one script call serves all that wait. There are no permits, leases, deadlines,
errors or cancellations, and nobody is told anything. What it sends, and over what, is what pyslot does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pyslot.adapters.resp_direct import AsyncLine
from pyslot.calls import ACQUIRE, RELEASE
from pyslot.loader import Call

WAITING = list[tuple[bytes, "asyncio.Future[Sequence[int]]"]]


class Floor:
    """Slots of one gauge."""

    def __init__(self, line: AsyncLine, key: bytes) -> None:
        self._line = line
        self._calls = {
            "take": Call(ACQUIRE, (key,), (b"", b"", b"1000000000", b"60000")),
            "give": Call(RELEASE, (key,), (b"",)),
        }
        self._waiting: dict[str, WAITING] = {"take": [], "give": []}
        self._flying: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
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
        if what not in self._flying:
            self._flying.add(what)
            loop.call_soon(self._depart, what)
        return future

    def _depart(self, what: str) -> None:
        task = asyncio.get_running_loop().create_task(self._fly(what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fly(self, what: str) -> None:
        while boarding := self._waiting[what]:
            self._waiting[what] = []
            reply = await self._line.run(self._calls[what]._replace(permits=tuple([id for id, _ in boarding])))
            size = len(reply) // len(boarding)
            for at, (_, future) in enumerate(boarding):
                future.set_result(reply[at * size : (at + 1) * size])
            await asyncio.sleep(0)  # whoever was woken asks next, and shall come along
        self._flying.discard(what)
