from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conftest import GetCluster, GetServer
from tests.contract.backings import AnyStore, Backing
from tests.contract.places import PLACES, Place, Row, close


class Stores:
    """The stores of the table, each opened once: a cluster's client takes its time."""

    def __init__(self, servers: GetServer, clusters: GetCluster) -> None:
        self._servers = servers
        self._clusters = clusters
        self._open: dict[Row, tuple[Backing, AnyStore]] = {}

    def place(self, row: Row) -> Place:
        """An empty place for a test."""
        if row not in self._open:
            backing = row.backing(self._servers, self._clusters)
            self._open[row] = backing, backing.open(row.blocking)
        backing, store = self._open[row]
        backing.clear()
        return Place(backing, blocking=row.blocking, store=store)

    async def aclose(self) -> None:
        for backing, store in self._open.values():
            await close(store)
            backing.close()


# To the end of a module and no longer: glide's asynchronous clients answer on one loop that is open, in each process.
@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores(_servers: GetServer, _clusters: GetCluster) -> AsyncIterator[Stores]:
    stores = Stores(_servers, _clusters)
    yield stores
    await stores.aclose()


@pytest_asyncio.fixture(loop_scope="module", params=PLACES, ids=str)
async def place(request: pytest.FixtureRequest, stores: Stores) -> AsyncIterator[Place]:
    place = stores.place(request.param)
    yield place
    await place.close()
