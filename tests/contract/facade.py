"""One face for both limiters, so that a test is written once."""

# ruff: noqa: ANN401 - a limiter of either colour

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pyslot import AsyncLimiter, Decision, Limiter, Outcome, Slots, Status
from pyslot.kinds import Asked, Limit
from pyslot.permit import AsyncPermit, Permit


async def got(value: Any) -> Any:
    """What a call gave, awaited where it must be."""
    return await value if inspect.isawaitable(value) else value


class Facade:
    """A limiter whose calls are awaited, whatever its colour."""

    def __init__(self, limiter: Limiter | AsyncLimiter) -> None:
        self.limiter: Any = limiter

    async def try_acquire(self, *limits: Asked, id: str | None = None, wait: float | None = None) -> Decision[Any]:
        decision: Decision[Any] = await got(self.limiter.try_acquire(*limits, id=id, wait=wait))
        return decision

    @asynccontextmanager
    async def acquire(self, *limits: Asked, **options: Any) -> AsyncIterator[Any]:
        block = self.limiter.acquire(*limits, **options)
        if isinstance(self.limiter, Limiter):
            with block as permit:
                yield permit
        else:
            async with block as permit:
                yield permit

    async def finish(self, permit: Permit | AsyncPermit) -> Outcome:
        outcome: Outcome = await got(permit.finish())
        return outcome

    async def charge(self, *charges: Any) -> Decision[Any]:
        decision: Decision[Any] = await got(self.limiter.charge(*charges))
        return decision

    async def count(self, slots: Slots) -> int:
        return int(await got(self.limiter.count(slots)))

    async def peek(self, *limits: Asked) -> tuple[Status, ...]:
        statuses: tuple[Status, ...] = await got(self.limiter.peek(*limits))
        return statuses

    async def used(self, *limits: Asked) -> list[int]:
        return [status.used for status in await self.peek(*limits)]

    async def reset(self, *limits: Limit) -> None:
        await got(self.limiter.reset(*limits))

    def handle(self, id: str, *limits: Limit) -> Any:
        return self.limiter.handle(id, *limits)

    def adopt(self, token: bytes) -> Any:
        return self.limiter.adopt(token)

    async def close(self) -> None:
        close = self.limiter.close if isinstance(self.limiter, Limiter) else self.limiter.aclose
        await got(close())
