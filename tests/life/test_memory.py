"""Servers that run out of memory, evict what is in use, or have very much to forget."""

from __future__ import annotations

import time

import pytest

from pyslot import Limiter, Slots, StoreError, Window
from pyslot.adapters.base import open_store
from pyslot.calls import RESERVE
from pyslot.keys import Naming
from pyslot.loader import Call
from tests.conftest import PrivateServer
from tests.life.helpers import until
from tests.servers.process import Server

SLOTS, TOKENS = Slots("key:a", 5, lease=1.0), Window("key:a", "tokens", 100)
SOME = pytest.mark.parametrize("server_name", ["redis-6.2", "redis-8.2", "valkey-9.1"])


def used_memory(server: Server) -> int:
    return int(server.command("INFO", "memory").partition("used_memory:")[2].split()[0])


@SOME
def test_out_of_memory_an_acquire_fails_whole_and_a_release_works(
    private_server: PrivateServer, server_name: str
) -> None:
    """redis#8478, redis#8623: out of memory in the midst of a script."""
    server = private_server(server_name, "--maxmemory-policy", "noeviction")
    others, fresh = Slots("key:b", 5, tag="key:a"), Window("key:b", "tokens", 100, tag="key:a")
    with Limiter(server.url) as limiter:
        permit = limiter.try_acquire(SLOTS, TOKENS.cost(50)).require()
        server.command("CONFIG", "SET", "maxmemory", 1)
        before = [status.used for status in limiter.peek(SLOTS, TOKENS, others, fresh)]
        for asked in ((SLOTS,), (TOKENS.cost(1),), (others, fresh.cost(1)), (SLOTS, TOKENS.cost(1), others)):
            with pytest.raises(StoreError, match=r"maxmemory|OOM"):
                limiter.try_acquire(*asked, id="new")
        assert [status.used for status in limiter.peek(SLOTS, TOKENS, others, fresh)] == before
        time.sleep(1.5)
        assert not permit.lost, "renewals are not refused"
        permit.settle(TOKENS.cost(7))
        outcome = permit.finish()
        assert (outcome.released, outcome.settled, outcome.late) == (True, True, False)
        assert [status.used for status in limiter.peek(SLOTS, TOKENS)] == [0, 7]
        assert limiter.incidents["outages"] == 0, "it is no outage"
        server.command("CONFIG", "SET", "maxmemory", 0)
        assert limiter.try_acquire(SLOTS)


@SOME
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl"])
def test_a_gauge_evicted_while_it_is_held_is_noticed_counted_and_rejoined(
    private_server: PrivateServer, server_name: str, policy: str
) -> None:
    """selhorys/dataspoke-baseline#112: a cache in the same database pushed the limiter out."""
    server = private_server(server_name)
    with Limiter(server.url, deadline=5) as limiter:
        permits = [limiter.try_acquire(SLOTS).require() for _ in range(4)]
        key = SLOTS.wire(limiter._flows.naming).key
        server.command("CONFIG", "SET", "maxmemory-samples", 64)
        server.command("CONFIG", "SET", "maxmemory-policy", policy)
        server.command("CONFIG", "SET", "maxmemory", used_memory(server) + 300_000)
        n = 0
        while server.command("EXISTS", key):
            server.command("EVAL", _FILL, 0, n)
            n += 1
            assert n < 3000, "it was not evicted"
        until(lambda: all(permit.lost for permit in permits))
        until(lambda: limiter.incidents["rejoined"] >= 4)
        until(lambda: limiter.count(SLOTS) == 4)
        server.command("CONFIG", "SET", "maxmemory", 0)
        assert limiter.incidents["lost"] >= 4
        for permit in permits:
            permit.finish()


_FILL = """
for i = 1, 50 do
  local key = 'cache:' .. ARGV[1] .. ':' .. i
  redis.call('SET', key, string.rep('x', 200), 'EX', 1000000)
  redis.call('GET', key)
end
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("server_name", ["redis-8.2", "valkey-9.1"])
def test_a_window_of_a_million_entries_rolls_without_holding_the_server(
    private_server: PrivateServer, server_name: str
) -> None:
    """It is freed by the server's background thread, not by the one that serves."""
    server = private_server(server_name)
    huge = Window("key:a", "tokens", None, per=3600)
    key = huge.wire(Naming()).key
    store = open_store(server.url, 30.0)
    for n in range(1000):
        ids = [word for k in range(1000) for word in (b"%d-%d" % (n, k), b"1")]
        store.run(Call(RESERVE, (key,), (b"1000000", b"", b"-", b"3600000"), tuple(ids)))
    assert server.command("HLEN", key) == 1_000_002
    assert _freed_behind(server) == 0
    store.run(Call(RESERVE, (key,), (b"5000000", b"", b"-", b"3600000"), (b"next", b"1")))
    assert server.command("HLEN", key) == 3
    until(lambda: _freed_behind(server) == 1, 60)
    store.close()


def _freed_behind(server: Server) -> int:
    return int(server.command("INFO", "memory").partition("lazyfreed_objects:")[2].split()[0])
