"""One call on one server, through each library in both colours."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import redis
import valkey

from pyslot.errors import StoreError, StoreUnavailable
from pyslot.loader import Call
from tests.adapters.helpers import (
    GAUGE,
    HSET,
    WINDOW,
    Flaky,
    Kind,
    Mute,
    close,
    close_client,
    connection,
    echo,
    run,
    script,
    silence,
    use,
    zadd,
)
from tests.conftest import PrivateServer
from tests.servers.process import Server

NEWEST = pytest.mark.parametrize("server_name", ["redis-8.2", "valkey-9.1"])
ONE = pytest.mark.parametrize("server_name", ["valkey-9.1"])


async def test_arguments_go_in_order_and_integers_come_back(kind: Kind, server: Server) -> None:
    store = kind.open(kind.url(server.address))
    assert list(await run(store, echo(5, 7))) == [1, 1, 5, 7]
    assert store.cluster is False
    await close(store)


async def test_runs_where_the_script_is_not_known(kind: Kind, server: Server) -> None:
    store = kind.open(kind.url(server.address))
    assert await run(store, zadd(b"one")) == [1]
    server.command("SCRIPT", "FLUSH")
    assert await run(store, zadd(b"two")) == [2]
    assert server.command("SCRIPT", "EXISTS", zadd().script.sha) == [1]
    await close(store)


@NEWEST
async def test_script_command_is_never_needed(kind: Kind, server: Server) -> None:
    server.command("ACL", "SETUSER", "plain", "on", ">pw", "~*", "+@all", "-script")
    store = kind.open(kind.url(f"plain:pw@{server.address}"))
    assert await run(store, zadd()) == [1]
    await close(store)


async def test_wrong_type_names_the_key(kind: Kind, server: Server) -> None:
    server.command("ZADD", GAUGE, 1, "a")
    server.command("SET", WINDOW, "x")
    store = kind.open(kind.url(server.address))
    with pytest.raises(StoreError, match=r"'pyslot:v1:\{a\}:w:requests:60000' holds a string where a hash belongs"):
        await run(store, Call(HSET, (WINDOW, GAUGE), ()))
    assert server.command("GET", WINDOW) == "x"
    server.command("DEL", GAUGE)
    server.command("HSET", GAUGE, "a", 1)
    with pytest.raises(StoreError, match=r"'pyslot:v1:\{a\}:s' holds a hash where a zset belongs"):
        await run(store, zadd())
    await close(store)


async def test_out_of_memory_is_no_outage(kind: Kind, private_server: PrivateServer, server_name: str) -> None:
    server = private_server(server_name)
    server.command("CONFIG", "SET", "maxmemory", 1)
    store = kind.open(kind.url(server.address))
    with pytest.raises(StoreError, match="maxmemory"):
        await run(store, zadd())
    await close(store)


async def test_replica_is_an_outage(kind: Kind, private_server: PrivateServer, server_name: str) -> None:
    server = private_server(server_name)
    server.command("REPLICAOF", "127.0.0.1", 1)
    store = kind.open(kind.url(server.address), deadline=0.2)
    with pytest.raises(StoreUnavailable, match="read only replica"):
        await run(store, zadd())
    server.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    with pytest.raises(StoreUnavailable, match="MASTER is down"):
        await run(store, zadd())
    server.command("REPLICAOF", "NO", "ONE")
    assert await run(store, zadd()) == [1]
    await close(store)


@NEWEST
async def test_connections_to_a_replica_are_given_up(
    kind: Kind, private_server: PrivateServer, server_name: str
) -> None:
    """A name may point to another server by now, which only a new connection finds out."""
    server = private_server(server_name)
    store = kind.open(kind.url(server.address), deadline=0.3)
    await run(store, zadd())
    before = server.command("INFO", "stats").partition("total_connections_received:")[2].split()[0]
    server.command("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StoreUnavailable):
        await run(store, zadd())
    server.command("REPLICAOF", "NO", "ONE")
    assert await run(store, zadd()) == [1]
    after = server.command("INFO", "stats").partition("total_connections_received:")[2].split()[0]
    assert int(after) - int(before) >= 4, "three of this test, and new ones of the store's"
    await close(store)


@NEWEST
async def test_refused_login_is_no_outage_and_shows_no_password(
    kind: Kind, private_server: PrivateServer, server_name: str
) -> None:
    server = private_server(server_name)
    server.command("ACL", "SETUSER", "weak", "on", ">s3cret", "~other", "+@all")
    server.command("ACL", "SETUSER", "default", "resetpass", ">s3cret")
    for login, text in (("", "Authentication required|NOAUTH"), (":wr0ng@", "invalid"), ("weak:s3cret@", "permission")):
        store = kind.open(kind.url(login + server.address))
        with pytest.raises(StoreError, match=text) as caught:
            await run(store, zadd())
        assert "s3cret" not in f"{caught.value!r}{store!r}"
        assert "wr0ng" not in f"{caught.value!r}{store!r}"
        assert server.address in repr(store)
        await close(store)


@ONE
async def test_bug_in_a_script_is_a_store_error(kind: Kind, server: Server) -> None:
    store = kind.open(kind.url(server.address))
    with pytest.raises(StoreError, match="nonsense"):
        await run(store, Call(script("return nonsense()"), (GAUGE,), ()))
    await close(store)


@ONE
async def test_bug_of_the_caller_surfaces_unchanged(kind: Kind, server: Server) -> None:
    store = kind.open(kind.url(server.address))
    with pytest.raises((TypeError, redis.DataError, valkey.DataError)):
        await run(store, Call(zadd().script, (GAUGE,), (), (object(),)))  # type: ignore[arg-type]
    await close(store)


async def test_nobody_listens(kind: Kind) -> None:
    store = kind.open(kind.url("127.0.0.1:1"))
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
        await run(store, zadd())
    await close(store)


async def test_server_that_never_answers_is_bounded(kind: Kind) -> None:
    with Mute() as mute:
        store = kind.open(kind.url(mute.address), deadline=0.3)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await run(store, zadd())
        assert 0.2 < time.monotonic() - began < 1.2
        await close(store)


@NEWEST
async def test_server_that_falls_silent_is_bounded(kind: Kind, private_server: PrivateServer, server_name: str) -> None:
    server = private_server(server_name)
    store = kind.open(kind.url(server.address), deadline=0.3)
    await run(store, zadd(b"one"))
    silence(server)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await run(store, echo(1, 1))
    assert 0.2 < time.monotonic() - began < 1.2
    server.resume()
    assert await run(store, echo(2, 3)) == [1, 1, 2, 3], "its own reply, not the late one"
    await close(store)


@NEWEST
async def test_restarted_server_is_not_noticed(kind: Kind, private_server: PrivateServer, server_name: str) -> None:
    server = private_server(server_name)
    store = kind.open(kind.url(server.address))
    assert await run(store, zadd()) == [1]
    server.stop()
    server.start()
    assert await run(store, zadd()) == [1]
    await close(store)


@ONE
async def test_dropped_connection_is_tried_once_more_and_only_once(kind: Kind, server: Server) -> None:
    with Flaky(server.port, drops=1) as relay:
        store = kind.open(kind.url(relay.address))
        assert await run(store, echo()) == [1, 1, 5, 7]
        await close(store)
    with Flaky(server.port, drops=99) as relay:
        store = kind.open(kind.url(relay.address))
        with pytest.raises(StoreUnavailable):
            await run(store, echo())
        assert relay.sent == 2
        await close(store)


@NEWEST
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
async def test_any_set_up_of_a_client_gives_the_same_replies(
    kind: Kind, server: Server, protocol: int, decode: bool
) -> None:
    client = kind.client(
        port=server.port, protocol=protocol, decode_responses=decode, socket_timeout=1, **kind.no_retry
    )
    store = kind.open(client)
    assert await run(store, echo(3, 4)) == [1, 1, 3, 4]
    server.command("SET", WINDOW, "x")
    with pytest.raises(StoreError, match="holds a string where a hash belongs"):
        await run(store, Call(HSET, (WINDOW,), ()))
    await close(store)
    assert await use(client.ping()), "a client that was passed in stays open"
    await close_client(client)


@ONE
async def test_full_pool_of_a_passed_client_is_waited_for(kind: Kind, server: Server) -> None:
    pool = kind.pool(port=server.port, max_connections=1, socket_timeout=1, **kind.no_retry)
    store = kind.open(kind.client(connection_pool=pool), deadline=1.0)
    held = await connection(kind, pool)
    with pytest.raises(StoreUnavailable, match="pool is full"):
        await run(kind.open(kind.client(connection_pool=pool), deadline=1.0), echo())

    if kind.blocking:
        thread = threading.Timer(0.2, pool.release, [held])
        thread.start()
        assert await run(store, echo()) == [1, 1, 5, 7]
        thread.join()
    else:
        waiting = asyncio.ensure_future(run(store, echo()))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await pool.release(held)
        assert await waiting == [1, 1, 5, 7]
    await use(pool.disconnect())


@ONE
async def test_more_callers_than_connections_all_get_their_own_reply(kind: Kind, server: Server) -> None:
    store: Any = kind.open(kind.url(f"{server.address}?max_connections=2"), deadline=10.0)
    if kind.blocking:
        replies: list[Any] = [None] * 20
        threads = [
            threading.Thread(target=lambda i=i: replies.__setitem__(i, store.run(echo(i, i)))) for i in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        replies = await asyncio.gather(*(store.run(echo(i, i)) for i in range(20)))
    assert replies == [[1, 1, i, i] for i in range(20)]
    clients = server.command("CLIENT", "LIST", "TYPE", "normal").strip().split("\n")
    assert len(clients) <= 3, "two of the store's, and the one that asked"
    await close(store)


@ONE
async def test_full_pool_of_our_own_is_told_apart_from_an_outage(kind: Kind, server: Server) -> None:
    store: Any = kind.open(kind.url(f"{server.address}?max_connections=1"), deadline=1.0)
    pool = store._client.connection_pool
    held = await connection(kind, pool)
    with pytest.raises(StoreUnavailable, match="pool is full"):
        await run(store, echo())
    await use(pool.release(held))
    assert await run(store, echo()) == [1, 1, 5, 7]
    await close(store)


@NEWEST
async def test_cancelled_calls_leave_no_reply_behind(
    nonblocking: Kind, private_server: PrivateServer, server_name: str
) -> None:
    server = private_server(server_name)
    store = nonblocking.open(nonblocking.url(f"{server.address}?max_connections=4"), deadline=5.0)
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
        assert [type(end) for end in ends[::2]] == [asyncio.CancelledError] * 6
        assert ends[1::2] == [[1, 1, round_, i] for i in range(1, 12, 2)]
        again = await asyncio.gather(*(run(store, echo(-round_, i)) for i in range(12)))
        assert again == [[1, 1, -round_, i] for i in range(12)]
    await close(store)


@ONE
@pytest.mark.parametrize("patience", [None, 5])
async def test_cancellation_is_never_swallowed(nonblocking: Kind, server: Server, patience: float | None) -> None:
    client = nonblocking.client(port=server.port, socket_timeout=patience)
    store = nonblocking.open(client)
    await run(store, echo())
    for turns in range(12):
        task = asyncio.ensure_future(run(store, echo()))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            assert await task == [1, 1, 5, 7]
    assert await run(store, echo(1, 2)) == [1, 1, 1, 2]
    await close_client(client)
