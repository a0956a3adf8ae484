"""What goes on behind permits: leases renewed while they are held, clean-up that could not be done in place, probes.

Pure like the flows: `Upkeep.run` is a generator that yields calls and sleeps; a thread or a task drives it.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Generator, Hashable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast
from weakref import ref

from pyslot import calls
from pyslot.cleanup import Backlog, Errand, Trip, Why
from pyslot.errors import PyslotError, StoreUnavailable, UsageError
from pyslot.holds import Holds
from pyslot.ids import decode_id
from pyslot.incidents import Incidents
from pyslot.kinds import Slots
from pyslot.loader import Call
from pyslot.outage import Outage

if TYPE_CHECKING:
    from pyslot.calls import Parts
    from pyslot.parts import Part
    from pyslot.permit import BasePermit

log = logging.getLogger("pyslot")

OnLost: TypeAlias = "Literal['rejoin', 'stop'] | Callable[[BasePermit], Literal['rejoin', 'stop']]"
"""What becomes of a permit whose slot was lost, or a function that is told of it and decides."""

BATCH = 1000
"""Permits in one script call, at most."""
IDLE = 3600.0
GAUGES = 4096
"""Gauges whose holds are remembered."""

Work: TypeAlias = "Generator[Call | Sleep, Sequence[int], None]"


class Sleep(NamedTuple):
    """A flow's wish to be resumed after so many seconds."""

    seconds: float


class Gauge:
    """One gauge as this limiter knows it: who holds slots here, and how long holds have lasted."""

    __slots__ = ("due", "holds", "leases")

    def __init__(self) -> None:
        self.holds = Holds()
        self.leases: dict[bytes, tuple[ref[BasePermit], Part]] = {}
        self.due: float | None = None


class Upkeep:
    """Renewals and late clean-up of one limiter."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        deadline: float,
        on_lost: OnLost,
        incidents: Incidents,
        outage: Outage,
    ) -> None:
        if on_lost not in ("rejoin", "stop") and not callable(on_lost):
            raise UsageError(f"on_lost must be 'rejoin', 'stop' or a function of a permit, not {on_lost!r}")
        self.clock = clock
        self.wake: Callable[[], None] = lambda: None
        """Set by the shell: makes whoever drives `run` look again."""
        self.gauges: dict[bytes, Gauge] = {}
        self.incidents = incidents
        self.outage = outage
        self.backlog = Backlog(clock, deadline + 5, incidents.dropped)
        self.forked = 0.0
        """Permits that started before this time belong to the parent process."""
        self._deadline = deadline
        self._on_lost = on_lost
        self._order = count()
        self._due: list[tuple[float, int, bytes]] = []
        outage.own = self._own

    # Called by flows, in the caller's thread

    def hold(self, permit: BasePermit, since: float, now: float) -> None:
        """A permit has its slots `since` some time: renew them from now on."""
        permit.started = since
        id, gauges = permit.wire_id, self.gauges
        for part in permit.parts:
            if part.figure is None:
                key, lease = part.wire.key, (ref(permit), part)
                gauge = gauges.get(key) or gauges.setdefault(key, self._new_gauge())
                gauge.leases[id] = lease
                if gauges.get(key) is not gauge:  # another thread has just dropped it as idle
                    gauge = gauges.setdefault(key, gauge)
                    gauge.leases[id] = lease
                gauge.holds.began(id, since)
                due = now + part.limit.lease_ms / 3000  # type: ignore[union-attr]  # a part without a figure is slots
                if gauge.due is None or due < gauge.due:
                    self._plan(key, gauge, due)

    def let_go(self, permit: BasePermit, at: float) -> None:
        """A permit gives its slots up."""
        id, gauges = permit.wire_id, self.gauges
        for part in permit.parts:
            if part.figure is None and (gauge := gauges.get(part.wire.key)) and gauge.leases.pop(id, None):
                gauge.holds.ended(id, at)

    def drop(self, id: bytes, key: bytes, at: float) -> None:
        """One slot is no longer renewed."""
        gauge = self.gauges.get(key)
        if gauge and gauge.leases.pop(id, None):
            gauge.holds.ended(id, at)

    def later(self, id: bytes, why: Why, parts: Parts, call: Call, *, again: bool = False) -> None:
        """Run a call for a permit in the background until the server has answered it."""
        self.backlog.add(id, [Errand(why, parts, call, again)])
        self.wake()

    def join_later(self, id: bytes, groups: Sequence[Parts], permit: BasePermit | None, since: float) -> None:
        """Count a permit on the server that was granted without it."""
        weak = None if permit is None else ref(permit)
        self.backlog.add(
            id,
            [Errand(Why.JOIN, g, calls.admit(g, id, calls.REJOIN), permit=weak, since=since) for g in groups],
        )
        self.wake()

    def slot_wait(self, part: Part, used: int, first_lease_end: float) -> float:
        """Seconds until a full gauge is likely to have room."""
        limit = cast(Slots, part.limit)
        gauge = self.gauges.get(part.wire.key) or Gauge()
        return gauge.holds.wait(self.clock(), used, limit.limit or 0, first_lease_end, limit.lease_ms / 1000)

    # Driven in the background

    @property
    def busy(self) -> bool:
        """True while there is anything to do, now or later."""
        return bool(self._due or len(self.backlog) or self.outage.troubled)

    def run(self, stopped: Callable[[], bool] = lambda: False) -> Work:
        """Everything that is due, until stopped."""
        while not stopped():
            try:
                yield from self._probe()
                yield from self._clean_up(self.backlog.take())
                yield from self._renew()
            except Exception:
                # A bug, a listener's or a store's: whoever else is served here must not lose their leases by it.
                log.exception("the upkeep failed, and goes on")
                yield Sleep(1.0)
            dues = (self.outage.next_probe(), self.backlog.next_due(), self._due[0][0] if self._due else None)
            now = self.clock()
            pause = min([IDLE, *(due - now for due in dues if due is not None)])
            if pause > 0:
                yield Sleep(pause)

    def drain(self) -> Work:
        """What is still waiting, for at most the deadline."""
        end = self.clock() + self._deadline
        while self.clock() < end and (trips := self.backlog.take(force=True)):
            away: set[Hashable] = set()
            for trip in trips:
                place, answered = self.outage.place(trip.part), False
                if place not in away and self.clock() < end:
                    try:
                        answered = yield from self._send(trip)
                    except StoreUnavailable:
                        away.add(place)
                self.backlog.done(trip, answered=answered)
            if away:
                yield Sleep(0.02)
        if left := len(self.backlog):
            self.incidents.dropped(left, "the limiter was closed while the server did not answer")
            self.backlog.clear()

    def _probe(self) -> Work:
        for where, call in self.outage.probes():
            try:
                yield call
            except StoreUnavailable as error:
                self.outage.silent(where, error)
                continue
            except PyslotError:
                pass  # an answer, if not a kind one
            self.outage.answered(where)
            self.backlog.hasten()
            for key, gauge in list(self.gauges.items()):
                if gauge.leases:
                    self._plan(key, gauge, self.clock())

    def _clean_up(self, trips: list[Trip]) -> Work:
        for trip in trips:
            answered = False
            try:
                if not (self.outage.troubled and self.outage.is_away(trip.part)):
                    answered = yield from self._send(trip)
            except StoreUnavailable as error:
                self.outage.failed(trip.part, error)
            finally:
                self.backlog.done(trip, answered=answered)

    def flush(self, id: bytes) -> Generator[Call, Sequence[int], None]:
        """Send what waits for one permit, in the caller's own time; raises where the server does not answer."""
        while trips := self.backlog.take(all_of=id):
            for trip in trips:
                answered = False
                try:
                    answered = yield from self._send(trip)
                finally:
                    self.backlog.done(trip, answered=answered)

    def _send(self, trip: Trip) -> Generator[Call, Sequence[int], bool]:
        try:
            yield trip.call
        except StoreUnavailable:
            raise
        except PyslotError as error:
            self.incidents.dropped(len(trip.errands), error)
        return True

    def _renew(self) -> Work:
        while self._due and self._due[0][0] <= self.clock():
            due, _, key = heapq.heappop(self._due)
            gauge = self.gauges.get(key)
            if gauge is None or gauge.due != due:
                continue  # a shorter lease came in and has its own entry
            gauge.due = None
            pause = yield from self._renew_gauge(key, gauge)
            if pause is not None:
                due = self.clock() + pause
                if gauge.due is None or due < gauge.due:
                    self._plan(key, gauge, due)

    def _renew_gauge(self, key: bytes, gauge: Gauge) -> Generator[Call | Sleep, Sequence[int], float | None]:
        """Renew every lease of a gauge; returns the seconds until it must be done again."""
        now = self.clock()
        by_lease: dict[int, tuple[Part, list[BasePermit]]] = {}
        for id, (weak, part) in list(gauge.leases.items()):
            permit, limit = weak(), cast(Slots, part.limit)
            if permit is None:
                self.drop(id, key, now)
                self.incidents.abandoned(decode_id(id), key)
            elif now >= permit.started + limit.max_hold_seconds:
                log.warning("%r: permit %s has been held for max_hold; its lease now runs out", key, decode_id(id))
                self.drop(id, key, now)
            else:
                by_lease.setdefault(limit.lease_ms, (part, []))[1].append(permit)
        if not by_lease:
            return None
        for lease_ms, (part, permits) in by_lease.items():
            for at in range(0, len(permits), BATCH):
                try:
                    if self.outage.troubled:
                        self.outage.check(part)
                    yield from self._renew_batch(gauge, part, lease_ms, permits[at : at + BATCH])
                except PyslotError as error:
                    if isinstance(error, StoreUnavailable):
                        self.outage.failed(part, error)
                    else:
                        log.warning("%r: leases could not be renewed: %s", key, error)
                    return min(1.0, min(by_lease) / 10_000)
        return min(by_lease) / 3000

    def _renew_batch(self, gauge: Gauge, part: Part, lease_ms: int, permits: list[BasePermit]) -> Work:
        reply = yield calls.renew(part.wire, lease_ms, [permit.wire_id for permit in permits])
        # A permit that finished meanwhile is not held either, and not lost; one that was granted without the server
        # is still to be registered there.
        lost = [
            permit
            for permit, held in zip(permits, reply[::2], strict=True)
            if not held and permit.wire_id in gauge.leases and not self.backlog.waiting(permit.wire_id, Why.JOIN)
        ]
        if not lost:
            return
        for permit in lost:
            permit.lost = True
        self.incidents.lost(part, lost)
        back = []
        for permit in lost:
            if self._verdict(permit) == "rejoin":
                back.append(permit)
            else:
                self.drop(permit.wire_id, part.wire.key, self.clock())
        if back:
            reply = yield calls.rejoin(part.wire, lease_ms, [permit.wire_id for permit in back])
            self.incidents.counts["rejoined"] += len(back)
            if ended := sum(reply[calls.FIGURES :: 1 + calls.FIGURES]):
                self.incidents.leaked(part, ended)
        for permit in back:
            if permit.wire_id not in gauge.leases:  # its release may have come before the rejoin
                self.later(permit.wire_id, Why.UNDO, (part,), calls.undo((part,), permit.wire_id))

    def _verdict(self, permit: BasePermit) -> str:
        if isinstance(self._on_lost, str):
            return self._on_lost
        try:
            return "stop" if self._on_lost(permit) == "stop" else "rejoin"
        except Exception:
            log.exception("on_lost failed, permit %s rejoins", permit.id)
            return "rejoin"

    def _plan(self, key: bytes, gauge: Gauge, due: float) -> None:
        gauge.due = due
        heapq.heappush(self._due, (due, next(self._order), key))
        first = self._due[:1]  # in one step, for the worker may empty it
        if not first or first[0][0] >= due:
            self.wake()

    def _own(self, key: bytes) -> Collection[bytes]:
        gauge = self.gauges.get(key)
        return () if gauge is None else gauge.leases

    def _new_gauge(self) -> Gauge:
        if len(self.gauges) >= GAUGES:
            idle = next(((key, gauge) for key, gauge in list(self.gauges.items()) if not gauge.leases), None)
            if idle is not None:
                key, gauge = idle
                self.gauges.pop(key, None)
                if gauge.leases:  # somebody came in between
                    self.gauges.setdefault(key, gauge)
        return Gauge()

    # Ends

    def held(self) -> list[BasePermit]:
        """Permits that hold slots now."""
        found = {
            permit.wire_id: permit
            for gauge in list(self.gauges.values())
            for weak, _ in list(gauge.leases.values())
            if (permit := weak()) is not None
        }
        return list(found.values())

    def after_fork(self) -> None:
        """In a child nothing is held: permits, and what is still to be done for them, are the parent's."""
        self.forked = self.clock()
        self.gauges = {}
        self._due = []
        self.backlog.clear()
        self.outage.after_fork()
