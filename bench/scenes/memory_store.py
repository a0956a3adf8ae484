"""The store without a server: one process, its own memory."""

from __future__ import annotations

from functools import partial

from bench import gateway, peers
from bench.clients import PATIENCE
from bench.scene import MUCH, Contestants, Run, Scene, Where
from bench.scenes import hot, one_caller
from pyslot import AsyncLimiter, Window


async def contestants(run: Run) -> Contestants:
    blocking = run.blocking_limiter("memory")
    limiter = await run.stack.enter_async_context(AsyncLimiter("memory://", deadline=PATIENCE))
    window = Window("here", "requests", MUCH)
    found: Contestants = {
        "pyslot, a slot": run.alone(one_caller.held(blocking)),
        "pyslot, a slot, asyncio": run.tasks(hot.held(limiter, hot.GAUGE)),
        "pyslot, a request counted": run.alone(partial(blocking.charge, window)),
        "pyslot, a gateway's request": run.alone(partial(gateway.ours_blocking, blocking)),
        "pyslot, a gateway's request, asyncio": run.tasks(partial(gateway.ours, limiter)),
    }
    others = peers.counters_here(run.stack)
    return found | {f"{name}, a request counted": run.alone(step) for name, step in others.items()}


SCENE = Scene(
    "The memory store",
    "No server: within one process. One caller who blocks, or 64 tasks where it says asyncio.",
    contestants,
    (Where.HERE,),
)
