"""What is decided while the server is away, and that it is told afterwards."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from pyslot import AsyncLimiter, Limiter, Local, Slots, StoreUnavailable, UsageError, Window
from pyslot.calls import parts_of
from pyslot.errors import StoreBusy
from pyslot.keys import hash_slot
from pyslot.loader import Call
from pyslot.policy import Policy
from tests.adapters.helpers import Mute, silence
from tests.conftest import GetServer, PrivateServer
from tests.life.helpers import Tapped, until
from tests.life.test_leases import Heard
from tests.servers.binaries import binary
from tests.servers.process import Cluster

SLOTS = Slots("key:a", 4)
TOKENS = Window("key:a", "tokens", 100)


class Away(Tapped):
    """A store whose server can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.asked = 0
        self.before = self._before

    def _before(self, call: Call) -> None:
        self.asked += call.script.name != "reset"
        if self.away:
            raise StoreUnavailable("away, says the test")


def back(store: Away, limiter: Limiter) -> None:
    store.away = False
    until(lambda: not limiter._flows.upkeep.outage.troubled)
    until(lambda: not limiter._flows.upkeep.backlog.queues)


@pytest.mark.parametrize("scheme", ["redis", "valkey", "redis+cluster", "valkey+cluster"])
def test_a_server_that_accepts_and_never_answers_is_an_outage_within_the_deadline(scheme: str) -> None:
    """Future-House/ldp#460, docs-plus#211, DashClaw#222: a limiter that hung on a silent connection."""
    with Mute() as mute, Limiter(f"{scheme}://{mute.address}", deadline=0.4) as limiter:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            limiter.try_acquire(SLOTS)
        assert 0.05 < time.monotonic() - began < 2.0


@pytest.mark.parametrize("scheme", ["redis", "valkey", "redis+cluster", "valkey+cluster"])
async def test_asynchronously_too(scheme: str) -> None:
    with Mute() as mute:
        async with AsyncLimiter(f"{scheme}://{mute.address}", deadline=0.4) as limiter:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await limiter.try_acquire(SLOTS)
            assert 0.05 < time.monotonic() - began < 2.0


class Sluggish:
    """Says OK to everything, each time after a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *exc: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._socket.accept()[0],), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link, suppress(OSError):
            while data := link.recv(65536):
                for _ in range(data.count(b"*")):
                    time.sleep(self._seconds)
                    link.sendall(b"+OK\r\n")


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_the_steps_of_a_call_take_no_longer_together_than_its_deadline(scheme: str) -> None:
    """A greeting, a login, a database and a script, each within the client's time-out."""
    with Sluggish(0.9) as address, Limiter(f"{scheme}://:pw@{address}/1", deadline=1.0) as limiter:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            limiter.try_acquire(SLOTS)
        assert time.monotonic() - began < 1.75


def test_an_outage_costs_one_time_out_and_one_probe_ends_it(
    private_server: PrivateServer, caplog: pytest.LogCaptureFixture
) -> None:
    """BerriAI/litellm PR#24181: every call waited 8 s."""
    server, heard = private_server("valkey-9.1"), Heard()
    with Limiter(server.url, deadline=0.5, hooks=[heard]) as limiter:
        limiter.try_acquire(SLOTS).require().finish()
        silence(server)
        took = []
        for _ in range(30):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                limiter.try_acquire(SLOTS)
            took.append(time.monotonic() - began)
        assert took[0] > 0.3
        assert sorted(took)[-2] < 0.1, "nobody else waited"
        server.resume()
        until(lambda: not limiter._flows.upkeep.outage.troubled)
        limiter.try_acquire(SLOTS).require().finish()
    assert heard.away == [True, False]
    assert caplog.text.count(" is away") == caplog.text.count(" is back") == 1


def test_many_callers_send_one_probe() -> None:
    store = Away()
    with Limiter(store, on_outage="closed") as limiter:
        store.away = True
        limiter.try_acquire(SLOTS)
        asked = store.asked
        threads = [threading.Thread(target=lambda: [limiter.try_acquire(SLOTS) for _ in range(50)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.asked == asked, "the server heard of none of the 400"
        back(store, limiter)
        assert limiter.try_acquire(SLOTS)


def test_the_breaker_can_be_turned_off() -> None:
    """BerriAI/litellm#30211."""
    store = Away()
    with Limiter(store, breaker=False) as limiter:
        store.away = True
        for n in range(5):
            with pytest.raises(StoreUnavailable, match="away, says the test"):
                limiter.peek(SLOTS)
            assert store.asked == n + 1
        store.away = False
        assert limiter.try_acquire(SLOTS)


@pytest.mark.parametrize(("policy", "granted"), [("closed", False), ("open", True), (Local(0.5), True)])
def test_a_policy_decides_and_says_so(policy: Policy, granted: bool) -> None:
    store = Away()
    with Limiter(store, on_outage=policy) as limiter:
        store.away = True
        for _ in range(2):
            decision = limiter.try_acquire(SLOTS, TOKENS.cost(10))
            assert bool(decision) is granted
            assert decision.degraded
            if decision.permit:
                decision.permit.finish()
        assert bool(limiter.charge(TOKENS.cost(10))) is granted
        back(store, limiter)
        assert not limiter.try_acquire(SLOTS).degraded


def test_a_limit_may_have_a_policy_of_its_own() -> None:
    store = Away()
    lax = Window("key:a", "requests", 10, on_outage="open")
    strict = Window("key:a", "tokens", 100, on_outage="closed")
    with Limiter(store) as limiter:
        store.away = True
        assert limiter.try_acquire(lax)
        assert not limiter.try_acquire(lax, strict.cost(1))
        with pytest.raises(StoreUnavailable):
            limiter.try_acquire(lax, strict.cost(1), SLOTS)
        back(store, limiter)
    with pytest.raises(UsageError, match="on_outage must be"):
        Slots("a", 1, on_outage="maybe")  # type: ignore[arg-type]


def test_local_admits_its_share_and_the_limits_as_given(caplog: pytest.LogCaptureFixture) -> None:
    """BerriAI/litellm#35533, flask-limiter#16: on an error the limit became N times itself, or another one."""
    store = Away()
    four, one = Slots("key:a", 4), Slots("key:b", 1)
    with Limiter(store, on_outage=Local(0.5)) as limiter:
        store.away = True
        held = [limiter.try_acquire(four, TOKENS.cost(20)) for _ in range(4)]
        assert [bool(decision) for decision in held] == [True, True, False, False]
        assert held[2].refused_by == (four, TOKENS)
        assert [bool(limiter.try_acquire(one, id=f"b{n}")) for n in range(2)] == [True, False], "at least one"
        assert not limiter.charge(TOKENS.cost(11)), "40 of its 50 are taken"
        assert limiter.charge(TOKENS.cost(10))
        held[0].require().finish()
        assert limiter.try_acquire(four)
        assert not limiter.try_acquire(Slots("key:c", 0))
        assert limiter.try_acquire(TOKENS.cost(101)).retry_after is None
        back(store, limiter)
    assert caplog.text.count("the outage policy decides") == 1


def test_local_counts_what_others_were_last_seen_to_hold_until_their_leases_have_ended() -> None:
    store, slots = Away(), Slots("key:a", 4, lease=0.6)
    with Limiter(store) as others, Limiter(store, on_outage=Local(1.0)) as limiter:
        theirs = [others.try_acquire(slots, TOKENS.cost(30)).require() for _ in range(3)]
        mine = limiter.try_acquire(slots, TOKENS.cost(5)).require()
        store.away = True
        assert not limiter.try_acquire(slots), "3 of theirs and 1 of ours"
        assert not limiter.charge(TOKENS.cost(6)), "90 of theirs and 5 of ours"
        assert limiter.charge(TOKENS.cost(5))
        time.sleep(0.7)
        assert limiter.try_acquire(slots), "theirs would have been renewed, for all that is known here"
        back(store, limiter)
        for permit in (*theirs, mine):
            permit.finish()


def test_local_admits_no_more_than_its_share_to_many_threads() -> None:
    store, slots = Away(), Slots("key:a", 20)
    with Limiter(store, on_outage=Local(0.5)) as limiter:
        store.away = True
        granted: list[object] = []
        barrier = threading.Barrier(8)

        def ask() -> None:
            barrier.wait()
            granted.extend(decision for _ in range(20) if (decision := limiter.try_acquire(slots)))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(granted) == 10
        back(store, limiter)


def test_what_local_has_granted_counts_before_it_is_held() -> None:
    """Between two steps of one thread another may ask."""
    with Limiter(Away(), on_outage=Local(0.25)) as limiter:
        parts = parts_of((SLOTS,), limiter._flows.naming)
        outage = limiter._flows._outage
        assert [outage.decide(parts, id).status for id in (b"a", b"b", b"a")] == [1, 0, 1]


def test_permits_granted_in_an_outage_are_counted_when_the_server_is_back_charges_too() -> None:
    store = Away()
    with Limiter(store, on_outage="open") as limiter:
        store.away = True
        open_ = [limiter.try_acquire(SLOTS, TOKENS.cost(30)).require() for _ in range(5)]
        ended = limiter.try_acquire(SLOTS, TOKENS.cost(40)).require()
        ended.settle(TOKENS.cost(7))
        outcome = ended.finish()
        assert (outcome.released, outcome.settled, outcome.late) == (True, True, False)
        limiter.charge(TOKENS.cost(2))
        back(store, limiter)
        assert limiter.peek(SLOTS, TOKENS)[0].used == 5, "true, even above the limit"
        assert limiter.peek(TOKENS)[0].used == 5 * 30 + 7 + 2
        assert not limiter.try_acquire(SLOTS)
        assert [permit.lost for permit in open_] == [False] * 5
        assert [permit.finish().released for permit in open_] == [True] * 5
        assert limiter.count(SLOTS) == 0


def test_a_charge_of_a_window_that_is_over_is_not_made_in_the_next_one() -> None:
    store, short = Away(), Window("key:a", "tokens", 100, per=0.2)
    with Limiter(store, on_outage="open") as limiter:
        store.away = True
        limiter.try_acquire(short.cost(30)).require()
        time.sleep(0.3)
        back(store, limiter)
        assert limiter.peek(short)[0].used == 0


def test_a_permit_granted_before_an_outage_ends_in_it_without_an_error_where_a_policy_decides() -> None:
    store = Away()
    with Limiter(store, on_outage="open") as limiter:
        permit = limiter.try_acquire(SLOTS, TOKENS.cost(40)).require()
        permit.settle(TOKENS.cost(7))
        store.away = True
        outcome = permit.finish()
        assert (outcome.released, outcome.settled, outcome.late) == (False, False, False)
        back(store, limiter)
        assert limiter.peek(SLOTS)[0].used == 0
        assert limiter.peek(TOKENS)[0].used == 7


def test_an_undo_does_not_end_a_permit_that_the_policy_granted() -> None:
    store = Away()
    with Limiter(store, on_outage="open") as limiter:
        limiter._flows.upkeep.backlog._again_after = 0.05
        store.after = lambda _: None
        store.away = True
        permit = limiter.try_acquire(SLOTS, TOKENS.cost(10), id="job-1").require()
        back(store, limiter)
        time.sleep(0.3)
        assert limiter.count(SLOTS) == 1
        assert permit.finish().released


@pytest.mark.parametrize("name", ["valkey-9.1", "redis-7.0"])
def test_a_master_that_was_demoted_for_a_moment_is_not_noticed(private_server: PrivateServer, name: str) -> None:
    """envoyproxy/ratelimit#1191, redis-py#460, sidekiq#5271: READONLY for ever after a fail-over."""
    server = private_server(name)
    with Limiter(server.url, deadline=3.0) as limiter:
        limiter.try_acquire(SLOTS).require().finish()
        server.command("REPLICAOF", "127.0.0.1", 1)
        timer = threading.Timer(0.4, lambda: server.command("REPLICAOF", "NO", "ONE"))
        timer.start()
        assert limiter.try_acquire(SLOTS)
        timer.join()
        assert limiter.incidents["outages"] == 0
        server.command("REPLICAOF", "127.0.0.1", 1)
        with pytest.raises(StoreUnavailable):
            limiter.try_acquire(SLOTS)
        server.command("REPLICAOF", "NO", "ONE")
        until(lambda: not limiter._flows.upkeep.outage.troubled)
        assert limiter.try_acquire(SLOTS)


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_a_restart_within_the_deadline_is_not_noticed(private_server: PrivateServer, scheme: str) -> None:
    server = private_server("valkey-9.1")
    with Limiter(f"{scheme}://{server.address}", deadline=3.0) as limiter:
        limiter.peek(SLOTS)
        server.stop()
        timer = threading.Timer(0.3, server.start)
        timer.start()
        assert limiter.try_acquire(SLOTS)
        timer.join()


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_a_full_pool_waits_its_turn_and_is_no_outage(get_server: GetServer, scheme: str) -> None:
    server = get_server("valkey-9.1")
    url = f"{scheme}://{server.address}?max_connections=1"
    with Limiter(url, deadline=0.4, on_outage="open") as limiter:
        pool: Any = limiter._store._client.connection_pool  # type: ignore[attr-defined]
        held = pool.get_connection(*(["EVALSHA"] if scheme == "valkey" else []))
        with pytest.raises(StoreBusy, match="pool is full"):
            limiter.try_acquire(SLOTS)
        threading.Timer(0.1, lambda: pool.release(held)).start()
        assert not limiter.try_acquire(SLOTS).degraded
        assert limiter.incidents["outages"] == 0


@pytest.fixture(scope="module")
def own_cluster() -> Any:  # noqa: ANN401 - a generator
    with Cluster(binary("valkey-9.1"), "--cluster-allow-reads-when-down", "yes") as cluster:
        yield cluster


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_one_silent_node_of_a_cluster_does_not_hold_up_calls_to_the_others(own_cluster: Cluster, scheme: str) -> None:
    """envoyproxy/ratelimit#265, BerriAI/litellm#37863: one slow node stalled all."""
    node = own_cluster.masters[0]
    limits = [Slots(f"key:{n}", None) for n in range(60)]
    there = [s for s in limits if hash_slot(s.subject.encode()) < 16_384 // 3]
    elsewhere = [s for s in limits if hash_slot(s.subject.encode()) > 16_384 // 3 + 1]
    with Limiter(f"{scheme}+cluster://{own_cluster.masters[1].address}", deadline=0.6) as limiter:
        for slots in limits:
            limiter.count(slots)
        node.pause()
        try:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                limiter.count(there[0])
            assert time.monotonic() - began < 1.2
            for slots in there[1:]:
                began = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    limiter.count(slots)
                assert time.monotonic() - began < 0.6
            for slots in elsewhere[:10]:
                began = time.monotonic()
                limiter.count(slots)
                assert time.monotonic() - began < 0.6
        finally:
            node.resume()
        until(lambda: not limiter._flows.upkeep.outage.troubled)
        until(lambda: all(node.command("CLUSTER", "INFO").count("cluster_state:ok") for node in own_cluster.masters))


async def test_an_asynchronous_outage_costs_one_time_out(private_server: PrivateServer) -> None:
    server = private_server("valkey-9.1")
    async with AsyncLimiter(server.url, deadline=0.4, on_outage=Local(0.5)) as limiter:
        assert not (await limiter.try_acquire(SLOTS, id="a")).degraded
        silence(server)
        began = time.monotonic()
        decisions = [await limiter.try_acquire(SLOTS, id=f"b{n}") for n in range(4)]
        assert time.monotonic() - began < 1.0
        assert [bool(d) for d in decisions] == [True, False, False, False], "one of its two is held already"
        server.resume()
        async with asyncio.timeout(10):
            while limiter._flows.upkeep.outage.troubled or limiter._flows.upkeep.backlog.queues:  # noqa: ASYNC110 - there is nothing to be told by
                await asyncio.sleep(0.01)
        assert await limiter.count(SLOTS) == 2
