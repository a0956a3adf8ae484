"""One caller who blocks: one operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from bench import gateway
from bench.scenes import cross_slot, one_caller, settle, window
from bench.scenes.gateway import TAG
from bench.scenes.refusals import FULL
from bench.suites.conftest import CLUSTERS
from pyslot import Limiter, Slots

Benchmark = Callable[..., object]


def held(limiter: Limiter, *gauges: Slots) -> None:
    with limiter.acquire(*gauges):
        pass


def test_slot(benchmark: Benchmark, limiter: Limiter) -> None:
    benchmark(one_caller.held(limiter))


def test_window(benchmark: Benchmark, limiter: Limiter) -> None:
    assert benchmark(partial(limiter.charge, window.WINDOW))


def test_refusal(benchmark: Benchmark, limiter: Limiter) -> None:
    assert not benchmark(partial(limiter.try_acquire, FULL))


def test_reserve_and_settle(benchmark: Benchmark, limiter: Limiter) -> None:
    estimate, real = settle.TOKENS.cost(1_000), settle.TOKENS.cost(700)

    def step() -> None:
        with limiter.acquire(estimate) as permit:
            permit.settle(real)

    benchmark(step)


def test_gateway(benchmark: Benchmark, limiter: Limiter) -> None:
    benchmark(partial(gateway.ours_blocking, limiter))


@pytest.mark.parametrize("place", CLUSTERS, indirect=True)
@pytest.mark.parametrize("tag", [None, TAG], ids=["apart", "one-tag"])
def test_across_hash_slots(benchmark: Benchmark, limiter: Limiter, tag: str | None) -> None:
    benchmark(partial(held, limiter, *(cross_slot.TOGETHER if tag else cross_slot.APART)))
