"""Invariants 10 to 12: which keys travel together, and all or none where they can't."""

from __future__ import annotations

import asyncio

import pytest

from pyslot import LimitExceeded, Slots, StoreError, StoreUnavailable, Window
from pyslot.keys import hash_slot
from pyslot.kinds import Limit
from pyslot.loader import Call
from pyslot.parts import Part
from tests.contract.places import ASYNC, Place
from tests.contract.wire import step

A, B, C = sorted(("team:a", "team:b", "team:c"), key=lambda name: hash_slot(name.encode()))
"""In the order of their hash slots."""
SLOTS = tuple(Slots(name, 1) for name in (A, B, C))
TOKENS = tuple(Window(name, "tokens", 100) for name in (A, B, C))
ASKED = tuple(item for pair in zip(SLOTS, (window.cost(10) for window in TOKENS), strict=True) for item in pair)
EMPTY = [0] * 6
GONE = StoreUnavailable("the test's wire is cut")


class Stop(BaseException):
    """What a signal's handler may raise."""


def subjects(calls: list[Call]) -> list[str]:
    """The hash tag of each call, checking that it has one."""
    tags = [{key.partition(b"{")[2].partition(b"}")[0].decode() for key in call.keys} for call in calls]
    assert all(len(tag) == 1 for tag in tags), tags
    return [tag.pop() for tag in tags]


def sent(calls: list[Call]) -> list[str]:
    return [
        f"{'look' if call.head[1:2] == (b'dry',) else step(call)} {tag}"
        for call, tag in zip(calls, subjects(calls), strict=True)
    ]


class Groups:
    # 10: one call, one hash slot

    async def test_limits_of_one_subject_travel_together(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        decision = await limiter.try_acquire(SLOTS[0], TOKENS[0].cost(5), Window(A, "requests", 9))
        await limiter.finish(decision.require())
        await limiter.peek(SLOTS[0], TOKENS[0])
        await limiter.reset(SLOTS[0], TOKENS[0])
        assert [len(call.keys) for call in place.calls] == [3, 3, 2, 2]
        assert subjects(place.calls) == [A] * 4

    # 11: several hash slots, one after another, all or none

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
    async def test_groups_are_charged_in_ascending_order_of_hash_slots(
        self, place: Place, order: tuple[int, ...]
    ) -> None:
        limiter = place.limiter(group_by_slot=True)
        decision = await limiter.try_acquire(*(item for k in order for item in (SLOTS[k], TOKENS[k].cost(k))))
        assert sent(place.calls) == [f"admit {A}", f"admit {B}", f"admit {C}"]
        outcome = await limiter.finish(decision.require())
        assert sent(place.calls[3:]) == [f"finish {A}", f"finish {B}", f"finish {C}"]
        assert (outcome.released, outcome.settled, outcome.late) == (True, True, False)
        assert await limiter.used(*SLOTS, *TOKENS) == [0, 0, 0, 0, 1, 2]

    async def test_the_first_refusal_ends_it_and_undoes_the_earlier_groups_by_id(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        other = await limiter.try_acquire(SLOTS[1], TOKENS[0].cost(3), id="other")
        before = await limiter.used(*SLOTS, *TOKENS)
        seen = len(place.calls)
        decision = await limiter.try_acquire(*ASKED, id="mine")
        assert not decision
        assert decision.refused_by == (SLOTS[1],)
        assert sent(place.calls[seen:]) == [f"admit {A}", f"admit {B}", f"finish {A}"]
        assert place.calls[-1].permits == (b"mine", b"0")
        assert await limiter.used(*SLOTS, *TOKENS) == before == [0, 1, 0, 3, 0, 0]
        await limiter.finish(other.require())
        assert await limiter.try_acquire(*ASKED)

    async def test_an_undo_takes_back_only_what_its_call_took(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        await limiter.try_acquire(SLOTS[2], id="other")
        await limiter.try_acquire(SLOTS[0], TOKENS[1].cost(40), id="mine")
        before = await limiter.used(*SLOTS, *TOKENS)
        assert not await limiter.try_acquire(*ASKED, id="mine")
        assert await limiter.used(*SLOTS, *TOKENS) == before == [1, 0, 1, 0, 40, 0]

    async def test_the_same_call_twice_over_groups_holds_once(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        first = await limiter.try_acquire(*ASKED, id="mine")
        again = await limiter.try_acquire(*ASKED, id="mine")
        assert (first.repeated, again.repeated) == (False, True)
        assert await limiter.used(*SLOTS, *TOKENS) == [1, 1, 1, 10, 10, 10]

    async def test_an_undo_that_fails_is_done_in_the_background(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        other = await limiter.try_acquire(SLOTS[2])
        place.tap.fail("finish", A, times=2, error=GONE)
        assert not await limiter.try_acquire(*ASKED), "the answer stands"
        await limiter.finish(other.require())
        await _restored(place)

    async def test_an_undo_whose_answer_is_lost_is_done_twice_and_counts_once(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        await limiter.try_acquire(SLOTS[2], TOKENS[0].cost(7), id="other")
        place.tap.fail("finish", times=3, error=GONE, lost=True)
        assert not await limiter.try_acquire(*ASKED)
        await place.until(lambda: place.tap.faults[0].left == 0)
        await _restored(place, [0, 0, 1, 7, 0, 0])

    @pytest.mark.parametrize("lost", [False, True], ids=["unsent", "lost"])
    @pytest.mark.parametrize("at", [A, B, C])
    async def test_a_call_that_fails_in_the_middle_leaves_nothing(self, place: Place, at: str, lost: bool) -> None:
        limiter = place.limiter(group_by_slot=True)
        place.tap.fail("admit", at, error=GONE, lost=lost)
        place.tap.fail("finish", at, error=GONE, lost=lost)
        with pytest.raises(StoreUnavailable, match="wire is cut"):
            await limiter.try_acquire(*ASKED)
        await _restored(place)

    async def test_a_call_that_is_declined_in_the_middle_leaves_nothing(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        place.tap.fail("admit", B, error=StoreError("OOM, says the test"))
        with pytest.raises(StoreError, match="OOM"):
            await limiter.try_acquire(*ASKED)
        await _restored(place)

    @pytest.mark.parametrize("at", [A, B, C])
    async def test_a_call_that_is_interrupted_leaves_nothing(self, place: Place, at: str) -> None:
        limiter = place.limiter(group_by_slot=True)
        place.tap.fail("admit", at, error=Stop(), lost=True)
        with pytest.raises(Stop):
            await limiter.try_acquire(*ASKED)
        await _restored(place)

    @pytest.mark.parametrize("place", ASYNC, ids=str, indirect=True)
    @pytest.mark.parametrize("lost", [False, True], ids=["unsent", "lost"])
    @pytest.mark.parametrize("at", [A, B, C, "undo"])
    async def test_a_task_that_is_cancelled_in_the_middle_leaves_nothing(
        self, place: Place, at: str, lost: bool
    ) -> None:
        limiter = place.limiter(group_by_slot=True)
        other = await limiter.try_acquire(SLOTS[2]) if at == "undo" else None
        place.tap.fail(*(("finish", A) if other else ("admit", at)), error=None, lost=lost)
        task = asyncio.ensure_future(limiter.try_acquire(*ASKED))
        await place.until(lambda: place.tap.faults[0].left == 0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if other:
            await limiter.finish(other.require())
        await _restored(place)

    async def test_closing_does_what_the_background_has_not_done_yet(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        place.tap.fail("admit", B, error=GONE, lost=True)
        with pytest.raises(StoreUnavailable):
            await limiter.try_acquire(*ASKED)
        await limiter.close()
        assert await place.limiter(group_by_slot=True).used(*SLOTS, *TOKENS) == EMPTY

    @pytest.mark.parametrize("place", ASYNC, ids=str, indirect=True)
    async def test_closing_sends_again_what_the_background_was_still_waiting_for(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        place.tap.fail("admit", B, error=GONE, lost=True)
        place.tap.fail("finish", B, error=None)
        with pytest.raises(StoreUnavailable):
            await limiter.try_acquire(*ASKED)
        await place.until(lambda: place.tap.faults[1].left == 0)
        await limiter.close()
        assert await place.limiter(group_by_slot=True).used(*SLOTS, *TOKENS) == EMPTY

    async def test_a_finish_that_fails_in_the_middle_goes_on_in_the_background(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        permit = (await limiter.try_acquire(*ASKED)).require()
        permit.settle(TOKENS[2].cost(4))
        place.tap.fail("finish", B, times=2, error=GONE)
        with pytest.raises(StoreUnavailable):
            await limiter.finish(permit)
        async with asyncio.timeout(10):
            while await limiter.used(SLOTS[1], *TOKENS) != [0, 10, 10, 4]:  # noqa: ASYNC110 - as below
                await asyncio.sleep(0.01)
        assert await limiter.used(*SLOTS) == [0, 0, 0]
        assert (await limiter.finish(permit)).late

    async def test_after_a_refusal_every_group_is_looked_at_before_any_is_taken(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        rpm = Window(B, "requests", 1, 60)
        full = (SLOTS[0], rpm, TOKENS[2].cost(100))
        await limiter.try_acquire(rpm)
        assert not await limiter.try_acquire(*full)
        await limiter.try_acquire(TOKENS[2].cost(1))
        before, seen = place.contents(), len(place.calls)
        place.now += 20_000
        decision = await limiter.try_acquire(*full)
        assert not decision
        assert sent(place.calls[seen:]) == [f"look {A}", f"look {B}", f"look {C}"]
        assert decision.refused_by == (rpm, TOKENS[2])
        assert decision.retry_after == 40.0
        assert place.contents() == before

    async def test_a_look_that_finds_room_is_followed_by_the_taking(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        rpm = Window(B, "requests", 1, 60)
        await limiter.try_acquire(rpm)
        assert not await limiter.try_acquire(SLOTS[0], rpm)
        seen = len(place.calls)
        place.now += 60_000
        assert await limiter.try_acquire(SLOTS[0], rpm)
        assert sent(place.calls[seen:]) == [f"look {A}", f"look {B}", f"admit {A}", f"admit {B}"]

    async def test_without_a_refusal_nobody_looks(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        for n in range(3):
            permit = (await limiter.try_acquire(*ASKED, id=f"p{n}")).require()
            await limiter.finish(permit)
        assert not await limiter.try_acquire(TOKENS[0].cost(101)), "which will not change by waiting"
        await limiter.try_acquire(*ASKED)
        assert "look" not in " ".join(sent(place.calls))

    async def test_a_full_gauge_is_asked_for_a_wait_once(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who is told a time is expected then: told twice, later callers would wait behind somebody who never comes."""
        limiter = place.limiter(group_by_slot=True)
        asked: list[Limit] = []

        def slot_wait(part: Part, *_: object) -> float:
            asked.append(part.limit)
            return 1.5

        monkeypatch.setattr(limiter.limiter._flows.upkeep, "slot_wait", slot_wait)
        await limiter.try_acquire(SLOTS[1], id="other")
        for times in (1, 2):  # the second time after a look
            decision = await limiter.try_acquire(*ASKED)
            assert decision.retry_after == decision.retry_after == 1.5
            assert asked == [SLOTS[1]] * times

    async def test_who_is_not_told_when_to_come_is_not_expected(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limiter = place.limiter(group_by_slot=True)
        monkeypatch.setattr(limiter.limiter._flows.upkeep, "slot_wait", lambda *_: pytest.fail("nobody wants to know"))
        await limiter.try_acquire(SLOTS[1], id="other")
        assert not await limiter.try_acquire(SLOTS[1], Window(B, "requests", 9)), "one group, and nobody asks when"
        decision = await limiter.try_acquire(SLOTS[1], TOKENS[0].cost(101))
        assert decision.retry_after is None, "never"

    async def test_a_call_in_one_group_never_looks(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        for _ in range(3):
            await limiter.try_acquire(SLOTS[0], Window(A, "requests", 1))
        assert sent(place.calls) == [f"admit {A}"] * 3

    async def test_a_refusal_raises_after_its_undo(self, place: Place) -> None:
        limiter = place.limiter(group_by_slot=True)
        await limiter.try_acquire(SLOTS[2], id="other")
        with pytest.raises(LimitExceeded) as caught:
            async with limiter.acquire(*ASKED):
                pytest.fail("nobody gets in here")
        assert caught.value.decision.refused_by == (SLOTS[2],)
        assert await limiter.used(*SLOTS, *TOKENS) == [0, 0, 1, 0, 0, 0]

    # 12: tags, and grouping on request

    async def test_limits_of_one_tag_are_one_call_on_any_store(self, place: Place) -> None:
        limiter = place.limiter()
        tagged = [Slots(name, 1, tag="org:acme") for name in (A, B, C)]
        windows = [Window(name, "tokens", 100, tag="org:acme") for name in (A, B, C)]
        permit = (await limiter.try_acquire(*tagged, *(window.cost(7) for window in windows))).require()
        assert not await limiter.try_acquire(tagged[0])
        assert await limiter.try_acquire(SLOTS[0]), "another limit: what has a tag is named with it"
        await limiter.finish(permit)
        assert [len(call.keys) for call in place.calls] == [6, 1, 1, 6]
        assert await limiter.used(*tagged, *windows) == [0, 0, 0, 7, 7, 7]
        await limiter.reset(*tagged, *windows)
        assert await limiter.used(*tagged, *windows) == EMPTY

    async def test_grouping_is_for_clusters_unless_asked_for(self, place: Place) -> None:
        for group, calls in ((None, 3 if place.store.cluster else 1), (True, 3)):
            seen = len(place.calls)
            limiter = place.limiter(group_by_slot=group, prefix=f"p{group}")
            await limiter.try_acquire(*ASKED)
            assert len(place.calls) - seen == calls


async def _restored(place: Place, used: list[int] = EMPTY) -> None:
    """Wait until nothing of a call is left: its slots free, its units taken back."""
    fresh = place.limiter(group_by_slot=True)
    async with asyncio.timeout(10):
        while await fresh.used(*SLOTS, *TOKENS) != used:  # noqa: ASYNC110 - there is nothing to be told by
            await asyncio.sleep(0.01)
