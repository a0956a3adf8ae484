from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conftest import GetCluster, GetServer
from tests.contract.places import PLACES, Place


@pytest.fixture(params=PLACES, ids=str)
async def place(request: pytest.FixtureRequest, get_server: GetServer, get_cluster: GetCluster) -> AsyncIterator[Place]:
    place = Place(request.param.backing(get_server, get_cluster), blocking=request.param.blocking)
    yield place
    await place.close()
