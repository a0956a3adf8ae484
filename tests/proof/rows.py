"""The matrix of the contract: each server with each client, and the ways to set a client up, in pairs."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from pyslot.adapters.base import open_async_store, open_store
from tests.adapters.helpers import KINDS, Kind, close_client
from tests.conftest import GetCluster, GetServer
from tests.contract.backings import DEADLINE, AnyStore, Served
from tests.contract.places import Place, close
from tests.servers.binaries import SERVERS

CLUSTERS = ("redis-6.2", "redis-8.2", "valkey-9.1")


class SetUp(NamedTuple):
    """How a client is set up."""

    protocol: int
    decode: bool
    passed: bool
    """False: pyslot makes it from a URL."""


class Row(NamedTuple):
    server: str
    cluster: bool
    kind: Kind
    set_up: SetUp

    def __str__(self) -> str:
        protocol, decode, passed = self.set_up
        ways = f"resp{protocol}{'-decode' if decode else ''}-{'passed' if passed else 'url'}"
        return f"{self.server}{'-cluster' if self.cluster else ''}-{self.kind}-{ways}"


class Client(Served):
    """Real servers, reached by a client that is set up in a certain way."""

    def __init__(self, row: Row, url: str, nodes: Any) -> None:  # noqa: ANN401 - servers
        super().__init__(url, nodes)
        self._row = row
        self.clients: list[Any] = []

    def open(self, blocking: bool) -> AnyStore:
        _, _, kind, (protocol, decode, passed) = self._row
        target: Any = self.url + f"?protocol={protocol}" + ("&decode_responses=True" if decode else "")
        if passed:
            first = self.nodes[0].connection_pool.connection_kwargs
            options: dict[str, Any] = {"protocol": protocol, "decode_responses": decode, "socket_timeout": 1.0}
            options |= {"host": first["host"], "port": first["port"]}
            if self._row.cluster:
                target = kind.cluster(**options, **(CLUSTER_RETRY[kind.library] if kind.blocking else {}))
            else:
                target = kind.client(**options, **kind.no_retry)
            self.clients.append(target)
        return (open_store if blocking else open_async_store)(target, DEADLINE)


CLUSTER_RETRY: dict[str, dict[str, Any]] = {
    "redis": KINDS[0].no_retry,
    "valkey": {"cluster_error_retry_attempts": 1},
}
"""What keeps a blocking cluster client within the deadline."""


def _rows() -> list[Row]:
    """Every server and client pair, and over them every pair of (protocol, decode, passed) with whatever it meets."""
    set_ups = [SetUp(*one) for one in itertools.product((2, 3), (False, True), (False, True))]
    pairs = [(name, False, kind) for name in SERVERS for kind in KINDS]
    pairs += [(name, True, kind) for name in CLUSTERS for kind in KINDS]
    # 3 and 8 have no divisor in common, so that each client meets other set-ups on the next server.
    return [Row(*pair, set_ups[(3 * at + at // len(KINDS)) % len(set_ups)]) for at, pair in enumerate(pairs)]


ROWS = _rows()


def pairs_met(rows: list[Row]) -> set[tuple[str, str]]:
    """Every two settings that met in a row."""
    met: set[tuple[str, str]] = set()
    for row in rows:
        settings = {"cluster": row.cluster, "kind": row.kind, **row.set_up._asdict()}
        met |= set(itertools.combinations([f"{name}={value}" for name, value in settings.items()], 2))
    return met


class Stores:
    """The stores of the matrix, each opened once."""

    def __init__(self, get_server: GetServer, get_cluster: GetCluster) -> None:
        self._get_server = get_server
        self._get_cluster = get_cluster
        self._open: dict[str, tuple[Client, AnyStore]] = {}

    def place(self, row: Row) -> Place:
        """An empty place for a test."""
        if str(row) not in self._open:
            nodes: Any = (self._get_cluster if row.cluster else self._get_server)(row.server)
            url = row.kind.url(nodes.address, "+cluster" if row.cluster else "")
            client = Client(row, url, nodes.masters if row.cluster else [nodes])
            self._open[str(row)] = client, client.open(row.kind.blocking)
        client, store = self._open[str(row)]
        client.clear()
        return Place(client, blocking=row.kind.blocking, store=store)

    async def aclose(self) -> None:
        for client, store in self._open.values():
            await close(store)
            for made in client.clients:
                await close_client(made)
            client.close()
