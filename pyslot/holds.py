"""How long a caller refused by a full gauge should wait: odds from the holds seen, not truth.

The wait is the shortest that frees enough slots at the odds aimed for, plus a place in a queue behind this limiter's
callers who were told to come earlier. Whether those who come as told get in is watched, and moves the odds aimed for
until about 2 in 3 do. Where more callers persist than slots can serve no wait gives 2 in 3; it is bounded then.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Hashable
from itertools import accumulate
from math import inf
from typing import NamedTuple

_KEEP = 64  # durations remembered: 2/3 is then known to within 0.06, and a change of regime is learnt in 64 ends
_OWN = 16  # ages of own permits looked at; of more, every second, third, ...
_DUE, _FLOOR = 1024, 0.001  # callers remembered as waiting; seconds, less than a round trip is no wait
_UNKNOWN = 0.01  # seconds; the least age of a holder while no hold has been seen: waits double from about here
_FAR = 1e9  # seconds; beyond any hold
_MISS = 0.3  # the chance to come too early that is aimed for while nothing has been learnt
_GAIN = 0.05  # how much one outcome moves what is learnt
_LEAST, _MOST = 0.8, 2.0  # the caution's bounds; more buys hardly any odds
_TURNS = 2.0  # how many mean holds a queue may add, before caution: whoever waits beyond may well never come


class _Holders(NamedTuple):
    """Who is in the way, and what is known of their holds."""

    seen: list[float]  # durations, ascending
    sums: list[float]  # sums[i] = sum(seen[i:])
    known: list[tuple[float, float, int]]  # (how many, their age, how many of `seen` lasted longer than that age)
    strangers: int  # holders of unknown age
    youth: float  # seconds; no stranger is older

    def beyond(self, t: float) -> float:
        """The survival function integrated from `t` on, times the number of holds seen."""
        i = bisect_right(self.seen, t)
        return self.sums[i] - t * (len(self.seen) - i)

    def enough(self, t: float, need: int, caution: float) -> bool:
        """Are `need` of the holders gone in `t` seconds, at the odds that this caution asks for?"""
        none, gone, spread = 1.0, 0.0, 0.0
        for many, age, left in self.known:
            # To the holds seen, one of Lindy's is added, with as long to go as it is old: held after t more with a
            # chance of age / (age + t). It speaks alone for a holder older than any seen.
            held = (len(self.seen) - bisect_right(self.seen, age + t) + age / (age + t)) / (left + 1)
            none, gone, spread = none * held**many, gone + (1.0 - held) * many, spread + held * (1.0 - held) * many
        if many := self.strangers:  # met at a random moment of their holds: the equilibrium law of renewal theory
            whole, part = self.sums[0] - self.beyond(self.youth), self.beyond(t) - self.beyond(self.youth + t)
            held = min(max(part / whole, 0.0), 1.0) if whole > 0.0 else 0.0
            none, gone, spread = none * held**many, gone + (1.0 - held) * many, spread + held * (1.0 - held) * many
        if need == 1:
            return none <= _MISS / caution**2
        return gone - 0.7 * caution * float(spread**0.5) >= need - 0.5  # the normal law is near enough for several

    def first(self, need: int, caution: float, guess: float, cap: float) -> float:
        """The shortest time in seconds, to within 4 %, in which `need` are gone."""
        high = max(guess, _FLOOR)
        low = high / 4.0
        while high < cap and not self.enough(high, need, caution):
            low, high = high, high * 4.0
        while low > _FLOOR / 4.0 and self.enough(low, need, caution):
            low, high = low / 4.0, low
        for _ in range(5):
            mid = float((low * high) ** 0.5)
            low, high = (low, mid) if self.enough(mid, need, caution) else (mid, high)
        return high


class Holds:
    """The holds of one gauge as one limiter saw them. Times are monotonic seconds.

    Without locks: every step on shared state is one call into C, and a lost update costs a little precision only.
    """

    __slots__ = ("_caution", "_come", "_due", "_last", "_seen", "_share", "live")

    def __init__(self) -> None:
        self.live: dict[Hashable, float] = {}  # permit id -> start, own permits only
        self._seen: deque[float] = deque(maxlen=_KEEP)
        self._due: list[float] = [inf]  # when callers were told to come, ascending; the end never goes
        self._last = 0.0  # the wait told last, seconds
        self._caution = 1.0  # above 1 where those who came as told were refused too often
        self._come = 1.0  # the part of those told who do come
        self._share = 0.0  # this limiter's part of the gauge, 0 while unknown

    def began(self, id: Hashable, at: float) -> None:
        """A permit was granted."""
        self.live[id] = at
        if self._due[0] <= at:
            self._learn(at, 1.0 - _GAIN)

    def ended(self, id: Hashable, at: float) -> None:
        """A permit was given back. Unknown ids are ignored."""
        start = self.live.pop(id, None)
        if start is not None and 0.0 <= at - start < _FAR:
            self._seen.append(at - start)

    def wait(self, at: float, used: int, limit: int, first_lease_end: float, lease: float) -> float:
        """Seconds until a caller refused at `at` should come again; to be asked once for every refusal.

        `used` of `limit` slots are taken, and the first of their leases (of `lease` seconds) ends in
        `first_lease_end`: never more than that, where it is above 0. Costs 20 to 120 microseconds (1 to 200 slots).
        """
        timed = 0.0 < first_lease_end < _FAR
        cap = first_lease_end if timed else lease if 0.0 < lease < _FAR else _FAR
        if self._due[0] <= at:
            self._learn(at, 1.0 + 2.3 * _GAIN)  # against 1 down for a grant: they balance at 7 of 10 granted
        if used <= 0:
            return min(_FLOOR, cap)
        holders, mean = self._holders(at, used, min(max(lease - first_lease_end, 0.0), _FAR) if timed else 0.0, lease)
        first = holders.first(min(max(used - limit + 1, 1), used), self._caution, mean / used, cap)
        # Others' callers wait as well: as many for each of their slots as here. Every release lets one in.
        share = max(min(len(self.live), used), 0.5) / used
        self._share = share = self._share + (share - self._share) * 0.1 if self._share else share
        ahead = min((len(self._due) - 1) * self._come / share, _TURNS * used)
        self._last = told = min(max(first + self._caution * ahead * mean / used, _FLOOR), cap)
        if len(self._due) <= _DUE:
            insort(self._due, at + told)
        return told

    def _holders(self, at: float, used: int, idle: float, lease: float) -> tuple[_Holders, float]:
        """(who is in the way, the mean hold in seconds). The lease to end first was taken or renewed `idle` ago."""
        seen = sorted(self._seen)
        sums = list(accumulate(reversed(seen), initial=0.0))[::-1]
        starts = list(self.live.values())
        ages = [min(max(at - start, 0.0), _FAR) for start in starts[:: -(-len(starts) // _OWN) or 1]]
        n, oldest, least = len(seen), max(ages, default=0.0), 0.0 if seen else _UNKNOWN
        strangers = max(used - len(starts), 0)
        known = [((used - strangers) / len(ages), max(age, least), n - bisect_right(seen, age)) for age in ages]
        if not seen:
            known.append((strangers, blind := max(oldest, idle, _UNKNOWN), 0))
            return _Holders(seen, sums, known, 0, _FAR), blind
        # Where no hold seen lived to renew its lease, the first lease to end tells the oldest holder's age.
        exact = idle > 0.0 and max(idle, seen[-1]) < lease / 3.0
        if strangers and oldest < 0.95 * idle - 0.005 and (exact or idle > seen[-1]):
            strangers -= 1
            known.append((1.0, idle, n - bisect_right(seen, idle)))
        return _Holders(seen, sums, known, strangers, idle if exact else _FAR), sums[0] / n

    def _learn(self, at: float, step: float) -> None:
        """Somebody asked at `at`, with an outcome that calls for `step`: what of those told to come until now?"""
        passed = bisect_right(due := self._due, at)  # 0 where another thread has learnt it
        self._due = due[passed:]
        came = passed > 0 and at - due[passed - 1] <= 0.01 * self._last + 0.002
        self._come = self._come * (1.0 - _GAIN) ** passed + _GAIN * came
        if came:  # or a stranger did at that very moment, and met what they would have met
            self._caution = min(max(self._caution * step, _LEAST), _MOST)
