"""valkey-glide on real servers that refuse, fall silent, die and come back."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import glide
import glide_sync
import pytest

from pyslot import AsyncLimiter, Limiter, Slots
from pyslot.adapters.base import PipelineStore, open_async_store, open_store
from pyslot.errors import StoreError, StoreUnavailable, UsageError
from pyslot.loader import Call
from tests.adapters.helpers import GAUGE, HSET, WINDOW, AnyStore, Flaky, close, echo, run, script, silence, zadd
from tests.conftest import PrivateServer
from tests.servers.process import Cluster, Server

SECRET = "s3cr%23t"
BOTH = pytest.mark.parametrize("open_", [open_store, open_async_store], ids=["sync", "async"])
ENDS = pytest.mark.parametrize("server_name", ["redis-6.2", "valkey-9.1"])
NEWEST = pytest.mark.parametrize("server_name", ["valkey-9.1"])

Open = Callable[[object, float], AnyStore]


def url(server: Server, rest: str = "") -> str:
    return f"glide://{server.address}{rest}"


@BOTH
@ENDS
async def test_what_the_server_declines_is_an_error_that_says_what_and_where(
    open_: Open, private_server: PrivateServer, server_name: str
) -> None:
    server = private_server(server_name)
    store = open_(url(server), 2.0)
    server.command("SET", GAUGE.decode(), "x")
    with pytest.raises(
        StoreError, match=rf"{server.address}: WRONGTYPE: the key .*a\}}:s' holds a string where a zset"
    ):
        await run(store, zadd())
    server.command("DEL", GAUGE.decode())
    server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreError, match="command not allowed when used memory"):
        await run(store, zadd())
    server.command("CONFIG", "SET", "maxmemory", "0")
    server.command("ACL", "SETUSER", "default", "-zadd")
    with pytest.raises(StoreError, match=r"permissions to run the 'zadd' command|can't run this command"):
        await run(store, zadd())
    server.command("ACL", "SETUSER", "default", "+zadd")
    with pytest.raises(StoreError, match="pyslot: no"):
        await run(store, echo()._replace(script=script("return redis.error_reply('ERR pyslot: no')")))
    assert await run(store, zadd()) == [1]
    await close(store)


@BOTH
@ENDS
async def test_a_replica_and_one_without_its_master_are_outages(
    open_: Open, private_server: PrivateServer, server_name: str
) -> None:
    server = private_server(server_name)
    store = open_(url(server), 0.5)
    assert await run(store, zadd()) == [1]
    server.command("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StoreUnavailable, match="read only replica"):
        await run(store, zadd())
    server.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    with pytest.raises(StoreUnavailable, match="MASTER is down"):
        await run(store, zadd())
    server.command("REPLICAOF", "NO", "ONE")
    assert await run(store, zadd(b"n")) == [2]
    await close(store)


@BOTH
@NEWEST
async def test_a_server_s_silence_costs_the_deadline_and_is_over_when_it_speaks(
    open_: Open, private_server: PrivateServer, server_name: str
) -> None:
    server = private_server(server_name)
    store = open_(url(server), 0.5)
    assert await run(store, echo()) == [1, 1, 5, 7]
    silence(server)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await run(store, echo())
    assert 0.4 < time.monotonic() - began < 5
    server.resume()
    assert await run(store, echo(8)) == [1, 1, 8, 7]
    await close(store)


@ENDS
async def test_in_a_pipeline_each_call_fails_or_answers_by_itself(server: Server, server_name: str) -> None:
    store = open_async_store(url(server), 2.0)
    assert isinstance(store, PipelineStore)
    server.command("SCRIPT", "FLUSH")
    server.command("SET", WINDOW.decode(), "x")
    answers: dict[int, Any] = {}
    broken = Call(HSET, (WINDOW,), ())
    await store.run_many([echo(1), broken, echo(2), zadd()], answers.__setitem__)
    assert isinstance(answers.pop(1), StoreError)
    assert answers == {0: [1, 1, 1, 7], 2: [1, 1, 2, 7], 3: [1]}
    await close(store)


@NEWEST
async def test_a_pipeline_into_silence_costs_the_deadline_once(private_server: PrivateServer, server_name: str) -> None:
    server = private_server(server_name)
    store = open_async_store(url(server), 0.5)
    assert isinstance(store, PipelineStore)
    await run(store, echo())
    silence(server)
    answers: dict[int, Any] = {}
    began = time.monotonic()
    await store.run_many([echo(n) for n in range(40)], answers.__setitem__)
    assert 0.4 < time.monotonic() - began < 5, "not once for each call"
    assert [type(answers[n]) for n in range(40)] == [StoreUnavailable] * 40
    server.resume()
    assert await run(store, echo(8)) == [1, 1, 8, 7]
    await close(store)


@BOTH
@NEWEST
async def test_a_server_may_come_late_die_and_come_back(
    open_: Open, private_server: PrivateServer, server_name: str
) -> None:
    server = private_server(server_name)
    server.stop()
    store = open_(url(server), 1.0)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await run(store, echo())
        server.start()
        await comes_back(store)
        server.stop()
    server.start()
    await close(store)


async def comes_back(store: AnyStore) -> None:
    """Within some seconds: glide tries again by itself, with pauses."""
    for _ in range(20):
        try:
            assert await run(store, echo()) == [1, 1, 5, 7]
        except StoreUnavailable:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("it did not come back")


@BOTH
@NEWEST
async def test_a_connection_that_was_closed_is_made_anew_within_the_call(
    open_: Open, server: Server, server_name: str
) -> None:
    store = open_(url(server), 2.0)
    for i in range(5):
        assert await run(store, echo(i)) == [1, 1, i, 7]
        server.command("CLIENT", "KILL", "TYPE", "normal")
        await asyncio.sleep(0.01)
    await close(store)


@BOTH
@NEWEST
async def test_a_login_is_used_and_a_wrong_one_is_no_outage(
    open_: Open, private_server: PrivateServer, server_name: str
) -> None:
    server = private_server(server_name)
    server.command("ACL", "SETUSER", "me", "on", ">s3cr#t", "~*", "+@all")
    server.command("ACL", "SETUSER", "default", ">s3cr#t")
    for login in (f"me:{SECRET}", f":{SECRET}"):
        store = open_(f"glide://{login}@{server.address}/2", 2.0)
        assert await run(store, echo()) == [1, 1, 5, 7]
        await close(store)
    for login in ("me:wrong@", ""):
        store = open_(f"glide://{login}{server.address}", 2.0)
        with pytest.raises(StoreError, match=r"WRONGPASS|NOAUTH|AuthenticationFailed"):
            await run(store, echo())
        await close(store)


@BOTH
@NEWEST
async def test_a_call_whose_connection_breaks_is_sent_again(open_: Open, server: Server, server_name: str) -> None:
    with Flaky(server.port, drops=1) as relay:
        store = open_(f"glide://{relay.address}", 5.0)
        assert await run(store, echo()) == [1, 1, 5, 7]
        assert relay.sent >= 2
        await close(store)


@NEWEST
def test_each_event_loop_has_a_client_of_its_own(server: Server, server_name: str) -> None:
    store = open_async_store(url(server), 2.0)
    for i in range(3):
        assert asyncio.run(run(store, echo(i))) == [1, 1, i, 7]
    asyncio.run(close(store))


@NEWEST
async def test_cancelled_calls_leave_no_reply_behind(private_server: PrivateServer, server_name: str) -> None:
    server = private_server(server_name)
    store = open_async_store(url(server), 5.0)
    await run(store, echo())
    for round_ in range(5):
        silence(server)
        tasks = [asyncio.ensure_future(run(store, echo(round_, i))) for i in range(12)]
        await asyncio.sleep(0.02)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.sleep(0)
        server.resume()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends[::2])
        assert ends[1::2] == [[1, 1, round_, i] for i in range(1, 12, 2)]
        again = await asyncio.gather(*(run(store, echo(-round_, i)) for i in range(12)))
        assert again == [[1, 1, -round_, i] for i in range(12)]
    await close(store)


@NEWEST
def test_threads_share_one_client_and_get_their_own_replies(server: Server, server_name: str) -> None:
    store = open_store(url(server), 5.0)
    wrong: list[object] = []

    def work(i: int) -> None:
        wrong.extend((i, n) for n in range(100) if store.run(echo(i, n)) != [1, 1, i, n])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    store.close()


@NEWEST
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_a_client_of_its_own(server: Server, server_name: str) -> None:
    store = open_store(url(server), 2.0)
    assert store.run(echo()) == [1, 1, 5, 7]
    for _ in range(3):
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # else a hang of the child would be one of the test
            try:
                os._exit(0 if store.run(echo(9)) == [1, 1, 9, 7] else 1)
            finally:
                os._exit(2)
        assert store.run(echo(3)) == [1, 1, 3, 7]
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.close()


@pytest.mark.parametrize("cluster_name", ["valkey-9.1"])
@BOTH
async def test_a_call_goes_to_the_node_that_has_its_keys(open_: Open, cluster: Cluster, cluster_name: str) -> None:
    store = open_(f"glide+cluster://{cluster.address},{cluster.nodes[1].address}", 5.0)
    assert store.cluster
    keys = [b"pyslot:v1:{%d}:s" % i for i in range(30)]
    for key in keys:
        assert await run(store, zadd()._replace(keys=(key,))) == [1]
    assert sum(node.command("DBSIZE") for node in cluster.masters) == len(keys)
    assert all(node.command("DBSIZE") for node in cluster.masters)
    with pytest.raises(StoreError, match=r"[Ss]lot"):
        await run(store, zadd()._replace(script=HSET, keys=(keys[0], keys[1])))
    await close(store)


@NEWEST
async def test_a_client_that_is_passed_in_is_used_and_left_open(server: Server, server_name: str) -> None:
    sync_client = glide_sync.GlideClient.create(
        glide_sync.GlideClientConfiguration([glide_sync.NodeAddress(server.host, server.port)])
    )
    async_client = await glide.GlideClient.create(
        glide.GlideClientConfiguration([glide.NodeAddress(server.host, server.port)])
    )
    slots = Slots("key:a", 1)
    with Limiter(sync_client) as limiter, limiter.acquire(slots):
        assert server.address in repr(limiter)
        async with AsyncLimiter(async_client) as other:
            assert not await other.try_acquire(slots)
    assert sync_client.custom_command(["PING"]) == b"PONG"
    assert await async_client.custom_command(["PING"]) == b"PONG"
    with pytest.raises(UsageError, match="Limiter can't use glide's GlideClient: pass that to AsyncLimiter"):
        open_store(async_client, 1.0)
    with pytest.raises(UsageError, match="AsyncLimiter can't use glide_sync's GlideClient: pass that to Limiter"):
        open_async_store(sync_client, 1.0)
    sync_client.close()
    await async_client.close()
    store = open_store(sync_client, 1.0)
    with pytest.raises(glide_sync.ClosingError):
        store.run(echo())


@NEWEST
def test_a_patient_client_is_warned_about(server: Server, server_name: str) -> None:
    address = [glide_sync.NodeAddress(server.host, server.port)]
    patient = glide_sync.GlideClient.create(glide_sync.GlideClientConfiguration(address, request_timeout=2_000))
    with pytest.warns(RuntimeWarning, match="waits for 2 s, longer than the deadline of 1 s") as caught:
        Limiter(patient)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_store(patient, 2.0)
    patient.close()


@BOTH
@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("glide://h", "h:6379"),
        ("glide://h:1/2", "h:1"),
        ("glides://h:2", "h:2"),
        ("glide+cluster://h:3,i:4", "h:3"),
        ("glides+cluster://h:3", "h:3"),
    ],
)
def test_every_form_of_url_is_read_and_none_shows_its_password(open_: Open, address: str, where: str) -> None:
    scheme, _, rest = address.partition("://")
    assert repr(open_(f"{scheme}://user:{SECRET}@{rest}", 1.0)).endswith(f" at {where}>")


@BOTH
@pytest.mark.parametrize("rest", ["user:s3cr#t@h:1", "user:s3crt@h:port", "user:s3crt@[h:1", "u:s3crt@h?s3cr=1"])
def test_unreadable_url_is_refused_without_being_shown(open_: Open, rest: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_(f"glide://{rest}", 1.0)
    assert "s3cr" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_store_of_a_url_sends_no_script_load(private_server: PrivateServer) -> None:
    server = private_server("valkey-9.1")
    server.command("ACL", "SETUSER", "default", "-script")
    with Limiter(url(server)) as limiter, limiter.acquire(Slots("key:a", 1)):
        pass
    stats: Any = server.command("INFO", "commandstats")
    assert "cmdstat_evalsha:" in stats
    assert "cmdstat_script" not in stats
