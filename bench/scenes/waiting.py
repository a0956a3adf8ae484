"""More callers than slots: how much of what there is do they get to use?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import cycle
from typing import Any

from bench import bare, peers
from bench.clients import NAMES, PATIENCE, Execute
from bench.rounds import Load, summed
from bench.scene import TASKS, Contestant, Contestants, Run, Scene, ids
from pyslot import Slots

SLOTS = 8
HOLD = 0.005
"""Seconds for which each slot is held."""
GAUGE = Slots("scarce", SLOTS)
KEY = b"bare:v1:{scarce}:s"

Enter = Callable[[], AbstractAsyncContextManager[Any]]


def crowd(enter: Enter, seconds: float) -> Contestant:
    """Tasks that wait for a slot, hold it and begin again; a step is a wait and a hold."""

    async def load() -> Load:
        waits: list[float] = []
        held = 0.0
        began = time.perf_counter()

        async def work() -> None:
            nonlocal held
            while (at := time.perf_counter()) < began + seconds:
                async with enter():
                    entered = time.perf_counter()
                    await asyncio.sleep(HOLD)
                    held += time.perf_counter() - entered
                waits.append(time.perf_counter() - at)

        await asyncio.gather(*(work() for _ in range(TASKS)))
        took = time.perf_counter() - began
        return summed(waits, took)._replace(used=held / (SLOTS * took))

    return load


def asking_again(execute: Execute) -> Enter:
    """What one writes first: ask, sleep, ask again."""
    fresh = ids()

    @asynccontextmanager
    async def enter() -> AsyncIterator[None]:
        id = next(fresh)
        while not (await execute(*bare.take(KEY, id, limit=b"%d" % SLOTS)))[0]:  # noqa: ASYNC110  # the point
            await asyncio.sleep(HOLD)
        try:
            yield
        finally:
            await execute(*bare.give(KEY, id))

    return enter


async def contestants(run: Run) -> Contestants:
    one = await run.limiter("redis")
    some = cycle([await run.limiter("redis") for _ in range(4)])
    within = asyncio.Semaphore(SLOTS)
    entering: dict[str, Enter] = {
        f"pyslot, {NAMES['redis']}": lambda: one.acquire(GAUGE, wait=PATIENCE),
        f"pyslot, {NAMES['redis']}, as if in 4 processes": lambda: next(some).acquire(GAUGE, wait=PATIENCE),
        f"bare EVALSHA, {NAMES['redis']}, asking again every 5 ms": asking_again(await run.bare("redis")),
        "steindamm, semaphore": peers.semaphore_entered(run.place, capacity=SLOTS, name="scarce"),
        "asyncio.Semaphore, one process alone": lambda: within,
    }
    return {name: crowd(enter, run.size.seconds) for name, enter in entering.items()}


SCENE = Scene(
    "Waiting for room",
    "64 tasks share 8 slots and hold each for 5 ms, so 1,600 a second would be perfect. Shown with it: how much of "
    "the slot-seconds was held. As if in 4 processes: four limiters that learn nothing from each other.",
    contestants,
    longer=2,
)
