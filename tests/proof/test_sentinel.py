"""Sentinel fails over in earnest: the master is killed, a replica is promoted, and nobody here takes part in it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from pyslot import AsyncLimiter, Limiter, Slots, StoreUnavailable, Window
from tests.adapters.helpers import KINDS
from tests.contract.facade import Facade
from tests.proof.clients import THOROUGH, call
from tests.servers.binaries import binary
from tests.servers.sentinel import Sentinels

SLOTS = Slots("a", 4, lease=3.0)
TOKENS = Window("a", "tokens", 1000)


@pytest.mark.slow
@pytest.mark.parametrize("server_name", ["redis-6.2", "redis-8.2", "valkey-9.1"] if THOROUGH else ["valkey-9.1"])
async def test_limiters_behind_sentinels_live_through_a_fail_over(server_name: str) -> None:
    with Sentinels(binary(server_name)) as sentinels:
        async with AsyncExitStack() as stack:
            limiters: list[Facade] = []
            held: list[Any] = []
            for kind in KINDS:
                url = f"{kind.library}+sentinel://{sentinels.address}/{sentinels.SERVICE}"
                facade = Facade((Limiter if kind.blocking else AsyncLimiter)(url, deadline=1.0))
                stack.push_async_callback(facade.close)
                limiters.append(facade)
                held.append(await call(facade, lambda it: it.try_acquire(SLOTS, TOKENS.cost(10))))
            assert all(held)
            assert not await call(limiters[0], lambda it: it.try_acquire(SLOTS))

            sentinels.master.process.kill()
            assert sentinels.current() == sentinels.master.port
            began = time.monotonic()
            back = await asyncio.gather(*(_until_answered(facade) for facade in limiters))
            assert sentinels.current() == sentinels.replica.port
            print(f"{server_name}: back after {max(back) - began:.1f} s")  # noqa: T201 - see it with -s

            # All four are held to the end: what the replica had not copied, or lost in the meantime, registers again.
            await asyncio.sleep(SLOTS.lease + 0.5)  # type: ignore[operator]  # it is a number here
            assert [await call(facade, lambda it: it.count(SLOTS)) for facade in limiters] == [4] * 4
            for facade, decision in zip(limiters, held, strict=True):
                await facade.finish(decision.permit)
            assert await call(limiters[0], lambda it: it.count(SLOTS)) == 0
            assert await call(limiters[0], lambda it: it.try_acquire(SLOTS))


async def _until_answered(facade: Facade) -> float:
    """Ask until the new master answers; returns when it did."""
    async with asyncio.timeout(20):
        while True:
            began = time.monotonic()
            try:
                await call(facade, lambda it: it.peek(TOKENS))
            except StoreUnavailable:
                assert time.monotonic() - began < 2.5, "within the deadline, or nearly"
                await asyncio.sleep(0.05)
            else:
                return time.monotonic()
