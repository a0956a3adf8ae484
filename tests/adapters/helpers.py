"""What the tests of all client libraries share: the four kinds of store, tiny scripts, and servers that misbehave."""

from __future__ import annotations

import hashlib
import inspect
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import redis.asyncio
import redis.asyncio.cluster
import redis.backoff
import redis.cluster
import redis.retry
import valkey.asyncio
import valkey.asyncio.cluster
import valkey.cluster

from pyslot.adapters.base import AsyncStore, Store, open_async_store, open_store
from pyslot.loader import Call, Script
from tests.servers.process import Server

AnyStore = Store | AsyncStore
GAUGE = b"pyslot:v1:{a}:s"
WINDOW = b"pyslot:v1:{a}:w:requests:60000"


class Kind(NamedTuple):
    """One of the four: a library, and whether its calls block."""

    library: str
    blocking: bool
    client: Any
    cluster: Any
    pool: Any
    """The plain one, which raises when it is full."""
    no_retry: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.library}-{'sync' if self.blocking else 'async'}"

    def open(self, target: object, deadline: float = 2.0) -> AnyStore:
        return open_store(target, deadline) if self.blocking else open_async_store(target, deadline)

    def url(self, address: str, plus: str = "") -> str:
        return f"{self.library}{plus}://{address}"


_none = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
_none_async = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)

KINDS = (
    Kind("redis", True, redis.Redis, redis.cluster.RedisCluster, redis.ConnectionPool, {"retry": _none}),
    Kind("valkey", True, valkey.Valkey, valkey.cluster.ValkeyCluster, valkey.ConnectionPool, {}),
    Kind(
        "redis",
        False,
        redis.asyncio.Redis,
        redis.asyncio.cluster.RedisCluster,
        redis.asyncio.ConnectionPool,
        {"retry": _none_async},
    ),
    Kind(
        "valkey", False, valkey.asyncio.Valkey, valkey.asyncio.cluster.ValkeyCluster, valkey.asyncio.ConnectionPool, {}
    ),
)


def script(text: str) -> Script:
    body = text.encode()
    return Script("test", body, hashlib.sha1(body).hexdigest().encode(), read_only=False)


ECHO = script("return {1, #KEYS, tonumber(ARGV[1]), tonumber(ARGV[2])}")
ZADD = script("redis.call('ZADD', KEYS[1], 1, ARGV[1]) return {redis.call('ZCARD', KEYS[1])}")
HSET = script("for i = 1, #KEYS do redis.call('HSET', KEYS[i], 'a', 1) end return {1}")


def echo(head: int = 5, permit: int = 7, key: bytes = GAUGE) -> Call:
    return Call(ECHO, (key,), (b"%d" % head,), (b"%d" % permit,))


def zadd(member: bytes = b"m") -> Call:
    return Call(ZADD, (GAUGE,), (), (member,))


async def run(store: AnyStore, call: Call) -> Sequence[int]:
    reply = store.run(call)
    return await reply if inspect.isawaitable(reply) else reply


async def close(store: AnyStore) -> None:
    if isinstance(store, AsyncStore):
        await store.aclose()
    else:
        store.close()


async def use(value: Any) -> Any:  # noqa: ANN401 - whatever a client returns
    return await value if inspect.isawaitable(value) else value


async def close_client(client: Any) -> None:  # noqa: ANN401 - any client
    await use(client.aclose() if hasattr(client, "aclose") else client.close())


async def connection(kind: Kind, pool: Any) -> Any:  # noqa: ANN401 - a connection
    return await use(pool.get_connection(*(["EVALSHA"] if kind.library == "valkey" else [])))


def silence(*servers: Server) -> None:
    """Pause servers, and return when they have stopped: a signal takes a moment, enough for a reply."""
    for server in servers:
        server.pause()
    for server in servers:
        while Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)


class Mute:
    """Accepts connections, as the kernel does for any that listens, and never answers."""

    def __enter__(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0))
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"


class Flaky:
    """A relay to a server. It closes the connection on the first `drops` requests that hold a script call."""

    def __init__(self, port: int, drops: int) -> None:
        self._port = port
        self.drops = drops
        self.sent = 0
        """Script calls seen."""

    def __enter__(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                for source, target, look in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._relay, args=(source, target, look), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, look: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if look and b"EVAL" in data:
                    self.sent += 1
                    if self.sent <= self.drops:
                        break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
