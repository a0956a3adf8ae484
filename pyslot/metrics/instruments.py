"""What is measured, whichever library takes it: the instruments, and what each event means to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pyslot.decision import Decision, Outcome
from pyslot.headers import public_name
from pyslot.hooks import Hooks
from pyslot.kinds import Limit, Slots, Window
from pyslot.permit import BasePermit

OTHER = "other"
"""The name that limits share beyond the first so many."""

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Instrument(NamedTuple):
    """One metric, in the words of OpenTelemetry; a name in dots, a unit by UCUM."""

    name: str
    kind: Literal["counter", "updown", "histogram"]
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: Sequence[float] = ()


INSTRUMENTS = (
    Instrument("decisions", "counter", "{decision}", "Requests that were decided", ("result", "degraded")),
    Instrument("decision.duration", "histogram", "s", "Time to a decision, waiting for room included", (), _FAST),
    Instrument("refusals", "counter", "{refusal}", "Refusals by the limit that refused", ("limit",)),
    Instrument("waits", "counter", "{wait}", "Times that a caller was put off while waiting for room"),
    Instrument("permit.duration", "histogram", "s", "Time from a permit's grant to its end", (), _LONG),
    Instrument("permits.finished", "counter", "{permit}", "Permits that ended; late where a lease or window was gone", ("late",)),  # noqa: E501
    Instrument("units.reserved", "counter", "{unit}", "Units charged when permits were granted", ("limit",)),
    Instrument("units.settled", "counter", "{unit}", "Units charged when permits had ended", ("limit",)),
    Instrument("leases.lost", "counter", "{lease}", "Slots of permits held here that were found gone", ("limit",)),
    Instrument("leases.leaked", "counter", "{lease}", "Leases that ended without a release, whose ever", ("limit",)),
    Instrument("outages", "counter", "{outage}", "Times that a server could no longer be reached"),
    Instrument("servers.away", "updown", "{server}", "Servers that can't be reached now"),
    Instrument("batch.permits", "histogram", "{permit}", "Permits that travelled in one script call", (), _COUNTS),
)  # fmt: skip


class MetricHooks(Hooks):
    """Turns events into measurements. One may serve several limiters; a library's adapter says where they go."""

    def __init__(self, limits: int) -> None:
        """Limits are told apart by what they are called in headers ("key-requests"), the first `limits` of them."""
        self._most = limits
        self._names: set[str] = set()

    def add(self, name: str, value: float, labels: Mapping[str, str] = {}) -> None:
        """Add to a counter."""
        raise NotImplementedError

    def record(self, name: str, value: float) -> None:
        """Put a value into a histogram."""
        raise NotImplementedError

    def decision(self, decision: Decision[Any], seconds: float) -> None:
        degraded = "true" if decision.degraded else "false"
        self.add("decisions", 1, {"result": _result(decision), "degraded": degraded})
        self.record("decision.duration", seconds)
        for limit in decision.refused_by:
            self.add("refusals", 1, self._limit(limit))

    def wait(self, decision: Decision[Any], seconds: float) -> None:  # noqa: ARG002 - an event's signature
        self.add("waits", 1)

    def settle(self, permit: BasePermit, outcome: Outcome, seconds: float) -> None:
        self.record("permit.duration", seconds)
        self.add("permits.finished", 1, {"late": "true" if outcome.late else "false"})
        for limit, units, wire, _ in permit.parts:
            if isinstance(limit, Window):
                labels = self._limit(limit)
                self.add("units.reserved", units, labels)
                self.add("units.settled", permit.figures.get(wire.key, units), labels)

    def lease_lost(self, limit: Slots, permits: Sequence[BasePermit]) -> None:
        self.add("leases.lost", len(permits), self._limit(limit))

    def leak(self, limit: Slots, leases: int) -> None:
        self.add("leases.leaked", leases, self._limit(limit))

    def outage(self, away: bool) -> None:
        if away:
            self.add("outages", 1)
        self.add("servers.away", 1 if away else -1)

    def batch(self, permits: int) -> None:
        self.record("batch.permits", permits)

    def _limit(self, limit: Limit) -> dict[str, str]:
        name = public_name(limit)
        # A name for each user would be a time series for each user.
        if name not in self._names:
            if len(self._names) >= self._most:
                return {"limit": OTHER}
            self._names.add(name)
        return {"limit": name}


def _result(decision: Decision[Any]) -> str:
    if decision:
        return "granted"
    if not decision.refused_by:
        return "unavailable"
    return "impossible" if decision.impossible else "refused"
