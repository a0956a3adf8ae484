"""The whole contract on each server through each client, and on every way to set a client up.

A normal run takes one row, next to those of tests/contract; `make test-matrix` takes all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.adapters.helpers import KINDS
from tests.conftest import GetCluster, GetServer
from tests.contract.admission import Admission
from tests.contract.clocks import Clocks
from tests.contract.groups import Groups
from tests.contract.library import Library
from tests.contract.places import ASYNC, Place
from tests.contract.scripts import Scripts
from tests.proof.clients import THOROUGH
from tests.proof.rows import ROWS, Row, Stores, pairs_met
from tests.servers.binaries import SERVERS

FEW = [row for row in ROWS if row.kind is KINDS[3] and row.set_up == (3, True, True)][:1]
"""What the rows of tests/contract have least of."""
pytestmark = pytest.mark.asyncio(loop_scope="module")
# decode_responses: redis-py#694, langgraph-redis#24. RESP3: redis-py#4052, #4031, redis-doc#2120, fakeredis#543, #552
TAKEN = ROWS if THOROUGH else FEW
TAKEN_ASYNC = [row for row in TAKEN if not row.kind.blocking]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def matrix(_servers: GetServer, _clusters: GetCluster) -> AsyncIterator[Stores]:
    stores = Stores(_servers, _clusters)
    yield stores
    await stores.aclose()


@pytest_asyncio.fixture(loop_scope="module", params=TAKEN, ids=str)
async def place(request: pytest.FixtureRequest, matrix: Stores) -> AsyncIterator[Place]:
    row = request.param
    if not isinstance(row, Row):  # a test of tasks names the rows of tests/contract that have any
        row = TAKEN_ASYNC[ASYNC.index(row) % len(TAKEN_ASYNC)]
    place = matrix.place(row)
    yield place
    await place.close()


class TestAdmission(Admission):
    pass


class TestClocks(Clocks):
    pass


class TestGroups(Groups):
    pass


class TestScripts(Scripts):
    pass


class TestLibrary(Library):
    pass


SETTINGS = {
    "cluster": (False, True),
    "kind": KINDS,
    "protocol": (2, 3),
    "decode": (False, True),
    "passed": (False, True),
}


async def test_the_matrix_has_each_server_and_client_and_every_pair_of_settings() -> None:
    servers = [f"{row.server} {row.kind}" for row in ROWS if not row.cluster]
    assert sorted(servers) == sorted(f"{name} {kind}" for name in SERVERS for kind in KINDS)
    assert {row.server for row in ROWS if row.cluster} == {"redis-6.2", "redis-8.2", "valkey-9.1"}
    wanted = {
        (f"{one}={value}", f"{other}={another}")
        for one, other in itertools.combinations(SETTINGS, 2)
        for value in SETTINGS[one]
        for another in SETTINGS[other]
    }
    assert pairs_met(ROWS) == wanted
