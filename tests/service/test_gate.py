"""A gate loses no place and gives none twice, whoever leaves in whatever moment."""

from __future__ import annotations

import asyncio
import random

import pytest

from pyslot import UsageError
from pyslot.gate import Gate, Overloaded


async def test_waiters_are_served_in_order_of_arrival() -> None:
    gate = Gate(1, waiting=9, patience=30)
    order: list[int] = []

    async def work(i: int) -> None:
        async with gate.place():
            order.append(i)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(i) for i in range(10)))
    assert order == list(range(10))


async def test_the_time_to_come_again_grows_with_the_queue_and_is_a_second_at_least() -> None:
    gate = Gate(1)
    async with gate.place():
        with pytest.raises(Overloaded) as caught:
            await gate.place().__aenter__()
        assert caught.value.retry_after == 1
    gate._stay = 4.0
    async with gate.place():
        with pytest.raises(Overloaded) as caught:
            await gate.place().__aenter__()
        assert caught.value.retry_after == 4


async def test_no_place_is_lost_or_doubled_in_any_order_of_leaving() -> None:
    rng = random.Random(5)
    gate = Gate(3, waiting=20, patience=0.002)
    at_work = most = served = 0

    async def work() -> None:
        nonlocal at_work, most, served
        async with gate.place():
            at_work += 1
            most = max(most, at_work)
            try:
                await asyncio.sleep(rng.choice([0, 0.001, 0.002]))
            finally:
                at_work -= 1
            served += 1

    for _ in range(60):
        tasks = [asyncio.create_task(work()) for _ in range(30)]
        for _ in range(3):
            await asyncio.sleep(rng.choice([0, 0.001]))
            for task in rng.sample(tasks, 5):
                task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError, Overloaded}
        assert (gate.in_flight, gate.waiting) == (0, 0)
    assert most == 3
    assert served > 60


@pytest.mark.parametrize("wrong", [{"in_flight": 0}, {"in_flight": 1, "waiting": -1}, {"in_flight": 1.5}])
def test_a_gate_without_places_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="a gate needs"):
        Gate(**wrong)
