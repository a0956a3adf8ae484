"""Everybody wants a slot of the same gauge."""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench import bare, peers
from bench.clients import NAMES, Execute
from bench.rounds import Step
from bench.scene import CLIENTS, MUCH, Contestants, Run, Scene, Where, ids
from pyslot import AsyncLimiter, Slots

GAUGE = (Slots("hot", MUCH),)
KEY = (b"bare:v1:{hot}:s",)


def held(limiter: AsyncLimiter, gauges: Sequence[Slots]) -> Step:
    """A slot of one of them, taken and given back."""

    async def step() -> None:
        async with limiter.acquire(random.choice(gauges)):
            pass

    return step


def held_bare(execute: Execute, keys: Sequence[bytes]) -> Step:
    fresh = ids()

    async def step() -> None:
        key, id = random.choice(keys), next(fresh)
        await execute(*bare.take(key, id))
        await execute(*bare.give(key, id))

    return step


async def contestants(run: Run) -> Contestants:
    found: Contestants = {}
    for client in CLIENTS:
        found[f"pyslot, {NAMES[client]}"] = run.tasks(held(await run.limiter(client), GAUGE))
        found[f"bare EVALSHA, {NAMES[client]}"] = run.tasks(held_bare(await run.bare(client), KEY))
    if run.place.cluster:
        return found
    alone = await run.limiter("redis", coalesce=False)
    found["pyslot, redis-py, each call by itself"] = run.tasks(held(alone, GAUGE))
    found["steindamm, semaphore"] = run.tasks(peers.semaphore(run.place, capacity=1_000, name="hot"))
    return found | run.litellm_does("slot")


SCENE = Scene(
    "One hot gauge",
    "One slot of one gauge that is never full, taken and given back; 64 tasks.",
    contestants,
    (Where.SERVER, Where.CLUSTER),
)
