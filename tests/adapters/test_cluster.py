"""Calls on real clusters: where they go, and what happens while slots and nodes move."""

from __future__ import annotations

import asyncio
import binascii
import time
from collections.abc import Iterator

import pytest

from pyslot import AsyncLimiter, Slots
from pyslot.errors import StoreError, StoreUnavailable
from pyslot.loader import Call
from tests.adapters.helpers import (
    GAUGE,
    HSET,
    WINDOW,
    AnyStore,
    Kind,
    Mute,
    close,
    close_client,
    echo,
    run,
    script,
    silence,
    use,
    zadd,
)
from tests.servers.process import Cluster, Server

SLOT = binascii.crc_hqx(b"a", 0) % 16384
ONE = pytest.mark.parametrize("cluster_name", ["valkey-9.1"])
TOUCH = script("for i = 1, #KEYS do redis.call('EXISTS', KEYS[i]) end return {1}")


@pytest.fixture
def moving(cluster: Cluster) -> Iterator[tuple[Server, Server]]:
    """The node that owns the slot of the test's keys, and another; the owner has the slot again at the end."""
    owner = next(node for node in cluster.masters if "MOVED" not in _reply(node, "GET", GAUGE))
    target = next(node for node in cluster.masters if node is not owner)
    yield owner, target
    for node in cluster.masters:
        node.command("CLUSTER", "SETSLOT", SLOT, "STABLE")
    for node in (target, owner):
        if "MOVED" not in _reply(node, "GET", GAUGE):
            node.command("FLUSHALL")
    for node in (owner, target, *cluster.masters):
        node.command("CLUSTER", "SETSLOT", SLOT, "NODE", owner.node_id)


def _reply(node: Server, *args: str | bytes) -> str:
    try:
        return str(node.command(*args))
    except RuntimeError as error:
        return str(error)


async def test_calls_find_their_node_by_key(kind: Kind, cluster: Cluster) -> None:
    store = kind.open(kind.url(cluster.address, "+cluster"))
    assert store.cluster is True
    for i in range(20):
        assert await run(store, echo(i, i, b"pyslot:v1:{%d}:s" % i)) == [1, 1, i, i]
    await close(store)


async def test_any_of_several_nodes_in_the_url_will_do(kind: Kind, cluster: Cluster) -> None:
    store = kind.open(kind.url(f"127.0.0.1:1,{cluster.address}", "+cluster"))
    assert await run(store, echo()) == [1, 1, 5, 7]
    await close(store)


async def test_script_is_sent_again_where_it_is_not_known(kind: Kind, cluster: Cluster) -> None:
    store = kind.open(kind.url(cluster.address, "+cluster"))
    assert await run(store, zadd(b"one")) == [1]
    for node in cluster.masters:
        node.command("SCRIPT", "FLUSH")
    assert await run(store, zadd(b"two")) == [2]
    await close(store)


async def test_wrong_type_names_the_key(kind: Kind, cluster: Cluster) -> None:
    store = kind.open(kind.url(cluster.address, "+cluster"))
    await run(store, Call(script("redis.call('SET', KEYS[1], 'x') return {1}"), (WINDOW,), ()))
    with pytest.raises(StoreError, match=r"w:requests:60000' holds a string where a hash belongs"):
        await run(store, Call(HSET, (WINDOW,), ()))
    await close(store)


async def test_follows_a_slot_that_has_moved(kind: Kind, cluster: Cluster, moving: tuple[Server, Server]) -> None:
    owner, target = moving
    store = kind.open(kind.url(cluster.address, "+cluster"))
    assert await run(store, echo()) == [1, 1, 5, 7]
    for node in (target, owner, *cluster.masters):
        node.command("CLUSTER", "SETSLOT", SLOT, "NODE", target.node_id)
    assert await run(store, zadd()) == [1]
    assert target.command("ZCARD", GAUGE) == 1
    await close(store)


async def test_follows_a_slot_while_it_moves_to_a_node_without_the_script(
    kind: Kind, cluster: Cluster, moving: tuple[Server, Server]
) -> None:
    owner, target = moving
    store = kind.open(kind.url(cluster.address, "+cluster"))
    assert await run(store, echo()) == [1, 1, 5, 7]
    target.command("CLUSTER", "SETSLOT", SLOT, "IMPORTING", owner.node_id)
    owner.command("CLUSTER", "SETSLOT", SLOT, "MIGRATING", target.node_id)
    assert await run(store, zadd()) == [1]
    assert target.command("CLUSTER", "COUNTKEYSINSLOT", SLOT) == 1
    await close(store)


async def test_keys_on_both_sides_of_a_move_are_an_outage(
    kind: Kind, cluster: Cluster, moving: tuple[Server, Server]
) -> None:
    owner, target = moving
    store = kind.open(kind.url(cluster.address, "+cluster"))
    assert await run(store, zadd()) == [1]
    target.command("CLUSTER", "SETSLOT", SLOT, "IMPORTING", owner.node_id)
    owner.command("CLUSTER", "SETSLOT", SLOT, "MIGRATING", target.node_id)
    with pytest.raises(StoreUnavailable):
        await run(store, Call(TOUCH, (GAUGE, WINDOW), ()))
    await close(store)


async def test_keys_of_several_slots_are_no_outage(kind: Kind, cluster: Cluster) -> None:
    store = kind.open(kind.url(cluster.address, "+cluster"))
    with pytest.raises(StoreError, match=r"same (key )?slot"):
        await run(store, Call(TOUCH, (b"{a}", b"{b}"), ()))
    await close(store)


@ONE
async def test_standalone_client_at_a_cluster_is_told_so(kind: Kind, cluster: Cluster) -> None:
    stores = [kind.open(kind.url(node.address)) for node in cluster.masters]
    texts = []
    for store in stores:
        try:
            await run(store, echo())
        except StoreError as error:
            texts.append(str(error))
        await close(store)
    assert len(texts) == 2
    assert all("part of a cluster" in text for text in texts)


@pytest.mark.parametrize("server_name", ["valkey-9.1"])
async def test_cluster_client_at_a_lone_server_is_told_so(kind: Kind, server: Server) -> None:
    store = kind.open(kind.url(server.address, "+cluster"))
    with pytest.raises(StoreError, match=r"[Cc]luster"):
        await run(store, echo())
    await close(store)


async def test_nobody_listens(kind: Kind) -> None:
    """Making the store is no I/O: a service can start before its cluster."""
    store = kind.open(kind.url("127.0.0.1:1", "+cluster"))
    with pytest.raises(StoreUnavailable):
        await run(store, echo())
    await close(store)


async def test_node_that_never_answers_is_bounded(kind: Kind) -> None:
    with Mute() as mute:
        store = kind.open(kind.url(mute.address, "+cluster"), deadline=0.6)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await run(store, echo())
        assert 0.1 < time.monotonic() - began < 2
        await close(store)


async def test_cluster_that_falls_silent_is_bounded(kind: Kind, cluster: Cluster) -> None:
    store = kind.open(kind.url(cluster.address, "+cluster"), deadline=1.5)
    assert await run(store, echo()) == [1, 1, 5, 7]
    silence(*cluster.masters)
    try:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await run(store, echo(1, 1))
            # A blocking client asks node after node, each for a third of the deadline.
            assert 0.1 < time.monotonic() - began < 5
    finally:
        for node in cluster.masters:
            node.resume()
    await asyncio.sleep(0.3)
    assert await _once_up(store) == [1, 1, 2, 3]
    await close(store)


async def _once_up(store: AnyStore) -> object:
    # The nodes may hold one another failed for a moment.
    for _ in range(50):
        try:
            return await run(store, echo(2, 3))
        except StoreUnavailable:
            await asyncio.sleep(0.1)
    raise AssertionError("the cluster did not come back")


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
@ONE
async def test_any_set_up_of_a_client_gives_the_same_replies(
    kind: Kind, cluster: Cluster, protocol: int, decode: bool
) -> None:
    node = cluster.masters[0]
    options = {"cluster_error_retry_attempts": 0} if kind.library == "valkey" else kind.no_retry
    client = kind.cluster(
        host=node.host, port=node.port, protocol=protocol, decode_responses=decode, socket_timeout=1, **options
    )
    store = kind.open(client)
    assert store.cluster is True
    assert await run(store, echo(3, 4)) == [1, 1, 3, 4]
    assert node.host in repr(store)
    await close(store)
    assert await use(client.get("x")) is None, "a client that was passed in stays open"
    await close_client(client)


@ONE
async def test_cancelled_calls_leave_no_reply_behind(nonblocking: Kind, cluster: Cluster) -> None:
    store = nonblocking.open(nonblocking.url(cluster.address, "+cluster"), deadline=5.0)
    await run(store, echo())
    for round_ in range(5):
        silence(*cluster.masters)
        tasks = [asyncio.ensure_future(run(store, echo(round_, i))) for i in range(12)]
        await asyncio.sleep(0.02)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.sleep(0)
        for node in cluster.masters:
            node.resume()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ends[::2]] == [asyncio.CancelledError] * 6
        assert ends[1::2] == [[1, 1, round_, i] for i in range(1, 12, 2)]
        again = await asyncio.gather(*(run(store, echo(-round_, i)) for i in range(12)))
        assert again == [[1, 1, -round_, i] for i in range(12)]
    await close(store)


@ONE
@pytest.mark.parametrize("scheme", ["redis", "valkey"])
async def test_many_may_be_the_first(cluster: Cluster, scheme: str) -> None:
    """A client that knows no node yet, asked by many at once: redis-py 8.1 closes connections in use then."""
    for _ in range(3):
        async with AsyncLimiter(f"{scheme}+cluster://{cluster.nodes[0].address}", deadline=10) as limiter:

            async def work(n: int, limiter: AsyncLimiter = limiter) -> None:
                for turn in range(10):
                    async with limiter.acquire(Slots(f"g{(n + turn) % 40}", 100), Slots(f"h{n % 7}", 100)):
                        pass

            await asyncio.gather(*(work(n) for n in range(64)))
            assert limiter.incidents["outages"] == 0
