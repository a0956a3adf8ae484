"""Every place of the tests' table, each started once, and a limiter on it for every client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.clients import NAMES, PATIENCE
from bench.places import CLUSTERED, STANDALONE, Place, clustered, standalone
from bench.rounds import Step
from bench.scene import TASKS
from bench.scenes.refusals import FULL
from pyslot import AsyncLimiter, Limiter

SERVERS = [pytest.param((name, False), id=name) for name in STANDALONE]
CLUSTERS = [pytest.param((name, True), id=f"{name}-cluster") for name in CLUSTERED]

Measure = Callable[[Step], None]


@pytest.fixture(scope="session", params=SERVERS + CLUSTERS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    name, cluster = request.param
    with clustered(name) if cluster else standalone(name) as found:
        yield found


@pytest.fixture(params=NAMES.values())
def client(request: pytest.FixtureRequest, place: Place, benchmark: Any) -> Iterator[str]:  # noqa: ANN401  # the plugin's
    """The scheme of its URLs. The place is empty but for the one slot that `refused` asks for."""
    place.fresh()
    benchmark.group = f"{place.name}: {request.node.originalname.removeprefix('test_')}"
    benchmark.extra_info |= {"server": place.version(), "client": request.param}
    with Limiter(place.url("redis"), deadline=PATIENCE) as holder, holder.acquire(FULL):
        yield next(scheme for scheme, name in NAMES.items() if name == request.param)


@pytest.fixture
def limiter(client: str, place: Place) -> Iterator[Limiter]:
    with Limiter(place.url(client), deadline=PATIENCE) as made:
        yield made


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def async_limiter(client: str, place: Place, loop: asyncio.Runner) -> Iterator[AsyncLimiter]:
    async def make() -> AsyncLimiter:
        return AsyncLimiter(place.url(client), deadline=PATIENCE)

    made = loop.run(make())
    yield made
    loop.run(made.aclose())


@pytest.fixture
def measure(benchmark: Any, loop: asyncio.Runner) -> Measure:  # noqa: ANN401  # the plugin's
    """Measures so many tasks that take a step each, at once: the figure is for all of them together."""

    def measured(step: Step) -> None:
        async def together() -> None:
            await asyncio.gather(*(step() for _ in range(TASKS)))

        async def once() -> None:
            await step()

        loop.run(once())  # a cluster's client learns its nodes
        benchmark.extra_info["steps"] = TASKS
        benchmark(lambda: loop.run(together()))

    return measured
