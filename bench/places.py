"""Where scenes run: a server or a cluster of the tests' table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pyslot.loader import load
from tests.servers.binaries import CLUSTERS, SERVERS, binary
from tests.servers.process import Cluster, Server

STANDALONE = tuple(name for name in SERVERS if name != "redis-6.2")
"""The oldest is supported and tested, but nobody would choose it for its speed."""
CLUSTERED = CLUSTERS


class Place(NamedTuple):
    name: str
    """As in the table; of a cluster with " cluster" behind it."""
    masters: tuple[Server, ...]
    cluster: bool

    def url(self, client: str) -> str:
        """The store URL for "redis", "valkey" or "glide"."""
        return f"{client}{'+cluster' if self.cluster else ''}://{self.masters[0].address}"

    def fresh(self) -> None:
        """Empty, with our scripts loaded."""
        for server in self.masters:
            server.fresh()
            for script in load().values():
                server.command("SCRIPT", "LOAD", script.text)

    def spent(self) -> float:
        """Seconds of processor that the servers have used so far, in the kernel's and their own code."""
        found = 0.0
        for server in self.masters:
            info = _info(server, "cpu")
            found += float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
        return found

    def version(self) -> str:
        info = _info(self.masters[0], "server")
        return info.get("valkey_version", info["redis_version"])


def _info(server: Server, section: str) -> dict[str, str]:
    lines = str(server.command("INFO", section)).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


@contextmanager
def standalone(name: str) -> Iterator[Place]:
    with Server(binary(name)) as server:
        yield Place(name, (server,), cluster=False)


@contextmanager
def clustered(name: str) -> Iterator[Place]:
    """Three masters."""
    with Cluster(binary(name)) as cluster:
        yield Place(f"{name} cluster", tuple(cluster.masters), cluster=True)
