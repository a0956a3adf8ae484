"""Whether the server can be asked, and what is decided while it can't.

An outage costs one time-out, not one per request: after a call without an answer nobody asks that server, or that node
of a cluster, until a probe of the background has been answered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Sequence
from math import floor
from typing import NamedTuple

from pyslot import calls
from pyslot.calls import Answer, Parts
from pyslot.errors import StoreBusy, StoreSkipped, StoreUnavailable
from pyslot.incidents import Incidents
from pyslot.kinds import Slots
from pyslot.loader import Call
from pyslot.parts import Part
from pyslot.policy import Local, Policy, check_policy

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between probes."""
SEEN = 10_000
"""Limits of which is remembered what others were seen to hold, at most."""

Place = Callable[[int], Hashable]
"""Hash slot -> which server of a cluster has it now."""


class _Away:
    """One server that does not answer."""

    __slots__ = ("call", "due", "error", "pause", "since", "where")

    def __init__(self, where: Hashable, error: Exception, now: float, call: Call) -> None:
        self.where = where
        self.error = error
        self.since = now
        self.due = now
        self.pause = FIRST_PAUSE
        self.call = call


class _Window(NamedTuple):
    """What is known here of one window."""

    ends: float
    own: int
    others: int


class Outage:
    """The breaker and the policies of one limiter."""

    def __init__(
        self,
        policy: Policy,
        clock: Callable[[], float],
        incidents: Incidents,
        *,
        breaker: bool = True,
    ) -> None:
        check_policy(policy)
        self.policy: Policy = policy
        self.troubled = False
        """True while any server is away."""
        self.own: Callable[[bytes], Collection[bytes]] = lambda _: ()
        """Gauge -> ids of the permits that hold its slots here. Set by the upkeep."""
        self.locate: Place = lambda _: None
        """Set by the shell where the store is a cluster."""
        self._clock = clock
        self._incidents = incidents
        self._breaker = breaker
        self._away: dict[Hashable, _Away] = {}
        self._lock = threading.Lock()
        self._others: dict[bytes, tuple[int, float]] = {}
        """Gauge -> slots others were seen to hold, and until when that counts."""
        self._windows: dict[bytes, _Window] = {}
        self._booked: dict[bytes, set[bytes]] = {}
        """Gauge -> ids admitted here and not held yet."""

    # The breaker

    def check(self, part: Part) -> None:
        """Raise at once where the server that has a key is known to be away."""
        away = self._away.get(self.place(part))
        if away is not None:
            ago = self._clock() - away.since
            raise StoreSkipped(f"not asked, for {ago:.1f} s ago there was no answer: {away.error}") from away.error

    def place(self, part: Part) -> Hashable:
        """The server that has a key."""
        return self.locate(part.wire.hash_slot)

    def is_away(self, part: Part) -> bool:
        return self.place(part) in self._away

    def failed(self, part: Part, error: StoreUnavailable) -> bool:
        """A call had no answer. True where that is news."""
        if not self._breaker or isinstance(error, (StoreBusy, StoreSkipped)):
            return False
        where = self.place(part)
        with self._lock:
            if where in self._away:
                return False
            self._away[where] = _Away(where, error, self._clock(), calls.probe(part.wire.key))
            self.troubled = True
        self._incidents.away(where, error)
        return True

    def next_probe(self) -> float | None:
        """When the next probe is due."""
        return min((away.due for away in list(self._away.values())), default=None)

    def probes(self) -> list[tuple[Hashable, Call]]:
        """The probes that are due; the one who takes them sends them."""
        now = self._clock()
        return [(away.where, away.call) for away in list(self._away.values()) if away.due <= now]

    def silent(self, where: Hashable, error: Exception) -> None:
        """A probe had no answer either."""
        with self._lock:
            if away := self._away.get(where):
                away.error = error
                away.due = self._clock() + away.pause
                away.pause = min(2 * away.pause, LONGEST_PAUSE)

    def answered(self, where: Hashable) -> None:
        with self._lock:
            away = self._away.pop(where, None)
            self.troubled = bool(self._away)
        if away:
            self._incidents.back(where, self._clock() - away.since)

    # The policies

    def raises(self, parts: Parts) -> bool:
        """True where trouble is to be raised: any limit that says so is enough."""
        return any((part.limit.on_outage or self.policy) == "raise" for part in parts)

    def decide(self, parts: Parts, id: bytes) -> Answer:
        """What the policies say. Every limit must agree; what is granted is booked here."""
        with self._lock:
            now = self._clock()
            figures = [self._judge(part, part.limit.on_outage or self.policy, id, now) for part in parts]
            granted = all(agrees for agrees, _ in figures)
            if granted:
                for part in parts:
                    self._book(part, id, now)
            record = [calls.GRANTED if granted else calls.REFUSED]
            for _, figure in figures:
                record += (*figure, 0)
            return Answer(parts, record)

    def booked(self, parts: Parts, id: bytes) -> None:
        """What was granted is held now."""
        with self._lock:
            for part in parts:
                if ids := self._booked.get(part.wire.key):
                    ids.discard(id)
                    if not ids:
                        del self._booked[part.wire.key]

    def _judge(self, part: Part, policy: Policy, id: bytes, now: float) -> tuple[bool, tuple[int, int, int]]:
        if not isinstance(policy, Local):
            return policy == "open", (calls.TAKES, 0, 0)
        limit = part.limit.limit
        if isinstance(part.limit, Slots):
            held = {*self.own(part.wire.key), *self._booked.get(part.wire.key, ())}
            own, others = len(held), self._seen(part.wire.key, now)
            reset = part.limit.lease_ms
            if id in held:
                return True, (calls.HELD, own + others, reset)
        else:
            window = self._window(part, now)
            own, others, reset = window.own, window.others, max(1, round((window.ends - now) * 1000))
        used = own + others
        if limit is None:
            return True, (calls.TAKES, used + part.units, reset)
        share = max(1, floor(limit * policy.share))
        if own + part.units <= share and used + part.units <= limit:
            return True, (calls.TAKES, used + part.units, reset)
        if not part.limit.enforce:
            return True, (calls.OBSERVED, used + part.units, reset)
        return False, (calls.NEVER if part.units > limit else calls.FULL, used, reset)

    def _seen(self, key: bytes, now: float) -> int:
        others, until = self._others.get(key, (0, 0.0))
        return others if now < until else 0

    def _window(self, part: Part, now: float) -> _Window:
        window = self._windows.get(part.wire.key)
        if window is None or window.ends <= now:
            return _Window(now + part.limit.per_ms / 1000, 0, 0)  # type: ignore[union-attr]  # slots don't come here
        return window

    def _book(self, part: Part, id: bytes, now: float) -> None:
        if isinstance(part.limit, Slots):
            self._booked.setdefault(part.wire.key, set()).add(id)
        else:
            window = self._window(part, now)
            self._windows[part.wire.key] = window._replace(own=window.own + part.units)

    # What the server said last: only asked for where a policy is `Local`

    def saw(self, answers: Sequence[Answer]) -> None:
        """Remember what others hold, from the answers to a request that was granted."""
        with self._lock:
            now = self._clock()
            if len(self._others) > SEEN:
                self._others = {key: seen for key, seen in self._others.items() if seen[1] > now}
            if len(self._windows) > SEEN:
                self._windows = {key: window for key, window in self._windows.items() if window.ends > now}
            for answer in answers:
                for part, verdict, used, reset in answer.figures():
                    key = part.wire.key
                    if isinstance(part.limit, Slots):
                        self._others[key] = (max(0, used - len(self.own(key))), now + part.limit.lease_ms / 1000)
                    else:
                        taken = 0 if verdict == calls.HELD else part.units
                        own = self._window(part, now).own + taken
                        self._windows[key] = _Window(now + reset / 1000, own, max(0, used - own))

    def settled(self, part: Part, units: int) -> None:
        """A charge became its real figure."""
        with self._lock:
            window = self._windows.get(part.wire.key)
            if window is not None and window.ends > self._clock():
                self._windows[part.wire.key] = window._replace(own=max(0, window.own + units - part.units))

    def after_fork(self) -> None:
        """Nothing of what the parent holds is held here."""
        self._lock = threading.Lock()
        self._away, self.troubled = {}, False
        self._windows, self._booked = {}, {}
