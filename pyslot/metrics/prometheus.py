"""Metrics for prometheus_client: `hooks=[PrometheusHooks()]`, one instance for all limiters of a process."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from pyslot.metrics.instruments import INSTRUMENTS, Instrument, MetricHooks


class PrometheusHooks(MetricHooks):
    """Counts into a registry, by the naming practices of Prometheus: pyslot_decisions_total, ..._duration_seconds."""

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, namespace: str = "pyslot", limits: int = 100) -> None:
        super().__init__(limits)
        self._counters: dict[str, Counter | Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for each in INSTRUMENTS:
            name = each.name.replace(".", "_")
            if each.kind == "histogram":
                self._histograms[each.name] = _histogram(each, name, namespace, registry)
            else:
                kind = Counter if each.kind == "counter" else Gauge
                made = kind(name, each.description, each.labels, namespace=namespace, registry=registry)
                self._counters[each.name] = made

    def add(self, name: str, value: float, labels: Mapping[str, str] = {}) -> None:
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(value)

    def record(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)


def _histogram(each: Instrument, name: str, namespace: str, registry: CollectorRegistry) -> Histogram:
    unit = "seconds" if each.unit == "s" else ""
    return Histogram(
        name, each.description, each.labels, namespace=namespace, unit=unit, registry=registry, buckets=each.buckets
    )
