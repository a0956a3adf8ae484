"""Who is let in, and what a refusal or a failure leaves behind."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyslot import InvalidLimit, Limiter, LimitExceeded, Slots, Window
from tests.contract.places import Place
from tests.contract.wire import G, W, acquire, count, peek, release, reserve

MINUTE = 60_000

pytestmark = pytest.mark.asyncio(loop_scope="module")


# BerriAI/litellm#1477
@pytest.mark.parametrize("when", ["before", "inside", "after"])
async def test_a_failing_call_leaves_its_slot_free_wherever_it_fails(place: Place, when: str) -> None:
    limiter, slots = place.limiter(), Slots("key", 1)
    for _ in range(3):
        with pytest.raises((ZeroDivisionError, InvalidLimit)):  # noqa: PT012 - each of the three is one line
            if when == "before":
                async with limiter.acquire(slots, "no limit"):  # type: ignore[arg-type]
                    pass
            async with limiter.acquire(slots) as permit:
                if when == "inside":
                    raise ZeroDivisionError
                await limiter.finish(permit)
                raise ZeroDivisionError
        assert await limiter.count(slots) == 0
    assert await limiter.try_acquire(slots)


# BerriAI/litellm#17323
async def test_slots_that_are_never_released_end_at_their_own_time_however_many_come(place: Place) -> None:
    limiter, slots = place.limiter(), Slots("key", 2)
    lost = [await limiter.try_acquire(slots)]
    place.now += 40_000
    lost.append(await limiter.try_acquire(slots))
    for _ in range(20):
        assert not await limiter.try_acquire(slots)
        place.now += 1000
    lost.append(await limiter.try_acquire(slots))
    assert all(lost), "the first slot's minute is over, the attempts since have not made it longer"
    assert not await limiter.try_acquire(slots)
    place.now += 40_000
    assert await limiter.count(slots) == 1


# BerriAI/litellm#16011, BerriAI/litellm#32441
async def test_slots_held_across_rolls_of_a_window_stay_held(place: Place) -> None:
    limiter, slots, rpm = place.limiter(), Slots("key", 2, lease=600), Window("key", "requests", 5)
    for n in range(2):
        assert await limiter.try_acquire(slots, rpm, id=f"p{n}")
    for _ in range(3):
        for _ in range(4):
            assert not await limiter.try_acquire(slots, rpm)
            assert (await limiter.used(slots))[0] == 2
        place.now += MINUTE
    for n in range(2):
        assert (await limiter.finish(limiter.handle(f"p{n}", slots, rpm))).released is True
        assert (await limiter.used(slots, rpm)) == [1 - n, 0]


# BerriAI/litellm#36459
async def test_a_late_release_frees_nobody_elses_slot(place: Place) -> None:
    limiter, slots = place.limiter(), Slots("key", 1)
    late = (await limiter.try_acquire(slots)).require()
    place.now += MINUTE
    assert await limiter.try_acquire(slots)
    outcome = await limiter.finish(late)
    assert (outcome.released, outcome.late) == (False, True)
    assert await limiter.count(slots) == 1
    assert not await limiter.try_acquire(slots)


# BerriAI/litellm#39309, BerriAI/litellm#39544
async def test_a_refusal_for_concurrency_costs_no_request(place: Place) -> None:
    limiter, slots, rpm = place.limiter(), Slots("key", 1), Window("key", "requests", 2)
    first = (await limiter.try_acquire(slots, rpm)).require()
    for _ in range(5):
        assert not await limiter.try_acquire(slots, rpm)
    await limiter.finish(first)
    assert await limiter.try_acquire(slots, rpm)


# BerriAI/litellm#27001
async def test_a_hundred_refusals_leave_the_counter_as_it_was(place: Place) -> None:
    limiter, tpm = place.limiter(), Window("key", "tokens", 100)
    await limiter.try_acquire(tpm.cost(70))
    before = place.contents()
    for _ in range(100):
        assert not await limiter.try_acquire(tpm.cost(31))
    assert place.contents() == before
    assert await limiter.try_acquire(tpm.cost(30))


# BerriAI/litellm#18730, BerriAI/litellm#5783
async def test_of_five_at_once_that_need_more_than_half_one_is_admitted(place: Place) -> None:
    limiter, tpm = place.limiter(), Window("key", "tokens", 100)
    if place.blocking:
        with ThreadPoolExecutor(5) as pool:
            decisions = list(pool.map(lambda _: limiter.limiter.try_acquire(tpm.cost(58)), range(5)))
    else:
        decisions = await asyncio.gather(*(limiter.try_acquire(tpm.cost(58)) for _ in range(5)))
    assert sorted(map(bool, decisions)) == [False] * 4 + [True]
    assert await limiter.used(tpm) == [58]


# BerriAI/litellm#14450
async def test_a_limit_of_one_lets_one_in(place: Place) -> None:
    limiter = place.limiter()
    assert await limiter.try_acquire(Slots("key", 1), Window("key", "requests", 1))
    tpm = Window("key", "tokens", 100)
    assert await limiter.try_acquire(tpm.cost(60))
    assert await limiter.try_acquire(tpm.cost(40)), "exactly what remains"


# BerriAI/litellm#29191, BerriAI/litellm#29193
async def test_an_estimate_above_the_limit_is_told_never_and_not_when(place: Place) -> None:
    limiter, tpm = place.limiter(), Window("key", "tokens", 100)
    decision = await limiter.try_acquire(tpm.cost(1024))
    assert decision.retry_after is None
    assert "Retry-After" not in decision.headers()
    assert await limiter.used(tpm) == [0]
    assert await limiter.try_acquire(tpm.cost(100))


# redis/redis#15113, redis/redis#14826
async def test_a_cost_of_the_whole_limit_has_a_time_to_come_back(place: Place) -> None:
    limiter, tpm = place.limiter(), Window("key", "tokens", 100)
    await limiter.try_acquire(tpm.cost(1))
    whole = await limiter.try_acquire(tpm.cost(100))
    beyond = await limiter.try_acquire(tpm.cost(101))
    assert (whole.retry_after, beyond.retry_after) == (60.0, None)
    assert whole.statuses == beyond.statuses
    place.now += MINUTE
    assert await limiter.try_acquire(tpm.cost(100))


# BerriAI/litellm#31952
async def test_an_estimate_of_zero_reserves_nothing(place: Place) -> None:
    limiter, tpm = place.limiter(), Window("key", "tokens", 100)
    assert await limiter.try_acquire(tpm.cost(0))
    assert await limiter.used(tpm) == [0]
    assert await limiter.try_acquire(tpm.cost(100))
    assert await limiter.try_acquire(tpm.cost(0))
    assert await limiter.used(tpm) == [100]


# envoyproxy/ratelimit#190, ravangen/graphql-rate-limit#129
async def test_what_one_window_refuses_is_not_counted_in_the_other(place: Place) -> None:
    limiter = place.limiter()
    minute, hour = Window("key", "requests", 2), Window("key", "requests", 100, per=3600)
    for n in range(10):
        assert bool(await limiter.try_acquire(minute, hour)) is (n == 0)
        assert bool(await limiter.try_acquire(hour, minute)) is (n == 0)
    assert await limiter.used(minute, hour) == [2, 2]


# danny-avila/LibreChat#11840
async def test_two_hundred_at_once_never_pass_a_limit_of_two(place: Place) -> None:
    limiter, slots = place.limiter(), Slots("key", 2)
    inside = most = admitted = 0
    if place.blocking:
        with ThreadPoolExecutor(20) as pool:
            blocking: Limiter = limiter.limiter
            decisions = list(pool.map(lambda _: blocking.try_acquire(slots), range(200)))
        assert sum(map(bool, decisions)) == 2
        return

    async def request() -> None:
        nonlocal inside, most, admitted
        try:
            async with limiter.acquire(slots):
                inside += 1
                admitted += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1
        except LimitExceeded:
            pass

    await asyncio.gather(*(request() for _ in range(200)))
    assert most <= 2
    assert admitted >= 2
    assert await limiter.count(slots) == 0


# the express-limiter family: peterkhayes#36, tj#45
async def test_refused_attempts_do_not_move_the_time_of_the_next_admission(place: Place) -> None:
    limiter, rpm, slots = place.limiter(), Window("key", "requests", 1), Slots("key", 1)
    await limiter.try_acquire(rpm, slots)
    for n in range(100):
        place.now += 500
        refused = await limiter.try_acquire(rpm, slots)
        assert refused.statuses[0].reset_after == refused.statuses[1].reset_after == 60 - (n + 1) / 2
    place.now += 10_000
    assert await limiter.try_acquire(rpm, slots)


# BerriAI/litellm#2218, BerriAI/litellm#1152
async def test_a_caller_may_wait_for_room_up_to_a_time(place: Place) -> None:
    """In real time."""
    place.now = None
    limiter, slots = place.limiter(), Slots("key", 1)
    await place.run(acquire([G(1, 300, b"pyslot:v1:{key}:s")], "crashed"))
    assert not await limiter.try_acquire(slots, wait=0.02)
    async with limiter.acquire(slots, wait=20):
        assert await limiter.count(slots) == 1
        with pytest.raises(LimitExceeded):
            async with limiter.acquire(slots, wait=0.02):
                pytest.fail("there is no room")
    assert await limiter.count(slots) == 0


# dv/redis-semaphore#32, dv/redis-semaphore#23
async def test_a_gauge_has_a_time_to_live_each_time_it_is_filled_again(place: Place) -> None:
    for n in range(5):
        await place.run(acquire([G(2)], f"a{n}", f"b{n}"))
        (kept,) = place.look().values()
        assert kept.ttl > 3_600_000
        await place.run(release([G(2)], f"a{n}", f"b{n}"))
        assert place.look() == {}


# BerriAI/litellm#24677, BerriAI/litellm#38523
async def test_counters_with_different_first_hits_roll_each_alone(place: Place) -> None:
    requests, tokens = W(1, key=b"{a}r"), W(10, key=b"{a}t")
    await place.run(reserve([requests], ("a", 1)))
    place.now += 30_000
    await place.run(reserve([tokens], ("b", 10)))
    place.now += 30_000
    assert await place.run(peek(requests, tokens)) == [0, 0, 10, 30_000]
    assert (await place.run(reserve([requests], ("c", 1))))[0] == 1
    place.now += 29_999
    assert (await place.run(reserve([tokens], ("d", 1))))[0] == 0
    place.now += 1
    assert (await place.run(reserve([tokens], ("d", 10))))[0] == 1
    assert (await place.run(reserve([requests], ("d", 1))))[0] == 0


# vutran1710/PyrateLimiter#55, vutran1710/PyrateLimiter#261, dv/redis-semaphore#14
async def test_hosts_whose_clocks_differ_share_one_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.now = None
    slots, rpm = Slots("key", 1), Window("key", "requests", 1)
    ahead, behind = place.limiter(), place.limiter()
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert await ahead.try_acquire(slots, rpm)
    monkeypatch.setattr("time.time", lambda: 1e9)
    assert not await behind.try_acquire(slots, rpm)
    (used, ends), (charged, rolls) = [(status.used, status.reset_after) for status in await behind.peek(slots, rpm)]
    assert (used, charged) == (1, 1)
    assert 50 < ends <= 60
    assert 50 < rolls <= 60


# bolshakov/stoplight#467, cristipufu/aspnetcore-redis-rate-limiting#68
async def test_times_below_a_second_work(place: Place) -> None:
    slots, rpm = G(1, 250), W(1, 250)
    await place.run(acquire([slots], "a"))
    await place.run(reserve([rpm], ("a", 1)))
    place.now += 249
    assert await place.run(peek(slots, rpm)) == [1, 1, 1, 1]
    assert (await place.run(acquire([slots], "b")))[0] == 0
    place.now += 1
    assert await place.run(count(slots)) == [0]
    assert (await place.run(acquire([slots], "b")))[0] == 1
    assert (await place.run(reserve([rpm], ("b", 1))))[0] == 1
