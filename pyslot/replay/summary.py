"""What limits did to traffic, in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyslot.kinds import Limit, Slots
from pyslot.replay.engine import End, Start
from pyslot.replay.trace import Request

SLOTS, REQUESTS, TOKENS = "slots", "requests", "tokens"
Refusers = tuple[str, ...]
"""The limits that refused one request together, by name."""


def name_of(limit: Limit) -> str:
    """What kind of limit it is, whoever it is about."""
    return SLOTS if isinstance(limit, Slots) else limit.meter


@dataclass(slots=True)
class Minute:
    """One minute of the trace, counted from its first request."""

    admitted: int = 0
    refused: Counter[Refusers] = field(default_factory=Counter)
    used: int = 0
    """Tokens that the requests admitted in it really used."""
    wanted: int = 0
    """Tokens that all requests in it would have used."""


@dataclass(slots=True)
class Summary:
    """All that came of a replay."""

    limits: Mapping[str, int]
    """The limits, by name."""
    began: int
    """The first arrival, in ms."""
    ended: int = 0
    minutes: dict[int, Minute] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    """The most that any one subject had of a limit, by name."""
    never: int = 0
    """Refused, and could never be granted: they asked for more than a limit."""
    reserved: int = 0
    """Tokens that admitted requests reserved at first."""
    late: int = 0
    """Ended after their window had rolled: their estimate stood till then."""
    flying: int = 0
    seconds: dict[int, int] = field(default_factory=dict)
    """The most in flight in each second of the trace in which that changed."""

    def take(self, event: Start[Request] | End[Request]) -> None:
        """Count one event."""
        if isinstance(event, End):
            self.flying -= 1
            self.late += event.outcome.late
            at = event.at
        else:
            at = event.request.at
            self._start(event)
        self.ended = max(self.ended, at)
        second = (at - self.began) // 1000
        self.seconds[second] = max(self.seconds.get(second, 0), self.flying)

    def _start(self, event: Start[Request]) -> None:
        request, decision = event.request, event.decision
        minute = self.minutes.setdefault((request.at - self.began) // 60_000, Minute())
        tokens = request.prompt + request.answer
        minute.wanted += tokens
        if decision:
            self.flying += 1
            minute.admitted += 1
            minute.used += tokens
            for status in decision.statuses:
                name = name_of(status.limit)
                self.peaks[name] = max(self.peaks.get(name, 0), status.used)
        else:
            minute.refused[tuple(sorted(map(name_of, decision.refused_by), key=list(self.limits).index))] += 1
            self.never += decision.retry_after is None

    @property
    def admitted(self) -> int:
        return sum(minute.admitted for minute in self.minutes.values())

    @property
    def refused(self) -> Counter[Refusers]:
        return sum((minute.refused for minute in self.minutes.values()), Counter())

    @property
    def asked(self) -> int:
        return self.admitted + self.refused.total()

    @property
    def used(self) -> int:
        return sum(minute.used for minute in self.minutes.values())

    @property
    def wanted(self) -> int:
        return sum(minute.wanted for minute in self.minutes.values())

    def refused_by(self, name: str) -> tuple[int, int]:
        """How many requests a limit refused, and how many of these no other did."""
        refused = self.refused
        return sum(number for names, number in refused.items() if name in names), refused[(name,)]

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "requests": self.asked,
            "admitted": self.admitted,
            "refused": self.refused.total(),
            "never": self.never,
            "tokens": {"wanted": self.wanted, "used": self.used, "reserved": self.reserved},
            "limits": {
                name: dict(zip(("refused", "refused_alone"), self.refused_by(name), strict=True))
                | {"limit": limit, "peak": self.peaks.get(name, 0)}
                for name, limit in self.limits.items()
            },
            "minutes": [
                {
                    "minute": at,
                    "admitted": minute.admitted,
                    "refused": {" + ".join(names): number for names, number in minute.refused.items()},
                    "tokens_used": minute.used,
                    "tokens_wanted": minute.wanted,
                }
                for at, minute in sorted(self.minutes.items())
            ],
        }
