"""Real servers for tests: started when first asked for, kept to the end of the session, emptied before every test.

def test_sync(server): ...             # once per server of the table; async tests take the same fixtures
def test_cluster(cluster): ...         # once per family
@pytest.mark.parametrize("server_name", ["valkey-9.1"])     # on this one only
def test_some(get_server): get_server("redis-6.2")          # by name, as get_cluster
def test_outage(private_server): private_server("redis-8.2", "--maxmemory", "5mb")      # to be stopped or paused
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from tests.servers.binaries import CLUSTERS, SERVERS, SOURCES, Missing, binary
from tests.servers.process import Cluster, Server

# A busy machine may take any time over an example: how long it took says nothing about the code.
settings.register_profile("pyslot", deadline=None)
settings.load_profile("pyslot")

GetServer = Callable[[str], Server]
GetCluster = Callable[[str], Cluster]
PrivateServer = Callable[..., Server]
"""(name, *options) -> a server that is this test's own."""


def _program(name: str) -> Path:
    try:
        return binary(name)
    except Missing as reason:
        # Where all is checked, testing less must not pass unseen. Only the system's own server may be absent.
        if os.environ.get("CI") and SOURCES[name].wheel:
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def _servers() -> Iterator[GetServer]:
    running: dict[str, Server] = {}
    with ExitStack() as stack:

        def get(name: str) -> Server:
            if name not in running:
                running[name] = stack.enter_context(Server(_program(name)))
            return running[name]

        yield get


@pytest.fixture(scope="session")
def _clusters() -> Iterator[GetCluster]:
    running: dict[str, Cluster] = {}
    with ExitStack() as stack:

        def get(name: str) -> Cluster:
            if name not in running:
                running[name] = stack.enter_context(Cluster(_program(name)))
            return running[name]

        yield get


@pytest.fixture
def get_server(_servers: GetServer) -> GetServer:
    """Give the shared server of a name, emptied when a test first asks for it."""
    given: dict[str, Server] = {}

    def get(name: str) -> Server:
        if name not in given:
            given[name] = _servers(name).fresh()
        return given[name]

    return get


@pytest.fixture
def get_cluster(_clusters: GetCluster) -> GetCluster:
    """Give the shared cluster of a name: three masters, emptied when a test first asks for it."""
    given: dict[str, Cluster] = {}

    def get(name: str) -> Cluster:
        if name not in given:
            given[name] = _clusters(name).fresh()
        return given[name]

    return get


@pytest.fixture
def server_url(get_server: GetServer) -> Callable[[str], str]:
    return lambda name: get_server(name).url


@pytest.fixture
def cluster_url(get_cluster: GetCluster) -> Callable[[str], str]:
    return lambda name: get_cluster(name).url


@pytest.fixture(params=SERVERS)
def server_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=CLUSTERS)
def cluster_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(get_server: GetServer, server_name: str) -> Server:
    return get_server(server_name)


@pytest.fixture
def cluster(get_cluster: GetCluster, cluster_name: str) -> Cluster:
    return get_cluster(cluster_name)


@pytest.fixture
def private_server() -> Iterator[PrivateServer]:
    with ExitStack() as stack:
        yield lambda name, *options: stack.enter_context(Server(_program(name), *options))
