"""Hooks hear what happens, and metrics count it, without ever being in the way."""

# ruff: noqa: ARG002 - events have the arguments they have

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from pyslot import AsyncLimiter, Slots, Window
from pyslot.hooks import Hooks, guarded
from pyslot.metrics.instruments import INSTRUMENTS
from pyslot.metrics.opentelemetry import OpenTelemetryHooks
from pyslot.metrics.prometheus import PrometheusHooks
from pyslot.testing import World
from tests.conftest import GetServer

SLOTS = Slots("key:sk-1", 1, lease=60)
TPM = Window("team:a", "tokens", 1_000, per=60)


class Everything(Hooks):
    """Writes down every event."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def decision(self, decision: Any, seconds: float) -> None:  # noqa: ANN401
        self.heard.append(("decision", bool(decision), seconds))

    def wait(self, decision: Any, seconds: float) -> None:  # noqa: ANN401
        self.heard.append(("wait", seconds))

    def settle(self, permit: Any, outcome: Any, seconds: float) -> None:  # noqa: ANN401
        self.heard.append(("settle", permit.id, outcome.late, seconds))

    def lease_lost(self, limit: Slots, permits: Any) -> None:  # noqa: ANN401
        self.heard.append(("lease_lost", limit, [permit.id for permit in permits]))

    def leak(self, limit: Slots, leases: int) -> None:
        self.heard.append(("leak", limit, leases))

    def outage(self, away: bool) -> None:
        self.heard.append(("outage", away))

    def batch(self, permits: int) -> None:
        self.heard.append(("batch", permits))

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [event for event in self.heard if event[0] in names]


def test_decisions_and_ends_are_told_with_their_times() -> None:
    world, hooks = World(), Everything()
    limiter = world.limiter(hooks=[hooks])
    permit = limiter.try_acquire(SLOTS, TPM.cost(10), id="a").require()
    limiter.try_acquire(SLOTS)
    world.advance(7)
    permit.finish()
    permit.finish()
    ends = [("decision", True, 0), ("decision", False, 0), ("settle", "a", False, 7)]
    assert hooks.of("decision", "settle") == ends, "an end is told once"


def test_a_wait_is_told_each_time_and_counts_in_the_decision() -> None:
    world, hooks = World(), Everything()
    limiter = world.limiter(hooks=[hooks])
    limiter.charge(TPM.cost(1_000))
    assert limiter.try_acquire(TPM.cost(1), wait=90)
    waits = hooks.of("wait")
    assert len(waits) > 1
    assert sum(seconds for _, seconds in waits) == pytest.approx(hooks.heard[-1][2])
    assert hooks.heard[-1][2] >= 60


def test_lost_leases_are_told() -> None:
    world, hooks = World(), Everything()
    limiter = world.limiter(hooks=[hooks])
    permit = limiter.try_acquire(SLOTS, id="a").require()
    world.limiter().reset(SLOTS)
    world.advance(30)
    assert hooks.of("lease_lost") == [("lease_lost", SLOTS, ["a"])]
    permit.finish()


def test_leaked_leases_are_told() -> None:
    world, hooks = World(), Everything()
    dying = world.limiter()
    held = dying.try_acquire(SLOTS).require()
    dying._worker.stop()
    world.advance(61)
    with world.limiter(hooks=[hooks]).acquire(SLOTS):
        assert hooks.of("leak") == [("leak", SLOTS, 1)]
    held.close()


def test_an_outage_s_begin_and_end_are_told_once() -> None:
    world, hooks = World(), Everything()
    limiter = world.limiter(hooks=[hooks], on_outage="closed")
    with world.outage():
        for _ in range(5):
            limiter.try_acquire(SLOTS)
            world.advance(1)
    world.advance(60)
    limiter.count(SLOTS)
    assert hooks.of("outage") == [("outage", True), ("outage", False)]


async def test_an_async_limiter_tells_the_same() -> None:
    world, hooks = World(), Everything()
    limiter = world.async_limiter(hooks=[hooks])
    async with limiter.acquire(SLOTS, id="a"):
        assert not await limiter.try_acquire(SLOTS)
    assert [event[:2] for event in hooks.of("decision", "settle")] == [
        ("decision", True),
        ("decision", False),
        ("settle", "a"),
    ]


async def test_permits_that_travel_together_are_told(get_server: GetServer) -> None:
    hooks = Everything()
    async with AsyncLimiter(get_server("valkey-9.1").url, hooks=[hooks]) as limiter:
        await asyncio.gather(*(limiter.charge(TPM.cost(1)) for _ in range(40)))
    sizes = [size for _, size in hooks.of("batch")]
    assert sum(sizes) == 40
    assert sizes[0] == 1
    assert max(sizes) > 10


def test_a_hook_that_fails_is_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Hooks):
        def decision(self, decision: object, seconds: float) -> None:
            raise RuntimeError("full disk")

    world, hooks = World(), Everything()
    limiter = world.limiter(hooks=[Broken(), hooks])
    with caplog.at_level(logging.ERROR, "pyslot"), limiter.acquire(SLOTS):
        pass
    assert "the hook decision of" in caplog.text
    assert "full disk" in caplog.text
    assert limiter.count(SLOTS) == 0
    assert len(hooks.of("decision")) == 1, "the others hear it all the same"


def test_without_hooks_there_is_nobody_to_tell() -> None:
    assert guarded([]) is None


def play(hooks: Hooks, users: int = 0) -> None:
    """A little of everything that is measured."""
    world = World()
    limiter = world.limiter(hooks=[hooks], on_outage="closed")
    with limiter.acquire(SLOTS, TPM.cost(100)) as permit:
        assert not limiter.try_acquire(SLOTS)
        permit.settle(TPM.cost(40))
        world.advance(2)
    assert not limiter.charge(TPM.cost(1_001))
    for user in range(users):
        assert not limiter.try_acquire(Slots(f"{user}:x", 0))
    with world.outage():
        assert not limiter.try_acquire(SLOTS)
    world.advance(60)
    hooks.leak(SLOTS, 3)
    hooks.lease_lost(SLOTS, [permit])
    hooks.wait(limiter.try_acquire(TPM.cost(1_001)), 1.0)
    hooks.batch(7)


def test_prometheus_gets_names_units_and_labels_of_its_conventions() -> None:
    registry = CollectorRegistry()
    play(PrometheusHooks(registry))
    text = generate_latest(registry).decode()
    for line in (
        'pyslot_decisions_total{degraded="false",result="granted"} 1.0',
        'pyslot_decisions_total{degraded="false",result="refused"} 1.0',
        'pyslot_decisions_total{degraded="true",result="unavailable"} 1.0',
        'pyslot_decisions_total{degraded="false",result="impossible"} 2.0',
        'pyslot_refusals_total{limit="key-slots"} 1.0',
        'pyslot_refusals_total{limit="team-tokens"} 2.0',
        'pyslot_permit_duration_seconds_bucket{le="2.5"} 1.0',
        'pyslot_permit_duration_seconds_bucket{le="1.0"} 0.0',
        "pyslot_decision_duration_seconds_count 5.0",
        'pyslot_permits_finished_total{late="false"} 1.0',
        'pyslot_units_reserved_total{limit="team-tokens"} 100.0',
        'pyslot_units_settled_total{limit="team-tokens"} 40.0',
        'pyslot_leases_leaked_total{limit="key-slots"} 3.0',
        'pyslot_leases_lost_total{limit="key-slots"} 1.0',
        "pyslot_waits_total 1.0",
        "pyslot_outages_total 1.0",
        "pyslot_servers_away 0.0",
        'pyslot_batch_permits_bucket{le="8.0"} 1.0',
    ):
        assert f"\n{line}\n" in text
    assert "sk-1" not in text, "no subject becomes a label"


def test_opentelemetry_gets_the_same_in_its_words() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    play(OpenTelemetryHooks(provider.get_meter("test")))
    data = reader.get_metrics_data()
    assert data is not None
    found = {each.name: each for each in data.resource_metrics[0].scope_metrics[0].metrics}
    provider.shutdown()
    assert set(found) == {f"pyslot.{each.name}" for each in INSTRUMENTS}
    assert found["pyslot.decision.duration"].unit == "s"
    assert found["pyslot.decisions"].unit == "{decision}"
    settled: Any = found["pyslot.units.settled"].data
    (point,) = settled.data_points
    assert (point.value, dict(point.attributes)) == (40, {"pyslot.limit": "team-tokens"})
    durations: Any = found["pyslot.permit.duration"].data
    assert durations.data_points[0].sum == 2


def test_the_number_of_time_series_is_bounded_whatever_subjects_are_called() -> None:
    registry = CollectorRegistry()
    play(PrometheusHooks(registry, limits=10), users=500)
    text = generate_latest(registry).decode()
    series = [line for line in text.splitlines() if line.startswith("pyslot_refusals_total{")]
    assert len(series) == 11
    assert 'pyslot_refusals_total{limit="other"} 492.0' in series


def test_one_instance_serves_several_limiters() -> None:
    registry = CollectorRegistry()
    hooks = PrometheusHooks(registry)
    world = World()
    for _ in range(3):
        world.limiter(hooks=[hooks]).charge(TPM.cost(1))
    assert 'result="granted"} 3.0' in generate_latest(registry).decode()
