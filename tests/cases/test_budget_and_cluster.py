"""Estimates and real figures, and limits that live apart."""

from __future__ import annotations

import random

import pytest

from pyslot import Slots, Window
from pyslot.keys import hash_slot
from tests.contract.groups import subjects
from tests.contract.places import Place
from tests.contract.wire import step

pytestmark = pytest.mark.asyncio(loop_scope="module")


# shobrook/openlimit#20
async def test_generous_estimates_starve_nobody_once_they_are_settled(place: Place) -> None:
    limiter, tpm = place.limiter(), Window("org", "tokens", 1_000_000)
    for _ in range(10):
        async with limiter.acquire(tpm.cost(100_000)) as permit:
            permit.settle(tpm.cost(1_000))
    decision = await limiter.try_acquire(tpm.cost(100_000))
    assert decision.statuses[0].used == 110_000


# shobrook/openlimit#20
async def test_estimates_that_are_open_count_in_full(place: Place) -> None:
    limiter, tpm = place.limiter(), Window("org", "tokens", 1_000_000)
    permits = [(await limiter.try_acquire(tpm.cost(100_000))).require() for _ in range(10)]
    assert not await limiter.try_acquire(tpm.cost(1))
    for permit in permits:
        permit.settle(tpm.cost(1_000))
        await limiter.finish(permit)
    assert await limiter.try_acquire(tpm.cost(990_000))


# BerriAI/litellm: its guarded refund, as read in the source
@pytest.mark.parametrize("reopened", [False, True])
async def test_a_refund_after_the_roll_makes_no_count_negative(place: Place, reopened: bool) -> None:
    limiter, tpm = place.limiter(), Window("key", "tokens", 100)
    old = (await limiter.try_acquire(tpm.cost(90))).require()
    place.now += 60_001
    if reopened:
        assert await limiter.try_acquire(tpm.cost(30))
    old.refund()
    outcome = await limiter.finish(old)
    assert (outcome.settled, outcome.late) == (False, True)
    assert await limiter.used(tpm) == [30 if reopened else 0]
    assert bool(await limiter.try_acquire(tpm.cost(71))) is not reopened


# BerriAI/litellm#15066, BerriAI/litellm#14968, BerriAI/litellm#15052
async def test_limits_of_three_hash_tags_are_taken_together_on_a_cluster(place: Place) -> None:
    limiter = place.limiter()
    limits = [Slots("key:sk-1", 1), Slots("team:a", 1), Slots("model:m", 1)]
    tokens = [Window(limit.subject, "tokens", 100) for limit in limits]
    permit = (await limiter.try_acquire(*limits, *(window.cost(60) for window in tokens))).require()
    refused = await limiter.try_acquire(*limits, *(window.cost(60) for window in tokens))
    assert not refused
    await limiter.finish(permit)
    assert await limiter.used(*limits, *tokens) == [0, 0, 0, 60, 60, 60]
    if place.store.cluster:
        assert all(len(call.keys) == 2 for call in place.calls)
        assert subjects(place.calls[:3]) == sorted((limit.subject for limit in limits), key=_slot)


# SGrondin/bottleneck#180, vutran1710/PyrateLimiter#126, CSenshi/nestjs-redis#13
async def test_the_keys_of_every_call_share_a_hash_slot_whatever_the_names(place: Place) -> None:
    limiter, rng = place.limiter(group_by_slot=True), random.Random(3)
    for _ in range(10):
        names = ["".join(rng.choices("ab:{}% é0", k=rng.randrange(1, 9))) for _ in range(3)]
        limits = [Slots(name, 9) for name in names] + [Slots(name, 9, tag=names[0]) for name in names]
        windows = [Window(name, name[::-1], 99) for name in names]
        decision = await limiter.try_acquire(*limits, *(window.cost(3) for window in windows))
        await limiter.peek(*limits, *windows)
        await limiter.finish(decision.require())
        await limiter.reset(*limits, *windows)
    for call in place.calls:
        assert len({hash_slot(key) for key in call.keys}) == 1, call.keys
    assert {step(call) for call in place.calls} == {"admit", "peek", "finish", "reset"}


def _slot(name: str) -> int:
    return hash_slot(name.encode())
