"""Many at once, on real servers: exact counts, kept by counters that know nothing of pyslot."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from pyslot import AsyncLimiter, Limiter, Slots, Window
from tests.servers.process import Cluster, Server

GAUGE = Slots("a", 5)
WINDOW = Window("a", "units", 100, per=600)
RACED = pytest.mark.parametrize("server_name", ["redis-8.2", "valkey-9.1"])


class Watch:
    """Counts who is inside."""

    def __init__(self) -> None:
        self.inside = self.most = self.visits = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.visits += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self.inside -= 1


@pytest.fixture(params=["memory", "redis-8.2", "valkey-9.1"])
def url(request: pytest.FixtureRequest, server_url: Callable[[str], str]) -> str:
    if request.param == "memory":
        return "memory://"
    address = server_url(request.param).partition("://")[2]
    return f"{request.param.partition('-')[0]}://{address}"


@pytest.fixture
def limiter(url: str) -> Iterator[Limiter]:
    with Limiter(url, deadline=10) as limiter:
        yield limiter


def test_threads_fill_a_gauge_and_never_more(limiter: Limiter) -> None:
    watch, full = Watch(), threading.Event()

    def work() -> None:
        for _ in range(5):
            with limiter.acquire(GAUGE, wait=30), watch:
                if watch.most == 5:
                    full.set()
                full.wait(20)  # the first five stay until they have met

    with ThreadPoolExecutor(16) as pool:
        for future in [pool.submit(work) for _ in range(16)]:
            future.result()
    assert (watch.most, watch.visits, watch.inside) == (5, 80, 0)
    assert limiter.count(GAUGE) == 0


def test_threads_fill_a_window_and_never_more(limiter: Limiter) -> None:
    def work(seed: int) -> int:
        rng, sum_ = random.Random(seed), 0
        for _ in range(12):
            cost = rng.randrange(1, 5)
            sum_ += cost * bool(limiter.charge(WINDOW.cost(cost)))
        return sum_ + sum(bool(limiter.charge(WINDOW.cost(1))) for _ in range(10))

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(work, range(16))) == 100
    assert limiter.peek(WINDOW)[0].used == 100


def test_threads_that_settle_leave_the_sum_of_their_figures(limiter: Limiter) -> None:
    window = Window("a", "tokens", None, per=600)

    def work(seed: int) -> int:
        rng, sum_ = random.Random(seed), 0
        for _ in range(15):
            used = rng.randrange(1000)
            with limiter.acquire(window.cost(rng.randrange(1000))) as permit:
                permit.settle(window.cost(used))
            sum_ += used
        return sum_

    with ThreadPoolExecutor(8) as pool:
        ledger = sum(pool.map(work, range(8)))
    assert limiter.peek(window)[0].used == ledger


async def test_tasks_fill_a_gauge_and_never_more(url: str) -> None:
    watch, gauge = Watch(), Slots("b", 2)
    async with AsyncLimiter(url, deadline=10) as limiter:
        full = asyncio.Event()

        async def work() -> None:
            async with limiter.acquire(gauge, wait=50):
                with watch:
                    if watch.most == 2:
                        full.set()
                    await full.wait()
                    await asyncio.sleep(0)

        await asyncio.gather(*(work() for _ in range(200)))
        assert (watch.most, watch.visits) == (2, 200)
        assert await limiter.count(gauge) == 0


async def test_tasks_fill_a_window_and_never_more(url: str) -> None:
    async with AsyncLimiter(url, deadline=10) as limiter:
        decisions = await asyncio.gather(*(limiter.try_acquire(WINDOW.cost(1 + n % 3)) for n in range(150)))
        granted = sum(1 + n % 3 for n, decision in enumerate(decisions) if decision)
        rest = await asyncio.gather(*(limiter.charge(WINDOW.cost(1)) for _ in range(10)))
        assert granted + sum(map(bool, rest)) == 100
        assert (await limiter.peek(WINDOW))[0].used == 100


async def test_tasks_and_threads_share_a_limit(url: str) -> None:
    """In one process two limiters, of either colour."""
    if url == "memory://":
        return  # where every limiter has data of its own
    with Limiter(url, deadline=10) as blocking:
        async with AsyncLimiter(url, deadline=10) as limiter:
            charges = [asyncio.to_thread(blocking.charge, WINDOW.cost(2)) for _ in range(40)]
            decisions = await asyncio.gather(*charges, *(limiter.charge(WINDOW.cost(2)) for _ in range(40)))
            assert sum(map(bool, decisions)) == 50


def _hammer(url: str, port: int, seed: int) -> tuple[int, int]:
    """One process of several: returns the most it saw inside, and the units it was granted."""
    counter = redis.Redis(port=port, protocol=2)
    rng, most, units = random.Random(seed), 0, 0
    with Limiter(url, deadline=10) as limiter:
        for _ in range(12):
            with limiter.acquire(GAUGE, wait=50):
                inside = int(counter.incr("inside"))
                most = max(most, inside)
                if inside == 5:
                    counter.set("met", 1)
                while not counter.get("met"):  # the first five stay until they have met
                    time.sleep(0.005)
                cost = rng.randrange(1, 4)
                units += cost * bool(limiter.charge(WINDOW.cost(cost)))
                time.sleep(0.002)
                counter.decr("inside")
        units += sum(bool(limiter.charge(WINDOW.cost(1))) for _ in range(5))
    counter.close()
    return most, units


@pytest.mark.slow
@RACED
def test_processes_fill_a_gauge_and_a_window_and_never_more(server: Server, server_name: str) -> None:
    url = f"{server_name.partition('-')[0]}://{server.address}"
    with multiprocessing.get_context("spawn").Pool(6) as pool:
        seen = pool.starmap(_hammer, [(url, server.port, seed) for seed in range(6)], chunksize=1)
    assert max(most for most, _ in seen) == 5
    assert sum(units for _, units in seen) == 100
    with Limiter(url) as limiter:
        assert limiter.count(GAUGE) == 0
        assert limiter.peek(WINDOW)[0].used == 100


async def test_on_a_cluster_two_who_want_the_same_from_both_ends_never_keep_each_other_out(
    cluster: Cluster, cluster_name: str
) -> None:
    url = f"{cluster_name.partition('-')[0]}+cluster://{cluster.address}"
    x, y = Slots("x", 1), Slots("y", 1)
    async with AsyncLimiter(url, deadline=10) as one, AsyncLimiter(url, deadline=10) as other:
        for _ in range(100):
            first, second = await asyncio.gather(one.try_acquire(x, y), other.try_acquire(y, x))
            assert first or second
            for decision in (first, second):
                if decision:
                    await decision.require().finish()
        assert await one.count(x) == await one.count(y) == 0
