"""The table of servers is true: each starts, and is what its name says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.servers.binaries import SOURCES

if TYPE_CHECKING:
    from tests.conftest import PrivateServer
    from tests.servers.process import Cluster, Server


@pytest.fixture
def version(server_name: str) -> str:
    return SOURCES[server_name].version


def test_every_server_answers_and_is_of_its_version(server: Server, version: str) -> None:
    info: dict[str, str] = dict(
        line.split(":", 1) for line in server.command("INFO", "server").split("\r\n") if ":" in line
    )
    # Valkey says which Redis it took over from as redis_version.
    assert info.get("valkey_version", info["redis_version"]).startswith(version)
    assert server.command("PING") == "PONG"


@pytest.mark.parametrize("run", [1, 2])
def test_each_test_finds_its_server_empty(server: Server, run: int) -> None:
    assert server.command("DBSIZE") == 0
    sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"  # of "return 1"
    assert server.command("SCRIPT", "EXISTS", sha) == [0]
    server.command("SET", "left", "over")
    assert server.command("EVAL", "return 1", 0) == 1


async def test_servers_serve_async_tests_too(server: Server) -> None:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(b"PING\r\n")
    assert await reader.readline() == b"+PONG\r\n"
    writer.close()
    await writer.wait_closed()


def test_a_cluster_serves_every_hash_slot(cluster: Cluster) -> None:
    for node in cluster:
        rows = node.command("CLUSTER", "SLOTS")
        served = [slot for first, last, *_ in rows for slot in range(first, last + 1)]
        assert sorted(served) == list(range(16_384))
    assert [node.command("DBSIZE") for node in cluster] == [0, 0, 0]


def test_a_private_server_comes_back_empty_at_its_port(private_server: PrivateServer) -> None:
    server = private_server("valkey-9.1", "--maxmemory", "5mb")
    assert server.command("CONFIG", "GET", "maxmemory") == ["maxmemory", str(5 * 1024**2)]
    server.command("SET", "a", 1)
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        server.command("PING")
    server.start()
    assert server.command("GET", "a") is None


def test_a_paused_server_is_silent_until_it_resumes(private_server: PrivateServer) -> None:
    server = private_server("redis-8.2")
    server.pause()
    with pytest.raises(TimeoutError):
        server.command("PING", timeout=0.2)
    server.resume()
    assert server.command("PING") == "PONG"
