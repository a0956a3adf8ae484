"""Calls that could not be made in place: ends, undos and late registrations of permits, sent in the background.

What concerns one permit is sent in order, one call after another. Many permits' calls that differ in the permit alone
travel as one.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from pyslot import calls
from pyslot.calls import Parts
from pyslot.kinds import Slots
from pyslot.loader import Call
from pyslot.parts import Part

if TYPE_CHECKING:
    from pyslot.permit import BasePermit

BACKLOG = 10_000
"""Permits whose calls are kept while the server is away; beyond it the oldest is dropped, and its lease runs out."""
TOGETHER = 200
"""Permits in one call, at most."""
SLOWEST = 5.0


class Why(Enum):
    END = auto()
    """A permit has finished."""
    UNDO = auto()
    """It is unknown whether the call took effect; it must not have."""
    JOIN = auto()
    """A permit was granted without the server, which is to count it too."""


class Errand(NamedTuple):
    """One call for one permit."""

    why: Why
    parts: Parts
    call: Call
    again: bool = False
    """True where it is to be repeated once: an undo may overtake the call it undoes."""
    permit: ref[BasePermit] | None = None
    since: float = 0.0
    """JOIN: when the permit was granted."""


class _Queue:
    """The errands of one permit."""

    __slots__ = ("due", "errands", "sending", "ticket", "tries")

    def __init__(self) -> None:
        self.errands: deque[Errand] = deque()
        self.due = 0.0
        self.ticket = 0
        """Which of its entries in the heap counts: the last. Two may be due at the same moment."""
        self.tries = 0
        self.sending = False


class Trip(NamedTuple):
    """One call for several permits."""

    call: Call
    errands: list[tuple[bytes, Errand]]

    @property
    def part(self) -> Part:
        return self.errands[0][1].parts[0]


class Backlog:
    """The errands of one limiter. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float], again_after: float, dropped: Callable[[int, object], None]) -> None:
        """again_after: seconds after which an undo is repeated."""
        self._clock = clock
        self._again_after = again_after
        self._dropped = dropped
        self._lock = threading.Lock()
        self.queues: dict[bytes, _Queue] = {}
        self._claims: Counter[bytes] = Counter()
        self._heap: list[tuple[float, int, bytes]] = []
        self._tickets = count(1)

    def __len__(self) -> int:
        return len(self.queues)

    def next_due(self) -> float | None:
        heap = self._heap
        return heap[0][0] if heap else None

    def add(self, id: bytes, errands: Iterable[Errand]) -> None:
        with self._lock:
            for errand in errands:
                queue = self.queues.get(id)
                if queue is None:
                    if len(self.queues) >= BACKLOG:
                        self._drop_oldest()
                    queue = self.queues[id] = _Queue()
                    self._push(id, queue, self._clock())
                elif queue.errands[0].again is False and queue.due > self._clock() and not queue.tries:
                    self._push(id, queue, self._clock())  # what waited was a repetition; this does not
                queue.errands.append(errand)

    def waiting(self, id: bytes, why: Why) -> bool:
        """True where a permit has errands of a kind."""
        queue = self.queues.get(id)
        return queue is not None and any(errand.why is why for errand in tuple(queue.errands))

    def claim(self, id: bytes) -> bool:
        """Keep the background from a permit that is being acquired; False while a call for it is on its way."""
        with self._lock:
            queue = self.queues.get(id)
            if queue is not None and queue.sending:
                return False
            self._claims[id] += 1
            return True

    def release(self, id: bytes) -> None:
        with self._lock:
            self._claims[id] -= 1
            if not self._claims[id]:
                del self._claims[id]
                if queue := self.queues.get(id):
                    self._push(id, queue, max(queue.due, self._clock()))

    def cancel_undos(self, id: bytes, keys: Iterable[bytes]) -> None:
        """The permit was granted after all: what would undo that is cancelled."""
        held = set(keys)
        with self._lock:
            if queue := self.queues.get(id):
                kept = [e for e in queue.errands if e.why is not Why.UNDO or not held.issuperset(e.call.keys)]
                if queue.sending and (not kept or kept[0] is not queue.errands[0]):
                    kept.insert(0, queue.errands[0]._replace(again=False))  # its answer is still to come
                queue.errands = deque(kept)
                if not kept:
                    del self.queues[id]

    def take(self, *, all_of: bytes | None = None, force: bool = False) -> list[Trip]:
        """What is due, or the next of one permit, or with `force` of all; each is to be reported by `done`."""
        with self._lock:
            now = self._clock()
            ids = []
            if all_of is not None:
                if (queue := self.queues.get(all_of)) and not queue.sending:
                    ids.append(all_of)
            else:
                while self._heap and len(ids) < TOGETHER and (force or self._heap[0][0] <= now):
                    _, ticket, id = heapq.heappop(self._heap)
                    queue = self.queues.get(id)
                    if queue is not None and not queue.sending and queue.ticket == ticket and id not in self._claims:
                        ids.append(id)
            trips: dict[tuple[object, ...], Trip] = {}
            for id in ids:
                queue = self.queues[id]
                errand = _next(queue.errands, now)
                if errand is None:
                    del self.queues[id]
                    continue
                queue.sending = True
                call = errand.call
                same = trips.get(kind := (call.script.name, call.keys, call.head))
                if same is None:
                    trips[kind] = Trip(call, [(id, errand)])
                else:
                    same.errands.append((id, errand))
            return [_joined(trip) for trip in trips.values()]

    def done(self, trip: Trip, *, answered: bool) -> None:
        """A trip has had its answer, or none: then it is tried again, later and later."""
        with self._lock:
            for id, _ in trip.errands:
                queue = self.queues.get(id)
                if queue is None or not queue.errands:
                    continue
                queue.sending = False
                now = self._clock()
                if answered:
                    first = queue.errands.popleft()
                    queue.tries = 0
                    if first.again:
                        queue.errands.append(first._replace(again=False))
                        self._push(id, queue, now + (self._again_after if len(queue.errands) == 1 else 0.0))
                    elif queue.errands:
                        self._push(id, queue, now)
                    else:
                        del self.queues[id]
                else:
                    first = queue.errands[0]
                    if all(set(first.call.keys).isdisjoint(other.call.keys) for other in list(queue.errands)[1:]):
                        queue.errands.rotate(-1)  # other keys may be on a server that answers
                    self._push(id, queue, now + min(SLOWEST, 0.1 * 2.0**queue.tries))
                    queue.tries = min(queue.tries + 1, 6)

    def hasten(self) -> None:
        """The server is back: what has waited for it is due now."""
        with self._lock:
            now = self._clock()
            for id, queue in self.queues.items():
                if queue.tries:
                    queue.tries = 0
                    self._push(id, queue, now)

    def clear(self) -> None:
        self._lock = threading.Lock()
        self.queues, self._heap = {}, []

    def _push(self, id: bytes, queue: _Queue, due: float) -> None:
        queue.due, queue.ticket = due, next(self._tickets)
        heapq.heappush(self._heap, (due, queue.ticket, id))

    def _drop_oldest(self) -> None:
        id = next(iter(self.queues))
        del self.queues[id]
        self._dropped(1, f"more than {BACKLOG} permits wait for the server")


def _next(errands: deque[Errand], now: float) -> Errand | None:
    """The next errand as it is right by now; one that has nothing left to do is passed over."""
    while errands:
        errand = errands[0]
        if errand.why is not Why.JOIN:
            return errand
        permit = errand.permit() if errand.permit else None
        held = permit is not None and permit.is_open
        # Slots only of a permit still held, charges only in windows that can't have rolled.
        parts = tuple(
            part
            for part in errand.parts
            if (held if isinstance(part.limit, Slots) else now < errand.since + part.limit.per_ms / 1000)
        )
        if parts:
            return errand._replace(parts=parts, call=calls.admit(parts, errand.call.permits[0], calls.REJOIN))
        errands.popleft()
    return None


def _joined(trip: Trip) -> Trip:
    if len(trip.errands) == 1 or not trip.call.permits:
        return trip
    permits = tuple(figure for _, errand in trip.errands for figure in errand.call.permits)
    return trip._replace(call=trip.call._replace(permits=permits))
