"""An agent that asks several models at once, takes the first good answer and cancels the rest.

What is cancelled gives its slots back and takes back what it would have been charged; nothing is awaited for that.

    REDIS_URL=redis://localhost:6379 python -m examples.agent
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from pyslot import AsyncLimiter, Slots, Window

Model = Callable[[str], Awaitable[tuple[str, int]]]
"""Asks one model; gives its answer and the tokens that took."""


class Agent:
    """Stays within the requests in flight of each model, and within its team's tokens."""

    def __init__(self, limiter: AsyncLimiter, team: str, models: dict[str, Model]) -> None:
        self.limiter = limiter
        self.tokens = Window(f"team:{team}", "tokens", limit=50_000, per=60)
        self.models = models

    async def ask(self, question: str) -> str:
        """The answer of the model that is first."""
        tasks = [asyncio.create_task(self._one(name, question)) for name in self.models]
        try:
            for first in asyncio.as_completed(tasks):
                try:
                    return await first
                except OSError:
                    continue  # this model failed; another may answer
            raise RuntimeError("no model has an answer")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, name: str, question: str) -> str:
        slots = Slots(f"model:{name}", limit=3, lease=15)
        estimate = self.tokens.cost(len(question) // 4 + 1_000)
        # Cancelled while it waits or works, a permit gives everything back; an unsettled estimate too.
        async with self.limiter.acquire(slots, estimate, wait=30, on_error="refund") as permit:
            answer, used = await self.models[name](question)
            permit.settle(self.tokens.cost(used))
            return answer


async def main() -> None:
    async def quick(question: str) -> tuple[str, int]:
        await asyncio.sleep(0.1)
        return f"a quick answer to {question!r}", 120

    async def slow(question: str) -> tuple[str, int]:
        await asyncio.sleep(10)
        return f"a better answer to {question!r}", 900

    async with AsyncLimiter(os.environ.get("REDIS_URL", "memory://")) as limiter:
        agent = Agent(limiter, "search", {"quick": quick, "slow": slow})
        print(await agent.ask("what is a slot?"))  # noqa: T201 - it is a program
        (tokens,) = await limiter.peek(agent.tokens)
        print(f"{tokens.used} tokens used")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
