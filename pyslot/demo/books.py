"""The demo's own books: what every limit must hold, in plain sums from the decisions alone, without pyslot."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Gauge:
    """Who is in flight."""

    flying: set[int] = field(default_factory=set)
    peak: int = 0

    def used(self, _: int) -> int:
        return len(self.flying)

    def admit(self, _: int, request: int, __: int) -> None:
        self.flying.add(request)
        self.peak = max(self.peak, len(self.flying))

    def finish(self, _: int, request: int, __: int) -> bool:
        """True where the request was in flight."""
        found = request in self.flying
        self.flying.discard(request)
        return found


@dataclass(slots=True)
class Account:
    """What was charged, by request, since the window began; times are in ms."""

    length: int
    began: int | None = None
    charges: dict[int, int] = field(default_factory=dict)
    peak: int = 0

    def live(self, at: int) -> bool:
        return self.began is not None and at < self.began + self.length

    def used(self, at: int) -> int:
        return sum(self.charges.values()) if self.live(at) else 0

    def admit(self, at: int, request: int, units: int) -> None:
        if not self.live(at):
            self.began, self.charges = at, {}
        self._charge(at, request, units)

    def finish(self, at: int, request: int, units: int) -> bool:
        """True where the request was charged to this window, and not to one before it."""
        if not self.live(at) or request not in self.charges:
            return False
        self._charge(at, request, units)
        return True

    def _charge(self, at: int, request: int, units: int) -> None:
        self.charges[request] = units
        self.peak = max(self.peak, self.used(at))
