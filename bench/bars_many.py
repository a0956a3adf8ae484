"""Bars with many tasks on one event loop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import redis
import redis.asyncio
import valkey
import valkey.asyncio

from bench import bare, gateway
from bench.bar import MUCH, Bar, Run, at_least, at_most
from bench.clients import PATIENCE
from bench.floor import Floor
from bench.rounds import Load, Ratio, Step, compete, loaded, rates, ratio
from pyslot import AsyncLimiter, Slots
from pyslot.calls import SCRIPTS

Client = Any


async def under_load(run: Run) -> list[Bar]:
    found: list[Bar] = []
    for name, library, least in (("redis", redis, 1.4), ("valkey", valkey, 1.7)):
        pool = library.asyncio.BlockingConnectionPool(port=run.server.port, max_connections=128, timeout=PATIENCE)
        made = library.asyncio.Redis if library is redis else library.asyncio.Valkey
        client = made.from_pool(pool)
        async with AsyncLimiter(f"{name}://{run.server.address}", deadline=PATIENCE) as limiter:
            for script in SCRIPTS.values():
                await client.script_load(script.text)
            for count, wanted in ((1, 8.0), (1_000, least)):
                faster, floor = await hammered(limiter, client, count, run)
                gauges = f"{count:,} gauge{'s' if count > 1 else ''}"
                what = f"128 tasks, {gauges}, pairs a second against one EVALSHA a step, {name}-py"
                found.append(at_least(what, faster, wanted, floor))
            if library is redis:
                found += await at_the_gateway(limiter, run)
                found.append(await alone(run))
        await client.aclose()
    return found


async def hammered(limiter: AsyncLimiter, client: Client, count: int, run: Run) -> tuple[Ratio, Ratio | None]:
    """Ours against one EVALSHA a step; and for one gauge the least that travelling together costs, against the same."""
    gauges = [Slots(f"g{n}", MUCH) for n in range(count)]
    keys = [b"bare:v1:{g%d}:s" % n for n in range(count)]
    ids = iter(range(MUCH))

    async def ours() -> None:
        async with limiter.acquire(random.choice(gauges)):
            pass

    async def one_by_one() -> None:
        key, id = random.choice(keys), b"abcdefghijkl%x" % next(ids)
        await client.execute_command(*bare.take(key, id))
        await client.execute_command(*bare.give(key, id))

    steps = {"ours": ours, "bare": one_by_one}
    if count == 1:
        steps["floor"] = floor(limiter)
    loads = await compete({name: at(step, 128, run) for name, step in steps.items()}, rounds=run.rounds)
    against = rates(loads["bare"])
    return ratio(rates(loads["ours"]), against), ratio(rates(loads["floor"]), against) if count == 1 else None


def floor(limiter: AsyncLimiter) -> Floor:
    """Over the connections of this limiter, while it rests."""
    return Floor(limiter._store._made.line, b"floor:v1:{hot}:s")  # type: ignore[attr-defined]  # of the stores over RESP


def at(step: Step, tasks: int, run: Run) -> Callable[[], Awaitable[Load]]:
    return lambda: loaded(step, tasks=tasks, seconds=run.seconds)


async def at_the_gateway(limiter: AsyncLimiter, run: Run) -> list[Bar]:
    found: list[Bar] = []
    litellm, seconds = run.litellm, run.seconds
    pool = redis.asyncio.BlockingConnectionPool(port=run.server.port, max_connections=64, timeout=PATIENCE)
    client = redis.asyncio.Redis.from_pool(pool)
    by_hand = gateway.Bare(client.execute_command)
    slots = Slots("hot", MUCH)

    async def hot() -> None:
        async with limiter.acquire(slots):
            pass

    contestants = {
        "ours": at(lambda: gateway.ours(limiter), 64, run),
        "bare": at(by_hand, 64, run),
        "hot": at(hot, 64, run),
        "floor": at(floor(limiter), 64, run),
    }
    if litellm:
        # In its own process, while ours waits.
        for what in ("gateway", "slot"):

            async def theirs(what: str = what) -> Load:
                return await asyncio.to_thread(litellm.load, what, tasks=64, seconds=seconds)

            contestants[f"litellm {what}"] = theirs
    loads = await compete(contestants, rounds=run.rounds)
    await client.aclose()
    faster = ratio(rates(loads["ours"]), rates(loads["bare"]))
    found.append(at_least("the gateway's requests a second against two EVALSHA over a pool of 64", faster, 1.5))
    tails = ratio([load.p99 for load in loads["ours"]], [load.p99 for load in loads["bare"]])
    found.append(at_most("the gateway's p99 against the same", tails, 1.0))
    for what, mine, least in (("slot", "hot", 20), ("gateway", "ours", 5)):
        if litellm:
            theirs_is = rates(loads[f"litellm {what}"])
            far = ratio(rates(loads[mine]), theirs_is)
            least_cost = ratio(rates(loads["floor"]), theirs_is) if what == "slot" else None
            found.append(at_least(f"{what} against LiteLLM's limiter, 64 tasks", far, least, least_cost))
        else:
            found.append(Bar(f"{what} against LiteLLM's limiter", "no litellm: make bench-litellm", f"{least}", False))
    return found


async def alone(run: Run) -> Bar:
    """A lone call through the coalescing path and past it."""
    waits: dict[bool, list[float]] = {True: [], False: []}
    slots = Slots("alone", 10)
    async with (
        AsyncLimiter(run.server.url, deadline=PATIENCE) as joined,
        AsyncLimiter(run.server.url, deadline=PATIENCE, coalesce=False) as direct,
    ):
        for _ in range(4 * run.rounds):
            for limiter, name in ((joined, True), (direct, False)):
                began = time.perf_counter()
                for _ in range(50):
                    async with limiter.acquire(slots):
                        pass
                waits[name].append(time.perf_counter() - began)
    return at_most("a lone call through the coalescing path", ratio(waits[True], waits[False]), 1.1)
