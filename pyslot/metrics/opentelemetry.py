"""Metrics for OpenTelemetry: `hooks=[OpenTelemetryHooks()]`, one instance for all limiters of a process."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.metrics import Counter, Histogram, Meter, UpDownCounter, get_meter

from pyslot.metrics.instruments import INSTRUMENTS, MetricHooks


class OpenTelemetryHooks(MetricHooks):
    """Counts by a meter, in names such as pyslot.decision.duration, with attributes such as pyslot.limit."""

    def __init__(self, meter: Meter | None = None, *, limits: int = 100) -> None:
        """`meter`: by default one of the global provider, whatever that is or will be."""
        super().__init__(limits)
        meter = meter or get_meter("pyslot")
        self._counters: dict[str, Counter | UpDownCounter] = {}
        self._histograms: dict[str, Histogram] = {}
        for each in INSTRUMENTS:
            name = f"pyslot.{each.name}"
            if each.kind == "histogram":
                self._histograms[each.name] = meter.create_histogram(
                    name, each.unit, each.description, explicit_bucket_boundaries_advisory=each.buckets
                )
            else:
                create = meter.create_counter if each.kind == "counter" else meter.create_up_down_counter
                self._counters[each.name] = create(name, each.unit, each.description)

    def add(self, name: str, value: float, labels: Mapping[str, str] = {}) -> None:
        self._counters[name].add(value, {f"pyslot.{label}": text for label, text in labels.items()})

    def record(self, name: str, value: float) -> None:
        self._histograms[name].record(value)
