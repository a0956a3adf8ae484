"""Nothing is left, and everybody asks."""

from __future__ import annotations

from bench import bare, peers
from bench.clients import NAMES, Execute
from bench.rounds import Step
from bench.scene import CLIENTS, Contestants, Run, Scene, Where, ids
from pyslot import AsyncLimiter, Slots

FULL = Slots("full", 1)
KEY = b"bare:v1:{full}:s"


def refused(limiter: AsyncLimiter) -> Step:
    async def step() -> None:
        assert not await limiter.try_acquire(FULL)

    return step


def refused_bare(execute: Execute) -> Step:
    fresh = ids()

    async def step() -> None:
        reply = await execute(*bare.take(KEY, next(fresh), limit=b"1"))
        assert reply[0] == 0, reply

    return step


async def contestants(run: Run) -> Contestants:
    found: Contestants = {}
    holder = await run.limiter("redis")
    await run.stack.enter_async_context(holder.acquire(FULL))
    for client in CLIENTS:
        execute = await run.bare(client)
        await execute(*bare.take(KEY, b"holder", limit=b"1"))
        found[f"pyslot, {NAMES[client]}"] = run.tasks(refused(await run.limiter(client)))
        found[f"bare EVALSHA, {NAMES[client]}"] = run.tasks(refused_bare(execute))
    if run.place.cluster:
        return found
    alone = await run.limiter("redis", coalesce=False)
    found["pyslot, redis-py, each call by itself"] = run.tasks(refused(alone))
    for name, step in (await peers.counters(run.place, run.stack, most=1)).items():
        assert [await step(), await step()] == [True, False], name
        found[name] = run.tasks(step)
    if run.litellm:
        run.litellm.ask(what="fill")
    return found | run.litellm_does("refused")


SCENE = Scene(
    "Refusals",
    "A slot of a gauge whose only slot is held, or a request in a window of one: asked for, and refused; 64 tasks.",
    contestants,
    (Where.SERVER, Where.CLUSTER),
)
