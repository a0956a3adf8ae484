"""An estimate becomes the real figure."""

from __future__ import annotations

from bench import bare, peers
from bench.clients import NAMES, Execute
from bench.rounds import Step
from bench.scene import CLIENTS, MUCH, Contestants, Run, Scene, ids
from pyslot import AsyncLimiter, Window

TOKENS = Window("settled", "tokens", MUCH)
KEY = b"bare:v1:{settled}:w:tokens:60000"


def settled(limiter: AsyncLimiter) -> Step:
    estimate, real = TOKENS.cost(1_000), TOKENS.cost(700)

    async def step() -> None:
        async with limiter.acquire(estimate) as permit:
            permit.settle(real)

    return step


def settled_bare(execute: Execute) -> Step:
    fresh = ids()

    async def step() -> None:
        id = next(fresh)
        await execute(*bare.reserve(KEY, id, b"1000"))
        await execute(*bare.settle(KEY, id, b"700"))

    return step


async def contestants(run: Run) -> Contestants:
    found: Contestants = {}
    for client in CLIENTS:
        found[f"pyslot, {NAMES[client]}"] = run.tasks(settled(await run.limiter(client)))
        found[f"bare EVALSHA, {NAMES[client]}"] = run.tasks(settled_bare(await run.bare(client)))
    alone = await run.limiter("redis", coalesce=False)
    found["pyslot, redis-py, each call by itself"] = run.tasks(settled(alone))
    found["limits, fixed window, redis-py, not settled"] = run.tasks(peers.spent(run.place, units=1_000))
    return found | run.litellm_does("settled")


SCENE = Scene(
    "Reserve and settle",
    "1,000 tokens reserved in a window of a minute, then settled at 700; 64 tasks.",
    contestants,
)
