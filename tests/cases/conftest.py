from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.conftest import Stores, stores
from tests.contract.places import Place, Row

__all__ = ["stores"]

ROWS = (
    Row("memory", "", True),
    Row("memory", "", False),
    Row("redis-8.2", "redis", True),
    Row("valkey-9.1", "valkey", False),
    Row("redis-8.2", "redis+cluster", False),
    Row("valkey-9.1", "valkey+cluster", True),
)


@pytest_asyncio.fixture(loop_scope="module", params=ROWS, ids=str)
async def place(request: pytest.FixtureRequest, stores: Stores) -> AsyncIterator[Place]:
    place = stores.place(request.param)
    yield place
    await place.close()
