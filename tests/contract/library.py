"""What callers of the library see, on every store: blocks, decisions, permits, settlements, tokens and streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from pyslot import (
    InvalidLimit,
    LimitExceeded,
    Outcome,
    Slots,
    Status,
    UsageError,
    Window,
)
from tests.contract.facade import Facade, got
from tests.contract.places import ASYNC, Place
from tests.contract.wire import step

SLOTS = Slots("key:sk-1", 2)
RPM = Window("key:sk-1", "requests", 3)
TPM = Window("key:sk-1", "tokens", 100)
DONE = Outcome(released=True, settled=True, late=False)
NOTHING = Outcome(released=False, settled=False, late=True)


def sent(place: Place) -> list[str]:
    return [step(call) for call in place.calls]


class Library:
    # Blocks

    async def test_a_block_holds_while_it_lasts_and_ends_with_one_call(self, place: Place) -> None:
        limiter = place.limiter()
        async with limiter.acquire(SLOTS, RPM, TPM.cost(60)) as permit:
            permit.settle(TPM.cost(25))
            assert sent(place) == ["admit"]
            assert await limiter.used(SLOTS, RPM, TPM) == [1, 1, 60]
        assert sent(place) == ["admit", "peek", "finish"]
        assert await limiter.used(SLOTS, RPM, TPM) == [0, 1, 25]

    async def test_nothing_is_sent_before_the_block_is_entered(self, place: Place) -> None:
        limiter = place.limiter()
        block = limiter.limiter.acquire(SLOTS)
        assert place.calls == []
        del block

    async def test_a_refused_block_raises_the_decision(self, place: Place) -> None:
        limiter = place.limiter()
        async with limiter.acquire(SLOTS), limiter.acquire(SLOTS):
            with pytest.raises(LimitExceeded) as caught:
                async with limiter.acquire(SLOTS, RPM):
                    pytest.fail("nobody gets in here")
        decision = caught.value.decision
        assert not decision
        assert decision.refused_by == (SLOTS,)
        assert str(caught.value) == decision.explain()
        assert await limiter.used(SLOTS, RPM) == [0, 0]

    @pytest.mark.parametrize("on_error", ["keep", "refund"])
    async def test_a_block_that_raises_frees_its_slot_and_keeps_what_is_settled(
        self, place: Place, on_error: str
    ) -> None:
        limiter = place.limiter()
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - it is the end of the block that is tested
            async with limiter.acquire(SLOTS, RPM, TPM.cost(60), on_error=on_error) as permit:
                permit.settle(TPM.cost(70))
                raise ZeroDivisionError
        assert await limiter.used(SLOTS, RPM, TPM) == [0, int(on_error == "keep"), 70]

    async def test_an_estimate_that_is_not_settled_stands(self, place: Place) -> None:
        limiter = place.limiter()
        async with limiter.acquire(TPM.cost(60)):
            pass
        with pytest.raises(ZeroDivisionError):
            async with limiter.acquire(TPM.cost(10)):
                raise ZeroDivisionError
        assert await limiter.used(TPM) == [70]

    async def test_a_block_that_raises_nothing_refunds_nothing(self, place: Place) -> None:
        limiter = place.limiter()
        async with limiter.acquire(TPM.cost(60), on_error="refund"):
            pass
        assert await limiter.used(TPM) == [60]

    @pytest.mark.parametrize("place", ASYNC, ids=str, indirect=True)
    async def test_a_cancelled_block_frees_its_slot_in_the_background(self, place: Place) -> None:
        limiter = place.limiter()
        inside = asyncio.Event()

        async def work() -> None:
            async with limiter.acquire(SLOTS, TPM.cost(60)) as permit:
                permit.settle(TPM.cost(5))
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(work())
        await inside.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await place.until(lambda: "finish" in sent(place))
        await _until_used(limiter, [0, 5])

    # Decisions

    async def test_a_decision_says_where_every_limit_stands(self, place: Place) -> None:
        limiter = place.limiter()
        first = await limiter.try_acquire(SLOTS, TPM.cost(60))
        assert first
        assert first.require() is first.permit
        assert (first.refused_by, first.retry_after, first.repeated, first.degraded) == ((), 0.0, False, False)
        assert first.statuses == (Status(SLOTS, 1, 1, 60.0, False), Status(TPM, 60, 40, 60.0, False))
        place.now += 1500
        second = await limiter.try_acquire(SLOTS, TPM.cost(41))
        assert not second
        assert second.permit is None
        assert (second.refused_by, second.retry_after) == ((TPM,), 58.5)
        assert second.statuses == (Status(SLOTS, 1, 1, 58.5, False), Status(TPM, 60, 40, 58.5, True))
        with pytest.raises(LimitExceeded) as caught:
            second.require()
        assert caught.value.decision is second
        assert second.headers()["Retry-After"] == "59"
        assert "Retry-After" not in first.headers()

    async def test_the_same_id_is_granted_once_and_says_so(self, place: Place) -> None:
        limiter = place.limiter()
        first = await limiter.try_acquire(SLOTS, TPM.cost(60), id="req-7f3a")
        again = await limiter.try_acquire(SLOTS, TPM.cost(99), id="req-7f3a")
        elsewhere = await place.limiter().try_acquire(SLOTS, TPM.cost(60), id="req-7f3a")
        assert (first.repeated, again.repeated, elsewhere.repeated) == (False, True, True)
        assert first.require().id == again.require().id == elsewhere.require().id == "req-7f3a"
        assert await limiter.used(SLOTS, TPM) == [1, 60]
        assert await limiter.finish(again.require()) == DONE
        assert (await limiter.finish(elsewhere.require())).late
        assert await limiter.used(SLOTS, TPM) == [0, 60]

    async def test_ids_of_their_own_differ(self, place: Place) -> None:
        limiter, other = place.limiter(), place.limiter()
        ids = {(await each.try_acquire()).require().id for each in [limiter, other] * 10}
        assert len(ids) == 20

    async def test_no_limits_are_granted_without_a_call(self, place: Place) -> None:
        limiter = place.limiter()
        decision = await limiter.try_acquire()
        assert decision
        assert (decision.statuses, decision.retry_after, decision.repeated) == ((), 0.0, False)
        assert await limiter.finish(decision.require()) == Outcome(released=False, settled=False, late=False)
        async with limiter.acquire() as permit:
            permit.refund()
        assert await limiter.peek() == ()
        await limiter.reset()
        assert place.calls == []

    async def test_no_limit_and_no_enforcement_never_refuse(self, place: Place) -> None:
        limiter = place.limiter()
        counted, watched = Slots("a", None), Window("a", "tokens", 10, enforce=False)
        for n in range(1, 4):
            decision = await limiter.try_acquire(counted, watched.cost(6))
            assert decision
            assert decision.statuses == (
                Status(counted, n, None, 60.0, False),
                Status(watched, 6 * n, max(0, 10 - 6 * n), 60.0, n > 1),
            )

    # The same limit twice

    async def test_the_same_limit_twice_in_a_call_counts_once(self, place: Place) -> None:
        limiter = place.limiter()
        assert await limiter.try_acquire(SLOTS, RPM, SLOTS, RPM, RPM.cost(1))
        same = Slots("key:sk-1", 2, lease=timedelta(minutes=1), max_hold=timedelta(hours=1))
        also = Window("key:sk-1", "requests", 3, per=timedelta(seconds=60))
        assert await limiter.try_acquire(SLOTS, same, RPM, also)
        assert await limiter.used(SLOTS, RPM) == [2, 2]

    async def test_one_key_with_different_rules_is_an_error_before_anything_is_sent(self, place: Place) -> None:
        limiter = place.limiter()
        for first, second in (
            (SLOTS, Slots("key:sk-1", 3)),
            (SLOTS, Slots("key:sk-1", 2, lease=5)),
            (SLOTS, Slots("key:sk-1", 2, enforce=False)),
            (RPM, Window("key:sk-1", "requests", None)),
            (TPM.cost(1), TPM.cost(2)),
            (RPM, RPM.cost(2)),
        ):
            with pytest.raises(InvalidLimit, match="two different rules for one key"):
                await limiter.try_acquire(first, second)
        assert place.calls == []

    # Settlements

    async def test_a_configuration_loaded_anew_settles_just_as_well(self, place: Place) -> None:
        limiter = place.limiter()
        permit = (await limiter.try_acquire(TPM.cost(60), RPM)).require()
        permit.settle(Window("key:sk-1", "tokens", 100).cost(30))
        permit.settle(Window("key:sk-1", "tokens", 5, per=timedelta(minutes=1), enforce=False).cost(20))
        assert await limiter.finish(permit) == Outcome(released=False, settled=True, late=False)
        assert await limiter.used(TPM, RPM) == [20, 1]

    async def test_settling_what_was_not_charged_is_an_error(self, place: Place) -> None:
        limiter = place.limiter()
        permit = (await limiter.try_acquire(TPM.cost(60))).require()
        others: list[Any] = [RPM, Window("key:sk-1", "tokens", 100, per=1), Window("a", "tokens", 100)]
        others += [Window("key:sk-1", "tokens", 100, tag="x")]
        for other in others:
            with pytest.raises(InvalidLimit, match="holds no charge in"):
                permit.settle(other.cost(1))
            with pytest.raises(InvalidLimit, match="holds no charge in"):
                permit.refund(other)
        for no_charge in (SLOTS, TPM, 5, None):
            with pytest.raises(InvalidLimit, match="settle takes"):
                permit.settle(no_charge)
        for no_window in (SLOTS, TPM.cost(3), 5):
            with pytest.raises(InvalidLimit, match="refund takes windows"):
                permit.refund(no_window)
        await limiter.finish(permit)
        assert await limiter.used(TPM) == [60]

    async def test_a_refund_takes_charges_back_and_no_slot(self, place: Place) -> None:
        limiter = place.limiter()
        permit = (await limiter.try_acquire(SLOTS, TPM.cost(60), RPM)).require()
        permit.refund(TPM)
        assert await limiter.used(SLOTS, TPM, RPM) == [1, 60, 1], "it is only recorded"
        assert await limiter.finish(permit) == DONE
        assert await limiter.used(SLOTS, TPM, RPM) == [0, 0, 1]
        permit = (await limiter.try_acquire(SLOTS, TPM.cost(60), RPM)).require()
        permit.refund()
        await limiter.finish(permit)
        assert await limiter.used(SLOTS, TPM, RPM) == [0, 0, 1]

    async def test_a_permit_finishes_once(self, place: Place) -> None:
        limiter = place.limiter()
        permit = (await limiter.try_acquire(SLOTS, TPM.cost(60))).require()
        assert await limiter.finish(permit) == DONE
        calls = len(place.calls)
        assert await limiter.finish(permit) == NOTHING
        assert len(place.calls) == calls
        for late in (permit.refund, lambda: permit.settle(TPM.cost(1))):
            with pytest.raises(UsageError, match="has finished"):
                late()

    async def test_an_outcome_says_what_was_still_held(self, place: Place) -> None:
        limiter = place.limiter()
        long, short = Slots("a", 5), Window("a", "tokens", 50, per=1)
        permit = (await limiter.try_acquire(long, short.cost(1))).require()
        place.now += 1000
        assert await limiter.finish(permit) == Outcome(released=True, settled=False, late=True)
        permit = (await limiter.try_acquire(Slots("b", 5, lease=3600), TPM.cost(1))).require()
        assert await limiter.finish(permit) == DONE
        permit = (await limiter.try_acquire(SLOTS)).require()
        place.now += 60_000
        assert await limiter.finish(permit) == NOTHING
        permit = (await limiter.try_acquire(TPM.cost(1))).require()
        assert await limiter.finish(permit) == Outcome(released=False, settled=True, late=False)

    async def test_settling_after_the_roll_leaves_the_new_window_alone(self, place: Place) -> None:
        limiter = place.limiter()
        old = (await limiter.try_acquire(TPM.cost(90))).require()
        place.now += 60_000
        await limiter.try_acquire(TPM.cost(50))
        old.settle(TPM.cost(5))
        assert (await limiter.finish(old)).late
        assert await limiter.used(TPM) == [50]

    # Without a permit

    async def test_a_charge_counts_or_is_refused(self, place: Place) -> None:
        limiter = place.limiter()
        granted = await limiter.charge(TPM.cost(60), RPM)
        assert granted
        assert granted.permit is None
        assert granted.require() is None
        refused = await limiter.charge(TPM.cost(41), RPM)
        assert refused.refused_by == (TPM,)
        with pytest.raises(LimitExceeded):
            refused.require()
        assert await limiter.used(TPM, RPM) == [60, 1]
        with pytest.raises(InvalidLimit, match="only windows can be charged"):
            await limiter.charge(SLOTS)
        with pytest.raises(InvalidLimit, match="how many tokens"):
            await limiter.charge(TPM)

    async def test_looking_changes_nothing(self, place: Place) -> None:
        limiter = place.limiter()
        await limiter.try_acquire(SLOTS, TPM.cost(60), RPM)
        before = place.contents()
        assert await limiter.count(SLOTS) == 1
        assert await limiter.peek(TPM.cost(41), RPM, SLOTS) == (
            Status(TPM, 60, 40, 60.0, True),
            Status(RPM, 1, 2, 60.0, False),
            Status(SLOTS, 1, 1, 60.0, False),
        )
        assert await limiter.peek(TPM.cost(40), Slots("nobody", 0)) == (
            Status(TPM, 60, 40, 60.0, False),
            Status(Slots("nobody", 0), 0, 0, 0.0, True),
        )
        with pytest.raises(InvalidLimit, match="only slots can be counted"):
            await limiter.count(TPM)  # type: ignore[arg-type]
        assert place.contents() == before

    async def test_a_reset_forgets_all_of_the_limits_named(self, place: Place) -> None:
        limiter = place.limiter()
        permit = (await limiter.try_acquire(SLOTS, TPM.cost(60), RPM)).require()
        await limiter.reset(SLOTS, TPM)
        assert await limiter.used(SLOTS, TPM, RPM) == [0, 0, 1]
        assert await limiter.finish(permit) == Outcome(released=False, settled=False, late=True)

    # From elsewhere

    async def test_a_handle_ends_a_permit_by_its_id_from_anywhere(self, place: Place) -> None:
        limiter, elsewhere = place.limiter(), place.limiter()
        await limiter.try_acquire(SLOTS, TPM.cost(60), id="req-7f3a")
        calls = len(place.calls)
        handle = elsewhere.handle("req-7f3a", SLOTS, TPM)
        handle.settle(TPM.cost(7))
        assert len(place.calls) == calls
        assert await elsewhere.finish(handle) == DONE
        assert await limiter.used(SLOTS, TPM) == [0, 7]
        assert (await elsewhere.finish(elsewhere.handle("req-7f3a", SLOTS, TPM))).late
        assert (await elsewhere.finish(elsewhere.handle("never", SLOTS, TPM))).late

    async def test_a_detached_permit_is_ended_by_whoever_adopts_it(self, place: Place) -> None:
        limiter, elsewhere = place.limiter(), place.limiter()
        permit = (await limiter.try_acquire(SLOTS, TPM.cost(60), RPM)).require()
        permit.settle(TPM.cost(8))
        calls = len(place.calls)
        token = permit.detach()
        assert type(token) is bytes
        assert await limiter.finish(permit) == NOTHING
        adopted = elsewhere.adopt(token)
        assert (adopted.id, adopted.lost) == (permit.id, False)
        assert len(place.calls) == calls
        assert await limiter.used(SLOTS, TPM, RPM) == [1, 60, 1]
        adopted.refund(RPM)
        assert await elsewhere.finish(adopted) == DONE
        assert await limiter.used(SLOTS, TPM, RPM) == [0, 8, 0]

    async def test_a_handle_can_be_detached_too(self, place: Place) -> None:
        limiter = place.limiter()
        held = await limiter.try_acquire(SLOTS, id="req-7f3a")
        adopted = limiter.adopt(limiter.handle("req-7f3a", SLOTS).detach())
        assert await limiter.finish(adopted) == Outcome(released=True, settled=False, late=False)
        assert (await limiter.finish(held.require())).late

    async def test_a_token_says_what_is_wrong_with_it(self, place: Place) -> None:
        limiter = place.limiter()
        token = (await limiter.try_acquire(SLOTS)).require().detach()
        for wrong in (b"", b"x", b"\x01", token[:-1], token + b"x", b"\x95" + token[1:]):
            with pytest.raises(UsageError, match="token"):
                limiter.adopt(wrong)
        with pytest.raises(UsageError, match="prefix='pyslot'"):
            place.limiter(prefix="other").adopt(token)
        with pytest.raises(UsageError, match="hash_names=True"):
            place.limiter(hash_names=True).adopt(token)

    # Streams

    @pytest.mark.parametrize("way", ["end", "error", "close", "leave"])
    async def test_a_wrapped_stream_finishes_its_permit_with_it(self, place: Place, way: str) -> None:
        limiter = place.limiter()
        permit = (await limiter.try_acquire(SLOTS, TPM.cost(60))).require()
        permit.on_error = "refund"
        stream = permit.wrap(_stream(place, broken=way == "error"))
        assert await _next(stream) == 0
        assert await limiter.used(SLOTS, TPM) == [1, 60]
        if way == "end":
            assert await _next(stream) == 1
            assert await _next(stream) is None
        elif way == "error":
            with pytest.raises(ZeroDivisionError):
                await _next(stream)
        elif way == "close":
            await got((stream.close if place.blocking else stream.aclose)())
        elif place.blocking:
            with stream:
                pass
        else:
            async with stream:
                pass
        assert await limiter.used(SLOTS, TPM) == [0, 0 if way == "error" else 60]
        assert (await limiter.finish(permit)).late

    # Names

    async def test_limiters_of_different_prefixes_do_not_meet(self, place: Place) -> None:
        one, other = place.limiter(), place.limiter(prefix="pyslot.two:b-_")
        await one.try_acquire(SLOTS, TPM.cost(60))
        assert await other.used(SLOTS, TPM) == [0, 0]
        await other.try_acquire(SLOTS)
        assert {key.partition(":v1:")[0] for key in place.contents()} == {"pyslot", "pyslot.two:b-_"}

    async def test_hashed_names_keep_subjects_out_of_the_store(self, place: Place) -> None:
        limiter = place.limiter(hash_names=True)
        secret, tagged = Slots("sk-secret", 1), Window("sk-secret", "tokens", 9, tag="org")
        await limiter.try_acquire(secret)
        await limiter.try_acquire(tagged.cost(1))
        keys = " ".join(place.contents())
        assert "secret" not in keys
        assert "{org}" in keys
        assert await limiter.used(secret, tagged) == [1, 1]

    # The end

    async def test_a_closed_limiter_says_so(self, place: Place) -> None:
        limiter = place.limiter()
        permit = (await limiter.try_acquire(SLOTS)).require()
        assert "closed" not in repr(limiter.limiter)
        await limiter.close()
        await limiter.close()
        assert "closed" in repr(limiter.limiter)
        calls = len(place.calls)
        for use in (
            lambda: limiter.try_acquire(SLOTS),
            lambda: limiter.charge(RPM),
            lambda: limiter.count(SLOTS),
            lambda: limiter.peek(RPM),
            lambda: limiter.reset(RPM),
            lambda: limiter.finish(permit),
        ):
            with pytest.raises(UsageError, match="closed"):
                await use()
        assert len(place.calls) == calls

    async def test_reprs_tell_what_things_are(self, place: Place) -> None:
        limiter = place.limiter()
        assert repr(limiter.limiter).startswith(f"<{'Limiter' if place.blocking else 'AsyncLimiter'} 'pyslot' on ")
        granted = await limiter.try_acquire(Slots("a", 1), id="p1")
        kind = "Permit" if place.blocking else "AsyncPermit"
        assert repr(granted.permit) == f"<{kind} p1 open: slots of a>"
        assert repr(granted) == "<Decision granted>"
        assert repr(await limiter.try_acquire(Slots("a", 1), id="p1")) == "<Decision granted before>"
        refused = await limiter.try_acquire(Slots("a", 1))
        assert repr(refused).startswith("<Decision refused by slots of a (1 of 1 in use, 1 asked for); try again in ")
        await limiter.finish(granted.require())
        assert repr(granted.permit) == f"<{kind} p1 finished: slots of a>"


def _stream(place: Place, *, broken: bool) -> Any:  # noqa: ANN401 - of either colour
    def items() -> Iterator[int]:
        yield 0
        if broken:
            raise ZeroDivisionError
        yield 1

    async def later() -> AsyncIterator[int]:
        for item in items():
            yield item

    return items() if place.blocking else later()


async def _next(stream: Any) -> Any:  # noqa: ANN401 - of either colour
    return next(stream, None) if hasattr(stream, "__next__") else await anext(stream, None)


async def _until_used(limiter: Facade, used: list[int]) -> None:
    async with asyncio.timeout(10):
        while await limiter.used(SLOTS, TPM) != used:  # noqa: ASYNC110 - there is nothing to be told by
            await asyncio.sleep(0.01)
