"""The store without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from bench import gateway
from bench.scenes import hot, one_caller, window
from bench.suites.conftest import Measure
from pyslot import AsyncLimiter, Limiter

Benchmark = Callable[..., object]


@pytest.fixture
def here() -> Iterator[Limiter]:
    with Limiter("memory://") as made:
        yield made


def test_slot_here(benchmark: Benchmark, here: Limiter) -> None:
    benchmark(one_caller.held(here))


def test_window_here(benchmark: Benchmark, here: Limiter) -> None:
    assert benchmark(partial(here.charge, window.WINDOW))


def test_gateway_here(benchmark: Benchmark, here: Limiter) -> None:
    benchmark(partial(gateway.ours_blocking, here))


@pytest.fixture
def async_here(loop: asyncio.Runner) -> Iterator[AsyncLimiter]:
    async def make() -> AsyncLimiter:
        return AsyncLimiter("memory://")

    made = loop.run(make())
    yield made
    loop.run(made.aclose())


def test_slots_here_at_once(measure: Measure, async_here: AsyncLimiter) -> None:
    measure(hot.held(async_here, hot.GAUGE))


def test_gateway_here_at_once(measure: Measure, async_here: AsyncLimiter) -> None:
    measure(partial(gateway.ours, async_here))
