"""64 tasks, one operation each, at once."""

from __future__ import annotations

from functools import partial

import pytest

from bench import gateway
from bench.scenes import cross_slot, hot, many, refusals, settle, window
from bench.scenes.gateway import TAG
from bench.suites.conftest import CLUSTERS, Measure
from pyslot import AsyncLimiter


def test_hot_gauge(measure: Measure, async_limiter: AsyncLimiter) -> None:
    measure(hot.held(async_limiter, hot.GAUGE))


def test_many_gauges(measure: Measure, async_limiter: AsyncLimiter) -> None:
    measure(hot.held(async_limiter, many.GAUGES))


def test_window_at_once(measure: Measure, async_limiter: AsyncLimiter) -> None:
    measure(window.charged(async_limiter))


def test_refusals(measure: Measure, async_limiter: AsyncLimiter) -> None:
    measure(refusals.refused(async_limiter))


def test_settle_at_once(measure: Measure, async_limiter: AsyncLimiter) -> None:
    measure(settle.settled(async_limiter))


def test_gateway_at_once(measure: Measure, async_limiter: AsyncLimiter) -> None:
    measure(partial(gateway.ours, async_limiter))


@pytest.mark.parametrize("place", CLUSTERS, indirect=True)
@pytest.mark.parametrize("tag", [None, TAG], ids=["apart", "one-tag"])
def test_across_at_once(measure: Measure, async_limiter: AsyncLimiter, tag: str | None) -> None:
    measure(cross_slot.held(async_limiter, cross_slot.TOGETHER if tag else cross_slot.APART))
