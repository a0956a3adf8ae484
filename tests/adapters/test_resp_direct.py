"""Calls past a client, over its connections: only where the client is a plain one, and with nothing lost by it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any

import pytest

from pyslot.adapters.resp_direct import Direct, Errors, Line, is_plain
from pyslot.errors import StoreError
from pyslot.loader import Call
from tests.adapters.helpers import GAUGE, HSET, Kind, close, close_client, connection, echo, run, script, use, zadd
from tests.conftest import PrivateServer
from tests.servers.process import Server

DECLINE = script("return redis.error_reply('ERR not today')")
LATER = script("if redis.call('INCR', KEYS[1]) == 1 then return redis.error_reply('TRYAGAIN later') end return {1}")
SLOW = script("local n = 0 for i = 1, 2000000 do n = n + i end return {2}")
ONE = pytest.mark.parametrize("server_name", ["valkey-9.1"])


def made_more_of(kind: Kind, how: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    """A class of clients whose calls somebody looks at, in one of the ways in which tracers do, and what was seen."""
    seen: list[Any] = []
    execute = kind.client.execute_command

    def traced(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the client's own
        seen.append(args[0])
        return execute(self, *args, **options)

    if how == "a subclass":
        return type("Traced", (kind.client,), {"execute_command": traced}), seen
    patched = wraps(execute)(traced) if how.endswith("as its own") else traced
    monkeypatch.setattr(kind.client, "execute_command", patched)
    return kind.client, seen


@ONE
@pytest.mark.parametrize("how", ["a subclass", "the class patched", "the class patched as its own"])
async def test_who_traces_a_client_sees_every_call(
    kind: Kind, server: Server, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls, seen = made_more_of(kind, how, monkeypatch)
    client = cls(port=server.port, socket_timeout=1, **kind.no_retry)
    store = kind.open(client)
    for _ in range(2):
        assert await run(store, echo()) == [1, 1, 5, 7]
    assert seen == ["EVALSHA", "EVAL", "EVALSHA"]
    await close_client(client)


@ONE
async def test_a_client_whose_call_was_replaced_is_called(kind: Kind, server: Server) -> None:
    client = kind.client(port=server.port, socket_timeout=1, **kind.no_retry)
    execute, seen = client.execute_command, []

    def traced(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the client's own
        seen.append(args[0])
        return execute(*args, **options)

    assert is_plain(client, kind.client)
    client.execute_command = traced
    assert not is_plain(client, kind.client)
    assert await run(kind.open(client), echo()) == [1, 1, 5, 7]
    assert seen == ["EVALSHA", "EVAL"]
    await close_client(client)


@ONE
async def test_a_client_of_one_connection_keeps_to_it(kind: Kind, server: Server) -> None:
    client = kind.client(port=server.port, socket_timeout=1, single_connection_client=True, **kind.no_retry)
    await use(client.ping())
    store = kind.open(client)
    assert not is_plain(client, kind.client)
    if kind.blocking:
        assert [await run(store, echo(n, n)) for n in range(5)] == [[1, 1, n, n] for n in range(5)]
    else:
        assert await asyncio.gather(*(run(store, echo(n, n)) for n in range(5))) == [[1, 1, n, n] for n in range(5)]
    assert _connected(server) == 1
    await close_client(client)


@ONE
async def test_a_pool_that_was_passed_in_gets_its_connection_back_after_every_call(kind: Kind, server: Server) -> None:
    pool = kind.pool(port=server.port, max_connections=1, socket_timeout=1, **kind.no_retry)
    store = kind.open(kind.client(connection_pool=pool))
    for _ in range(3):
        assert await run(store, echo()) == [1, 1, 5, 7]
        server.command("SET", GAUGE.replace(b":s", b":w:x:1"), "x")
        with pytest.raises(StoreError):
            await run(store, Call(HSET, (b"pyslot:v1:{a}:w:x:1",), ()))
        held = await connection(kind, pool)
        await use(pool.release(held))
    await use(pool.disconnect())


@ONE
async def test_calls_one_after_another_keep_to_one_connection(kind: Kind, server: Server) -> None:
    store: Any = kind.open(kind.url(server.address))
    for n in range(10):
        assert await run(store, echo(n, n)) == [1, 1, n, n]
        with pytest.raises(StoreError):  # a server that declines has not closed anything
            await run(store, Call(DECLINE, (GAUGE,), ()))
    assert _connected(server) == 1
    await close(store)
    for _ in range(100):
        if _connected(server) == 0:
            break
        await asyncio.sleep(0.02)
    assert _connected(server) == 0, "what was put aside is closed with the rest"


@ONE
async def test_more_callers_than_connections_share_what_is_put_aside(kind: Kind, server: Server) -> None:
    """Nobody asks, some ask, more ask than there are connections: nobody is left to wait for nothing."""
    store: Any = kind.open(kind.url(f"{server.address}?max_connections=2"), deadline=5.0)
    threads = ThreadPoolExecutor(12)

    async def work(n: int) -> list[Any]:
        if kind.blocking:
            ask = partial(_many_times, store, n)
            return await asyncio.get_running_loop().run_in_executor(threads, ask)
        return [await store.run(echo(n, n)) for _ in range(40)]

    for crowd in (1, 2, 12, 1, 12):
        replies = await asyncio.gather(*(work(n) for n in range(crowd)))
        assert replies == [[[1, 1, n, n]] * 40 for n in range(crowd)]
    threads.shutdown()
    await close(store)


@ONE
async def test_who_is_sent_again_does_not_wait_for_what_is_put_aside(kind: Kind, server: Server) -> None:
    """The only connection changes hands while one call pauses: who has it then must not keep it."""
    store: Any = kind.open(kind.url(f"{server.address}?max_connections=1"))
    calls = [Call(LATER, (GAUGE,), ()), Call(SLOW, (GAUGE,), ())]
    for call in calls:
        server.command("SCRIPT", "LOAD", call.script.text)
    asked = [asyncio.to_thread(store.run, call) if kind.blocking else store.run(call) for call in calls]
    assert await asyncio.gather(*asked) == [[1], [2]]
    await close(store)


class Interrupted:
    """A pool of one connection, in which somebody presses Ctrl-C between a call and its reply."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def get_connection(self) -> Interrupted:
        return self

    def send_packed_command(self, _: object) -> None:
        self.seen.append("send")

    def read_response(self) -> None:
        raise KeyboardInterrupt

    def disconnect(self) -> None:
        self.seen.append("disconnect")

    def release(self, _: object) -> None:
        self.seen.append("release")


def test_an_interrupted_call_leaves_no_reply_behind() -> None:
    """And the packers in C crash where a number is printed while the signal comes: they get none."""
    pool, packed = Interrupted(), list[Any]()

    def pack(words: Any) -> bytes:  # noqa: ANN401 - as the libraries'
        packed.extend(words)
        return b""

    with pytest.raises(KeyboardInterrupt):
        Line(pool, Direct(pack, Errors(ValueError, UnicodeError), ()), keep=True).run(echo())
    assert pool.seen == ["send", "disconnect", "release"]
    assert {type(word) for word in packed} == {bytes}


@pytest.mark.parametrize("server_name", ["redis-8.2", "valkey-9.1"])
async def test_connections_put_aside_may_die(kind: Kind, private_server: PrivateServer, server_name: str) -> None:
    """The server closes them, or is started anew: the next call of each is sent once more."""
    server = private_server(server_name)
    store: Any = kind.open(kind.url(server.address), deadline=5.0)

    async def several() -> None:
        if kind.blocking:
            calls = [asyncio.to_thread(store.run, echo(n, n)) for n in range(4)]
        else:
            calls = [store.run(echo(n, n)) for n in range(4)]
        assert await asyncio.gather(*calls) == [[1, 1, n, n] for n in range(4)]

    await several()
    server.command("CLIENT", "KILL", "TYPE", "normal")
    await several()
    server.stop()
    server.start()
    await several()
    await close(store)


@ONE
async def test_no_number_reaches_the_packer(kind: Kind, server: Server) -> None:
    """Neither at the first try nor when a script is sent as text, alone or in a pipeline."""
    store: Any = kind.open(kind.url(server.address))
    line, words = store._made.line, list[Any]()
    pack = line._pack

    def seen(command: Any) -> Any:  # noqa: ANN401 - as the libraries'
        words.extend(command)
        return pack(command)

    line._pack = seen
    server.command("SCRIPT", "FLUSH")
    assert await run(store, echo()) == [1, 1, 5, 7]
    if not kind.blocking:
        server.command("SCRIPT", "FLUSH")
        answers: dict[int, Any] = {}
        await store.run_many([echo(1), echo(2)], answers.__setitem__)
        assert answers == {0: [1, 1, 1, 7], 1: [1, 1, 2, 7]}
    assert b"EVALSHA" in words
    assert "EVAL" in words
    assert {type(word) for word in words} <= {str, bytes}
    await close(store)


async def test_a_master_that_becomes_a_replica_under_many_callers(kind: Kind, private_server: PrivateServer) -> None:
    """Nobody's connection is closed under his hands; who waits long enough does not notice."""
    server, other = private_server("valkey-9.1"), private_server("valkey-9.1")
    store: Any = kind.open(kind.url(f"{server.address}?max_connections=6"), deadline=10.0)
    stop = threading.Event()
    threads = ThreadPoolExecutor(10)

    def blocking() -> int:
        calls = 0
        while not stop.is_set():
            calls += store.run(zadd())[0]
        return calls

    async def work() -> int:
        if kind.blocking:
            return await asyncio.get_running_loop().run_in_executor(threads, blocking)
        calls = 0
        while not stop.is_set():
            calls += (await store.run(zadd()))[0]
        return calls

    working = [asyncio.ensure_future(work()) for _ in range(10)]
    for _ in range(4):
        await asyncio.sleep(0.1)
        await asyncio.to_thread(server.command, "REPLICAOF", other.host, str(other.port))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(server.command, "REPLICAOF", "NO", "ONE")
    await asyncio.sleep(0.1)
    stop.set()
    assert all(calls > 0 for calls in await asyncio.gather(*working))
    threads.shutdown()
    await close(store)


def _many_times(store: Any, n: int) -> list[Any]:  # noqa: ANN401 - a blocking store
    return [store.run(echo(n, n)) for _ in range(40)]


def _connected(server: Server) -> int:
    """How many clients there are besides the one that asks."""
    return len(server.command("CLIENT", "LIST", "TYPE", "normal").strip().split("\n")) - 1
