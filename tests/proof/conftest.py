from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import GetServer
from tests.contract.wire import SCRIPTS
from tests.proof.clients import FEW_WAYS, WAYS, Way
from tests.servers.process import Server
from tests.servers.proxy import Proxy


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=FEW_WAYS, ids=str)
def few_way(request: pytest.FixtureRequest) -> Way:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def behind(get_server: GetServer) -> Server:
    """The server behind the proxy. It knows the scripts: NOSCRIPT would be one more call, to count with."""
    server = get_server("valkey-9.1")
    for script in SCRIPTS.values():
        server.command("SCRIPT", "LOAD", script.text)
    return server


@pytest.fixture
def proxy(behind: Server) -> Iterator[Proxy]:
    with Proxy(behind.port) as proxy:
        yield proxy
