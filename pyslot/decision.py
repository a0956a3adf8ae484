"""What callers get to know: the decision on a request, where each limit stands, how a permit ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Generic, TypeVar

from pyslot.calls import FULL, NEVER, OBSERVED, REPEATED, Answer
from pyslot.errors import LimitExceeded
from pyslot.headers import DEFAULT, Style, headers
from pyslot.kinds import Limit, Slots
from pyslot.parts import Part

P_co = TypeVar("P_co", covariant=True)

SlotWait = Callable[[Part, int, int], float]
"""Estimates the seconds until a full gauge has room, from its slots in use and the ms until the first lease ends."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where one limit stood when it was asked."""

    limit: Limit
    used: int
    """Slots held or units charged, this request's included where it was granted."""
    remaining: int | None
    """What is left; never below 0. None where there is no limit."""
    reset_after: float
    """Seconds until the window rolls, or until the first slot's lease ends; 0 where there is nothing to wait for."""
    would_refuse: bool
    """True where the limit refused, or would have with enforce=True."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a permit ended."""

    released: bool
    """True if it held slots, all of them to the end, and they are free now."""
    settled: bool
    """True if it had charges, all in windows that had not rolled, and they stand at their final figure now."""
    late: bool
    """True if anything was no longer held: a lease had ended, a window had rolled, or it was finished before."""


outcome = lru_cache(8)(Outcome)
"""An outcome, made once of each kind: to make a frozen object costs more than to find it."""


class Decision(Generic[P_co]):
    """The answer to a request: true if granted, false if refused."""

    __slots__ = ("_answers", "_retry_after", "_slot_wait", "_times", "degraded", "permit")

    permit: P_co | None
    """What was granted; None where the request was refused, or where there is nothing to finish (`charge`)."""
    degraded: bool
    """True where the server could not be asked and the outage policy decided."""

    def __init__(
        self,
        permit: P_co | None,
        answers: Sequence[Answer],
        slot_wait: SlotWait,
        *,
        degraded: bool = False,
    ) -> None:
        self.permit = permit
        self.degraded = degraded
        self._answers = answers
        self._slot_wait = slot_wait
        self._retry_after: float | None = -1.0
        self._times: list[tuple[Part, float]] | None = None

    def __bool__(self) -> bool:
        # Refusals come last: nobody is asked after the first, unless all answers are looks that refused.
        return not self._answers or bool(self._answers[-1].record[0])

    @property
    def repeated(self) -> bool:
        """True where all of this permit was held already, by an earlier request with the same id."""
        return bool(self._answers) and all(answer.record[0] == REPEATED for answer in self._answers)

    @property
    def statuses(self) -> tuple[Status, ...]:
        """One status for each limit that was asked. On a cluster, those behind the first refusal are not."""
        return tuple(
            status_of(part.limit, used, reset, verdict in (FULL, NEVER, OBSERVED))
            for part, verdict, used, reset in self._figures()
        )

    @property
    def refused_by(self) -> tuple[Limit, ...]:
        """The limits that refused; empty where the request was granted."""
        return tuple(part.limit for part, verdict, _, _ in self._figures() if verdict in (FULL, NEVER))

    @property
    def impossible(self) -> bool:
        """True where it was refused for good: it asked for more than a limit ever has."""
        return any(verdict == NEVER for _, verdict, _, _ in self._figures())

    @property
    def retry_after(self) -> float | None:
        """Seconds after which to ask again: 0 where granted, None where it can never be granted.

        The longest of all limits that refused. Exact for windows, odds for slots: about 2 in 3 find room by then.
        """
        if self._retry_after is not None and self._retry_after < 0:
            self._retry_after = None if self.impossible else max((wait for _, wait in self._waits()), default=0.0)
        return self._retry_after

    def _waits(self) -> list[tuple[Part, float]]:
        """Seconds to wait for each limit that was full. Worked out once: who is told a time is expected then."""
        if self._times is None:
            self._times = [
                (part, self._slot_wait(part, used, reset) if isinstance(part.limit, Slots) else reset / 1000)
                for part, verdict, used, reset in self._figures()
                if verdict == FULL
            ]
        return self._times

    def set_retry_after(self, seconds: float) -> None:
        """Say when to ask again where no limit refused, but the outage policy."""
        self._retry_after = seconds

    def _figures(self) -> list[tuple[Part, int, int, int]]:
        return [figure for answer in self._answers for figure in answer.figures()]

    def require(self) -> P_co:
        """The permit, or `LimitExceeded` where the request was refused. A charge that was granted has none: None."""
        permit = self.permit
        if permit is None and not self:
            raise LimitExceeded(self)
        return permit  # type: ignore[return-value]  # None is what a charge is granted

    def headers(self, *styles: Style) -> dict[str, str]:
        """HTTP headers for the response to this request, refused or granted.

        Those of the IETF draft and those that OpenAI clients read, or of the `styles` named: "ietf", "openai", "epoch".
        """
        # What the outage policy made up of no server's word is no figure to pass on.
        statuses = () if self.degraded else self.statuses
        return headers(bool(self), self.retry_after, statuses, styles or DEFAULT)

    def explain(self) -> str:
        """One plain sentence: granted, or which limit refused, how full it is and when to come back."""
        if self:
            return "granted before" if self.repeated else "granted"
        refusing = [figure for figure in self._figures() if figure[1] in (FULL, NEVER)]
        if self.degraded and not refusing:
            return "refused: the server that counts can't be reached"
        too_large = [f"{part} ({part.units} asked for)" for part, verdict, _, _ in refusing if verdict == NEVER]
        if too_large:
            most = min(part.limit.limit or 0 for part, verdict, _, _ in refusing if verdict == NEVER)
            advice = f"it never has room for more than {most}: ask for less" if most else "it admits nothing"
            return f"refused by {', '.join(too_large)}; {advice}"
        full = [
            f"{part} ({used} of {part.limit.limit} in use, {part.units} asked for)" for part, _, used, _ in refusing
        ]
        return f"refused by {', '.join(full)}; try again in {plainly(self.retry_after or 0.0)}"

    def __repr__(self) -> str:
        return f"<Decision {self.explain()}{' (degraded)' if self.degraded else ''}>"


def status_of(limit: Limit, used: int, reset_ms: int, would_refuse: bool) -> Status:
    """A status from the figures of a reply."""
    remaining = None if limit.limit is None else max(0, limit.limit - used)
    return Status(limit, used, remaining, reset_ms / 1000, would_refuse)


def plainly(seconds: float) -> str:
    """A time as people say it, rounded up: 0.25 s, 59 s, 12 min, 5 h."""
    if seconds < 10:
        return f"{ceil(seconds * 100) / 100:g} s"
    size, unit = next((step for step in ((1, "s"), (60, "min")) if seconds <= 120 * step[0]), (3600, "h"))
    return f"{ceil(seconds / size)} {unit}"
