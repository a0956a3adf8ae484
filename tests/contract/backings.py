"""What a store keeps its data in, as tests see it from behind: contents and lifetimes, without the store's own code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import redis

from pyslot.adapters.base import AsyncStore, Store, open_async_store, open_store
from pyslot.adapters.memory import AsyncMemoryStore, MemoryStore
from pyslot.model import Gauge
from tests.servers.process import Server

AnyStore = Store | AsyncStore
DEADLINE = 5.0


class Kept(NamedTuple):
    """One key."""

    content: object
    """Equal where nothing has changed: on a server what DUMP says, byte for byte."""
    ttl: int
    """Milliseconds to live; -1 for ever."""


class Backing(Protocol):
    def open(self, blocking: bool) -> AnyStore:
        """Make a store over this data."""

    def look(self, near: bytes | None = None) -> dict[str, Kept]:
        """Every key there is; or those on the node of one key, which is quicker."""

    def members(self, key: bytes) -> dict[str, int]:
        """A gauge's permit ids and the ends of their leases, or a window's fields; nothing where there is no key."""

    def spoil(self, key: bytes, kind: str) -> None:
        """Put something else there: where a `gauge` belongs a window, and the reverse."""

    def drop(self, key: bytes) -> None:
        """Lose a key, as by eviction."""

    def forget_scripts(self) -> None: ...

    def clear(self) -> None:
        """Forget all data and scripts."""

    def close(self) -> None: ...


_LOOK = """
local kept = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  kept[#kept + 1] = {key, redis.call('DUMP', key), redis.call('PTTL', key)}
end
return kept
"""


class Served:
    """On one server, or on the masters of a cluster."""

    def __init__(self, url: str, nodes: Sequence[Server]) -> None:
        self.url = url
        # Any client will do to look from behind, and one that keeps its connection is fast.
        self.nodes: list[Any] = [redis.Redis(node.host, node.port, protocol=2) for node in nodes]
        for client in self.nodes:
            client.response_callbacks.clear()  # replies as they come
        self._nodes_of: dict[bytes, Any] = {}

    def open(self, blocking: bool) -> AnyStore:
        return open_store(self.url, DEADLINE) if blocking else open_async_store(self.url, DEADLINE)

    def look(self, near: bytes | None = None) -> dict[str, Kept]:
        nodes = self.nodes if near is None else [self._node(near)]
        rows = [row for node in nodes for row in node.execute_command("EVAL", _LOOK, 0)]
        return {key.decode(): Kept(content, ttl) for key, content, ttl in rows}

    def members(self, key: bytes) -> dict[str, int]:
        node = self._node(key)
        gauge = node.execute_command("TYPE", key) == b"zset"
        flat = node.execute_command(*(("ZRANGE", key, 0, -1, "WITHSCORES") if gauge else ("HGETALL", key)))
        return {name.decode(): int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def spoil(self, key: bytes, kind: str) -> None:
        node = self._node(key)
        node.execute_command(*(("HSET", key, "s", 1) if kind == "gauge" else ("ZADD", key, 1, "a")))
        node.execute_command("PEXPIRE", key, 60_000)

    def drop(self, key: bytes) -> None:
        self._node(key).execute_command("DEL", key)

    def damage(self, key: bytes, field: str, value: str | None) -> None:
        """Lose a window's field, or make it something else."""
        node = self._node(key)
        node.execute_command(*(("HDEL", key, field) if value is None else ("HSET", key, field, value)))

    def forget_scripts(self) -> None:
        for node in self.nodes:
            node.execute_command("SCRIPT FLUSH")

    def clear(self) -> None:
        for node in self.nodes:
            node.execute_command("FLUSHALL")
        self.forget_scripts()

    def commands(self) -> dict[str, int]:
        """How often each command has run, whether sent or called by a script."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            for line in node.execute_command("INFO", "commandstats").decode().splitlines():
                name, _, rest = line.partition(":calls=")
                if rest:
                    name = name.removeprefix("cmdstat_")
                    counts[name] = counts.get(name, 0) + int(rest.partition(",")[0])
        return counts

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def _node(self, key: bytes) -> Any:  # noqa: ANN401 - a client
        if key not in self._nodes_of:
            self._nodes_of[key] = next(node for node in self.nodes if not self._moved(node, key))
        return self._nodes_of[key]

    def _moved(self, node: Any, key: bytes) -> bool:  # noqa: ANN401 - a client
        try:
            node.execute_command("EXISTS", key)
        except redis.exceptions.MovedError:
            return True
        return False


class Memory:
    """In this process."""

    def __init__(self) -> None:
        self.store = MemoryStore()

    def open(self, blocking: bool) -> AnyStore:
        return self.store if blocking else AsyncMemoryStore(self.store)

    def look(self, near: bytes | None = None) -> dict[str, Kept]:  # noqa: ARG002 - it is all near
        model = self.store.model
        now = model.clock()
        kept = {key: value for key, value in model.data.copy().items() if value.expires > now}
        return {key.decode(): Kept(self.members(key), value.expires - now) for key, value in kept.items()}

    def members(self, key: bytes) -> dict[str, int]:
        value: Any = self.store.model.data.get(key)
        if value is None:
            return {}
        if isinstance(value, Gauge):
            return {id.decode(): end for end, id in value.ends}
        return {"s": value.start, "n": value.used} | {f":{id.decode()}": units for id, units in value.charges.items()}

    def spoil(self, key: bytes, kind: str) -> None:
        # The model has two kinds of value, and makes them itself.
        if kind == "gauge":
            self.store.model.run("reserve", [key], [b"", b"", b"-", b"60000", b"a", b"1"])
        else:
            self.store.model.run("acquire", [key], [b"", b"", b"-", b"60000", b"a"])

    def drop(self, key: bytes) -> None:
        self.store.model.data.pop(key, None)

    def forget_scripts(self) -> None: ...

    def clear(self) -> None:
        self.store.model.data.clear()

    def close(self) -> None: ...
