"""Invariant 18: leases are renewed while permits are held, and end when nobody holds them any more."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pyslot import AsyncLimiter, Limiter, LimitExceeded, Local, Permit, Slots, Window
from pyslot.hooks import Hooks
from pyslot.loader import Call
from pyslot.permit import BasePermit
from pyslot.thread import drive
from tests.conftest import GetServer, PrivateServer
from tests.contract.wire import step
from tests.life.helpers import Tapped, python, said, until

HOLDER = """
import sys, time
from pyslot import Limiter, Slots
limiter = Limiter(sys.argv[1], deadline=10)
permits = [limiter.try_acquire(Slots("key:a", int(sys.argv[3]), lease=float(sys.argv[4]))).require()
           for _ in range(int(sys.argv[2]))]
print("held", flush=True)
sys.stdin.readline()
print(*(permit.finish() for permit in permits), *(permit.lost for permit in permits), flush=True)
"""
LEASE = 0.6


def test_a_killed_holders_slots_come_back_after_one_lease_without_any_step(get_server: GetServer) -> None:
    """BerriAI/litellm#20256, kestra-io/kestra#14355, redisson#4462: a lock that only its holder's end would free."""
    url = get_server("valkey-9.1").url
    slots = Slots("key:a", 2, lease=LEASE)
    with python(HOLDER, url, "2", "2", str(LEASE)) as holder, Limiter(url) as limiter:
        assert said(holder) == "held"
        assert not limiter.try_acquire(slots)
        holder.kill()
        holder.wait()
        killed = time.monotonic()
        assert not limiter.try_acquire(slots), "the lease still stands"
        with limiter.acquire(slots, wait=10):
            assert time.monotonic() - killed < LEASE + 2.0


def test_when_one_of_three_holders_dies_the_others_keep_theirs(get_server: GetServer) -> None:
    """otovo/redis-rate-limiters PR#7: capacity lost for good when a process is killed."""
    url = get_server("redis-8.2").url
    slots = Slots("key:a", 3, lease=LEASE)
    with Limiter(url, deadline=10) as limiter, python(HOLDER, url, "1", "3", str(LEASE)) as dies:
        mine = [limiter.try_acquire(slots).require() for _ in range(2)]
        said(dies)
        assert not limiter.try_acquire(slots)
        dies.kill()
        dies.wait()
        third = limiter.try_acquire(slots, wait=10).require()
        assert not limiter.try_acquire(slots), "three again, no more"
        assert [permit.lost for permit in mine] == [False, False]
        assert [permit.finish().released for permit in (*mine, third)] == [True, True, True]


def test_a_holder_that_stood_still_for_longer_than_its_lease_goes_on_without_a_stall(get_server: GetServer) -> None:
    """SGrondin/bottleneck#194: after one client had stalled nobody ran any more."""
    url = get_server("valkey-9.1").url
    slots = Slots("key:a", 1, lease=LEASE)
    with Limiter(url, deadline=10) as limiter, python(HOLDER, url, "1", "1", str(LEASE)) as other:
        said(other)
        os.kill(other.pid, signal.SIGSTOP)
        mine = limiter.try_acquire(slots, wait=10).require()
        os.kill(other.pid, signal.SIGCONT)
        until(lambda: limiter.count(slots) == 2)  # it works, so it is counted, and nobody else gets in
        assert not limiter.try_acquire(slots)
        mine.finish()
        other.communicate("\n")
        with limiter.acquire(slots, wait=5):
            assert limiter.count(slots) == 1


def test_a_slot_held_for_many_leases_stays_taken() -> None:
    """llm-d/llm-d-async#335: an expiry set by the first acquire alone let the next minute in."""
    store = Tapped()
    slots = Slots("key:a", 1, lease=0.2)
    with Limiter(store) as limiter, limiter.acquire(slots):
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            assert not limiter.try_acquire(slots)
            time.sleep(0.01)
    assert store.names().count("renew") >= 5


class Heard(Hooks):
    def __init__(self) -> None:
        self.leaks: list[tuple[Slots, int]] = []
        self.lost: list[str] = []
        self.away: list[bool] = []

    def leak(self, limit: Slots, leases: int) -> None:
        self.leaks.append((limit, leases))

    def lease_lost(self, limit: Slots, permits: Sequence[BasePermit]) -> None:  # noqa: ARG002 - the hook's signature
        self.lost += [permit.id for permit in permits]

    def outage(self, away: bool) -> None:
        self.away.append(away)


def test_a_lease_that_ended_unreleased_is_counted_always_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """BerriAI/litellm#27955: aborted streams never released, and an hour of 429 left no trace."""
    store, heard, slots = Tapped(), Heard(), Slots("key:a", 2, lease=0.05)
    with Limiter(store, hooks=[heard]) as limiter:
        for n in range(3):
            limiter.handle(f"dead-{n}", slots)  # nobody renews what is held by its id alone
            limiter._run(limiter._flows._admit(tuple(limiter.handle(f"dead-{n}", slots).parts), b"dead-%d" % n))
            time.sleep(0.08)
            limiter.try_acquire(slots).require().finish()
        assert limiter.incidents["leaked"] == 3
    assert heard.leaks == [(slots, 1)] * 3
    assert caplog.text.count("ended unreleased") == 1


def test_a_detached_permit_is_finished_elsewhere_and_not_here() -> None:
    """BerriAI/litellm#27955: the slot's name got lost between the call and its callback."""
    store, slots, tokens = Tapped(), Slots("key:a", 1, lease=0.3), Window("key:a", "tokens", 100)
    with Limiter(store) as here, Limiter(store) as there:
        permit = here.try_acquire(slots, tokens.cost(50)).require()
        permit.settle(tokens.cost(20))
        token = permit.detach()
        assert permit.finish().late
        adopted = there.adopt(token)
        time.sleep(0.5)
        assert there.count(slots) == 1, "renewed there"
        outcome = adopted.finish()
        assert (outcome.released, outcome.settled, outcome.late) == (True, True, False)
        assert there.peek(tokens)[0].used == 20


def test_a_token_carries_all_that_limits_say() -> None:
    held = Slots("a", 2, lease=7, max_hold=70, tag="t", enforce=False, on_outage="open")
    counted = Slots("b", None)
    tokens = Window("c", "tokens", 100, per=9.5, on_outage=Local(0.25))
    requests = Window("d", "requests", None, tag="t", on_outage="closed")
    with Limiter("memory://") as limiter:
        token = limiter.try_acquire(held, counted, tokens.cost(5), requests).require().detach()
        adopted = [part.limit for part in limiter.adopt(token).parts]
    # By their looks, for equal limits need not have the same lease or policy.
    assert list(map(repr, adopted)) == list(
        map(repr, (replace(held, lease=7.0, max_hold=70.0), counted, tokens, requests))
    )


def test_a_detached_permit_that_nobody_adopts_ends_with_its_lease() -> None:
    store, slots = Tapped(), Slots("key:a", 1, lease=0.2)
    with Limiter(store) as limiter:
        limiter.try_acquire(slots).require().detach()
        with limiter.acquire(slots, wait=5):
            assert limiter.incidents["leaked"] == 1


def test_two_adopters_hold_one_slot_and_the_second_end_is_late() -> None:
    store, slots = Tapped(), Slots("key:a", 2, lease=30)
    with Limiter(store) as a, Limiter(store) as b:
        token = a.try_acquire(slots).require().detach()
        one, two = a.adopt(token), b.adopt(token)
        assert a.count(slots) == 1
        other = a.try_acquire(slots).require()
        assert one.finish().released
        assert two.finish().late
        assert a.count(slots) == 1, "nobody else's slot went with it"
        other.finish()


def test_a_handle_finishes_by_id_from_anywhere() -> None:
    store, slots, tokens = Tapped(), Slots("key:a", 1), Window("key:a", "tokens", 100)
    with Limiter(store) as here, Limiter(store) as there:
        held = here.try_acquire(slots, tokens.cost(50), id="req-7f3a").require()
        handle = there.handle("req-7f3a", slots, tokens)
        handle.settle(tokens.cost(7))
        assert handle.finish().released
        assert there.peek(tokens)[0].used == 7
        assert held.finish().late


def _expire(store: Tapped, slots: Slots, limiter: Limiter) -> None:
    store.model.data.pop(slots.wire(limiter._flows.naming).key)


def test_a_slot_found_lost_is_registered_anew_as_a_separate_visible_act() -> None:
    """brendanlong/lion-reader#917, redisson#4086: a late heartbeat stole the lease back."""
    store, heard, slots = Tapped(), Heard(), Slots("key:a", 1, lease=0.3)
    with Limiter(store, hooks=[heard]) as limiter:
        permit = limiter.try_acquire(slots).require()
        _expire(store, slots, limiter)
        other = limiter.try_acquire(slots).require()
        until(lambda: permit.lost)
        until(lambda: limiter.count(slots) == 2)  # true even above the limit
        assert not limiter.try_acquire(slots)
        assert heard.lost == [permit.id]
        assert (limiter.incidents["lost"], limiter.incidents["rejoined"]) == (1, 1)
        assert [p.finish().released for p in (permit, other)] == [True, True]
    assert [call.head[1] for call in store.calls if step(call) == "admit"].count(b"rejoin") == 1


def test_with_stop_a_lost_slot_is_only_reported_and_its_release_says_late() -> None:
    """brendanlong/lion-reader#917: the release of an expired permit said it was fine."""
    store, slots = Tapped(), Slots("key:a", 1, lease=0.3)
    with Limiter(store, on_lost="stop") as limiter:
        permit = limiter.try_acquire(slots).require()
        _expire(store, slots, limiter)
        until(lambda: permit.lost)
        time.sleep(0.3)
        assert limiter.count(slots) == 0
        other = limiter.try_acquire(slots).require()
        outcome = permit.finish()
        assert (outcome.released, outcome.late) == (False, True)
        assert limiter.count(slots) == 1, "B's"
        other.finish()


def test_a_function_is_told_of_lost_permits_and_decides() -> None:
    store, slots, told = Tapped(), Slots("key:a", 2, lease=0.3), []

    def on_lost(permit: BasePermit) -> Any:  # noqa: ANN401 - "stop", or by accident nothing
        told.append(permit.id)
        if permit.id == "c":
            raise ValueError(permit)
        return "stop" if permit.id == "a" else None

    with Limiter(store, on_lost=on_lost) as limiter:
        permits = [limiter.try_acquire(Slots("key:a", 9, lease=0.3), id=id).require() for id in "abc"]
        _expire(store, slots, limiter)
        until(lambda: len(told) == 3)
        until(lambda: limiter.count(slots) == 2)
        assert [permit.finish().released for permit in permits] == [False, True, True]


def test_an_abandoned_permit_is_reported_and_its_lease_runs_out(caplog: pytest.LogCaptureFixture) -> None:
    store, slots = Tapped(), Slots("key:a", 1, lease=0.3)
    with Limiter(store) as limiter:
        limiter.try_acquire(slots)
        with pytest.warns(ResourceWarning, match="dropped without finish"):
            until(lambda: limiter.incidents["abandoned"] == 1)
        with limiter.acquire(slots, wait=5):
            pass
    assert "dropped without finish" in caplog.text


def test_an_abandoned_permit_does_not_end_the_renewals_of_others_where_warnings_are_errors() -> None:
    store = Tapped()
    with Limiter(store) as limiter:  # warnings are errors in these tests
        limiter.try_acquire(Slots("key:a", 1, lease=0.2))
        with limiter.acquire(Slots("key:b", 1, lease=0.2)) as kept:
            until(lambda: limiter.incidents["abandoned"] == 1)
            time.sleep(0.5)
            assert not kept.lost
            assert not limiter.try_acquire(Slots("key:b", 1, lease=0.2))


def test_renewal_ends_at_max_hold(caplog: pytest.LogCaptureFixture) -> None:
    store, slots = Tapped(), Slots("key:a", 1, lease=0.2, max_hold=0.5)
    with Limiter(store) as limiter:
        began = time.monotonic()
        permit = limiter.try_acquire(slots).require()
        with limiter.acquire(slots, wait=10):
            assert time.monotonic() - began > 0.4
        assert permit.finish().late
    assert "max_hold" in caplog.text


def test_a_shorter_lease_wakes_the_renewer() -> None:
    store = Tapped()
    with Limiter(store) as limiter:
        long = limiter.try_acquire(Slots("key:a", 2, lease=600)).require()
        time.sleep(0.05)  # it sleeps for minutes now
        with limiter.acquire(Slots("key:a", 2, lease=0.2)) as short:
            time.sleep(0.6)
            assert not short.lost
            assert limiter.count(Slots("key:a", 2)) == 2
        long.finish()


def test_a_thousand_and_one_permits_are_renewed_in_two_calls() -> None:
    store, slots = Tapped(), Slots("key:a", None, lease=600)
    with Limiter(store) as limiter:
        permits = [limiter.try_acquire(slots).require() for _ in range(1001)]
        key = slots.wire(limiter._flows.naming).key
        upkeep = limiter._flows.upkeep
        again = drive(upkeep._renew_gauge(key, upkeep.gauges[key]), store, time.sleep)
        assert again == 200, "a third of the lease"
        assert [len(call.permits) for call in store.calls if call.script.name == "renew"] == [1000, 1]
        for permit in permits:
            permit.finish()


def test_an_end_that_overtakes_a_rejoin_leaves_nothing() -> None:
    store, slots = Tapped(), Slots("key:a", 1, lease=600)
    with Limiter(store) as limiter:
        permit = limiter.try_acquire(slots).require()

        def end_first(call: Call) -> None:
            if b"rejoin" in call.head and permit.is_open:
                permit.finish()

        store.before = end_first
        _expire(store, slots, limiter)
        key, upkeep = slots.wire(limiter._flows.naming).key, limiter._flows.upkeep
        drive(upkeep._renew_gauge(key, upkeep.gauges[key]), store, time.sleep)
        assert not permit.is_open
        until(lambda: limiter.count(slots) == 0)


async def test_an_asynchronous_limiter_renews_in_a_task(get_server: GetServer) -> None:
    import asyncio

    slots = Slots("key:a", 1, lease=1.2)
    async with AsyncLimiter(get_server("valkey-9.1").url, deadline=10) as limiter, limiter.acquire(slots) as permit:
        for _ in range(30):
            await asyncio.sleep(0.08)
            assert not await limiter.try_acquire(slots)
        assert not permit.lost


@pytest.mark.parametrize("name", ["valkey-9.1", "redis-6.2"])
def test_a_slot_survives_an_outage_shorter_than_its_lease(private_server: PrivateServer, name: str) -> None:
    server = private_server(name)
    slots = Slots("key:a", 1, lease=4)
    with Limiter(server.url, deadline=0.5) as limiter, limiter.acquire(slots) as permit:
        time.sleep(1)
        server.pause()
        time.sleep(1)  # a renewal falls into it
        server.resume()
        time.sleep(3)
        assert not permit.lost
        assert limiter.count(slots) == 1
        with pytest.raises(LimitExceeded), limiter.acquire(slots):
            pass


def test_a_wrapped_stream_finishes_its_permit_when_it_ends_fails_or_is_closed() -> None:
    store, slots = Tapped(), Slots("key:a", 1)

    def numbers() -> Any:  # noqa: ANN401 - a generator
        yield 1
        yield 2
        raise ValueError

    with Limiter(store) as limiter:
        permit: Permit = limiter.try_acquire(slots).require()
        assert list(permit.wrap([1, 2])) == [1, 2]
        assert limiter.count(slots) == 0
        with pytest.raises(ValueError), limiter.try_acquire(slots).require().wrap(numbers()) as stream:  # noqa: PT011
            list(stream)
        assert limiter.count(slots) == 0
        with limiter.try_acquire(slots).require().wrap(numbers()) as stream:
            assert next(stream) == 1
        assert limiter.count(slots) == 0
