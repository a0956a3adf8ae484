"""Other libraries, each doing the nearest thing to ours that it offers; what differs is said with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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

from tests.servers.process import Server

MUCH = 10**6
"""Of what peers keep a log of, so many entries are the most."""


class Peer(NamedTuple):
    name: str
    differs: str
    step: Any
    """A function for sync peers, a coroutine function for async ones."""


def sync(server: Server) -> list[Peer]:
    """One request counted, blocking."""
    peers = []
    rule = limits.parse(f"{MUCH}/minute")
    for client in ("redis", "valkey"):
        store = limits.storage.storage_from_string(f"{client}://{server.address}")
        for strategy in (limits.strategies.FixedWindowRateLimiter, limits.strategies.MovingWindowRateLimiter):
            limiter = strategy(store)
            kind = strategy.__name__.removesuffix("RateLimiter")
            what = "one counter, not given back" if kind == "FixedWindow" else "a list of hits by the client's clock"
            peers.append(Peer(f"limits, {kind}, {client}", what, _hit(limiter, rule, kind)))
    throttle = throttled.Throttled(
        key="hot",
        using="fixed_window",
        quota=throttled.per_min(MUCH),
        store=throttled.RedisStore(server=f"{server.url}/0"),
    )
    peers.append(Peer("throttled-py, fixed window", "one counter, not given back", throttle.limit))
    rates = [pyrate_limiter.Rate(MUCH, 60_000)]
    bucket = pyrate_limiter.RedisBucket.init(rates, redis.Redis(port=server.port), "pyrate")
    pyrate = pyrate_limiter.Limiter(bucket)
    peers.append(Peer("pyrate-limiter", "a sorted set of hits, not given back", lambda: pyrate.try_acquire("hot")))
    semaphore = steindamm.SyncSemaphore.create(name="hot", capacity=1_000, connection=redis.Redis(port=server.port))
    peers.append(Peer("steindamm, semaphore", "waits in a list; a slot's holder is not named", _enter(semaphore)))
    return peers


def asynchronous(server: Server) -> list[Peer]:
    """The same on an event loop."""
    rule = limits.parse(f"{MUCH}/minute")
    peers = []
    store = AsyncRedisStorage(f"async+{server.url}", implementation="redispy")
    for strategy in (AsyncFixedWindow, AsyncMovingWindow):
        kind = strategy.__name__.removesuffix("RateLimiter")
        what = "one counter, not given back" if kind == "FixedWindow" else "a list of hits by the client's clock"
        limiter = strategy(store)

        async def hit(limiter: Any = limiter, kind: str = kind) -> None:  # noqa: ANN401  # one of the two
            await limiter.hit(rule, kind)

        peers.append(Peer(f"limits, {kind}", what, hit))
    throttle = throttled.asyncio.Throttled(
        key="hot",
        using="fixed_window",
        quota=throttled.asyncio.per_min(MUCH),
        store=throttled.asyncio.RedisStore(server=f"{server.url}/0"),
    )
    peers.append(Peer("throttled-py, fixed window", "one counter, not given back", throttle.limit))
    client = redis.asyncio.Redis.from_pool(redis.asyncio.BlockingConnectionPool(port=server.port, timeout=20))

    async def semaphore() -> None:
        async with steindamm.AsyncSemaphore.create(name="hot", capacity=1_000, connection=client):
            pass

    peers.append(Peer("steindamm, semaphore", "waits in a list; a slot's holder is not named", semaphore))
    return peers


def _hit(limiter: Any, rule: Any, name: str) -> Callable[[], None]:  # noqa: ANN401  # theirs
    return lambda: limiter.hit(rule, name)


def _enter(semaphore: Any) -> Callable[[], None]:  # noqa: ANN401  # theirs
    def run() -> None:
        with semaphore:
            pass

    return run
