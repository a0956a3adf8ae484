"""Invariants 1 to 5: who is admitted, what a refusal leaves, and whose a permit is."""

from __future__ import annotations

import random

import pytest

from tests.contract.places import Place
from tests.contract.wire import (
    GAUGE,
    OTHER_GAUGE,
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
    reset,
    settle,
)

MOST = 2**53 - 1
MINUTE = 60_000
OTHER = G(2, key=OTHER_GAUGE)
TOKENS = W(100, key=OTHER_WINDOW)
ALL = (G(2), W(100), OTHER, TOKENS)


class Admission:
    # 1: never above the limit

    async def test_a_gauge_admits_its_limit_and_not_one_more(self, place: Place) -> None:
        assert await place.run(acquire([G(2)], "a")) == [1, 0, 1, MINUTE, 0]
        place.now += 1000
        assert await place.run(acquire([G(2)], "b")) == [1, 0, 2, MINUTE - 1000, 0]
        assert await place.run(acquire([G(2)], "c")) == [0, 1, 2, MINUTE - 1000, 0]
        assert await place.run(count(G(2))) == [2]
        assert await place.run(peek(G(2))) == [2, MINUTE - 1000]

    async def test_a_limit_of_one_admits_the_first(self, place: Place) -> None:
        assert await place.run(acquire([G(1)], "a")) == [1, 0, 1, MINUTE, 0]
        assert await place.run(acquire([G(1)], "b")) == [0, 1, 1, MINUTE, 0]

    async def test_a_limit_of_zero_admits_nobody_ever(self, place: Place) -> None:
        assert await place.run(acquire([G(0)], "a")) == [0, 2, 0, 0, 0]
        assert await place.run(reserve([W(0)], ("a", 1))) == [0, 2, 0, 0, 0]
        assert place.contents() == {}

    async def test_a_released_slot_is_free_for_the_next(self, place: Place) -> None:
        await place.run(acquire([G(1)], "a"))
        assert await place.run(release([G(1)], "a")) == [2, 1]
        assert await place.run(acquire([G(1)], "b")) == [1, 0, 1, MINUTE, 0]

    async def test_a_window_admits_what_remains_and_not_one_more(self, place: Place) -> None:
        assert await place.run(reserve([W(100)], ("a", 58))) == [1, 0, 58, MINUTE, 0]
        assert await place.run(reserve([W(100)], ("b", 43))) == [0, 1, 58, MINUTE, 0]
        assert await place.run(reserve([W(100)], ("c", 42))) == [1, 0, 100, MINUTE, 0]
        assert await place.run(reserve([W(100)], ("d", 1))) == [0, 1, 100, MINUTE, 0]
        assert await place.run(peek(W(100))) == [100, MINUTE]

    async def test_settled_units_count_like_reserved_ones(self, place: Place) -> None:
        await place.run(reserve([W(100)], ("a", 10)))
        await place.run(settle([W(100)], ("a", 90)))
        assert await place.run(reserve([W(100)], ("b", 11))) == [0, 1, 90, MINUTE, 0]
        await place.run(finish([W(100)], ("a", 95)))
        assert await place.run(reserve([W(100)], ("b", 6))) == [0, 1, 95, MINUTE, 0]
        assert await place.run(reserve([W(100)], ("b", 5))) == [1, 0, 100, MINUTE, 0]

    async def test_after_settling_above_the_limit_nobody_is_admitted_until_the_roll(self, place: Place) -> None:
        await place.run(reserve([W(100)], ("a", 10)))
        assert await place.run(finish([W(100)], ("a", 150))) == [2, 1]
        assert await place.run(reserve([W(100)], ("b", 0))) == [0, 1, 150, MINUTE, 0]
        place.now += MINUTE
        assert await place.run(reserve([W(100)], ("b", 100))) == [1, 0, 100, MINUTE, 0]

    async def test_a_rejoined_holder_counts_above_the_limit_until_it_drains(self, place: Place) -> None:
        await place.run(acquire([G(2)], "a", "b"))
        assert await place.run(acquire([G(2)], "lost", mode="rejoin")) == [1, 3, 3, MINUTE, 0]
        await place.run(release([G(2)], "a"))
        assert await place.run(acquire([G(2)], "c")) == [0, 1, 2, MINUTE, 0]
        await place.run(release([G(2)], "b"))
        assert await place.run(acquire([G(2)], "c")) == [1, 0, 2, MINUTE, 0]

    async def test_a_rejoined_charge_counts_above_the_limit(self, place: Place) -> None:
        await place.run(reserve([W(100)], ("a", 90)))
        assert await place.run(reserve([W(100)], ("lost", 120), mode="rejoin")) == [1, 3, 210, MINUTE, 0]
        assert await place.run(reserve([W(100)], ("c", 1))) == [0, 1, 210, MINUTE, 0]

    async def test_no_sequence_of_calls_exceeds_a_limit(self, place: Place) -> None:
        rng = random.Random(1)
        gauge, window, open_ = G(3, 500), W(20, 1000), dict[str, int]()
        for n in range(120):
            place.now += rng.randrange(80)
            if open_ and rng.random() < 0.4:
                id = rng.choice(sorted(open_))
                await place.run(finish([gauge, window], (id, rng.choice(["-", 0, open_.pop(id)]))))
            else:
                id, cost = f"p{n}", rng.randrange(8)
                if (await place.run(admit([gauge, window], (id, cost))))[0]:
                    open_[id] = cost
            slots, _, units, _ = await place.run(peek(gauge, window))
            assert 0 <= slots <= 3
            assert 0 <= units <= 20

    # 2: all or none, and a refusal changes nothing

    @pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)])
    async def test_one_full_limit_refuses_for_all(self, place: Place, order: tuple[int, ...]) -> None:
        rules = [ALL[k] for k in order]
        for full in ALL:
            await place.run(reset(*ALL))
            await place.run(admit([full], *([("x", 100)] if isinstance(full, W) else ["x", "y"])))
            before = place.contents()
            reply = await place.run(admit(rules, ("new", 1, 1)))
            assert reply[0] == 0
            assert reply[1::4] == [1 if rule is full else 0 for rule in rules]
            assert reply[2::4] == [full.limit if rule is full else 0 for rule in rules]
            assert place.contents() == before

    async def test_a_refused_call_writes_not_a_byte(self, place: Place) -> None:
        """Also where there would be something to tidy: leases that ended, windows that have rolled."""
        await place.run(acquire([OTHER], "old", "older"))
        await place.run(reserve([TOKENS], ("old", 5)))
        place.now += 2 * MINUTE
        await place.run(acquire([G(2)], "a", "b"))
        await place.run(reserve([W(100)], ("a", 100)))
        before = place.look()
        for mode in ("", "dry"):
            assert (await place.run(acquire([OTHER, G(2)], "new", mode=mode)))[0] == 0
            assert (await place.run(reserve([TOKENS, W(100)], ("new", 1, 1), mode=mode)))[0] == 0
            assert (await place.run(admit([OTHER, TOKENS, W(100)], ("new", 1, 1), mode=mode)))[0] == 0
            assert (await place.run(admit([OTHER, TOKENS, G(2)], ("new", 1), mode=mode)))[0] == 0
            assert (await place.run(admit(ALL, *((f"n{n}", 1, 1) for n in range(50)), mode=mode)))[0] == 0
        after = place.look()
        assert {key: kept.content for key, kept in after.items()} == {key: kept.content for key, kept in before.items()}
        assert all(after[key].ttl <= kept.ttl for key, kept in before.items())

    async def test_a_dry_call_says_what_a_real_one_would_and_writes_nothing(self, place: Place) -> None:
        steps = [("a", 60, 1), ("b", 40, 1), ("c", 0, 1), ("c", 1, 100), ("a", 5, 5)]
        for step in steps:
            before = place.contents()
            dry = await place.run(admit(ALL, step, mode="dry"))
            assert place.contents() == before
            assert await place.run(admit(ALL, step)) == dry
        assert await place.run(admit(ALL, ("d", 1, 1), ("e", 0, 0), mode="dry")) == await place.run(
            admit(ALL, ("d", 1, 1), ("e", 0, 0))
        )

    # 3: everything by permit id

    async def test_the_same_acquire_twice_holds_once(self, place: Place) -> None:
        assert await place.run(acquire([G(2)], "a")) == [1, 0, 1, MINUTE, 0]
        before = place.contents()
        place.now += 10
        assert await place.run(acquire([G(2)], "a")) == [2, 4, 1, MINUTE - 10, 0]
        assert place.contents() == before

    async def test_the_same_reserve_twice_keeps_the_first_cost(self, place: Place) -> None:
        assert await place.run(reserve([W(100)], ("a", 60))) == [1, 0, 60, MINUTE, 0]
        before = place.contents()
        assert await place.run(reserve([W(100)], ("a", 99))) == [2, 4, 60, MINUTE, 0]
        assert await place.run(reserve([W(100)], ("a", 101))) == [2, 4, 60, MINUTE, 0]
        assert place.contents() == before
        assert await place.run(finish([W(100)], ("a", "-"))) == [2, 1]
        assert await place.run(peek(W(100))) == [60, MINUTE]

    async def test_an_id_that_is_held_is_granted_at_full_limits(self, place: Place) -> None:
        await place.run(admit([G(1), W(10)], ("a", 10)))
        assert await place.run(admit([G(1), W(10)], ("a", 10))) == [2, 4, 1, MINUTE, 0, 4, 10, MINUTE, 0]
        assert (await place.run(acquire([G(1)], "a")))[0] == 2
        assert (await place.run(reserve([W(10)], ("a", 10))))[0] == 2

    async def test_an_id_that_is_held_is_granted_even_where_the_limit_is_lower_now(self, place: Place) -> None:
        await place.run(admit([G(5), W(10)], ("a", 10)))
        assert await place.run(admit([G(0), W(1)], ("a", 10))) == [2, 4, 1, MINUTE, 0, 4, 10, MINUTE, 0]

    async def test_a_partly_held_id_takes_the_rest(self, place: Place) -> None:
        await place.run(acquire([G(2)], "a"))
        assert await place.run(acquire([G(2), OTHER], "a")) == [1, 4, 1, MINUTE, 0, 0, 1, MINUTE, 0]
        assert await place.run(admit(ALL, ("a", 3, 4))) == [
            *(1, 4, 1, MINUTE, 0),
            *(0, 3, MINUTE, 0),
            *(4, 1, MINUTE, 0),
            *(0, 4, MINUTE, 0),
        ]

    async def test_a_partly_held_id_takes_nothing_where_the_rest_does_not_fit(self, place: Place) -> None:
        await place.run(acquire([G(2)], "a"))
        await place.run(acquire([OTHER], "x", "y"))
        before = place.contents()
        assert await place.run(admit(ALL, ("a", 1, 1))) == [
            *(0, 4, 1, MINUTE, 0),
            *(0, 0, 0, 0),
            *(1, 2, MINUTE, 0),
            *(0, 0, 0, 0),
        ]
        assert place.contents() == before

    async def test_a_second_release_says_so_and_does_nothing(self, place: Place) -> None:
        await place.run(acquire([G(2), OTHER], "a", "b"))
        assert await place.run(release([G(2), OTHER], "a")) == [2, 1, 1]
        before = place.contents()
        assert await place.run(release([G(2), OTHER], "a")) == [0, 0, 0]
        assert place.contents() == before
        assert await place.run(count(G(2), OTHER)) == [1, 1]

    async def test_a_release_of_some_says_which(self, place: Place) -> None:
        await place.run(acquire([OTHER], "a"))
        assert await place.run(release([G(2), OTHER], "a")) == [1, 0, 1]

    async def test_nobody_can_free_or_refund_another(self, place: Place) -> None:
        await place.run(admit(ALL, ("a", 30, 40)))
        before = place.contents()
        for stranger in ("b", "A", "a ", "", ":a", "s", "n", "a\n"):
            assert await place.run(release([G(2), OTHER], stranger)) == [0, 0, 0]
            assert await place.run(settle([W(100), TOKENS], (stranger, 0, 0))) == [0, 0, 0]
            assert await place.run(finish(ALL, (stranger, 0, 0))) == [0, 0, 0, 0, 0]
            assert await place.run(renew([G(2), OTHER], stranger)) == [0, 0, 0]
        assert place.contents() == before

    async def test_after_its_lease_a_holder_frees_no_other_slot(self, place: Place) -> None:
        await place.run(acquire([G(1)], "a"))
        place.now += MINUTE
        assert (await place.run(acquire([G(1)], "b")))[0] == 1
        assert await place.run(release([G(1)], "a")) == [0, 0]
        assert await place.run(count(G(1))) == [1]
        assert (await place.run(acquire([G(1)], "c")))[0] == 0

    async def test_a_lapsed_slot_is_taken_anew_under_its_id(self, place: Place) -> None:
        await place.run(acquire([G(2)], "a"))
        place.now += MINUTE
        assert await place.run(acquire([G(2)], "a")) == [1, 0, 1, MINUTE, 0]
        assert place.backing.members(GAUGE) == {"a": place.now + MINUTE}

    async def test_a_lapsed_slot_must_fit_again(self, place: Place) -> None:
        await place.run(acquire([G(1)], "a"))
        place.now += MINUTE
        await place.run(acquire([G(1)], "b"))
        assert await place.run(acquire([G(1)], "a")) == [0, 1, 1, MINUTE, 0]

    async def test_settling_sets_and_does_not_add(self, place: Place) -> None:
        await place.run(reserve([W(100)], ("a", 50), ("b", 20)))
        assert await place.run(settle([W(100)], ("a", 10))) == [2, 1]
        assert await place.run(peek(W(100))) == [30, MINUTE]
        before = place.contents()
        assert await place.run(settle([W(100)], ("a", 10))) == [2, 1]
        assert place.contents() == before
        assert await place.run(settle([W(100)], ("a", 25))) == [2, 1]
        assert await place.run(settle([W(100)], ("a", "-"))) == [2, 1]
        assert await place.run(peek(W(100))) == [45, MINUTE]
        assert await place.run(finish([W(100)], ("a", 0))) == [2, 1]
        assert await place.run(settle([W(100)], ("a", 99))) == [0, 0]
        assert await place.run(finish([W(100)], ("a", 99))) == [0, 0]
        assert await place.run(peek(W(100))) == [20, MINUTE]

    async def test_finish_ends_all_kinds_at_once(self, place: Place) -> None:
        await place.run(admit(ALL, ("a", 30, 40), ("b", 1, 2)))
        assert await place.run(finish(ALL, ("a", 3, "-"))) == [2, 1, 1, 1, 1]
        assert await place.run(peek(*ALL)) == [1, MINUTE, 4, MINUTE, 1, MINUTE, 42, MINUTE]
        assert await place.run(finish(ALL, ("a", 99, 99))) == [0, 0, 0, 0, 0]
        assert await place.run(finish([*ALL[:2]], ("b", 0))) == [2, 1, 1]
        assert await place.run(finish(ALL, ("b", 0, 0))) == [1, 0, 0, 1, 1]
        assert await place.run(peek(*ALL)) == [0, 0, 3, MINUTE, 0, 0, 40, MINUTE]

    async def test_only_open_reservations_have_an_entry(self, place: Place) -> None:
        await place.run(reserve([W(100)], ("a", 30), ("b", 20), ("c", 0)))
        assert place.backing.members(WINDOW) == {"s": place.now, "n": 50, ":a": 30, ":b": 20, ":c": 0}
        await place.run(settle([W(100)], ("a", 10)))
        await place.run(finish([W(100)], ("b", "-"), ("c", 7)))
        assert place.backing.members(WINDOW) == {"s": place.now, "n": 37, ":a": 10}
        await place.run(finish([W(100)], ("a", "-")))
        assert place.backing.members(WINDOW) == {"s": place.now, "n": 37}

    # 4: amounts

    async def test_a_cost_above_the_limit_never_fits(self, place: Place) -> None:
        assert await place.run(reserve([W(100)], ("a", 101))) == [0, 2, 0, 0, 0]
        await place.run(reserve([W(100)], ("b", 1)))
        assert await place.run(reserve([W(100)], ("a", 101))) == [0, 2, 1, MINUTE, 0]
        assert await place.run(reserve([W(100)], ("a", 100))) == [0, 1, 1, MINUTE, 0]

    async def test_a_cost_of_the_whole_limit_fits_an_empty_window(self, place: Place) -> None:
        assert await place.run(reserve([W(100)], ("a", 100))) == [1, 0, 100, MINUTE, 0]

    async def test_a_cost_of_zero_charges_nothing(self, place: Place) -> None:
        await place.run(reserve([W(100)], ("a", 100)))
        assert await place.run(reserve([W(100)], ("b", 0))) == [1, 0, 100, MINUTE, 0]
        assert await place.run(finish([W(100)], ("b", "-"))) == [2, 1]
        assert await place.run(peek(W(100))) == [100, MINUTE]

    async def test_amounts_are_exact_to_the_largest(self, place: Place) -> None:
        assert await place.run(reserve([W(MOST)], ("a", MOST - 1))) == [1, 0, MOST - 1, MINUTE, 0]
        assert await place.run(reserve([W(MOST)], ("b", 2))) == [0, 1, MOST - 1, MINUTE, 0]
        assert await place.run(reserve([W(MOST)], ("b", 1))) == [1, 0, MOST, MINUTE, 0]
        assert await place.run(reserve([W(MOST)], ("c", 1))) == [0, 1, MOST, MINUTE, 0]
        assert await place.run(reserve([W(MOST)], ("c", MOST))) == [0, 1, MOST, MINUTE, 0]
        assert place.backing.members(WINDOW) == {"s": place.now, "n": MOST, ":a": MOST - 1, ":b": 1}
        assert await place.run(settle([W(MOST)], ("a", 1))) == [2, 1]
        assert await place.run(peek(W(MOST))) == [2, MINUTE]
        assert await place.run(settle([W(MOST)], ("a", MOST - 1), ("b", 0))) == [2, 1, 2, 1]
        assert await place.run(peek(W(MOST))) == [MOST - 1, MINUTE]

    async def test_a_count_beyond_the_exact_numbers_stays_there_until_the_roll(self, place: Place) -> None:
        rule = W("-")
        await place.run(reserve([rule], ("a", MOST), ("b", MOST), ("c", 5)))
        assert (await place.run(peek(rule)))[0] == MOST + 1
        await place.run(finish([rule], ("a", 0), ("b", 0)))
        assert (await place.run(reserve([W(MOST)], ("d", 1))))[:2] == [0, 1], "what is not exact is not refunded"
        place.now += MINUTE
        assert await place.run(reserve([W(MOST)], ("d", 1))) == [1, 0, 1, MINUTE, 0]

    # 5: limits that never refuse

    async def test_no_limit_counts_and_never_refuses(self, place: Place) -> None:
        gauge, window = G("-"), W("-")
        for n in range(1, 5):
            assert await place.run(admit([gauge, window], (f"p{n}", 1000))) == [
                *(1, 0, n, MINUTE, 0),
                *(0, n * 1000, MINUTE, 0),
            ]

    async def test_an_observed_limit_reports_what_it_would_have_done(self, place: Place) -> None:
        gauge, window = G("~1"), W("~10")
        assert await place.run(admit([gauge, window], ("a", 10))) == [1, 0, 1, MINUTE, 0, 0, 10, MINUTE, 0]
        assert await place.run(admit([gauge, window], ("b", 1))) == [1, 3, 2, MINUTE, 0, 3, 11, MINUTE, 0]
        assert await place.run(admit([gauge, window], ("c", 99))) == [1, 3, 3, MINUTE, 0, 3, 110, MINUTE, 0]
        assert await place.run(admit([G("~0")], ("d",))) == [1, 3, 4, MINUTE, 0]

    async def test_an_observed_limit_takes_nothing_where_another_refuses(self, place: Place) -> None:
        await place.run(reserve([W(10)], ("x", 10)))
        before = place.contents()
        assert await place.run(admit([G("~0"), W(10), TOKENS], ("a", 1, 1))) == [
            *(0, 3, 0, 0, 0),
            *(1, 10, MINUTE, 0),
            *(0, 0, 0, 0),
        ]
        assert place.contents() == before

    async def test_no_limit_with_observation_is_no_limit(self, place: Place) -> None:
        assert await place.run(admit([G("~-"), W("~-")], ("a", MOST))) == [1, 0, 1, MINUTE, 0, 0, MOST, MINUTE, 0]
