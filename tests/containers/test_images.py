"""Every invariant on every image, where a Docker engine answers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.contract.admission import Admission
from tests.contract.backings import AnyStore, Served
from tests.contract.clocks import Clocks
from tests.contract.groups import Groups
from tests.contract.library import Library
from tests.contract.places import ASYNC, Place, close
from tests.contract.scripts import Scripts

pytestmark = pytest.mark.asyncio(loop_scope="module")
IMAGES = os.environ.get("PYSLOT_IMAGES", "redis:8.0 valkey/valkey:8.1").split()


class Row(NamedTuple):
    image: str
    blocking: bool

    def __str__(self) -> str:
        return f"{self.image}-{'sync' if self.blocking else 'async'}"

    @property
    def library(self) -> str:
        return "valkey" if "valkey" in self.image else "redis"


class Node(NamedTuple):
    """Where a container's server is reached."""

    host: str
    port: int


class Images:
    """A container for each image, started when first asked for, and a store for each row."""

    def __init__(self) -> None:
        self._containers = ExitStack()
        self._nodes: dict[str, Node] = {}
        self._open: dict[Row, tuple[Served, AnyStore]] = {}

    def place(self, row: Row) -> Place:
        if row not in self._open:
            node: Any = self._node(row.image)
            served = Served(f"{row.library}://{node.host}:{node.port}", [node])
            self._open[row] = served, served.open(row.blocking)
        served, store = self._open[row]
        served.clear()
        return Place(served, blocking=row.blocking, store=store)

    def _node(self, image: str) -> Node:
        if image not in self._nodes:
            from testcontainers.core.container import DockerContainer
            from testcontainers.core.wait_strategies import LogMessageWaitStrategy

            container = DockerContainer(image).with_exposed_ports(6379)
            container.waiting_for(LogMessageWaitStrategy("Ready to accept connections"))
            self._containers.enter_context(container)
            self._nodes[image] = Node(container.get_container_host_ip(), int(container.get_exposed_port(6379)))
        return self._nodes[image]

    async def aclose(self) -> None:
        for served, store in self._open.values():
            await close(store)
            served.close()
        self._containers.close()


def _no_engine() -> str:
    """Why there can be no containers; empty where there can."""
    if shutil.which("docker") is None:
        return "no docker on the PATH"
    run = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=20, check=False)
    return f"no Docker engine answers: {run.stderr.strip()[-200:]}" if run.returncode else ""


if reason := _no_engine():
    if os.environ.get("PYSLOT_IMAGES_REQUIRED"):
        raise RuntimeError(reason)
    # Here, and not in a fixture: one line in the summary, in place of hundreds.
    pytest.skip(f"{reason}; the contract on images ({', '.join(IMAGES)}) is not tried", allow_module_level=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def images() -> AsyncIterator[Images]:
    images = Images()
    yield images
    await images.aclose()


ROWS = [Row(image, blocking) for image in IMAGES for blocking in (True, False)]


@pytest_asyncio.fixture(loop_scope="module", params=ROWS, ids=str)
async def place(request: pytest.FixtureRequest, images: Images) -> AsyncIterator[Place]:
    row = request.param
    if not isinstance(row, Row):  # a test of tasks names the rows of tests/contract that have any
        row = Row(IMAGES[ASYNC.index(row) % len(IMAGES)], blocking=False)
    place = images.place(row)
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
