"""Other libraries, each doing the nearest thing to ours that it offers. `DIFFERS` says how that differs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, Literal, TypeAlias

import limits
import pyrate_limiter
import redis
import redis.asyncio
import steindamm
import throttled
import throttled.asyncio
from limits.aio.storage import RedisStorage as AsyncRedisStorage
from limits.aio.strategies import FixedWindowRateLimiter as AsyncFixedWindow
from limits.aio.strategies import MovingWindowRateLimiter as AsyncMovingWindow

from bench.clients import NAMES, PATIENCE, POOL
from bench.places import Place
from bench.rounds import Step

LOG = 10**6
"""So many entries are the most where a peer keeps a log of requests."""

Admits: TypeAlias = Callable[[], Awaitable[bool]]
BlockingAdmits: TypeAlias = Callable[[], bool]

DIFFERS = {
    "bare EVALSHA": "Our own two scripts, sent by hand with ready-made arguments: no decision, no renewal of leases, "
    "no time-out, no clean-up after a lost reply. What the client library costs by itself.",
    "pyslot, each call by itself": "Ours with `coalesce=False`: calls that wait together do not travel together.",
    "LiteLLM": "Its proxy's limiter (`parallel_request_limiter_v3`) from its package, in a process of its own. A "
    "gateway's request is four steps after each other, not all or none. Where its own process holds the slots it "
    "refuses from memory; what is refused here is a slot that another process holds. On single servers only.",
    "steindamm, semaphore": "Tokens in a list, taken with BLPOP: waiters are served in order, a slot has no holder and "
    "no lease, so one that dies keeps it until the whole semaphore expires. Four round trips to enter and leave.",
    "limits, fixed window": "One counter with a time to live: refused requests count as well, nothing is given back or "
    "settled, one limit a call.",
    "limits, moving window": "A list of the times of all hits, by the client's clock: exact over any minute, and its "
    "memory grows with the limit. Nothing is given back.",
    "throttled-py, fixed window": "One counter, by the client's clock; nothing is given back, one limit a call.",
    "pyrate-limiter": "A sorted set of all hits, by the client's clock; nothing is given back.",
    "asyncio.Semaphore": "Within one process only: no server, nothing shared. The best that waiting can be.",
}
"""How each contestant's name begins -> what it does otherwise than ours."""


async def counters(place: Place, stack: AsyncExitStack, most: int) -> dict[str, Admits]:
    """One request counted in a window of a day, of which `most` fit; True if it was admitted."""
    address = place.masters[0].address
    rule = limits.parse(f"{most}/day")
    found: dict[str, Admits] = {}
    for client in ("redis", "valkey"):
        using: Literal["redispy", "valkey"] = "redispy" if client == "redis" else "valkey"
        store = AsyncRedisStorage(f"async+{client}://{address}", implementation=using)
        for kind, strategy in (("fixed", AsyncFixedWindow), ("moving", AsyncMovingWindow)):
            found[f"limits, {kind} window, {NAMES[client]}"] = partial(strategy(store).hit, rule, f"{kind} {client}")
    throttle = throttled.asyncio.Throttled(
        key="hot",
        using="fixed_window",
        quota=throttled.asyncio.per_day(most),
        store=throttled.asyncio.RedisStore(server=f"redis://{address}/0"),
    )

    async def throttled_py() -> bool:
        return not (await throttle.limit()).limited

    found["throttled-py, fixed window"] = throttled_py
    rates = [pyrate_limiter.Rate(most, 86_400_000)]
    pyrate = pyrate_limiter.Limiter(await pyrate_limiter.RedisBucket.init(rates, _concurrent(place, stack), "pyrate"))
    stack.callback(pyrate.close)
    found["pyrate-limiter"] = partial(pyrate.try_acquire_async, "hot", blocking=False)
    return found


def blocking_counters(place: Place, stack: AsyncExitStack) -> dict[str, BlockingAdmits]:
    """The same for one caller who blocks, in a window that is never full."""
    address = place.masters[0].address
    found: dict[str, BlockingAdmits] = {}
    for client in ("redis", "valkey"):
        store = limits.storage.storage_from_string(f"{client}://{address}")
        found |= _limits_by(store, f", {NAMES[client]}")
    found["throttled-py, fixed window"] = _throttled(throttled.RedisStore(server=f"redis://{address}/0"))
    client = stack.enter_context(redis.Redis(port=place.masters[0].port))
    rates = [pyrate_limiter.Rate(LOG, 86_400_000)]
    found["pyrate-limiter"] = _pyrate(pyrate_limiter.RedisBucket.init(rates, client, "pyrate"), stack)
    return found


def counters_here(stack: AsyncExitStack) -> dict[str, BlockingAdmits]:
    """The same without a server."""
    bucket = pyrate_limiter.InMemoryBucket([pyrate_limiter.Rate(LOG, 86_400_000)])
    return {
        **_limits_by(limits.storage.MemoryStorage(), ""),
        "throttled-py, fixed window": _throttled(throttled.MemoryStore()),
        "pyrate-limiter": _pyrate(bucket, stack),
    }


def spent(place: Place, units: int) -> Step:
    """Units of a window counted, by `limits` and its fixed window: what it counts stays counted."""
    store = AsyncRedisStorage(f"async+redis://{place.masters[0].address}", implementation="redispy")
    rule = limits.parse(f"{10**9}/minute")
    return partial(AsyncFixedWindow(store).hit, rule, "spent", cost=units)


def semaphore_entered(place: Place, *, capacity: int, name: str) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """A semaphore of steindamm. Who waits keeps a connection, so there must be one for each task."""
    pool = redis.asyncio.BlockingConnectionPool(port=place.masters[0].port, max_connections=128, timeout=PATIENCE)
    client = redis.asyncio.Redis.from_pool(pool)
    return partial(steindamm.AsyncSemaphore.create, name=name, capacity=capacity, connection=client)


def semaphore(place: Place, *, capacity: int, name: str) -> Step:
    enter = semaphore_entered(place, capacity=capacity, name=name)

    async def step() -> None:
        async with enter():
            pass

    return step


def blocking_semaphore(place: Place, stack: AsyncExitStack) -> Callable[[], None]:
    client = stack.enter_context(redis.Redis(port=place.masters[0].port))
    made = steindamm.SyncSemaphore.create(name="pair", capacity=1_000, connection=client)

    def step() -> None:
        with made:
            pass

    return step


def _limits_by(store: Any, suffix: str) -> dict[str, BlockingAdmits]:  # noqa: ANN401  # theirs
    rule = limits.parse(f"{LOG}/day")
    fixed, moving = limits.strategies.FixedWindowRateLimiter(store), limits.strategies.MovingWindowRateLimiter(store)
    return {
        f"limits, fixed window{suffix}": partial(fixed.hit, rule, f"fixed{suffix}"),
        f"limits, moving window{suffix}": partial(moving.hit, rule, f"moving{suffix}"),
    }


def _throttled(store: Any) -> BlockingAdmits:  # noqa: ANN401  # theirs
    made = throttled.Throttled(key="hot", using="fixed_window", quota=throttled.per_day(LOG), store=store)
    return lambda: not made.limit().limited


def _pyrate(bucket: Any, stack: AsyncExitStack) -> BlockingAdmits:  # noqa: ANN401  # theirs
    made = pyrate_limiter.Limiter(bucket)
    stack.callback(made.close)
    return lambda: bool(made.try_acquire("hot", blocking=False))


def _concurrent(place: Place, stack: AsyncExitStack) -> redis.asyncio.Redis:
    pool = redis.asyncio.BlockingConnectionPool(port=place.masters[0].port, max_connections=POOL, timeout=PATIENCE)
    client = redis.asyncio.Redis.from_pool(pool)
    stack.push_async_callback(client.aclose)
    return client
