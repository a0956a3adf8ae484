"""Invariants 13 to 16: scripts that the server has forgotten, replies, batches, and keys that hold something else."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from pyslot import StoreError
from pyslot.loader import Call
from tests.contract.backings import Served
from tests.contract.facade import got
from tests.contract.places import Place
from tests.contract.wire import (
    GAUGE,
    OTHER_GAUGE,
    OTHER_WINDOW,
    WINDOW,
    G,
    Permit,
    Rule,
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

MINUTE = 60_000
MIXED = (G(2), W(100), G(3, key=OTHER_GAUGE), W(50, 30_000, OTHER_WINDOW))
A_DAY = (
    (acquire([G(2)], "a"), [1, 0, 1, MINUTE, 0]),
    (reserve([W(100)], ("b", 40)), [1, 0, 40, MINUTE, 0]),
    (admit([G(2), W(100)], ("c", 60)), [1, 0, 2, MINUTE, 0, 0, 100, MINUTE, 0]),
    (admit([G(2), W(100)], ("d", 1)), [0, 1, 2, MINUTE, 0, 1, 100, MINUTE, 0]),
    (renew([G(2)], "a", "d"), [2, 1, 0, 0]),
    (settle([W(100)], ("b", 10)), [2, 1]),
    (finish([G(2), W(100)], ("c", "-")), [2, 1, 1]),
    (count(G(2)), [1]),
    (peek(G(2), W(100)), [1, MINUTE, 70, MINUTE]),
    (release([G(2)], "a"), [2, 1]),
    (reset(G(2), W(100)), [1]),
    (reset(G(2), W(100)), [0]),
)
"""Every script, and what it replies."""
Make = Callable[[Sequence[Permit]], Call]
BATCHES: dict[str, Make] = {
    "acquire": lambda permits: acquire([G("-")], *_ids(permits)),
    "reserve": lambda permits: reserve([W("-")], *permits),
    "admit": lambda permits: admit([G("-"), W("-")], *permits),
    "release": lambda permits: release([G("-")], *_ids(permits)),
    "renew": lambda permits: renew([G("-")], *_ids(permits)),
    "settle": lambda permits: settle([W("-")], *permits),
    "finish": lambda permits: finish([G("-"), W("-")], *permits),
}


def _ids(permits: Sequence[Permit]) -> list[str]:
    return [permit if isinstance(permit, str) else str(permit[0]) for permit in permits]


class Scripts:
    # 13: a server that does not know the script

    async def test_every_call_works_straight_after_a_script_flush(self, place: Place) -> None:
        for call, reply in A_DAY:
            place.backing.forget_scripts()
            assert await place.run(call) == reply, call.script.name

    async def test_every_call_works_when_the_server_knows_it(self, place: Place) -> None:
        for call, _ in A_DAY:
            await place.run(call)
        place.backing.drop(GAUGE)
        place.backing.drop(WINDOW)
        for call, reply in A_DAY:
            assert await place.run(call) == reply, call.script.name

    async def test_scripts_are_never_loaded_by_a_command_of_their_own(self, place: Place) -> None:
        if not isinstance(place.backing, Served):
            return
        before = place.backing.commands()
        for call, _ in A_DAY:
            await place.run(call)
        ran = _since(before, place.backing.commands())
        assert not [name for name in ran if name.startswith("script|load") or name == "script"]

    # 14: replies

    async def test_replies_are_flat_lists_of_integers(self, place: Place) -> None:
        for call, _ in A_DAY:
            reply = await got(place.store.run(call))
            assert type(reply) is list
            assert [type(item) for item in reply] == [int] * len(reply)

    # 15: batches

    @pytest.mark.parametrize("seed", range(3))
    async def test_a_batch_is_the_same_permits_one_after_another(self, place: Place, seed: int) -> None:
        """On other keys: the replies, in order, and then all that the keys hold."""
        rng = random.Random(seed)
        one, many = _rules(b"one"), _rules(b"many")
        for _ in range(20):
            place.now += rng.choice([0, 1, 500, 10_000, 31_000, -5_000])
            make = rng.choice([_acquire, _reserve, _admit, _admit, _renew, _settle, _finish])
            costs = [0, 1, 10, 20, 45, 51]
            permits = [
                (f"p{rng.randrange(12)}", rng.choice(costs), rng.choice(costs)) for _ in range(rng.randrange(1, 9))
            ]
            mode = rng.choice(["", "", "rejoin"])
            together = await place.run(make(many, permits, mode))
            apart = [await place.run(make(one, [permit], mode)) for permit in permits]
            assert _without_dropped(make, together) == _without_dropped(make, [n for reply in apart for n in reply])
            for left, right in zip(_keys(one), _keys(many), strict=True):
                assert place.backing.members(left) == place.backing.members(right)

    async def test_in_a_batch_a_refused_permit_does_not_block_a_smaller_one(self, place: Place) -> None:
        assert await place.run(reserve([W(100)], ("a", 60), ("b", 50), ("c", 40), ("d", 1))) == [
            *(1, 0, 60, MINUTE, 0),
            *(0, 1, 60, MINUTE, 0),
            *(1, 0, 100, MINUTE, 0),
            *(0, 1, 100, MINUTE, 0),
        ]

    async def test_in_a_batch_a_duplicate_holds_once_and_held_ids_take_nothing(self, place: Place) -> None:
        await place.run(acquire([G(3)], "held"))
        assert await place.run(acquire([G(3)], "a", "held", "a", "b", "c", "b")) == [
            *(1, 0, 2, MINUTE, 0),
            *(2, 4, 2, MINUTE, 0),
            *(2, 4, 2, MINUTE, 0),
            *(1, 0, 3, MINUTE, 0),
            *(0, 1, 3, MINUTE, 0),
            *(2, 4, 3, MINUTE, 0),
        ]

    async def test_in_a_batch_a_refusal_counts_what_was_taken_earlier_in_it(self, place: Place) -> None:
        assert await place.run(admit([G(1, 5_000), W(10)], ("a", 10), ("b", 10))) == [
            *(1, 0, 1, 5_000, 0, 0, 10, MINUTE, 0),
            *(0, 1, 1, 5_000, 0, 1, 10, MINUTE, 0),
        ]

    async def test_a_batch_of_a_thousand_is_served(self, place: Place) -> None:
        permits: list[Permit] = [(f"p{n}", 1) for n in range(1000)]
        reply = await place.run(admit([G("-"), W(999)], *permits))
        assert reply[::9] == [1] * 999 + [0]
        assert (await place.run(finish([G("-"), W(999)], *permits)))[::3] == [2] * 999 + [0]
        assert await place.run(peek(G("-"), W(999))) == [0, 0, 999, MINUTE]

    @pytest.mark.parametrize("script", BATCHES)
    async def test_more_than_a_thousand_permits_are_an_error_before_any_write(self, place: Place, script: str) -> None:
        await place.run(admit([G(2), W(100)], ("p1", 1), ("p2", 2)))
        before = place.contents()
        with pytest.raises(StoreError, match=r"expected 1 to 1000 permits of \d arguments each, got \d+"):
            await place.run(BATCHES[script]([(f"p{n}", 1) for n in range(1001)]))
        with pytest.raises(StoreError, match="expected 1 to 1000 permits"):
            await place.run(BATCHES[script]([]))
        assert place.contents() == before

    async def test_a_permit_without_all_of_its_figures_is_an_error_before_any_write(self, place: Place) -> None:
        for call in (
            admit(MIXED, ("a", 1)),
            admit(MIXED, ("a", 1, 1), ("b", 1)),
            reserve([W(100)], "a"),
            settle([W(100)], "a"),
            finish(MIXED, ("a", 1, 1, 1)),
        ):
            with pytest.raises(StoreError, match="expected 1 to 1000 permits"):
                await place.run(call)
        assert place.contents() == {}

    @pytest.mark.parametrize("script", BATCHES)
    async def test_commands_inside_a_script_do_not_grow_with_the_batch(self, place: Place, script: str) -> None:
        if not isinstance(place.backing, Served):
            return
        sending = {"info", "eval", "evalsha"}
        ran = []
        for size in (1, 2, 400):
            permits = [(f"{size}-{n}", 1) for n in range(size)]
            if script not in ("acquire", "reserve", "admit"):
                await place.run(admit([G("-"), W("-")], *permits))
            call = BATCHES[script](permits)
            call = call._replace(head=(b"%d" % place.now, *call.head[1:]))
            before = place.backing.commands()
            await got(place.store.run(call))
            ran.append(_since(before, place.backing.commands()))
            await place.run(reset(G(), W()))
        warm_up, few, many = ({name: n for name, n in counts.items() if name not in sending} for counts in ran)
        assert many == few
        assert few.items() <= warm_up.items()
        assert max(few.values()) <= 2

    # 16: something else where a limit belongs

    @pytest.mark.parametrize(("key", "kind"), [(GAUGE, "gauge"), (WINDOW, "window")], ids=["gauge", "window"])
    async def test_a_key_of_the_wrong_type_is_named_and_left_alone(self, place: Place, key: bytes, kind: str) -> None:
        other_gauge, other_window = G(2, key=OTHER_GAUGE), W(100, key=OTHER_WINDOW)
        await place.run(admit([other_gauge, other_window], ("held", 1)))
        place.backing.spoil(key, kind)
        before = place.contents()
        third: Rule = G(2) if kind == "gauge" else W(100)
        both: list[Rule] = [other_gauge, other_window, third]
        single = (
            [
                acquire([other_gauge, G(2)], "a"),
                release([other_gauge, G(2)], "held"),
                renew([other_gauge, G(2)], "held"),
            ]
            if kind == "gauge"
            else [reserve([other_window, W(100)], ("a", 1, 1)), settle([other_window, W(100)], ("held", 5, 5))]
        )
        figures = (1,) if kind == "gauge" else (1, 1)
        for call in (*single, admit(both, ("a", *figures)), finish(both, ("held", *figures)), peek(third)):
            with pytest.raises(StoreError, match="WRONGTYPE") as caught:
                await place.run(call)
            assert key.decode() in str(caught.value)
            assert place.contents() == before, call.script.name

    @pytest.mark.parametrize("lost", ["s", "n", ":a", ":b"])
    async def test_a_window_that_lost_a_field_still_works(self, place: Place, lost: str) -> None:
        """Also a field that became something else."""
        if not isinstance(place.backing, Served):
            return
        for value in (None, "", "x"):
            await place.run(reset(W(100)))
            await place.run(reserve([W(100)], ("a", 30), ("b", 20)))
            place.backing.damage(WINDOW, lost, value)
            assert (await place.run(reserve([W(100)], ("c", 10))))[0] in (0, 1)
            await place.run(settle([W(100)], ("a", 1)))
            await place.run(finish([W(100)], ("b", "-"), ("c", 0)))
            assert 0 <= (await place.run(peek(W(100))))[0] <= 100
            place.now += MINUTE
            assert (await place.run(reserve([W(100)], ("d", 100))))[0] == 1, (lost, value)

    @pytest.mark.parametrize("key", [GAUGE, WINDOW, OTHER_GAUGE, OTHER_WINDOW])
    async def test_losing_any_one_key_leaves_the_rest_at_work(self, place: Place, key: bytes) -> None:
        await place.run(admit(MIXED, ("a", 60, 30), ("b", 40, 20)))
        place.backing.drop(key)
        assert (await place.run(admit(MIXED, ("a", 60, 30))))[0] in (1, 2)
        assert (await place.run(finish(MIXED, ("b", 0, 0))))[0] == 1
        used = (await place.run(peek(*MIXED)))[::2]
        assert used == [1, 60, 1, 30]
        assert (await place.run(finish(MIXED, ("a", 0, 0))))[0] == 2
        assert (await place.run(peek(*MIXED)))[::2] == [0, 0, 0, 0]


Rules = tuple[G, W, G, W]
Figured = tuple[str, int, int]


def _rules(tag: bytes) -> Rules:
    key = b"pyslot:v1:{a}:%b:" % tag
    return G(3, 20_000, key + b"s"), W(100, MINUTE, key + b"w"), G("~2", 9_000, key + b"t"), W(50, 30_000, key + b"x")


def _keys(rules: Sequence[Rule]) -> list[bytes]:
    return [rule.key for rule in rules]


def _acquire(rules: Rules, permits: Sequence[Figured], mode: str) -> Call:
    return acquire([rules[0], rules[2]], *_ids(permits), mode=mode)


def _reserve(rules: Rules, permits: Sequence[Figured], mode: str) -> Call:
    return reserve([rules[1], rules[3]], *permits, mode=mode)


def _admit(rules: Rules, permits: Sequence[Figured], mode: str) -> Call:
    return admit(rules, *permits, mode=mode)


def _renew(rules: Rules, permits: Sequence[Figured], _: str) -> Call:
    return renew([rules[0], rules[2]], *_ids(permits))


def _settle(rules: Rules, permits: Sequence[Figured], _: str) -> Call:
    return settle([rules[1], rules[3]], *((id, first, second or "-") for id, first, second in permits))


def _finish(rules: Rules, permits: Sequence[Figured], _: str) -> Call:
    return finish(rules, *((id, first or "-", second) for id, first, second in permits))


def _without_dropped(make: Callable[..., Call], reply: list[int]) -> list[int]:
    """A batch tells of the leases that it found ended once, with its first permit: not a matter of any permit."""
    sizes = {_acquire: 9, _reserve: 9, _admit: 17}
    size = sizes.get(make, 1)
    return [0 if at % size and at % size % 4 == 0 else number for at, number in enumerate(reply)]


def _since(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    ran = {name: n - before.get(name, 0) for name, n in after.items() if n > before.get(name, 0)}
    return {name.replace("zscore", "zmscore"): n for name, n in ran.items()}  # the same of one and of many
