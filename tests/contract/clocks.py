"""Invariants 6 to 9: leases, windows, clocks that step, lifetimes of keys, and when to come back."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from pyslot import Slots, Window
from tests.contract.places import Place
from tests.contract.wire import (
    GAUGE,
    OTHER_WINDOW,
    WINDOW,
    G,
    W,
    acquire,
    admit,
    count,
    finish,
    peek,
    release,
    renew,
    reserve,
    settle,
)

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
YEAR = 365 * 24 * HOUR
SLACK = 5 * SECOND
"""What a slow machine may need between a call and the look at its keys' lifetimes."""
TOKENS = W(100, key=OTHER_WINDOW)


class Clocks:
    # 6: only the server's clock decides

    async def test_without_a_time_of_its_own_a_call_goes_by_the_servers_clock(self, place: Place) -> None:
        place.now = None
        before = time.time_ns() // 1_000_000
        await place.run(admit([G(), W()], ("a", 1)))
        after = time.time_ns() // 1_000_000
        assert before <= place.backing.members(GAUGE)["a"] - MINUTE <= after
        assert before <= place.backing.members(WINDOW)["s"] <= after

    async def test_real_time_lease_of_a_quarter_second_ends(self, place: Place) -> None:
        place.now = None
        gauge, window = G(1, 250), W(1, 250)
        assert (await place.run(admit([gauge, window], ("a", 1))))[0] == 1
        assert (await place.run(admit([gauge, window], ("b", 1))))[0] == 0
        await asyncio.sleep(0.26)
        assert await place.run(admit([gauge, window], ("b", 1))) == [1, 0, 1, 250, 1, 0, 1, 250, 0]

    async def test_a_clients_clock_is_never_asked(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        limiter = place.limiter()
        slots = Slots("a", 1)
        await limiter.try_acquire(slots)
        monkeypatch.setattr(time, "time", lambda: 10.0**9)
        assert not await limiter.try_acquire(slots)
        assert all(not call.head or call.head[0] == b"" for call in place.calls), "the library sends no time"

    async def test_a_clock_that_steps_back_returns_a_crashed_slot_that_much_later(self, place: Place) -> None:
        await place.run(acquire([G(1)], "crashed"))
        end = place.now + MINUTE
        place.now -= 30 * SECOND
        assert await place.run(peek(G(1))) == [1, 90 * SECOND]
        place.now = end - 1
        assert await place.run(acquire([G(1)], "b")) == [0, 1, 1, 1, 0]
        place.now = end
        assert await place.run(acquire([G(1)], "b")) == [1, 0, 1, MINUTE, 1]

    async def test_a_clock_that_steps_forward_ends_leases_and_windows_that_much_earlier(self, place: Place) -> None:
        await place.run(admit([G(1), W(1)], ("a", 1)))
        place.now += MINUTE - 1
        assert await place.run(peek(G(1), W(1))) == [1, 1, 1, 1]
        place.now += 1
        assert await place.run(peek(G(1), W(1))) == [0, 0, 0, 0]
        assert (await place.run(admit([G(1), W(1)], ("b", 1))))[0] == 1

    async def test_a_window_that_starts_in_the_future_counts_as_started_now(self, place: Place) -> None:
        await place.run(reserve([W(10)], ("a", 10)))
        place.now -= YEAR
        assert await place.run(peek(W(10))) == [10, MINUTE]
        assert await place.run(reserve([W(10)], ("b", 1), mode="dry")) == [0, 1, 10, MINUTE, 0]

    async def test_a_window_rolls_within_its_length_of_the_next_call_even_if_that_is_refused(
        self, place: Place
    ) -> None:
        await place.run(reserve([W(10)], ("a", 10)))
        place.now -= YEAR
        assert await place.run(reserve([W(10)], ("b", 1))) == [0, 1, 10, MINUTE, 0]
        assert place.backing.members(WINDOW) == {"s": place.now, "n": 10, ":a": 10}
        place.now += MINUTE - 1
        assert await place.run(reserve([W(10)], ("b", 1))) == [0, 1, 10, 1, 0]
        place.now += 1
        assert await place.run(reserve([W(10)], ("b", 1))) == [1, 0, 1, MINUTE, 0]

    async def test_looking_does_not_move_a_window(self, place: Place) -> None:
        await place.run(reserve([W(10)], ("a", 4)))
        before = place.contents()
        place.now -= 30 * SECOND
        for _ in range(3):
            place.now += SECOND
            await place.run(peek(W(10)))
            await place.run(reserve([W(10)], ("b", 1), mode="dry"))
            await place.run(reserve([W(10)], ("b", 11), mode="dry"))
        assert place.contents() == before

    async def test_ends_and_settlements_work_while_a_window_starts_in_the_future(self, place: Place) -> None:
        await place.run(reserve([W(10)], ("a", 4), ("b", 5)))
        place.now -= 30 * SECOND
        assert await place.run(settle([W(10)], ("a", 1))) == [2, 1]
        assert await place.run(finish([W(10)], ("b", 0))) == [2, 1]
        assert await place.run(peek(W(10))) == [1, MINUTE]

    async def test_driven_time_gives_keys_an_hour_more(self, place: Place) -> None:
        ttls = {}
        for now in (place.now, None):
            place.now = now
            await place.run(admit([G(), W()], (f"p{now}", 1)))
            ttls[now] = {key: kept.ttl for key, kept in place.look().items()}
            place.backing.drop(GAUGE)
            place.backing.drop(WINDOW)
        driven, own = ttls.values()
        for key in own:
            assert HOUR - SLACK <= driven[key] - own[key] <= HOUR + SLACK

    # 7: leases and lifetimes

    async def test_a_slots_score_is_its_end(self, place: Place) -> None:
        start = place.now
        await place.run(acquire([G(5, 60_000)], "a"))
        place.now += SECOND
        await place.run(acquire([G(5, 5_000)], "b", "c"))
        assert place.backing.members(GAUGE) == {"a": start + 60_000, "b": start + 6000, "c": start + 6000}

    async def test_never_releasing_frees_each_slot_at_its_own_time(self, place: Place) -> None:
        gauge = G(2, MINUTE)
        for n in range(6):
            assert (await place.run(acquire([gauge], f"p{n}")))[0] == 1
            assert (await place.run(count(gauge)))[0] == min(n + 1, 2)
            place.now += MINUTE // 2
        assert await place.run(count(gauge)) == [1]

    async def test_a_refused_attempt_extends_nothing(self, place: Place) -> None:
        await place.run(admit([G(1), W(1)], ("a", 1)))
        for _ in range(100):
            place.now += 100
            assert (await place.run(admit([G(1), W(1)], ("b", 1))))[0] == 0
        assert await place.run(admit([G(1), W(1)], ("b", 1))) == [0, 1, 1, 50 * SECOND, 0, 1, 1, 50 * SECOND, 0]

    async def test_renewing_gives_a_whole_lease_from_now(self, place: Place) -> None:
        await place.run(acquire([G()], "a", "b"))
        place.now += 30 * SECOND
        assert await place.run(renew([G()], "a", "stranger")) == [2, 1, 0, 0]
        assert place.backing.members(GAUGE) == {"b": place.now + 30 * SECOND, "a": place.now + MINUTE}

    async def test_renewing_never_shortens(self, place: Place) -> None:
        await place.run(acquire([G(2, MINUTE)], "a"))
        before = place.contents()
        assert await place.run(renew([G(2, SECOND)], "a")) == [2, 1]
        place.now -= 30 * SECOND
        assert await place.run(renew([G(2, MINUTE)], "a")) == [2, 1]
        assert place.contents() == before

    async def test_renewing_never_revives(self, place: Place) -> None:
        await place.run(acquire([G()], "a"))
        place.now += MINUTE
        assert await place.run(renew([G()], "a")) == [0, 0]
        assert await place.run(count(G())) == [0]
        assert await place.run(renew([G()], "never")) == [0, 0]

    async def test_a_gauge_outlives_its_last_slot_by_an_hour(self, place: Place) -> None:
        place.now = None
        for lease in (250, MINUTE, 3 * HOUR, MINUTE):
            await place.run(acquire([G("-", lease)], f"p{lease}"))
            end = max(place.backing.members(GAUGE).values()) - time.time_ns() // 1_000_000
            assert place.look()[GAUGE.decode()].ttl >= end + HOUR - SLACK
        await place.run(renew([G("-", 9 * HOUR)], f"p{MINUTE}"))
        assert place.look()[GAUGE.decode()].ttl >= 10 * HOUR - SLACK

    async def test_no_call_shortens_the_life_of_a_key(self, place: Place) -> None:
        rules: list[G | W] = [G(9, 3 * HOUR), W(99, 3 * HOUR)]
        await place.run(admit(rules, ("a", 1), ("b", 1)))
        before = place.look()
        for call in (
            acquire([G(9, 250)], "c"),
            acquire([G(9, 250)], "d", mode="rejoin"),
            renew([G(9, 250)], "a", "c"),
            release([G(9, 250)], "c"),
            settle([W(99, 3 * HOUR)], ("a", 5)),
            reserve([W(99, 3 * HOUR)], ("e", 1)),
            finish(rules, ("b", "-")),
            admit([G(9, 250), rules[1]], ("f", 1)),
            admit([G(9, 250), rules[1]], ("g", 100)),
            count(G(9, 250)),
            peek(*rules),
        ):
            await place.run(call)
            after = place.look()
            assert all(after[key].ttl > kept.ttl - SLACK for key, kept in before.items()), call

    async def test_a_gauge_that_was_emptied_lives_its_time_again(self, place: Place) -> None:
        for n in range(3):
            await place.run(acquire([G()], f"p{n}"))
            assert place.look()[GAUGE.decode()].ttl > HOUR
            await place.run(release([G()], f"p{n}"))
            assert place.contents() == {}

    async def test_leases_that_ended_unreleased_are_reported_once(self, place: Place) -> None:
        await place.run(acquire([G(5)], "a", "b", "c"))
        place.now += 59 * 60 * SECOND
        assert await place.run(acquire([G(5)], "d")) == [1, 0, 1, MINUTE, 3]
        assert await place.run(acquire([G(5)], "e")) == [1, 0, 2, MINUTE, 0]

    async def test_a_lapsed_slot_that_is_taken_again_or_released_is_not_reported(self, place: Place) -> None:
        await place.run(acquire([G(5)], "a", "b", "c"))
        place.now += MINUTE
        assert await place.run(release([G(5)], "b")) == [0, 0]
        assert await place.run(acquire([G(5)], "a")) == [1, 0, 1, MINUTE, 1]
        assert place.backing.members(GAUGE) == {"a": place.now + MINUTE}

    async def test_tidying_is_bounded_and_never_changes_an_answer(self, place: Place) -> None:
        for n in range(0, 1500, 500):
            await place.run(acquire([G("-")], *(f"p{n + m}" for m in range(500))))
        place.now += MINUTE
        assert await place.run(count(G())) == [0]
        assert await place.run(acquire([G(2)], "a")) == [1, 0, 1, MINUTE, 1000]
        assert await place.run(peek(G(2))) == [1, MINUTE]
        assert await place.run(acquire([G(2)], "b")) == [1, 0, 2, MINUTE, 500]
        assert await place.run(acquire([G(2)], "c")) == [0, 1, 2, MINUTE, 0]
        assert place.backing.members(GAUGE) == {"a": place.now + MINUTE, "b": place.now + MINUTE}

    # 8: windows

    async def test_a_window_is_anchored_to_its_first_unit_and_rolls_when_its_length_has_passed(
        self, place: Place
    ) -> None:
        await place.run(reserve([W(100)], ("a", 60)))
        place.now += 40 * SECOND
        assert await place.run(reserve([W(100)], ("b", 40))) == [1, 0, 100, 20 * SECOND, 0]
        place.now += 20 * SECOND - 1
        assert await place.run(reserve([W(100)], ("c", 1))) == [0, 1, 100, 1, 0]
        place.now += 1
        assert await place.run(peek(W(100))) == [0, 0]
        place.now += 5 * SECOND
        assert await place.run(reserve([W(100)], ("c", 1))) == [1, 0, 1, MINUTE, 0]

    async def test_each_window_rolls_alone(self, place: Place) -> None:
        both = [W(100), TOKENS]
        await place.run(reserve([W(100)], ("a", 10)))
        place.now += 50 * SECOND
        assert await place.run(reserve(both, ("b", 1, 90))) == [1, 0, 11, 10 * SECOND, 0, 0, 90, MINUTE, 0]
        place.now += 10 * SECOND
        assert await place.run(reserve(both, ("c", 1, 1))) == [1, 0, 1, MINUTE, 0, 0, 91, 50 * SECOND, 0]
        place.now += 50 * SECOND
        assert await place.run(reserve(both, ("d", 1, 1))) == [1, 0, 2, 10 * SECOND, 0, 0, 1, MINUTE, 0]

    async def test_what_was_leaked_is_gone_with_its_window_however_busy_it_is(self, place: Place) -> None:
        await place.run(reserve([W(100)], ("leaked", 60)))
        for n in range(36):
            place.now += 5 * SECOND
            await place.run(reserve([W(100)], (f"p{n}", 1)))
            await place.run(finish([W(100)], (f"p{n}", 0)))
        assert await place.run(reserve([W(100)], ("a", 100))) == [1, 0, 100, MINUTE, 0]

    @pytest.mark.parametrize("reopened", [False, True])
    async def test_settling_into_a_window_that_has_rolled_changes_nothing(self, place: Place, reopened: bool) -> None:
        await place.run(reserve([W(100)], ("a", 50), ("b", 1)))
        place.now += MINUTE
        if reopened:
            await place.run(reserve([W(100)], ("c", 7)))
        before = place.contents()
        assert await place.run(settle([W(100)], ("a", 0))) == [0, 0]
        assert await place.run(finish([W(100)], ("a", 0), ("b", 99))) == [0, 0, 0, 0]
        assert place.contents() == before
        assert await place.run(peek(W(100))) == ([7, MINUTE] if reopened else [0, 0])

    async def test_a_window_that_has_rolled_is_dropped_with_its_entries(self, place: Place) -> None:
        await place.run(reserve([W(100)], *((f"p{n}", 1) for n in range(100))))
        place.now += MINUTE
        await place.run(reserve([W(100)], ("a", 5)))
        assert place.backing.members(WINDOW) == {"s": place.now, "n": 5, ":a": 5}

    async def test_an_id_counts_anew_in_a_new_window(self, place: Place) -> None:
        await place.run(reserve([W(100)], ("a", 60)))
        place.now += MINUTE
        assert await place.run(reserve([W(100)], ("a", 30))) == [1, 0, 30, MINUTE, 0]
        assert await place.run(finish([W(100)], ("a", 20))) == [2, 1]
        assert await place.run(peek(W(100))) == [20, MINUTE]

    async def test_a_lease_and_a_length_may_be_as_long_as_amounts_go(self, place: Place) -> None:
        most = 2**53 - 1
        assert await place.run(admit([G(1, most), W(1, most)], ("a", 1))) == [1, 0, 1, most, 0, 0, 1, most, 0]
        assert (await place.run(admit([G(1, most), W(1, most)], ("b", 1))))[0] == 0
        assert await place.run(finish([G(1, most), W(1, most)], ("a", 0))) == [2, 1, 1]

    # 9: when to come back

    async def test_who_waits_as_a_window_says_is_admitted_and_not_a_millisecond_sooner(self, place: Place) -> None:
        rng = random.Random(2)
        for _ in range(300 if type(place.backing).__name__ == "Memory" else 20):
            place.backing.drop(WINDOW)
            window = W(rng.randrange(1, 50), rng.randrange(1, 10**6))
            start = place.now
            await place.run(reserve([window], ("a", window.limit)))
            place.now += rng.randrange(window.per)
            refused = await place.run(reserve([window], ("b", rng.randrange(1, int(str(window.limit)) + 1))))
            assert refused[:2] == [0, 1]
            assert refused[3] == start + window.per - place.now > 0
            place.now += refused[3] - 1
            assert (await place.run(reserve([window], ("b", 1))))[0] == 0
            place.now += 1
            assert (await place.run(reserve([window], ("b", 1))))[0] == 1

    async def test_retry_after_is_the_longest_of_all_limits_that_refuse(self, place: Place) -> None:
        limiter = place.limiter()
        rpm, rph, tpm = Window("a", "requests", 1, 60), Window("a", "requests", 1, 3600), Window("a", "tokens", 9, 60)
        await limiter.try_acquire(rph)
        place.now += 30 * SECOND
        await limiter.try_acquire(rpm)
        decision = await limiter.try_acquire(rpm, tpm.cost(9), rph)
        assert not decision
        assert decision.refused_by == (rpm, rph)
        assert decision.retry_after == 3570.0
        assert (await limiter.try_acquire(rpm)).retry_after == 60.0
        assert (await limiter.try_acquire(tpm.cost(9))).retry_after == 0.0

    async def test_retry_after_is_none_where_the_cost_can_never_fit(self, place: Place) -> None:
        limiter = place.limiter()
        tpm, rpm = Window("a", "tokens", 100), Window("a", "requests", 1)
        await limiter.try_acquire(rpm)
        decision = await limiter.try_acquire(tpm.cost(1024), rpm)
        assert decision.retry_after is None
        assert decision.refused_by == (tpm, rpm)
        assert "never" in decision.explain()
        assert (await limiter.try_acquire(tpm.cost(100))).retry_after == 0.0
        assert (await limiter.try_acquire(tpm.cost(100))).retry_after == 60.0

    async def test_retry_after_of_slots_lies_between_nothing_and_the_first_end_of_a_lease(self, place: Place) -> None:
        limiter = place.limiter()
        slots = Slots("a", 1)
        await limiter.try_acquire(slots)
        place.now += 45 * SECOND
        for _ in range(5):
            decision = await limiter.try_acquire(slots)
            assert decision.retry_after is not None
            assert 0 < decision.retry_after <= 15
