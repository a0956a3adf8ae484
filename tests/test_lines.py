"""Who waits for a slot gets one in the order of arrival, and slots do not lie idle for it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence

from pyslot import AsyncLimiter, Limiter, LimitExceeded, Slots, StoreUnavailable, Window
from pyslot.adapters.memory import AsyncMemoryStore, MemoryStore
from pyslot.loader import Call
from pyslot.testing import World

ONE = Slots("one", limit=1)


async def test_turns_go_in_the_order_of_arrival() -> None:
    turns: list[int] = []

    async def caller(number: int) -> None:
        async with limiter.acquire(ONE, wait=10):
            turns.append(number)
            await asyncio.sleep(0.005)

    async with AsyncLimiter("memory://") as limiter:
        tasks = []
        for number in range(8):
            tasks.append(asyncio.create_task(caller(number)))
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)
    assert turns == sorted(turns)


async def test_a_task_that_comes_back_at_once_stands_behind_those_who_wait() -> None:
    turns: Counter[int] = Counter()

    async def worker(number: int) -> None:
        while sum(turns.values()) < 40:
            async with limiter.acquire(ONE, wait=10):
                turns[number] += 1
                await asyncio.sleep(0.002)

    async with AsyncLimiter("memory://") as limiter:
        await asyncio.gather(*map(worker, range(4)))
    assert max(turns.values()) - min(turns.values()) <= 1


def test_a_thread_that_comes_back_at_once_stands_behind_those_who_wait() -> None:
    turns: Counter[int] = Counter()

    def worker(number: int) -> None:
        while sum(turns.values()) < 40:
            with limiter.acquire(ONE, wait=10):
                turns[number] += 1
                time.sleep(0.002)

    with Limiter("memory://") as limiter:
        threads = [threading.Thread(target=worker, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert max(turns.values()) - min(turns.values()) <= 2  # the first may have a turn before the last has started


async def test_a_waiter_that_is_cancelled_passes_its_turn_on() -> None:
    async with AsyncLimiter("memory://") as limiter:
        permit = (await limiter.try_acquire(ONE)).require()
        first = asyncio.create_task(limiter.try_acquire(ONE, wait=60))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(limiter.try_acquire(ONE, wait=60))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait([first])
        await permit.finish()
        async with asyncio.timeout(5):
            assert await second


async def test_who_runs_out_of_time_behind_others_asks_once_more_and_is_told_why() -> None:
    async with AsyncLimiter("memory://") as limiter:
        permit = (await limiter.try_acquire(ONE)).require()
        first = asyncio.create_task(limiter.try_acquire(ONE, wait=60))
        await asyncio.sleep(0.01)
        began = time.monotonic()
        decision = await limiter.try_acquire(ONE, wait=0.05)
        assert 0.05 <= time.monotonic() - began < 1
        assert decision.refused_by == (ONE,)
        await permit.finish()
        assert await first


async def test_a_permit_held_already_does_not_wait_in_line() -> None:
    async with AsyncLimiter("memory://") as limiter:
        await limiter.try_acquire(ONE, id="mine")
        waiter = asyncio.create_task(limiter.try_acquire(ONE, wait=60))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(1):
            assert (await limiter.try_acquire(ONE, id="mine", wait=60)).repeated
        waiter.cancel()
        await asyncio.wait([waiter])


async def test_who_waits_for_a_window_keeps_nobody_with_a_smaller_cost() -> None:
    tokens = Window("team", "tokens", limit=100)
    many = Slots("many", limit=9)
    async with AsyncLimiter("memory://") as limiter:
        await limiter.charge(tokens.cost(50))
        big = asyncio.create_task(limiter.try_acquire(many, tokens.cost(60), wait=60))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(1):
            assert await limiter.try_acquire(many, tokens.cost(10), wait=60)
        big.cancel()
        await asyncio.wait([big])


class Failing(AsyncMemoryStore):
    """A server that falls silent when told."""

    silent = False

    async def run(self, call: Call) -> Sequence[int]:  # type: ignore[override]
        if self.silent:
            await asyncio.sleep(0.2)
            raise StoreUnavailable("silent")
        return await super().run(call)


async def test_an_outage_is_told_to_all_who_wait_at_the_same_time() -> None:
    store = Failing(MemoryStore())
    async with AsyncLimiter(store) as limiter:
        await limiter.try_acquire(ONE)
        waiters = [asyncio.create_task(limiter.try_acquire(ONE, wait=60)) for _ in range(10)]
        await asyncio.sleep(0.05)
        store.silent = True
        began = time.monotonic()
        answers = await asyncio.gather(*waiters, return_exceptions=True)
        assert all(isinstance(answer, StoreUnavailable) for answer in answers)
        assert time.monotonic() - began < 1.9  # at most one pause and two silences; ten in a row would be 2 s
        store.silent = False


async def test_sixty_callers_of_four_processes_share_five_slots_and_leave_none_idle() -> None:
    random.seed(1)
    world = World()
    slots = Slots("model", limit=5)
    turns: Counter[int] = Counter()
    busy = 0.0

    async def worker(limiter: AsyncLimiter, number: int) -> None:
        nonlocal busy
        while world.time() < end:
            try:
                async with limiter.acquire(slots, wait=end - world.time()):
                    turns[number] += 1
                    hold = random.uniform(0.2, 0.5)
                    busy += min(hold, end - world.time())
                    await world.sleep(hold)
            except LimitExceeded:
                return

    seconds = 30.0
    end = world.time() + seconds
    limiters = [world.async_limiter() for _ in range(4)]
    tasks = [asyncio.create_task(worker(limiters[number % 4], number)) for number in range(60)]
    await world.aadvance(seconds + 5)
    await asyncio.gather(*tasks)
    assert len(turns) == 60
    assert 0.93 < busy / (5 * seconds) <= 1
