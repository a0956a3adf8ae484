"""What goes on behind permits: leases renewed while they are held, and clean-up that could not be done in place.

Pure like the flows: `Upkeep.run` is a generator that yields calls and sleeps; a thread or a task drives it.
"""

from __future__ import annotations

import heapq
import logging
import warnings
from collections.abc import Callable, Generator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Literal, NamedTuple, cast
from weakref import ref

from pyslot import calls
from pyslot.errors import PyslotError, StoreUnavailable, UsageError
from pyslot.holds import Holds
from pyslot.hooks import Guarded
from pyslot.kinds import Slots
from pyslot.loader import Call

if TYPE_CHECKING:
    from pyslot.calls import Part
    from pyslot.permit import BasePermit

log = logging.getLogger("pyslot")

OnLost = Literal["rejoin", "stop"]

BATCH = 1000
"""Permits in one script call, at most."""
BACKLOG = 10_000
"""Clean-up calls kept while the server is away; beyond it the oldest is dropped and its lease runs out."""
IDLE = 3600.0
GAUGES = 4096
"""Gauges whose holds are remembered."""


class Sleep(NamedTuple):
    """A flow's wish to be resumed after so many seconds."""

    seconds: float


class _Lease(NamedTuple):
    permit: ref[BasePermit]
    part: Part


class Gauge:
    """One gauge as this limiter knows it: who holds slots here, and how long holds have lasted."""

    __slots__ = ("due", "holds", "leases")

    def __init__(self) -> None:
        self.holds = Holds()
        self.leases: dict[str, _Lease] = {}
        self.due: float | None = None


class _Late(NamedTuple):
    due: float
    order: int
    call: Call
    tries: int
    again: bool
    """True where the call is to be repeated once: an undo may overtake the call it undoes."""


class Upkeep:
    """Renewals and late clean-up of one limiter."""

    def __init__(
        self, clock: Callable[[], float], *, deadline: float, on_lost: OnLost, hooks: Guarded | None = None
    ) -> None:
        if on_lost not in ("rejoin", "stop"):
            raise UsageError(f"on_lost must be 'rejoin' or 'stop', not {on_lost!r}")
        self.clock = clock
        self.hooks = hooks
        self.wake: Callable[[], None] = lambda: None
        """Set by the shell: makes whoever drives `run` look again."""
        self.gauges: dict[bytes, Gauge] = {}
        self.abandoned = 0
        """Permits that nobody referenced any more while they still held slots."""
        self._deadline = deadline
        self._rejoin = on_lost == "rejoin"
        self._order = count()
        self._due: list[tuple[float, int, bytes]] = []
        self._late: list[_Late] = []

    # Called by flows, in the caller's thread

    def hold(self, permit: BasePermit, part: Part) -> None:
        """A permit has taken a slot: remember since when, and renew it from now on."""
        gauge = self.gauges.get(part.wire.key)
        if gauge is None:
            gauge = self.gauges[part.wire.key] = self._new_gauge()
        gauge.holds.began(permit.id, permit.started)
        gauge.leases[permit.id] = _Lease(ref(permit), part)
        due = self.clock() + cast(Slots, part.limit).lease_ms / 3000
        if gauge.due is None or due < gauge.due:
            gauge.due = due
            heapq.heappush(self._due, (due, next(self._order), part.wire.key))
            if self._due[0][0] == due:
                self.wake()

    def drop(self, id: str, key: bytes, at: float) -> None:
        """A permit gives its slot up."""
        gauge = self.gauges.get(key)
        if gauge and gauge.leases.pop(id, None):
            gauge.holds.ended(id, at)

    def holding(self, id: str, key: bytes) -> bool:
        """True where this limiter itself holds a slot under an id."""
        gauge = self.gauges.get(key)
        return gauge is not None and id in gauge.leases

    def later(self, call: Call, *, again: bool = False) -> None:
        """Run a call in the background until the server has answered it."""
        if len(self._late) >= BACKLOG:
            log.warning("more than %d clean-up calls are waiting: one is dropped, leases will end it", BACKLOG)
            heapq.heappop(self._late)
        heapq.heappush(self._late, _Late(self.clock(), next(self._order), call, 0, again))
        self.wake()

    def slot_wait(self, part: Part, used: int, first_lease_end: float) -> float:
        """Seconds until a full gauge is likely to have room."""
        limit = cast(Slots, part.limit)
        gauge = self.gauges.get(part.wire.key) or Gauge()
        return gauge.holds.wait(self.clock(), used, limit.limit or 0, first_lease_end, limit.lease_ms / 1000)

    # Driven in the background

    def run(self, stopped: Callable[[], bool] = lambda: False) -> Generator[Call | Sleep, Sequence[int], None]:
        """Everything that is due, until stopped."""
        while not stopped():
            yield from self._clean_up()
            yield from self._renew()
            now = self.clock()
            due = min([IDLE, *(first[0] - now for first in (self._due[:1] + self._late[:1]) if first)])
            if due > 0:
                yield Sleep(due)

    def drain(self) -> Generator[Call | Sleep, Sequence[int], None]:
        """Clean-up still waiting, each call tried once, for at most the deadline."""
        end = self.clock() + self._deadline
        while self._late and self.clock() < end:
            try:
                yield heapq.heappop(self._late).call
            except PyslotError as error:
                log.warning("clean-up at close failed, leases will end it: %s", error)

    def _clean_up(self) -> Generator[Call, Sequence[int], None]:
        while self._late and self._late[0].due <= self.clock():
            late = heapq.heappop(self._late)
            try:
                yield late.call
            except StoreUnavailable:
                pause = min(5.0, 0.1 * 2**late.tries)
                self._put_back(late._replace(due=self.clock() + pause, tries=late.tries + 1))
            except PyslotError as error:
                log.warning("clean-up failed, leases will end it: %s", error)
            else:
                if late.again:
                    self._put_back(late._replace(due=self.clock() + self._deadline + 5, again=False))

    def _put_back(self, late: _Late) -> None:
        heapq.heappush(self._late, late)

    def _renew(self) -> Generator[Call, Sequence[int], None]:
        while self._due and self._due[0][0] <= self.clock():
            due, _, key = heapq.heappop(self._due)
            gauge = self.gauges.get(key)
            if gauge is None or gauge.due != due:
                continue  # a shorter lease came in and has its own entry
            gauge.due = None
            pause = yield from self._renew_gauge(key, gauge)
            if pause is not None and (gauge.due is None or self.clock() + pause < gauge.due):
                gauge.due = self.clock() + pause
                heapq.heappush(self._due, (gauge.due, next(self._order), key))

    def _renew_gauge(self, key: bytes, gauge: Gauge) -> Generator[Call, Sequence[int], float | None]:
        """Renew every lease of a gauge; returns the seconds until it must be done again."""
        now = self.clock()
        by_lease: dict[int, tuple[Part, list[BasePermit]]] = {}
        for id, (weak, part) in list(gauge.leases.items()):
            permit, limit = weak(), cast(Slots, part.limit)
            if permit is None:
                self.abandoned += 1
                warnings.warn(f"permit {id} was dropped without finish()", ResourceWarning, stacklevel=2)
                self.drop(id, key, now)
            elif now >= permit.started + limit.max_hold_seconds:
                log.warning("permit %s has held %s for max_hold; its lease now runs out", id, limit)
                self.drop(id, key, now)
            else:
                by_lease.setdefault(limit.lease_ms, (part, []))[1].append(permit)
        if not by_lease:
            return None
        for lease_ms, (part, permits) in by_lease.items():
            for at in range(0, len(permits), BATCH):
                batch = permits[at : at + BATCH]
                try:
                    yield from self._renew_batch(gauge, part, lease_ms, batch)
                except PyslotError as error:
                    log.warning("leases of %s could not be renewed: %s", key, error)
                    return min(1.0, min(by_lease) / 10_000)
        return min(by_lease) / 3000

    def _renew_batch(
        self, gauge: Gauge, part: Part, lease_ms: int, permits: list[BasePermit]
    ) -> Generator[Call, Sequence[int], None]:
        reply = yield calls.renew(part.wire, lease_ms, [permit.wire_id for permit in permits])
        # A permit that finished meanwhile is not held either, and not lost.
        lost = [
            permit for permit, held in zip(permits, reply[::2], strict=True) if not held and permit.id in gauge.leases
        ]
        if not lost:
            return
        for permit in lost:
            permit.lost = True
        log.warning("%d slots of %s were lost before their leases could be renewed", len(lost), part.limit)
        if self.hooks:
            self.hooks.lease_lost(cast(Slots, part.limit), lost)
        if not self._rejoin:
            for permit in lost:
                self.drop(permit.id, part.wire.key, self.clock())
            return
        yield calls.rejoin(part.wire, lease_ms, [permit.wire_id for permit in lost])
        for permit in lost:
            if permit.id not in gauge.leases:  # its release may have come before the rejoin
                self.later(calls.undo((part,), permit.wire_id))

    def _new_gauge(self) -> Gauge:
        if len(self.gauges) >= GAUGES:
            idle = next((key for key, gauge in list(self.gauges.items()) if not gauge.leases), None)
            if idle is not None:
                self.gauges.pop(idle, None)
        return Gauge()
