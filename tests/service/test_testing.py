"""Driven time is like real time, only faster; an outage is like a real one, only sooner over."""

from __future__ import annotations

import asyncio
import time

import pytest

from pyslot import LimitExceeded, Local, Slots, StoreUnavailable, Window
from pyslot.hooks import Hooks
from pyslot.testing import World

SLOTS = Slots("key:a", 1, lease=60)
RPM = Window("key:a", "requests", 1, per=60)


def test_a_window_rolls_when_the_world_says_so() -> None:
    world = World()
    limiter = world.limiter()
    assert limiter.charge(RPM)
    world.advance(59.999)
    refusal = limiter.charge(RPM)
    assert refusal.retry_after == pytest.approx(0.001)
    world.advance(0.001)
    assert limiter.charge(RPM)


def test_a_wait_moves_the_clock_and_takes_no_time() -> None:
    world = World()
    limiter = world.limiter()
    limiter.charge(RPM)
    began, real = world.time(), time.monotonic()
    assert limiter.try_acquire(RPM, wait=90)
    assert world.time() - began >= 60
    assert time.monotonic() - real < 30


def test_leases_are_renewed_while_time_is_advanced_and_end_when_their_limiter_is_gone() -> None:
    world = World()
    limiter = world.limiter()
    permit = limiter.try_acquire(SLOTS).require()
    world.advance(600)
    assert not permit.lost
    assert not world.limiter().try_acquire(SLOTS), "one store for all limiters of a world"
    limiter._worker.stop()  # as if its process had died
    world.advance(60)
    with world.limiter().acquire(SLOTS):
        pass


def test_max_hold_is_kept() -> None:
    world = World()
    limiter = world.limiter()
    permit = limiter.try_acquire(Slots("key:a", 1, lease=10, max_hold=100)).require()
    world.advance(90)
    assert limiter.count(SLOTS) == 1
    world.advance(25)
    assert limiter.count(SLOTS) == 0
    permit.finish()


async def test_a_sleeper_wakes_when_its_time_has_come_and_no_sooner() -> None:
    world = World()
    limiter = world.async_limiter()
    await limiter.charge(RPM)
    waiter = asyncio.create_task(limiter.try_acquire(RPM, wait=90))
    await world.aadvance(59)
    assert not waiter.done()
    await world.aadvance(15)
    assert await waiter


async def test_leases_of_an_async_limiter_are_renewed_too() -> None:
    world = World()
    limiter = world.async_limiter()
    async with limiter.acquire(SLOTS) as permit:
        await world.aadvance(600)
        assert not permit.lost
        assert await world.async_limiter().count(SLOTS) == 1
    assert await limiter.count(SLOTS) == 0
    await limiter.aclose()


def test_every_outage_policy_can_be_seen() -> None:
    world = World()
    with world.outage():
        with pytest.raises(StoreUnavailable):
            world.limiter().try_acquire(SLOTS)
        closed = world.limiter(on_outage="closed").try_acquire(SLOTS)
        assert (bool(closed), closed.degraded) == (False, True)
        opened = world.limiter(on_outage="open").try_acquire(SLOTS)
        assert (bool(opened), opened.degraded) == (True, True)
        local = world.limiter(on_outage=Local(share=0.5))
        permit = local.try_acquire(Slots("key:b", 2)).require()
        with pytest.raises(LimitExceeded), local.acquire(Slots("key:b", 2)):
            pass
    permit.finish()
    opened.require().finish()
    world.advance(30)
    again = world.limiter().try_acquire(SLOTS)
    assert (bool(again), again.degraded) == (True, False)


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        World().advance(-1)


def test_options_reach_the_limiter() -> None:
    heard = []

    class Listener(Hooks):
        def decision(self, decision: object, seconds: float) -> None:  # noqa: ARG002
            heard.append(seconds)

    world = World()
    limiter = world.limiter(hooks=[Listener()])
    limiter.charge(RPM)
    limiter.try_acquire(RPM, wait=61)
    assert heard[0] == 0
    assert heard[1] >= 60
